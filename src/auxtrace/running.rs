//! The thread on each CPU at each time, as the switches that a decoder needs.

use std::collections::{BTreeMap, HashMap};

use perfx_format::record::aux::{AuxOwner, Auxtrace};
use perfx_model::address_space::Machine;
use perfx_model::spe::TaskChange;
use perfx_trace::{Space, Switch, Switches};

use crate::clock::Clock;
use crate::sched_switch::Switched;

/// A thread, while it stays on one CPU.
///
/// A thread that moves to another CPU, or back, gets another [`Space`]: the trace of a CPU is contiguous for
/// a thread only while that runs nowhere else.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub struct Task {
    /// The process, or [`Auxtrace::ANY`].
    pub pid: u32,
    /// The thread, or [`Auxtrace::ANY`].
    pub tid: u32,
    /// The CPU of the guest that it runs on; `None` on the host.
    pub vcpu: Option<Vcpu>,
}

/// A CPU of a guest.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
pub struct Vcpu {
    /// The process of the host that runs the guest.
    pub machine_pid: u32,
    /// Its number.
    pub number: u32,
    /// Its thread on the host.
    pub tid: u32,
}

impl Task {
    /// A thread that no record names.
    pub const UNKNOWN: Task = Task { pid: Auxtrace::ANY, tid: Auxtrace::ANY, vcpu: None };

    pub(crate) fn of_host(pid: u32, tid: u32) -> Task {
        Task { pid, tid, vcpu: None }
    }

    /// The machine of the thread.
    pub fn machine(&self) -> Machine {
        self.vcpu.map_or(Machine::Host, |vcpu| Machine::Guest(vcpu.machine_pid))
    }
}

#[derive(Debug, Default)]
pub(crate) struct Running {
    runs: Vec<Run>,
    /// The first thread that left each CPU, and when.
    left: BTreeMap<u32, (u64, Task)>,
    processes: HashMap<u32, u32>,
    /// VCPUs by thread, and by machine and number.
    vcpus: HashMap<u32, Vcpu>,
    numbered: HashMap<(u32, u32), Vcpu>,
}

#[derive(Clone, Copy, Debug)]
struct Run {
    time: u64,
    /// The CPU of the host. Threads of a guest are placed by their VCPU instead.
    cpu: u32,
    task: Task,
    /// The thread that ran before, if recorded.
    from: Option<u32>,
}

/// The threads that ran, by the number of their [`Space`].
#[derive(Debug, Default)]
pub(crate) struct Ran {
    pub(crate) tasks: Vec<Task>,
    /// For each CPU, and for threads with buffers of their own.
    switches: HashMap<AuxOwner, Switches>,
    processes: HashMap<u32, u32>,
    vcpus: HashMap<u32, Vcpu>,
    /// The tasks that ran on each VCPU, with the tick of each switch.
    of_guests: HashMap<Vcpu, Vec<(u64, Task)>>,
}

impl Running {
    pub(crate) fn learn(&mut self, change: TaskChange, time: u64) {
        match change {
            TaskChange::Belongs { pid, tid } => drop(self.processes.insert(tid, pid)),
            TaskChange::Runs { cpu, pid, tid } => {
                self.processes.insert(tid, pid);
                self.runs.push(Run { time, cpu, task: Task::of_host(pid, tid), from: None });
            }
        }
    }

    /// Takes in a thread of the host that is a VCPU.
    pub(crate) fn learn_vcpu(&mut self, vcpu: Vcpu) {
        self.vcpus.insert(vcpu.tid, vcpu);
        self.numbered.insert((vcpu.machine_pid, vcpu.number), vcpu);
    }

    /// Takes in a change reported by a record of a guest, whose event counts on this VCPU.
    pub(crate) fn learn_guest(&mut self, change: TaskChange, (machine_pid, number): (u32, u32), time: u64) {
        let vcpu = self.numbered.get(&(machine_pid, number));
        if let (TaskChange::Runs { cpu, pid, tid }, Some(&vcpu)) = (change, vcpu) {
            self.runs.push(Run { time, cpu, task: Task { pid, tid, vcpu: Some(vcpu) }, from: None });
        }
    }

