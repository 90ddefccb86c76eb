//! Tracks the thread on each CPU, from decoded or else SWITCH records, and the process of each thread.

use std::collections::HashMap;

use perfx_format::record::aux::Auxtrace;
use perfx_format::{Kinds, Layouts, Record, SWITCH_OUT, named_task, next_task};

/// The contents of a record about threads.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum TaskChange {
    /// A thread belongs to a process.
    Belongs {
        /// The process.
        pid: u32,
        /// The thread.
        tid: u32,
    },
    /// A SWITCH record: a thread runs on a CPU from now on.
    Runs {
        /// The CPU.
        cpu: u32,
        /// The process.
        pid: u32,
        /// The thread.
        tid: u32,
    },
}

impl TaskChange {
    /// The kinds of records about threads.
    pub const KINDS: Kinds = Kinds::NAMING_TASK.union(Kinds::SWITCHES);

    /// The change in a record of the host.
    pub fn of(record: &Record<'_>, layouts: &Layouts) -> Option<TaskChange> {
        if record.is_of_guest() { None } else { TaskChange::of_any(record, layouts) }
    }

    /// The change in a record of the host or of a guest: the CPU is that of the host.
    pub fn of_any(record: &Record<'_>, layouts: &Layouts) -> Option<TaskChange> {
        if !Kinds::SWITCHES.contains(record.kind()) {
            return named_task(record).map(|(pid, tid)| TaskChange::Belongs { pid, tid });
        }
        let layout = layouts.layout_of(record)?;
        let cpu = layout.cpu(record)?;
        let enters = (record.misc() & SWITCH_OUT == 0).then(|| layout.pid_tid(record));
        let (pid, tid) = next_task(record).or(enters.flatten())?;
        Some(TaskChange::Runs { cpu, pid, tid })
    }

    /// The CPU that a thread leaves according to a SWITCH record, with its process and the thread.
    pub fn left(record: &Record<'_>, layouts: &Layouts) -> Option<(u32, u32, u32)> {
        let is_switch = Kinds::SWITCHES.contains(record.kind());
        let layout = layouts.layout_of(record).filter(|_| is_switch && record.misc() & SWITCH_OUT != 0)?;
        let (pid, tid) = layout.pid_tid(record)?;
        Some((layout.cpu(record)?, pid, tid))
    }
}

/// The current threads. Calls must be in the order of time.
#[derive(Debug, Default)]
pub struct Running {
    running: HashMap<u32, u32>,
    processes: HashMap<u32, u32>,
    /// Decoded records contained the current thread; SWITCH records are then ignored.
    has_context: bool,
}

impl Running {
    /// Applies a change.
    pub fn learn(&mut self, change: TaskChange) {
        match change {
            TaskChange::Belongs { pid, tid } => drop(self.processes.insert(tid, pid)),
            TaskChange::Runs { cpu, pid, tid } if !self.has_context => {
                self.running.insert(cpu, tid);
                self.processes.insert(tid, pid);
            }
            TaskChange::Runs { .. } => {}
        }
    }

    /// The process and thread of a decoded record, which itself names this CPU and thread, or neither. Each
    /// is [`Auxtrace::ANY`] if unknown.
    pub fn task(&mut self, cpu: u32, tid: u32) -> (u32, u32) {
        let mut tid = tid;
        if tid == Auxtrace::ANY {
            tid = self.running.get(&cpu).copied().unwrap_or(tid);
        } else if cpu != Auxtrace::ANY {
            self.running.insert(cpu, tid);
            self.has_context = true;
        }
        (self.processes.get(&tid).copied().unwrap_or(Auxtrace::ANY), tid)
    }
}
