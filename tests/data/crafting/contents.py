"""Samples, record kinds, features."""
from . import features as F
from .common import BURN_ID, START, add, group, stream
from .perfdata import (ADDR, AUX, BOTH, BR_ANY, BR_COUNTERS, BR_HW_INDEX, BR_LBR, BRANCH_STACK, CALLCHAIN, CGROUP, CODE_PAGE_SIZE, CPU,
                       DATA_PAGE_SIZE, DATA_SRC, Event, File, ID, IDENTIFIER, IP, KERNEL, LE, MINUS1, PERIOD, PHYS_ADDR, RAW, READ,
                       R_ENABLED, R_GROUP, R_ID, R_LOST, R_RUNNING, REGS_INTR, REGS_USER, Records, STACK_USER, STREAM_ID,
                       TID, TIME, TRANSACTION, USER, WEIGHT, WEIGHT_STRUCT, attr_record, feature_record, pad8, pipe)

CONTEXT = {name: (1 << 64) - n for name, n in dict(
    hv=32, kernel=128, user=512, user_deferred=640, guest=2048, guest_kernel=2176, guest_user=2560).items()}
USUAL = IP | TID | TIME | ID | PERIOD


def samples():
    group("Samples")
    for o in BOTH:
        def put(name, note, events, body, features=None):
            events = events if isinstance(events, list) else [events]
            data = Records(events[0]).start() + body + o.rec(68)
            add(f"sample-{name}-{o.tag}", File(o, events, data, {**F.basic(o, events), **(features or {})}).build(), note)

        def many(e, *variants):
            return b"".join(e.sample(time=START + 10 * n, **v) for n, v in enumerate(variants))

        flags = o.branch_flags
        table = [(0x401100, 0x401200, flags(mispred=1, cycles=0x1234)), (0x401210, 0x401110, flags(predicted=1, type=5)),
                 (0x401120, 0x401220, flags(predicted=1, in_tx=1, abort=1, cycles=1, type=3, spec=2, new_type=9, priv=5))]
        branch = {F.BRANCH_STACK: b""}
        e = Event(o, sample_type=USUAL | BRANCH_STACK, branch_sample_type=BR_ANY)
        put("branch", "branch stacks of 3 and 0 entries", e, many(e, dict(branches=table), dict(branches=[])), branch)
        e = Event(o, sample_type=USUAL | BRANCH_STACK | STREAM_ID, branch_sample_type=BR_ANY | BR_HW_INDEX)
        put("branch-hw-index", "with hw_idx", e, many(e, dict(branches=table), dict(branches=[]), dict(hw_idx=MINUS1)), branch)
        put("branch-hw-index-missing", "nr 0 and no hw_idx although asked for, as kernels write it", e,
            many(e, dict(branches=[], hw_idx=None), dict(branches=table)), branch)
        e = Event(o, sample_type=USUAL | BRANCH_STACK | CALLCHAIN | REGS_INTR,
                  branch_sample_type=BR_ANY | BR_HW_INDEX, sample_regs_intr=7)
        put("branch-hw-index-between", "hw_idx there or missing, followed by more fields", e,
            many(e, dict(branches=[], hw_idx=None), dict(branches=[]), dict(branches=table)), branch)
        e = Event(o, sample_type=USUAL | BRANCH_STACK, branch_sample_type=BR_ANY | BR_COUNTERS | BR_HW_INDEX)
        counted = {**branch, F.CPU_PMU_CAPS: o.u32(2) + b"".join(o.string(a) + o.string(b) for a, b in (
            ("branch_counter_nr", "4"), ("branch_counter_width", "2")))}
        put("branch-counters", "with counters", e,
            many(e, dict(branches=table, counters=[1, 0x1B, 3]), dict(branches=[])), counted)
        # perf record --call-graph lbr: the branches are the calls that have not returned
        calls = [(0x401200, 0x401150, flags()), (0x401300, 0x4011E0, flags()), (0x401400, 0x4012F0, flags())]
        e = Event(o, sample_type=USUAL | CALLCHAIN | BRANCH_STACK, branch_sample_type=BR_LBR)
        lbr = [dict(chain=[CONTEXT["user"], 0x401158, 0x401777], branches=calls, ip=0x401158),
               dict(chain=[CONTEXT["kernel"], 0xFFFFFFFF81000100, CONTEXT["user"], 0x401160, 0x401777], branches=calls,
                    ip=0xFFFFFFFF81000100, misc=KERNEL),
               dict(chain=[CONTEXT["user"], 0x401158, 0x401777], branches=[], ip=0x401158),
               dict(chain=[CONTEXT["kernel"], 0xFFFFFFFF81000100], branches=calls, ip=0xFFFFFFFF81000100, misc=KERNEL)]
        put("lbr", "--call-graph lbr: the calls that have not returned in place of the user part, if there is one", e, many(e, *lbr))
        b = Event(o, "task-clock", (12,), config=1, sample_type=USUAL | BRANCH_STACK, branch_sample_type=BR_ANY)
        put("lbr-and-branch", "an event with --call-graph lbr and one with branches", [e, b], many(e, *lbr) + many(b, dict(branches=table)),
            branch)
        # a group whose leader alone has the bit for counters: new perf decides for the whole group
        a = Event(o, sample_type=USUAL | BRANCH_STACK, branch_sample_type=BR_ANY | BR_COUNTERS, read_format=R_ID)
        b = Event(o, "task-clock", (12,), config=1, sample_type=USUAL | BRANCH_STACK, branch_sample_type=BR_ANY)
        put("branch-counters-group", "counters asked for by the leader of a group only; the member's samples have them too "
            "(the second of them has not)", [a, b],
            a.sample(time=START, branches=table) + Event(o, ids=(12,), sample_type=b.sample_type, branch_sample_type=BR_ANY | BR_COUNTERS).sample(
                time=START + 20, branches=table)
            + b.sample(time=START + 30, branches=table),
            {**counted, F.GROUP_DESC: F.group_desc(o, [("{anon_group}", 0, 2)])})

        e = Event(o, sample_type=USUAL | WEIGHT)
        put("weight", "WEIGHT", e, many(e, dict(weight=77), dict(weight=1 << 40)))
        e = Event(o, sample_type=USUAL | WEIGHT_STRUCT)
        put("weight-struct", "WEIGHT_STRUCT", e, many(e, dict(weight=(0x11223344, 0x5566, 0x7788)), dict(weight=(1, 2, 3))))
        e = Event(o, sample_type=USUAL | REGS_USER | REGS_INTR, sample_regs_user=0xFF0FFF, sample_regs_intr=0x1FF)
        put("regs", "user and interrupt registers of abi 0, 1, 2", e, many(
            e, *(dict(user_abi=u, intr_abi=i) for u in (0, 1, 2) for i in (0, 1, 2))))
        e = Event(o, sample_type=USUAL | REGS_USER | STACK_USER, sample_regs_user=0x1C0, sample_stack_user=128)
        put("stack", "stacks of 72 bytes, of 0, partly filled, abi 0", e, many(
            e, {}, dict(stack=b""), dict(dyn_size=16), dict(dyn_size=0), dict(user_abi=0, stack=b"")))
        chain = [CONTEXT["kernel"], 0xFFFFFFFF81000123, CONTEXT["user"], 0x401150, 0x401200]
        e = Event(o, sample_type=USUAL | CALLCHAIN)
        put("chain", "chains: kernel and user, empty, all context marks, deep", e, many(
            e, dict(chain=chain), dict(chain=[]), dict(chain=[v for c in CONTEXT.values() for v in (c, 0x401150)]),
            dict(chain=range(0x401000, 0x401000 + 500))))
        a = Event(o, "crafted:tick", type=2, config=F.TICK_ID, sample_type=USUAL | CPU | RAW)
        put("raw", "raw data of a tracepoint", a, many(a, dict(raw=F.tick(o, 5)), dict(raw=F.tick(o, 1 << 40))),
            {F.TRACING_DATA: F.tracing_data(o)})
        put("raw-short", "a tracepoint with raw data of 3 bytes and with none", a, many(
            a, dict(raw=b"abc"), dict(raw=b"\0\0\0\0")), {F.TRACING_DATA: F.tracing_data(o)})
        e = Event(o, sample_type=USUAL | RAW)
        put("raw-other", "raw data of an event other than a tracepoint", e, many(
            e, dict(raw=b"abc"), dict(raw=b"\0\0\0\0"), dict(raw=bytes(range(100)))))
        e = Event(o, sample_type=USUAL | DATA_SRC | TRANSACTION | PHYS_ADDR | CGROUP | ADDR | DATA_PAGE_SIZE | CODE_PAGE_SIZE
                  | STREAM_ID)
        put("words", "ADDR, STREAM_ID, DATA_SRC, TRANSACTION, PHYS_ADDR, CGROUP, page sizes", e, many(
            e, dict(addr=0x7FFE00001000, data_src=0x2A085080021, transaction=0x1200000021, cgroup=12345,
                    data_page=2 << 20, code_page=1 << 30), {}))
        for name, note, rf in (
                ("read", "READ: value and id", R_ID), ("read-times", "READ: value, times, id, lost", R_ID | R_ENABLED | R_RUNNING | R_LOST),
                ("read-group", "READ: a group", R_ID | R_GROUP),
                ("read-group-all", "READ: a group with times and lost", R_ID | R_GROUP | R_ENABLED | R_RUNNING | R_LOST)):
            a = Event(o, sample_type=USUAL | READ, read_format=rf)
            b = Event(o, "task-clock", (12,), config=1, sample_type=USUAL | READ, read_format=rf)
            a.group = b.group = [a, b]
            described = {F.GROUP_DESC: F.group_desc(o, [("{anon_group}", 0, 2)])}
            put(name, note, [a, b], many(a, {}, {}) + Records(a).read(time=START + 50), described)
            if rf & R_GROUP:
                put(name + "-empty", note + ", with no values in it", [a, b], many(a, {}, dict(read=a.read([]))), described)
        e = Event(o, sample_type=USUAL | READ, read_format=R_ENABLED)
        put("read-without-id", "READ without the id: perf refuses", e, many(e, dict(read=o.u64(5, 6))))
        everything = (1 << 24) - 1
        for name, bits in (("all", everything), ("all-weight-struct", everything & ~WEIGHT | WEIGHT_STRUCT)):
            e = Event(o, sample_type=bits, read_format=R_ID | R_ENABLED | R_RUNNING | R_GROUP, branch_sample_type=BR_ANY | BR_HW_INDEX,
                      sample_regs_user=0x1C0, sample_regs_intr=0x1C1, sample_stack_user=128, aux_sample_size=64)
            put(name, "all bits of sample_type at once", e, many(
                e, dict(chain=chain, raw=F.tick(o, 7), branches=table, aux=bytes(range(64))),
                dict(chain=[], raw=b"\0\0\0\0", branches=[], stack=b"", user_abi=0, intr_abi=0, aux=b"")), branch)
        e = Event(o, sample_type=USUAL | 1 << 25)
        put("bit25", "an unknown sample_type bit", e, many(e, {}, {}))
        e = Event(o, sample_type=USUAL | CALLCHAIN, bits=("mmap", "mmap2", "comm", "task", "sample_id_all", "defer_callchain",
                                                         "defer_output"), size=144)
        r = Records(e)
        d = CONTEXT["user_deferred"]
        at = START
        put("deferred", "deferred call chains: shared by two samples, one thread beside another, another cookie in between, "
            "never delivered", e, e.sample(time=at, chain=[CONTEXT["kernel"], 0xFFFFFFFF81000010, d, 0xB00000006])
            + e.sample(time=at + 10, chain=[CONTEXT["kernel"], 0xFFFFFFFF81000020, d, 0xB00000006])
            + e.sample(time=at + 15, pid=100, tid=101, chain=[d, 0xC00000001])
            + r.deferred(0xB00000006, [CONTEXT["user"], 0x401150, 0x401200], time=at + 20)
            + e.sample(time=at + 30, chain=[d, 0xB00000007]) + e.sample(time=at + 40, chain=[d, 0xB00000008])
            + r.deferred(0xB00000008, [CONTEXT["user"], 0x401160], time=at + 50)
            + r.deferred(0xC00000001, [CONTEXT["user"], 0x401170, 0x401300], pid=100, tid=101, time=at + 60)
            + e.sample(time=at + 70, chain=[CONTEXT["kernel"], 0xFFFFFFFF81000030, d, 0xB00000009])
            + r.deferred(0xD00000001, [], time=at + 80))
        a = Event(o, sample_type=USUAL | CALLCHAIN)
        b = Event(o, "offcpu-time", (12,), type=1, config=10, sample_type=USUAL | RAW)
        put("off-cpu", "offcpu-time: the real sample inside the raw data", [a, b], a.sample(time=START) + b.sample(
            time=START + 10, raw=o.u32(100, 101) + o.u64(5000000, 3, CONTEXT["user"], 0x401150, 0x401200, 1)))


