#!/usr/bin/env python3
"""Compares perfx with cp and perf inject on the recordings of record.sh and pair.py (in DIR/pair), and prints Markdown
tables. With --base PERFX, an older build of the same profile, each command also runs with that one, in turns: exits
with 1 if one takes more than 10 % (and 20 ms) more CPU time. --write puts the tables into docs/benchmarks.md.

usage: run.py [--runs N] [--perf PERF] [--base PERFX] [--only REGEX] [--write] [DIR]
(DIR of record.sh: /tmp/perfx-data/big)

Every command runs N times (default 5). The commands of a group run alternately, so that other load affects all of them
alike; the fastest run counts, with a warm page cache, and the median is shown. Compression is compared with zstd, for the same bytes or the same
zstd stream. Memory is the peak of private (anonymous) memory, polled every 2 ms from /proc/PID/status. Outputs go to
DIR/out. perf runs only once, because it is slow; for hardware traces it should be perf 7.3 (--perf). The last tables compare CPU seconds: of exports, and on one thread of
what reads other files. stackcollapse-perf.pl and inferno-collapse-perf are run if they are in PATH.
"""
import argparse, json, os, re, resource, shutil, statistics, struct, subprocess, sys, tempfile, time

from peak import peak

here = os.path.dirname(os.path.abspath(__file__))
parser = argparse.ArgumentParser()
parser.add_argument("dir", nargs="?", default="/tmp/perfx-data/big")
parser.add_argument("--runs", type=int, default=5)
parser.add_argument("--perf", default="perf")
parser.add_argument("--base")
parser.add_argument("--only", default="")
parser.add_argument("--write", action="store_true")
args = parser.parse_args()
perfx = os.path.join(here, "../../target/dist/perfx")
out = os.path.join(args.dir, "out")
page = os.path.join(here, "../../docs/benchmarks.md")
begin, end = "<!-- tests/bench/run.py --write begins here -->", "<!-- and ends here -->"
tables, worse = [], []


def show(line):
    """Prints a line of the tables, and keeps it."""
    print(line, flush=True)
    tables.append(line)


def of_base(items):
    """The same commands of the older build; those of pipes and shells are left out."""
    plain = [(label, command) for label, command in items if args.base and command[0] == perfx]
    return [(("base", label), [args.base, *command[1:]]) for label, command in plain]


def compare(work, used):
    """Keeps the works that take more CPU time (seconds, by label) than those of the older build."""
    for label in [label for kind, label in filter(lambda key: isinstance(key, tuple), used)]:
        now, before = used[label], used["base", label]
        if now > 1.1 * before + 0.02:
            worse.append(f"{work}: {label} takes {now:.2f} s of CPU time, {before:.2f} s before")


def run(command):
    """Seconds, the peak of private memory in MiB, and CPU seconds of a command, or of the last of a (producer, consumer)
    pair."""
    if os.path.isfile(out):
        os.unlink(out)
    if out + ".parts/" in command:
        # A new folder, because old parts would be written to disk before they are replaced.
        os.makedirs(out + ".parts", exist_ok=True)
        folder = tempfile.mkdtemp(dir=out + ".parts") + "/"
        command = [folder if part == out + ".parts/" else part for part in command]
    used = lambda: sum(resource.getrusage(resource.RUSAGE_CHILDREN)[:2])
    before, start = used(), time.monotonic()
    source = subprocess.DEVNULL
    if isinstance(command, tuple):
        producer, command = command
        source = subprocess.Popen(producer, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL).stdout
    process = subprocess.Popen(command, stdin=source, stdout=subprocess.DEVNULL, stderr=subprocess.PIPE)
    memory = peak(process)
    seconds = time.monotonic() - start
    if process.returncode not in (0, 3):
        sys.exit(f"{command} failed: {process.stderr.read().decode()}")
    return seconds, memory, used() - before


