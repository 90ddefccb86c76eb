//! Which tasks there were, from when until when, whose children they are and what they were called, asked in any order.

use std::borrow::Cow;
use std::collections::{BTreeMap, HashMap};

use perfx_format::{Kinds, Layouts, Record, RecordType, until_nul};
use perfx_pipeline::address_space::{KERNEL, Machine, Space, moment, name_of_nameless};

use crate::support::hits::Guests;

/// What FORK, EXIT and COMM records say, in file order; [`Tasks::new`] sorts it by time.
#[derive(Debug, Default)]
pub(super) struct TaskChanges {
    births: Vec<(Who, u64, u32)>,
    deaths: Vec<(Who, u64, bool)>,
    names: Vec<(Who, u64, Name)>,
}

/// A process or thread. Batches are looked at in any order, so which guest a guest's event id means is known only when all have been.
#[derive(Clone, Copy, Debug)]
pub(super) struct Who {
    number: u32,
    guest: Option<Option<u64>>,
}

impl Who {
    /// The process or thread `number`, on the machine where `record` happened.
    pub(super) fn of(record: &Record<'_>, layouts: &Layouts, number: u32) -> Who {
        let guest = matches!(record.cpumode(), 4 | 5);
        let id = || layouts.layout_of(record).and_then(|layout| layout.id(record));
        Who { number, guest: guest.then(id) }
    }

    pub(super) fn space(self, guests: &Guests) -> Space {
        let machine = match self.guest {
            None => Machine::Host,
            Some(id) => guests.of_id(id, Some(self.number)),
        };
        Space { machine, pid: self.number }
    }
}

#[derive(Debug)]
enum Name {
    /// COMM.
    Given(Box<[u8]>),
    /// FORK: that of the parent thread at that time.
    Inherited(u32),
}

/// How many forks back a name is looked for.
const GENERATIONS: usize = 1024;

/// COMM: u32 pid, u32 tid, name. FORK and EXIT: u32 pid, u32 ppid, u32 tid, u32 ptid, u64 time (perf_event_open(2)).
const COMM_NAME: usize = 16;

impl TaskChanges {
    pub(super) fn kinds() -> Kinds {
        Kinds::of(&[RecordType::FORK, RecordType::EXIT, RecordType::COMM])
    }

    /// What threads were called.
    pub(super) fn names(&self) -> impl Iterator<Item = &[u8]> {
        self.names.iter().filter_map(|(_, _, name)| match name {
            Name::Given(name) => Some(&**name),
            Name::Inherited(_) => None,
        })
    }

    /// The threads that were given a name, and the last one each got.
    pub(super) fn pids(&self) -> BTreeMap<u32, &[u8]> {
        let named = self.names.iter().filter_map(|(who, _, name)| match name {
            Name::Given(name) => Some((who.number, &**name)),
            Name::Inherited(_) => None,
        });
        named.collect()
    }

    /// A record of these kinds.
    pub(super) fn add(&mut self, record: &Record<'_>, layouts: &Layouts) -> Option<()> {
        let layout = layouts.layout_of(record);
        let time = moment(record, layout, layouts);
        let pid = record.u32(8)?;
        let process = Who::of(record, layouts, pid);
        if record.kind() == RecordType::COMM {
            let trailer = layout.map_or(0, |layout| usize::from(layout.trailer.size));
            let end = record.bytes().len().saturating_sub(trailer).max(COMM_NAME);
            let name = until_nul(record.bytes().get(COMM_NAME..end)?);
            let thread = Who { number: record.u32(12)?, ..process };
            self.names.push((thread, time, Name::Given(name.into())));
            return Some(());
        }
        let (ppid, tid, ptid) = (record.u32(12)?, record.u32(16)?, record.u32(20)?);
        let time = record.u64(24).filter(|_| layouts.has_time()).unwrap_or(time);
        if record.kind() == RecordType::EXIT {
            self.deaths.push((process, time, pid == tid));
            return Some(());
        }
        self.names.push((Who { number: tid, ..process }, time, Name::Inherited(ptid)));
        if pid != ppid {
            self.births.push((process, time, ppid));
        }
        Some(())
    }

    /// Takes in those of a batch that follows.
    pub(super) fn join(&mut self, later: TaskChanges) {
        self.births.extend(later.births);
        self.deaths.extend(later.deaths);
        self.names.extend(later.names);
    }
}

/// One of the processes that had a pid, one after another.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
pub(super) struct Process {
    pub(super) space: Space,
    life: u32,
}

#[derive(Clone, Copy, Debug)]
struct Life {
    birth: u64,
    /// Of its last thread; `u64::MAX` while it lives.
    death: u64,
    parent: Option<u32>,
}