def kernel_kinds(e, trailer=True):
    """Every record kind of the kernel but SAMPLE, once or more."""
    o, r = e.o, Records(e, trailer)
    t = iter(range(START + 100, START + 100000, 10))

    def at(**more):
        return dict(time=next(t), **more)
    vm = "/tmp/perfx-data/work/"
    return [
        r.mmap(vm + "burn", 0x401000, 0x1000, 0x1000, **at()),
        r.mmap("//anon", 0x7F0000001000, 0x1000, data=True, **at()),
        r.mmap("1234567", 0x10000, 0x1000, **at()), r.mmap("12345678", 0x20000, 0x1000, **at()),
        r.lost(11, 42, **at()),
        r.comm("burn", exec=True, **at()), r.comm("fifteen-letters", tid=101, **at()), r.comm("", tid=102, **at()),
        r.fork(pid=200, ppid=100, **at()), r.exit(pid=200, ppid=100, **at()),
        r.throttle(True, **at()), r.throttle(False, **at()),
        r.read(**at()),
        r.mmap2(vm + "burn", 0x401000, 0x1000, 0x1000, **at()),
        r.mmap2(vm + "burn", 0x401000, 0x1000, 0x1000, build_id=BURN_ID, **at()),
        r.mmap2(vm + "burn_id8", 0x501000, 0x1000, 0x1000, build_id=bytes.fromhex("b000000000000004"), **at()),
        r.mmap2("//anon", 0x7F0000003000, 0x1000, maj=0, min=0, ino=0, generation=0, **at()),
        r.aux(0, 4096, 0, **at()), r.aux(4096, 4096, 1 | 2 | 4 | 8 | 0x100, **at()),
        r.itrace_start(**at()),
        r.lost_samples(7, **at()), r.lost_samples(8, 1 << 15, **at()),
        r.switch(**at()), r.switch(out=True, **at()), r.switch(out=True, preempt=True, **at()),
        r.switch_cpu_wide(100, 101, **at()), r.switch_cpu_wide(100, 101, out=True, preempt=True, **at()),
        r.namespaces([(4, 0xF0000000 + n) for n in range(7)], **at()), r.namespaces([], **at()),
        r.ksymbol(0xFFFFFFFFC0000000, 128, "bpf_prog_0001020304050607_crafted", **at()),
        r.ksymbol(0xFFFFFFFFC0001000, 256, "ftrace_trampoline", type=2, **at()),
        r.ksymbol(0xFFFFFFFFC0000000, 128, "bpf_prog_0001020304050607_crafted", flags=1, **at()),
        r.bpf_event(33, **at()), r.bpf_event(33, type=2, **at()),
        r.cgroup(1, "/", **at()), r.cgroup(77, "/some/deeper/group", **at()),
        r.text_poke(0xFFFFFFFF81000100, b"\x0f\x1f\x44\0\0", b"\xe9\1\2\3\4", **at()),
        r.text_poke(0xFFFFFFFFC0002000, b"", bytes(range(40)), **at()),
        r.hw_id(5, **at()),
        r.deferred(0xB00000006, [CONTEXT["user"], 0x401150], **at()),
    ]


