//! Finds the events that are counted as one: the same event on the PMUs of a hybrid processor's kinds of
//! cores, and the same event in modes that do not overlap, such as `cycles:u` and `cycles:k`.

use std::collections::{BTreeMap, HashMap, VecDeque};

use crate::attr_name::modifiers;
use crate::event_name::{EventName, generic_name, of_pmu, without_modifiers};
use crate::{Attr, Event};

/// The event that an event counts as.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct CountedAs {
    /// The index of the first of its siblings; its own if it has none.
    pub first: usize,
    /// The name for it and its siblings; its own name if it has none.
    pub name: Vec<u8>,
}

#[derive(Clone, Copy, PartialEq, Eq, Hash)]
enum Pmu<'n> {
    Type(u32),
    Named(&'n [u8]),
}

impl<'n> Pmu<'n> {
    /// `None` if neither the attr nor the name has a PMU of cores: the kernel chose the PMU, or the event's
    /// is not one of several that share the work.
    fn of(attr: &Attr, name: &'n [u8]) -> Option<Pmu<'n>> {
        let named = of_pmu(name).map(|(pmu, _)| pmu);
        let is_of_cores = |pmu: &[u8]| CORES.iter().any(|prefix| pmu.starts_with(prefix));
        match (attr.type_, attr.pmu_of_generic()) {
            (_, Some(pmu)) => Some(Pmu::Type(pmu)),
            // PERF_TYPE_RAW, and those of PMUs that the kernel numbers.
            (4 | 6.., None) => Some(Pmu::Type(attr.type_)).filter(|_| named.is_none_or(is_of_cores)),
            (2 | 5, None) => None,
            (_, None) => named.map(Pmu::Named),
        }
    }
}

/// Prefixes of the names of cores' PMUs.
const CORES: [&[u8]; 3] = [b"cpu", b"armv", b"apple_"];

struct Halves<'n> {
    generic: &'n [u8],
    pmu: Option<Pmu<'n>>,
    time: usize,
    numbers: Vec<usize>,
    excluded: u64,
}

/// The modes that an event excludes: `cycles:u` counts only users, whatever the attr says.
fn excluded_modes(attr: &Attr, name: &[u8]) -> u64 {
    let modifiers = &name[without_modifiers(name).len()..];
    let levels =
        [(b'u', 4), (b'k', 5), (b'h', 6)].map(|(letter, bit)| (modifiers.contains(&letter), 1 << bit));
    let others: u64 = levels.iter().filter(|(counts, _)| !counts).map(|(_, bit)| bit).sum();
    let names_level = levels.iter().any(|(counts, _)| *counts);
    if names_level { attr.excluded_modes() & !LEVELS | others } else { attr.excluded_modes() }
}

/// `exclude_user`, `exclude_kernel` and `exclude_hv`; `exclude_host` and `exclude_guest`.
const LEVELS: u64 = 0b111 << 4;
const HOSTS: u64 = 0b11 << 19;

/// True if nothing is counted without these modes: no level, or neither host nor guest.
fn share_no_mode(excluded: u64) -> bool {
    [LEVELS, HOSTS].iter().any(|modes| excluded & modes == *modes)
}

