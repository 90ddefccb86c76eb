"""Builds perf.data files, field by field, in either byte order."""
import struct

# sample_type
IP, TID, TIME, ADDR, READ, CALLCHAIN, ID, CPU, PERIOD, STREAM_ID, RAW, BRANCH_STACK, REGS_USER, STACK_USER, \
    WEIGHT, DATA_SRC, IDENTIFIER, TRANSACTION, REGS_INTR, PHYS_ADDR, AUX, CGROUP, DATA_PAGE_SIZE, \
    CODE_PAGE_SIZE, WEIGHT_STRUCT = (1 << n for n in range(25))

# read_format
R_ENABLED, R_RUNNING, R_ID, R_GROUP, R_LOST = (1 << n for n in range(5))

# branch_sample_type
BR_ANY, BR_HW_INDEX, BR_COUNTERS = 1 << 3, 1 << 17, 1 << 19
BR_LBR = 1 << 0 | 1 << 11 | 1 << 14 | 1 << 15 | BR_HW_INDEX  # USER, CALL_STACK, NO_FLAGS, NO_CYCLES

# bits of the attr, by number
BITS = {name: n for n, name in enumerate(
    "disabled inherit pinned exclusive exclude_user exclude_kernel exclude_hv exclude_idle mmap comm freq "
    "inherit_stat enable_on_exec task watermark precise0 precise1 mmap_data sample_id_all exclude_host "
    "exclude_guest exclude_callchain_kernel exclude_callchain_user mmap2 comm_exec use_clockid context_switch "
    "write_backward namespaces ksymbol bpf_event aux_output cgroup text_poke build_id inherit_thread "
    "remove_on_exec sigtrap defer_callchain defer_output".split())}

# cpumode
KERNEL, USER, HYPERVISOR, GUEST_KERNEL, GUEST_USER = 1, 2, 3, 4, 5

MINUS1 = (1 << 64) - 1
PAGE = 4096


def pad8(b):
    return b + bytes(-len(b) % 8)


def text(s):
    """A NUL-terminated string, padded to a multiple of 8."""
    if isinstance(s, str):
        s = s.encode()
    return pad8(s + b"\0")


def mirror(b):
    """Reverses the bits inside each byte: what a bitfield looks like on the other kind of machine."""
    return bytes(int(f"{x:08b}"[::-1], 2) for x in b)


class Order:
    """One byte order."""

    def __init__(self, sign):
        self.sign = sign
        self.big = sign == ">"
        self.magic = b"2ELIFREP" if self.big else b"PERFILE2"
        self.tag = "be" if self.big else "le"

    def pack(self, form, *values):
        return struct.pack(self.sign + form, *values)

    def u8(self, *v):
        return bytes(v)

    def u16(self, *v):
        return struct.pack(f"{self.sign}{len(v)}H", *v)

    def u32(self, *v):
        return struct.pack(f"{self.sign}{len(v)}I", *(x & 0xFFFFFFFF for x in v))

    def u64(self, *v):
        return struct.pack(f"{self.sign}{len(v)}Q", *(x & MINUS1 for x in v))

    def f64(self, v):
        return struct.pack(self.sign + "d", v)

    def bits(self, number):
        """The bitfield of an attr."""
        b = struct.pack("<Q", number)
        return mirror(b) if self.big else b

    def branch_flags(self, mispred=0, predicted=0, in_tx=0, abort=0, cycles=0, type=0, spec=0, new_type=0, priv=0):
        value, at = 0, 0
        for field, width in ((mispred, 1), (predicted, 1), (in_tx, 1), (abort, 1), (cycles, 16), (type, 4),
                             (spec, 2), (new_type, 4), (priv, 3)):
            value |= field << (64 - at - width if self.big else at)
            at += width
        return self.u64(value)

    # ---- records
    def header(self, kind, misc, size):
        return self.u32(kind) + self.u16(misc, size)

    def rec(self, kind, body=b"", misc=0, trailer=b"", size=None):
        """A record; its body is NOT padded here."""
        body += trailer
        return self.header(kind, misc, 8 + len(body) if size is None else size) + body

    # ---- strings of feature sections
    def string(self, s, padded=True):
        b = s.encode() if isinstance(s, str) else s
        b += b"\0"
        if padded:
            b += bytes(-len(b) % 64)
        return self.u32(len(b)) + b

    def strings(self, *items):
        return self.u32(len(items)) + b"".join(self.string(s) for s in items)


