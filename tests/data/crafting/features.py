"""Feature sections with plausible content, one function a bit."""
from .perfdata import pad8

TRACING_DATA, BUILD_ID, HOSTNAME, OSRELEASE, VERSION, ARCH, NRCPUS, CPUDESC, CPUID, TOTAL_MEM, CMDLINE, EVENT_DESC, \
    CPU_TOPOLOGY, NUMA_TOPOLOGY, BRANCH_STACK, PMU_MAPPINGS, GROUP_DESC, AUXTRACE, STAT, CACHE, SAMPLE_TIME, \
    MEM_TOPOLOGY, CLOCKID, DIR_FORMAT, BPF_PROG_INFO, BPF_BTF, COMPRESSED, CPU_PMU_CAPS, CLOCK_DATA, \
    HYBRID_TOPOLOGY, PMU_CAPS, CPU_DOMAIN_INFO, E_MACHINE, CLN_SIZE = range(1, 35)

NAMES = {value: name for name, value in list(globals().items()) if name.isupper() and isinstance(value, int)}

HEADER_PAGE = b"""\tfield: u64 timestamp;\toffset:0;\tsize:8;\tsigned:0;
\tfield: local_t commit;\toffset:8;\tsize:8;\tsigned:1;
\tfield: int overwrite;\toffset:8;\tsize:1;\tsigned:1;
\tfield: char data;\toffset:16;\tsize:4080;\tsigned:1;
"""
HEADER_EVENT = b"""# compressed entry header
\ttype_len    :    5 bits
\ttime_delta  :   27 bits
\tarray       :   32 bits

\tpadding     : type == 29
\ttime_extend : type == 30
\ttime_stamp : type == 31
\tdata max type_len  == 28
"""
TICK_ID = 500
TICK_FORMAT = b"""name: tick
ID: 500
format:
\tfield:unsigned short common_type;\toffset:0;\tsize:2;\tsigned:0;
\tfield:unsigned char common_flags;\toffset:2;\tsize:1;\tsigned:0;
\tfield:unsigned char common_preempt_count;\toffset:3;\tsize:1;\tsigned:0;
\tfield:int common_pid;\toffset:4;\tsize:4;\tsigned:1;

\tfield:u64 count;\toffset:8;\tsize:8;\tsigned:0;

print fmt: "count=%llu", REC->count
"""


def tracing_data(o, system="crafted", formats=(TICK_FORMAT,)):
    """Knows tracepoints of one system."""
    def sized(b):
        return o.u64(len(b)) + b
    return (b"\x17\x08\x44tracing" + b"0.6\0" + bytes([o.big, 8]) + o.u32(4096)
            + b"header_page\0" + sized(HEADER_PAGE) + b"header_event\0" + sized(HEADER_EVENT)
            + o.u32(0) + o.u32(1) + system.encode() + b"\0" + o.u32(len(formats)) + b"".join(map(sized, formats))
            + o.u32(0) + o.u32(0) + o.u64(0))


def tick(o, count, pid=100):
    """RAW data of crafted:tick."""
    return o.u16(TICK_ID) + bytes(2) + o.u32(pid) + o.u64(count)


def build_id(o, name, id, pid=-1, misc=2, kind=0):
    """One entry of the section; the same record of kind 67 stands in streams."""
    name = name.encode() + b"\0"
    name += bytes(-len(name) % 64)
    if kind:  # records of a stream are multiples of 8 since 7.2
        name += bytes(4)
    sized = 1 << 15
    body = o.u32(pid) + id.ljust(20, b"\0") + bytes([len(id), 0, 0, 0]) + name
    return o.rec(kind, body, misc | sized)


def event_desc(o, events, size=None):
    size = size or max(e.size for e in events)
    out = o.u32(len(events), size)
    for e in events:
        out += e.attr().ljust(size, b"\0")[:size] + o.u32(len(e.ids)) + o.string(e.name) + o.u64(*e.ids)
    return out


def group_desc(o, groups):
    """groups: (name, index of the leader, members)"""
    return o.u32(len(groups)) + b"".join(o.string(n) + o.u32(leader, members) for n, leader, members in groups)


def compressed(o, mmap_len=528384, level=1, ratio=3, version=0, kind=1):
    return o.u32(version, kind, level, ratio, mmap_len)


def auxtrace_index(o, entries):
    return o.u64(len(entries)) + b"".join(o.u64(*e) for e in entries)


