#!/usr/bin/env python3
"""Checks job.py on the recordings of tests/data: with DuckDB, Spark, and the same work without Spark.

usage: check.py PERFX      (python3 with pyspark, pyarrow and duckdb; Java 17 or newer)
"""
import csv, collections, glob, hashlib, json, os, signal, subprocess, sys, tempfile, time

here = os.path.dirname(os.path.abspath(__file__))
sys.path.insert(0, os.path.join(here, "../../docs/fleet"))
import duckdb
import job

perfx = os.path.abspath(sys.argv[1])
work = tempfile.TemporaryDirectory(prefix="perfx-fleet-")
recordings = os.path.join(work.name, "recordings")
data = os.path.join(here, "../data/recorded")
names = sorted(name for name in os.listdir(data) if name.endswith(".data") and os.path.isfile(f"{data}/{name}"))
# perf 6.1 recorded on the first date, the others on the second.
for name in names:
    date = "2026-11-22" if ".p61." in name else "2026-11-23"
    os.makedirs(f"{recordings}/{date}", exist_ok=True)
    os.symlink(os.path.realpath(f"{data}/{name}"), f"{recordings}/{date}/{name}")
paths = sorted(glob.glob(f"{recordings}/*/*.data"))


def contents(out):
    """The SHA-256 of each table, by its path."""
    tables = os.path.join(out, "tables")
    files = [file for file in glob.glob(f"{tables}/**/*.parquet", recursive=True)]
    return {os.path.relpath(file, tables): hashlib.sha256(open(file, "rb").read()).hexdigest() for file in files}


def run(out, master):
    command = [sys.executable, f"{here}/../../docs/fleet/job.py", "--master", master, "--perfx", perfx, recordings, out]
    return subprocess.Popen(command, start_new_session=True, stderr=subprocess.DEVNULL)


def folder(name):
    return os.path.join(work.name, name)


# Without Spark.
serial = {path: job.export(perfx, path, folder("serial")) for path in paths}
expected = contents(folder("serial"))
done = [row for row in serial.values() if row["sha256"]]
print(f"{len(paths)} recordings, {len(done)} exported, {len(expected)} files")
assert len(done) > len(paths) * 8 / 10 and len(done) < len(paths), "some are cut"

# One worker and two write the same bytes.
for workers in (1, 2):
    assert run(folder(f"spark{workers}"), f"local[{workers}]").wait() == 3, "some are broken"
    assert contents(folder(f"spark{workers}")) == expected, f"local[{workers}]"
print("local[1] and local[2] write the files that a run without Spark writes")

# Killed half-way, and run again.
killed = run(folder("killed"), "local[2]")
while killed.poll() is None and len(contents(folder("killed"))) < len(expected) / 3:
    time.sleep(0.05)
os.killpg(killed.pid, signal.SIGKILL)
killed.wait()
half = contents(folder("killed"))
assert 0 < len(half) < len(expected), "the job was killed half-way"
assert all(expected[name] == hash for name, hash in half.items()), "what is there is complete"
assert run(folder("killed"), "local[2]").wait() == 3
assert contents(folder("killed")) == expected
print(f"a run that was killed after {len(half)} files, and run again, leaves the same files")

# The manifest.
tables, manifest = folder("spark2/tables"), folder("spark2/manifest")
rows = duckdb.sql(f"SELECT path, bytes, modified_ns, inject, export, sha256, said FROM '{manifest}/*.parquet' ORDER BY path").fetchall()
assert [tuple(serial[path].values()) for path in paths] == rows
print("the manifest has a row for each recording, as without Spark")

# The number of samples is that of stats.
query = f"SELECT recording, count(*) FROM '{tables}/samples/**/*.parquet' GROUP BY 1"
counted = dict(duckdb.sql(query).fetchall())
for path in paths:
    row = serial[path]
    if row["sha256"]:
        stats = json.loads(subprocess.run([perfx, "stats", "--json", path], capture_output=True).stdout)
        # Samples with user stacks are unwound, which leaves their number as it is.
        samples = sum(event["samples"] for event in stats["events"])
        assert counted.get(row["sha256"][:16], 0) == samples, (path, samples)
print("the numbers of samples are those of perfx stats")