LE, BE = Order("<"), Order(">")
BOTH = (LE, BE)


class Event:
    """An attr, its ids and how to write its samples."""

    def __init__(self, order, name="cpu-clock", ids=(11,), sample_type=IP | TID | TIME | ID | PERIOD,
                 bits=("disabled", "inherit", "mmap", "comm", "task", "sample_id_all", "mmap2", "comm_exec"),
                 type=1, config=0, period=1000000, read_format=R_ID, size=128, tail=b"", attr_size_field=None, **more):
        self.o, self.name, self.ids, self.sample_type = order, name, list(ids), sample_type
        self.bits, self.type, self.config, self.period = tuple(bits), type, config, period
        self.read_format, self.size, self.tail, self.more = read_format, size, tail, more
        self.attr_size_field = attr_size_field
        self.group = [self]

    @property
    def sample_id_all(self):
        return "sample_id_all" in self.bits

    def attr(self, size=None):
        o, size = self.o, self.size if size is None else size
        bits = sum(1 << BITS[b] for b in self.bits if isinstance(b, str)) | sum(
            1 << b for b in self.bits if not isinstance(b, str))
        b = bytearray(max(size, 152))

        def put(at, data):
            b[at:at + len(data)] = data

        m = self.more
        put(0, o.u32(self.type, size if self.attr_size_field is None else self.attr_size_field))
        put(8, o.u64(self.config, self.period, self.sample_type, self.read_format))
        put(40, o.bits(bits))
        put(48, o.u32(m.get("wakeup_events", 0), m.get("bp_type", 0)))
        put(56, o.u64(m.get("config1", 0), m.get("config2", 0), m.get("branch_sample_type", 0),
                      m.get("sample_regs_user", 0)))
        put(88, o.u32(m.get("sample_stack_user", 0), m.get("clockid", 0)))
        put(96, o.u64(m.get("sample_regs_intr", 0)))
        put(104, o.u32(m.get("aux_watermark", 0)) + o.u16(m.get("sample_max_stack", 0), 0))
        put(112, o.u32(m.get("aux_sample_size", 0), m.get("aux_action", 0)))
        put(120, o.u64(m.get("sig_data", 0), m.get("config3", 0), m.get("config4", 0)))
        b = bytes(b[:size])
        if self.tail:
            b = b[:-len(self.tail)] + self.tail
        return b

    def trailer(self, pid=100, tid=None, time=0, id=None, cpu=0):
        """The sample_id trailer of every kernel record that is not a sample."""
        if not self.sample_id_all:
            return b""
        o, st = self.o, self.sample_type
        id = self.ids[0] if id is None and self.ids else id or 0
        out = b""
        if st & TID:
            out += o.u32(pid, pid if tid is None else tid)
        if st & TIME:
            out += o.u64(time)
        if st & ID:
            out += o.u64(id)
        if st & STREAM_ID:
            out += o.u64(id)
        if st & CPU:
            out += o.u32(cpu, 0)
        if st & IDENTIFIER:
            out += o.u64(id)
        return out

    def read(self, values=None, id=None, enabled=5000, running=4000, lost=0):
        """read_format values. `values`: number, or list of (value, id) for the GROUP layout."""
        o, rf = self.o, self.read_format
        id = self.ids[0] if id is None and self.ids else id or 0
        times = (o.u64(enabled) if rf & R_ENABLED else b"") + (o.u64(running) if rf & R_RUNNING else b"")
        if rf & R_GROUP:
            if values is None:
                values = [(1000 + n, e.ids[0]) for n, e in enumerate(self.group)]
            out = o.u64(len(values)) + times
            for value, i in values:
                out += o.u64(value) + (o.u64(i) if rf & R_ID else b"") + (o.u64(lost) if rf & R_LOST else b"")
            return out
        return o.u64(1000 if values is None else values) + times + (o.u64(id) if rf & R_ID else b"") + (
            o.u64(lost) if rf & R_LOST else b"")

    def regs(self, mask, abi):
        o, n = self.o, bin(mask).count("1")
        return o.u64(abi) + (o.u64(*(0x1000 + i for i in range(n))) if abi else b"")

    def sample(self, ip=0x401150, pid=100, tid=None, time=0, addr=0x7FFE1000, id=None, cpu=0, period=None, read=None,
               chain=(0x401150, 0x401200, 0x401300), raw=b"\0\0\0\0", branches=None, hw_idx=3, counters=None,
               user_abi=2, stack=b"stackdata" * 8, dyn_size=None, weight=7, data_src=0x5080021, transaction=0,
               intr_abi=2, phys_addr=0x12345000, aux=b"", cgroup=1, data_page=4096, code_page=4096, misc=USER,
               size=None, cut=None):
        o, st, m = self.o, self.sample_type, self.more
        id = self.ids[0] if id is None and self.ids else id or 0
        out = b""
        if st & IDENTIFIER:
            out += o.u64(id)
        if st & IP:
            out += o.u64(ip)
        if st & TID:
            out += o.u32(pid, pid if tid is None else tid)
        if st & TIME:
            out += o.u64(time)
        if st & ADDR:
            out += o.u64(addr)
        if st & ID:
            out += o.u64(id)
        if st & STREAM_ID:
            out += o.u64(id)
        if st & CPU:
            out += o.u32(cpu, 0)
        if st & PERIOD:
            out += o.u64(self.period if period is None else period)
        if st & READ:
            out += self.read(id=id) if read is None else read
        if st & CALLCHAIN:
            out += o.u64(len(chain), *chain)
        if st & RAW:
            raw += bytes(-(len(raw) + 4) % 8)
            out += o.u32(len(raw)) + raw
        if st & BRANCH_STACK:
            if branches is None:
                branches = [(0x401100 + 16 * n, 0x401200 + 16 * n, o.branch_flags(predicted=1, cycles=n + 1))
                            for n in range(3)]
            out += o.u64(len(branches))
            if m.get("branch_sample_type", 0) & BR_HW_INDEX and hw_idx is not None:
                out += o.u64(hw_idx)
            for origin, target, flags in branches:
                out += o.u64(origin, target) + flags
            if m.get("branch_sample_type", 0) & BR_COUNTERS:
                out += o.u64(*(counters if counters is not None else range(len(branches))))
        if st & REGS_USER:
            out += self.regs(m.get("sample_regs_user", 0), user_abi)
        if st & STACK_USER:
            out += o.u64(len(stack))
            if stack:
                out += stack + o.u64(len(stack) if dyn_size is None else dyn_size)
        if st & WEIGHT:
            out += o.u64(weight)
        if st & WEIGHT_STRUCT:
            var1, var2, var3 = weight if isinstance(weight, tuple) else (weight, 0, 0)
            out += o.u64(var1 | var2 << 32 | var3 << 48)
        if st & DATA_SRC:
            out += o.u64(data_src)
        if st & TRANSACTION:
            out += o.u64(transaction)
        if st & REGS_INTR:
            out += self.regs(m.get("sample_regs_intr", 0), intr_abi)
        if st & PHYS_ADDR:
            out += o.u64(phys_addr)
        if st & CGROUP:
            out += o.u64(cgroup)
        if st & DATA_PAGE_SIZE:
            out += o.u64(data_page)
        if st & CODE_PAGE_SIZE:
            out += o.u64(code_page)
        if st & AUX:
            out += o.u64(len(aux)) + aux
        if cut is not None:
            out = out[:cut]
        return o.rec(9, out, misc, size=size)


