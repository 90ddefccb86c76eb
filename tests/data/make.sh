#!/bin/bash
# make.sh [REGEX]: makes the recordings below recorded/ (those whose name matches REGEX) and then, by craft.py,
# everything below crafted/ and the table in README.md. Run check.py and craft.py afterwards to update perf's results.
#
# - Only the programs of work/ are recorded, never the system (no -a, no -C).
# - Everything happens in /tmp/perfx-data with a neutral environment and host name, so that no file
#   holds a path, name or variable of the machine that recorded it. The last step checks that.
# - Their kernel release does not exist on any machine (no_machine.py), so that no test depends on the machine.
# - Needs root (for namespaces, BPF, tracepoints, kernel samples), gcc, python3 and these perf versions; a
#   version that is missing is left out:
declare -A PERF=([p510]=perf-bullseye [p61]=perf [p612]=perf-trixie [p73]=perf-new)
ALL="p510 p61 p612 p73"
BOTH="p61 p73"

here=$(cd "$(dirname "$0")" && pwd)
root=/tmp/perfx-data
work=$root/work
rec=$root/rec
out=$here/recorded

# A clean environment and a host name of its own, by running the script again inside it.
if [ "$(hostname)" != perfx-host ]; then
    exec env -i PATH="$PATH" unshare -u sh -c 'hostname perfx-host; exec "$@"' sh bash "$here/make.sh" "$@"
fi
regex=${1:-.}
declare -A BIN
for v in "${!PERF[@]}"; do BIN[$v]=$(command -v "${PERF[$v]}"); done
python=$(python3 -c 'import sys; print(sys.executable)')
export PATH=$work:/usr/bin:/bin HOME=$root/home LC_ALL=C
umask 022
unset OLDPWD
mkdir -p "$HOME" "$rec/log" "$out"
sh "$here/work/build.sh" "$work" || exit 1
cp "$here/work/with-kcore" "$here/work/hybrid.py" "$work/"
cd "$rec" || exit 1
unset OLDPWD
index=$rec/INDEX.tsv
cp "$out/INDEX.tsv" "$index" 2>/dev/null || : > "$index"

# keep NAME COMMAND NOTE: puts ./NAME into recorded/ and a line into the index
keep() {
    if [ ! -e "$1" ]; then
        echo "MISSING $1   (see $rec/log/$1.log)"
        return
    fi
    rm -rf "${out:?}/$1" "$1.old"
    cp -r "$1" "$out/$1"
    find "$out/$1" -type f -exec "$python" "$here/no_machine.py" "$(uname -r)" "$(perf buildid-list -k)" {} +
    find "$out/$1" -type f -exec chmod 0644 {} + , -type d -exec chmod 0755 {} +
    grep -v -F "$1"$'\t' "$index" > "$index.t"
    printf '%s\t%s\t%s\n' "$1" "${2//$'\n'/\\n}" "$3" >> "$index.t"
    LC_ALL=C sort "$index.t" > "$index"
    rm "$index.t"
    echo "$1  $(du -sb "$out/$1" | cut -f1)"
}

# R NAME VERSIONS NOTE ARGUMENTS...: runs perf with the arguments, '@' being the output file
R() {
    local name=$1 versions=$2 note=$3 v a args o shown
    shift 3
    [[ $name =~ $regex ]] || return 0
    for v in $versions; do
        [ -n "${BIN[$v]}" ] || continue
        o=$name.$v.data
        args=()
        for a in "$@"; do args+=("${a/#@/$o}"); done
        rm -rf "$o"
        $R_prefix timeout -s INT -k 10 60 "${BIN[$v]}" "${args[@]}" > "log/$o.out" 2> "log/$o.log" < /dev/null
        shown=perf
        for a in "${args[@]}"; do
            case $a in *[!A-Za-z0-9_./,:=@%+-]* | '') a="'$a'" ;; esac
            shown+=" $a"
        done
        keep "$o" "$shown" "$note"
    done
}

