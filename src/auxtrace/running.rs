//! Which thread ran on each CPU at each time, as the switches that a decoder needs.

use std::collections::HashMap;

use perfx_format::record::aux::Auxtrace;
use perfx_model::spe::TaskChange;
use perfx_trace::{Space, Switch};

use crate::clock::Clock;
use crate::sched_switch::Switched;

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
    /// The thread that ran before, if the record says it.
    from: Option<u32>,
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
                self.runs.push(Run { time, cpu, task: Task { pid, tid }, from: None });
            }
        }
    }

    /// A thread of any process runs from a time on.
    pub(crate) fn learn_switch(&mut self, Switched { cpu, from, to }: Switched, time: u64) {
        self.runs.push(Run { time, cpu, task: Task { pid: Auxtrace::ANY, tid: to }, from: Some(from) });
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
        for Run { time, cpu, task, from } in runs {
            let key = (task.tid, if task.tid == 0 { cpu } else { Auxtrace::ANY });
            let known = stays.get(&key).filter(|(on, stay)| *on == cpu && ran.tasks[*stay as usize] == task);
            let stay = known.map(|(_, stay)| *stay).unwrap_or_else(|| ran.add(task));
            stays.insert(key, (cpu, stay));
            let switches = ran.switches.entry(cpu).or_default();
            let space = Some(Space(stay));
            // If the switch to the thread that ran before is missing, as in a recording that was cut, it is not known from
            // when on that one ran.
            if let (Some(from), Some(last)) = (from, switches.last_mut())
                && last.space.is_some_and(|Space(last)| ran.tasks[last as usize].tid != from)
            {
                last.space = None;
            }
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

#[cfg(test)]
mod tests {
    use super::*;

    /// The thread before was taken for the one that ran: its code was decoded, and it was another's.
    #[test]
    fn a_switch_from_another_thread_than_the_last_one_leaves_it_unknown() {
        let mut running = Running::default();
        running.learn(TaskChange::Runs { cpu: 0, pid: 7, tid: 7 }, 10);
        running.learn_switch(Switched { cpu: 0, from: 8, to: 7 }, 20);
        running.learn_switch(Switched { cpu: 0, from: 7, to: 0 }, 30);
        let mut ran = running.done(&Clock { conv: None });
        let tids = ran.switches(0, 7).into_iter().map(|switch| Some(ran.tasks[switch.space?.0 as usize].tid));
        assert_eq!(tids.collect::<Vec<_>>(), [None, Some(7), Some(0)]);
    }
}
