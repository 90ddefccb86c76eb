#!/bin/sh
# build.sh [OUTDIR]: builds the workloads that the recordings in ../recorded were made of.
# OUTDIR defaults to /tmp/perfx-data/work, the path the recordings name.
# Build-ids are fixed, so a recording and a later build agree, whatever the compiler.
set -eu
here=$(cd "$(dirname "$0")" && pwd)
out=${1:-/tmp/perfx-data/work}
mkdir -p "$out"

plain="-O1 -fno-omit-frame-pointer -fno-optimize-sibling-calls -mno-omit-leaf-frame-pointer"
bare="-O1 -fomit-frame-pointer"

# make_one NAME SOURCE BUILD-ID FLAGS...
make_one() {
    name=$1 source=$2 id=$3
    shift 3
    # gcc writes a new file and the name is moved into place: a running copy stays what it is
    ${CC:-gcc} -w -g0 "$@" -Wl,--build-id="$id" -o "$out/.new" "$here/$source" -ldl -pthread
    chmod 0755 "$out/.new"
    mv "$out/.new" "$out/$name"
}

#        name      source     build-id (20 bytes unless said otherwise)
make_one burn      burn.c     0xb000000000000000000000000000000000000001 $plain
make_one burn_nofp burn.c     0xb000000000000000000000000000000000000002 $bare
make_one burn_id16 burn.c     0xb0000000000000000000000000000003         $plain
make_one burn_id8  burn.c     0xb000000000000004                         $plain
make_one burn_noid burn.c     none                                       $plain
make_one calls     calls.c    0xb000000000000000000000000000000000000006 $plain
make_one pages     pages.c    0xb000000000000000000000000000000000000007 $plain
make_one forks     forks.c    0xb000000000000000000000000000000000000008 $plain
make_one crew      crew.c     0xb000000000000000000000000000000000000009 $plain
make_one bpfs      bpfs.c     0xb00000000000000000000000000000000000000a $plain
make_one jit       jit.c      0xb00000000000000000000000000000000000000b $plain
make_one nspace    nspace.c   0xb00000000000000000000000000000000000000c $plain
make_one plug      plug.c     0xb00000000000000000000000000000000000000e $plain
make_one plugged.so plugged.c 0xb00000000000000000000000000000000000000f $plain -shared -fPIC
make_one contend   contend.c  0xb000000000000000000000000000000000000011 $plain
# needs a compiler that can do 32-bit code; without it only this one is missing
${CC:-gcc} -w -g0 -m32 -O1 -ffreestanding -nostdlib -static -fno-pic -fno-stack-protector \
    -Wl,--build-id=0xb000000000000000000000000000000000000010 -o "$out/compat" "$here/compat.c" 2>/dev/null ||
    echo "build.sh: no 32-bit compiler, compat not built" >&2