def cpu_maps(o):
    return [
        ("cpus", o.u16(0, 3, 0, 1, 5)), ("any", o.u16(0, 1, 0xFFFF)),
        ("mask4", o.u16(1, 2, 4) + o.u32(0xFF, 0x80000001)),
        ("mask8", o.u16(1, 2, 8) + bytes(4) + o.u64(0xFF, 1 << 63)),
        ("range", o.u16(2) + bytes([0, 0]) + o.u16(3, 9)), ("range-any", o.u16(2) + bytes([1, 0]) + o.u16(0, 1)),
    ]


def user_kinds(o, e, to_pipe):
    """Every record kind of perf itself."""
    out = []

    def rec(kind, body=b"", misc=0):
        out.append(o.rec(kind, pad8(body), misc))
    if to_pipe:
        out.append(attr_record(e))
        out += [feature_record(o, bit, payload) for bit, payload in sorted(F.basic(o, [e]).items())]
        out.append(feature_record(o, 35))
        blob = pad8(F.tracing_data(o))
        out.append(o.rec(66, o.u32(len(blob), 0)) + blob)
    rec(65, o.u64(0) + b"cpu-clock".ljust(64, b"\0"))
    out.append(F.build_id(o, "/tmp/perfx-data/work/burn", BURN_ID, kind=67))
    out.append(o.rec(67, o.u32(-1) + BURN_ID + bytes(4) + b"/without/the/size\0\0\0"))
    # as inject makes it: with a trailer
    out.append(o.rec(67, o.u32(-1) + BURN_ID + bytes([20, 0, 0, 0]) + b"/with/trailer\0\0\0" + bytes(4) + e.trailer(time=START), 1 << 15 | 2))
    rec(68)
    rec(69, o.u64(1, e.ids[0], 0, -1, 100))
    rec(69, o.u64(1, e.ids[0], 0, 0, 100, 555, 0))
    rec(70, o.u32(2, 0) + o.u64(9, 0, 1, 0, 0, 0))
    rec(72, o.u32(1, 5, 0, 100, 101, 0) + o.u64(0x401150) + b"old error without time".ljust(64, b"\0"))
    rec(72, o.u32(1, 5, 0, 100, 101, 1) + o.u64(0x401150, START) + b"an error with a time\0")
    rec(72, o.u32(1, 5, 0, 100, 101, 2) + o.u64(0x401150, START) + b"a guest's error".ljust(64, b"\0") + o.u32(555, 1))
    rec(73, o.u64(2, 100) + b"burn".ljust(16, b"\0") + o.u64(-1) + b"any".ljust(16, b"\0"))
    for name, body in cpu_maps(o):
        rec(74, body)
    rec(75, o.u64(4, 0, 1, 1, 100, 2, 1, 3, 2))
    rec(76, o.u64(e.ids[0]) + o.u32(0, 0) + o.u64(12345, 1000, 900))
    rec(77, o.u64(0, START))
    rec(77, o.u64(1, START + 100))
    rec(78, o.u64(0, e.ids[0]) + b"msec\0")
    rec(78, o.u64(1, e.ids[0]) + o.f64(1e-6))
    rec(78, o.u64(2, e.ids[0]) + b"a better name\0" + bytes(100))
    for name, body in cpu_maps(o):
        rec(78, o.u64(3, e.ids[0]) + body)
    rec(79, o.u64(10, 1024, START))
    rec(79, o.u64(10, 1024, START, 777, (1 << 40) - 1) + bytes([1, 1]) + bytes(6))
    rec(82)
    rec(84, b"crafted_prog".ljust(512, b"\0") + o.u64(2) + b"".join(
        k.ljust(64, b"\0") + v.ljust(256, b"\0") for k, v in ((b"version", b"1"), (b"author", b"nobody"))))
    for version in (15, 16, 17):
        # the counters of 15 and 16: 6 u32 and 3 u64 as in 17 as far as known
        rec(85, o.u64(START) + o.u32(1) + o.u16(version) + bytes(2) + o.u32(1, 2, 3, 4, 5, 6) + o.u64(7, 8, 9))
        rec(86, o.u64(START) + o.u32(1) + o.u16(version, 0) + o.u32(*range(1, 46)))
    return out