    /// A thread of any process runs from a time on.
    pub(crate) fn learn_switch(&mut self, Switched { cpu, from, to }: Switched, time: u64) {
        self.learn_left(cpu, Task::of_host(Auxtrace::ANY, from), time);
        self.runs.push(Run { time, cpu, task: Task::of_host(Auxtrace::ANY, to), from: Some(from) });
    }

    pub(crate) fn learn_left(&mut self, cpu: u32, task: Task, time: u64) {
        let first = self.left.entry(cpu).or_insert((time, task));
        if time < first.0 {
            *first = (time, task);
        }
    }

    pub(crate) fn done(self, clock: &Clock) -> Ran {
        let Running { mut runs, mut left, processes, vcpus, .. } = self;
        // If the first switch on a CPU is a switch-out, that thread ran there from the beginning.
        for run in runs.iter().filter(|run| run.task.vcpu.is_none()) {
            if left.get(&run.cpu).is_some_and(|(time, _)| *time > run.time) {
                left.remove(&run.cpu);
            }
        }
        let first = left.iter().map(|(cpu, (_, task))| Run { time: 0, cpu: *cpu, task: *task, from: None });
        runs.extend(first);
        let is_unknown = |task: Task| task.pid == Auxtrace::ANY && task.vcpu.is_none();
        for Run { task, .. } in runs.iter_mut().filter(|run| is_unknown(run.task)) {
            task.pid = if task.tid == 0 { 0 } else { *processes.get(&task.tid).unwrap_or(&Auxtrace::ANY) };
        }
        runs.sort_by_key(|run| run.time);
        let mut ran = Ran { processes, vcpus, ..Ran::default() };
        let (mut stays, mut switches) = (Stays::default(), HashMap::<u32, Vec<Switch>>::new());
        // The thread on each CPU, and the CPU of each VCPU thread.
        let mut hosts: HashMap<u32, Task> = HashMap::new();
        let mut places: HashMap<u32, u32> = HashMap::new();
        for Run { time, cpu, task, from } in runs {
            let ticks = if time == 0 { 0 } else { clock.ticks(time) };
            let (cpu, host) = match task.vcpu {
                Some(vcpu) => {
                    ran.of_guests.entry(vcpu).or_default().push((ticks, task));
                    let Some(cpu) = places.get(&vcpu.tid) else { continue };
                    (*cpu, hosts[cpu])
                }
                None => {
                    // The thread may already run elsewhere.
                    if let Some(before) = hosts.insert(cpu, task)
                        && places.get(&before.tid) == Some(&cpu)
                    {
                        places.remove(&before.tid);
                    }
                    if ran.vcpus.contains_key(&task.tid) {
                        places.insert(task.tid, cpu);
                    }
                    (cpu, task)
                }
            };
            let space = Some(Space(stays.of(host, cpu, &mut ran)));
            let guest = ran.guest_of(host.tid).map(|guest| Space(stays.of(guest, cpu, &mut ran)));
            let switches = switches.entry(cpu).or_default();
            // If the switch to the previous thread is missing, as in a cut recording, its start is unknown.
            if let (Some(from), Some(last)) = (from, switches.last_mut())
                && last.space.is_some_and(|Space(last)| ran.tasks[last as usize].tid != from)
            {
                (last.space, last.guest) = (None, None);
            }
            if switches.last().is_none_or(|last| (last.space, last.guest) != (space, guest)) {
                switches.push(Switch { time: ticks, space, guest });
            }
        }
        ran.switches =
            switches.into_iter().map(|(cpu, switches)| (AuxOwner::Cpu(cpu), switches.into())).collect();
        ran
    }
}

/// The CPU on which each thread ran last, and the number of that stay.
#[derive(Default)]
struct Stays(HashMap<(Option<u32>, u32, u32), (u32, u32)>);

