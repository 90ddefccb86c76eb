#!/bin/bash
# make.sh: the recordings in this folder, of tiny.c on other architectures.
#   make.sh build ARCH        builds ARCH/usr/bin/wl-tiny with Debian's cross compiler (gcc-TRIPLET)
#   make.sh stubs ARCH        builds ARCH/stubs.so in the same way
#   make.sh signal            builds arm64/signal/usr/bin/wl-tiny, whose tables say that `deep` is a frame of a signal
#   On a machine of ARCH (here: qemu-system guests of Debian 12; Debian sid for riscv64), with wl-tiny in /usr/bin:
#     perf record -o tiny.data --call-graph dwarf,1024 -e cpu-clock:u -F 120 -- wl-tiny
#     perf script --no-inline -i tiny.data > tiny.script               and on arm64 the same as tiny-fp with -g
#   make.sh take ARCH FOLDER [TIME]  takes these from FOLDER: a part of the samples, and what that perf shows of them
# ARCH: arm64 armhf i386 ppc64el riscv64 s390x; and x86_64, on which i386/usr/bin/wl-tiny runs (env -i perf record ...),
# shown by perf 7.3: 6.1 does not unwind it. On armhf, too, the text is that of perf 7.3 (perf script --symfs armhf).
set -euo pipefail
cd "$(dirname "$0")"
PERFX=${PERFX:-../../../target/debug/perfx}
step=$1 arch=${2:-}
declare -A triplet=([arm64]=aarch64-linux-gnu [armhf]=arm-linux-gnueabihf [i386]=i686-linux-gnu
    [ppc64el]=powerpc64le-linux-gnu [riscv64]=riscv64-linux-gnu [s390x]=s390x-linux-gnu)
case $step in
build)
    mkdir -p "$arch/usr/bin"
    pages=4096; [ "$arch" = ppc64el ] && pages=65536
    "${triplet[$arch]}-gcc" -O2 -g1 -fno-omit-frame-pointer -fno-optimize-sibling-calls -fasynchronous-unwind-tables \
        -ffreestanding -ffile-prefix-map="$PWD=." -fno-stack-protector -fno-pie -no-pie -static -nostdlib \
        -Wl,--build-id=sha1,--eh-frame-hdr \
        -Wl,-z,norelro,-z,max-page-size=$pages -o "$arch/usr/bin/wl-tiny" tiny.c ;;
stubs)
    "${triplet[$arch]}-gcc" -O1 -fPIC -shared -nostdlib -ffile-prefix-map="$PWD=." \
        -Wl,-z,max-page-size=4096,-z,noseparate-code,-z,norelro,--build-id=sha1 -o "$arch/stubs.so" stubs.c
    chmod 644 "$arch/stubs.so" ;;
signal)
    program=arm64/signal/usr/bin/wl-tiny
    mkdir -p "${program%/*}"
    "${triplet[arm64]}-gcc" -O2 -fno-omit-frame-pointer -fno-optimize-sibling-calls -fasynchronous-unwind-tables \
        -ffreestanding -fno-stack-protector -fno-pie -S -o "$program.s" tiny.c
    sed -i '/^deep:/,/\.cfi_startproc/ s/\.cfi_startproc/&\n\t.cfi_signal_frame/' "$program.s"
    # The recorded build-id and the same place for data, because the code is the same.
    id=$(readelf -n arm64/usr/bin/wl-tiny | sed -n 's/.*Build ID: //p')
    "${triplet[arm64]}-gcc" -no-pie -static -nostdlib -s "-Wl,--build-id=0x$id,--eh-frame-hdr" \
        -Wl,-z,norelro,-z,max-page-size=4096,-Tbss=0x4013d8 -o "$program" "$program.s"
    rm "$program.s" ;;
take)
    for name in dwarf fp; do
        from=$3/tiny; [ $name = dwarf ] || from=$from-fp
        [ $name = dwarf ] || [ "$arch" = arm64 ] || continue
        "$PERFX" filter -q -f --time "${4:-20%-50%}" "$from.data" -o "$arch/$name.data"
        # Host, kernel of the machine itself, and the user's folder in the environment, which is in the stacks.
        keep=cmdline,paths,build-ids,inodes,comms,cgroups,namespaces,events,raw,stacks,bpf,aux,clock,kcore,unknown
        "$PERFX" redact -q -f --seed foreign --keep $keep "$arch/$name.data" -o cut
        mv cut "$arch/$name.data"
        LC_ALL=C sed -i 's/6\.18\.44-fc-v669/6.18.44-perfx-0/' "$arch/$name.data"
        LC_ALL=C sed -i 's#/root#/tmp/#g' "$arch/$name.data"
        "$PERFX" view --foreign -F time "$arch/$name.data" 2> /dev/null > times || true
        awk 'NR == FNR { kept[$1]; next }
            / cpu-clock/ { on = 0; for (i = 1; i <= NF; i++) if ($i in kept) on = 1 }
            on && !/PERF_RECORD_/' times "$from.script" > "$arch/$name.script"
        rm times
    done ;;
esac
