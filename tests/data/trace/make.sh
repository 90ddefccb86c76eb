#!/bin/bash
# make.sh: makes the recordings with Intel PT in this folder, and the truth beside each.
#
# No processor with Intel PT is needed: `step` runs a program one instruction at a time, and ptmake.py encodes what it
# executed. perf decodes each recording to exactly its truth (tests/it/intel_pt.rs). The programs are in root/, below
# the paths in the recordings. Needs root, musl-tools, binutils, and a python3 with capstone
# (PYTHON).
set -e
here=$(cd "$(dirname "$0")" && pwd)
python=${PYTHON:-python3}
programs=/opt/perfx/trace
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
mkdir -p $programs "$here/root$programs"
cd $programs
musl-gcc -O1 -DSMALL -static -s -Wl,--build-id=0xc1 -o loop "$here/loop.c"
musl-gcc -O2 -static -s -Wl,--build-id=0xc2 -o halve "$here/loops.c"
musl-gcc -O1 -static -s -Wl,--build-id=0xc7 -o jit "$here/jit.c"
gcc -m32 -O1 -nostdlib -static -no-pie -fno-pie -fno-pic -fno-stack-protector -fcf-protection=none \
    -fno-asynchronous-unwind-tables -Wl,--build-id=0xc4,-z,noseparate-code -o small32 "$here/small32.c"
# The same with symbols and debug info, for tools of compilers: of the program alone, and no newer than they read.
libc=/usr/lib/x86_64-linux-musl
(cd "$here" && musl-gcc -O1 -gdwarf-4 -ffile-prefix-map="$here=." -DSMALL -c -o "$work/loop.o" loop.c)
for file in Scrt1.o crti.o crtn.o libc.a; do strip -g -o "$work/$file" $libc/$file; done
musl-gcc -static -nostartfiles -Wl,--build-id=0xc1 -L"$work" -o "$here/loop-symbols" "$work/Scrt1.o" "$work/crti.o" \
    "$(gcc -print-file-name=crtbeginS.o)" "$work/loop.o" "$(gcc -print-file-name=crtendS.o)" "$work/crtn.o"
as -o "$work/kernel.o" "$here/kernel.S"
ld --build-id=0xc3 -o vmlinux -Ttext 0xffffffff81000000 -e _text "$work/kernel.o"
cp loop halve small32 jit vmlinux "$here/root$programs/"
gcc -O2 -o "$work/step" "$here/step.c"

# steps NUMBER NAME PROGRAM ARGUMENTS: what the program executes, whose parent has this number: what it does depends on it.
steps() {
    unshare -p -f --mount-proc sh -c 'echo $(($0 - 1)) > /proc/sys/kernel/ns_last_pid; env -i "$@"; :' \
        "$1" "$work/step" "$work/$2" "${@:3}"
}
steps 13875 loop $programs/loop 40
steps 13877 again $programs/loop 20
steps 13879 halve $programs/halve 100
steps 13881 small32 $programs/small32
steps 13883 jit $programs/jit

as -o "$work/kvm.o" "$here/kvm.S"
ld --build-id=0xc6 -o "$here/root$programs/vmlinux-kvm" -Ttext 0xffffffff81000000 -e _text "$work/kvm.o"

for second in "" -DSECOND; do
    gcc -c $second -o bpf.o "$here/bpf.S"
    ld -R $programs/vmlinux --section-start .main=0xffffffffc0001000 --section-start .sub=0xffffffffc0002040 -e main \
        -o "$work/bpf$second" bpf.o
done

