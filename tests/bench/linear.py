#!/usr/bin/env python3
"""Checks that hostile recordings take linear time: measures each family with n and 10 n items, and prints the ratio.

usage: linear.py [--perfx PATH] [--only REGEX] [--scale N] [--keep] [DIR]      (DIR for the recordings: /tmp/perfx-data/linear)

Time is CPU time (user and system; the best of 3 runs, or of 1 if it takes long), so that other load on the machine
matters little. Memory is the peak of private (anonymous) memory, polled every 2 ms. Exits with 1 if 10 n items take more
than 12 times as long as n (MOST_TIMES_OF and MOST_TIMES_OF_TABLES say where it may be more), a fork takes more than 100
bytes of memory (MOST_BYTES for commands with a table of processes), or a command fails. `--scale 10` makes everything
ten times as large: 10^5 and 10^6 in the table become 10^6 and 10^7.
"""
import argparse, os, re, resource, shutil, struct, subprocess, sys, tempfile, time

here = os.path.dirname(os.path.abspath(__file__))
parser = argparse.ArgumentParser()
parser.add_argument("dir", nargs="?", default="/tmp/perfx-data/linear")
parser.add_argument("--perfx", default=os.path.join(here, "../../target/dist/perfx"))
parser.add_argument("--only", default="")
parser.add_argument("--scale", type=float, default=1)
parser.add_argument("--keep", action="store_true")
args = parser.parse_args()

# The largest ratio of times for 10 times as many items; and the largest memory of an item, where that is promised.
MOST_TIMES, MOST_BYTES = 12, {"export csv": 160, "du": 160}
# A lookup among overlapping mappings takes log² n steps, and once the tree is larger than the caches nearly every step
# waits for memory. That is not quadratic: for n = 50,000, 3 n, 10 n and 30 n, inject -b takes 0.08, 0.46, 2.2 and 12.6 s,
# and filter --dso, with two lookups, 0.16, 1.0, 6.4 and 24 s; if it were, 30 n would take 900 times as long as n.
MOST_TIMES_OF = {"overlapping": 40}
# The names of threads and their stacks are put in order, in tables that outgrow the caches: for 0.3, 1 and 3 million
# threads, export folded takes 0.5, 1.9 and 6.2 s, and list threads 0.8, 3.0 and 9.2 s.
MOST_TIMES_OF_TABLES = 20

IP, TID, TIME, ID, IDENTIFIER, CALLCHAIN, CPU = 1, 2, 4, 1 << 6, 1 << 16, 1 << 5, 1 << 7
HEADER, TRAILER = struct.Struct("<IHH"), struct.Struct("<IIQ")
TASK, MAP, SAMPLE, NAMED = struct.Struct("<IHHIIIIQIIQ"), struct.Struct("<IHHIIQQQ16sIIQ"), struct.Struct("<IHHQIIQ"), struct.Struct("<IHHII16sIIQ")
USER, EXEC = 2, 1 << 13


def fork(pid, parent, time):
    return TASK.pack(7, 0, TASK.size, pid, parent, pid, parent, time, pid, pid, time)


def exit(pid, time):
    return TASK.pack(4, 0, TASK.size, pid, 1, pid, 1, time, pid, pid, time)


def comm(pid, name, time, misc=0):
    return NAMED.pack(3, misc, NAMED.size, pid, pid, name, pid, pid, time)


def mmap(pid, start, size, name, time):
    return MAP.pack(1, USER, MAP.size, pid, pid, start, size, 0, name, pid, pid, time)


def sample(pid, ip, time):
    return SAMPLE.pack(9, USER, SAMPLE.size, ip, pid, pid, time)


def attr(sample_type=IP | TID | TIME):
    # disabled, inherit, mmap, comm, task, sample_id_all, mmap2, comm_exec
    bits = sum(1 << bit for bit in (0, 1, 8, 9, 13, 18, 23, 24))
    return struct.pack("<IIQQQQQ", 1, 128, 0, 1000, sample_type, 0, bits).ljust(128, b"\0")


