#!/bin/bash
# Measures what commands cost where files can share blocks: on btrfs and XFS, in images that are mounted for it and
# deleted afterwards. Prints Markdown tables. Fails if an output differs from that on this file system.
#
# usage: reflink.sh [PERFX] [RECORDING]
#
# Needs root, btrfs-progs, xfsprogs, and room for the images: some five times the recording. All files are on disk
# before a command begins, because the kernel writes what a file shares to disk first. "new" is the space that the
# output takes in addition to that of the input.
set -euo pipefail
here=$(dirname "$(readlink -f "$0")")
perfx=$(readlink -f "${1:-$here/../../target/dist/perfx}")
recording=$(readlink -f "${2:-/tmp/perfx-data/big/plain.data}")
work=$(mktemp -d /var/tmp/perfx-reflink.XXXXXX)
at=$work/mounted
end() {
    if mountpoint -q "$at"; then umount "$at"; fi
    rm -rf "$work"
}
trap end EXIT
mkdir "$at"

commands=(
    "cp --reflink=never" "cp --reflink=always"
    "perfx copy" "perfx inject --buildid-all" "perfx inject -b" "perfx filter --time 25%-75%"
)

# Runs a command from an input to an output.
run() {
    case $1 in
        cp*) $1 "$2" "$3" ;;
        *) "$perfx" ${1#perfx } -q "$2" -o "$3" 2>/dev/null || [ $? = 3 ] ;;
    esac
}

used() {
    # XFS frees the blocks of a deleted file later.
    sync && sleep 1 && sync
    df --output=used -B1 "$at" | tail -1
}

# The share of the output's blocks that the input has, too.
shared() {
    filefrag -v -b4096 "$at/out" | awk -F'[: ]+' '/^ *[0-9]+:/ { all += $7; if (/shared/) both += $7 }
        END { printf "%.1f %%", 100 * both / all }'
}

# Seconds since the given time of $EPOCHREALTIME.
since() {
    awk -v from="$1" -v to="$EPOCHREALTIME" 'BEGIN { printf "%.2f", to - from }'
}

# What the outputs must be.
for number in "${!commands[@]}"; do
    case ${commands[number]} in
        cp*) run cp "$recording" "$work/out" ;;
        *) run "${commands[number]}" "$recording" "$work/out" ;;
    esac
    sha256sum <"$work/out" >"$work/$number.sum"
    rm "$work/out"
done

for kind in btrfs xfs; do
    truncate -s $((3 * $(stat -c %s "$recording") + (1 << 30))) "$work/image"
    "mkfs.$kind" -q "$work/image" >"$work/mkfs.log" 2>&1
    mount -o loop "$work/image" "$at"
    cp "$recording" "$at/in"
    printf '\n%s:\n\n| work | best of 3 | new | shared |\n|---|---|---|---|\n' "$kind"
    for number in "${!commands[@]}"; do
        best=
        for _ in 1 2 3; do
            rm -f "$at/out"
            before=$(used)
            cat "$at/in" >/dev/null
            from=$EPOCHREALTIME
            run "${commands[number]}" "$at/in" "$at/out"
            took=$(since "$from")
            best=$(printf '%s\n' $best "$took" | sort -g | head -1)
        done
        new=$(numfmt --to=iec-i --suffix=B $(($(used) - before)))
        if [ "$(sha256sum <"$at/out")" != "$(cat "$work/$number.sum")" ]; then
            echo "${commands[number]}: the output on $kind differs" >&2
            exit 1
        fi
        echo "| \`${commands[number]}\` | $best s | $new | $(shared) |"
    done
    umount "$at"
    rm "$work/image"
done
