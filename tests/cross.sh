#!/bin/bash
# cross.sh [TARGET...]: builds perfx for other machines, runs the unit tests of format, model and pipeline there, and
# commands on the recordings of tests/data: the output, messages and exit codes are those of this machine.
#
#   aarch64-unknown-linux-gnu    64 bits, little-endian; under qemu-user
#   s390x-unknown-linux-gnu      64 bits, big-endian; under qemu-user
#   i686-unknown-linux-gnu       32 bits; runs here as it is
#
# Without arguments, all of them. Needs rustup (or the targets' std), and on Debian, as root, it installs the cross
# compilers and qemu-user-static. There are some 40,000 pairs of a command and a recording, hours of work: PART=K/N takes
# the Kth of N equal samples of them (default 1/100, some minutes under qemu). UNIT=no leaves the unit tests out.
set -euo pipefail
cd "$(dirname "$0")/.."
root=$PWD
part=${PART:-1/100}
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

# Commands whose output has no file, name or kernel of the machine that runs them. They run in an empty folder with the
# recording IN; behind a semicolon, the next one works on what the first has made.
commands=(
    "copy -o out IN" "copy --to pipe -o out IN" "compress -o out IN" "decompress --salvage -o out IN" "sort -o out IN"
    "filter --time 20%-60% --drop-unused -o out IN" "split --by pid -o out IN" "thin --every 3 -o out IN"
    "retime --offset 5000000 -o out IN" "reindex -o out IN" "repair -o out IN" "recover -o out IN" "strip --aux -o out IN"
    "normalize --for perf-5.10 -o out IN" "redact --key 1 -o out IN" "off-cpu -o out IN" "sort --index -o out IN"
    "index IN; filter --time 20%-60% -o out IN" "pack --foreign -o out.tar.zst IN; unpack --dir out out.tar.zst"
    "inject --buildids --foreign -o out IN" "inject --aslr --key 1 -o out IN" "inject --convert-callchain --foreign -o out IN"
    "inject --itrace --foreign -o out IN" "inject --sched-stat -o out IN" "merge -o out IN IN2" "join --mix -o out IN IN2"
    "run -p sort,reindex-times:add -o out IN" "info --json IN" "stats --json IN" "du --json IN" "doctor --json IN"
    "dump --raw IN" "dump --format ndjson IN" "list mappings --json IN" "list functions --foreign IN" "view --foreign IN"
    "diff IN IN2" "overview --foreign IN" "export folded --foreign -o out IN" "export csv --foreign --dir out IN"
    "export parquet --foreign --spe --dir out IN" "export pprof --foreign -o out IN" "export firefox --foreign -o out IN"
    "export html --foreign -o out IN" "export svg --foreign -o out IN"
)

# Commands that find code, symbols and unwind tables below ROOT, for recordings of which the files are there.
with_files=(
    "view IN" "list functions IN" "inject --convert-callchain -o out IN" "inject --buildid-all -o out IN"
    "export folded -o out IN" "export csv --dir out IN" "export parquet --dir out IN" "export pprof -o out IN"
    "export firefox -o out IN" "export html -o out IN" "export svg -o out IN" "pack -o out.tar.zst IN; unpack --dir out out.tar.zst"
)
traces=(
    "inject --itrace=i1000ib -o out IN" "inject --itrace=i100us -o out IN" "inject --itrace=cre -o out IN" "export autofdo --dir out IN"
    "export bolt --dir out IN"
)

# pairs: lines with a recording and a command on it.
pairs() {
    local arch command input
    find tests/data -name '*.data' | sort | while read -r input; do
        printf "$input\t%s\n" "${commands[@]}"
    done
    for arch in tests/data/foreign/*/; do
        for input in "$arch"*.data; do
            printf "$input\t%s\n" "${with_files[@]/ IN/ --foreign --root $root/$arch IN}"
        done
    done
    for input in tests/data/trace/*.data; do
        printf "$input\t%s\n" "${traces[@]/ IN/ --foreign --root $root/tests/data/trace/root IN}"
    done
    for input in tests/data/jit/*.data; do
        printf "$input\t%s\n" "inject --jit --foreign --jit-dir $root/tests/data/jit -o out IN"
    done
}

# said FOLDER PROGRAM INPUT COMMAND: a digest of what it writes and says, and its exit code.
said() {
    rm -rf "$1"
    mkdir -p "$1"
    cp -r "$3" "$1/IN"
    cp "$root/tests/data/recorded/switch.p61.data" "$1/IN2"
    local step steps code=0
    IFS=';' read -ra steps <<< "$4"
    for step in "${steps[@]}"; do
        # shellcheck disable=SC2086
        (cd "$1" && HOME=$1 $2 $step >> stdout 2>> stderr < /dev/null) || code=$?
    done
    (cd "$1" && find . -type f -print0 | sort -z | xargs -0 sha256sum)
    echo "exit code $code"
}

# A big-endian perfx refuses to write Parquet files.
differs_rightly() {
    [[ $target == s390x-* && $1 == "export parquet"* && $2 == *"exit code 1" ]]
}

# compare PROGRAM OTHER PAIR: runs a command with both.
compare() {
    local folder="$work/$BASHPID" one other
    one=$(said "$folder" "$1" "$root/${3%$'\t'*}" "${3#*$'\t'}")
    # A command line that no perfx takes compares nothing.
    [[ $one != *"exit code 2" ]] || echo "DIFFERS: perfx ${3#*$'\t'} is refused"
    mv "$folder" "$folder.one"
    other=$(said "$folder" "$2" "$root/${3%$'\t'*}" "${3#*$'\t'}")
    if [ "$one" != "$other" ] && ! differs_rightly "${3#*$'\t'}" "$other"; then
        echo "DIFFERS: ${3%$'\t'*}: perfx ${3#*$'\t'}: $(tail -1 <<< "$one"), $(tail -1 <<< "$other")"
        diff -r "$folder.one" "$folder" | head -5 || true
    fi
    rm -rf "$folder" "$folder.one"
}
export -f said differs_rightly compare
export root work target

cargo build --locked
# In a fixed random order: otherwise every Nth pair could always have the same command.
pairs | shuf --random-source=<(yes) | awk -v k="${part%/*}" -v n="${part#*/}" 'NR % n == k % n' > "$work/pairs"
failed=0
[ $# -gt 0 ] || set -- aarch64-unknown-linux-gnu s390x-unknown-linux-gnu i686-unknown-linux-gnu
for target; do
    prepare "$target"
    echo "== $target"
    [ "${UNIT:-}" = no ] || cargo test --locked --target "$target" --lib -p perfx-format -p perfx-model -p perfx-pipeline
    cargo build --locked --target "$target"
    program="$runner $root/target/$target/debug/perfx"
    tr '\n' '\0' < "$work/pairs" |
        xargs -0 -P "$(nproc)" -I PAIR bash -c 'compare "$0" "$1" "$2"' "$root/target/debug/perfx" "$program" PAIR > "$work/report"
    cat "$work/report"
    differences=$(grep -c ^DIFFERS "$work/report" || true)
    echo "$target: $(wc -l < "$work/pairs") commands, $differences differences"
    [ "$differences" = 0 ] || failed=1
done
exit $failed
