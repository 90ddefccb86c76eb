"""Tracepoints of the scheduler, with the formats of kernels that have CONFIG_SCHEDSTATS."""
from . import features as F
from .common import START, add, group
from .perfdata import BOTH, CALLCHAIN, CPU, Event, File, ID, IP, LE, PERIOD, RAW, Records, TID, TIME, attr_record, feature_record, pad8, pipe

COMMON = (("unsigned short", "common_type", 2), ("unsigned char", "common_flags", 1),
          ("unsigned char", "common_preempt_count", 1), ("int", "common_pid", 4))
SWITCH = (("char", "prev_comm[16]", 16), ("pid_t", "prev_pid", 4), ("int", "prev_prio", 4), ("long", "prev_state", 8),
          ("char", "next_comm[16]", 16), ("pid_t", "next_pid", 4), ("int", "next_prio", 4))
EXIT = (("char", "comm[16]", 16), ("pid_t", "pid", 4), ("int", "prio", 4))
SLEEP = (("char", "comm[16]", 16), ("pid_t", "pid", 4), ("u64", "delay", 8))
IDS = {"sched_switch": 316, "sched_process_exit": 317, "sched_stat_sleep": 318}


def form(name, fields):
    """The file `format` of a tracepoint."""
    lines, at = [], 0
    for kind, declared, size in COMMON + fields:
        at += -at % size if "[" not in declared else 0
        lines.append(f"\tfield:{kind} {declared};\toffset:{at};\tsize:{size};\tsigned:0;\n")
        at += size
        if declared == "common_pid":
            lines.append("\n")
    return f"name: {name}\nID: {IDS[name]}\nformat:\n{''.join(lines)}\nprint fmt: \"pid=%d\", REC->common_pid\n".encode()


def comm(pid):
    return f"task-{pid}".encode().ljust(16, b"\0")


class Scheduler:
    """Two CPUs, and a buffer for each."""

    def __init__(self, o, stat_chain):
        def event(name, first, chain=True):
            return Event(o, f"sched:{name}", (first, first + 1), type=2, config=IDS[name], period=1, size=112,
                         sample_type=IP | TID | TIME | ID | CPU | PERIOD | RAW | (CALLCHAIN if chain else 0))
        self.o = o
        self.stat = event("sched_stat_sleep", 21, stat_chain)
        self.switched = event("sched_switch", 23)
        self.exited = event("sched_process_exit", 25)
        self.events = [self.stat, self.switched, self.exited]
        self.r = Records(self.stat)
        self.buffers = [[], []]

    def put(self, cpu, event, at, tid, body, **more):
        raw = self.o.u16(event.config) + bytes(2) + self.o.u32(tid) + body
        self.buffers[cpu].append(event.sample(ip=0xFFFFFFFF81000000 + at, pid=tid, tid=tid, time=START + at, cpu=cpu,
                                              id=event.ids[cpu], raw=raw, misc=1, **more))

    def switch(self, cpu, at, prev, next, state=1):
        o = self.o
        chain = ((1 << 64) - 128, 0xFFFFFFFF81000000 + at, (1 << 64) - 512, 0x401000 + prev)
        self.put(cpu, self.switched, at, prev, comm(prev) + o.u32(prev, 120) + o.u64(state) + comm(next) + o.u32(next, 120),
                 chain=chain)

    def sleep(self, cpu, at, waker, pid, delay):
        self.put(cpu, self.stat, at, waker, comm(pid) + self.o.u32(pid) + bytes(4) + self.o.u64(delay), period=delay)

    def exit(self, cpu, at, tid):
        self.put(cpu, self.exited, at, tid, comm(tid) + self.o.u32(tid, 120))

    def fork(self, cpu, at, tid):
        self.buffers[cpu].append(self.r.fork(pid=tid, tid=tid, ppid=100, time=START + at, cpu=cpu, id=self.stat.ids[cpu]))

    def features(self):
        forms = (form("sched_switch", SWITCH), form("sched_process_exit", EXIT), form("sched_stat_sleep", SLEEP))
        return {**F.basic(self.o, self.events), F.TRACING_DATA: F.tracing_data(self.o, "sched", forms)}

    def records(self):
        return self.r.start() + b"".join(self.buffers[0]) + b"".join(self.buffers[1]) + self.o.rec(68)


def story(o, stat_chain=True, fork=False):
    """What happens, in the order of time; the buffer of CPU 0 stands before that of CPU 1."""
    s = Scheduler(o, stat_chain)
    s.switch(0, 1000, 101, 0)
    s.switch(1, 1500, 102, 0)
    s.sleep(1, 4000, 104, 101, 3000)
    s.switch(0, 4500, 0, 101, state=0)
    s.sleep(0, 5000, 101, 102, 3500)
    s.switch(1, 5200, 0, 102, state=0)
    s.sleep(0, 5500, 101, 103, 900)  # nobody saw it go
    s.switch(0, 6000, 101, 103, state=0)  # preempted
    s.sleep(1, 6500, 102, 101, 400)
    s.switch(0, 7000, 103, 101, state=2)
    s.exit(0, 8000, 101)
    s.sleep(1, 8500, 102, 101, 100)  # of a task that has ended
    s.switch(0, 9000, 101, 0, state=0x20)
    if fork:
        s.fork(1, 9500, 101)  # another task of this number
        s.sleep(1, 9800, 102, 101, 50)
    return s


def scheduler():
    group("Tracepoints of the scheduler")
    for o in BOTH:
        s = story(o)
        add(f"sched-stat-{o.tag}", File(o, s.events, s.records(), s.features()).build(),
            "sched_stat_sleep with the fields of older kernels; the buffers of two CPUs, one behind the other")
    s = story(LE, stat_chain=False, fork=True)
    add("sched-stat-mixed-le", File(LE, s.events, s.records(), s.features()).build(),
        "the same, but sched_stat_sleep has no call chain, and a new task gets the number of an old one")
    features = s.features()
    blob = pad8(features.pop(F.TRACING_DATA))
    s = story(LE)
    add("sched-stat-pipe-le", pipe(LE, *(attr_record(e) for e in s.events),
                                   *(feature_record(LE, bit, features[bit]) for bit in (F.ARCH, F.NRCPUS)),
                                   LE.rec(66, LE.u32(len(blob), 0)), blob, s.records()), "the same in a pipe")
