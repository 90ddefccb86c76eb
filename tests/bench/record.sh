#!/bin/bash
# record.sh [plain] [chains] [z] [jit] [stacks] [traces]: makes the big recordings that the benchmarks read (plain, chains and z
# by default).
#
#   plain    >= 1 GB: two tracepoints with raw data, cpu-clock, a little forking
#   chains   >= 1 GB: cpu-clock every 10 us with frame pointer call chains
#   z        COMPRESSED(2): like chains, every 25 us, with -z1; about 50 MB that are 1.2 GB of records (a shorter
#            period overloads perf: it then loses most samples)
#
#   jit      a program with 200,000 generated functions (jit.py); $OUT/jit has its jitdump
#   stacks   about 0.6 GB: gcc, Python and stacks.c with user stacks (--call-graph dwarf)
#   traces   200 MB each of Intel PT, made without such a processor (tests/data/trace/ptmake.py; PYTHON is a python3 with
#            capstone): trace-calls, -indirect, -cold (gcc's cc1) with one buffer, and trace-cpus with three
#
# The first three are system-wide (-a) and hold whatever else runs on the machine: NEVER put them into the repository.
#   PERF=perf       the perf to record with
#   OUT=/tmp/perfx-data/big   the files are $OUT/plain.data and so on
#   SIZE=1100M      where recording ends (plain, chains)
#   TIME=60         seconds (z)
#   BUFFER=64M      ring buffer for each CPU
# Needs root (or perf_event_paranoid -1 and tracefs), gcc, 3 GB of disk; takes about two minutes.
set -u
here=$(cd "$(dirname "$0")" && pwd)
PYTHON=${PYTHON:-python3}
PERF=${PERF:-perf} OUT=${OUT:-/tmp/perfx-data/big} SIZE=${SIZE:-1100M} TIME=${TIME:-60} BUFFER=${BUFFER:-64M}
work=/tmp/perfx-data/work
# Apart, because another program of $work is called calls.
traced=$work/traced
PERF=$(command -v "$PERF") || { echo "record.sh: no such perf" >&2; exit 1; }
sh "$here/../data/work/build.sh" "$work" || exit 1
mkdir -p "$OUT"
export PATH=$work:$PATH HOME=${HOME:-/tmp/perfx-data/home}

# make NAME WORKLOAD PERF-ARGUMENTS...
make() {
    local name=$1 load=$2 file=$OUT/$1.data
    shift 2
    echo "record.sh: $name with $("$PERF" --version)"
    rm -rf "$file" "$file.old"
    # -B: no build-id cache is filled. The load is niced so that perf loses less. perf ends the load itself when
    # --max-size is reached; its own exit code is then that of a killed load, so look at the file instead.
    "$PERF" record -B "$@" -a -m "$BUFFER" -o "$file" nice bash -c "$load" > "$OUT/$name.log" 2>&1 < /dev/null
    rm -rf "$file.old"
    local size
    size=$(od -A n -t u8 -j 48 -N 8 "$file" 2>/dev/null | tr -d ' ')
    if [ "${size:-0}" = 0 ]; then
        echo "record.sh: $name FAILED, see $OUT/$name.log" >&2
        return 1
    fi
    chmod 0644 "$file"
    echo "record.sh: $file, data section of $size bytes"
}

# trace NAME STEPS... [OPTIONS]: $OUT/trace-NAME.data of at least 200 MB, of copies of one trace.
trace() {
    local made one name=$1
    shift
    made() { "$PYTHON" "$here/../data/trace/ptmake.py" "$OUT/trace-$name.data" "$@" --truth /dev/null; }
    one=$(made "$@" | sed 's/.*instructions, \([0-9+]*\) bytes.*/\1/') || return 1
    made "$@" --copies $((200000000 / (one) + 1))
}

# steps NAME COMMAND...: what a program executes, for `trace`.
steps() {
    local name=$1
    shift
    (cd "$traced" && env -i PATH="$PATH" ${STEPS:+STEPS="$STEPS"} ./step "$name.steps" "$@" > "$name.log" 2>&1)
}

traces() (
    source=$here/../data/trace
    mkdir -p "$traced"
    gcc -O2 -o "$traced/step" "$source/step.c" && gcc -O1 -DSMALL -static -o "$traced/calls" "$source/loop.c" &&
        gcc -O1 -static -o "$traced/indirect" "$source/loop.c" && gcc -O2 -static -o "$traced/halve" "$source/loops.c" || return 1
    cc1=$(gcc -print-prog-name=cc1)
    gcc -E -w "$here/gate.c" -o "$traced/cold.i" || return 1
    steps calls "$traced/calls" 200
    steps indirect "$traced/indirect" 200
    steps halve "$traced/halve" 100
    STEPS=2000000 steps cold "$cc1" -O2 -quiet -fpreprocessed "$traced/cold.i" -o /dev/null
    cd "$traced" || return 1
    trace calls calls.steps && trace indirect indirect.steps && trace cold cold.steps &&
        trace cpus calls.steps indirect.steps halve.steps --cpus 3 --slice 20000 --mtc --cyc
)

loop() { echo "end=\$((SECONDS + $1)); while [ \$SECONDS -lt \$end ]; do $2; wait; done"; }
busy='burn 2000 40 & burn 2000 20; forks 100 1'
calls='calls 100 2000 & calls 100 2000; forks 100 1'

status=0
for what in ${*:-plain chains z}; do
    case $what in
        plain) make plain "$(loop 300 "$calls")" --max-size "$SIZE" \
            -e raw_syscalls:sys_enter,raw_syscalls:sys_exit -e cpu-clock/freq=20000/ || status=1 ;;
        chains) make chains "$(loop 300 "$busy")" --max-size "$SIZE" -e cpu-clock -c 10000 -g || status=1 ;;
        z) make z "$(loop "$TIME" "$busy")" -z1 -e cpu-clock -c 25000 -g || status=1 ;;
        jit) rm -rf "$OUT/jit" && mkdir "$OUT/jit" &&
            "$PERF" record -q -B -k 1 -e cpu-clock -o "$OUT/jit.data" python3 "$here/jit.py" "$OUT/jit" || status=1 ;;
        stacks) gcc -O1 -w -fomit-frame-pointer -pthread -o "$work/stacks" "$here/../data/stacks.c" &&
            "$PERF" record -q -B -e cpu-clock -F 7000 -m 16M --call-graph dwarf -o "$OUT/stacks.data" \
                bash -c "$(loop 30 "for file in $here/../data/work/*.c; do gcc -O3 -w -c \$file -o /dev/null; done; \
                    python3 -c 'import json; json.dumps([[i] * 9 for i in range(300000)])'; stacks 200")" || status=1 ;;
        traces) traces || status=1 ;;
        *) echo "record.sh: unknown: $what" >&2; exit 2 ;;
    esac
done
exit $status
