#!/bin/bash
# Writes the tables of all recordings below a folder: parallel.sh recordings tables
# tables/jobs.log has a line for each recording; a second run reads only new ones and those that failed.
mkdir -p "$2"
# Exit code 3 is success: done, but the recording has lost something.
find "$1" -name '*.data' | sort |
    TABLES=$2 parallel -j 2 --joblog "$2/jobs.log" --resume-failed \
        'perfx export parquet {} -q --foreign -@1 --dir "$TABLES" --partition-by host,date
        code=$?; [ $code = 3 ] || exit $code'
