#!/bin/sh
# Runs every command on every family of hostile recordings (tests/it/growth.rs), with SCALE times as many items as the
# tests have, by the release build. Prints the time of n and of 4 n items; ends with 1 if one grows faster than the input.
#
# usage: growth.sh [SCALE] [TEXT]      (SCALE: 20; TEXT: only commands and families with this text, such as `export html`)
cd "$(dirname "$0")/../.." || exit 1
PERFX_GROWTH_TABLE=$(mktemp)
export PERFX_CASES=24 PERFX_GROWTH_SCALE="${1:-20}" PERFX_GROWTH_ONLY="$2" PERFX_GROWTH_TABLE
cargo test --release --test it -- --ignored growth::time_and_memory_grow_in_proportion_to_the_input
code=$?
echo '| items | command | n, s | 4 n, s |'
echo '|---|---|---|---|'
sort "$PERFX_GROWTH_TABLE"
rm "$PERFX_GROWTH_TABLE"
exit $code
