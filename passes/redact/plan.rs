//! The plan of `redact`: decides which names and addresses stay.

use std::borrow::Cow;
use std::collections::{BTreeSet, HashMap, HashSet};
use std::ops::RangeInclusive;

use perfx_format::event_name::{OwnNames, names_of};
use perfx_format::features::{GroupDesc, TracingData, is_probe_pmu, pmu_names, read_str, trace_formats};
use perfx_format::names::{Name, NameKind};
use perfx_format::record::cpumode::is_kernel;
use perfx_format::record::frames::change_frames;
use perfx_format::record::off_cpu::OFF_CPU_NAME;
use perfx_format::tracepoint::TraceFormat;
use perfx_format::{ByTracepoint, Event, Feature, Layout, Record, sample_type as st};
use perfx_pipeline::Session;
use perfx_unwind::{has_callers_in_registers, has_stacks};

use super::done::Done;
use super::known::is_pmu;
use super::names::{self, HOST};
use super::options::{Category, Redact};
use super::raw::{Stays, is_for_users, kept, made_by_users, stays};
use crate::scrub::Key;

/// True for the modifiers of an event (perf-list(1)), such as `u` and `ppp`.
fn are_modifiers(text: &[u8]) -> bool {
    text.len() <= 16 && text.iter().all(|byte| b"ukhGHpPSDIeWRb".contains(byte))
}

/// True for the terms after a PMU's name: with numbers, then `/` and modifiers; not for `name=TEXT`.
fn are_terms(text: &[u8]) -> bool {
    let Some(end) = text.iter().rposition(|&byte| byte == b'/') else { return false };
    let (terms, modifiers) = (&text[..end], &text[end + 1..]);
    let is_number = |value: &[u8]| {
        let digits = value.strip_prefix(b"0x").unwrap_or(value);
        !digits.is_empty() && digits.iter().all(u8::is_ascii_hexdigit)
    };
    let is_term = |term: &[u8]| match term.iter().position(|&byte| byte == b'=') {
        Some(at) => is_number(&term[at + 1..]),
        None => true,
    };
    are_modifiers(modifiers) && terms.split(|&byte| byte == b',').all(is_term)
}

#[derive(Debug)]
pub(super) struct Mapped {
    pub(super) ranges: Vec<(u64, u64)>,
    pub(super) processes: BTreeSet<u32>,
}

#[derive(Debug)]
pub(super) struct Plan {
    pub(super) redact: Redact,
    pub(super) key: Key,
    /// The parts that samples lose, as bits of `sample_type`.
    pub(super) parts: u64,
    pub(super) raw: Vec<Stays>,
    /// The systems of users' tracepoints.
    systems: BTreeSet<Vec<u8>>,
    events: HashSet<Vec<u8>>,
    /// The PMUs whose names every machine may have.
    pmus: BTreeSet<Vec<u8>>,
    own_names: OwnNames,
    /// Samples have stacks from which perf builds call chains.
    pub(super) has_stacks: bool,
    pub(super) cuts_callers: bool,
    user_end: u64,
    mapped: Mapped,
}

