#!/bin/sh
# build.sh [FLAGS…]: builds the fuzz target with coverage, as `cargo fuzz build` does, without cargo-fuzz. With
# -Zsanitizer=address it also uses ASAN, which covers the code of zstd only with CFLAGS=-fsanitize=address.
set -eu
cd "$(dirname "$0")"
llvm="-Cpasses=sancov-module -Cllvm-args=-sanitizer-coverage-level=4 -Cllvm-args=-sanitizer-coverage-inline-8bit-counters"
llvm="$llvm -Cllvm-args=-sanitizer-coverage-pc-table"
RUSTFLAGS="--cfg fuzzing -Cdebug-assertions -Coverflow-checks $llvm $*" exec cargo +nightly build --release --target x86_64-unknown-linux-gnu
