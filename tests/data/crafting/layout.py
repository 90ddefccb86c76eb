"""Byte orders, old headers, attr sizes, where the parts of a file lie."""
import os

from . import convert, zstd
from . import features as F
from .common import START, add, group, samples, simple, stream
from .perfdata import BE, BOTH, CPU, Event, File, ID, IP, LE, PERIOD, READ, Records, TID, TIME, R_ID, attr_record, pipe


def wrap_in_frames(o, records, kind=81, cut=700):
    """Compresses the kernel's records the way perf does: one endless frame, cut without regard to records."""
    out, pending, started = [], b"", False

    def flush():
        nonlocal pending, started
        while pending:
            piece, pending = pending[:cut], pending[cut:]
            body = (b"" if started else zstd.frame_head()) + zstd.raw(piece)
            started = True
            if kind == 81:
                out.append(o.rec(81, body))
            else:
                padding = bytes(-len(body) % 8)
                out.append(o.rec(83, o.u64(len(body)) + body + padding))

    for r in records:
        if int.from_bytes(r[:4], "big" if o.big else "little") < 64:
            pending += r
        else:
            flush()
            out.append(r)
    flush()
    return out


def from_recordings(folder):
    group("Big endian, converted field by field from little endian recordings (BPF_PROG_INFO and BPF_BTF left out)")

    def load(name):
        with open(os.path.join(folder, name + ".data"), "rb") as f:
            return f.read()

    for name in ("plain.p510", "plain.p61", "plain.p73", "fp.p61", "group-read.p61", "several.p61", "single-read.p61",
                 "dwarf.p61", "user-regs.p61", "intr-regs.p61", "allbits.p61", "addresses.p61", "weight-old.p510",
                 "inherit-stat.p61", "switch.p61", "namespaces.p61", "bpf.p61", "cgroups.p61", "forkexec.p61",
                 "buildid-default.p61", "buildid-mmap.p61", "stat.p61", "stat-interval.p61",
                 "pipe.p61", "pipe.p73", "pipe-group.p61", "pipe-stat.p61", "pipe-named.p73"):
        add("be-" + name, convert.to_big(load(name)), f"recorded/{name}.data in big endian")
    for name in ("tracepoint.p61", "tracepoint.p73", "pipe-tracepoint.p61"):
        add("be-" + name, convert.to_big(load(name), convert.sys_enter),
            f"recorded/{name}.data in big endian, fields of the raw data and numbers in TRACING_DATA too")
    add("be-z.p61", convert.to_big(load("fp.p61"), wrap=lambda r: wrap_in_frames(BE, r)),
        "recorded/fp.p61.data in big endian, compressed (COMPRESSED, cut inside records)")
    add("be-z.p73", convert.to_big(load("fp.p73"), wrap=lambda r: wrap_in_frames(BE, r, 83)),
        "recorded/fp.p73.data in big endian, compressed (COMPRESSED2)")


def old_headers():
    group("PERFFILE, the format of perf 3.2 and before")
    for o in BOTH:
        for header in (104, 72):
            for size in (64, 72, 80, 96, 104):
                e = Event(o, size=size, bits=("inherit", "mmap", "comm", "task", "sample_id_all"), read_format=R_ID)
                r = Records(e)
                # no MMAP2 then
                data = (r.comm("burn", time=0, id=0) + r.mmap("/tmp/perfx-data/work/burn", 0x401000, 0x1000, 0x1000,
                                                             time=0, id=0)
                        + samples(e) + r.exit(time=START + 100000) + o.rec(68))
                types = o.u64(e.config) + b"cpu-clock".ljust(64, b"\0")
                f = File(o, [e], data, F.basic(o) if header == 104 else {}, magic=b"PERFFILE", header_size=header,
                         event_types=types)
                add(f"v1-{header}-attr{size}-{o.tag}", f.build(),
                    f"PERFFILE, header of {header} bytes, attr of {size}, "
                    f"{'big' if o.big else 'little'} endian, event types")
        e = Event(o, size=64)
        add(f"v1-pipe-{o.tag}", pipe(o, attr_record(e), stream(e), magic=b"PERFFILE"),
            f"PERFFILE as a pipe, {'big' if o.big else 'little'} endian")
    e = Event(LE, size=72)
    old = attr_record(e)
    named = LE.rec(65, LE.u64(0) + b"page-fau") + LE.rec(65, LE.u64(0) + b"cpu-clock".ljust(16, b"\0"))
    add("pipe-3-0", pipe(LE, old[:4] + LE.u16(0x7FA7) + old[6:], named, stream(e)),
        "a pipe of perf 3.0: names of events padded to 8, misc of the attr never set")
    add("v2-72-le", simple(LE, header_size=72, features=None), "PERFILE2 with the 72 byte header: features are not seen")
    add("v2-72-be", simple(BE, header_size=72, features=None), "the same, big endian")
    add("v1-attr128", simple(LE, magic=b"PERFFILE"), "PERFFILE with a modern attr size: its byte order cannot be guessed")