impl Plan {
    pub(super) fn new(redact: Redact, key: Key, mapped: Mapped, session: &Session) -> Plan {
        let keeps = |category| redact.args.keeps(category);
        let parts = [
            (Category::Stacks, st::REGS_USER | st::STACK_USER | st::REGS_INTR),
            (Category::Aux, st::AUX),
            (Category::Unknown, st::UNNAMED),
        ];
        let parts =
            parts.iter().filter(|(category, _)| !keeps(*category)).fold(0, |all, (_, bits)| all | bits);
        let endian = session.endian;
        let section = |feature| session.feature(feature).map(|section| &section[..]).unwrap_or_default();
        let formats = trace_formats(section(Feature::TRACING_DATA), endian);
        let names =
            names_of(&session.events, session.features(), &session.event_types, endian, &HashMap::new());
        let of_events = || session.events.iter().zip(&names);
        let fields = ByTracepoint::new(&session.events, session.features(), endian, kept);
        let raw = of_events().enumerate().map(|(number, (event, name))| match keeps(Category::Raw) {
            true => Stays::All,
            false => stays(event.attr(), &name.name, fields.get(number)),
        });
        let by_users = made_by_users(&formats, TracingData::read(section(Feature::TRACING_DATA)).as_ref());
        let known = formats.iter().filter(|format| !by_users.contains(format.system));
        let mut events: HashSet<Vec<u8>> = known.map(TraceFormat::full_name).collect();
        events.extend([&b""[..], OFF_CPU_NAME, b"__augmented_syscalls__"].map(<[u8]>::to_vec));
        let pmus = pmu_names(section(Feature::PMU_MAPPINGS), endian).unwrap_or_default().into_iter();
        let pmus = pmus.map(|(_, pmu)| pmu).filter(|pmu| is_pmu(pmu) && !is_probe_pmu(pmu));
        let pmus = pmus.map(<[u8]>::to_vec).collect();
        let raw = raw.collect();
        let cuts_callers = parts & st::REGS_USER != 0
            && has_callers_in_registers(&session.events, session.features(), session.endian);
        let attrs = || session.events.iter().map(Event::attr);
        let has_stacks = attrs().any(|attr| has_stacks(attr.sample_type));
        let own_names = OwnNames::new(attrs());
        let arch = read_str(section(Feature::ARCH), endian);
        // 47 bits, or the most that any other machine has.
        let user_end = if arch == Some(b"x86_64") { 1 << 47 } else { 1 << 52 };
        let systems = by_users.into_iter().map(<[u8]>::to_vec).collect();
        Plan {
            raw,
            parts,
            systems,
            events,
            pmus,
            own_names,
            has_stacks,
            cuts_callers,
            user_end,
            mapped,
            redact,
            key,
        }
    }

    pub(super) fn keeps(&self, category: Category) -> bool {
        self.redact.args.keeps(category)
    }

    pub(super) fn is_known_event(&self, name: &[u8]) -> bool {
        let mut parts = name.splitn(3, |&byte| byte == b':');
        let tracepoint = [parts.next().unwrap_or_default(), parts.next().unwrap_or_default()].join(&b':');
        let is_bare = parts.next().is_none_or(are_modifiers);
        let pmu = name.iter().position(|&byte| byte == b'/').map(|at| (&name[..at], &name[at + 1..]));
        let of_pmu = pmu.is_some_and(|(pmu, terms)| self.pmus.contains(pmu) && are_terms(terms));
        let is_own = || pmu.is_none() && self.own_names.contains(name);
        self.events.contains(name) || is_bare && self.events.contains(&tracepoint) || of_pmu || is_own()
    }

    fn event(&self, name: &[u8]) -> Vec<u8> {
        if self.is_known_event(name) {
            return name.to_vec();
        }
        let system = name.iter().position(|&byte| byte == b':').map(|at| name.split_at(at));
        match system.filter(|(system, _)| is_for_users(system) || self.systems.contains(*system)) {
            Some((_, probe)) => [b"probe:", &self.probe(&probe[1..])[..]].concat(),
            None => self.key.word("event", name),
        }
    }

    pub(super) fn probe(&self, name: &[u8]) -> Vec<u8> {
        let name = name.split(|&byte| byte == b':').next().unwrap_or_default();
        // perf parses `-` as an operator here.
        let word = self.key.word("event", &swapped(name, b'_', b'-'));
        swapped(&word, b'-', b'_')
    }

