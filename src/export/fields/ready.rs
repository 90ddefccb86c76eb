//! Named lists: the measures of `perfx list syscalls` and the like.

use super::{Column, Measure, Role};

/// A named list.
#[derive(Clone, Copy, Debug)]
pub struct Ready {
    /// Its name.
    pub name: &'static str,
    /// Its measures. Of several with the same title, the first whose tracepoints were recorded is listed.
    pub measures: &'static [Measure<'static>],
    /// The options of `perf record` that record the necessary tracepoints.
    pub record: &'static str,
    /// Rows may be of other threads than the sampled ones.
    pub is_of_others: bool,
}

const fn role<'a>(events: &'a str, key: &'a [&'a str]) -> Role<'a> {
    Role { events, key, only: None }
}

const fn of(from: &'static str, title: &'static str) -> Column<'static> {
    Column { from, title }
}

/// Threads that can run; preempted ones have a `+`.
const CAN_RUN: Option<(&str, &[&str])> = Some(("prev_state", &["R", "R+"]));

const SPAN: Measure<'_> = Measure {
    title: "",
    begin: &[],
    end: &[],
    reset: &[],
    by: &[],
    value: None,
    keeps_first: false,
    skips_idle: false,
};

/// A thread that is woken up before it leaves its CPU does not wait.
const WAIT: Measure<'_> = Measure {
    reset: &[role("sched:sched_switch", &["prev_pid"])],
    by: &[of("end.next_comm", "thread"), of("end.next_pid", "tid")],
    keeps_first: true,
    skips_idle: true,
    ..SPAN
};