def sizes():
    group("Sizes of the attr, places of the parts")
    for size in range(64, 160, 8):
        for o in BOTH:
            if o.big and size not in (64, 104, 128, 144, 152):
                continue
            tail = bytes(range(1, size - 144 + 1)) if size > 144 else b""
            e = Event(o, size=size, tail=tail)
            add(f"attr-{size}-{o.tag}", File(o, [e], stream(e), F.basic(o, [e])).build(),
                f"attr.size {size}" + (", an unknown tail that is not zero" if tail else ""))
            if size in (64, 128, 144, 152) and not o.big:
                add(f"attr-{size}-pipe", pipe(o, attr_record(e), stream(e)), f"attr.size {size} in a pipe")
    e = Event(LE, size=112)
    add("attr-stride", File(LE, [e, Event(LE, "task-clock", (12,), size=112, config=1)], stream(e), F.basic(LE, [e]),
                            stride=144).build(),
        "two attrs of 112 bytes in entries of 144: attr.size and the header's attr_size disagree")
    e2 = [Event(LE, size=96), Event(LE, "task-clock", (12,), size=128, config=1)]
    add("attr-mixed-sizes", File(LE, e2, stream(e2[0]), F.basic(LE), header_attr_size=112).build(),
        "attr sizes 96 and 128 in one section, entries as long as their attr says (count from attr_size is wrong)")
    e = Event(LE, size=64, attr_size_field=0)
    add("attr-zero", File(LE, [e], stream(e), F.basic(LE)).build(), "attr.size 0, meaning 64")
    e = Event(LE, size=128, attr_size_field=0)
    add("attr-zero-128", File(LE, [e], stream(e), F.basic(LE)).build(), "attr.size 0, entry of 128 + 16")
    add("attr-zero-pipe", pipe(LE, attr_record(Event(LE, size=64, attr_size_field=0)), stream(Event(LE, size=64))),
        "attr.size 0 in a pipe")
    add("attrs-last", simple(LE, attrs_last=True), "ids and attrs after everything else")
    add("attrs-last-be", simple(BE, attrs_last=True), "the same, big endian")
    add("features-first", simple(LE, features_first=True), "feature payloads before the data, table after it")
    add("data-odd", simple(LE, data_at=1001), "data at an odd offset")
    add("data-4096", simple(LE, data_at=4096), "data at 4096, a hole of zeros before it")
    add("data-hole", simple(LE, data_at=2000, fill=b"\xa5"), "a hole of garbage before the data")
    add("event-types-garbage", simple(LE, event_types=(0xDEADBEEF, 0xFFFFFFFFFFFFFFFF)), "garbage in event_types")
    add("event-types", simple(LE, event_types=LE.u64(0) + b"cpu-clock".ljust(64, b"\0")), "event_types of one entry")
    add("no-ids", File(LE, [Event(LE, ids=())], stream(Event(LE, ids=())), F.basic(LE)).build(),
        "one event without any id")
    add("no-features", File(LE, [Event(LE)], stream(Event(LE))).build(), "no feature at all")
    add("no-features-be", File(BE, [Event(BE)], stream(Event(BE))).build(), "no feature, big endian: even the bitmap is empty")
    many = [Event(LE, f"event-{n}", (100 + 2 * n, 101 + 2 * n), config=n % 2, size=128) for n in range(60)]
    add("attrs-many", File(LE, many, stream(many[0]) + b"".join(
        e.sample(time=START + 200000 + n, id=e.ids[n % 2]) for n, e in enumerate(many)), F.basic(LE, many)).build(),
        "60 events of two ids")
    long = Event(LE, ids=range(1000, 2400))
    entries = [(i, n, n % 64, 100) for n, i in enumerate(long.ids)]

    def index(part):
        return LE.rec(69, LE.u64(len(part)) + b"".join(LE.u64(*p) for p in part))
    add("ids-many", File(LE, [long], index(entries[:1364]) + index(entries[1364:]) + stream(long) + long.sample(
        time=START + 300000, id=2399), F.basic(LE)).build(),
        "an event with 1400 ids; ID_INDEX in two records")
    add("sample-biggest", File(LE, [Event(LE, sample_type=IP | TID | TIME | 1 << 13, sample_stack_user=65000)],
                               Event(LE, sample_type=IP | TID | TIME | 1 << 13).sample(time=START, stack=bytes(65480)),
                               F.basic(LE)).build(), "a sample of 65528 bytes, the largest there can be")


