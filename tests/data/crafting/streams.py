"""Compressed streams and AUX area data."""
from . import features as F, zstd
from .common import START, add, group, samples, stream
from .layout import wrap_in_frames
from .perfdata import AUX, BOTH, CPU, Event, File, ID, IP, LE, PERIOD, Records, TID, TIME, attr_record, feature_record, pad8, pipe


def c81(o, data):
    return o.rec(81, data)


def c83(o, data, data_size=None):
    return o.rec(83, o.u64(len(data) if data_size is None else data_size) + pad8(data))


def compression():
    group("Compression (frames of RAW and RLE blocks, made by hand)")
    for o in BOTH:
        e = Event(o)
        r = Records(e)
        head, end = r.start(), o.rec(68)
        events = [e.sample(time=START + 10 * n, ip=0x401100 + n) for n in range(12)] + [r.exit(time=START + 500)]
        body = b"".join(events)
        usual = {**F.basic(o, [e]), F.COMPRESSED: F.compressed(o)}

        def put(name, note, data, features=None, always=False):
            if o.big and name not in ("81", "83", "mixed", "straddle", "datasize-zero"):
                return
            add(f"z-{name}-{o.tag}", File(o, [e], head + data + end, usual if features is None else features).build(), note)

        def pieces(*cuts):
            """body cut at the given places"""
            cuts = [0, *cuts, len(body)]
            return [body[a:b] for a, b in zip(cuts, cuts[1:])]

        raw, first = zstd.raw, zstd.frame_head()
        put("81", "COMPRESSED, one frame in one record", c81(o, zstd.frame(body)))
        put("83", "COMPRESSED2, one frame in one record", c83(o, zstd.frame(body)))
        a, b, c = pieces(101, 333)
        put("endless", "COMPRESSED, a frame that never ends", c81(o, first + raw(a)) + c81(o, raw(b)) + c81(o, raw(c)))
        put("mixed", "COMPRESSED and COMPRESSED2 in one stream, one frame", c81(o, first + raw(a)) + c83(o, raw(b)) + c81(o, raw(c)))
        put("straddle", "a record spread over three compressed ones, plain records between them",
            c81(o, first + raw(body[:60])) + end + c81(o, raw(body[60:70])) + o.rec(82) + c81(o, raw(body[70:80])) + end
            + c81(o, raw(body[80:])))
        put("straddle-bytes", "every compressed record gives seven bytes", c81(o, first + raw(body[:7])) + b"".join(
            c81(o, raw(body[n:n + 7])) for n in range(7, len(body), 7)))
        put("header-cut", "a record's header spread over two compressed ones", c81(o, first + raw(body[:3])) + c81(o, raw(body[3:])))
        put("frame-each", "one frame for each record of the stream", b"".join(c81(o, zstd.frame(x)) for x in events))
        put("frames", "several frames in one record", c81(o, zstd.frame(a) + zstd.frame(b) + zstd.frame(c)))
        put("frame-straddle", "a frame that ends inside a compressed record, the next one begins there",
            c81(o, first + raw(a[:50])) + c81(o, raw(a[50:], last=True) + first + raw(b)) + c81(o, raw(c)))
        put("skippable", "a skippable frame before the real one", c81(o, zstd.skippable(b"fill") + zstd.frame(body)))
        put("skippable-only", "a record that holds a skippable frame only: no output",
            c81(o, zstd.frame(a)) + c81(o, zstd.skippable(b"nothing else")) + c81(o, zstd.frame(b + c)))
        put("single-segment", "a single segment frame with its content size", b"".join(
            c81(o, zstd.frame_head(content_size=len(x)) + raw(x, last=True)) for x in events))
        put("rounds-inside", "FINISHED_ROUND inside the stream", c81(o, zstd.frame(a + b"")) + c81(o, zstd.frame(b + c + end)))
        put("datasize-zero", "COMPRESSED2 with data_size 0, as --aio of 6.16 to 7.1 left it",
            c83(o, zstd.frame(a), 0) + c83(o, zstd.frame(b + c), 0))
        put("datasize-big", "COMPRESSED2 with data_size larger than the record", c83(o, zstd.frame(body), 60000))
        put("datasize-small", "COMPRESSED2 with data_size too small", c83(o, zstd.frame(body), 40))
        put("datasize-wild", "COMPRESSED2 with data_size 2^63", c83(o, zstd.frame(body), 1 << 63))
        put("padded-81", "COMPRESSED padded with zeros to a multiple of 8", o.rec(81, pad8(zstd.frame(body) + b"\0")))
        put("empty-record", "COMPRESSED without any byte", c81(o, zstd.frame(a)) + c81(o, b"") + c81(o, zstd.frame(b + c)))
        put("no-output", "a compressed record that gives no byte", c81(o, first + raw(a)) + c81(o, raw(b"")) + c81(o, raw(b + c)))
        put("head-only", "the frame's header alone in a record", c81(o, first) + c81(o, raw(body)))
        put("cut-block", "a block cut by the record's end", c81(o, (first + raw(body))[:60]) + c81(o, (first + raw(body))[60:]))
        put("unfinished", "the stream ends inside a record", c81(o, first + raw(body[:-20])))
        put("corrupt-middle", "a corrupt frame between good ones", c81(o, zstd.frame(events[0])) + c81(
            o, b"\x28\xb5\x2f\xfd\xff\xff\xff\xff\xff\xff\xff\xff") + c81(o, zstd.frame(events[1])))
        put("corrupt-block", "a block of the reserved type in the middle of a frame", c81(o, first + raw(a)) + c81(
            o, zstd.block(3, 10, bytes(10))) + c81(o, raw(b + c)))
        put("corrupt-magic", "no zstd at all", c81(o, b"this is not a frame of zstd, nothing like it"))
        put("restart", "a new frame although the one before did not end", c81(o, first + raw(a)) + c81(o, first + raw(b + c)))
        put("nested", "a compressed record inside the stream", c81(o, zstd.frame(events[0] + c81(o, zstd.frame(events[1])))))
        hostname = feature_record(o, F.HOSTNAME, o.string("other-host"))
        put("feature-inside", "HEADER_FEATURE inside the stream", c81(o, zstd.frame(events[0] + hostname + events[1])))
        put("garbage-inside", "the stream decodes to what are no records", c81(o, zstd.frame(b"\xff" * 64)))
        put("zero-size-inside", "a record of size 0 in the stream", c81(o, zstd.frame(events[0] + bytes(16) + events[1])))
        put("bomb", "RLE blocks: 64 KB that become 2 GB of zeros", c81(o, zstd.frame_head(27) + zstd.rle(0, 1 << 17) * 16000))
        put("bomb-records", "RLE blocks that begin with a real record: zeros follow, 256 MB",
            c81(o, zstd.frame_head(27) + raw(events[0]) + zstd.rle(0, 1 << 17) * 2048))
        put("window-huge", "a frame that asks for a window of 2 TB", c81(o, zstd.frame_head(41) + raw(body, last=True)))
        put("window-1k", "the smallest window", c81(o, zstd.frame_head(10) + raw(body[:1000]) + raw(body[1000:], last=True)))
        put("no-feature", "COMPRESSED records, no feature 27", c81(o, zstd.frame(body)), F.basic(o, [e]))
        put("mmap-len-zero", "mmap_len 0", c81(o, zstd.frame(body)), {**usual, F.COMPRESSED: F.compressed(o, 0)})
        put("mmap-len-odd", "mmap_len 5000", c81(o, zstd.frame(body)), {**usual, F.COMPRESSED: F.compressed(o, 5000)})
        put("mmap-len-small", "mmap_len smaller than what a record decodes to", c81(o, zstd.frame(body * 10)),
            {**usual, F.COMPRESSED: F.compressed(o, 4096)})
        put("feature-odd", "version 9, type 7 in the feature", c81(o, zstd.frame(body)),
            {**usual, F.COMPRESSED: F.compressed(o, version=9, kind=7)})
        put("feature-unused", "feature 27 without a compressed record", body)
        long = b"".join(e.sample(time=START + n, ip=0x401000 + n) for n in range(2400))
        put("big-records", "compressed records of the largest size, 65535 and 65528 bytes",
            c81(o, first + raw(long[:65518])) + c83(o, raw(long[65518:131019])))
        if not o.big:
            feats = [feature_record(o, k, v) for k, v in sorted(F.basic(o, [e]).items())]
            z = feature_record(o, F.COMPRESSED, F.compressed(o))
            add("z-pipe", pipe(o, attr_record(e), *feats, z, feature_record(o, 35), head, *wrap_in_frames(o, events, cut=90), end),
                "a pipe, compressed, records cut")
            add("z-pipe-83", pipe(o, attr_record(e), *feats, z, feature_record(o, 35), head, *wrap_in_frames(
                o, events, 83, cut=90), end), "a pipe, COMPRESSED2, records cut")
            add("z-pipe-late", pipe(o, attr_record(e), *feats, head, c81(o, zstd.frame(a)), z, c81(o, zstd.frame(b + c)), end),
                "a pipe whose feature 27 comes after the first compressed record")
            two = Event(o, "task-clock", (12,), config=1)
            for name, inside in (("feature", hostname), ("attr", attr_record(two))):
                add(f"z-pipe-{name}-inside", pipe(o, attr_record(e), *feats, z, feature_record(o, 35), head, c81(
                    o, zstd.frame(b"".join(events[:4]) + inside + b"".join(events[4:]))), end), f"a pipe, HEADER_{name.upper()} inside the stream")
            add("z-two-events", File(o, [e, two], head + c81(o, zstd.frame(
                b"".join(x.sample(time=START + n, ip=0x401100 + n) for n in range(5) for x in (e, two)))) + end,
                {**F.basic(o, [e, two]), F.COMPRESSED: F.compressed(o)}).build(), "two events inside")


