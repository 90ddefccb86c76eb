#!/bin/bash
# cross.sh [TARGET...]: builds perfx for other machines, runs the unit tests of format, model and pipeline there, and each
# command on each recording of tests/data: the output, messages and exit codes are those of this machine.
#
#   aarch64-unknown-linux-gnu    64 bits, little-endian; under qemu-user
#   s390x-unknown-linux-gnu      64 bits, big-endian; under qemu-user
#   i686-unknown-linux-gnu       32 bits; runs here as it is
#
# Without arguments, all of them. Needs rustup (or the targets' std), and on Debian, as root, it installs the cross
# compilers and qemu-user-static. PART=N takes one recording in N (default 1: an hour for each target under qemu).
set -euo pipefail
cd "$(dirname "$0")/.."
root=$PWD
part=${PART:-1}
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT

# prepare TARGET: sets `compiler` and `runner`.
prepare() {
    local packages=(qemu-user-static)
    case $1 in
    aarch64-*) compiler=aarch64-linux-gnu-gcc runner=qemu-aarch64-static packages+=(gcc-aarch64-linux-gnu libc6-dev-arm64-cross) ;;
    s390x-*) compiler=s390x-linux-gnu-gcc runner=qemu-s390x-static packages+=(gcc-s390x-linux-gnu libc6-dev-s390x-cross) ;;
    i686-*) compiler=i686-linux-gnu-gcc runner='' packages=(gcc-i686-linux-gnu libc6-dev-i386-cross) ;;
    *) echo "cross.sh: unknown target $1" >&2; exit 2 ;;
    esac
    if ! command -v "$compiler" > /dev/null || { [ -n "$runner" ] && ! command -v "$runner" > /dev/null; }; then
        apt-get update -qq
        DEBIAN_FRONTEND=noninteractive apt-get install -y -qq --no-install-recommends "${packages[@]}" > /dev/null
    fi
    [ -d "$(rustc --print target-libdir --target "$1")" ] || rustup target add "$1"
    local name=${1//-/_}
    local upper=${name^^}
    export "CC_$name=$compiler" "CARGO_TARGET_${upper}_LINKER=$compiler"
    [ -z "$runner" ] || export "CARGO_TARGET_${upper}_RUNNER=$runner"
    export "CARGO_TARGET_${upper}_RUSTFLAGS=-C target-feature=+crt-static"
}

# Commands whose output has no file, name or kernel of the machine that runs them. OUT is the output.
commands=(
    "copy -o OUT" "copy --to pipe -o OUT" "compress -o OUT" "decompress --salvage -o OUT" "sort -o OUT"
    "filter --time 20%-60% --drop-unused -o OUT" "split --by pid -o OUT" "thin --every 3 -o OUT" "retime --offset 5000000 -o OUT"
    "reindex -o OUT" "repair -o OUT" "recover -o OUT" "strip --aux -o OUT" "normalize -o OUT" "redact --seed 1 -o OUT"
    "inject --buildids --no-files -o OUT" "inject --aslr --seed 1 -o OUT" "inject --convert-callchain --no-files -o OUT"
    "inject --itrace --no-files -o OUT" "merge -o OUT" "join --mix -o OUT INPUT" "run -p sort,reindex-times:add -o OUT"
    "info --json" "stats --json" "du --json" "doctor --json" "dump --raw" "dump --format ndjson" "list mappings --json"
    "list functions --no-files" "view --no-files" "diff INPUT" "overview --no-files"
    "export folded --no-files -o OUT" "export csv --no-files --dir OUT" "export parquet --no-files --spe --dir OUT"
    "export pprof --no-files -o OUT" "export firefox --no-files -o OUT" "export html --no-files -o OUT" "export svg --no-files -o OUT"
)

# said PROGRAM INPUT COMMAND FOLDER: a digest of what it writes and says, and its exit code.
said() {
    local line=${3//OUT/$4/out}
    line=${line//INPUT/$2}
    rm -rf "$4"
    mkdir -p "$4"
    local code=0
    # shellcheck disable=SC2086
    (cd "$4" && HOME=$4 $1 $line -@ 1 "$2" > stdout 2> stderr < /dev/null) || code=$?
    (cd "$4" && find . -type f | sort | xargs sha256sum)
    echo "exit code $code"
}

# compare PROGRAM OTHER INPUT: runs all commands with both.
compare() {
    local folder="$work/$BASHPID" command one other
    for command in "${commands[@]}"; do
        one=$(said "$1" "$3" "$command" "$folder")
        cp -r "$folder" "$folder.one"
        other=$(said "$2" "$3" "$command" "$folder")
        if [ "$one" != "$other" ]; then
            echo "DIFFERS: perfx $command $3"
            diff -r "$folder.one" "$folder" | head -5 || true
        fi
        rm -rf "$folder" "$folder.one"
    done
}
export -f said compare
export work

cargo build --locked
failed=0
[ $# -gt 0 ] || set -- aarch64-unknown-linux-gnu s390x-unknown-linux-gnu i686-unknown-linux-gnu
for target; do
    prepare "$target"
    echo "== $target"
    cargo test --locked --target "$target" --lib -p perfx-format -p perfx-model -p perfx-pipeline
    cargo build --locked --target "$target"
    program="$runner $root/target/$target/debug/perfx"
    find tests/data -name '*.data' | sort | awk -v part="$part" 'NR % part == 0' > "$work/inputs"
    declare -p commands > "$work/commands"
    xargs -P "$(nproc)" -I INPUT bash -c '. "$work/commands"; compare "$0" "$1" "$2/$3"' \
        "$root/target/debug/perfx" "$program" "$root" INPUT < "$work/inputs" > "$work/report"
    runs=$(($(wc -l < "$work/inputs") * ${#commands[@]}))
    cat "$work/report"
    echo "$target: $runs runs, $(grep -c DIFFERS "$work/report" || true) differences"
    if grep -q DIFFERS "$work/report"; then failed=1; fi
done
exit $failed