def identities():
    group("Several attrs, ids, guests")

    def two(name, note, a, b, data=None, o=LE, **layout):
        r = Records(a)
        body = r.start() + (a.sample(time=START) + b.sample(time=START + 10) + a.sample(time=START + 20)
                            + b.sample(time=START + 30, ip=0x401190)) + r.exit(time=START + 50) if data is None else data
        add(name, File(o, [a, b], body, F.basic(o, [a, b]), **layout).build(), note)

    usual = IP | TID | TIME | ID | PERIOD
    for o in BOTH:
        two(f"two-{o.tag}", "two events, the same sample type", Event(o), Event(o, "task-clock", (12,), config=1), o=o)
    two("two-positions-agree", "different sample types, id at the same place in samples and trailers",
        Event(LE), Event(LE, "task-clock", (12,), config=1, sample_type=usual | 1 << 5 | 1 << 10))
    two("two-identifier", "different sample types, IDENTIFIER in both",
        Event(LE, sample_type=usual | 1 << 16), Event(LE, "task-clock", (12,), config=1, sample_type=IP | TIME | 1 << 16))
    two("two-positions-differ", "id at different places (ADDR in one): the event of a record is ambiguous",
        Event(LE), Event(LE, "task-clock", (12,), config=1, sample_type=usual | 1 << 3))
    two("two-trailers-differ", "id at the same place in samples, at different places in trailers (CPU in one)",
        Event(LE), Event(LE, "task-clock", (12,), config=1, sample_type=usual | CPU))
    two("two-no-id", "two events, no id in the samples",
        Event(LE, sample_type=IP | TID | TIME), Event(LE, "task-clock", (12,), config=1, sample_type=IP | TID | TIME))
    two("two-sample-id-all-mixed", "sample_id_all in the first only",
        Event(LE), Event(LE, "task-clock", (12,), config=1, bits=("inherit",)))
    two("two-same-id", "one id in both attrs", Event(LE), Event(LE, "task-clock", (11, 12), config=1))
    two("two-id-zero", "id 0 listed among the ids", Event(LE, ids=(11, 0)), Event(LE, "task-clock", (0, 12), config=1))
    a, b, c = (Event(LE, "crafted:tick", type=2, config=F.TICK_ID, period=1), Event(LE, "page-faults", (12,), config=2),
               Event(LE, "cycles:P", (13,), type=0))
    r = Records(a)
    body = r.start() + b"".join(e.sample(time=START + 10 * n) for n, e in enumerate([a] * 5 + [b] * 3 + [c] * 2))
    add("events-order", File(LE, [a, b, c], body + r.exit(time=START + 200),
                             {**F.basic(LE, [a, b, c]), F.TRACING_DATA: F.tracing_data(LE)}).build(),
        "five samples of a tracepoint, three of page faults, two of cycles")
    two("no-sample-id-all", "no trailers at all",
        Event(LE, bits=("inherit", "mmap", "comm", "task")), Event(LE, "task-clock", (12,), config=1, bits=("inherit",)))
    a, b = Event(LE), Event(LE, "task-clock", (12,), config=1)
    r = Records(a)
    two("unknown-id-sample", "a sample with an unknown id", a, b,
        r.start() + a.sample(time=START) + a.sample(time=START + 10, id=999) + b.sample(time=START + 20))
    two("unknown-id-trailer", "a COMM whose trailer has an unknown id", a, b,
        r.start() + r.comm("named", time=START, id=999) + b.sample(time=START + 20))

    for o in BOTH:
        a = Event(o, sample_type=usual | CPU | 1 << 16, ids=(11, 12), bits=("mmap", "comm", "task", "sample_id_all", "mmap2",
                                                                            "exclude_guest"))
        g = Event(o, "cpu-clock:G", (21, 22), sample_type=usual | CPU | 1 << 16, bits=("mmap", "sample_id_all", "exclude_host"))
        index = o.rec(69, o.u64(4) + b"".join(o.u64(*p) for p in (
            (11, 0, 0, -1), (12, 1, 1, -1), (21, 2, -1, 700), (22, 3, -1, 701))) + o.u64(0, 0, 0, 0, 555, 0, 555, 1))
        short = o.rec(69, o.u64(2) + o.u64(11, 0, 0, -1, 12, 1, 1, -1))
        add(f"id-index-short-{o.tag}", File(o, [a], short + stream(a), F.basic(o, [a])).build(), "ID_INDEX without the second array")
        r, gr = Records(a), Records(g)
        guest = dict(id=21, cpu=0)
        data = (index + r.start() + r.comm("qemu", pid=555, time=0, id=0)
                + b"".join(r.comm(f"CPU {n}/KVM", pid=555, tid=700 + n, time=0, id=0) for n in (0, 1))
                + gr.rec(1, o.u32(-1, 0) + o.u64(0xFFFFFFFF82000000, 0x1000000, 0xFFFFFFFF82000000)
                         + b"[guest.kernel.kallsyms.555]_text\0\0\0\0\0\0\0\0", 4, pid=0, time=0, **guest)
                + gr.comm("init", pid=1, time=0, **guest)
                + gr.mmap2("/usr/bin/init", 0x401000, 0x1000, 0x1000, pid=1, misc=5, time=0, **guest)
                + gr.mmap2("/usr/lib/libguest.so", 0x7F0000000000, 0x1000, pid=1, misc=5, time=0,
                           build_id=bytes(range(50, 70)), **guest)
                + F.build_id(o, "[guest.kernel.kallsyms]", bytes(range(1, 21)), pid=555, misc=4, kind=67)
                + F.build_id(o, "/usr/bin/init", bytes(range(30, 46)), pid=555, misc=5, kind=67)
                + o.rec(82) + a.sample(time=START, pid=555, tid=700, cpu=0)
                + g.sample(time=START + 10, id=21, pid=1, ip=0x401010, cpu=0, misc=5)
                + g.sample(time=START + 20, id=22, pid=0, ip=0xFFFFFFFF82000123, cpu=1, misc=4)
                + r.switch_cpu_wide(555, 700, out=True, time=START + 30, pid=555, tid=700, cpu=0)
                + gr.fork(pid=2, ppid=1, time=START + 35, id=21) + gr.exit(pid=2, ppid=1, time=START + 36, id=21)
                + a.sample(time=START + 40, id=12, cpu=1) + o.rec(68))
        features = F.basic(o, [a, g])
        features[F.BUILD_ID] = (
            F.build_id(o, "[kernel.kallsyms]", bytes(range(9, 29)), misc=1)
            + F.build_id(o, "[guest.kernel.kallsyms]", bytes(range(1, 21)), pid=555, misc=4)
            + F.build_id(o, "/usr/bin/init", bytes(range(30, 46)), pid=555, misc=5))
        add(f"guest-{o.tag}", File(o, [a, g], data, features).build(),
            "a host with a guest's records: cpumode 4 and 5, ID_INDEX with machine_pid and vcpu, the guest's BUILD_IDs in data and section")

    group("Order of events")
    e = Event(LE, sample_type=usual | CPU, ids=(11, 12))
    r = Records(e)

    def at(*times, cpu=0):
        return b"".join(e.sample(time=START + t, cpu=cpu, id=11 + cpu, ip=0x401100 + t) for t in times)
    head, end = r.start(), LE.rec(68)
    features = F.basic(LE, [e])
    for name, note, data in (
            ("order-rounds", "two CPUs, rounds as perf writes them",
             head + at(10, 30, 50) + at(5, 25, 45, cpu=1) + end + at(60, 70) + at(40, 65, cpu=1) + end + at(80, cpu=1) + end),
            ("order-none", "no rounds: sorted at the end", head + at(50, 60) + at(10, 20, cpu=1) + at(30, 40)),
            ("order-late", "an event older than what the rounds have let go",
             head + at(10, 20) + end + at(30, 40) + end + at(50) + end + at(1, cpu=1) + at(60) + end),
            ("order-equal", "equal times: file order", head + at(10, 10) + at(10, 10, cpu=1) + end),
            ("order-no-time", "times 0 and ~0 are not sorted",
             head + at(50) + e.sample(time=0) + e.sample(time=(1 << 64) - 1) + at(10, cpu=1) + end),
            ("order-backward", "newest first, as write_backward buffers give it", head + at(50, 40, 30, 20, 10) + end)):
        add(name, File(LE, [e], data, features).build(), note)
    e = Event(LE, sample_type=IP | TID | ID)
    add("order-without-time", File(LE, [e], stream(e), F.basic(LE, [e])).build(), "no TIME in the sample type")


