#!/bin/bash
# hostile.sh SETTING... COMMAND...: runs a command, for example `cargo test`, as if on a very different machine. Settings:
#
#   foreign    another kernel: its /proc/kallsyms, /proc/modules, release and build-id; and a libc of another build
#   blind      a kernel that shows no symbols: /proc/kallsyms is empty
#   no-home    HOME is empty
#   only-perf  no perf but the distribution's
#   only-new-perf  the newest perf (perf-new) is `perf`, and there is no other
#   no-perf    no perf at all
#   nobody     the tests run as a user who is not root (cargo itself does not)
#   load       20 busy loops at the same time
#
# Needs root, except for no-home and load; a setting that is not permitted is skipped with a message.
# .ci/run uses `foreign no-home`, and those about perf.
set -euo pipefail
setting=${1:-}

# Settings that mount files run the command in a separate mount namespace.
mounts() {
    if [ "${HOSTILE_MOUNTS:-}" = "$setting" ]; then
        # It ends with the mount namespace. If the new files were deleted after mounting, the kernel would say so in
        # the names of the mappings.
        mkdir -p /tmp/perfx-hostile
        mount -t tmpfs -o mode=755 perfx-hostile /tmp/perfx-hostile
        return
    fi
    if unshare --mount sh -c 'mount --bind /dev/null /proc/version' 2> /dev/null; then
        HOSTILE_MOUNTS=$setting exec unshare --mount --propagation private "$0" "$@"
    fi
    echo "hostile.sh: $setting is left out: no mount is permitted here" >&2
    exec "$0" "${@:2}"
}

# over FILE: replaces it with standard input.
over() {
    local new
    [ -e "$1" ] || return 0
    new=$(mktemp -p /tmp/perfx-hostile)
    cat > "$new"
    chmod --reference="$1" "$new"
    mount --bind "$new" "$1"
}

hide() {
    local name path
    for name in "$@"; do
        # A hidden program is no longer executable, so the next one in PATH is found.
        while path=$(type -P "$name") && [ -x "$path" ]; do mount --bind /dev/null "$path"; hash -r; done
    done
}

case $setting in
foreign)
    mounts "$@"
    awk 'BEGIN { print "ffffffff81000000 T _text"
        for (page = 4097; page < 12288; page++) printf "ffffffff8%04x000 T foreign_%x\n", page, page }' | over /proc/kallsyms
    : | over /proc/modules
    echo 6.6.6-foreign | over /proc/sys/kernel/osrelease
    printf '\4\0\0\0\24\0\0\0\3\0\0\0GNU\0foreign foreign 1234' | over /sys/kernel/notes
    for library in /lib/*-linux-gnu/libc.so.6; do
        perl -0777 -pe 's/(\x04\0\0\0\x14\0\0\0\x03\0\0\0GNU\0).{20}/$1another build of it./s' "$library" | over "$library"
    done
    ;;
blind)
    mounts "$@"
    : | over /proc/kallsyms
    ;;
no-home)
    if [ -n "${HOME:-}" ]; then
        export CARGO_HOME=${CARGO_HOME:-$HOME/.cargo} RUSTUP_HOME=${RUSTUP_HOME:-$HOME/.rustup}
    fi
    export HOME=
    ;;
only-perf)
    mounts "$@"
    hide perf-bullseye perf-trixie perf-sid perf-new
    ;;
only-new-perf)
    mounts "$@"
    unset CI
    mkdir -p /tmp/perfx-hostile/bin
    cp "$(type -P perf-new)" /tmp/perfx-hostile/bin/perf
    hide perf perf-bullseye perf-trixie perf-sid perf-new
    export PATH=/tmp/perfx-hostile/bin:$PATH
    ;;
no-perf)
    mounts "$@"
    unset CI
    hide perf perf-bullseye perf-trixie perf-sid perf-new
    ;;
nobody)
    host=$(rustc -vV | sed -n 's/^host: //p' | tr 'a-z-' 'A-Z_')
    export "CARGO_TARGET_${host}_RUNNER=setpriv --reuid=65534 --regid=65534 --clear-groups"
    mkdir -p target/tmp && chmod 1777 target/tmp
    ;;
load)
    trap 'kill $(jobs -p)' EXIT
    for _ in $(seq 20); do (while :; do :; done) & done
    "$0" "${@:2}"
    exit
    ;;
*)
    exec "$@"
    ;;
esac
exec "$0" "${@:2}"
