#!/usr/bin/env python3
"""Merges the files of each day into one for each table and host, so that queries open fewer files.

usage: compact.py [--before DATE] OUT

Merges the parts in each folder OUT/tables/TABLE/host=HOST/date=DATE whose date is before DATE (today, in UTC, if not
given), or not known. A whole file has the rows of the parts, in the order of their names. Parts that perfx of another
version wrote, with other columns, get a whole file of their own. Parts that came since the last run are merged with the
whole file.

Not Delta Lake: it has no unsigned numbers, and addresses of the kernel are above 2^63.

Run it when no job writes these days and no query reads them. A run that is killed is finished by the next one: a list
of the parts, `_parts`, is written before the first of them is removed.
"""
import argparse, datetime, glob, hashlib, json, os

import pyarrow.parquet as parquet


def finish(folder):
    """Replaces the parts in the list of a folder by the whole file, if there is a list."""
    list_ = os.path.join(folder, "_parts")
    if not os.path.exists(list_):
        return
    with open(list_) as file:
        whole, parts = json.load(file)
    if any(os.path.basename(name) != name for name in [whole, *parts]):
        raise SystemExit(f"{list_}: names files of other folders; remove it if it is not from this program")
    for part in parts:
        if os.path.exists(os.path.join(folder, part)):
            os.remove(os.path.join(folder, part))
    new = os.path.join(folder, whole + ".new")
    if os.path.exists(new):
        os.rename(new, os.path.join(folder, whole))
    os.remove(list_)


def compact(folder):
    """Merges the parts of a folder; returns how many files there were and are."""
    finish(folder)
    kinds = {}
    for name in sorted(os.listdir(folder)):
        if name.endswith(".new"):
            os.remove(os.path.join(folder, name))
        elif name.endswith(".parquet"):
            schema = parquet.read_schema(os.path.join(folder, name)).remove_metadata()
            kinds.setdefault(schema.to_string(), []).append(name)
    for parts in kinds.values():
        if len(parts) == 1:
            continue
        whole = f"whole-{hashlib.sha256(json.dumps(parts).encode()).hexdigest()[:16]}.parquet"
        schema = parquet.read_schema(os.path.join(folder, parts[0]))
        with parquet.ParquetWriter(os.path.join(folder, whole + ".new"), schema, compression="zstd") as writer:
            for part in parts:
                with parquet.ParquetFile(os.path.join(folder, part)) as file:
                    for batch in file.iter_batches():
                        writer.write_batch(batch, row_group_size=1 << 20)
        # The parts are removed only when the whole file is on the disk.
        with open(os.path.join(folder, whole + ".new"), "rb") as file:
            os.fsync(file.fileno())
        list_ = os.path.join(folder, "_parts")
        with open(list_ + ".new", "w") as file:
            json.dump([whole, parts], file)
        os.rename(list_ + ".new", list_)
        finish(folder)
    return sum(map(len, kinds.values())), len(kinds)


def main():
    parser = argparse.ArgumentParser(description="Merges the tables of each day.")
    today = datetime.datetime.now(datetime.timezone.utc).date()
    parser.add_argument("--before", type=datetime.date.fromisoformat, default=today, metavar="DATE")
    parser.add_argument("out", metavar="OUT")
    options = parser.parse_args()
    before, after = 0, 0
    folders = sorted(glob.glob(os.path.join(glob.escape(options.out), "tables", "*", "host=*", "date=*")))
    for folder in folders:
        date = folder.rpartition("date=")[2]
        if date.startswith("__") or datetime.date.fromisoformat(date) < options.before:
            parts, wholes = compact(folder)
            before, after = before + parts, after + wholes
    print(f"{before} files are {after} now")


if __name__ == "__main__":
    main()
