//! Collects tasks with their lifetimes, parents, names and namespaces, for lookups in any order.

use std::borrow::Cow;
use std::collections::{BTreeMap, HashMap, HashSet};
use std::ops::Range;

use crate::address_space::{KERNEL, Key, Machine, Space, name_of_nameless};
use foldhash::fast::RandomState;
use perfx_format::record::namespaces::Namespaces;
use perfx_format::{Comm, Kinds, Layouts, OrderKey, Record, RecordType, Task, until_nul};

use crate::guests::Guests;

/// The contents of FORK, EXIT and COMM records, in file order; [`Tasks::new`] sorts them by time. There may
/// be millions, so each takes few bytes.
#[derive(Debug, Default)]
pub struct TaskChanges {
    named: bool,
    /// The event ids of guests' records. Batches are read in any order, so guests are known only at the end.
    guest_ids: Vec<Option<u64>>,
    births: Vec<Birth>,
    deaths: Vec<Death>,
    names: Vec<Naming>,
    /// Each ends in NUL.
    text: Vec<u8>,
    /// Present if namespaces are collected.
    namespaces: Option<NamespaceChanges>,
}

/// The namespaces of threads. A thread is "given" the number of a set and inherits it like a name.
#[derive(Debug, Default)]
struct NamespaceChanges {
    given: Vec<Naming>,
    sets: NamespaceSets,
}

#[derive(Debug, Default)]
struct NamespaceSets {
    list: Vec<Namespaces>,
    numbers: HashMap<Namespaces, usize>,
}

impl NamespaceSets {
    fn number(&mut self, set: Namespaces) -> usize {
        *self.numbers.entry(set).or_insert_with(|| {
            self.list.push(set);
            self.list.len() - 1
        })
    }
}

/// A fork of a process. Until the guest of its event id is known, the upper half of the key is an index into
/// `guest_ids`, counted from 1, or 0 for the host.
#[derive(Debug)]
struct Birth {
    at: OrderKey,
    process: Key,
    parent: u32,
}

#[derive(Debug)]
struct Death {
    at: OrderKey,
    process: Key,
    /// The main thread of its process.
    leader: bool,
}

#[derive(Debug)]
struct Naming {
    at: OrderKey,
    thread: Key,
    name: Name,
}

#[derive(Clone, Copy, Debug)]
enum Name {
    /// From COMM: the position in the text. For namespaces: the number of the set.
    Given(usize),
    /// From FORK: the name of the parent thread at that time.
    Inherited(u32),
    Unknown,
}

/// A process or thread; its guest may still be unknown.
#[derive(Clone, Copy, Debug)]
pub struct TaskKey {
    number: u32,
    guest: Option<Option<u64>>,
}

impl TaskKey {
    /// The process or thread `number` on the machine of `record`.
    pub fn of(record: &Record<'_>, layouts: &Layouts, number: u32) -> TaskKey {
        let guest = record.is_of_guest();
        let id = || layouts.layout_of(record).and_then(|layout| layout.id(record));
        TaskKey { number, guest: guest.then(id) }
    }

    /// Its address space, once the guests are known.
    pub fn space(self, guests: &Guests) -> Space {
        let machine = match self.guest {
            None => Machine::Host,
            Some(id) => guests.of_id(id, Some(self.number)),
        };
        Space { machine, pid: self.number }
    }
}

impl TaskChanges {
    /// Starts empty. With `named`, the names of threads are collected, too.
    pub fn new(named: bool) -> TaskChanges {
        TaskChanges { named, ..TaskChanges::default() }
    }

    /// Also collects the namespaces of threads, from NAMESPACES records.
    pub fn with_namespaces(self) -> TaskChanges {
        TaskChanges { namespaces: Some(NamespaceChanges::default()), ..self }
    }

    /// The distinct sets of namespaces that threads have.
    pub fn namespaces(&self) -> &[Namespaces] {
        self.namespaces.as_ref().map_or(&[], |namespaces| &namespaces.sets.list)
    }

    /// The kinds of records that [`TaskChanges::add`] reads, without NAMESPACES.
    pub fn kinds() -> Kinds {
        Kinds::TASKS
    }

    /// The names of threads.
    pub fn names(&self) -> impl Iterator<Item = &[u8]> {
        self.given().map(|(_, name)| name)
    }

