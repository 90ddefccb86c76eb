#!/bin/bash
# make.sh: records jit.c in each of its modes, and Node, with perf 6.1, and puts the recordings and the
# jitdumps beside this script. It works in /tmp/perfx-data/jit with a neutral environment and host name, so
# that no file contains a path or name of this machine. Needs root, gcc and Node.
set -eu
here=$(cd "$(dirname "$0")" && pwd)
if [ "$(hostname)" != perfx-host ]; then
    exec env -i PATH="$PATH" unshare -u sh -c 'hostname perfx-host; exec "$@"' sh bash "$here/make.sh"
fi
python=$(python3 -c 'import sys; print(sys.executable)')
export PATH=/usr/bin:/bin HOME=/tmp/perfx-data/home LC_ALL=C
unset OLDPWD
work=/tmp/perfx-data/jit
rm -rf "$work" "$here"/*.data "$here"/*.dump
mkdir -p "$work" "$HOME"
cd "$work"
unset OLDPWD
gcc -O1 -o jit "$here/jit.c"
cp "$here/fib.js" .
record() {
    perf record -q -B -F 499 -e cpu-clock -N -o "$1.data" "${@:2}" > /dev/null
    "$python" "$here/../no_machine.py" "$(uname -r)" "$(perf buildid-list -k)" "$1.data"
}
for mode in plain twice close move reuse fork torn; do
    record "$mode" -k 1 -- ./jit "$mode" "$work" 150
done
record other-clock -- ./jit plain "$work" 150
record other-clock-reuse -- ./jit reuse "$work" 150
record dwarf -k 1 --call-graph dwarf,256 -- ./jit plain "$work" 150
record node -k 1 -F 199 -- node --perf-prof --perf-basic-prof-only-functions --single-threaded fib.js 100
rm -f /tmp/perf-*.map
cp ./*.data ./*.dump "$here"
chmod 0644 "$here"/*.data "$here"/*.dump
if strings -a "$here"/*.data "$here"/*.dump | sed 's#/tmp/perfx-data/[a-z]*##g' | grep -n -i -E '/root|/home|/work/|/tmp/'; then
    echo "not neutral"
    exit 1
fi
