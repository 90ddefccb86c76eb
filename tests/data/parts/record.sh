#!/bin/bash
# record.sh: makes the parts below this folder: the files of one `perf record --switch-output`, each of which perf begins with all it knows by then.
# Needs root (for a host name of its own), and the programs of ../work, built to /tmp/perfx-data/work (../work/build.sh).
here=$(cd "$(dirname "$0")" && pwd)
if [ "$(hostname)" != perfx-host ]; then
    exec env -i PATH="$PATH" unshare -u sh -c 'hostname perfx-host; exec "$@"' sh bash "$here/record.sh"
fi
export PATH=/tmp/perfx-data/work:/usr/bin:/bin HOME=/tmp/perfx-data/home LC_ALL=C
mkdir -p "$HOME" /tmp/perfx-data/parts && cd /tmp/perfx-data/parts && rm -f perf.data.*
perf record -m 4 -e cpu-clock,page-faults -F 9000 -g --switch-output=20K -o perf.data sh -c 'burn 30 20; forks 10 1; burn 30 20' > log 2>&1
number=0
for part in perf.data.*; do
    number=$((number + 1))
    [ $number -gt 4 ] || cp "$part" "$here/$number.data"
done
python3 "$here/../no_machine.py" "$(uname -r)" "$(perf buildid-list -k)" "$here"/*.data
chmod 0644 "$here"/*.data