    /// True if a record begins, names or ends this process or thread.
    pub fn mentions(&self, task: u32) -> bool {
        let births = self.births.iter().map(|birth| birth.process);
        let deaths = self.deaths.iter().map(|death| death.process);
        let named = self.names.iter().map(|naming| naming.thread);
        births.chain(deaths).chain(named).any(|key| key as u32 == task)
    }

    /// The last name of each thread that has one.
    pub fn last_names(&self) -> BTreeMap<u32, &[u8]> {
        self.given().collect()
    }

    fn given(&self) -> impl Iterator<Item = (u32, &[u8])> {
        self.names.iter().filter_map(|naming| match naming.name {
            Name::Given(at) => Some((naming.thread as u32, until_nul(self.text.get(at..)?))),
            Name::Inherited(_) | Name::Unknown => None,
        })
    }

    /// Adds a record of these kinds. `None` if it is too short.
    pub fn add(&mut self, record: &Record<'_>, layouts: &Layouts) -> Option<()> {
        let layout = layouts.layout_of(record);
        let at = OrderKey::of(record, layout, layouts);
        let trailer = layout.map_or(0, |layout| usize::from(layout.trailer.size));
        if let Some(Comm { pid, tid, name }) = Comm::of(record, trailer) {
            if self.named {
                let given = Name::Given(self.text.len());
                self.text.extend(name);
                self.text.push(0);
                self.name(tid, TaskKey::of(record, layouts, pid).guest, at, given);
            }
            return Some(());
        }
        if let Some((pid, tid, set)) = Namespaces::of(record) {
            let thread = self.key(tid, TaskKey::of(record, layouts, pid).guest);
            if let Some(NamespaceChanges { given, sets }) = &mut self.namespaces {
                given.push(Naming { at, thread, name: Name::Given(sets.number(set)) });
            }
            return Some(());
        }
        let task = Task::of(record)?;
        let Task { pid, ppid, tid, ptid, .. } = task;
        let guest = TaskKey::of(record, layouts, pid).guest;
        let at = if layouts.has_time() { OrderKey::at(task.time) } else { at };
        if record.kind() == RecordType::EXIT {
            let process = self.key(pid, guest);
            self.deaths.push(Death { at, process, leader: pid == tid });
            return Some(());
        }
        if self.named {
            self.name(tid, guest, at, Name::Inherited(ptid));
        }
        let thread = self.key(tid, guest);
        if let Some(namespaces) = &mut self.namespaces {
            namespaces.given.push(Naming { at, thread, name: Name::Inherited(ptid) });
        }
        if pid != ppid {
            let process = self.key(pid, guest);
            self.births.push(Birth { at, process, parent: ppid });
        }
        Some(())
    }

    fn name(&mut self, tid: u32, guest: Option<Option<u64>>, at: OrderKey, name: Name) {
        let thread = self.key(tid, guest);
        self.names.push(Naming { at, thread, name });
    }

    fn key(&mut self, number: u32, guest: Option<Option<u64>>) -> Key {
        if guest.is_some() && guest.as_ref() != self.guest_ids.last() {
            self.guest_ids.extend(guest);
        }
        let guest = if guest.is_some() { self.guest_ids.len() } else { 0 };
        (guest as Key) << 32 | Key::from(number)
    }

    /// Adds the changes of a later batch.
    pub fn absorb(&mut self, later: TaskChanges) {
        let guests = (self.guest_ids.len() as Key) << 32;
        let key = |key: Key| if key >> 32 == 0 { key } else { key + guests };
        let text = self.text.len();
        self.guest_ids.extend(later.guest_ids);
        self.text.extend(later.text);
        self.births.extend(later.births.into_iter().map(|it| Birth { process: key(it.process), ..it }));
        self.deaths.extend(later.deaths.into_iter().map(|it| Death { process: key(it.process), ..it }));
        self.names.extend(later.names.into_iter().map(|it| {
            let name = if let Name::Given(at) = it.name { Name::Given(at + text) } else { it.name };
            Naming { thread: key(it.thread), name, ..it }
        }));
        if let (Some(all), Some(later)) = (&mut self.namespaces, later.namespaces) {
            let numbers: Vec<usize> = later.sets.list.iter().map(|&set| all.sets.number(set)).collect();
            all.given.extend(later.given.into_iter().map(|it| {
                let name = if let Name::Given(at) = it.name { Name::Given(numbers[at]) } else { it.name };
                Naming { thread: key(it.thread), name, ..it }
            }));
        }
    }