/// The event that each event counts as. Siblings count the same in the same modes on several PMUs;
/// `cpu_core/cycles/P` and `cpu_atom/cycles/P` are one event, `cycles`. So are halves on one PMU, `cycles:u`
/// and `cycles:k`.
pub fn counted_as(events: &[Event], names: &[EventName]) -> Vec<CountedAs> {
    let mut all_halves: Vec<Halves<'_>> = Vec::new();
    // The number of those with the same PMU and event, and their indices by the modes that they exclude.
    let mut places: HashMap<_, (usize, BTreeMap<u64, VecDeque<usize>>)> = HashMap::new();
    for (number, (event, EventName { name, .. })) in events.iter().zip(names).enumerate() {
        let attr = event.attr();
        // Tracepoints and breakpoints with the same name can be several.
        if matches!(attr.type_, 2 | 5) {
            continue;
        }
        let (generic, pmu, excluded) = (generic_name(name), Pmu::of(attr, name), excluded_modes(attr, name));
        let (times, places) = places.entry((generic, pmu, attr.type_)).or_default();
        let others = places.iter_mut().filter(|(others, _)| share_no_mode(excluded | **others));
        let place = match others.filter(|of| !of.1.is_empty()).min_by_key(|of| of.1[0]) {
            Some((_, places)) => places.pop_front().unwrap_or_default(),
            None => {
                let halves = Halves { generic, pmu, time: *times, numbers: Vec::new(), excluded: u64::MAX };
                all_halves.push(halves);
                *times += 1;
                all_halves.len() - 1
            }
        };
        let halves = &mut all_halves[place];
        halves.numbers.push(number);
        halves.excluded &= excluded;
        places.entry(halves.excluded).or_default().push_back(place);
    }
    // Only events of different PMUs count different work.
    let mut siblings: HashMap<_, Vec<usize>> = HashMap::new();
    for (place, Halves { generic, pmu, time, numbers, excluded }) in all_halves.into_iter().enumerate() {
        let apart = pmu.is_none().then_some(place);
        siblings.entry((generic, excluded, time, apart)).or_default().extend(numbers);
    }
    siblings.retain(|_, numbers| numbers.len() > 1);
    siblings.values_mut().for_each(|numbers| numbers.sort_unstable());
    let mut groups: HashMap<&[u8], usize> = HashMap::new();
    siblings.keys().for_each(|(generic, ..)| *groups.entry(generic).or_default() += 1);
    let alone = |(first, name): (usize, &EventName)| CountedAs { first, name: name.name.clone() };
    let mut all: Vec<CountedAs> = names.iter().enumerate().map(alone).collect();
    for ((generic, excluded, ..), numbers) in siblings {
        let first = numbers[0];
        let mut name = generic.to_vec();
        if groups[generic] > 1 {
            name.extend(modifiers(&events[first].attr().with_excluded_modes(excluded)).bytes());
        }
        numbers.into_iter().for_each(|number| all[number] = CountedAs { first, name: name.clone() });
    }
    all
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::Endian;
    use crate::event_name::NameSource;

    fn counted(events: &[(u32, u64, u64, &str)]) -> Vec<(usize, String)> {
        let (events, names): (Vec<_>, Vec<_>) = events
            .iter()
            .map(|&(type_, config, flags, name)| {
                let attr = Attr { type_, config, flags, ..Attr::default() };
                let name = EventName { name: name.into(), source: NameSource::EventDesc };
                (Event::made(&attr, Vec::new(), Endian::Little), name)
            })
            .unzip();
        let text = |of: CountedAs| (of.first, String::from_utf8(of.name).unwrap());
        counted_as(&events, &names).into_iter().map(text).collect()
    }

    fn all(names: &[(usize, &str)]) -> Vec<(usize, String)> {
        names.iter().map(|&(first, name)| (first, name.to_owned())).collect()
    }

    #[test]
    fn the_same_event_on_several_pmus_is_one() {
        let (core, atom) = (4 << 32, 10 << 32);
        let precise = 2 << 15;
        for (one, other, name) in [
            ("cpu_core/cycles/", "cpu_atom/cycles/", "cycles"),
            ("cpu_core/cycles/P", "cpu_atom/cycles/P", "cycles"),
            ("cpu_core/cycles:Pu/", "cpu_atom/cycles:Pu/", "cycles"),
            ("cpu_core/cpu-cycles/u", "cpu_atom/cycles/u", "cycles"),
            ("cycles:P", "cycles:P", "cycles"),
            ("busy", "busy", "busy"),
        ] {
            let found = counted(&[(0, atom, 0, other), (0, core, precise, one), (1, 9, 0, "dummy:u")]);
            assert_eq!(found, all(&[(0, name), (0, name), (2, "dummy:u")]));
        }
        let raw = [(4, 0x3c, 0, "cpu_core/event=0x3c/"), (10, 0x3c, 0, "cpu_atom/event=0x3c/")];
        assert_eq!(counted(&raw), all(&[(0, "event=0x3c"), (0, "event=0x3c")]));
        // An event that a user named like that counts as one.
        let clocks = [(1, 0, 0, "cpu_core/cycles/"), (1, 0, 0, "cpu_atom/cycles/")];
        assert_eq!(counted(&clocks), all(&[(0, "cycles"), (0, "cycles")]));
    }

    /// Only the default event, `cycles:k`, was counted.
    #[test]
    fn the_same_event_in_modes_that_share_nothing_is_one() {
        // Without the kernel and a hypervisor, and without users and a hypervisor.
        let (u, k) = (0b110 << 4, 0b101 << 4);
        for (one, other, name) in
            [("cycles:k", "cycles:u", "cycles"), ("cpu-clock:k", "cpu-clock:u", "cpu-clock")]
        {
            let type_ = u32::from(name != "cycles");
            assert_eq!(counted(&[(type_, 0, k, one), (type_, 0, u, other)]), all(&[(0, name), (0, name)]));
        }
        let (core, atom) = (4 << 32, 10 << 32);
        let four = [
            (0, core, u, "cpu_core/cycles/u"),
            (0, core, k, "cpu_core/cycles/k"),
            (0, atom, u, "cpu_atom/cycles/u"),
            (0, atom, k, "cpu_atom/cycles/k"),
        ];
        assert_eq!(counted(&four), all(&[(0, "cycles"); 4]));
        // The third counts the work of the others again.
        let three = [(0, 0, u, "cycles:u"), (0, 0, 0, "cycles"), (0, 0, k, "cycles:k")];
        assert_eq!(counted(&three), all(&[(0, "cycles"), (1, "cycles"), (0, "cycles")]));
    }

    /// Regression: sampling terms in a name made another event of it.
    #[test]
    fn settings_in_a_name_do_not_make_another_event() {
        let events = [
            (0, 4 << 32, 0, "cpu_core/cycles,freq=99/"),
            (0, 10 << 32, 0, "cpu_atom/cycles,period=1000,call-graph=fp/P"),
        ];
        assert_eq!(counted(&events), all(&[(0, "cycles"), (0, "cycles")]));
    }

    #[test]
    fn events_that_count_the_same_work_twice_are_several() {
        for events in [
            [(0, 0, 0, "cycles"), (4, 0x3c, 0, "cpu/cycles/")],
            [(0, 0, 0, "cycles"), (0, 0, 0, "cycles")],
            [(0, 4 << 32, 0, "cpu_core/cycles/u"), (0, 4 << 32, 0, "cpu_core/cycles/uk")],
            [(0, 4 << 32, 0, "big"), (0, 10 << 32, 0, "little")],
            [(9, 0, 0, "ibs_fetch//"), (10, 0, 0, "ibs_op//")],
            [(2, 300, 0, "a:b"), (2, 301, 0, "a:b")],
            [(5, 0, 0, "mem:0x10/8:rw"), (5, 0, 0, "mem:0x20/8:rw")],
            [(8, 0x3c, 0, "cpu/event=0x3c/"), (20, 0x3c, 0, "uncore_x/event=0x3c/")],
            [(20, 0x3c, 0, "uncore_x/event=0x3c/"), (21, 0x3c, 0, "uncore_y/event=0x3c/")],
            [(0, 4 << 32, 0, "cpu_core/cycles/"), (0, 10 << 32, 0, "cpu_atom/cycles,cmask=1/")],
            // Both count the kernel.
            [(0, 0, 1 << 4, "cycles:kh"), (0, 0, 0, "cycles")],
        ] {
            assert_eq!(counted(&events), all(&[(0, events[0].3), (1, events[1].3)]));
        }
        // Exclude_kernel and exclude_user.
        let (u, k) = (1 << 5, 1 << 4);
        let modes = [
            (0, 4 << 32, u, "cpu_core/cycles/"),
            (0, 10 << 32, u, "cpu_atom/cycles/"),
            (0, 4 << 32, k, "cpu_core/cycles/"),
            (0, 10 << 32, k, "cpu_atom/cycles/"),
        ];
        let names = [(0, "cycles:uh"), (0, "cycles:uh"), (2, "cycles:kh"), (2, "cycles:kh")];
        assert_eq!(counted(&modes), all(&names));
        let twice = [modes[0], modes[0], modes[1], modes[1]];
        let names = [(0, "cycles:uh"), (1, "cycles:uh"), (0, "cycles:uh"), (1, "cycles:uh")];
        assert_eq!(counted(&twice), all(&names));
    }
}
