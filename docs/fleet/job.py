#!/usr/bin/env python3
"""Runs perfx over many recordings on a Spark cluster: adds build-ids, and writes tables.

usage: job.py [--master MASTER] [--perfx PERFX] RECORDINGS OUT

RECORDINGS contains recordings of any machines, or a folder of them for each date: 2026-11-23/web1.data. Without such a
folder, the date is that of the first sample, if the recording contains it. All workers must share both folders.
OUT/tables has the tables, in folders by host and date. OUT/manifest has a row for each recording: its path, bytes and
modification time, the exit codes of inject and export, the SHA-256 of the recording with build-ids (the tables have its
first 16 digits as `recording`), and the last message. perfx exits with 0 or 3 if the tables are there.

A recording whose tables are there is not read again unless its size or time has changed: OUT/done has a note for each.
Recordings that perfx cannot read are listed at the end, with exit code 3, and tried again by the next run. A task that
is killed is run again by Spark, and writes the same files again.
"""
import argparse, glob, hashlib, json, os, re, subprocess, sys, tempfile


def export(perfx, path, out):
    """Runs perfx over one recording; returns its row of the manifest. Holds at most 1 MiB of it in memory."""
    row = {"path": path, "bytes": None, "modified_ns": None, "inject": None, "export": None, "sha256": None, "said": ""}
    try:
        files = [os.path.join(path, name) for name in os.listdir(path)] if os.path.isdir(path) else [path]
        known = [os.stat(file) for file in files]
        row |= {"bytes": sum(one.st_size for one in known), "modified_ns": max(one.st_mtime_ns for one in known)}
    except (OSError, ValueError):
        pass  # perfx reports the error.
    note = os.path.join(out, "done", hashlib.sha256(os.fsencode(path)).hexdigest()[:16] + ".json")
    if os.path.exists(note):
        with open(note) as file:
            before = json.load(file)
        if all(before[key] == row[key] for key in ("path", "bytes", "modified_ns")):
            return before
    date = os.path.basename(os.path.dirname(path))
    keys = f"host,date={date}" if re.fullmatch(r"\d{4}-\d\d-\d\d", date) else "host,date"
    tables = os.path.join(out, "tables")
    inject = [perfx, "inject", "-b", "--foreign", "-q", path, "-o", "-"]
    parquet = [perfx, "export", "parquet", "-", "-q", "--foreign", "-@1", "--dir", tables, "--partition-by", keys]
    pipe, hash = subprocess.PIPE, hashlib.sha256()
    with tempfile.TemporaryFile() as injected, tempfile.TemporaryFile() as exported:
        first = subprocess.Popen(inject, stdin=subprocess.DEVNULL, stdout=pipe, stderr=injected)
        second = subprocess.Popen(parquet, stdin=pipe, stdout=subprocess.DEVNULL, stderr=exported)
        is_read = True
        try:
            while chunk := first.stdout.read1(1 << 20):
                hash.update(chunk)
                second.stdin.write(chunk)
            second.stdin.flush()
        except BrokenPipeError:
            is_read = False  # export has failed, and so inject fails, too.
        first.stdout.close()
        row["inject"] = first.wait()
        if is_read and row["inject"] not in (0, 3):
            # export writes the tables at the end of its input, so it must be stopped before that.
            second.terminate()
            second.wait()
        try:
            second.stdin.close()
        except BrokenPipeError:
            pass
        row["export"] = second.wait()
        said = [last_line(file) for file in (exported, injected)]
        # If both report a loss, keep the message of inject.
        row["said"] = said[1] if is_read and row["inject"] != 0 else said[0] or said[1]
    if row["inject"] in (0, 3) and row["export"] in (0, 3):
        row["sha256"] = hash.hexdigest()
        os.makedirs(os.path.dirname(note), exist_ok=True)
        with tempfile.NamedTemporaryFile("w", dir=os.path.dirname(note), delete=False) as file:
            json.dump(row, file)
        os.rename(file.name, note)
    return row


def last_line(file):
    file.seek(max(0, file.seek(0, os.SEEK_END) - 4096))
    return file.read().decode(errors="replace").strip().split("\n")[-1]


def text(value):
    """The value; names of files that are not UTF-8 with `?` for other bytes."""
    return value.encode(errors="replace").decode() if isinstance(value, str) else value


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
    paths = sorted(path for below in ("*.data", "*/*.data") for path in glob.glob(os.path.join(glob.escape(args.recordings), below)))
    if not paths:
        sys.exit(f"{args.recordings}: no recordings: neither *.data nor */*.data is there")
    perfx, out = args.perfx, args.out
    os.makedirs(out, exist_ok=True)
    spark = session(args.master)
    # The workers have no copy of this file, so the function travels with the task.
    rows = spark.sparkContext.parallelize(paths, max(1, len(paths))).map(lambda path: export(perfx, path, out))
    schema = "path string, bytes long, modified_ns long, inject int, export int, sha256 string, said string"
    manifest = spark.createDataFrame(rows.map(lambda row: tuple(map(text, row.values()))), schema)
    # Not coalesce: it would make one task of all.
    manifest = manifest.repartition(1).write.mode("overwrite").option("compression", "gzip")
    manifest.parquet(os.path.join(out, "manifest"))
    failed = spark.read.parquet(os.path.join(out, "manifest")).where("sha256 IS NULL").orderBy("path").collect()
    spark.stop()
    print(f"{len(paths)} recordings, {len(failed)} without tables", file=sys.stderr)
    for row in failed:
        print(f"{row.path}: {row.said}", file=sys.stderr)
    sys.exit(3 if failed else 0)
