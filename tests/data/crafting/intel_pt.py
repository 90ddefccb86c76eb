"""AUX data of Intel PT made of packets, of which perf shows the PSBs without any program."""
from . import features as F
from .common import START, add, group
from .perfdata import CPU, Event, File, IP, LE, PERIOD, Records, TID, TIME

PMU = 8
TSC_BIT = 1 << 10
SHIFT, MULT, TSC = 10, 512, 0x12 << 56 | 1 << 40  # 2 ticks to a ns


def tsc(time):
    return TSC + 2 * (time - START)


def synced(time, size):
    """A PSB and its packets, then padding."""
    out = b"\x02\x82" * 8 + b"\x19" + (tsc(time) & (1 << 56) - 1).to_bytes(7, "little")
    out += b"\x02\x03\x20\0" + b"\x99\x01" + b"\x02\x23"
    return out.ljust(size, b"\0")


def pt(o, chunks=6, each=5, size=403, step=1000):
    """Two CPUs; chunks end in the middle between two PSBs."""
    st = IP | TID | TIME | CPU | PERIOD | 1 << 16
    trace = Event(o, "intel_pt//u", (31, 32), type=PMU, config=TSC_BIT, period=1, sample_type=st,
                  bits=("disabled", "inherit", "sample_id_all", "exclude_kernel"))
    side = Event(o, "dummy:u", (41, 42), config=9, sample_type=st, bits=("mmap", "mmap2", "comm", "task", "sample_id_all"))
    clock = Event(o, "cpu-clock", (51, 52), sample_type=st)
    events = [trace, side, clock]
    features = {**F.basic(o, events), F.CPUID: o.string("GenuineIntel,6,142,10")}
    ra, rs = Records(trace), Records(side)
    zero = (START - TSC * MULT // (1 << SHIFT)) & (1 << 64) - 1
    info = o.u64(PMU, SHIFT, MULT, zero, 1, TSC_BIT, 1 << 11, 0, 0, 1, 1 << 9, 0x3C000, 0, 0, 1 << 1, 20, 0)
    ids = [(i, c) for e in events for c, i in enumerate(e.ids)]
    index = o.rec(69, o.u64(len(ids)) + b"".join(o.u64(i, c, c, -1) for i, c in ids))
    conv = o.rec(79, o.u64(SHIFT, MULT, zero, 0, (1 << 64) - 1) + b"\1\0" + bytes(6))
    parts, marks, offsets, rest = [conv, index, o.rec(70, o.u32(1, 0) + info), rs.start(kernel=False, pid=100)], [], [0, 0], [b"", b""]
    for chunk in range(chunks):
        for cpu in range(2):
            parts.append(clock.sample(time=START + step * (chunk * each + 1) + cpu, ip=0x401150, id=51 + cpu, cpu=cpu, pid=100, tid=100))
        for cpu in range(2):
            groups = [synced(START + step * (chunk * each + k) + 10 * cpu, size) for k in range(each)]
            whole = rest[cpu] + b"".join(groups)
            cut = len(whole) if chunk + 1 == chunks else len(whole) - 200
            payload, rest[cpu] = whole[:cut - cut % 8], whole[cut - cut % 8:]
            payload += bytes(-len(payload) % 8)
            end = START + step * (chunk * each + each) - 100 + cpu
            parts.append(ra.aux(offsets[cpu], len(payload), time=end, id=31 + cpu, cpu=cpu, pid=100, tid=100))
            marks.append(len(parts))
            parts.append(o.rec(71, o.u64(len(payload), offsets[cpu], tsc(end)) + o.u32(cpu, -1, cpu, 0)) + payload)
            offsets[cpu] += len(payload)
        parts.append(o.rec(68))
    parts += [rs.exit(pid=100, time=START + step * chunks * each, id=41, cpu=0), o.rec(68)]

    def place(at):
        entries, out, here = [], b"", set(marks)
        for n, part in enumerate(parts):
            if n in here:
                entries.append((at + len(out), 48))
            out += part
        return out, {F.AUXTRACE: F.auxtrace_index(o, entries)}
    return File(o, events, place, features).build()


def intel_pt():
    group("Intel PT")
    add("pt-psb", pt(LE), "two CPUs, a PSB with its TSC every 403 bytes; chunks end between two of them")