def rows(name, paths, items, slow):
    items = [item for item in items if re.search(args.only, item[0])]
    if not items:
        return
    copy = ["cp", paths[0], out] if len(paths) == 1 else ["sh", "-c", f"cat {' '.join(paths)} > {out}"]
    commands = [("cp", copy)] + items + of_base(items)
    times = {label: [] for label, _ in commands}
    peaks, used = dict.fromkeys(times, 0), dict.fromkeys(times, 1e9)
    run(copy)
    for _ in range(args.runs):
        for label, command in commands:
            seconds, memory, cpu = run(command)
            times[label].append(seconds)
            peaks[label], used[label] = max(peaks[label], memory), min(used[label], cpu)
    compare(name, used)
    slow = {label: run(command) for label, command in slow if re.search(args.only, label)}
    cp = min(times["cp"])
    size = sum(map(os.path.getsize, paths)) / 1e9
    show(f"\n{name}: {size:.2f} GB, cp {cp:.2f} s (median {statistics.median(times['cp']):.2f})\n")
    show("| work | best | median | × cp | private memory | perf inject | perf ÷ perfx |\n|---|---|---|---|---|---|---|")
    for label, _ in items:
        best, median = min(times[label]), statistics.median(times[label])
        perf = slow.get(label)
        beside = f"{perf[0]:.1f} s, {perf[1]:.0f} MiB | {perf[0] / best:.0f}" if perf else " | "
        show(f"| `{label}` | {best:.2f} s | {median:.2f} s | {best / cp:.2f} | {peaks[label]:.0f} MiB | {beside} |")


def cpu(command):
    """CPU seconds, and the peak of private memory in MiB, of a command."""
    _, memory, used = run(command)
    return used, memory


def perf_inject(path, *options):
    return [args.perf, "--buildid-dir", "/tmp/perfx-data/debug", "inject", *options, "-i", path, "-o", out]


def compression(name, path):
    """The rows about compression, once their inputs exist."""
    beside = lambda end: os.path.join(args.dir, f"{name}.{end}")
    if name == "z":
        payload(path, beside("zst"))
        return [
            ("zstd -dc", ["zstd", "-q", "-f", "-d", beside("zst"), "-o", out]),
            ("decompress", [perfx, "decompress", path, "-o", out]),
        ]
    items = [("zstd -3 -T0", ["zstd", "-q", "-f", "-3", "-T0", path, "-o", out])]
    subprocess.run(["zstd", "-q", "-f", "-3", "-T0", path, "-o", beside("zst")], check=True)
    opened = [("zstd -dc", ["zstd", "-q", "-f", "-d", beside("zst"), "-o", out])]
    sizes = {"zstd -3": os.path.getsize(beside("zst"))}
    for options in [[], ["--solid"]]:
        small = beside("z" + "".join(options))
        what = " ".join(["compress", *options])
        subprocess.run([perfx, "compress", "-q", "-f", *options, path, "-o", small], check=True)
        sizes[what] = os.path.getsize(small)
        items.append((what, [perfx, "compress", *options, path, "-o", out]))
        opened.append((f"decompress of {what}", [perfx, "decompress", small, "-o", out]))
    show("\n" + ", ".join(f"{what}: {size / 1e6:.1f} MB" for what, size in sizes.items()))
    return items + opened


def samples_of(path):
    """The number of a recording's samples."""
    stats = json.loads(subprocess.run([perfx, "stats", "--json", path], check=True, stdout=subprocess.PIPE).stdout)
    return next(kind["records"] for kind in stats["kinds"] if kind["kind"] == "SAMPLE")


def payload(path, into):
    """The zstd stream of a recording that perf compressed."""
    with open(path, "rb") as file:
        data = file.read()
    at, size = struct.unpack_from("<QQ", data, 40)
    end = at + size
    with open(into, "wb") as stream:
        while at < end:
            kind, _, size = struct.unpack_from("<IHH", data, at)
            if kind == 81:
                stream.write(data[at + 8:at + size])
            elif kind == 83:
                stream.write(data[at + 16:at + 16 + struct.unpack_from("<Q", data, at + 8)[0]])
            at += size
        # perf never ends its frame: an empty last block does.
        stream.write(b"\1\0\0")


SHARE = ["remap --path /usr=/x", "normalize --for perf-5.10", "redact", "thin --every 3", "inject --aslr"]

