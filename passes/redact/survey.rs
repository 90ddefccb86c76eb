//! The survey of `redact`: derives the key of pseudonyms, and collects the mapped user code.

use std::collections::{BTreeMap, BTreeSet};

use perfx_format::features::initial_maps;
use perfx_format::{Feature, Layouts, Mmap, Record, Task};
use perfx_pipeline::{Fork, Result, Session, Stage, Survey};

use super::options::Redact;
use super::plan::Mapped;
use super::remove::{KEYED, Remove};
use crate::scrub::Key;

pub(super) struct Learn {
    redact: Redact,
    key: Key,
    mapped: Ranges,
    /// Processes with mappings, and children with their parents.
    processes: BTreeSet<u32>,
    made: BTreeSet<(u32, u32)>,
}

impl Learn {
    pub(super) fn new(redact: Redact) -> Learn {
        let (mapped, processes, made) = Default::default();
        Learn { redact, key: Key::default(), mapped, processes, made }
    }

    fn learn_mapping(&mut self, record: &Record<'_>) {
        if let Some(mmap) = Mmap::of(record).filter(|mmap| !mmap.is_of_kernel()) {
            self.mapped.insert((mmap.start(), mmap.start().saturating_add(mmap.len())));
            self.processes.insert(mmap.pid());
        }
    }

    fn mapped(self) -> Mapped {
        let mut processes = self.processes;
        let mut of: BTreeMap<u32, Vec<u32>> = BTreeMap::new();
        self.made.iter().for_each(|&(parent, child)| of.entry(parent).or_default().push(child));
        let mut left: Vec<u32> = processes.iter().copied().collect();
        while let Some(parent) = left.pop() {
            // A child begins with its parent's mappings.
            left.extend(
                of.remove(&parent).unwrap_or_default().into_iter().filter(|&child| processes.insert(child)),
            );
        }
        Mapped { ranges: united(self.mapped), processes }
    }
}

type Ranges = BTreeSet<(u64, u64)>;

fn united(ranges: Ranges) -> Vec<(u64, u64)> {
    let mut united: Vec<(u64, u64)> = Vec::new();
    for (start, end) in ranges {
        match united.last_mut() {
            Some(last) if start <= last.1 => last.1 = last.1.max(end),
            _ => united.push((start, end)),
        }
    }
    united
}

/// The key is derived from these features.
const KEYED_FEATURES: [Feature; 4] =
    [Feature::HOSTNAME, Feature::CMDLINE, Feature::BUILD_ID, Feature::BPF_PROG_INFO];

impl Survey for Learn {
    fn record(&mut self, record: &Record<'_>, _layouts: &Layouts) -> Result<()> {
        if self.redact.args.key.is_none() && KEYED.contains(record.kind()) {
            self.key.add(record.bytes());
        }
        self.learn_mapping(record);
        self.made.extend(Task::of(record).map(|task| (task.ppid, task.pid)));
        Ok(())
    }

    fn end(mut self, session: &mut Session) -> Result<Stage> {
        let maps = initial_maps(session.features(), session.endian);
        maps.records().for_each(|record| self.learn_mapping(&record));
        match &self.redact.args.key {
            Some(text) => self.key = Key::of_text(text),
            None => {
                let sections = KEYED_FEATURES.iter().filter_map(|feature| session.feature(*feature));
                sections.for_each(|section| self.key.add(section));
            }
        }
        Ok(Remove::stage(self.redact.clone(), self.key, self.mapped()))
    }
}

impl Fork for Learn {
    fn fork(&self) -> Learn {
        Learn::new(self.redact.clone())
    }

    fn absorb(&mut self, later: Learn) {
        self.key.join(&later.key);
        self.mapped.extend(later.mapped);
        self.processes.extend(later.processes);
        self.made.extend(later.made);
    }
}
