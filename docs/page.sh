#!/bin/bash
# page.sh [PERFX]: makes page.png, the picture of the page in the README: records programs of tests/data/work, and shows
# in Chromium, without a window, the stacks of a span of time. Nothing of the machine but these programs is in it.
set -eu
here=$(cd "$(dirname "$0")" && pwd)
perfx=$(realpath "${1:-$here/../target/release/perfx}")
folder=$(mktemp -d)
trap 'rm -rf "$folder"' EXIT
sh "$here/../tests/data/work/build.sh" "$folder/work"
cd "$folder/work"
perf record -q -e cpu-clock -F 4000 -g -o ../perf.data -- sh -c '
    ./burn 900 7 & sleep 0.3
    ./calls 100 700 & ./crew 3 900 & sleep 0.4
    for n in 1 2 3; do ./pages 20000; done & sleep 0.3
    ./burn 600 4 & ./jit 400 & wait' > ../log 2>&1
"$perfx" export html -q ../perf.data -o ../page.html
chromium --headless --no-sandbox --disable-gpu --no-first-run --disable-background-networking --disable-component-update \
    --disable-sync --hide-scrollbars --user-data-dir="$folder/profile" --window-size=1280,860 \
    --virtual-time-budget=5000 --screenshot="$here/page.png" \
    "file://$folder/page.html#rows=process&spans=300000000-1100000000" 2> ../log