# intel_bts: branch records of 24 bytes; the simplest AUX data perf knows
BTS = 9


def bts_info(o):
    return o.rec(70, o.u32(2, 0) + o.u64(BTS, 0, 1, 0, 0, 0))


def bts(o, n, at):
    return b"".join(o.u64(0x401100 + 16 * ((at + i) % 50), 0x401108 + 16 * ((at + i) % 50), 0) for i in range(n))


class Trace:
    """An AUX recording: four queues, records of different sizes, remembering where each AUXTRACE lies."""

    def __init__(self, o, count=100):
        self.o = o
        self.aux = Event(o, "intel_bts//", (31, 32, 33, 34), type=BTS, period=1, bits=("mmap", "sample_id_all", "disabled"),
                         sample_type=IP | TID | TIME | ID | CPU | PERIOD | 1 << 16)
        self.side = Event(o, "dummy:u", (41, 42, 43, 44), config=9, sample_type=self.aux.sample_type,
                          bits=("mmap", "mmap2", "comm", "task", "sample_id_all"))
        self.events = [self.aux, self.side]
        self.features = {**F.basic(o, self.events), F.NRCPUS: o.u32(4, 4)}
        r, ra = Records(self.side), Records(self.aux)
        index = o.rec(69, o.u64(8) + b"".join(o.u64(i, n % 4, n % 4, -1) for n, i in enumerate(self.aux.ids + self.side.ids)))
        self.parts = [index, bts_info(o), r.start(pid=100)]
        self.marks = []  # indexes into parts
        offsets, t = [0] * 4, START
        for cpu in range(4):
            self.parts.append(ra.itrace_start(pid=100, tid=100 + cpu, time=t + cpu, id=31 + cpu, cpu=cpu))
        for round_ in range(count):
            for cpu in range(4):
                n = 1 + (round_ * 7 + cpu * 3) % 10
                payload = bts(o, n, round_)
                t += 100
                self.parts.append(ra.aux(offsets[cpu], len(payload), 1 if round_ % 9 == 8 else 0, time=t, id=31 + cpu, cpu=cpu,
                                         pid=100, tid=100))
                self.marks.append(len(self.parts))
                self.parts.append(o.rec(71, o.u64(len(payload), offsets[cpu], 0xC0FFEE00 + round_) + o.u32(cpu, -1, cpu, 0))
                                  + payload)
                offsets[cpu] += len(payload)
            if round_ % 10 == 9:
                self.parts.append(o.rec(68))
        self.parts.append(r.exit(time=t + 100, id=41, cpu=0))

    def file(self, index=lambda e: e, raw=None, with_index=True):
        o = self.o
        usual = self.features

        def place(at):
            entries, out, marks = [], b"", set(self.marks)
            for n, p in enumerate(self.parts):
                if n in marks:
                    entries.append((at + len(out), 48))
                out += p
            if not with_index:
                return out, {}
            return out, {F.AUXTRACE: raw if raw is not None else F.auxtrace_index(o, index(entries))}
        return File(o, self.events, place, usual).build()


