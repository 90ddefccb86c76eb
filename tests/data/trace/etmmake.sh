#!/bin/bash
# etmmake.sh: makes the recordings with CoreSight in this folder, and the truth beside each.
#
# No Arm processor is needed: qemu-user notes what a program executes, and etmmake.py encodes that. perf (7.3, with
# OpenCSD) decodes each recording to its truth, but for what tests/it/coresight.rs lists. The programs are in root/,
# below the paths in the recordings. Needs gcc-aarch64-linux-gnu, qemu-user-static, and a python3 with capstone and
# pyelftools (PYTHON).
set -e
here=$(cd "$(dirname "$0")" && pwd)
python=${PYTHON:-python3}
programs=/opt/perfx/trace
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
mkdir -p "$here/root$programs"
cd "$work"
build() {
    aarch64-linux-gnu-gcc -O1 -ffreestanding -nostdlib -static -s -fno-stack-protector -fno-pic -no-pie \
        -Wl,-z,norelro,-z,max-page-size=4096 "$@"
}
build -DROUNDS=40 -Wl,--build-id=0xc4 -o small64 "$here/small64.c"
build -DROUNDS=25 -DSIGNALS -Wl,--build-id=0xc5 -o signal64 "$here/small64.c"
# simpleperf reads build-ids of 20 bytes only.
id=0x5a11e6400000000000000000000000000000000
build -DROUNDS=40 -Wl,--build-id=${id}1 -o android64 "$here/small64.c"
aarch64-linux-gnu-as -o kernel64.o "$here/kernel64.S"
aarch64-linux-gnu-ld --build-id=${id}3 -z max-page-size=4096 -Ttext 0xffff800080000000 -e _text -o vmlinux64 kernel64.o
# The same code as a module: a file that the kernel links when it loads it.
aarch64-linux-gnu-ld -r --build-id=${id}4 -o module64.ko kernel64.o
cp small64 signal64 android64 vmlinux64 module64.ko "$here/root$programs/"
for program in small64 signal64 android64; do
    qemu-aarch64-static -singlestep -d exec,nochain -D $program.log ./$program
done
small=small64.log:small64
android=android64.log:android64
signal=signal64.log:signal64

# make NAME OPTIONS: NAME.data and NAME.truth
make() {
    name=$1
    shift
    "$python" "$here/etmmake.py" "$here/$name.data" "$@" --path $programs --truth "$here/$name.truth"
}
make etm-user $small --sync 200
make etm-signal $signal --sync 200
make etm-raw $small --sync 200 --raw
make etm-ete $small --sync 200 --ete --raw
make etm-stack $small --sync 200 --return-stack
make etm-times $small --sync 200 --timestamps 20
make etm-cycles $small --sync 200 --cycles --timestamps 30
make etm-q $small --sync 200 --q 3
make etm-context $small --sync 200 --context
make etm-speculation $small --sync 200 --speculation
make etm-interrupt $small --sync 200 --interrupt 500
make etm-overflow $small --sync 200 --overflow 2
make etm-kernel $small --sync 200 --kernel vmlinux64 --interrupt 700 --return-stack
make etm-cpus $small $signal --sync 200 --cpus 2 --slice 2000
make etm-virtual $small $signal --sync 200 --cpus 2 --slice 2000 --virtual --ete --raw
make etm-threads $small --sync 200 --cpus 2 --per-thread --slice 2000
make etm-ids $small --sync 200 --hw-id
make etm-cut $small --sync 200 --cut 704

# As simpleperf records them. NAME.simpleperf is what `simpleperf inject --symdir root` of the NDK r27 writes of
# android64, etm-android.branches what it writes with --output branch-list, and etm-android-branches.simpleperf its text of
# that; it does not know INIT_MAP, so that of etm-android-kernel is of the same recording without this.
make etm-android $android $android --sync 200 --simpleperf --cpus 2 --slice 2000 --interrupt 500
make etm-android-kernel $android --sync 200 --simpleperf --kernel vmlinux64 --interrupt 700 --return-stack --init-map
