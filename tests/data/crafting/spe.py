"""AUX data of Arm SPE: what perf decodes on any machine, so that it can be the oracle."""
from . import features as F
from . import zstd
from .common import START, add, group
from .perfdata import BE, CPU, Event, File, ID, IP, LE, PERIOD, Records, TID, TIME, attr_record, feature_record, pipe

PMU = 10
COUNTER = 5 * START  # the timer has another start than the clock, and 0.4 ns to a tick
SHIFT, MULT = 4, 40
CPUS = (0x410FD0C1, 0xC00FAC40, 0x480FD060, 0x410FD034)  # Neoverse N1, AmpereOne, HIP12, Cortex-A53
FILTERS = (0, 1 << 23, 1 << 23, 0)


class Numbers:
    """The same numbers with every version of Python."""

    def __init__(self, seed):
        self.state = seed

    def bits(self, n):
        out = 0
        for _ in range(0, n, 16):
            self.state = (self.state * 6364136223846793005 + 1442695040888963407) & (1 << 64) - 1
            out = out << 16 | self.state >> 48
        return out & (1 << n) - 1

    def below(self, n):
        return self.bits(32) % n

    def of(self, *items):
        return items[self.below(len(items))]


def packet(header, value, size):
    return bytes(header) + value.to_bytes(size, "little")


def counter(time):
    """The timer at a time."""
    return COUNTER + (time - START) * (1 << SHIFT) // MULT


def branch(pc, target, link, time, context, events=0x42, before=None):
    out = packet([0xB0], pc, 8) + (packet([0x64], context, 4) if context is not None else b"")
    out += bytes([0x4A, link]) + packet([0x52], events, 2) + packet([0x99], 4, 2) + packet([0x98], 17, 2)
    out += packet([0xB1], target, 8) + (packet([0xB4], before, 8) if before is not None else b"")
    return out + packet([0x71], counter(time), 8)


def any_record(n, time, context):
    """A record with any parts; neither a call nor a return, whose samples perf gets wrong."""
    user, kernel = 0x401000 + 4 * n.below(64), 0xC0FFBA66EDEFB0E0 + 4 * n.below(64)
    out = packet([0xB0], n.of(user, user, kernel), 8)
    if context is not None and n.below(10):
        out += packet([0x64 + n.below(2)], context, 4)
    kind = n.of(0, 1, 1, 1, 2, 2)
    out += bytes([0x48 + kind, n.of(0, 1, 2, 3) | n.of(0, 0x18) if kind == 2 else n.bits(8)])
    size = n.of(0, 1, 1, 2, 3)
    out += packet([0x42 | size << 4], n.bits(26) & (1 << (8 << size)) - 1, 1 << size)
    out += packet([0x99], n.bits(4), 2) + packet([0x98], n.of(n.bits(6), n.bits(16)), 2)
    if kind == 2:
        out += packet([0xB1], n.of(user, kernel) + 64, 8)
    if n.below(3) == 0:
        out += packet(n.of([0xB4], [0x20, 0xB4]), user - 64, 8)
    if kind == 1:
        out += packet([0xB2], n.of(0x7FFE1000 + n.bits(12), n.bits(64)), 8) + packet([0x9A], 1, 2)
        if n.below(2):
            out += packet([0xB3], 0x8000000012345000 + n.bits(12), 8)
    if n.below(2):
        out += packet(*n.of(([0x43], n.below(20), 1), ([0x53], n.below(20), 2)))
    out += bytes(n.of(0, 0, 3, 17))
    return out + (packet([0x71], counter(time), 8) if n.below(30) else b"\1") + bytes(n.of(0, 0, 5))