# Periods by symbol are the sums of results.csv; samples with counters (READ) have other weights there.
totals = collections.Counter()
plain = []
for path in paths:
    row = serial[path]
    if not row["sha256"]:
        continue
    id = row["sha256"][:16]
    # Two recordings that were cut at different places may have the same bytes in the end.
    if id in plain:
        continue
    bits = f"SELECT bool_or(sample_type & 16 > 0 OR sample_type & 8192 > 0) FROM '{tables}/events/**/part-{id}.parquet'"
    if duckdb.sql(bits).fetchall()[0][0]:
        continue
    with tempfile.TemporaryDirectory() as out:
        command = [perfx, "export", "csv", "--foreign", "-q", path, "-o", f"{out}/csv"]
        assert subprocess.run(command, stderr=subprocess.DEVNULL).returncode in (0, 3)
        for line in csv.DictReader(open(f"{out}/csv/results.csv")):
            if not line["dso"].startswith("//anon") and "\\" not in line["dso"]:
                totals[line["dso"]] += int(line["period"])
        plain.append(id)
query = f"""SELECT coalesce(path, '[unknown]'), sum(period) FROM '{tables}/samples/**/*.parquet' s
    JOIN '{tables}/frames/**/*.parquet' USING (recording, frame)
    LEFT JOIN '{tables}/dsos/**/*.parquet' USING (recording, dso)
    WHERE recording IN ({", ".join(f"'{id}'" for id in plain)}) GROUP BY 1"""
ours = {dso: int(period) for dso, period in duckdb.sql(query).fetchall()}
ours = {dso: period for dso, period in ours.items() if not dso.startswith("//anon") and "\n" not in dso}
assert ours == dict(totals), (set(ours.items()) ^ set(totals.items()))
print(f"the periods of {len(plain)} recordings by file are the sums of results.csv")

# DuckDB and Spark answer alike: what took most by build-id, and whose share has grown most from one date to the other.
TOP = """SELECT d.build_id, coalesce(f.symbol, '?') AS symbol, sum(s.period) AS period, count(DISTINCT s.recording) AS recordings
    FROM samples s JOIN frames f ON f.recording = s.recording AND f.frame = s.frame
    JOIN dsos d ON d.recording = f.recording AND d.dso = f.dso
    GROUP BY d.build_id, coalesce(f.symbol, '?') ORDER BY period DESC, d.build_id, symbol LIMIT 20"""
GROWN = """WITH shares AS (
        SELECT CAST(s.date AS VARCHAR(10)) AS day, d.path, sum(s.period) AS period FROM samples s
        JOIN frames f ON f.recording = s.recording AND f.frame = s.frame
        JOIN dsos d ON d.recording = f.recording AND d.dso = f.dso GROUP BY 1, 2),
    totals AS (SELECT day, sum(period) AS period FROM shares GROUP BY day)
    SELECT b.path, round(1000.0 * a.period / ta.period, 3) AS before, round(1000.0 * b.period / tb.period, 3) AS after
    FROM shares a JOIN shares b ON a.path = b.path JOIN totals ta ON ta.day = a.day JOIN totals tb ON tb.day = b.day
    WHERE a.day = '2026-11-22' AND b.day = '2026-11-23'
    ORDER BY after - before DESC, b.path LIMIT 20"""
spark = job.session("local[2]")
for table in ("samples", "frames", "dsos"):
    duckdb.sql(f"CREATE VIEW {table} AS SELECT * FROM read_parquet('{tables}/{table}/**/*.parquet', hive_partitioning=true)")
    spark.read.parquet(f"{tables}/{table}").createOrReplaceTempView(table)
exact = lambda rows: [tuple(float(cell) if hasattr(cell, "__round__") else cell for cell in row) for row in rows]
for query in (TOP, GROWN):
    one, other = exact(duckdb.sql(query).fetchall()), exact(tuple(row) for row in spark.sql(query).collect())
    assert one and one == other, (one, other)
for table in ("recordings", "events", "stacks", "mappings", "threads", "comms"):
    count = spark.read.parquet(f"{tables}/{table}").count()
    assert count == duckdb.sql(f"SELECT count(*) FROM '{tables}/{table}/**/*.parquet'").fetchall()[0][0], table
spark.stop()
print("DuckDB and Spark answer alike")