/// All lists with names.
pub static READY: [Ready; 6] = [
    Ready {
        name: "syscalls",
        measures: &[
            Measure {
                title: "system calls",
                begin: &[role("raw_syscalls:sys_enter", &["sample.tid"])],
                end: &[role("raw_syscalls:sys_exit", &["sample.tid"])],
                by: &[of("syscall", "system call")],
                ..SPAN
            },
            Measure {
                title: "system calls",
                begin: &[role("syscalls:sys_enter_*", &["sample.tid"])],
                end: &[role("syscalls:sys_exit_*", &["sample.tid"])],
                by: &[of("syscall", "system call")],
                ..SPAN
            },
        ],
        record: "-e raw_syscalls:sys_enter,raw_syscalls:sys_exit",
        is_of_others: false,
    },
    Ready {
        name: "locks",
        measures: &[
            Measure {
                title: "waits for the kernel's locks, by caller",
                begin: &[role("lock:contention_begin", &["sample.tid", "lock_addr"])],
                end: &[role("lock:contention_end", &["sample.tid", "lock_addr"])],
                by: &[of("caller", "caller"), of("flags", "lock")],
                keeps_first: true,
                ..SPAN
            },
            Measure {
                title: "waits for the kernel's locks, by lock",
                begin: &[role("lock:contention_begin", &["sample.tid", "lock_addr"])],
                end: &[role("lock:contention_end", &["sample.tid", "lock_addr"])],
                by: &[of("lock_addr", "address"), of("flags", "lock")],
                keeps_first: true,
                ..SPAN
            },
        ],
        record: "-g -e lock:contention_begin,lock:contention_end",
        is_of_others: false,
    },
    Ready {
        name: "sched",
        measures: &[
            Measure {
                title: "waiting for a CPU",
                begin: &[
                    role("sched:sched_waking", &["pid"]),
                    role("sched:sched_wakeup_new", &["pid"]),
                    Role { events: "sched:sched_switch", key: &["prev_pid"], only: CAN_RUN },
                ],
                end: &[role("sched:sched_switch", &["next_pid"])],
                ..WAIT
            },
            Measure {
                title: "waiting for a CPU",
                begin: &[
                    role("sched:sched_wakeup", &["pid"]),
                    role("sched:sched_wakeup_new", &["pid"]),
                    Role { events: "sched:sched_switch", key: &["prev_pid"], only: CAN_RUN },
                ],
                end: &[role("sched:sched_switch", &["next_pid"])],
                ..WAIT
            },
            Measure {
                title: "running",
                begin: &[role("sched:sched_switch", &["next_pid"])],
                end: &[role("sched:sched_switch", &["prev_pid"])],
                by: &[of("end.prev_comm", "thread"), of("end.prev_pid", "tid")],
                skips_idle: true,
                ..SPAN
            },
            Measure {
                title: "wake-ups",
                begin: &[role("sched:sched_waking", &[])],
                by: &[of("comm", "thread"), of("sample.comm", "woken up by")],
                ..SPAN
            },
            Measure {
                title: "wake-ups",
                begin: &[role("sched:sched_wakeup", &[])],
                by: &[of("comm", "thread"), of("sample.comm", "woken up by")],
                ..SPAN
            },
        ],
        record: "-a -e sched:sched_switch,sched:sched_waking,sched:sched_wakeup_new",
        is_of_others: true,
    },
    Ready {
        name: "irqs",
        measures: &[
            Measure {
                title: "interrupts",
                begin: &[role("irq:irq_handler_entry", &["sample.cpu", "irq"])],
                end: &[role("irq:irq_handler_exit", &["sample.cpu", "irq"])],
                by: &[of("name", "interrupt"), of("irq", "number")],
                ..SPAN
            },
            Measure {
                title: "soft interrupts",
                begin: &[role("irq:softirq_entry", &["sample.cpu", "vec"])],
                end: &[role("irq:softirq_exit", &["sample.cpu", "vec"])],
                by: &[of("vec", "soft interrupt")],
                ..SPAN
            },
            Measure {
                title: "soft interrupts that wait",
                begin: &[role("irq:softirq_raise", &["sample.cpu", "vec"])],
                end: &[role("irq:softirq_entry", &["sample.cpu", "vec"])],
                by: &[of("vec", "soft interrupt")],
                keeps_first: true,
                ..SPAN
            },
            Measure {
                title: "work of kernel threads",
                begin: &[role("workqueue:workqueue_execute_start", &["work"])],
                end: &[role("workqueue:workqueue_execute_end", &["work"])],
                by: &[of("function", "function")],
                ..SPAN
            },
            Measure {
                title: "work that waits",
                begin: &[role("workqueue:workqueue_activate_work", &["work"])],
                end: &[role("workqueue:workqueue_execute_start", &["work"])],
                by: &[of("end.function", "function")],
                keeps_first: true,
                ..SPAN
            },
        ],
        record: "-a -e 'irq:*,workqueue:*'",
        is_of_others: false,
    },
    Ready {
        name: "io",
        measures: &[
            Measure {
                title: "block requests",
                begin: &[role("block:block_rq_issue", &["dev", "sector", "nr_sector"])],
                end: &[role("block:block_rq_complete", &["dev", "sector", "nr_sector"])],
                by: &[of("dev", "device"), of("rwbs", "kind")],
                ..SPAN
            },
            Measure {
                title: "block requests",
                begin: &[role("block:block_io_start", &["dev", "sector", "nr_sector"])],
                end: &[role("block:block_io_done", &["dev", "sector", "nr_sector"])],
                by: &[of("dev", "device"), of("rwbs", "kind")],
                ..SPAN
            },
            Measure {
                title: "bytes of block requests",
                begin: &[role("block:block_rq_issue", &[])],
                by: &[of("dev", "device"), of("rwbs", "kind")],
                value: Some("bytes"),
                ..SPAN
            },
        ],
        record: "-a -e block:block_rq_issue,block:block_rq_complete",
        is_of_others: false,
    },
    Ready {
        name: "kmem",
        measures: &[
            Measure {
                title: "bytes that the kernel allocated",
                begin: &[
                    role("kmem:kmalloc", &[]),
                    role("kmem:kmem_cache_alloc", &[]),
                    role("kmem:kmalloc_node", &[]),
                    role("kmem:kmem_cache_alloc_node", &[]),
                ],
                by: &[of("call_site", "caller")],
                value: Some("bytes_alloc"),
                ..SPAN
            },
            Measure {
                title: "page allocations",
                begin: &[role("kmem:mm_page_alloc", &[])],
                by: &[of("order", "order"), of("migratetype", "migrate type")],
                ..SPAN
            },
        ],
        record: "-e kmem:kmalloc,kmem:kmem_cache_alloc,kmem:mm_page_alloc",
        is_of_others: false,
    },
];

impl Ready {
    /// The list of this name.
    pub fn named(name: &str) -> Option<&'static Ready> {
        READY.iter().find(|ready| ready.name == name)
    }
}