def kinds():
    group("Record kinds")
    for o in BOTH:
        e = Event(o, sample_type=USUAL | CPU | STREAM_ID | IDENTIFIER, read_format=R_ID | R_ENABLED)
        full = kernel_kinds(e)
        old = [r for r in full if int.from_bytes(r[:4], "big" if o.big else "little") <= 21]
        features = F.basic(o, [e])
        start = Records(e).start()
        end = o.rec(68)
        add(f"kinds-{o.tag}", File(o, [e], start + b"".join(full) + e.sample(time=START + 99999) + end, features).build(),
            "every kernel kind, 1 to 22, with the full trailer")
        add(f"kinds-to-21-{o.tag}", File(o, [e], start + b"".join(old) + e.sample(time=START + 99999) + end, features).build(),
            "kernel kinds 1 to 21, what perf 6.1 knows")
        e2 = Event(o, bits=("mmap", "comm", "task", "mmap2"), read_format=R_ID | R_ENABLED)
        add(f"kinds-bare-{o.tag}", File(o, [e2], Records(e2).start() + b"".join(kernel_kinds(e2)) + e2.sample(
            time=START + 99999) + end, F.basic(o, [e2])).build(), "the same without sample_id_all")
        e3 = Event(o, sample_type=IP | TID, read_format=R_ID | R_ENABLED)
        add(f"kinds-tid-only-{o.tag}", File(o, [e3], Records(e3).start() + b"".join(kernel_kinds(e3)) + e3.sample() + end,
                                            F.basic(o, [e3])).build(), "the same with a trailer of pid and tid only")
        e4 = Event(o, read_format=R_ID | R_ENABLED)
        # synthesised records of old tools: no trailer although sample_id_all is set
        missing = Records(e4, trailer=False)
        add(f"kinds-trailer-missing-{o.tag}", File(o, [e4], missing.start(name="fifteen-letters") + e4.sample(time=START) + end,
                                                   F.basic(o, [e4])).build(),
            "synthesised records without the trailer they should have")
        e = Event(o)
        body = b"".join(user_kinds(o, e, False))
        add(f"kinds-user-{o.tag}", File(o, [e], Records(e).start() + body + e.sample(time=START) + end, F.basic(o, [e])).build(),
            "every kind of perf's own that may stand in a file, 65 to 86: CPU_MAP, EVENT_UPDATE, AUXTRACE_ERROR, "
            "TIME_CONV, SCHEDSTAT in all their forms")
        add(f"kinds-user-pipe-{o.tag}", pipe(o, *user_kinds(o, e, True), stream(e)), "the same in a pipe, 64, 66 and 80 too")
        add(f"kinds-cpu-map-{o.tag}", File(o, [e], b"".join(o.rec(74, pad8(b)) for _, b in cpu_maps(o)) + stream(e),
                                           F.basic(o, [e])).build(), "CPU_MAP: list, any, masks of 4 and 8 bytes, ranges")
    for o in BOTH:
        e = Event(o, "crafted:tick", type=2, config=F.TICK_ID, sample_type=USUAL | RAW)
        blob = pad8(F.tracing_data(o))
        for name, record in (("12", o.rec(66, o.u32(len(blob)))), ("16", o.rec(66, o.u32(len(blob), 0)))):
            add(f"kinds-tracing-{name}-{o.tag}", pipe(o, attr_record(e), record, blob, Records(e).start(), e.sample(
                time=START, raw=F.tick(o, 9)), o.rec(68)), f"a pipe whose TRACING_DATA record has {name} bytes and a payload")
        inside = F.tracing_data(o)
        inside = o.rec(66, o.u32(len(inside)) + inside + bytes(-len(inside) % 64))
        behind = b"".join(e.sample(time=START + n, raw=F.tick(o, n)) for n in range(9)) + o.rec(68)
        add(f"kinds-tracing-inside-{o.tag}", File(o, [e], Records(e).start() + inside + behind, {
            **F.basic(o, [e]), F.TRACING_DATA: F.tracing_data(o)}).build(),
            "TRACING_DATA with its payload inside, among the records of a file, as simpleperf writes it")
        add(f"kinds-tracing-inside-pipe-{o.tag}", pipe(o, attr_record(e), inside, Records(e).start(), behind), "the same in a pipe")
    group("Unknown kinds")
    e = Event(LE)
    r = Records(e)
    for kind in (23, 63, 87, 4000):
        for name, body in (("empty", b""), ("payload", bytes(range(1, 49)))):
            extra = r.rec(kind, body, time=START + 50000) if kind < 64 else LE.rec(kind, body)
            add(f"kind-{kind}-{name}", File(LE, [e], stream(e, extra=extra), F.basic(LE, [e])).build(),
                f"a record of kind {kind}, " + ("nothing inside" if not body else "48 bytes inside"))
    everything = b"".join(r.rec(k, bytes(range(16)), time=START + 50000 + k) for k in (23, 40, 63)) + b"".join(
        LE.rec(k, bytes(range(24)), 0xFFF8) for k in (87, 100, 4000, 0xFFFFFFFF))
    add("kind-many", File(LE, [e], stream(e, extra=everything), F.basic(LE, [e])).build(), "many unknown kinds, all misc bits set")
    add("kind-many-pipe", pipe(LE, attr_record(e), stream(e, extra=everything)), "the same in a pipe")
    add("misc-unknown", File(LE, [e], stream(e, extra=r.rec(3, LE.u32(100, 100) + b"name\0\0\0\0", 0x0FF8, time=START + 50000)),
                             F.basic(LE, [e])).build(), "reserved bits of misc set in a COMM")