def auxtrace():
    group("AUX area traces")
    for o in BOTH:
        t = Trace(o, 100)
        add(f"aux-{o.tag}", t.file(), "four queues, 400 AUXTRACE records with payload, the index of feature 18")
        add(f"aux-pipe-{o.tag}", pipe(o, *map(attr_record, t.events), *(
            feature_record(o, k, v) for k, v in sorted(t.features.items())), *t.parts), "the same as a pipe")
    t = Trace(LE, 20)
    add("aux-no-index", t.file(with_index=False), "80 AUXTRACE records, no index")
    for name, note, change in (
            ("plus-8", "entries 8 bytes after the records", lambda e: [(a + 8, s) for a, s in e]),
            ("other-record", "an entry that points at another record", lambda e: e[:5] + [(e[5][0] - 88, 48)] + e[6:]),
            ("outside", "an entry outside the file", lambda e: e[:5] + [(1 << 40, 48)] + e[6:]),
            ("size", "entries whose size includes the payload", lambda e: [(a, 120) for a, s in e]),
            ("size-zero", "entries of size 0", lambda e: [(a, 0) for a, s in e]),
            ("twice", "every entry twice", lambda e: e + e),
            ("missing", "every other entry missing", lambda e: e[::2]),
            ("reversed", "entries in the reverse order", lambda e: e[::-1]),
            ("none", "an index without entries", lambda e: [])):
        add("aux-index-" + name, t.file(index=change), note)
    add("aux-index-count", t.file(raw=LE.u64(1 << 32) + bytes(64)), "an index that claims more entries than it has")
    add("aux-index-short", t.file(raw=b"\1\0\0\0"), "an index of four bytes")
    e = Event(LE, sample_type=IP | TID | TIME | ID | PERIOD | AUX, aux_sample_size=64)
    add("aux-samples", File(LE, [e], Records(e).start() + b"".join(
        e.sample(time=START + 10 * n, aux=bts(LE, n, n)) for n in range(5)) + LE.rec(68), F.basic(LE, [e])).build(),
        "AUX data in samples, 0 to 96 bytes, nothing else")
    o = LE
    e = Event(o)
    one = o.rec(71, o.u64(48, 0, 1) + o.u32(0, -1, 0, 0)) + bts(o, 2, 0)
    usual = F.basic(o, [e])
    add("aux-big", File(o, [e], bts_info(o) + Records(e).start() + o.rec(71, o.u64(70000, 0, 1) + o.u32(0, -1, 0, 0))
                        + bytes(70000) + samples(e) + o.rec(68), usual).build(), "a payload larger than any record can be")
    add("aux-empty", File(o, [e], bts_info(o) + Records(e).start() + o.rec(71, o.u64(0, 0, 1) + o.u32(0, -1, 0, 0)) + samples(e)
                          + o.rec(68), usual).build(), "an AUXTRACE of 0 bytes")
    add("aux-payload-looks", File(o, [e], bts_info(o) + Records(e).start() + o.rec(71, o.u64(48, 0, 1) + o.u32(0, -1, 0, 0))
                                  + o.rec(9, bytes(40)) + samples(e) + o.rec(68), usual).build(),
        "a payload that looks like a record")
    add("aux-odd-size", File(o, [e], bts_info(o) + Records(e).start() + o.rec(71, o.u64(27, 0, 1) + o.u32(0, -1, 0, 0)) + bytes(27)
                             + samples(e) + o.rec(68), usual).build(), "a payload of 27 bytes: what follows is not aligned")
    add("aux-beyond", File(o, [e], bts_info(o) + Records(e).start() + samples(e) + o.rec(71, o.u64(
        1 << 20, 0, 1) + o.u32(0, -1, 0, 0)) + bytes(64), usual).build(), "a payload longer than the rest of the data")
    add("aux-overflow", File(o, [e], bts_info(o) + Records(e).start() + samples(e) + o.rec(71, o.u64(
        (1 << 64) - 48, 0, 1) + o.u32(0, -1, 0, 0)) + bytes(64), usual).build(), "a payload of 2^64 - 48 bytes: the sum overflows")
    add("aux-spe", File(o, [e], o.rec(70, o.u32(4, 0) + o.u64(10, 1)) + Records(e).start() + o.rec(
        71, o.u64(64, 0, 1) + o.u32(0, -1, 0, 0)) + bytes(64) + samples(e) + o.rec(68), usual).build(),
        "AUXTRACE_INFO of Arm SPE")
    add("aux-info-unknown", File(o, [e], o.rec(70, o.u32(99, 0) + o.u64(1, 2, 3)) + Records(e).start() + one + samples(e)
                                 + o.rec(68), usual).build(), "AUXTRACE_INFO of an unknown type")
    add("aux-queue-conflict", File(o, [e], bts_info(o) + Records(e).start() + one + o.rec(71, o.u64(48, 48, 2) + o.u32(
        0, 100, 1, 0)) + bts(o, 2, 0) + samples(e) + o.rec(68), usual).build(), "one idx with two owners")