    /// Replaces the indexes of event ids with guests in all keys.
    fn key_by_space(&mut self, guests: &Guests) {
        let TaskChanges { guest_ids, births, deaths, names, namespaces, .. } = self;
        let keys = births.iter_mut().map(|birth| &mut birth.process);
        let keys = keys.chain(deaths.iter_mut().map(|death| &mut death.process));
        let namings = names.iter_mut().chain(namespaces.iter_mut().flat_map(|all| &mut all.given));
        for key in keys.chain(namings.map(|naming| &mut naming.thread)) {
            let (guest, number) = ((*key >> 32) as usize, *key as u32);
            let guest = guest.checked_sub(1).map(|at| guest_ids.get(at).copied().flatten());
            *key = TaskKey { number, guest }.space(guests).key();
        }
    }
}

/// One of the successive processes with the same pid.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
pub enum Process {
    /// The index of its life.
    Known(u32),
    /// May have had the pid before the first known process, whose life has this index.
    Before(u32),
    /// Its birth and end are unknown.
    Timeless(Key),
}

/// A compact set of processes.
#[derive(Debug, Default)]
pub struct Processes {
    /// Twice the index of a life, plus 1 for the process that may have had the pid before.
    numbers: HashSet<u32, RandomState>,
    timeless: HashSet<Key, RandomState>,
}

impl Processes {
    /// Adds a process; true if it is new.
    pub fn insert(&mut self, process: Process) -> bool {
        match process {
            Process::Known(number) => self.numbers.insert(2 * number),
            Process::Before(number) => self.numbers.insert(2 * number + 1),
            Process::Timeless(key) => self.timeless.insert(key),
        }
    }

    /// True if the process is in the set.
    pub fn contains(&self, process: Process) -> bool {
        match process {
            Process::Known(number) => self.numbers.contains(&(2 * number)),
            Process::Before(number) => self.numbers.contains(&(2 * number + 1)),
            Process::Timeless(key) => self.timeless.contains(&key),
        }
    }

    /// All processes, in no particular order.
    pub fn iter(&self) -> impl Iterator<Item = Process> {
        let numbered = self.numbers.iter().map(|number| match number % 2 {
            0 => Process::Known(number / 2),
            _ => Process::Before(number / 2),
        });
        numbered.chain(self.timeless.iter().copied().map(Process::Timeless))
    }

    /// Adds the processes of another set.
    pub fn absorb(&mut self, later: Processes) {
        self.numbers.extend(later.numbers);
        self.timeless.extend(later.timeless);
    }
}

#[derive(Clone, Copy, Debug)]
struct Life {
    process: Key,
    birth: OrderKey,
    /// The death of its last thread; [`OrderKey::END`] while it lives.
    death: OrderKey,
    /// [`KERNEL`] if unknown.
    parent: u32,
}

/// All tasks.
#[derive(Debug, Default)]
pub struct Tasks {
    lives: Vec<Life>,
    /// By thread and time, with inherited names resolved.
    names: Vec<Naming>,
    text: Vec<u8>,
    /// By thread and time, with inherited ones resolved.
    namespaces: NamespaceChanges,
}

impl Tasks {
    /// Sorts and resolves the changes.
    pub fn new(mut changes: TaskChanges, guests: &Guests) -> Tasks {
        changes.key_by_space(guests);
        let TaskChanges { mut births, mut deaths, mut names, text, namespaces, .. } = changes;
        let mut namespaces = namespaces.unwrap_or_default();
        // Births with equal times stay in file order.
        births.sort_by_key(|birth| (birth.process, birth.at));
        deaths.sort_by_key(|death| (death.process, death.at));
        names.sort_by_key(|naming| (naming.thread, naming.at));
        inherit(&mut names);
        namespaces.given.sort_by_key(|naming| (naming.thread, naming.at));
        inherit(&mut namespaces.given);
        Tasks { lives: lives(&births, &deaths), names, text, namespaces }
    }

    /// The namespaces of a thread at a time, if its recording names them.
    pub fn namespaces(&self, machine: Machine, tid: u32, at: OrderKey) -> Option<&Namespaces> {
        let NamespaceChanges { given, sets } = &self.namespaces;
        let found = find(given, Space { machine, pid: tid }.key(), at)?;
        match given[found].name {
            Name::Given(number) => sets.list.get(number),
            Name::Inherited(_) | Name::Unknown => None,
        }
    }