# S NAME VERSIONS NOTE 'SHELL TEXT': the text finds perf as $P and the output as $O
S() {
    local name=$1 versions=$2 note=$3 text=$4 v o
    [[ $name =~ $regex ]] || return 0
    for v in $versions; do
        [ -n "${BIN[$v]}" ] || continue
        o=$name.$v.data
        rm -rf "$o"
        env P="${BIN[$v]}" O="$o" V="$v" timeout -s INT -k 10 60 bash -c "$text" > "log/$o.out" 2> "log/$o.log" < /dev/null
        text=${text//$'\n'/; }
        local shown=${text//\$P/perf}
        keep "$o" "${shown//\$O/$o}" "$note"
    done
}

cpu="-e cpu-clock -F 4999"

# ---- plain, sampling, sample types
R plain "$ALL" "the simplest recording" record $cpu -o @ burn 10
R default p73 "the default event of a machine without a PMU" record -o @ burn 20
R fixed-period "$BOTH" "fixed period, PERIOD in the sample" record -e task-clock -c 1000000 -P -o @ burn 20
R fp "$ALL" "call chains by frame pointer" record $cpu -g -o @ burn 10
R fp-deep p61 "chains of more than 100 entries" record -e cpu-clock -F 999 -g -o @ burn 10 120
R fp-defer p73 "asks for deferred user call chains (this kernel, 6.18, had none to give)" record $cpu --call-graph fp,defer -o @ calls 100 10
R dwarf "$ALL" "user registers and stack" record -e cpu-clock -F 499 --call-graph dwarf,512 -o @ burn_nofp 20
R dwarf-max p61 "the largest stack copy: samples of nearly 64 KiB" record -e cpu-clock -F 99 --call-graph dwarf,65528 -o @ burn_nofp 20
R several "$BOTH" "four events; ID in every sample" record -e cpu-clock,task-clock,page-faults,cs -F 4999 -o @ crew 2 10
R named "$BOTH" "names and terms; the names live in EVENT_DESC" record -e 'cpu-clock/name=my_event,period=1000000/u' -e 'cpu-clock/freq=2000,call-graph=fp,name=other/' -o @ burn 10
S hybrid p73 "cycles of two kinds of cores: clocks that hybrid.py renames" '$P record -e cpu-clock/name=cpu_core_cycles_,freq=399/,cpu-clock/name=cpu_atom_cycles_,freq=4999/ -g -o $O burn 40 && hybrid.py $O'
R modifiers "$BOTH" "event modifiers in the attr bits" record -e cpu-clock:u,cpu-clock:k,task-clock:H,page-faults:uk -F 4999 -o @ calls 50 10
R mixed-callgraph "$BOTH" "attrs with different sample types: dwarf, none, none" record -e 'cpu-clock/call-graph=dwarf,stack-size=256/' -e 'page-faults/call-graph=no/' -e task-clock -F 999 -o @ burn_nofp 15
R group "$BOTH" "two groups (GROUP_DESC)" record -e '{cpu-clock,page-faults}' -e '{task-clock,cs,migrations}' -F 4999 -o @ crew 2 10
R group-read "$ALL" "READ in the sample, GROUP layout" record -e '{task-clock,page-faults,cs}:S' -F 4999 -o @ burn 10
R single-read "$BOTH" "group of one: READ with times" record -e '{task-clock}:S' --running-time -F 4999 -o @ burn 5
R inherit-stat "$BOTH" "READ records at thread exit" record $cpu -s -o @ crew 3 10
R identifier "$BOTH" "IDENTIFIER with a single event" record $cpu --sample-identifier -o @ burn 5
R no-inherit p61 "no inheritance: no CPU in the sample" record $cpu -i -o @ burn 5
R per-thread p61 "one buffer per thread, cpu -1 in the index" record $cpu --per-thread -o @ burn 5
R allbits "$BOTH" "every sample_type bit this machine can do" record -e cpu-clock -F 999 -g -d -W -P -T --sample-cpu --sample-identifier --phys-data --data-page-size --code-page-size --transaction --user-regs --intr-regs --all-cgroups --namespaces --switch-events -o @ burn 15
R weight-old p510 "WEIGHT instead of WEIGHT_STRUCT" record -e page-faults -c 1 -d -W -o @ pages 8
R addresses "$BOTH" "ADDR, PHYS_ADDR, page sizes, WEIGHT_STRUCT" record -e page-faults -c 1 -d -W --phys-data --data-page-size --code-page-size -o @ pages 16
R user-regs "$BOTH" "all user registers" record -e cpu-clock -F 999 --user-regs -o @ burn 10
R user-regs-few p73 "three user registers" record -e cpu-clock -F 999 --user-regs=ip,sp,bp -o @ burn 10
R intr-regs p61 "interrupt registers, kernel and user" record -e cpu-clock -F 999 -I -o @ calls 50 10
R compat-regs p61 "registers of a 32-bit program (abi 1)" record -e cpu-clock -F 999 --user-regs -g -o @ compat
R compat-dwarf p73 "stack of a 32-bit program" record -e cpu-clock -F 499 --call-graph dwarf,256 -o @ compat
R kernel "$BOTH" "kernel samples with chains" record -e cpu-clock:k -F 9999 -g -o @ calls 50 10
R callgraph-user p61 "user part of chains only" record $cpu -g --user-callchains -o @ calls 50 10
R breakpoint p73 "a breakpoint event with its own bp_type" record -e 'mem:0x10000:rw' -e cpu-clock -F 999 -o @ burn 5
R bpf-output p61 "an event of type bpf-output" record -e 'bpf-output/no-inherit,name=evt/' -e cpu-clock -o @ burn 5
R empty "$BOTH" "no sample at all" record -e dummy -o @ burn 1
R nothing "$BOTH" "no sample and nothing synthesised" record -e dummy --synth=no -o @ burn 1
R no-samples p61 "-n: counting only" record -e cpu-clock -n -o @ burn 5
R timestamp-boundary p73 "SAMPLE_TIME from --timestamp-boundary" record $cpu --timestamp-boundary -o @ burn 5
R delay p73 "start delayed" record $cpu -D 10 -o @ burn 20
R latency p73 "--latency: context switches and parallelism" record --latency $cpu -o @ crew 2 10
R overwrite p61 "write_backward buffers: newest records first" record -e cpu-clock -F 9999 -m 1 --overwrite -o @ burn 20
R tail-synthesize p61 "synthesised records at the end" record $cpu --tail-synthesize -o @ burn 5
R lost "$BOTH" "LOST and LOST_SAMPLES: a one-page buffer overruns" record -e raw_syscalls:sys_enter,raw_syscalls:sys_exit -m 1 -o @ calls 80

for clock in monotonic monotonic_raw boottime realtime tai; do
    R "clock-$clock" p73 "CLOCKID and CLOCK_DATA" record -k $clock $cpu -o @ burn 3
done
R clock-monotonic p61 "CLOCKID and CLOCK_DATA" record -k monotonic $cpu -o @ burn 3

# ---- tracepoints
R tracepoint "$ALL" "RAW samples and the TRACING_DATA section" record -e raw_syscalls:sys_enter -o @ calls 10
R tracepoint-group p73 "tracepoint led by a clock, READ and RAW in one sample" record -e '{cpu-clock,raw_syscalls:sys_enter}:S' -F 4999 -o @ calls 20 10
R exec-tracepoint p61 "three tracepoints" record -e sched:sched_process_exec,sched:sched_process_fork,sched:sched_process_exit -R -o @ forks 3 1
R sched-stat "$BOTH" "what perf inject -s merges, but for sched_stat_sleep, which this kernel has not" record -e sched:sched_stat_runtime -e sched:sched_switch -e sched:sched_process_exit -g -m 8 -o @ crew 3 3
R off-cpu "$BOTH" "the ways out (sched_switch) and back (SWITCH) of threads" record -e sched:sched_switch --switch-events -g -m 8 -o @ crew 4 30
R trace "$BOTH" "perf trace record" trace record -o @ calls 10
R locks p61 "waits for locks of the kernel" record -g -m 128 -e lock:contention_begin,lock:contention_end -o @ contend 4 8
R waits p61 "waits for a CPU, soft interrupts, allocations" record -m 128 -e sched:sched_switch,sched:sched_wakeup,sched:sched_wakeup_new,irq:softirq_raise,irq:softirq_entry,irq:softirq_exit,kmem:kmalloc -o @ contend 4 10

# ---- compression
R z "p61 p612 p73" "COMPRESSED (p73: COMPRESSED2)" record -z $cpu -o @ burn 20
R z1 p61 "level 1" record -z1 $cpu -g -o @ burn 20
R z22 "$BOTH" "level 22" record -z22 $cpu -g -o @ burn 20
R z-straddle "$BOTH" "records straddle several compressed ones" record -z1 -m 8 -e cpu-clock -F 25000 --call-graph dwarf,1024 -o @ burn_nofp 60 30
R z-tracepoint "$BOTH" "RAW samples, badly compressible" record -z -m 4 -e raw_syscalls:sys_enter,raw_syscalls:sys_exit -o @ calls 100
S switch-output-z "$BOTH" "one zstd stream over rotated files: 2.data and 3.data need those before them" 'mkdir part.$V; $P record -z -m 2 -e cpu-clock -F 20000 -g --switch-output=16K -o part.$V/perf.data burn 140 30
i=0; mkdir $O; for f in part.$V/perf.data.*; do i=$((i+1)); [ $i -gt 3 ] || cp $f $O/$i.data; done; rm -r part.$V'

# ---- directories
R threads "$BOTH" "a directory with one stream per buffer" record --threads $cpu -o @ crew 2 20
R threads-z "$BOTH" "as many zstd streams as buffers" record --threads -z $cpu -g -o @ crew 2 20
R_prefix=with-kcore R kcore "p61 p612" "directory of --kcore (made over an imitated /proc/kcore of 8 KB); attr bit text_poke" record --kcore $cpu -o @ burn 5

# ---- pipes
S pipe "$ALL" "a pipe, kept in a file" '$P record -e cpu-clock -F 4999 -o - burn 10 > $O'
S pipe-group "$BOTH" "pipe: group read and another event" '$P record -e "{task-clock,page-faults}:S,cs" -F 4999 -o - burn 10 > $O'
S pipe-named p73 "pipe: event names by EVENT_UPDATE" '$P record -e cpu-clock/name=first/ -e task-clock/name=second/ -F 2000 -o - burn 10 > $O'
S pipe-tracepoint "$ALL" "pipe: TRACING_DATA record with payload" '$P record -e raw_syscalls:sys_enter -o - calls 10 > $O'
S pipe-z "$BOTH" "pipe: compressed" '$P record -z -e cpu-clock -F 4999 -g -o - burn 20 > $O'
S pipe-buildid-all "$BOTH" "pipe: --buildid-all" '$P record --buildid-all -e cpu-clock -F 4999 -o - plug /tmp/perfx-data/work/plugged.so 5 > $O'
S pipe-buildid-mmap p61 "pipe: MMAP2 with build-ids" '$P record --buildid-mmap -e cpu-clock -F 4999 -o - burn 5 > $O'
S pipe-stat "$BOTH" "pipe of perf stat" '$P stat record -e cpu-clock,cs,page-faults -o - burn 10 > $O'
S pipe-cut p61 "pipe cut inside a record" '$P record -e cpu-clock -F 4999 -g -o - burn 10 | head -c 9001 > $O'
S pipe-inject-b "$BOTH" "inject -b in a pipe" '$P record -e cpu-clock -F 4999 -o - burn 10 | $P inject -b > $O'

# ---- side-band
R namespaces "$BOTH" "NAMESPACES" record $cpu --namespaces -o @ nspace 2
R cgroups "$BOTH" "CGROUP records and CGROUP in the sample" record $cpu --all-cgroups -o @ burn 5
R switch "$BOTH" "SWITCH" record $cpu --switch-events -o @ crew 2 10
R data-mmap "$BOTH" "mappings of data (MMAP with MMAP_DATA)" record $cpu -d -o @ plug $work/plugged.so 5
R bpf "$BOTH" "KSYMBOL and BPF_EVENT" record -e cpu-clock -F 999 -o @ bpfs 2
R no-bpf-event p61 "the same without" record -e cpu-clock -F 999 --no-bpf-event -o @ bpfs 2
R forks "$BOTH" "FORK and EXIT" record $cpu -o @ forks 30 0
R forkexec "$BOTH" "FORK, COMM with COMM_EXEC, EXIT" record $cpu -o @ forks 20 1
R threads-named "$BOTH" "named threads" record $cpu -o @ crew 4 10

# ---- build-ids
ids='burn 3; burn_id16 3; burn_id8 3; burn_noid 3; plug /tmp/perfx-data/work/plugged.so 3'
R buildid-default "$BOTH" "ids of 20, 16, 8 and 0 bytes, a library by dlopen" record $cpu -o @ sh -c "$ids"
R buildid-mmap "$BOTH" "the same ids in MMAP2" record --buildid-mmap $cpu -o @ sh -c "$ids"
R buildid-all "$BOTH" "the same, all DSOs in the section" record --buildid-all $cpu -o @ sh -c "$ids"
R no-buildid-mmap p73 "the same, ids in the section" record --no-buildid-mmap $cpu -o @ sh -c "$ids"
R no-buildid "$BOTH" "-B: no ids" record -B $cpu -o @ sh -c "$ids"
R no-cache "$BOTH" "-N: ids, but no cache" record -N $cpu -o @ sh -c "$ids"
S inject-b "$BOTH" "inject -b: BUILD_ID records in the data (6.1: not 8-aligned)" '$P record -B -e cpu-clock -F 4999 -o in.data burn 10 && $P inject -b -i in.data -o $O; rm -f in.data'
S inject-buildid-all p73 "inject --buildid-all" '$P record -B -e cpu-clock -F 4999 -o in.data burn 10 && $P inject --buildid-all -i in.data -o $O; rm -f in.data'

# ---- names
mkdir -p "$work/with a space"
cp -f "$work/burn" "$work/with a space/bürn ü"
cp -f "$work/burn" "$work/a-name-that-is-longer-than-a-comm"
cp -f "$work/burn" "$work/new
line"
deep=$work/deep
for i in 1 2 3 4; do deep=$deep/$(printf "$i%.0s" $(seq 200)); done
mkdir -p "$deep"
cp -f "$work/burn" "$deep/burn"
R name-space "$BOTH" "spaces and UTF-8 in the path" record $cpu -o @ "$work/with a space/bürn ü" 3
R name-long p61 "comm cut to 15 characters" record $cpu -o @ "$work/a-name-that-is-longer-than-a-comm" 3
R name-deep "$BOTH" "a path of 800 characters" record $cpu -o @ "$deep/burn" 3
R name-newline "$BOTH" "a newline in the path" record $cpu -o @ "$work/new
line" 3
R cmdline-long p61 "a CMDLINE of 500 strings" record $cpu -o @ burn 3 $(seq 500)
R anon-exec "$BOTH" "code in anonymous memory, a memfd, a deleted file, a renamed anonymous mapping" record $cpu -o @ jit 300000
S replaced "$BOTH" "one path, two programs one after the other, both deleted afterwards" 'cp /tmp/perfx-data/work/burn /tmp/perfx-data/work/swap; $P record -e cpu-clock -F 4999 -o $O sh -c "swap 5; rm /tmp/perfx-data/work/swap; cp /tmp/perfx-data/work/calls /tmp/perfx-data/work/swap; swap 50 5; rm /tmp/perfx-data/work/swap"'

# ---- perf stat
R stat "$BOTH" "perf stat record" stat record -e cpu-clock,cs,page-faults,task-clock -o @ burn 10
R stat-interval "$BOTH" "perf stat record -I: STAT_ROUND" stat record -I 10 -e cpu-clock,cs,page-faults -o @ crew 2 50
R stat-group p73 "perf stat record of a group" stat record -e '{task-clock,cs},page-faults' -o @ burn 5

# ---- ended by force
killed='p=$!; sleep 0.5; kill -9 $p; wait $p; sleep 0.3; true'
S killed "$BOTH" "perf killed: data.size 0, no features" '$P record -m 1 -e cpu-clock -F 999 -g -o $O burn 700 & '"$killed"
S killed-z "$BOTH" "perf killed while compressing" '$P record -z -m 1 -e cpu-clock -F 999 -g -o $O burn 700 & '"$killed"
S killed-threads p61 "perf killed, directory" '$P record --threads -m 1 -e cpu-clock -F 1999 -o $O crew 2 700 & '"$killed"
S killed-pipe p61 "perf killed while writing a pipe" '$P record -m 1 -e cpu-clock -F 499 -g -o - burn 700 > $O & '"$killed"
if [[ cut =~ $regex ]]; then
    whole=$out/fp.p61.data
    # data section from the header: offset at 40, size at 48
    read -r at size < <(od -A n -t u8 -j 40 -N 16 "$whole")
    end=$((at + size))
    rm -f "$out"/cut-*.data
    for n in 0 4 16 50 103 104 150 $((at + 4)) $((at + size / 2 + 1)) $((end - 1)) $end $((end + 8)) $((end + 300)) $(($(stat -c %s "$whole") - 1)); do
        o=$(printf 'cut-%05d.p61.data' "$n")
        head -c "$n" "$whole" > "$o"
        case $n in
            "$end") note="cut right after the data" ;;
            $((at + 4))) note="cut in the first record" ;;
            *) note="first $n bytes of fp.p61.data (data ends at $end)" ;;
        esac
        keep "$o" "head -c $n fp.p61.data" "$note"
    done
fi

cp "$index" "$out/INDEX.tsv"
# lines of deleted files
while IFS=$'\t' read -r name rest; do [ -e "$out/$name" ] && printf '%s\t%s\n' "$name" "$rest"; done < "$index" > "$out/INDEX.tsv"

"$python" "$here/craft.py" || exit 1

# ---- nothing from this machine may be inside
status=0
while IFS= read -r -d '' f; do
    if strings -a "$f" | sed 's#/tmp/perfx-data/[a-z]*##g' |
        grep -n -i -E '/root|/home|/work/|/tmp/|pyenv|cargo|process_api|secret|token=|user(name)?=|logname='; then
        echo "NOT NEUTRAL: $f"
        status=1
    fi
done < <(find "$out" "$here/crafted" -type f -print0)
find "$out" "$here/crafted" \( -name '*.old' -o -type f ! -perm 0644 \) -print | sed 's/^/WRONG: /'
du -sh "$out" "$here/crafted"
exit $status