# make NAME OPTIONS: NAME.data and NAME.truth
make() {
    name=$1
    shift
    "$python" "$here/ptmake.py" "$here/$name.data" "$@" --truth "$here/$name.truth"
}
cd "$work"
make user loop --psb 200
make noret loop --psb 200 --no-retcomp
make times loop --psb 200 --mtc --cyc
make ptwrite loop --psb 200 --ptw 1000
make defer loop --psb 200 --defer
make overflow loop --psb 200 --ovf 2
make halve halve --psb 300
make switch loop again --psb 200 --slice 3000
make cpus loop again halve --psb 200 --cpus 2 --slice 2000 --mtc --cyc
make schedule loop again halve --psb 200 --cpus 2 --slice 2000 --mtc --sched-switch
make threads loop halve --psb 200 --per-thread --slice 2000
make tasks loop again --psb 200 --one-process --cpus 2 --slice 2000 --mtc
make own-buffers loop again --psb 200 --one-process --per-thread --slice 2000
make 32-bit small32 again --psb 150 --slice 700 --mtc
make filtered loop --psb 100 --mtc --filter "filter 0x122c/0x19e@$programs/loop,filter 0x116f/0x2c@$programs/loop"
make events loop again --psb 300 --slice 3000 --mtc --event 130 --ptw 400 --ptw-ip
make paging loop --psb 300 --mtc --kernel $programs/vmlinux --pip --event 150
make kernel loop --psb 200 --mtc --kernel $programs/vmlinux
make hypervisor loop --psb 300 --mtc --kernel "$here/root$programs/vmlinux-kvm" --guest
make vm loop --psb 300 --mtc --kernel "$here/root$programs/vmlinux-kvm" --guest-steps halve,again
make vm-kernel loop --psb 300 --mtc --kernel "$here/root$programs/vmlinux-kvm" --guest-steps halve,again \
    --guest-kernel $programs/vmlinux
make poke loop --psb 200 --mtc --kernel $programs/vmlinux --poke 400
make bpf loop --psb 200 --mtc --kernel $programs/vmlinux --bpf bpf,bpf-DSECOND
make jit jit --psb 200 --mtc --jit "$here/jit-1000.dump"
make cut loop --psb 200 --cut 706
make rare loop --psb 200 --mtc --cyc --ptw 700 --power 150 --tsx 190
make snapshots loop again --psb 200 --slice 3000 --snapshots 6 --ring 900
make sampled loop again --psb 200 --slice 3000 --mtc --sample 600 --aux-sample 900
# Other orders of the packets of PSB+, with the truth of switch.data, and what processors do wrong.
make old-psb loop again --psb 200 --slice 3000 --mtc --cyc --old-psb
make bdm70 loop again --psb 200 --slice 3000 --psb-at-start --errata bdm70
make late-psbend loop again --psb 200 --slice 3000 --psb-at-start --late-psbend
make begun loop again --psb 200 --slice 3000 --skip 3
rm "$here/old-psb.truth" "$here/bdm70.truth" "$here/late-psbend.truth" "$here/begun.truth"
make lost again --psb 100 --cyc --ovf 1 --errata apl11,apl12,skd007,skd010
make wrong-target again --psb 200 --tsx 60 --errata bdm64 --cpu 6,61,4
make skl014 loop --psb 100 --mtc --filter "filter 0x122c/0x19e@$programs/loop,filter 0x116f/0x2c@$programs/loop" \
    --errata skl014
make skd022 loop --psb 300 --mtc --kernel "$here/root$programs/vmlinux-kvm" --guest --errata skd022
make skz84 loop --psb 300 --mtc --kernel "$here/root$programs/vmlinux-kvm" --guest-steps halve,again \
    --errata skz84 --cpu 6,85,4
rm "$here/skl014.truth" "$here/skd022.truth" "$here/skz84.truth"
cp halve twice
cp halve thrice
make pebs halve twice --psb 300 --slice 1500 --mtc --pebs 110 --hw-ids
make counters loop again --psb 300 --slice 1500 --cpus 2 --mtc --pebs 170 --events-only
make history halve twice --psb 300 --slice 1500 --cpus 2 --mtc --cyc --sample 170
make moves halve twice thrice --psb 300 --slice 700 --cpus 2 --mtc --cyc --sample 170
make history-kernel loop --psb 200 --mtc --kernel $programs/vmlinux --sample 90
rm "$here/history.truth" "$here/history-kernel.truth" "$here/moves.truth" "$here/counters.truth"
# What is lost between samples is not in their truth.
make pieces loop again --psb 200 --slice 2000 --cpus 2 --mtc --ptw 500 --sample 900 --aux-sample 400
rm "$here/pieces.truth"