    /// The process that had the pid at that time.
    pub fn process(&self, space: Space, at: OrderKey) -> Process {
        let process = space.key();
        let after = self.lives.partition_point(|life| (life.process, life.birth) <= (process, at));
        let is_its = |life: usize| self.lives.get(life).is_some_and(|life| life.process == process);
        match after.checked_sub(1).filter(|&life| is_its(life)) {
            Some(life) => Process::Known(life as u32),
            None if is_its(after) => Process::Before(after as u32),
            None => Process::Timeless(process),
        }
    }

    /// [`Tasks::process`], faster if it is `last`, the process of the previous record.
    #[inline]
    pub fn process_after(&self, last: Option<Process>, space: Space, at: OrderKey) -> Process {
        let key = space.key();
        let life = |at: usize| self.lives.get(at).filter(|life| life.process == key);
        let same = match last {
            Some(Process::Known(number)) => {
                let born_later = |life: &Life| life.birth > at;
                life(number as usize).is_some_and(|life| life.birth <= at)
                    && life(number as usize + 1).is_none_or(born_later)
            }
            Some(Process::Timeless(process)) => process == key,
            Some(Process::Before(_)) | None => false,
        };
        last.filter(|_| same).unwrap_or_else(|| self.process(space, at))
    }

    /// The process that forked it, and whose mappings at that time it inherited.
    pub fn parent(&self, process: Process) -> Option<Process> {
        let Process::Known(number) = process else { return None };
        let life = self.lives.get(number as usize).filter(|life| life.parent != KERNEL)?;
        Some(self.process(Space { pid: life.parent, ..Space::of_key(life.process) }, life.birth))
    }

    /// All processes known to have lived at some time in `start..stop`.
    pub fn living(&self, start: OrderKey, stop: OrderKey) -> impl Iterator<Item = Process> + use<'_> {
        let lived = move |birth, death| birth < stop && death >= start;
        (0..).zip(&self.lives).flat_map(move |(number, life)| {
            let previous = (number as usize).checked_sub(1).and_then(|at| self.lives.get(at));
            let is_first = life.birth > OrderKey::FIRST
                && previous.is_none_or(|previous| previous.process != life.process);
            let before = (is_first && lived(OrderKey::FIRST, life.birth)).then_some(Process::Before(number));
            let known = lived(life.birth, life.death).then_some(Process::Known(number));
            before.into_iter().chain(known)
        })
    }

    /// perf's name for the thread at that time.
    pub fn name(&self, machine: Machine, tid: u32, at: OrderKey) -> Cow<'_, [u8]> {
        self.name_during(machine, tid, at).0
    }

    /// perf's name for the thread at that time, and the times for which it holds.
    pub fn name_during(&self, machine: Machine, tid: u32, at: OrderKey) -> (Cow<'_, [u8]>, Range<OrderKey>) {
        let thread = Space { machine, pid: tid }.key();
        let after = named_until(&self.names, thread, at);
        let of_thread = |naming: usize| self.names.get(naming).filter(|naming| naming.thread == thread);
        let (given, until) = (after.checked_sub(1).and_then(of_thread), of_thread(after));
        let name = match given.map(|naming| naming.name) {
            Some(Name::Given(at)) => Cow::Borrowed(self.text.get(at..).map_or(&[][..], until_nul)),
            _ => name_of_nameless(tid).into(),
        };
        let from = given.map_or(OrderKey::FIRST, |naming| naming.at);
        (name, from..until.map_or(OrderKey::END, |naming| naming.at))
    }
}