/// All tasks.
#[derive(Debug, Default)]
pub(super) struct Tasks {
    lives: HashMap<Space, Vec<Life>>,
    /// By thread, whose tid stands for the pid.
    names: HashMap<Space, Vec<(u64, Name)>>,
}

impl Tasks {
    pub(super) fn new(changes: TaskChanges, guests: &Guests) -> Tasks {
        let mut tasks = Tasks::default();
        let births = changes.births.into_iter().map(|(who, time, parent)| (who.space(guests), time, parent));
        let mut births: Vec<_> = births.collect();
        births.sort_by_key(|&(space, time, _)| (space, time));
        for (space, birth, parent) in births {
            let lives = tasks.lives.entry(space).or_default();
            if lives.is_empty() && birth > 0 {
                // Somebody may have had the pid before.
                lives.push(Life { birth: 0, death: birth, parent: None });
            }
            if let Some(last) = lives.last_mut() {
                last.death = last.death.min(birth);
            }
            lives.push(Life { birth, death: u64::MAX, parent: Some(parent) });
        }
        let deaths = changes.deaths.into_iter().map(|(who, time, leader)| (who.space(guests), time, leader));
        let mut deaths: Vec<_> = deaths.collect();
        deaths.sort_by_key(|&(space, time, _)| (space, time));
        for deaths in deaths.chunk_by(|a, b| a.0 == b.0) {
            let Some(&(space, ..)) = deaths.first() else { continue };
            let lives = tasks
                .lives
                .entry(space)
                .or_insert_with(|| vec![Life { birth: 0, death: u64::MAX, parent: None }]);
            for (number, life) in lives.iter_mut().enumerate() {
                let inside = deaths.iter().filter(|&&(_, time, _)| life.birth <= time && time <= life.death);
                // A thread that ends is no end of its process, unless the first one ended, too.
                let (last, leader) =
                    inside.fold((0, false), |(_, leader), &(_, time, this)| (time, leader || this));
                if leader || number == 0 && life.death < u64::MAX && last > 0 {
                    life.death = last;
                }
            }
        }
        for (who, time, name) in changes.names {
            let thread = who.space(guests);
            tasks.names.entry(thread).or_default().push((time, name));
        }
        // By time, and those of one time in file order.
        tasks.names.values_mut().for_each(|names| names.sort_by_key(|&(time, _)| time));
        tasks
    }

    /// Who had the pid at that time.
    pub(super) fn process(&self, space: Space, time: u64) -> Process {
        let life = match self.lives.get(&space) {
            Some(lives) => lives.partition_point(|life| life.birth <= time).saturating_sub(1) as u32,
            None => 0,
        };
        Process { space, life }
    }

    fn life(&self, process: Process) -> Option<&Life> {
        self.lives.get(&process.space)?.get(process.life as usize)
    }

    /// The process it was forked from; what that had mapped by then, it has, too.
    pub(super) fn parent(&self, process: Process) -> Option<Process> {
        let life = self.life(process)?;
        let space = Space { pid: life.parent?, ..process.space };
        (space.pid != KERNEL).then(|| self.process(space, life.birth))
    }

    /// All processes that are known to have lived at some time of `start..stop`.
    pub(super) fn living(&self, start: u64, stop: u64) -> impl Iterator<Item = Process> + use<'_> {
        self.lives.iter().flat_map(move |(&space, lives)| {
            let numbered = (0..).zip(lives);
            let living = numbered.filter(move |(_, life)| life.birth < stop && life.death >= start);
            living.map(move |(life, _)| Process { space, life })
        })
    }

    /// Nothing is known of its birth or end.
    pub(super) fn is_timeless(&self, process: Process) -> bool {
        !self.lives.contains_key(&process.space)
    }

    /// What perf calls the thread then.
    pub(super) fn name(&self, machine: Machine, tid: u32, time: u64) -> Cow<'_, [u8]> {
        self.given(machine, tid, time).map_or_else(|| name_of_nameless(tid).into(), Cow::Borrowed)
    }

    fn given(&self, machine: Machine, tid: u32, time: u64) -> Option<&[u8]> {
        let (mut tid, mut time) = (tid, time);
        for _ in 0..GENERATIONS {
            let names = self.names.get(&Space { machine, pid: tid })?;
            let (since, name) =
                names.get(names.partition_point(|&(since, _)| since <= time).checked_sub(1)?)?;
            match name {
                Name::Given(name) => return Some(name),
                // Its own entry of that time must not be found again.
                Name::Inherited(parent) if *parent != tid => (tid, time) = (*parent, *since),
                Name::Inherited(_) => return None,
            }
        }
        None
    }
}