class Records:
    """Writes kernel records with the trailer of one event."""

    def __init__(self, event, trailer=True):
        self.e, self.o, self.with_trailer = event, event.o, trailer

    def rec(self, kind, body=b"", misc=0, **t):
        trailer = self.e.trailer(**t) if self.with_trailer else b""
        return self.o.rec(kind, pad8(body), misc, trailer)

    def mmap(self, name, start, length, pgoff=0, pid=100, tid=None, misc=USER, data=False, **t):
        body = self.o.u32(pid, pid if tid is None else tid) + self.o.u64(start, length, pgoff) + text(name)
        return self.rec(1, body, misc | (1 << 13 if data else 0), pid=pid, **t)

    def mmap2(self, name, start, length, pgoff=0, pid=100, tid=None, misc=USER, build_id=None, prot=5, flags=2,
              maj=8, min=1, ino=4242, generation=7, **t):
        o = self.o
        if build_id is None:
            what = o.u32(maj, min) + o.u64(ino, generation)
        else:
            what, misc = bytes([len(build_id), 0, 0, 0]) + build_id.ljust(20, b"\0"), misc | 1 << 14
        body = o.u32(pid, pid if tid is None else tid) + o.u64(start, length, pgoff) + what + o.u32(prot, flags) + text(name)
        return self.rec(10, body, misc, pid=pid, **t)

    def lost(self, id, lost, **t):
        return self.rec(2, self.o.u64(id, lost), **t)

    def comm(self, name, pid=100, tid=None, exec=False, **t):
        tid = pid if tid is None else tid
        return self.rec(3, self.o.u32(pid, tid) + text(name), 1 << 13 if exec else 0, pid=pid, tid=tid, **t)

    def task(self, kind, pid=100, ppid=1, tid=None, ptid=None, time=0, **t):
        body = self.o.u32(pid, ppid, pid if tid is None else tid, ppid if ptid is None else ptid) + self.o.u64(time)
        return self.rec(kind, body, pid=pid, time=time, **t)

    def fork(self, **a):
        return self.task(7, **a)

    def exit(self, **a):
        return self.task(4, **a)

    def throttle(self, on=True, time=0, id=11, stream=11, **t):
        return self.rec(5 if on else 6, self.o.u64(time, id, stream), time=time, **t)

    def read(self, values=None, pid=100, tid=None, **t):
        return self.rec(8, self.o.u32(pid, pid if tid is None else tid) + self.e.read(values), pid=pid, **t)

    def aux(self, offset, size, flags=0, **t):
        return self.rec(11, self.o.u64(offset, size, flags), **t)

    def itrace_start(self, pid=100, tid=None, **t):
        return self.rec(12, self.o.u32(pid, pid if tid is None else tid), pid=pid, **t)

    def lost_samples(self, lost, misc=0, **t):
        return self.rec(13, self.o.u64(lost), misc, **t)

    def switch(self, out=False, preempt=False, **t):
        return self.rec(14, b"", (1 << 13 if out else 0) | (1 << 14 if preempt else 0), **t)

    def switch_cpu_wide(self, other_pid, other_tid, out=False, preempt=False, **t):
        misc = (1 << 13 if out else 0) | (1 << 14 if preempt else 0)
        return self.rec(15, self.o.u32(other_pid, other_tid), misc, **t)

    def namespaces(self, links, pid=100, tid=None, nr=None, **t):
        body = self.o.u32(pid, pid if tid is None else tid) + self.o.u64(len(links) if nr is None else nr)
        for dev, ino in links:
            body += self.o.u64(dev, ino)
        return self.rec(16, body, pid=pid, **t)

    def ksymbol(self, addr, length, name, type=1, flags=0, **t):
        return self.rec(17, self.o.u64(addr) + self.o.u32(length) + self.o.u16(type, flags) + text(name), **t)

    def bpf_event(self, id, tag=bytes(range(8)), type=1, flags=0, **t):
        return self.rec(18, self.o.u16(type, flags) + self.o.u32(id) + tag, **t)

    def cgroup(self, id, path, **t):
        return self.rec(19, self.o.u64(id) + text(path), **t)

    def text_poke(self, addr, old, new, lengths=None, **t):
        old_len, new_len = lengths or (len(old), len(new))
        return self.rec(20, self.o.u64(addr) + self.o.u16(old_len, new_len) + old + new, KERNEL, **t)

    def hw_id(self, id, **t):
        return self.rec(21, self.o.u64(id), **t)

    def deferred(self, cookie, ips, nr=None, **t):
        return self.rec(22, self.o.u64(cookie, len(ips) if nr is None else nr, *ips), USER, **t)

    def start(self, kernel=True, pid=100, name="burn"):
        """What perf synthesises: a kernel map, a process and its maps; times are 0, the id is 0."""
        z = dict(time=0, id=0)
        out = b""
        if kernel:
            out += self.rec(1, self.o.u32(-1, 0) + self.o.u64(0xFFFFFFFF81000000, 0x1200000, 0xFFFFFFFF81000000)
                            + text("[kernel.kallsyms]_text"), KERNEL, pid=0, **z)
        return out + self.comm(name, pid=pid, exec=True, **z) + self.mmap2(
            "/tmp/perfx-data/work/" + name, 0x401000, 0x1000, 0x1000, pid=pid, **z) + self.mmap2(
            "[vdso]", 0x7FFFF7FC0000, 0x2000, pid=pid, maj=0, min=0, ino=0, generation=0, flags=2, **z)


