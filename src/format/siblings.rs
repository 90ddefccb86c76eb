//! Finds the events that are counted as one: the same event on several PMUs, as a hybrid processor has them for its
//! kinds of cores.

use std::collections::HashMap;

use crate::attr_name::modifiers;
use crate::event_name::{EventName, generic_name, of_pmu};
use crate::{Attr, Event};

/// How an event is counted.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct CountedAs {
    /// The number of the first of its siblings; its own number if it has none.
    pub first: usize,
    /// The name for it and its siblings; its own name if it has none.
    pub name: Vec<u8>,
}

/// The PMU of an event.
#[derive(Clone, Copy, PartialEq, Eq, Hash)]
enum Pmu<'n> {
    Type(u32),
    Named(&'n [u8]),
}

impl<'n> Pmu<'n> {
    /// `None` if neither the attr nor the name has a PMU: the kernel then chose it.
    fn of(attr: &Attr, name: &'n [u8]) -> Option<Pmu<'n>> {
        match (attr.type_, attr.pmu_of_generic()) {
            (_, Some(pmu)) => Some(Pmu::Type(pmu)),
            // PERF_TYPE_RAW, and those of PMUs that the kernel numbers.
            (4 | 6.., None) => Some(Pmu::Type(attr.type_)),
            (2 | 5, None) => None,
            (_, None) => of_pmu(name).map(|(pmu, _)| Pmu::Named(pmu)),
        }
    }
}

/// How each event is counted. Siblings count the same in the same modes on several PMUs; `cpu_core/cycles/P` and
/// `cpu_atom/cycles/P` are one event, `cycles`.
pub fn counted_as(events: &[Event], names: &[EventName]) -> Vec<CountedAs> {
    // An event can be there several times on each PMU.
    let mut times: HashMap<_, usize> = HashMap::new();
    let mut siblings: HashMap<_, Vec<usize>> = HashMap::new();
    for (number, (event, EventName { name, .. })) in events.iter().zip(names).enumerate() {
        let attr = event.attr();
        let Some(pmu) = Pmu::of(attr, name) else { continue };
        let counted = (generic_name(name), attr.excluded_modes());
        let time = times.entry((counted, pmu)).or_default();
        *time += 1;
        siblings.entry((counted, *time)).or_default().push(number);
    }
    siblings.retain(|_, numbers| numbers.len() > 1);
    let mut groups: HashMap<&[u8], usize> = HashMap::new();
    siblings.keys().for_each(|((generic, _), _)| *groups.entry(generic).or_default() += 1);
    let alone = |(first, name): (usize, &EventName)| CountedAs { first, name: name.name.clone() };
    let mut all: Vec<CountedAs> = names.iter().enumerate().map(alone).collect();
    for (((generic, _), _), numbers) in siblings {
        let first = numbers[0];
        let mut name = generic.to_vec();
        if groups[generic] > 1 {
            name.extend(modifiers(events[first].attr()).bytes());
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

    /// The events with these types, configs, flags and names, as they are counted.
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
        // What a user named like that is taken for it.
        let clocks = [(1, 0, 0, "cpu_core/cycles/"), (1, 0, 0, "cpu_atom/cycles/")];
        assert_eq!(counted(&clocks), all(&[(0, "cycles"), (0, "cycles")]));
    }

    #[test]
    fn events_that_count_the_same_work_twice_are_several() {
        for events in [
            [(0, 0, 0, "cycles"), (4, 0x3c, 0, "cpu/cycles/")],
            [(0, 0, 0, "cycles"), (0, 0, 0, "cycles")],
            [(0, 4 << 32, 0, "cpu_core/cycles/u"), (0, 4 << 32, 0, "cpu_core/cycles/k")],
            [(0, 4 << 32, 0, "big"), (0, 10 << 32, 0, "little")],
            [(9, 0, 0, "ibs_fetch//"), (10, 0, 0, "ibs_op//")],
            [(2, 300, 0, "a:b"), (2, 301, 0, "a:b")],
            [(5, 0, 0, "mem:0x10/8:rw"), (5, 0, 0, "mem:0x20/8:rw")],
        ] {
            assert_eq!(counted(&events), all(&[(0, events[0].3), (1, events[1].3)]));
        }
        // Exclude_kernel and exclude_user.
        let (u, k) = (1 << 5, 1 << 4);
        let modes = [
            (0, 4 << 32, u, "cpu_core/cycles/u"),
            (0, 10 << 32, u, "cpu_atom/cycles/u"),
            (0, 4 << 32, k, "cpu_core/cycles/k"),
            (0, 10 << 32, k, "cpu_atom/cycles/k"),
        ];
        let names = [(0, "cycles:uh"), (0, "cycles:uh"), (2, "cycles:kh"), (2, "cycles:kh")];
        assert_eq!(counted(&modes), all(&names));
        let twice = [modes[0], modes[0], modes[1], modes[1]];
        let names = [(0, "cycles:uh"), (1, "cycles:uh"), (0, "cycles:uh"), (1, "cycles:uh")];
        assert_eq!(counted(&twice), all(&names));
    }
}