def write(path, records, events=((attr(), ()),), features={}):
    """A file of these records, events (attr and ids) and feature sections."""
    ids, attrs, at = b"", b"", 104
    for _, its in events:
        ids += struct.pack(f"<{len(its)}Q", *its) if its else b""
    for event, its in events:
        attrs += event + struct.pack("<QQ", at if its else 0, 8 * len(its))
        at += 8 * len(its)
    data = 104 + len(ids) + len(attrs)
    with open(path, "wb") as file:
        file.write(bytes(104) + ids + attrs)
        file.writelines(records)
        size = file.tell() - data
        at = data + size + 16 * len(features)
        table, sections, flags = b"", b"", 0
        for feature, section in sorted(features.items()):
            table += struct.pack("<QQ", at + len(sections), len(section))
            sections += section
            flags |= 1 << feature
        file.write(table + sections)
        file.seek(0)
        header = [104, 144, 104 + len(ids), len(attrs), data, size, 0, 0, flags & (1 << 64) - 1, flags >> 64, 0, 0]
        file.write(b"PERFILE2" + struct.pack("<12Q", *header))


def one_parent(pages=20):
    yield comm(1, b"first", 1)
    for page in range(pages):
        yield mmap(1, 0x10000 * (page + 1), 0x1000, b"/nowhere/x%d" % (page % 5), 2)


# ---- families: each makes one or more recordings with n items

def reused_pids(path, n):
    """fork, sample, exit of one pid, again and again"""
    def records():
        yield from one_parent()
        for number in range(n):
            time = 1000 + 10 * number
            yield fork(7, 1, time) + sample(7, 0x10010, time + 1) + exit(7, time + 2)
    write(path, records())


def forks(path, n):
    """children of one process"""
    def records():
        yield from one_parent()
        for number in range(n):
            time = 1000 + 10 * number
            yield fork(100 + number, 1, time)
            if number % 16 == 0:
                yield sample(100 + number, 0x10010, time + 1)
    write(path, records())


def fork_depth(path, n):
    """each forked by the previous one, with a mapping of its own; samples of the last process hit the first mapping"""
    def records():
        yield from one_parent()
        for number in range(n):
            time, pid = 1000 + 10 * number, 100 + number
            yield fork(pid, pid - 1 if number else 1, time) + mmap(pid, 0x10000000 + 0x2000 * number, 0x1000, b"/nowhere/own", time + 1)
        for number in range(n):
            yield sample(99 + n, 0x10010 + 0x10000 * (number % 20), 1000 + 10 * n + number)
    write(path, records())


def same_time_forks(path, n):
    """all at the same time, each forked by the next"""
    def records():
        yield from one_parent()
        for number in range(n):
            yield fork(100 + number, 101 + number, 1000) + sample(100 + number, 0x10010, 1000)
    write(path, records())


def execs(path, n):
    """one process that execs and maps, again and again"""
    def records():
        for number in range(n):
            time = 1000 + 10 * number
            yield comm(7, b"again", time, EXEC) + mmap(7, 0x10000, 0x1000, b"/nowhere/x", time + 1) + sample(7, 0x10010, time + 2)
    write(path, records())


def overlapping(path, n):
    """nested mappings, and samples in all of them"""
    def records():
        for number in range(n):
            yield mmap(1, 0x1000 * (number + 1), 0x1000 * 2 * (n - number), b"/nowhere/x%d" % (number % 5), 1000 + number)
        for number in range(n):
            yield sample(1, 0x1000 * (1 + number * 7919 % (2 * n)), 1000 + n + number)
    write(path, records())