fn lives(mut births: &[Birth], mut deaths: &[Death]) -> Vec<Life> {
    let mut lives = Vec::with_capacity(births.len());
    let mut leaders: Vec<u32> = Vec::new();
    loop {
        let processes =
            [births.first().map(|birth| birth.process), deaths.first().map(|death| death.process)];
        let Some(process) = processes.into_iter().flatten().min() else { return lives };
        let own = births.iter().take_while(|birth| birth.process == process).count();
        let (own_births, rest) = births.split_at(own);
        births = rest;
        let own = deaths.iter().take_while(|death| death.process == process).count();
        let (own_deaths, rest) = deaths.split_at(own);
        deaths = rest;
        // The number of main threads that ended before each death.
        leaders.clear();
        leaders.push(0);
        leaders.extend(own_deaths.iter().scan(0, |sum, death| {
            *sum += u32::from(death.leader);
            Some(*sum)
        }));
        let death = |birth, end, is_first| {
            let from = own_deaths.partition_point(|death| death.at < birth);
            let to = own_deaths.partition_point(|death| death.at <= end);
            let last = own_deaths[from..to].last().map_or(OrderKey::FIRST, |last| last.at);
            // The end of a thread is not the end of its process, unless the main thread ended, too.
            let ended =
                leaders[to] > leaders[from] || is_first && end < OrderKey::END && last > OrderKey::FIRST;
            if ended { last } else { end }
        };
        let first = own_births.first().map_or(OrderKey::END, |birth| birth.at);
        if first > OrderKey::FIRST {
            // Another process without any record may have had the pid before this birth.
            let end = death(OrderKey::FIRST, first, true);
            if end != first || own_births.is_empty() {
                lives.push(Life { process, birth: OrderKey::FIRST, death: end, parent: KERNEL });
            }
        }
        for (number, birth) in own_births.iter().enumerate() {
            let end = own_births.get(number + 1).map_or(OrderKey::END, |next| next.at);
            let death = death(birth.at, end, first == OrderKey::FIRST && number == 0);
            lives.push(Life { process, birth: birth.at, death, parent: birth.parent });
        }
    }
}

/// The index after the last name of a thread up to a time.
fn named_until(names: &[Naming], thread: Key, at: OrderKey) -> usize {
    names.partition_point(|naming| (naming.thread, naming.at) <= (thread, at))
}

/// The last name given to a thread up to a time.
fn find(names: &[Naming], thread: Key, at: OrderKey) -> Option<usize> {
    let after = named_until(names, thread, at);
    after.checked_sub(1).filter(|&at| names[at].thread == thread)
}

