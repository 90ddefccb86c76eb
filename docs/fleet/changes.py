#!/usr/bin/env python3
"""Reports what changed in a fleet: chooses recordings by their tables, and compares them with perfx.

usage: changes.py [--perfx PERFX] [--option OPTION]... OUT grown FROM-TO FROM-TO
       changes.py [--perfx PERFX] [--option OPTION]... OUT builds PROGRAM

OUT is the output folder of job.py, or any folder with `tables` written by perfx export parquet with --partition-by
host,date. Needs duckdb, and the recordings at the paths that they had then.

grown    the functions whose share grew from the first week to the second: 2026-11-16..2026-11-22 2026-11-23..2026-11-29
builds   the builds of a program (by build-id, in the order in which they appeared) that have functions with larger
         shares than the build before, on all hosts together or on some

The verdict is that of `perfx diff --profile --shares`: more than the noise of sampling and of runs. For builds,
the probability of any false alarm is 5% in all, so each comparison gets a part of it. --option is passed to perfx:
--option=--root --option=/srv/images --option=--event --option=cycles.
"""
import argparse, datetime, glob, json, os, subprocess, sys, tempfile


def recordings(out, query):
    """The paths of the recordings with tables, by their ids. job.py uses pipes; its notes have the paths."""
    paths = dict(query("SELECT recording, path FROM recordings WHERE path <> '<stdin>'"))
    for note in glob.glob(os.path.join(glob.escape(out), "done", "*.json")):
        with open(note) as file:
            row = json.load(file)
        paths[row["sha256"][:16]] = row["path"]
    return paths


def grown(args, before, after, comparisons=1):
    """The functions whose share grew, with their changes: `perfx diff --profile` decides."""
    with tempfile.TemporaryDirectory() as lists:
        for side, paths in (("a", before), ("b", after)):
            with open(os.path.join(lists, side), "w") as file:
                file.writelines(f"{path}\n" for path in paths)
        command = [args.perfx, "diff", "--profile", "--shares", "--json", "-q", "--foreign", *args.option]
        command += ["--false-alarms", f"{5 / comparisons}", f"@{lists}/a", "--vs", f"@{lists}/b"]
        done = subprocess.run(command, stdin=subprocess.DEVNULL, capture_output=True)
    if done.returncode not in (0, 3, 4):
        sys.exit(done.stderr.decode(errors="replace"))
    return [it for it in json.loads(done.stdout)["functions"] if it["change"]["beyond_noise"] and it["change"]["change"] > 0]


def show(functions, indent=""):
    for it in functions:
        change = it["change"]
        share = f"{change['share_a']:.2f}% -> {change['share_b']:.2f}%"
        print(f"{indent}{it['function']} ({os.path.basename(it['file'] or 'no file')}): {share}, p = {change['probability']:.2g}")


def by_week(args, query, paths):
    sides = []
    for week in args.rest:
        try:
            first, last = (datetime.date.fromisoformat(day) for day in week.split(".."))
        except ValueError:
            sys.exit(f"{week}: give two dates, such as 2026-11-16..2026-11-22")
        rows = query(f"SELECT recording FROM recordings WHERE CAST(date AS VARCHAR) BETWEEN '{first}' AND '{last}'")
        sides.append(sorted(paths[id] for id, in rows if id in paths))
        if not sides[-1]:
            sys.exit(f"{week}: no recordings of these dates")
    show(grown(args, *sides))


def by_build(args, query, paths):
    (program,) = args.rest
    # A recording counts for the build that has the most samples in it.
    rows = query(
        f"""WITH places AS MATERIALIZED (
            SELECT recording, frame, build_id FROM frames JOIN dsos USING (recording, dso)
            WHERE build_id IS NOT NULL AND regexp_extract(path, '[^/]*$') = '{program.replace("'", "''")}')
        SELECT arg_max(build_id, n), recording, host, date FROM (
            SELECT build_id, recording, s.host, CAST(s.date AS VARCHAR) AS date, count(*) AS n
            FROM samples s JOIN places USING (recording, frame)
            GROUP BY ALL) GROUP BY recording, host, date ORDER BY date, recording"""
    )
    builds = {}
    for id, recording, host, _ in rows:
        if recording in paths:
            builds.setdefault(id, {}).setdefault(host, []).append(paths[recording])
    if len(builds) < 2:
        sys.exit(f"{program}: {len(builds)} builds; two are needed")
    everything = lambda hosts: sorted(path for some in hosts.values() for path in some)
    pairs = list(zip(builds, list(builds)[1:]))
    # A change on one host only may look like noise between runs of all hosts, so each host is also tested alone.
    sides = []
    for old, new in pairs:
        sides.append((old, new, "all hosts", everything(builds[old]), everything(builds[new])))
        for host in sorted(builds[old].keys() & builds[new].keys()):
            sides.append((old, new, host, builds[old][host], builds[new][host]))
    shown = None
    for old, new, where, before, after in sides:
        found = [it for it in grown(args, before, after, len(sides)) if os.path.basename(it["file"] or "") == program]
        if found and shown != new:
            print(f"{new}: larger shares than in {old}")
            shown = new
        if found:
            print(f"  on {where}:")
            show(found, "    ")
    print(f"{len(builds)} builds, {len(sides)} comparisons")


if __name__ == "__main__":
    parser = argparse.ArgumentParser()
    parser.add_argument("--perfx", default="perfx")
    parser.add_argument("--option", action="append", default=[])
    parser.add_argument("out")
    parser.add_argument("what", choices=["grown", "builds"])
    parser.add_argument("rest", nargs="+")
    args = parser.parse_args()
    if len(args.rest) != {"grown": 2, "builds": 1}[args.what]:
        parser.error("grown takes two ranges of dates, builds one program")
    import duckdb

    for table in ("recordings", "samples", "frames", "dsos"):
        files = os.path.join(args.out, "tables", table, "**", "*.parquet").replace("'", "''")
        duckdb.sql(f"CREATE VIEW {table} AS SELECT * FROM read_parquet('{files}', hive_partitioning = true)")
    work = {"grown": by_week, "builds": by_build}[args.what]
    query = lambda sql: duckdb.sql(sql).fetchall()
    work(args, query, recordings(args.out, query))