def map_and_fork(path, n):
    """a process that maps and forks alternately"""
    def records():
        for number in range(n):
            time = 1000 + 10 * number
            yield mmap(1, 0x1000 * (number + 1), 0x1000, b"/nowhere/x", time) + fork(100 + number, 1, time + 1) + sample(100 + number, 0x1000 * (1 + number // 2), time + 2)
    write(path, records())


def many_dsos(path, n):
    """each mapping is of a different file, and each is hit"""
    def records():
        for number in range(n):
            yield mmap(1, 0x1000 * (number + 1), 0x1000, b"/nowhere/%d" % number, 1000)
        for number in range(n):
            yield sample(1, 0x1010 + 0x1000 * number, 2000 + number)
    write(path, records())


def comms(path, n):
    """one thread that changes its name repeatedly"""
    def records():
        for number in range(n):
            yield comm(7, b"name%d" % number, 1000 + 2 * number) + sample(7, 0x10010, 1001 + 2 * number)
    write(path, records())


def threads(path, n):
    """each sample is of a different process"""
    write(path, (sample(1 + number, 0x10010, 1000 + number) for number in range(n)))


def equal_times(path, n):
    """all records have the same time"""
    write(path, (sample(1 + number % 1000, number, 1000) for number in range(n)))


def backwards(path, n):
    """the latest first"""
    write(path, (sample(1, 0x10010, 1000 + n - number) for number in range(n)))


def rounds(path, n):
    """a round after each sample"""
    end = HEADER.pack(68, 0, 8)
    write(path, (sample(1, 0x10010, 1000 + number) + end for number in range(n)))


def interleaved(path, n):
    """lost samples of 100 processes in turns, and a mapping behind them"""
    lost = struct.Struct("<IHHQQIIQ")
    def records():
        for number in range(n):
            pid = 1 + number % 100
            if number < 100:
                yield sample(pid, 0x10010, 1000)
            yield lost.pack(2, 0, lost.size, 1, 1, pid, pid, 1001 + number)
        yield mmap(1, 0x20000, 0x1000, b"/last", 1001 + n)
    write(path, records())


def alike(path, n):
    """two recordings with the same names at the same time"""
    tell = lambda: (comm(number % 4_000_000, b"name%d" % number, 1000) for number in range(n))
    write(path, tell())
    write(path + ".2", tell())


def alike_samples(path, n):
    """two recordings with samples at the same time"""
    write(path, (sample(1, number, 1000) for number in range(n)))
    write(path + ".2", (sample(1, n + number, 1000) for number in range(n)))


def events(path, n):
    """many events, each with a sample"""
    kind = IDENTIFIER | IP | TID | TIME
    record = struct.Struct("<IHHQQIIQ")
    write(path, (record.pack(9, USER, record.size, 1 + number, 0x10010, 1, 1, 1000 + number) for number in range(n)), [(attr(kind), (1 + number,)) for number in range(n)])


def ids(path, n):
    """an event with many ids, each of which has a sample"""
    kind = IDENTIFIER | IP | TID | TIME
    record = struct.Struct("<IHHQQIIQ")
    write(path, (record.pack(9, USER, record.size, 1 + number, 0x10010, 1, 1, 1000 + number) for number in range(n)), [(attr(kind), range(1, 1 + n // 2)), (attr(kind), range(1 + n // 2, n + 1))])


def build_ids(path, n):
    """many entries of feature BUILD_ID, and as many mappings of the same file"""
    entry = struct.Struct("<IHHi20sI")
    section = b"".join(entry.pack(0, USER, entry.size + 16, -1, struct.pack("<Q", number + 1).ljust(20, b"\1"), 20) + b"/nowhere/x".ljust(16, b"\0") for number in range(n))
    def records():
        for number in range(n):
            yield mmap(1 + number, 0x1000, 0x1000, b"/nowhere/x", 1000 + number) + sample(1 + number, 0x1010, 1000 + number)
    write(path, records(), features={2: section})


def ksymbols(path, n):
    """code that the kernel creates and removes"""
    record = struct.Struct("<IHHQIHH16sIIQ")
    def records():
        for number in range(n):
            yield record.pack(17, 1, record.size, 0xffffffff00000000 + 64 * number, 64, 1, number % 2, b"bpf_prog_%d" % (number % 100000), 1, 1, 1000 + number)
            yield SAMPLE.pack(9, 1, SAMPLE.size, 0xffffffff00000000 + 64 * number, 1, 1, 1000 + number)
    write(path, records())


def updates(path, n):
    """event names, repeatedly"""
    record = struct.Struct("<IHHQQ16s")
    write(path, (record.pack(78, 0, record.size, 2, 1 + number % 7, b"name%d" % number) + sample(1, 0x10010, 1000 + number) for number in range(n)))


def cpus(path, n):
    """samples of 16 events, each with an id for each of 512 CPUs"""
    kind = IDENTIFIER | IP | TID | TIME | CPU
    record = struct.Struct("<IHHQQIIQII")
    def records():
        for number in range(n):
            cpu, event = number * 7919 % 512, number % 16
            yield record.pack(9, USER, record.size, 1 + 512 * event + cpu, 0x10010, 1, 1, 1000 + number, cpu, 0)
    write(path, records(), [(attr(kind), range(1 + 512 * event, 513 + 512 * event)) for event in range(16)])


def late_events(path, n):
    """pipe data with events among its records"""
    kind = IDENTIFIER | IP | TID | TIME
    record = struct.Struct("<IHHQQIIQ")
    with open(path, "wb") as file:
        file.write(b"PERFILE2" + struct.pack("<Q", 16))
        for number in range(n):
            file.write(HEADER.pack(64, 0, 8 + 128 + 8) + attr(kind) + struct.pack("<Q", 1 + number))
            file.write(record.pack(9, USER, record.size, 1 + number, 0x10010, 1, 1, 1000 + number))


def bombs(path, n):
    """COMPRESSED records of which each expands to 4 MiB"""
    samples = b"".join(sample(1, 0x10010, 1000) for _ in range((4 << 20) // SAMPLE.size))
    frame = subprocess.run(["zstd", "-q", "-19"], input=samples, stdout=subprocess.PIPE, check=True).stdout
    write(path, (HEADER.pack(81, 0, 8 + len(frame)) + frame for _ in range(n)), features={27: struct.pack("<5I", 1, 1, 1, 1, 1 << 20)})


def bomb(path, n):
    """COMPRESSED records of which each expands to 63 MiB"""
    samples = b"".join(sample(1, 0x10010, 1000) for _ in range((63 << 20) // SAMPLE.size))
    frame = subprocess.run(["zstd", "-q", "-19", "--long=27", "--no-check"], input=samples, stdout=subprocess.PIPE, check=True).stdout
    write(path, (HEADER.pack(81, 0, 8 + len(frame)) + frame for _ in range(n)), features={27: struct.pack("<5I", 1, 1, 1, 1, 1 << 20)})


READ = {"stats": "stats -q IN", "du": "du -q IN", "doctor": "doctor -q IN", "dump": "dump IN"}
COPY = {"copy": "copy IN -o OUT", "to pipe": "copy --to pipe IN -o OUT", "recover": "recover IN -o OUT", "reindex": "reindex IN -o OUT"}
SORT = {"sort": "sort IN -o OUT", "filter --time": "filter --time 20%-70% IN -o OUT"}
INJECT = {"inject -b": "inject -b IN -o OUT", "export csv": "export csv IN -o OUT"}
TASKS = {"filter --pid": "filter --pid 7 IN -o OUT", "filter --comm": "filter --comm first IN -o OUT", "filter --dso": "filter --dso x1 IN -o OUT"}
INJECT_ALL = {"inject -B": "inject -B IN -o OUT", "inject --buildid-all": "inject --buildid-all IN -o OUT", "unused": "filter --drop-unused --time 20%-70% IN -o OUT"}
JOIN = {"join": "join IN IN.2 -o OUT", "diff": "diff -q IN IN.2"}
COMPRESS = {"compress": "compress IN -o OUT"}
EXPORT = {f"export {kind}": f"export {kind} IN -o OUT" for kind in ["folded", "pprof", "firefox", "html"]} | {"export parquet": "export parquet IN --dir OUT"}
LOOK = {f"list {what}": f"list {what} IN" for what in ["events", "dsos", "processes", "threads", "mappings"]} | {"view": "view IN", "info": "info IN", "index": "index IN"}
CHANGE = {
    "redact": "redact IN -o OUT",
    "remap": "remap --path /nowhere=/x IN -o OUT",
    "thin": "thin --every 3 IN -o OUT",
    "retime": "retime --zero IN -o OUT",
    "normalize": "normalize --for perf-5.10 IN -o OUT",
    "aslr": "inject --aslr IN -o OUT",
    "repair": "repair IN -o OUT",
    "diff with itself": "diff IN IN",
}
# Each part of a recording has all of its events and ids.
SPLIT = {"split by event": "split --by event IN -o OUT/", "split by samples": "split --samples 1000 IN -o OUT/"}
REST = EXPORT | LOOK | CHANGE
ALL = READ | COPY | SORT | INJECT | TASKS | INJECT_ALL

# The family, n, its commands, and whether an item is a fork.
FAMILIES = [
    (reused_pids, 100_000, ALL, True),
    (forks, 100_000, ALL, True),
    (forks, 100_000, REST, False),
    (fork_depth, 50_000, ALL, False),
    (same_time_forks, 50_000, INJECT | TASKS, True),
    (execs, 50_000, INJECT | TASKS | INJECT_ALL, False),
    (overlapping, 50_000, INJECT | TASKS | INJECT_ALL | REST, False),
    (map_and_fork, 50_000, INJECT | TASKS | INJECT_ALL, False),
    (many_dsos, 10_000, INJECT | TASKS | INJECT_ALL | REST, False),
    (comms, 50_000, ALL | REST, False),
    (threads, 100_000, ALL | REST, False),
    (equal_times, 200_000, READ | COPY | SORT | COMPRESS, False),
    (backwards, 200_000, READ | COPY | SORT, False),
    (rounds, 200_000, READ | COPY | SORT | COMPRESS, False),
    (interleaved, 10_000, {"split by pid": "split --by pid IN -o OUT/"}, False),
    (alike, 100_000, JOIN, False),
    (alike_samples, 100_000, JOIN, False),
    (events, 300, ALL | REST, False),
    (ids, 50_000, ALL | REST, False),
    (cpus, 200_000, ALL | REST | SPLIT, False),
    (build_ids, 20_000, ALL, False),
    (ksymbols, 50_000, INJECT | TASKS, False),
    (updates, 100_000, ALL | REST, False),
    (late_events, 300, READ | COPY | INJECT | TASKS, False),
    (bombs, 20, {"stats": READ["stats"], "inject -b": INJECT["inject -b"], "inject -B": INJECT_ALL["inject -B"]}, False),
    (bomb, 2, {"stats": READ["stats"], "inject -b": INJECT["inject -b"], "decompress": "decompress IN -o OUT"}, False),
]


def run(command, path):
    """CPU seconds, and the peak of private memory in bytes."""
    out = os.path.join(args.dir, "out")
    if os.path.isdir(out):
        shutil.rmtree(out)
    elif os.path.exists(out):
        os.unlink(out)
    words = [word.replace("IN", path).replace("OUT", out) if word.startswith(("IN", "OUT")) else word for word in command.split()]
    before = resource.getrusage(resource.RUSAGE_CHILDREN)
    said = tempfile.TemporaryFile()
    process = subprocess.Popen([args.perfx, *words], stdin=subprocess.DEVNULL, stdout=subprocess.DEVNULL, stderr=said)
    peak = 0
    while process.poll() is None:
        try:
            peak = max([peak] + [int(kb) for kb in re.findall(r"RssAnon:\s+(\d+)", open(f"/proc/{process.pid}/status").read())])
        except (FileNotFoundError, ProcessLookupError):
            pass
        time.sleep(0.002)
    after = resource.getrusage(resource.RUSAGE_CHILDREN)
    if process.returncode not in (0, 3):
        said.seek(0)
        sys.exit(f"{words} ended with {process.returncode}: {said.read().decode()}")
    return after.ru_utime + after.ru_stime - before.ru_utime - before.ru_stime, peak * 1024


os.makedirs(args.dir, exist_ok=True)
failed = 0
print("| family | command | n | time | × at 10 n | private memory | bytes an item |\n|---|---|---|---|---|---|---|")
for family, n, commands, is_fork in FAMILIES:
    n = int(n * args.scale) or 1
    name = family.__name__.replace("_", " ")
    commands = {what: command for what, command in commands.items() if re.search(args.only, f"{name}: {what}")}
    if not commands:
        continue
    small, large = (os.path.join(args.dir, f"{family.__name__}.{count}") for count in (n, 10 * n))
    for path, count in ((small, n), (large, 10 * n)):
        if not os.path.exists(path):
            family(path, count)
    for what, command in commands.items():
        tables = MOST_TIMES_OF_TABLES if re.match("export [^c]|list", what) else MOST_TIMES
        most = MOST_TIMES_OF.get(name, tables)
        few = min(run(command, small) for _ in range(3))
        much = run(command, large)
        # Other load may have come in between.
        for _ in range(2):
            if much[0] > most * few[0]:
                much = min(much, run(command, large))
        times, each = much[0] / few[0], (much[1] - few[1]) / (9 * n)
        wrong = times > most or is_fork and each > MOST_BYTES.get(what, 100)
        failed += wrong
        print(f"| {name} | {what} | {n:,} | {few[0]:.2f} s | {times:.1f} | {much[1] >> 20} MiB | {each:.0f}{' **wrong**' if wrong else ''} |", flush=True)
    if not args.keep:
        for path in (small, large, small + ".2", large + ".2"):
            if os.path.exists(path):
                os.unlink(path)
sys.exit(failed > 0)