impl Stays {
    fn of(&mut self, task: Task, cpu: u32, ran: &mut Ran) -> u32 {
        // Each CPU has an idle thread 0.
        let own = if task.tid == 0 { task.vcpu.map_or(cpu, |vcpu| vcpu.number) } else { Auxtrace::ANY };
        let key = (task.vcpu.map(|vcpu| vcpu.machine_pid), task.tid, own);
        let known = self.0.get(&key).filter(|(on, stay)| *on == cpu && ran.tasks[*stay as usize] == task);
        let stay = known.map(|(_, stay)| *stay).unwrap_or_else(|| ran.add(task));
        self.0.insert(key, (cpu, stay));
        stay
    }
}

impl Ran {
    fn add(&mut self, task: Task) -> u32 {
        self.tasks.push(task);
        (self.tasks.len() - 1) as u32
    }

    /// The last task on the VCPU that is this thread; `None` if it is no VCPU.
    fn guest_of(&self, tid: u32) -> Option<Task> {
        let vcpu = *self.vcpus.get(&tid)?;
        let known = self.of_guests.get(&vcpu).and_then(|runs| runs.last()).map(|(_, task)| *task);
        Some(known.unwrap_or(Task { vcpu: Some(vcpu), ..Task::UNKNOWN }))
    }

    /// The threads that records name, each with a space.
    pub(crate) fn spaces(&mut self) -> HashMap<u32, Space> {
        let mut known: Vec<_> = self.processes.iter().map(|(tid, pid)| Task::of_host(*pid, *tid)).collect();
        known.sort_unstable_by_key(|task| task.tid);
        known.into_iter().map(|task| (task.tid, Space(self.add(task)))).collect()
    }

    pub(crate) fn switches(&mut self, cpu: u32, tid: u32) -> Switches {
        let owner = AuxOwner::of(cpu, tid);
        if let Some(known) = self.switches.get(&owner) {
            return known.clone();
        }
        let AuxOwner::Thread(tid) = owner else { return Switches::default() };
        let pid = self.processes.get(&tid).copied().unwrap_or(Auxtrace::ANY);
        let space = Some(Space(self.add(Task::of_host(pid, tid))));
        let mut switches = vec![Switch { time: 0, space, guest: None }];
        if let Some(&vcpu) = self.vcpus.get(&tid) {
            let unknown = (0, Task { vcpu: Some(vcpu), ..Task::UNKNOWN });
            let runs = self.of_guests.remove(&vcpu).unwrap_or_default();
            let runs = std::iter::once(unknown).chain(runs);
            switches =
                runs.map(|(time, task)| Switch { time, space, guest: Some(Space(self.add(task))) }).collect();
        }
        self.switches.entry(owner).or_insert(switches.into()).clone()
    }
}

#[cfg(test)]
mod tests {
    use perfx_format::record::time_conv::TimeConv;

    use super::*;

    /// The code of the thread before used to be decoded for the one that ran.
    #[test]
    fn a_switch_from_another_thread_than_the_last_one_leaves_it_unknown() {
        let mut running = Running::default();
        running.learn(TaskChange::Runs { cpu: 0, pid: 7, tid: 7 }, 10);
        running.learn_switch(Switched { cpu: 0, from: 8, to: 7 }, 20);
        running.learn_switch(Switched { cpu: 0, from: 7, to: 0 }, 30);
        let mut ran = running.done(&Clock { conv: None });
        let switches = ran.switches(0, 7);
        let tids = switches.iter().map(|switch| Some(ran.tasks[switch.space?.0 as usize].tid));
        assert_eq!(tids.collect::<Vec<_>>(), [None, Some(7), Some(0)]);
    }

