"""Every row of the validation table (reference, section 9) as a small file."""
from . import features as F, zstd
from .common import START, add, group, samples, stream
from .perfdata import (BRANCH_STACK, CALLCHAIN, CPU, Event, File, ID, IP, LE, MINUS1, PERIOD, RAW, READ, R_ENABLED, R_GROUP, R_ID,
                       REGS_USER, Records, STACK_USER, AUX, TID, TIME, attr_record, feature_record, pad8, pipe)

USUAL = IP | TID | TIME | ID | PERIOD


def validation():
    group("What is wrong on purpose: the header")
    o = LE
    e = Event(o)
    r = Records(e)
    basic = F.basic(o, [e])

    def val(name, note, content):
        add("val-" + name, content, note)

    def whole(**layout):
        return File(o, [e], stream(e), layout.pop("features", basic), **layout).build()

    good = whole()
    table = good.index(stream(e)) + len(stream(e))  # where the feature table begins
    count = len(basic)
    val("empty", "an empty file", b"")
    val("bad-magic", "another magic", b"PERFILE3" + good[8:])
    val("text", "not perf.data at all", b"#!/bin/sh\necho this is not a recording\n" * 4)
    val("header-only-24", "24 bytes, size field 24", o.magic + o.u64(24, 144))
    for size in (0, 24, 96, 105, 112):
        val(f"header-size-{size}", f"the header's size field says {size}", good[:8] + o.u64(size) + good[16:])
    val("header-overlaps-attrs", "attrs at offset 40, inside the header", whole(attrs_offset_size=lambda a, s: (40, s)))
    val("header-overlaps-data", "data at offset 16, inside the header", whole(data_offset_size=lambda a, s: (16, s)))
    val("attrs-overlap-data", "data begins inside the attrs", whole(data_offset_size=lambda a, s: (a - 72, s)))
    val("attrs-outside", "attrs beyond the end of the file", whole(attrs_offset_size=lambda a, s: (1 << 30, s)))
    val("attrs-size-odd", "attrs.size is not a multiple of attr_size", whole(attrs_offset_size=lambda a, s: (a, s + 7)))
    val("attrs-none", "no attr at all", whole(attrs_offset_size=lambda a, s: (a, 0)))
    val("attrs-many", "attrs.size for 70000 attrs", whole(attrs_offset_size=lambda a, s: (a, 144 * 70000)))
    val("attr-size-0", "the header's attr_size is 0", whole(header_attr_size=0))
    val("attr-size-1", "the header's attr_size is 1", whole(header_attr_size=1))
    val("attr-size-huge", "the header's attr_size is 2^63", whole(header_attr_size=1 << 63))
    for size in (48, 63, 65, 4096, 0xFFFFFFFF):
        x = Event(o, attr_size_field=size)
        val(f"attr-field-{size}", f"attr.size says {size}, the entry is 128 + 16", File(o, [x], stream(x), basic).build())
    big = Event(o, size=4096)
    val("attr-4096", "an attr of 4096 bytes, the rest zeros", File(o, [big], stream(big), basic).build())
    val("ids-unaligned", "ids.size 12", whole(ids=lambda n, a, s: (a, 12)))
    val("ids-outside", "ids beyond the end of the file", whole(ids=lambda n, a, s: (1 << 40, 16)))
    val("ids-huge", "ids.size for 2^24 + 1 ids", whole(ids=lambda n, a, s: (a, 8 * ((1 << 24) + 1))))
    val("ids-overflow", "ids.offset + ids.size overflows", whole(ids=lambda n, a, s: (MINUS1 - 7, 16)))
    x = Event(o, bits=("mmap", "comm", "task", "sample_id_all", "mmap2", 40, 63))
    val("attr-reserved-bits", "reserved bits of the attr", File(o, [x], stream(x), F.basic(o, [x])).build())
    x = Event(o, sample_type=USUAL | 1 << 40)
    val("attr-sample-type", "an unknown bit of sample_type", File(o, [x], stream(x), F.basic(o, [x])).build())
    x = Event(o, read_format=R_ID | 1 << 20)
    val("attr-read-format", "an unknown bit of read_format", File(o, [x], stream(x), F.basic(o, [x])).build())
    val("data-size-0", "data.size 0: perf was killed", whole(data_offset_size=lambda a, s: (a, 0)))
    val("data-size-odd", "data.size one less than it is", whole(data_offset_size=lambda a, s: (a, s - 1)))
    val("data-beyond", "data.size larger than the file", whole(data_offset_size=lambda a, s: (a, s + (1 << 30))))
    val("data-overflow", "data.offset + data.size overflows", whole(data_offset_size=lambda a, s: (a, MINUS1 - 8)))
    val("data-offset-0", "data.offset 0", whole(data_offset_size=lambda a, s: (0, s)))
    val("cut-in-data", "cut inside the data", good[:table - 37])
    val("cut-after-data", "cut right after the data", good[:table])
    val("cut-in-table", "cut inside the feature table", good[:table + 24])
    val("cut-after-table", "cut after the feature table", good[:table + 16 * count])
    val("cut-in-feature", "cut inside a feature", good[:-30])
    val("spare-slots", "two entries more in the feature table than bits, neither of them empty", whole(
        unused_slots=2, table=lambda t: t[:-2] + [(1, 2), (3, 4)]))
    val("tail", "1000 bytes after everything", good + b"\xee" * 1000)

    group("What is wrong on purpose: features")

    def table_change(bit, place):
        position = sorted(basic).index(bit)
        return lambda t: [place(*p) if n == position else p for n, p in enumerate(t)]
    val("feature-beyond-eof", "CPUDESC beyond the end of the file", whole(table=table_change(F.CPUDESC, lambda a, s: (1 << 40, s))))
    val("feature-past-eof", "CMDLINE reaches past the end of the file", whole(table=table_change(F.CMDLINE, lambda a, s: (a, 1 << 20))))
    val("feature-overflow", "offset + size of VERSION overflows", whole(table=table_change(F.VERSION, lambda a, s: (MINUS1, 64))))
    val("feature-cpudesc-none", "CPUDESC with an entry of 0, 0, as perf 3.14 wrote it on ARM", whole(
        features={**basic, F.CPUDESC: b""}, table=table_change(F.CPUDESC, lambda a, s: (0, 0))))
    for name, bit, payload in (
            ("cmdline-text", F.CMDLINE, o.string("hiperf record -a", False)), ("cache-version", F.CACHE, o.u32(2, 1)), ("cache-count", F.CACHE, o.u32(1, 1 << 30)),
            ("mmap-len", F.COMPRESSED, F.compressed(o, 100)), ("dir-format", F.DIR_FORMAT, o.u64(1)),
            ("cmdline-count", F.CMDLINE, o.u32(1 << 30)), ("cmdline-string", F.CMDLINE, o.u32(1, 1 << 31) + b"perf"),
            ("hostname-length", F.HOSTNAME, o.u32(5000) + b"short"), ("hostname-unterminated", F.HOSTNAME, o.u32(4) + b"host"),
            ("hostname-short", F.HOSTNAME, b"\1\0"), ("nrcpus-wild", F.NRCPUS, o.u32(1 << 31, 1 << 31)),
            ("nrcpus-order", F.NRCPUS, o.u32(1, 2)), ("nrcpus-short", F.NRCPUS, o.u32(2)),
            ("event-desc-count", F.EVENT_DESC, o.u32(1 << 30, 128)), ("event-desc-size", F.EVENT_DESC, o.u32(1, 1 << 30)),
            ("event-desc-ids", F.EVENT_DESC, o.u32(1, 128) + e.attr() + o.u32(1 << 30) + o.string("cpu-clock")),
            ("event-desc-zero", F.EVENT_DESC, o.u32(0, 0)),
            ("cpu-topology", F.CPU_TOPOLOGY, o.u32(1 << 30)), ("numa-count", F.NUMA_TOPOLOGY, o.u32(1 << 30)),
            ("group-desc", F.GROUP_DESC, F.group_desc(o, [("{anon_group}", 7, 9)])),
            ("mem-topology", F.MEM_TOPOLOGY, o.u64(1, 4096, 1 << 40)),
            ("mem-topology-bits", F.MEM_TOPOLOGY, o.u64(1, 4096, 1, 0, 1 << 60, 1 << 60, 1)),
            ("build-id-size", F.BUILD_ID, o.rec(0, o.u32(-1) + bytes(24) + b"name".ljust(64, b"\0"), size=9)),
            ("build-id-size-0", F.BUILD_ID, bytes(64)), ("build-id-cut", F.BUILD_ID, F.build_id(o, "/bin/true", bytes(20))[:-40]),
            ("build-id-long", F.BUILD_ID, o.rec(0, o.u32(-1) + bytes(range(20)) + bytes([200, 0, 0, 0]) + b"/bin/x".ljust(64, b"\0"), 1 << 15 | 2)),
            ("bpf-count", F.BPF_PROG_INFO, o.u32(1 << 30)), ("bpf-length", F.BPF_PROG_INFO, o.u32(1, 1 << 30, 1 << 30) + o.u64(0)),
            ("btf-length", F.BPF_BTF, o.u32(1, 7, 1 << 31)), ("pmu-caps", F.PMU_CAPS, o.u32(1 << 30, 1 << 30)),
            ("cpu-domain", F.CPU_DOMAIN_INFO, o.u32(17, 1 << 30, 5000, 1 << 30)),
            ("tracing-data", F.TRACING_DATA, b"not tracing data"), ("sample-time-short", F.SAMPLE_TIME, o.u32(5)),
            ("auxtrace", F.AUXTRACE, o.u64(1 << 60))):
        val("feature-" + name, f"{F.NAMES[bit]} with invalid contents, followed by other features",
            whole(features={**basic, bit: payload, F.E_MACHINE: o.u32(62, 0)}))
    val("no-nrcpus", "NRCPUS missing", whole(features={k: v for k, v in basic.items() if k != F.NRCPUS}))
    val("unknown-feature", "bit 61, which is unknown", whole(features={**basic, 61: b"future"}))
    x = Event(o, "crafted:tick", type=2, config=F.TICK_ID, sample_type=USUAL | RAW)
    val("tracepoint-without-data", "a tracepoint without TRACING_DATA", File(o, [x], stream(x), F.basic(o, [x])).build())

    group("What is wrong on purpose: records")

    def rec(name, note, record, after=True, events=None):
        """`record` after two samples, with two more behind it."""
        events = events or [e]
        body = r.start() + samples(e, 2) + record + (samples(e, 2, START + 80000) if after else b"") + o.rec(68)
        val(name, note, File(o, events, body, F.basic(o, events)).build())

    t = dict(time=START + 70000)
    for size in (0, 4, 7):
        rec(f"size-{size}", f"a record of size {size}", o.rec(3, bytes(24), size=size))
    rec("size-unaligned", "a COMM of 53 bytes, the next one directly after it", o.rec(3, o.u32(100, 100) + b"named\0" + bytes(7) + e.trailer(**t)))
    rec("size-beyond", "a record larger than the rest of the data", o.rec(3, bytes(24), size=60000))
    rec("size-max", "a record of 65535 bytes", o.rec(87, bytes(65527)))
    for kind in (0, 23, 63, 87, 4000):
        rec(f"kind-{kind}", f"a record of kind {kind}", o.rec(kind, bytes(24)))
    minimum = {1: 41, 2: 24, 3: 17, 4: 32, 5: 32, 6: 32, 7: 32, 8: 24, 10: 73, 11: 32, 12: 16, 13: 16, 15: 16, 16: 24, 17: 25, 18: 24, 19: 17,
               20: 24, 21: 16, 22: 16, 64: 72, 65: 80, 66: 12, 67: 36, 69: 16, 70: 16, 71: 48, 72: 49, 73: 16, 74: 16, 75: 16, 76: 48,
               77: 24, 78: 24, 79: 32, 80: 16, 83: 16, 84: 528, 85: 24, 86: 24}
    for kind, size in minimum.items():
        rec(f"small-{kind}", f"kind {kind}, smaller than its smallest size {size}", o.rec(kind, bytes(max(0, (size - 1) // 8 * 8 - 8))))
    full = b"x" * 16
    ids = (o.u32(100, 100) + o.u64(0x401000, 4096, 0))
    bare = Event(o, bits=("mmap", "comm", "task", "mmap2"))
    for name, kind, body in (
            ("mmap", 1, ids + full), ("mmap2", 10, ids + o.u32(8, 1) + o.u64(1, 1) + o.u32(5, 2) + full), ("comm", 3, o.u32(100, 100) + full),
            ("cgroup", 19, o.u64(5) + full), ("ksymbol", 17, o.u64(0xFFFFFFFFC0000000) + o.u32(64) + o.u16(1, 0) + full),
            ("buildid", 67, o.u32(-1) + bytes(20) + bytes(4) + b"x" * 20)):
        body_bytes = Records(bare).start() + samples(bare, 2) + o.rec(kind, body, 2) + samples(bare, 2, START + 80000) + o.rec(68)
        val(f"unterminated-{name}", f"{name.upper()} whose string has no NUL", File(o, [bare], body_bytes, F.basic(o, [bare])).build())
    rec("mmap2-build-id-size", "MMAP2 with a build-id of 200 bytes", o.rec(10, ids + bytes([200, 0, 0, 0]) + bytes(20) + o.u32(5, 2)
        + b"/bin/x\0\0" + e.trailer(**t), 1 << 14 | 2))
    rec("mmap2-build-id-0", "MMAP2 with a build-id of 0 bytes", r.mmap2("/bin/x", 0x5000, 0x1000, build_id=b"", **t))
    rec("namespaces-count", "NAMESPACES with nr 1000", r.namespaces([(1, 2)], nr=1000, **t))
    rec("namespaces-huge", "NAMESPACES with nr 2^60", r.namespaces([(1, 2)], nr=1 << 60, **t))
    rec("cpu-map-count", "CPU_MAP with nr 1000", o.rec(74, pad8(o.u16(0, 1000, 1))))
    rec("cpu-map-mask", "CPU_MAP mask with nr 1000", o.rec(74, pad8(o.u16(1, 1000, 8) + bytes(4) + o.u64(1))))
    rec("cpu-map-mask-size", "CPU_MAP mask of 3 byte words", o.rec(74, pad8(o.u16(1, 1, 3) + o.u64(1))))
    rec("cpu-map-kind", "CPU_MAP of kind 9", o.rec(74, pad8(o.u16(9, 1, 1))))
    rec("cpu-map-range", "CPU_MAP range from 9 to 3", o.rec(74, pad8(o.u16(2) + bytes(2) + o.u16(9, 3))))
    rec("stat-config-count", "STAT_CONFIG with nr 1000", o.rec(75, o.u64(1000, 0, 1)))
    rec("thread-map-count", "THREAD_MAP with nr 2^40", o.rec(73, o.u64(1 << 40, 100) + b"burn".ljust(16, b"\0")))
    rec("text-poke-length", "TEXT_POKE whose lengths do not fit", r.text_poke(0xFFFFFFFF81000100, bytes(5), bytes(5), lengths=(5000, 5000), **t))
    rec("deferred-count", "CALLCHAIN_DEFERRED with nr 2^40", r.deferred(5, [0x401150], nr=1 << 40, **t))
    rec("id-index-unknown", "ID_INDEX naming an unknown id", o.rec(69, o.u64(1, 999, 0, 0, 100)))
    rec("id-index-count", "ID_INDEX with nr 1000", o.rec(69, o.u64(1000, 11, 0, 0, 100)))
    rec("id-index-huge", "ID_INDEX with nr 2^60", o.rec(69, o.u64(1 << 60, 11, 0, 0, 100)))
    rec("event-update-unknown", "EVENT_UPDATE for an unknown id", o.rec(78, o.u64(2, 999) + b"name\0\0\0\0"))
    rec("event-update-kind", "EVENT_UPDATE of kind 9", o.rec(78, o.u64(9, 11) + b"name\0\0\0\0"))
    rec("auxtrace-without-info", "AUXTRACE without AUXTRACE_INFO", o.rec(71, o.u64(16, 0, 1) + o.u32(0, -1, 0, 0)) + bytes(16))
    rec("attr-record-in-file", "HEADER_ATTR in a file", attr_record(Event(o, "task-clock", (77,), config=1)))
    rec("feature-record-in-file", "HEADER_FEATURE in a file", feature_record(o, F.HOSTNAME, o.string("other-host") + bytes(4)))
    rec("tracing-data-in-file", "HEADER_TRACING_DATA in a file", o.rec(66, o.u32(16, 0)) + bytes(16))
    rec("tracing-data-beyond", "HEADER_TRACING_DATA longer than the data", o.rec(66, o.u32(1 << 30, 0)))
    rec("trailer-missing", "an EXIT without its trailer", o.rec(4, o.u32(100, 1, 100, 1) + o.u64(START)))
    rec("trailer-none", "a SWITCH of 8 bytes that should have a trailer", o.rec(14))
    rec("trailer-short", "a COMM whose trailer lacks its first word", o.rec(3, e.trailer(**t)[8:]))
    rec("comm-trailer-only", "a COMM as long as its trailer", o.rec(3, e.trailer(**t)))

    group("What is wrong on purpose: samples")
    fixed = len(e.sample()) - 8
    rec("sample-empty", "a sample of 8 bytes", o.rec(9))
    rec("sample-short", "a sample shorter than its fixed part", e.sample(time=START + 70000, cut=fixed - 8))
    rec("sample-long", "a sample with 16 bytes more than it needs", o.rec(9, e.sample(time=START + 70000)[8:] + bytes(16)))
    x = Event(o, sample_type=USUAL | CPU)
    val("sample-cpu", "a sample on CPU 5000", File(o, [x], Records(x).start() + samples(x, 2) + x.sample(time=START + 9000, cpu=5000)
                                                   + o.rec(68), F.basic(o, [x])).build())

    def broken(name, note, sample_type, *bodies, **more):
        x = Event(o, sample_type=USUAL | sample_type, **more)
        fixed_part = Event(o).sample(time=START + 5000)[8:]
        data = (Records(x).start() + x.sample(time=START) + b"".join(o.rec(9, fixed_part + b) for b in bodies)
                + x.sample(time=START + 9000) + o.rec(68))
        val("sample-" + name, note, File(o, [x], data, F.basic(o, [x])).build())
    broken("chain", "call chains of 1000 and of 2^61 entries in a small sample", CALLCHAIN, o.u64(1000, 1, 2), o.u64(1 << 61, 1, 2))
    broken("raw", "raw data longer than the sample", RAW, o.u32(1000) + bytes(12), o.u32(0xFFFFFFFF) + bytes(12))
    broken("raw-odd", "raw data of 3 bytes, not a multiple of 8 with its size", RAW, o.u32(3) + bytes(4))
    broken("branch", "branch stacks of 1000 and of 2^60 entries", BRANCH_STACK, o.u64(1000, 1, 2, 3), o.u64(1 << 60, 1, 2, 3))
    broken("regs", "registers that are not there", REGS_USER, o.u64(2, 1), sample_regs_user=0xFFF)
    broken("regs-abi", "registers of abi 77", REGS_USER, o.u64(77, 1, 2, 3), sample_regs_user=7)
    broken("stack", "a stack longer than the sample", STACK_USER, o.u64(1 << 16, 1, 2), o.u64(MINUS1 - 7, 1), sample_stack_user=64)
    broken("stack-dyn", "dyn_size larger than size", STACK_USER, o.u64(8, 1, 9999), sample_stack_user=64)
    broken("aux", "AUX data longer than the sample", AUX, o.u64(1 << 20, 1), aux_sample_size=64)
    x = dict(read_format=R_ID | R_GROUP)
    broken("read-group", "a group of 2^60 values", READ, o.u64(1 << 60, 1, 11), o.u64(1000, 1, 11), **x)
    broken("read", "values that are not there", READ, b"", read_format=R_ID | R_ENABLED)

    group("What is wrong on purpose: pipes")
    feats = [feature_record(o, k, v) for k, v in sorted(basic.items())] + [feature_record(o, 35)]
    usual = [attr_record(e), *feats, stream(e)]
    whole_pipe = pipe(o, *usual)
    val("pipe-empty", "a pipe with nothing after its header", pipe(o))
    val("pipe-no-attr", "a pipe without an attr", pipe(o, *feats, stream(e)))
    val("pipe-index-first", "ID_INDEX before the attr", pipe(o, o.rec(69, o.u64(1, 11, 0, 0, 100)), *usual))
    val("pipe-update-first", "EVENT_UPDATE before the attr", pipe(o, o.rec(78, o.u64(2, 11) + b"name\0\0\0\0"), *usual))
    val("pipe-cut-header", "cut inside a record's header", whole_pipe[:-5])
    val("pipe-cut-body", "cut inside a record", whole_pipe[:-12])
    val("pipe-size-4", "a record of size 4", pipe(o, *usual[:-1], o.rec(68, size=4), stream(e)))
    val("pipe-attr-odd", "an attr record whose ids are not a multiple of 8", pipe(o, o.rec(64, e.attr() + bytes(12)), *feats, stream(e)))
    val("pipe-attr-size", "an attr record smaller than its attr.size", pipe(o, o.rec(64, e.attr()[:100] + bytes(4)), *feats, stream(e)))
    val("pipe-attr-late", "a second attr after the samples", pipe(o, *usual, attr_record(Event(o, "task-clock", (12,), config=1)), samples(
        Event(o, ids=(12,)), 2, START + 500000)))
    val("pipe-feature-short", "HOSTNAME shorter than it says", pipe(o, attr_record(e), feature_record(o, F.HOSTNAME, o.u32(64) + b"host"), stream(e)))
    val("pipe-feature-empty", "HOSTNAME without content", pipe(o, attr_record(e), feature_record(o, F.HOSTNAME), stream(e)))
    val("pipe-tracing-cut", "cut inside the tracing data", pipe(o, attr_record(e), *feats, o.rec(66, o.u32(1000, 0)) + bytes(300)))
    val("pipe-tracing-odd", "tracing data of 13 bytes, not a multiple of 8", pipe(o, attr_record(e), *feats, o.rec(66, o.u32(13, 0)) + bytes(13), stream(e)))
    val("pipe-aux-cut", "cut inside an AUX payload", pipe(o, attr_record(e), *feats, o.rec(70, o.u32(2, 0) + o.u64(9, 0, 1, 0, 0, 0)),
        o.rec(71, o.u64(1000, 0, 1) + o.u32(0, -1, 0, 0)) + bytes(300)))
    val("pipe-z-no-feature", "COMPRESSED in a pipe without feature 27", pipe(o, attr_record(e), *feats, o.rec(81, zstd.frame(stream(e)))))
    val("pipe-swapped", "a little endian pipe under a big endian magic", b"2ELIFREP" + whole_pipe[8:])
    val("swapped", "a little endian file under a big endian magic", b"2ELIFREP" + good[8:])