for name in ["plain", "chains", "z"]:
    path = os.path.join(args.dir, name + ".data")
    if not os.path.exists(path):
        continue
    with open(path, "rb") as file:
        while file.read(1 << 24):
            pass
    in_place = os.path.join(args.dir, "in-place.data")
    subprocess.run(["cp", path, in_place], check=True)
    subprocess.run(["sync"], check=True)
    items = [
        ("copy", [perfx, "copy", path, "-o", out]),
        ("copy -@ 1", [perfx, "copy", "-@", "1", path, "-o", out]),
        ("inject --buildid-all", [perfx, "inject", "--buildid-all", path, "-o", out]),
        ("inject -b", [perfx, "inject", "-b", path, "-o", out]),
        ("inject -b -@ 1", [perfx, "inject", "-b", "-@", "1", path, "-o", out]),
        ("inject --buildid-all --in-place", [perfx, "inject", "--buildid-all", "--in-place", in_place]),
        ("inject -b --in-place", [perfx, "inject", "-b", "--in-place", in_place]),
        ("copy --to pipe \\| copy -", ([perfx, "copy", "--to", "pipe", path], [perfx, "copy", "-", "-o", out])),
        ("copy --to pipe \\| inject -b -", ([perfx, "copy", "--to", "pipe", path], [perfx, "inject", "-b", "-", "-o", out])),
    ]
    items += [("reindex", [perfx, "reindex", path, "-o", out]), ("reindex --in-place", [perfx, "reindex", "--in-place", in_place])] + compression(name, path)
    shows = ["info", "stats", "du", "doctor", "dump", "dump --format ndjson"]
    read = [(what, [perfx, *what.split(), "-q", path]) for what in shows]
    cut = lambda time: [perfx, "filter", "--time", time, path, "-o", out]
    read += [(what, [perfx, *what.split(), path, "-o", out]) for what in SHARE]
    indexed = os.path.join(args.dir, "indexed.data")
    if name != "z":
        subprocess.run(["ln", "-f", path, indexed], check=True)
        subprocess.run([perfx, "index", "-q", indexed], check=True)
        window = ["filter", "--time", "50%-51%"]
        read += [("index", [perfx, "index", "-q", indexed]), ("filter, indexed", [perfx, *window, indexed, "-o", out])]
        samples = samples_of(path)
        split = lambda parts: [perfx, "split", "-q", "-f", "--samples", str(samples // parts), "--max-parts", "10000", path, "-o", out + ".parts/"]
        read += [(f"split into {parts} parts", split(parts)) for parts in [100, 1000, 9000]]
    read += [("filter --time 50%-51%", cut("50%-51%")), ("filter --time 25%-75%", cut("25%-75%")), ("sort", [perfx, "sort", path, "-o", out])]
    items += read if name != "z" else []
    slow = [
        ("copy", perf_inject(path)),
        ("inject --buildid-all", perf_inject(path, "--buildid-all")),
        ("inject -b", perf_inject(path, "-b")),
    ]
    rows(name, [path], items, slow)
    made = [f"{name}.zst", f"{name}.z", f"{name}.z--solid", "in-place.data", "indexed.data", "indexed.data.pfi"]
    for path in [os.path.join(args.dir, name) for name in made]:
        if os.path.exists(path):
            os.unlink(path)
    shutil.rmtree(out + ".parts", ignore_errors=True)

several = [os.path.join(args.dir, name + ".data") for name in ["plain", "chains"]]
if all(map(os.path.exists, several)):
    rows("plain and chains", several, [("join", [perfx, "join", "--mix", *several, "-o", out])], [])

# pair.py makes these.
host, guest = os.path.join(args.dir, "pair/host.data"), os.path.join(args.dir, "pair/guest.data")
if os.path.exists(host):
    clock = "-14026330256359,2.5961349024293154"
    merge = [perfx, "merge", "-q", host, "-f", "-o", out]
    items = [
        ("merge", merge + [guest]),
        ("merge, offset given", merge + [f"{guest},31188,{clock}"]),
        ("merge -@ 1, offset given", merge + ["-@", "1", f"{guest},31188,{clock}"]),
        ("merge, two guests", merge + [f"{guest},31188,{clock}", f"{guest},1,{clock},vcpu=0:31314,vcpu=1:31315"]),
    ]
    rows("pair", [host, guest], items, [("merge, offset given", perf_inject(host, f"--guest-data={guest},31188,{clock}"))])

# CPU time of exports, beside other programs that make folded lines, and the least that tables take: a reading of the
# recording, and zstd of what is written.
chains = os.path.join(args.dir, "chains.data")
if os.path.exists(chains) and re.search(args.only, "export"):
    folder, script = out + ".tables", f"{args.perf} script -i {chains}"
    export = lambda kind: [perfx, "export", kind, "-q", chains, "-o", out]
    items = [(f"export {kind}", export(kind)) for kind in ["folded", "pprof", "firefox", "html"]]
    items.append(("export parquet", [perfx, "export", "parquet", "-q", chains, "--dir", folder]))
    subprocess.run(items[-1][1], check=False)
    zstd = f"find {folder} -name '*.parquet' -exec cat {{}} + | zstd -q -3 -c > {out}"
    items.append(("stats, and zstd -3 of the tables", ["sh", "-c", f"{perfx} stats -q {chains}; {zstd}"]))
    commands = items + of_base(items)
    best = {label: (1e9, 0) for label, _ in commands}
    for _ in range(args.runs):
        for label, command in commands:
            seconds, memory = cpu(command)
            best[label] = (min(best[label][0], seconds), max(best[label][1], memory))
    compare("exports of chains", {label: seconds for label, (seconds, _) in best.items()})
    best = {label: best[label] for label, _ in items}
    report = [args.perf, "report", "--no-children", "-g", "folded", "-s", "comm", "--stdio", "-i", chains]
    best["perf report -g folded"] = cpu(report)
    for collapse in ["stackcollapse-perf.pl", "inferno-collapse-perf"]:
        if shutil.which(collapse):
            best[f"perf script \\| {collapse}"] = (cpu(["sh", "-c", f"{script} | {collapse} > {out}"])[0], 0)
    folded = best["export folded"][0]
    show("\nexports of chains: CPU time\n")
    show("| work | CPU time | private memory | × folded |\n|---|---|---|---|")
    for label, (seconds, memory) in best.items():
        shown = f"{memory:.0f} MiB" if memory else ""
        show(f"| `{label}` | {seconds:.2f} s | {shown} | {seconds / folded:.2f} |")
    shutil.rmtree(folder)

# CPU time of what reads other files than the recording; jit.py is the program in jit.data.
on_one_thread = [("jit", ["-j"]), ("stacks", ["--convert-callchain"])]
on_one_thread = [(name, options, os.path.join(args.dir, name + ".data")) for name, options in on_one_thread]
on_one_thread = [item for item in on_one_thread if os.path.exists(item[2]) and re.search(args.only, item[0])]
if on_one_thread:
    show("\non one thread: CPU time\n")
    show("| work | CPU time | private memory | perf inject | perf ÷ perfx |\n|---|---|---|---|---|")
for name, options, path in on_one_thread:
    inject = [perfx, "inject", *options, "-@", "1", "-f", path, "-o", out]
    perfs, ours = perf_inject(path, *options), [cpu(inject) for _ in range(args.runs)]
    seconds, memory = min(ours)[0], max(memory for _, memory in ours)
    slow = cpu(perfs)
    beside = f"{slow[0]:.1f} s, {slow[1]:.0f} MiB | {slow[0] / seconds:.0f}"
    show(f"| `inject {options[0]}` of {name} | {seconds:.2f} s | {memory:.0f} MiB | {beside} |")

# Hardware traces: CPU time on one thread beside perf, time of one and two threads, and memory. For an export, perf's time
# is that of the samples from which other tools would make a profile.
traces = [os.path.join(args.dir, f"trace-{name}.data") for name in ["calls", "indirect", "cold", "cpus"]]
traces = [path for path in traces if os.path.exists(path) and re.search(args.only, "traces")]
if traces:
    program = os.path.join(args.dir, "../work/traced")
    show("\nhardware traces: CPU time\n")
    show("| trace | work | CPU time | speed | perf inject | perf ÷ perfx | time on 1 thread ÷ 2 threads | private memory |\n|" + "---|" * 8)
for path in traces:
    name, size = re.search(r"trace-(\w+)", path)[1], os.path.getsize(path) / 1e6
    sampled = ["--itrace=i500009il --strip", "--itrace=i100usle"]
    items = [(f"inject {letters}", [perfx, "inject", *letters.split(), path, "-f", "-o", out]) for letters in sampled]
    binary = os.path.join(program, name)
    if os.path.exists(binary):
        items.append(("export bolt", [perfx, "export", "bolt", "-q", path, "--binary", binary, "-o", out]))
    perfs = {f"inject {letters}": cpu(perf_inject(path, "-f", *letters.split()))[0] for letters in sampled}
    for label, command in items:
        used, one, two = [], [], []
        for _ in range(args.runs):
            before = time.monotonic()
            used.append(cpu(command + ["-@", "1"]))
            one.append(time.monotonic() - before)
            two.append(run(command + ["-@", "2"])[:2])
        seconds, memory = min(used)[0], max(memory for _, memory in used + two)
        perf = perfs.get(label, perfs["inject " + sampled[0]])
        ratio = min(one) / min(two)[0]
        show(f"| {name} | `{label}` | {seconds:.2f} s | {size / seconds:.0f} MB/s | {perf:.1f} s | {perf / seconds:.1f} | {ratio:.2f} | {memory:.0f} MiB |")

if args.write:
    with open(page) as file:
        front, rest = file.read().split(begin)
    with open(page, "w") as file:
        file.write("\n".join([front + begin, *tables, "", end + rest.split(end)[1]]))
print(*worse, sep="\n")
sys.exit(1 if worse else 0)
