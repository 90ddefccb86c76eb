#!/bin/bash
# Writes the tables of all recordings below a folder: parallel.sh recordings tables
# tables/jobs.log has a line for each recording; a second run reads only new ones and those that failed.
mkdir -p "$2"
# parallel remembers recordings by their numbers in the list, so new ones are added at its end.
touch "$2/jobs.list"
find "$1" -name '*.data' | sort | grep -vxFf "$2/jobs.list" >> "$2/jobs.list"
# Exit code 3 is success: done, but the recording has lost something.
TABLES=$2 parallel -j 2 --joblog "$2/jobs.log" --resume-failed -a "$2/jobs.list" \
    'perfx export parquet {} -q --foreign -@1 --dir "$TABLES" --partition-by host,date
    code=$?; [ $code = 3 ] || exit $code'
