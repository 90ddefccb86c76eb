#!/bin/bash
# Writes the tables of the recordings in a list, a task for each: sbatch slurm.sh list /shared/tables
#SBATCH --job-name=perfx
#SBATCH --array=1-1000
#SBATCH --cpus-per-task=1
#SBATCH --mem=512M
recording=$(sed -n "${SLURM_ARRAY_TASK_ID}p" "$1")
# The list may be shorter than the array, but not longer: line 1000 is the last that is read.
[ -n "$recording" ] || exit 0
perfx export parquet "$recording" -q --foreign -@1 --dir "$2" --partition-by host,date
code=$?
# 3: done, but the recording has lost something.
[ $code = 0 ] || [ $code = 3 ]
