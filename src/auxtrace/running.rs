//! Which thread ran on each CPU at each time, as the switches that a decoder needs.

use std::collections::HashMap;

use perfx_format::record::aux::Auxtrace;
use perfx_model::spe::TaskChange;
use perfx_trace::{Space, Switch};

use crate::clock::Clock;

/// A thread, while it stays on one CPU.
///
/// A thread that comes to another CPU, or back to one, is another [`Space`]: what a CPU traced of it is contiguous
/// only while it ran nowhere else.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Task {
    /// The process.
    pub pid: u32,
    /// The thread.
    pub tid: u32,
}

/// What is learned about threads, in file order.
#[derive(Debug, Default)]
pub(crate) struct Running {
    runs: Vec<Run>,
    /// The process of each thread.
    processes: HashMap<u32, u32>,
}

/// From a time on a CPU runs a thread.
#[derive(Clone, Copy, Debug)]
struct Run {
    time: u64,
    cpu: u32,
    task: Task,
}

/// The threads that ran, by the number of their [`Space`].
#[derive(Debug, Default)]
pub(crate) struct Ran {
    pub(crate) tasks: Vec<Task>,
    /// For each CPU.
    switches: HashMap<u32, Vec<Switch>>,
    processes: HashMap<u32, u32>,
}

impl Running {
    /// Takes in what a record said at a time.
    pub(crate) fn learn(&mut self, change: TaskChange, time: u64) {
        match change {
            TaskChange::Belongs { pid, tid } => drop(self.processes.insert(tid, pid)),
            TaskChange::Runs { cpu, pid, tid } => {
                self.processes.insert(tid, pid);
                self.runs.push(Run { time, cpu, task: Task { pid, tid } });
            }
        }
    }

    /// A thread of any process runs from a time on.
    pub(crate) fn learn_next(&mut self, (cpu, tid): (u32, u32), time: u64) {
        self.runs.push(Run { time, cpu, task: Task { pid: Auxtrace::ANY, tid } });
    }

    /// Sorts what was learned.
    pub(crate) fn done(self, clock: &Clock) -> Ran {
        let Running { mut runs, processes } = self;
        for Run { task, .. } in runs.iter_mut().filter(|run| run.task.pid == Auxtrace::ANY) {
            task.pid = if task.tid == 0 { 0 } else { *processes.get(&task.tid).unwrap_or(&Auxtrace::ANY) };
        }
        runs.sort_by_key(|run| run.time);
        let mut ran = Ran { processes, ..Ran::default() };
        // The CPU on which a thread ran last, and the number of its stay there. Each CPU has an idle thread 0.
        let mut stays: HashMap<(u32, u32), (u32, u32)> = HashMap::new();
        for Run { time, cpu, task } in runs {
            let key = (task.tid, if task.tid == 0 { cpu } else { Auxtrace::ANY });
            let known = stays.get(&key).filter(|(on, stay)| *on == cpu && ran.tasks[*stay as usize] == task);
            let stay = known.map(|(_, stay)| *stay).unwrap_or_else(|| ran.add(task));
            stays.insert(key, (cpu, stay));
            let switches = ran.switches.entry(cpu).or_default();
            let space = Some(Space(stay));
            if switches.last().is_none_or(|last| last.space != space) {
                switches.push(Switch { time: clock.ticks(time), space });
            }
        }
        ran
    }
}

impl Ran {
    fn add(&mut self, task: Task) -> u32 {
        self.tasks.push(task);
        (self.tasks.len() - 1) as u32
    }

    /// The threads that records name, each as a space of its own.
    pub(crate) fn spaces(&mut self) -> HashMap<u32, Space> {
        let mut known: Vec<_> =
            self.processes.iter().map(|(tid, pid)| Task { pid: *pid, tid: *tid }).collect();
        known.sort_unstable_by_key(|task| task.tid);
        known.into_iter().map(|task| (task.tid, Space(self.add(task)))).collect()
    }

    /// The switches of a buffer.
    pub(crate) fn switches(&mut self, cpu: u32, tid: u32) -> Vec<Switch> {
        if cpu != Auxtrace::ANY {
            return self.switches.get(&cpu).cloned().unwrap_or_default();
        }
        let pid = self.processes.get(&tid).copied().unwrap_or(Auxtrace::ANY);
        vec![Switch { time: 0, space: Some(Space(self.add(Task { pid, tid }))) }]
    }
}