def features():
    group("Features")
    for o in BOTH:
        events = [Event(o), Event(o, "task-clock", (12,), config=1)]
        body = Records(events[0]).start() + events[0].sample(time=START) + events[1].sample(time=START + 10) + o.rec(68)
        everything = F.everything(o, events)

        def put(name, note, features, **layout):
            add(f"features-{name}-{o.tag}", File(o, events, body, features, **layout).build(), note)
        put("all", "every feature from 1 to 34 but DIR_FORMAT", everything)
        put("to-31", "every feature that perf 6.1 knows, but DIR_FORMAT", {k: v for k, v in everything.items() if k <= 31})
        put("unknown", "the usual ones and bits 35, 60, 200 and 255 with content of our own",
            {**F.basic(o, events), 35: b"feature of the future", 60: b"", 200: bytes(range(256)), 255: b"\xff" * 100})
        put("all-unknown", "all of them", {**everything, **{n: o.u64(n) for n in range(35, 256) if n % 20 in (0, 15)}})
        if o.big:
            words = [0] * 8
            for b in F.basic(o, events):
                words[b // 32] |= 1 << b % 32
            put("words32", "the bitmap as a 32-bit machine wrote it", F.basic(o, events), bitmap_bytes=o.u32(*words))
            no_host = {k: v for k, v in everything.items() if k != F.HOSTNAME}
            put("no-hostname", "HOSTNAME missing: perf believes in BUILD_ID only", no_host)
            put("only-buildid", "BUILD_ID alone", {F.BUILD_ID: everything[F.BUILD_ID]})
            continue
        basic = F.basic(o, events)
        put("unused-slots", "two slots more in the table than bits", basic, unused_slots=2)
        put("empty-slots", "features dropped by the writer: slots of 0, 0", {**basic, F.CPUID: b"", F.CACHE: b"", F.CLOCKID: b""})
        put("overlap", "two features that share their bytes", basic,
            table=lambda t: [t[1] if n == 0 else p for n, p in enumerate(t)])
        put("in-data", "a feature whose payload lies inside the data section", basic,
            table=lambda t: [(400, 20) if n == len(t) - 2 else p for n, p in enumerate(t)])
        put("unpadded-strings", "strings without the padding to 64",
            {**basic, F.HOSTNAME: o.string("perfx-host", False), F.ARCH: o.string("x86_64", False),
             F.CMDLINE: o.u32(2) + o.string("perf", False) + o.string("record", False)})
        put("names", "EVENT_DESC with other names and a larger attr", {**basic, F.EVENT_DESC: o.u32(2, 144) + b"".join(
            e.attr(144) + o.u32(1) + o.string(n) + o.u64(*e.ids) for e, n in zip(events, ("first name", "zwëi")))})
        put("buildid-old", "BUILD_ID entries without the size byte, kernel, module, guest, deleted",
            {**basic, F.BUILD_ID: b"".join(o.rec(0, o.u32(pid) + bytes(range(n, n + 20)) + bytes(4) + name.ljust(64, b"\0"), misc)
                                           for n, (pid, misc, name) in enumerate((
                                               (-1, 1, b"[kernel.kallsyms]"), (-1, 1, b"/lib/modules/6.18.0/kernel/fs/ext4/ext4.ko"),
                                               (0, 4, b"[guest.kernel.kallsyms]"), (-1, 2, b"/usr/lib/libc.so.6"),
                                               (-1, 2, b"/tmp/perfx-data/gone (deleted)"))))})
        put("buildid-no-pid", "BUILD_ID entries of 2.6.33: no pid field", {**basic, F.BUILD_ID: b"".join(
            o.rec(0, bytes(range(20)) + bytes(4) + name.ljust(64, b"\0"), misc)
            for misc, name in ((1, b"[kernel.kallsyms]"), (2, b"/usr/lib/libc.so.6")))})
        put("cpu-topology-short", "CPU_TOPOLOGY of the first revision: the two lists only",
            {**basic, F.CPU_TOPOLOGY: o.strings("0-1") + o.strings("0", "1")})
        put("no-nrcpus", "NRCPUS missing, CPU_TOPOLOGY there",
            {k: v for k, v in everything.items() if k not in (F.NRCPUS, F.CPU_DOMAIN_INFO)})
        add("features-pipe-all", pipe(o, *map(attr_record, events), *(
            feature_record(o, k, v) for k, v in sorted(everything.items()) if k not in (
                F.TRACING_DATA, F.BUILD_ID, F.AUXTRACE, F.BRANCH_STACK, F.STAT, F.CACHE, F.COMPRESSED)),
            feature_record(o, 35), body), "every feature a pipe can hold, odd sizes")
        add("features-pipe-late", pipe(o, *map(attr_record, events), body, *(
            feature_record(o, k, v) for k, v in sorted(basic.items()))), "features after the samples, no end mark")
        add("features-pipe-unknown", pipe(o, *map(attr_record, events), *(
            feature_record(o, k, v) for k, v in sorted(basic.items())), feature_record(o, 60, b"unknown"),
            feature_record(o, 1000, b"unknown too"), feature_record(o, 36), body), "features 60 and 1000 in a pipe, end mark 36")
