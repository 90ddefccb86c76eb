#!/usr/bin/env python3
"""Runs perfx over many recordings on a Spark cluster: adds build-ids, and writes tables.

usage: job.py [--master MASTER] [--perfx PERFX] RECORDINGS OUT

RECORDINGS has recordings of any machines, or a folder of them for each date: 2026-11-23/web1.data. Without such a folder,
the date is that of the first sample, if a recording knows it. Both folders are on a file system that all workers see. OUT/tables has the tables, in folders by host and date; OUT/manifest has a row for each
recording: its path and bytes, the exit codes of inject and export, the SHA-256 of the recording with build-ids, which
the `recording` in the tables begins, and the last message. perfx exits with 0 or 3 if the tables are there.

A task that fails or is killed is run again by Spark and writes the same files again.
"""
import argparse, glob, hashlib, os, re, subprocess, sys


def export(perfx, path, out):
    """Runs perfx over one recording; returns its row of the manifest."""
    date = os.path.basename(os.path.dirname(path))
    inject = subprocess.run([perfx, "inject", "-b", "--foreign", "-q", path, "-o", "-"], capture_output=True)
    row = {
        "path": path,
        "bytes": os.path.getsize(path),
        "inject": inject.returncode,
        "export": None,
        "sha256": None,
        "said": inject.stderr.decode(errors="replace").strip().split("\n")[-1],
    }
    if inject.returncode in (0, 3):
        keys = f"host,date={date}" if re.fullmatch(r"\d{4}-\d\d-\d\d", date) else "host,date"
        command = [perfx, "export", "parquet", "-", "-q", "--foreign", "-@1", "--dir", out, "--partition-by", keys]
        done = subprocess.run(command, input=inject.stdout, capture_output=True)
        said = done.stderr.decode(errors="replace").strip().split("\n")[-1]
        row |= {"export": done.returncode, "sha256": hashlib.sha256(inject.stdout).hexdigest()}
        row["said"] = said or row["said"]
    return row


def session(master):
    from pyspark.sql import SparkSession

    spark = SparkSession.builder.master(master).appName("perfx").config("spark.ui.enabled", "false")
    spark = spark.config("spark.driver.host", "127.0.0.1").config("spark.driver.bindAddress", "127.0.0.1")
    # Each recording is a task of its own, and one that fails is tried four times.
    spark = spark.config("spark.task.maxFailures", "4").config("spark.sql.shuffle.partitions", "4").getOrCreate()
    spark.sparkContext.setLogLevel("ERROR")
    return spark


if __name__ == "__main__":
    parser = argparse.ArgumentParser()
    parser.add_argument("--master", default="local[*]")
    parser.add_argument("--perfx", default="perfx")
    parser.add_argument("recordings")
    parser.add_argument("out")
    args = parser.parse_args()
    # Not binaryFiles: it would descend into recordings that are directories, and hold each file in memory twice.
    paths = sorted(path for below in ("*.data", "*/*.data") for path in glob.glob(os.path.join(args.recordings, below)))
    if not paths:
        sys.exit(f"{args.recordings}: no recordings: neither *.data nor */*.data is there")
    perfx, tables = args.perfx, os.path.join(args.out, "tables")
    os.makedirs(args.out, exist_ok=True)
    spark = session(args.master)
    # The workers have no copy of this file, so the function travels with the task.
    rows = spark.sparkContext.parallelize(paths, max(1, len(paths))).map(lambda path: export(perfx, path, tables))
    schema = "path string, bytes long, inject int, export int, sha256 string, said string"
    manifest = spark.createDataFrame(rows.map(lambda row: tuple(row.values())), schema)
    manifest = manifest.coalesce(1).write.mode("overwrite").option("compression", "gzip")
    manifest.parquet(os.path.join(args.out, "manifest"))
    spark.stop()
