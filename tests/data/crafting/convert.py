"""Turns little endian recordings into big endian ones, field by field."""
import struct

from . import features as F
from .perfdata import (BE, CALLCHAIN, CGROUP, BRANCH_STACK, READ, IDENTIFIER, IP, TID, TIME, ADDR, ID, STREAM_ID, CPU, PERIOD, RAW,
                       REGS_USER, STACK_USER, WEIGHT, WEIGHT_STRUCT, DATA_SRC, TRANSACTION, REGS_INTR, PHYS_ADDR,
                       DATA_PAGE_SIZE, CODE_PAGE_SIZE, AUX, R_ENABLED, R_GROUP, R_ID, R_LOST, R_RUNNING, mirror)


class Swap:
    """Reads little endian, writes big endian."""

    def __init__(self, data):
        self.data, self.at, self.out = data, 0, bytearray()

    def _one(self, form, size):
        v = struct.unpack_from("<" + form, self.data, self.at)[0]
        self.out += struct.pack(">" + form, v)
        self.at += size
        return v

    def u16(self):
        return self._one("H", 2)

    def u32(self, n=1):
        for _ in range(n):
            v = self._one("I", 4)
        return v

    def u64(self, n=1):
        v = None
        for _ in range(n):
            v = self._one("Q", 8)
        return v

    def raw(self, n):
        b = self.data[self.at:self.at + n]
        assert len(b) == n, (n, len(b))
        self.out += b
        self.at += n
        return b

    def rest(self):
        return self.raw(len(self.data) - self.at)

    def left(self):
        return len(self.data) - self.at

    def all_u64(self):
        self.u64(self.left() // 8)
        assert not self.left()

    def string(self):
        return self.raw(self.u32())

    def strings(self):
        for _ in range(self.u32()):
            self.string()


def attr(b):
    """attr bytes -> big endian bytes, and what records need to know of it"""
    s = Swap(b)
    s.u32(2)
    s.u64(4)
    s.out += mirror(s.data[40:48])
    s.at = 48
    s.u32(2)
    plan = "QQQQIIQIHHIIQQQ"  # from 56 on
    for form in plan:
        size = struct.calcsize(form)
        if s.left() < size:
            break
        s._one(form, size)
    s.rest()

    class Known:
        size = struct.unpack_from("<I", b, 4)[0]
        sample_type, read_format, bits = struct.unpack_from("<QQQ", b, 24)
        sample_id_all = bits >> 18 & 1
        regs_user = struct.unpack_from("<Q", b, 80)[0] if len(b) >= 96 else 0
        regs_intr = struct.unpack_from("<Q", b, 96)[0] if len(b) >= 104 else 0
        branch = struct.unpack_from("<Q", b, 72)[0] if len(b) >= 80 else 0
        type = struct.unpack_from("<I", b)[0]
    return bytes(s.out), Known


class Converter:
    def __init__(self, swap_raw=None):
        self.attrs, self.by_id = [], {}
        self.swap_raw = swap_raw
        self.cpus = 0

    # ---- which attr
    def add(self, known, ids):
        self.attrs.append(known)
        for i in ids:
            self.by_id[i] = known

    def of_record(self, kind, b):
        first = self.attrs[0]
        if len(self.attrs) == 1:
            return first
        st = first.sample_type
        if kind == 9:
            at = 8 if st & IDENTIFIER else 8 + 8 * bin(st & (IP | TID | TIME | ADDR)).count("1")
        else:
            back = 1 if st & IDENTIFIER else 1 + bool(st & CPU) + bool(st & STREAM_ID)
            at = len(b) - 8 * back
        return self.by_id.get(struct.unpack_from("<Q", b, at)[0], first)

    def trailer(self, s, known):
        if not known.sample_id_all:
            return
        st = known.sample_type
        for bit in (TID, TIME, ID, STREAM_ID, CPU, IDENTIFIER):
            if st & bit:
                s.u32(2) if bit in (TID, CPU) else s.u64()

    def trailer_size(self, known):
        return 8 * bin(known.sample_type & (TID | TIME | ID | STREAM_ID | CPU | IDENTIFIER)).count("1") \
            if known.sample_id_all else 0

    def read_values(self, s, rf):
        n = 1
        if rf & R_GROUP:
            n = s.u64()
        else:
            s.u64()
        s.u64(bool(rf & R_ENABLED) + bool(rf & R_RUNNING))
        if rf & R_GROUP:
            s.u64(n * (1 + bool(rf & R_ID) + bool(rf & R_LOST)))
        else:
            s.u64(bool(rf & R_ID) + bool(rf & R_LOST))

    def sample(self, s, known):
        st = known.sample_type
        s.u64(bool(st & IDENTIFIER) + bool(st & IP))
        if st & TID:
            s.u32(2)
        s.u64(sum(bool(st & b) for b in (TIME, ADDR, ID, STREAM_ID)))
        if st & CPU:
            s.u32(2)
        s.u64(bool(st & PERIOD))
        if st & READ:
            self.read_values(s, known.read_format)
        if st & CALLCHAIN:
            s.u64(s.u64())
        if st & RAW:
            n = s.u32()
            data = s.data[s.at:s.at + n]
            s.out += self.swap_raw(data) if self.swap_raw and known.type == 2 else data
            s.at += len(data)
        assert not st & BRANCH_STACK
        if st & REGS_USER and s.u64():
            s.u64(bin(known.regs_user).count("1"))
        if st & STACK_USER:
            n = s.u64()
            if n:
                s.raw(n)
                s.u64()
        for bit in (WEIGHT, WEIGHT_STRUCT, DATA_SRC, TRANSACTION):
            s.u64(bool(st & bit))
        if st & REGS_INTR and s.u64():
            s.u64(bin(known.regs_intr).count("1"))
        for bit in (PHYS_ADDR, CGROUP, DATA_PAGE_SIZE, CODE_PAGE_SIZE):
            s.u64(bool(st & bit))
        if st & AUX:
            s.raw(s.u64())
        assert not s.left(), s.left()

    def cpu_map(self, s):
        kind = s.u16()
        if kind == 0:
            for _ in range(s.u16()):
                s.u16()
        elif kind == 1:
            n, size = s.u16(), s.u16()
            if size == 8:
                s.raw(4)
                s.u64(n)
            else:
                s.u32(n)
        else:
            s.raw(2)
            s.u16()
            s.u16()
        s.rest()

    def feature(self, bit, b):
        s = Swap(b)
        if bit == F.TRACING_DATA:
            return tracing_data(b)
        if bit == F.BUILD_ID:
            while s.left() >= 8:
                size = struct.unpack_from("<IHH", s.data, s.at)[2]
                s.u32(), s.u16(), s.u16(), s.u32()
                s.raw(size - 12)
        elif bit in (F.HOSTNAME, F.OSRELEASE, F.VERSION, F.ARCH, F.CPUDESC, F.CPUID):
            s.string()
        elif bit == F.NRCPUS:
            self.cpus = s.u32()
            s.u32()
        elif bit in (F.TOTAL_MEM, F.SAMPLE_TIME, F.CLOCKID, F.MEM_TOPOLOGY, F.AUXTRACE, F.DIR_FORMAT):
            s.all_u64()
        elif bit == F.CMDLINE:
            s.strings()
        elif bit == F.EVENT_DESC:
            n, size = s.u32(), s.u32()
            for _ in range(n):
                swapped, _known = attr(s.data[s.at:s.at + size])
                s.out += swapped
                s.at += size
                ids = s.u32()
                s.string()
                s.u64(ids)
        elif bit == F.CPU_TOPOLOGY:
            s.strings()
            s.strings()
            s.u32(2 * self.cpus)
            if s.left():
                s.strings()
                s.u32(self.cpus)
        elif bit == F.NUMA_TOPOLOGY:
            for _ in range(s.u32()):
                s.u32()
                s.u64(2)
                s.string()
        elif bit == F.PMU_MAPPINGS:
            for _ in range(s.u32()):
                s.u32()
                s.string()
        elif bit == F.GROUP_DESC:
            for _ in range(s.u32()):
                s.string()
                s.u32(2)
        elif bit == F.CACHE:
            s.u32()
            for _ in range(s.u32()):
                s.u32(4)
                for _ in range(3):
                    s.string()
        elif bit in (F.COMPRESSED, F.E_MACHINE, F.CLN_SIZE):
            s.u32(s.left() // 4)
        elif bit == F.CPU_PMU_CAPS:
            for _ in range(2 * s.u32()):
                s.string()
        elif bit == F.PMU_CAPS:
            for _ in range(s.u32()):
                for _ in range(2 * s.u32()):
                    s.string()
                s.string()
        elif bit == F.CLOCK_DATA:
            s.u32(2)
            s.u64(2)
        elif bit == F.CPU_DOMAIN_INFO:
            version = s.u32()
            s.u32()
            while s.left() > 7:
                s.u32()
                for _ in range(s.u32()):
                    s.u32()
                    for _ in range(3 if version >= 17 else 2):
                        s.string()
        assert not s.left(), (bit, s.left())
        return bytes(s.out)

    def record(self, b):
        kind, misc, size = struct.unpack_from("<IHH", b)
        s = Swap(b)
        s.u32()
        s.u16()
        s.u16()
        if kind == 64:
            n = struct.unpack_from("<I", b, 12)[0]
            swapped, known = attr(b[8:8 + n])
            self.add(known, struct.unpack_from(f"<{(size - 8 - n) // 8}Q", b, 8 + n))
            s.out += swapped
            s.at += n
            s.all_u64()
        elif kind == 67:
            s.u32()
            s.rest()
        elif kind == 68 or kind == 82:
            pass
        elif kind in (69, 75, 77):
            s.all_u64()
        elif kind == 73:
            for _ in range(s.u64()):
                s.u64()
                s.raw(16)
        elif kind == 74:
            self.cpu_map(s)
        elif kind == 76:
            s.u64()
            s.u32(2)
            s.u64(3)
        elif kind == 78:
            what = s.u64()
            s.u64()
            if what == 1:
                s.u64()
            if what == 3:
                self.cpu_map(s)
            s.rest()
        elif kind == 79:
            s.u64(5 if size >= 56 else 3)
            s.rest()
        elif kind == 80:
            bit = s.u64()
            s.out += self.feature(bit, b[16:]) if len(b) > 16 else b""
            s.at = len(b)
        elif kind >= 64:
            raise ValueError(f"record kind {kind} is not converted")
        else:
            known = self.of_record(kind, b)
            if kind == 9:
                self.sample(s, known)
                return bytes(s.out)
            end = len(b) - self.trailer_size(known)
            if kind in (1, 10):
                s.u32(2)
                s.u64(3)
                if kind == 10:
                    if misc & 1 << 14:
                        s.raw(24)
                    else:
                        s.u32(2)
                        s.u64(2)
                    s.u32(2)
                s.raw(end - s.at)
            elif kind == 3:
                s.u32(2)
                s.raw(end - s.at)
            elif kind in (4, 7):
                s.u32(4)
                s.u64()
            elif kind in (2, 5, 6, 11, 13, 21):
                s.u64((end - s.at) // 8)
            elif kind == 8:
                s.u32(2)
                s.u64((end - s.at) // 8)
            elif kind in (12, 15):
                s.u32(2)
            elif kind == 14:
                pass
            elif kind == 16:
                s.u32(2)
                s.u64((end - s.at) // 8)
            elif kind == 17:
                s.u64()
                s.u32()
                s.u16()
                s.u16()
                s.raw(end - s.at)
            elif kind == 18:
                s.u16()
                s.u16()
                s.u32()
                s.raw(end - s.at)
            elif kind == 19:
                s.u64()
                s.raw(end - s.at)
            else:
                raise ValueError(f"record kind {kind} is not converted")
            assert s.at == end, (kind, s.at, end)
            self.trailer(s, known)
        assert not s.left(), (kind, s.left())
        return bytes(s.out)

    def records(self, data):
        """Yields big endian records, one by one."""
        at = 0
        while at < len(data):
            kind, _, size = struct.unpack_from("<IHH", data, at)
            assert size >= 8 and at + size <= len(data)
            b = data[at:at + size]
            at += size
            if kind == 66:
                n = struct.unpack_from("<I", b, 8)[0]
                payload = data[at:at + n]
                at += n
                yield BE.rec(66, BE.u32(n) + b[12:]) + tracing_data(payload)
                continue
            if kind == 80 and struct.unpack_from("<Q", b, 8)[0] in LEFT_OUT:
                continue
            yield self.record(b)


def tracing_data(b):
    s = Swap(b)
    s.raw(14)
    assert s.data[14] == 0
    s.out += b"\1"
    s.at += 1
    s.raw(1)
    s.u32()
    for name in (b"header_page\0", b"header_event\0"):
        assert s.raw(len(name)) == name
        s.raw(s.u64())
    for _ in range(s.u32()):
        s.raw(s.u64())
    for _ in range(s.u32()):
        end = s.data.index(b"\0", s.at) + 1
        s.raw(end - s.at)
        for _ in range(s.u32()):
            s.raw(s.u64())
    s.raw(s.u32())
    s.raw(s.u32())
    s.raw(s.u64())
    s.rest()  # padding
    return bytes(s.out)


def sys_enter(data):
    """RAW data of raw_syscalls:sys_enter: u16 u8 u8 s32, s64 id, u64 args[6]"""
    s = Swap(data)
    s.u16()
    s.raw(2)
    s.u32()
    s.u64(7)
    s.rest()
    return bytes(s.out)


LEFT_OUT = (F.BPF_PROG_INFO, F.BPF_BTF)  # their content is in native structs: perf skips foreign ones


def to_big(data, swap_raw=None, wrap=None):
    """A whole file or pipe. wrap: function(list of records) -> data section, to compress it, say."""
    c = Converter(swap_raw)
    assert data[:8] == b"PERFILE2"
    if struct.unpack_from("<Q", data, 8)[0] == 16:
        return b"".join([BE.magic, BE.u64(16), *c.records(data[16:])])
    size, attr_size, ao, asz, do, dsz, eo, esz, f0, f1, f2, f3 = struct.unpack_from("<12Q", data, 8)
    bits = [n for n in range(256) if (f0, f1, f2, f3)[n // 64] >> n % 64 & 1]
    entries = ids_out = b""
    at = 104
    for o in range(ao, ao + asz, attr_size):
        swapped, known = attr(data[o:o + attr_size - 16])
        io, isz = struct.unpack_from("<QQ", data, o + attr_size - 16)
        ids = struct.unpack_from(f"<{isz // 8}Q", data, io)
        c.add(known, ids)
        entries += swapped + BE.u64(at + len(ids_out), isz)
        ids_out += BE.u64(*ids)
    sections = {}
    for n, bit in enumerate(bits):
        fo, fsz = struct.unpack_from("<QQ", data, do + dsz + 16 * n)
        if bit not in LEFT_OUT:
            sections[bit] = (fo, fsz)
    features = {bit: c.feature(bit, data[fo:fo + fsz]) if fsz else b"" for bit, (fo, fsz) in sections.items()}
    records = list(c.records(data[do:do + dsz]))
    if wrap:
        records = wrap(records)
        features[F.COMPRESSED] = F.compressed(BE)
    body = b"".join(records)
    data_at = at + len(ids_out) + len(entries)
    out = bytearray(BE.magic + BE.u64(104, attr_size, at + len(ids_out), len(entries), data_at, len(body), 0, 0))
    words = [0] * 4
    for bit in features:
        words[bit // 64] |= 1 << bit % 64
    out += BE.u64(*words) + ids_out + entries + body
    place, table, payloads = len(out) + 16 * len(features), b"", b""
    for bit in sorted(features):
        table += BE.u64(place + len(payloads), len(features[bit]))
        payloads += features[bit]
    return bytes(out + table + payloads)