class Spe:
    """A recording of SPE with a buffer for each CPU, or for each thread."""

    def __init__(self, o, version=2, contexts=(100, 101, 200), threads=False, damage=False, rounds=3, each=20, record=any_record):
        self.o, n = o, Numbers(7)
        st = IP | TID | TIME | (0 if threads else CPU) | PERIOD | 1 << 16
        self.spe = Event(o, "arm_spe_0//", (31, 32, 33, 34), type=PMU, config=1, period=1024, sample_type=st | 1 << 19,
                         bits=("disabled", "inherit", "sample_id_all", "exclude_guest"))
        self.side = Event(o, "dummy:u", (41, 42, 43, 44), config=9, sample_type=st,
                          bits=("mmap", "mmap2", "comm", "task", "sample_id_all", "context_switch"))
        self.clock = Event(o, "cpu-clock", (51, 52, 53, 54), sample_type=st)
        self.events = [self.spe, self.side, self.clock]
        midr = o.string(f"0x{CPUS[0]:016x}")
        self.features = {**F.basic(o, self.events), F.ARCH: o.string("aarch64"), F.NRCPUS: o.u32(4, 4), F.CPUID: midr}
        ra, rs = Records(self.spe), Records(self.side)
        if version == 2:
            info = o.u64(2, 4, PMU, 4) + b"".join(
                o.u64(0x1010101010101010, cpu, 4, CPUS[cpu], PMU, 256, FILTERS[cpu]) for cpu in range(4))
        else:
            info = o.u64(PMU, 0 if threads else 1)
        ids = [(i, c) for e in self.events for c, i in enumerate(e.ids)]
        index = o.rec(69, o.u64(len(ids)) + b"".join(o.u64(i, c, c, -1) for i, c in ids))
        conv = o.rec(79, o.u64(SHIFT, MULT, (START - COUNTER * MULT // (1 << SHIFT)) & (1 << 64) - 1, 0, (1 << 56) - 1) + b"\1\0" + bytes(6))
        self.parts, self.marks = [conv, index, o.rec(70, o.u32(4, 0) + info), rs.start(kernel=False, pid=100, name="burn")], []
        put, time, offsets = self.parts.append, START, [0] * 4
        put(rs.fork(pid=100, ppid=100, tid=101, ptid=100, time=START - 100, id=41, cpu=0))
        for round_ in range(rounds):
            if round_ == 1:
                put(rs.comm("late", pid=200, time=time + 40, id=42, cpu=1))
            for cpu in range(4):
                put(self.clock.sample(time=time + 50 + cpu, ip=0x401150, id=51 + cpu, cpu=cpu, pid=100, tid=100))
            for cpu in range(4 if contexts is None and not threads else 0):
                put(rs.switch_cpu_wide(*n.of((100, 100), (100, 101), (200, 200)), out=True, time=time + 700 + cpu, id=41 + cpu,
                                       cpu=cpu, pid=100, tid=100))
            for cpu in range(4):
                payload = b""
                for k in range(each):
                    payload += record(n, time + 100 * k + 7 * cpu, n.of(*contexts) if contexts else None)
                    if damage and k % 7 == 3:
                        payload += n.of(b"\xff", b"\x4b\0\1", b"\xb0\0\1\2\3\x72")
                payload += bytes(-len(payload) % 8)
                end = time + 100 * each
                put(ra.aux(offsets[cpu], len(payload), round_ & 1, time=end, id=31 + cpu, cpu=cpu, pid=100, tid=100))
                owner = o.u32(cpu, 100 + cpu % 2, -1, 0) if threads else o.u32(cpu, -1, cpu, 0)
                self.marks.append(len(self.parts))
                put(o.rec(71, o.u64(len(payload), offsets[cpu], 0xC0FFEE00 + round_) + owner) + payload)
                offsets[cpu] += len(payload)
            time += 100 * each
            put(o.rec(68))
        put(rs.exit(pid=100, time=time + 100, id=41, cpu=0))
        put(o.rec(68))

    def file(self, pack=lambda part: part):
        def place(at):
            entries, out, marks = [], b"", set(self.marks)
            for n, part in enumerate(self.parts):
                if n in marks:
                    entries.append((at + len(out), 48))
                out += part if n in marks else pack(part)
            return out, {F.AUXTRACE: F.auxtrace_index(self.o, entries)}
        return File(self.o, self.events, place, self.features).build()

    def pipe(self):
        o = self.o
        features = (feature_record(o, k, v) for k, v in sorted(self.features.items()) if k != F.EVENT_DESC)
        names = (o.rec(78, o.u64(2, e.ids[0]) + (e.name.encode() + b"\0").ljust(16, b"\0")) for e in self.events)
        return pipe(o, *map(attr_record, self.events), *names, *features, feature_record(o, 36), *self.parts)


def call_or_return(n, time, context):
    return branch(0x401000, 0x402000, n.of(0x08, 0x0A, 0x09, 0x12, 0x13), time, context, n.of(0x02, 0x82, 0x42))


def every_operation():
    """A record of each class and payload of an operation, in this order, with a target for branches."""
    operations = iter(range(3 * 256))

    def record(n, time, context):
        kind, payload = divmod(next(operations), 256)
        out = packet([0xB0], 0xA000000000401000 if payload & 1 else 0x401000, 8) + packet([0x64], context, 4)
        out += bytes([0x48 + kind, payload]) + packet([0x52], 0x2, 2) + packet([0x98], 1 + payload, 2)
        if kind == 2:
            out += packet([0xB1], 0x401040, 8)
        return out + packet([0x71], counter(time), 8)
    return record


def arm_spe():
    group("Arm SPE")
    two = Spe(LE)
    add("spe-v2", two.file(), "four CPUs of different kinds, metadata version 2, CONTEXT packets")
    add("spe-pipe", two.pipe(), "the same as a pipe")
    big = Spe(BE, each=8)
    add("spe-be", big.file(), "the same, less of it, on a big-endian machine")
    add("spe-v1", Spe(LE, version=1, each=10).file(), "metadata version 1")
    add("spe-switch", Spe(LE, contexts=None, each=10).file(), "SWITCH_CPU_WIDE records, no CONTEXT packets")
    add("spe-threads", Spe(LE, contexts=None, threads=True, version=1, each=10).file(), "a buffer for each thread")
    add("spe-damaged", Spe(LE, damage=True, each=10).file(), "bytes that are not packets")
    add("spe-calls", Spe(LE, each=5, record=call_or_return).file(), "calls and returns")
    add("spe-operations", Spe(LE, rounds=1, each=192, record=every_operation()).file(), "every kind of operation")
    small = Spe(LE, each=10)
    small.features[F.COMPRESSED] = F.compressed(LE)

    def pack(part):
        return LE.rec(81, zstd.frame(part)) if part in small.parts[4:] and part[1:4] == bytes(3) and part[0] < 64 else part
    add("spe-z", small.file(pack), "the kernel's records compressed")