def directories():
    group("Directories")
    e = Event(LE, sample_type=IP | TID | TIME | ID | PERIOD | CPU, ids=(11, 12))
    r = Records(e)
    start = r.start() + LE.rec(82)
    part = {n: b"".join(e.sample(time=START + t, cpu=n, id=11 + n) for t in range(n, 100, 10)) for n in (0, 1)}

    def folder(version, **files):
        features = {**F.basic(LE, [e])}
        if version is not None:
            features[F.DIR_FORMAT] = LE.u64(version)
        files = {k.replace("_dot_", "."): v for k, v in files.items()}
        compressed = files.pop("compressed", False)
        if compressed:
            features[F.COMPRESSED] = F.compressed(LE)
        return {"data": File(LE, [e], start, features).build(), **files}

    add("dir", folder(1, data_dot_0=part[0], data_dot_1=part[1], data_dot_2=b""), "version 1, two streams and an empty one")
    add("dir-gaps", folder(1, data_dot_3=part[0], data_dot_12=part[1], notes=b"not a stream"),
        "version 1, streams 3 and 12, another file beside them")
    add("dir-alone", folder(1), "version 1 without any stream")
    add("dir-version-2", folder(2, data_dot_0=part[0]), "version 2, which is unknown")
    add("dir-version-0", folder(0, data_dot_0=part[0]), "version 0: data.0 is not a stream")
    add("dir-kcore", {**folder(None), "kcore_dir/kallsyms": b"ffffffff81000000 T _text\n", "kcore_dir/modules": b"",
                      "kcore_dir/kcore": b"\x7fELF not really"}, "no DIR_FORMAT, a kcore_dir")
    add("dir-guest-kcore", {**folder(0), "kcore_dir__555/kallsyms": b"ffffffff82000000 T _text\n",
                            "kcore_dir__555/modules": b""}, "a kcore_dir of guest 555")

    def squeeze(b):
        return b"".join(wrap_in_frames(LE, [b], cut=300))
    add("dir-z", folder(1, compressed=True, data_dot_0=squeeze(part[0]), data_dot_1=squeeze(part[1])),
        "version 1, each stream its own zstd stream, cut inside records")
    add("dir-cut", folder(1, data_dot_0=part[0][:-5], data_dot_1=part[1]), "version 1, a stream cut inside a record")
    add("dir-format-in-file", File(LE, [e], start + part[0], {**F.basic(LE, [e]), F.DIR_FORMAT: LE.u64(1)}).build(),
        "DIR_FORMAT in a file of its own")
    add("dir-no-data", {"data.0": part[0]}, "a directory without `data`")