class File:
    """A perf.data file: parts in perf's own order unless told otherwise."""

    def __init__(self, order, events, data=b"", features=None, **layout):
        self.o, self.events, self.data, self.layout = order, list(events), data, layout
        self.features = dict(features or {})

    def build(self, **more):
        """Keywords (all optional):
        magic, header_size    of the header
        header_attr_size      the header's attr_size, if not attr.size + 16
        stride                bytes from one attrs entry to the next, if not attr.size + 16
        ids                   what to write for (offset, size) of the ids of entry n: function(n, offset, size)
        attrs_last            put ids and attrs at the very end
        features_first        put the feature payloads before the data
        data_at               absolute offset of the data
        fill                  byte that fills holes
        data_offset_size      function(offset, size) -> what the header says
        attrs_offset_size     the same for attrs
        event_types           (offset, size) in the header, or bytes put before the data
        bitmap                set of bits, if not that of the features
        bitmap_bytes          the 32 bytes themselves
        table                 function(list of (offset, size)) -> list
        """
        k = {**self.layout, **more}
        o = self.o
        size = k.get("header_size", 104)
        attrs = [e.attr() for e in self.events]
        stride = k.get("stride")
        bits = sorted(self.features)

        def tail_parts(at):
            ids, places = b"", []
            for e in self.events:
                places.append((at + len(ids) if e.ids else 0, 8 * len(e.ids)))
                ids += o.u64(*e.ids)
            entries = b""
            for n, (a, place) in enumerate(zip(attrs, places)):
                if "ids" in k:
                    place = k["ids"](n, *place)
                if stride:
                    a = a.ljust(stride - 16, k.get("fill", b"\0"))
                entries += a + o.u64(*place)
            return ids, entries

        out = bytes(size)
        early = k.get("event_types", b"")
        early_at = len(out)
        if isinstance(early, bytes):
            out += early
            event_types = (early_at, len(early)) if early else (0, 0)
        else:
            event_types = early
        if not k.get("attrs_last"):
            ids, entries = tail_parts(len(out))
            out += ids
            attrs_at = len(out)
            out += entries
        payloads, places = [self.features[b] for b in bits], {}

        def put_features():
            nonlocal out
            for bit, payload in zip(bits, payloads):
                places[bit] = (len(out), len(payload))
                out += payload

        if k.get("features_first"):
            put_features()
        if "data_at" in k:
            out += k.get("fill", b"\0") * (k["data_at"] - len(out))
            assert len(out) == k["data_at"]
        data_at = len(out)
        data = self.data(data_at) if callable(self.data) else self.data
        if isinstance(data, tuple):  # the data and features that depend on where it lies
            data, extra = data
            self.features.update(extra)
            bits = sorted(self.features)
            payloads = [self.features[b] for b in bits]
        out += data
        table_at = len(out)
        slots = len(bits) + k.get("unused_slots", 0)
        out += bytes(16 * slots)
        if not k.get("features_first"):
            put_features()
        table = [places[b] for b in bits] + [(0, 0)] * k.get("unused_slots", 0)
        if "table" in k:
            table = k["table"](table)
        out = out[:table_at] + b"".join(o.u64(*t) for t in table) + out[table_at + 16 * len(table):]
        if k.get("attrs_last"):
            ids, entries = tail_parts(len(out))
            out += ids
            attrs_at = len(out)
            out += entries
        bitmap = [0] * 4
        for b in k.get("bitmap", bits):
            bitmap[b // 64] |= 1 << b % 64
        data_place = k.get("data_offset_size", lambda a, b: (a, b))(data_at, len(data))
        attrs_place = k.get("attrs_offset_size", lambda a, b: (a, b))(attrs_at, len(entries))
        attr_size = k.get("header_attr_size", stride or (len(attrs[0]) + 16 if attrs else 144))
        header = k.get("magic", o.magic) + o.u64(k.get("header_size_field", size), attr_size, *attrs_place,
                                                 *data_place, *event_types)
        header += k.get("bitmap_bytes", o.u64(*bitmap))
        return header[:size] + out[size:]


def pipe(order, *parts, magic=None):
    return (magic or order.magic) + order.u64(16) + b"".join(parts)


def attr_record(event, size=None):
    return event.o.rec(64, event.attr(size) + event.o.u64(*event.ids))


def feature_record(order, bit, payload=b""):
    return order.rec(80, order.u64(bit) + payload)