def basic(o, events=()):
    """What perf needs to be content with a file."""
    out = {
        HOSTNAME: o.string("perfx-host"),
        OSRELEASE: o.string("6.18.0"),
        VERSION: o.string("7.3.0"),
        ARCH: o.string("x86_64" if not o.big else "s390x"),
        NRCPUS: o.u32(2, 2),
        CPUDESC: o.string("Crafted CPU"),
        TOTAL_MEM: o.u64(4000000),
        CMDLINE: o.strings("/usr/bin/perf", "record", "burn"),
    }
    if events:
        out[EVENT_DESC] = event_desc(o, events)
    return out


def everything(o, events):
    """Every feature from 1 to 34, but DIR_FORMAT, which perf takes in a directory only."""
    e2 = events[1].name if len(events) > 1 else "-"
    prog_info = (o.u32(1, 33) + bytes(range(8)) + o.u32(8, 16) + o.u64(0, 8) + o.u64(123456789) + o.u32(0, 0)
                 + o.u64(0) + b"crafted_prog".ljust(16, b"\0")).ljust(224, b"\0")
    btf = o.u16(0xEB9F) + bytes([1, 0]) + o.u32(24, 0, 0, 0, 1)
    capabilities = [("branches", "32"), ("max_precise", "3"), ("pmu_name", "crafted")]

    def pairs(items):
        return o.u32(len(items)) + b"".join(o.string(a) + o.string(b) for a, b in items)
    return {
        **basic(o, events),
        TRACING_DATA: tracing_data(o),
        BUILD_ID: build_id(o, "[kernel.kallsyms]", bytes(range(1, 21)), misc=1)
        + build_id(o, "/tmp/perfx-data/work/burn", bytes.fromhex("b000000000000000000000000000000000000001"))
        + build_id(o, "/tmp/perfx-data/work/burn_id8", bytes.fromhex("b000000000000004")),
        CPUID: o.string("CraftedVendor,6,1,1"),
        CPU_TOPOLOGY: o.strings("0-1") + o.strings("0", "1") + o.u32(0, 0, 1, 0) + o.strings("0-1") + o.u32(0, 0),
        NUMA_TOPOLOGY: o.u32(1) + o.u32(0) + o.u64(4000000, 1000000) + o.string("0-1"),
        BRANCH_STACK: b"",
        PMU_MAPPINGS: o.u32(3) + b"".join(o.u32(n) + o.string(s) for n, s in (
            (1, "software"), (2, "tracepoint"), (8, "crafted_pmu"))),
        GROUP_DESC: group_desc(o, [("{anon_group}", 0, len(events))]) if len(events) > 1 else o.u32(0),
        AUXTRACE: auxtrace_index(o, []),
        STAT: b"",
        CACHE: o.u32(1, 2) + b"".join(o.u32(level, 64, sets, 8) + o.string(kind) + o.string(size) + o.string(cpus)
                                      for level, sets, kind, size, cpus in (
                                          (1, 64, "Data", "32K", "0"), (2, 1024, "Unified", "1024K", "0-1"))),
        SAMPLE_TIME: o.u64(1000000000, 1000009000),
        MEM_TOPOLOGY: o.u64(1, 0x8000000, 1, 0, 70, 70, (1 << 64) - 1, 0x3F),
        CLOCKID: o.u64(1),
        BPF_PROG_INFO: o.u32(1) + o.u32(len(prog_info), 24) + o.u64(3) + prog_info + bytes(24),
        BPF_BTF: o.u32(1) + o.u32(7, len(btf) + 1) + btf + b"\0",
        COMPRESSED: compressed(o),
        CPU_PMU_CAPS: pairs(capabilities),
        CLOCK_DATA: o.u32(1, 1) + o.u64(1700000000000000000, 1000000000),
        HYBRID_TOPOLOGY: o.u32(2) + o.string("cpu_core") + o.string("0") + o.string("cpu_atom") + o.string("1"),
        PMU_CAPS: o.u32(2) + pairs(capabilities) + o.string("cpu_core") + pairs(capabilities[:1]) + o.string("cpu_atom"),
        CPU_DOMAIN_INFO: o.u32(17, 1) + b"".join(
            o.u32(cpu, 1) + o.u32(0) + o.string("MC") + o.string("3") + o.string("0-1") for cpu in (0, 1)),
        E_MACHINE: o.u32(62 if not o.big else 22, 0),
        CLN_SIZE: o.u32(64),
    }