    /// The branches of the first thread in a buffer used to be lost.
    #[test]
    fn the_thread_that_leaves_a_cpu_first_ran_there_from_the_beginning() {
        let mut running = Running::default();
        running.learn_left(0, Task::of_host(5, 6), 20);
        running.learn(TaskChange::Runs { cpu: 0, pid: 7, tid: 7 }, 20);
        running.learn_left(0, Task::of_host(7, 7), 30);
        running.learn(TaskChange::Runs { cpu: 1, pid: 7, tid: 7 }, 10);
        running.learn_left(1, Task::of_host(7, 7), 30);
        // Only one leaves this CPU.
        running.learn_left(2, Task::of_host(9, 9), 40);
        let conv = TimeConv { shift: 0, mult: 1, zero: 5, short: None, can_convert: true };
        let mut ran = running.done(&Clock { conv: Some(conv) });
        let mut list = |cpu| -> Vec<_> {
            let switches = ran.switches(cpu, Auxtrace::ANY);
            switches.iter().map(|at| (at.time, ran.tasks[at.space.unwrap().0 as usize].tid)).collect()
        };
        assert_eq!(list(0), [(0, 6), (15, 7)]);
        assert_eq!(list(1), [(5, 7)]);
        assert_eq!(list(2), [(0, 9)]);
    }

    #[test]
    fn what_runs_in_a_guest_goes_with_the_thread_that_is_its_cpu() {
        let mut running = Running::default();
        let vcpu = |number, tid| Vcpu { machine_pid: 7, number, tid };
        [vcpu(0, 70), vcpu(1, 71)].into_iter().for_each(|vcpu| running.learn_vcpu(vcpu));
        let runs = |cpu, tid| TaskChange::Runs { cpu, pid: 7, tid };
        running.learn(runs(0, 70), 10);
        running.learn_guest(runs(0, 500), (7, 0), 20);
        // That VCPU does not run now; a VCPU of another guest is unknown.
        running.learn_guest(runs(0, 600), (7, 1), 30);
        running.learn_guest(runs(0, 900), (8, 0), 30);
        running.learn(runs(0, 71), 40);
        running.learn(runs(0, 70), 50);
        // The first one continues on another CPU; the record that it left the one before is missing.
        running.learn(runs(1, 70), 60);
        running.learn(runs(0, 8), 65);
        running.learn_guest(runs(1, 0), (7, 0), 70);
        let conv = TimeConv { shift: 0, mult: 1, zero: 0, short: None, can_convert: true };
        let mut ran = running.done(&Clock { conv: Some(conv) });
        let mut list = |cpu, tid| -> Vec<_> {
            let switches = ran.switches(cpu, tid);
            let name = |ran: &Ran, space: Option<Space>| space.map(|space| ran.tasks[space.0 as usize].tid);
            switches.iter().map(|at| (at.time, name(&ran, at.space), name(&ran, at.guest))).collect()
        };
        let unknown = Some(Auxtrace::ANY);
        let first = [
            (10, Some(70), unknown),
            (20, Some(70), Some(500)),
            (40, Some(71), Some(600)),
            (50, Some(70), Some(500)),
            (65, Some(8), None),
        ];
        assert_eq!(list(0, Auxtrace::ANY), first);
        assert_eq!(list(1, Auxtrace::ANY), [(60, Some(70), Some(500)), (70, Some(70), Some(0))]);
        let own = [(0, Some(70), unknown), (20, Some(70), Some(500)), (70, Some(70), Some(0))];
        assert_eq!(list(Auxtrace::ANY, 70), own);
        assert_eq!(list(Auxtrace::ANY, 9), [(0, Some(9), None)]);
    }

    /// 2.5 MB of a file with thousands of buffers of one CPU or thread used to take 7 GB of memory.
    #[test]
    fn buffers_share_their_switches() {
        let mut running = Running::default();
        running.learn_vcpu(Vcpu { machine_pid: 7, number: 0, tid: 70 });
        running.learn(TaskChange::Runs { cpu: 0, pid: 7, tid: 70 }, 10);
        running.learn_guest(TaskChange::Runs { cpu: 0, pid: 5, tid: 500 }, (7, 0), 20);
        let mut ran = running.done(&Clock { conv: None });
        for (cpu, tid) in [(0, Auxtrace::ANY), (Auxtrace::ANY, 70)] {
            let (one, another) = (ran.switches(cpu, tid), ran.switches(cpu, tid));
            assert_eq!((one.len(), one.as_ptr()), (2, another.as_ptr()));
        }
    }
}