/// Replaces inherited names with the name given to an ancestor, over any number of generations.
fn inherit(names: &mut [Naming]) {
    let mut heirs = Vec::new();
    for at in 0..names.len() {
        let mut next = Some(at);
        let name = loop {
            let Some(at) = next else { break Name::Unknown };
            let Naming { at: since, thread, name } = names[at];
            let Name::Inherited(parent) = name else { break name };
            // A thread that the search reaches again is its own ancestor.
            names[at].name = Name::Unknown;
            heirs.push(at);
            let parent = Space { pid: parent, ..Space::of_key(thread) }.key();
            next = find(names, parent, since);
        };
        heirs.drain(..).for_each(|heir| names[heir].name = name);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn space(pid: u32) -> Space {
        Space { machine: Machine::Host, pid }
    }

    fn birth(time: u64, pid: u32, parent: u32) -> Birth {
        Birth { at: OrderKey::at(time), process: pid.into(), parent }
    }

    fn death(time: u64, pid: u32, leader: bool) -> Death {
        Death { at: OrderKey::at(time), process: pid.into(), leader }
    }

    fn naming(time: u64, tid: u32, name: Name) -> Naming {
        Naming { at: OrderKey::at(time), thread: tid.into(), name }
    }

    #[test]
    fn a_pid_that_is_used_again_and_again_costs_each_process_the_same() {
        let processes = 1 << 20;
        // Searching all deaths for each life would take an hour.
        let births: Vec<Birth> = (1..=processes).map(|number| birth(10 * number, 7, 1)).collect();
        let deaths: Vec<Death> = (1..=processes).map(|number| death(10 * number + 5, 7, true)).collect();
        let lives = lives(&births, &deaths);
        assert_eq!(lives.len() as u64, processes);
        let ends = (1..=processes).map(|number| OrderKey::at(10 * number + 5));
        assert!(lives.iter().map(|life| life.death).eq(ends));
    }

    #[test]
    fn many_births_and_deaths_at_one_time_take_linear_time() {
        let many = 1 << 17;
        let births: Vec<Birth> = (0..many).map(|_| birth(5, 7, 1)).collect();
        let deaths: Vec<Death> = (0..many).map(|_| death(5, 7, false)).collect();
        let lives = lives(&births, &deaths);
        assert!(lives.iter().rev().skip(1).all(|life| life.death == OrderKey::at(5)));
        assert_eq!(lives.last().map(|life| life.death), Some(OrderKey::END));
    }

    #[test]
    fn a_name_is_known_with_the_time_during_which_a_thread_has_it() {
        let names = [(5, 7, 0), (5, 7, 4), (9, 7, 8), (2, 8, 12)];
        let names = names.map(|(time, tid, at)| naming(time, tid, Name::Given(at)));
        let changes = TaskChanges {
            named: true,
            names: names.into(),
            text: b"one\0two\0new\0own\0".to_vec(),
            ..TaskChanges::default()
        };
        let tasks = Tasks::new(changes, &Guests::default());
        let name = |tid, time| tasks.name_during(Machine::Host, tid, OrderKey::at(time));
        let during = |from, until| OrderKey::at(from)..OrderKey::at(until);
        assert_eq!(name(7, 4), (name_of_nameless(7).into(), during(0, 5)));
        assert_eq!(name(7, 5), (b"two"[..].into(), during(5, 9)));
        assert_eq!(name(7, 8), (b"two"[..].into(), during(5, 9)));
        assert_eq!(name(7, 9), (b"new"[..].into(), during(9, u64::MAX)));
        assert_eq!(name(8, 1), (name_of_nameless(8).into(), during(0, 2)));
        assert_eq!(name(9, 1), (name_of_nameless(9).into(), OrderKey::ALL));
    }

    #[test]
    fn a_fork_and_its_exit_take_at_most_100_bytes() {
        let collected = size_of::<Birth>() + size_of::<Death>();
        assert!(collected + size_of::<Life>() <= 100, "{collected} bytes and the life");
    }

    #[test]
    fn the_owner_of_a_pid_before_its_first_known_birth_is_another_process() {
        let changes = TaskChanges {
            births: vec![birth(10, 7, 1), birth(10, 8, 7), birth(0, 9, 1)],
            deaths: vec![death(4, 8, false)],
            ..TaskChanges::default()
        };
        let tasks = Tasks::new(changes, &Guests::default());
        let process = |pid, time| tasks.process(space(pid), OrderKey::at(time));
        assert_eq!(process(7, 9), Process::Before(0));
        assert_eq!(process(7, 10), Process::Known(0));
        // The end of the one before 8 is known.
        assert_eq!(process(8, 9), Process::Known(1));
        assert_eq!(process(8, 10), Process::Known(2));
        assert_eq!(process(6, 10), Process::Timeless(6));
        for (pid, time) in (6..10).flat_map(|pid| (8..12).map(move |time| (pid, time))) {
            let process = process(pid, time);
            for last in
                [Process::Known(0), Process::Known(1), Process::Known(2), Process::Timeless(6), process]
            {
                assert_eq!(
                    tasks.process_after(Some(last), space(pid), OrderKey::at(time)),
                    process,
                    "after {last:?}"
                );
            }
        }
        assert_eq!(tasks.parent(Process::Known(2)), Some(Process::Known(0)));
        let living: Vec<Process> = tasks.living(OrderKey::at(5), OrderKey::at(6)).collect();
        assert_eq!(living, [Process::Before(0), Process::Known(3)]);
    }

    #[test]
    fn a_name_is_inherited_over_any_number_of_forks() {
        let depth = 20_000;
        let mut names = vec![naming(1, 1, Name::Given(0))];
        names.extend((2..=depth).map(|tid| naming(tid.into(), tid, Name::Inherited(tid - 1))));
        // Two threads that are each other's parents have no name.
        names.push(naming(5, depth + 1, Name::Inherited(depth + 2)));
        names.push(naming(5, depth + 2, Name::Inherited(depth + 1)));
        let changes = TaskChanges { names, text: b"first\0".to_vec(), ..TaskChanges::default() };
        let tasks = Tasks::new(changes, &Guests::default());
        assert_eq!(&*tasks.name(Machine::Host, depth, OrderKey::END), b"first");
        assert_eq!(tasks.name(Machine::Host, depth, OrderKey::at(7)), name_of_nameless(depth));
        assert_eq!(tasks.name(Machine::Host, depth + 1, OrderKey::END), name_of_nameless(depth + 1));
        assert!(tasks.names.iter().all(|naming| !matches!(naming.name, Name::Inherited(_))));
    }
}