    pub(super) fn name(&self, done: &mut Done, name: Name<'_>) -> Vec<u8> {
        let (key, text) = (&self.key, name.text);
        let (category, new) = match name.kind {
            NameKind::Path => (Category::Paths, names::path(key, text).unwrap_or_else(|| text.to_vec())),
            NameKind::Comm => (Category::Comms, names::comm(key, text)),
            NameKind::Cgroup => (Category::Cgroups, names::cgroup(key, text)),
            NameKind::Symbol => (Category::Bpf, names::symbol(key, text)),
            NameKind::Event => (Category::Events, self.event(text)),
            NameKind::Group if text == GroupDesc::NO_NAME || text.is_empty() => return text.to_vec(),
            NameKind::Group => (Category::Events, key.word("group", text)),
            NameKind::Host => (Category::Host, HOST.to_vec()),
            _ => (Category::Unknown, key.word("name", text)),
        };
        if self.keeps(category) { text.to_vec() } else { done.note(category, text, new) }
    }

    fn code_at(&self, address: u64) -> Option<RangeInclusive<u64>> {
        let ranges = &self.mapped.ranges;
        let after = ranges.partition_point(|&(start, _)| start <= address);
        let &(start, end) = ranges.get(after.checked_sub(1)?)?;
        // A call may be the last instruction of its mapping, so the address after that counts.
        let code = start..=end.min(self.user_end - 1);
        code.contains(&address).then_some(code)
    }

    /// Returns the replacement of an entry, by CPU mode, that is not an address of mapped user code. In code
    /// without frame pointers, the kernel may record any words of the stack, even text, as calls.
    pub(super) fn clearing(&self) -> impl FnMut(u16, u64) -> Option<u64> {
        // Most entries are in the same mapping as the one before.
        let mut last = None::<RangeInclusive<u64>>;
        let keeps = self.keeps(Category::Stacks);
        move |cpumode, entry| {
            if is_kernel(cpumode) || last.as_ref().is_some_and(|code| code.contains(&entry)) {
                return None;
            }
            last = self.code_at(entry);
            (last.is_none() && !keeps).then_some(0)
        }
    }

    /// Clears such entries of a record.
    pub(super) fn clear_memory(
        &self,
        done: &mut Done,
        record: &Record<'_>,
        layout: Option<&Layout>,
        bytes: &mut Cow<'_, [u8]>,
    ) {
        let cleared = change_frames(record, layout, bytes, self.clearing());
        done.clears(cleared, cleared > 0 && self.has_mappings(record, layout));
    }

    pub(super) fn has_mappings(&self, record: &Record<'_>, layout: Option<&Layout>) -> bool {
        let Mapped { processes, .. } = &self.mapped;
        let process = layout.and_then(|layout| layout.pid_tid(record));
        process.map_or(!processes.is_empty(), |(pid, _)| processes.contains(&pid))
    }

    /// Clears the address of a sample if it is such an entry.
    pub(super) fn clear_ip(&self, sample: &Record<'_>, layout: &Layout, bytes: &mut Cow<'_, [u8]>) -> bool {
        let cleared = |ip| self.clearing()(sample.cpumode(), ip).is_some_and(|new| new != ip);
        let is_cleared = layout.ip(sample).is_some_and(cleared);
        if is_cleared {
            layout.set_ip(bytes.to_mut(), 0, sample.endian());
        }
        is_cleared
    }
}

fn swapped(name: &[u8], from: u8, to: u8) -> Vec<u8> {
    name.iter().map(|&byte| if byte == from { to } else { byte }).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn terms_after_an_event_name_are_modifiers_and_numbers() {
        for (text, expected) in
            [("", true), ("u", true), ("ppp", true), ("SECRET", false), ("pppppppppppppppppp", false)]
        {
            assert_eq!(are_modifiers(text.as_bytes()), expected, "{text}");
        }
        for (text, expected) in [
            ("event=0x3c,umask=0/", true),
            ("cache-misses/u", true),
            ("tsc,noretcomp=0/u", true),
            ("event=0x3c,name=word/", false),
            ("event=0x3c/SECRET", false),
            ("event=secret/", false),
            ("event=1", false),
        ] {
            assert_eq!(are_terms(text.as_bytes()), expected, "{text}");
        }
    }
}
