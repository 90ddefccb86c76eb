//! Keeps the last sched_switch sample of each task that left its CPU, in bounded memory.

use std::collections::{BTreeMap, HashMap};

use perfx_format::{Endian, Layout, Layouts, Record};
use perfx_pipeline::{Level, Report, counted};

/// Maximum memory of samples, bytes; when it is exceeded, the oldest are dropped.
const HELD_MAX: usize = 32 << 20;

/// The approximate memory of a sample besides its bytes.
const OVERHEAD: usize = 128;

#[derive(Debug, Default)]
pub(crate) struct SwitchedOut {
    by_tid: HashMap<u32, HeldSample>,
    /// The tids, from the oldest sample on.
    ages: BTreeMap<u64, u32>,
    next_age: u64,
    size: usize,
    forgotten: u64,
}

#[derive(Debug)]
struct HeldSample {
    sample: Box<[u8]>,
    layout: Layout,
    since: u64,
    age: u64,
}

impl SwitchedOut {
    /// Keeps the sample of a task that leaves its CPU. Returns true if it replaces an earlier one.
    pub(crate) fn insert(&mut self, tid: u32, sample: &Record<'_>, layouts: &Layouts) -> bool {
        // Tid 0 is the idle task of every CPU.
        let Some(layout) = layouts.layout_of(sample).filter(|_| tid != 0) else { return false };
        let again = self.remove(tid);
        let age = self.next_age;
        self.next_age += 1;
        let since = layout.recorded_time(sample).unwrap_or(0);
        let held = HeldSample { sample: sample.bytes().into(), layout: *layout, since, age };
        self.size += held.sample.len() + OVERHEAD;
        self.by_tid.insert(tid, held);
        self.ages.insert(age, tid);
        while self.size > HELD_MAX
            && let Some((_, &oldest)) = self.ages.first_key_value()
        {
            self.remove(oldest);
            self.forgotten += 1;
        }
        again
    }

    pub(crate) fn remove(&mut self, tid: u32) -> bool {
        let Some(held) = self.by_tid.remove(&tid) else { return false };
        self.ages.remove(&held.age);
        self.size -= held.sample.len() + OVERHEAD;
        true
    }

    pub(crate) fn contains(&self, tid: u32) -> bool {
        self.by_tid.contains_key(&tid)
    }

    /// The sample of a task off the CPU, moved to this time; `period` maps the time it left to a period, ns.
    pub(crate) fn sample_at(
        &self,
        tid: u32,
        time: u64,
        period: impl FnOnce(u64) -> u64,
        endian: Endian,
    ) -> Option<Vec<u8>> {
        let HeldSample { sample, layout, since, .. } = self.by_tid.get(&tid)?;
        let mut bytes = sample.to_vec();
        layout.set_time(&mut bytes, time, endian)?;
        layout.set_period(&mut bytes, period(*since), endian)?;
        Some(bytes)
    }

    pub(crate) fn len(&self) -> usize {
        self.by_tid.len()
    }

    pub(crate) fn report(&self, report: &mut Report) {
        if self.forgotten > 0 {
            let samples = counted(self.forgotten, "sched_switch sample was", "sched_switch samples were");
            let mib = HELD_MAX >> 20;
            let what =
                format!("{samples} left out, because those of all tasks would take more than {mib} MiB");
            report.say(Level::Loss, what);
        }
    }
}

#[cfg(test)]
mod tests {
    use perfx_format::record::builder::build;
    use perfx_format::{Attr, Event, Origin, RecordType, sample_type as st};

    use super::*;

    #[test]
    fn the_oldest_samples_are_dropped_at_the_memory_limit() {
        let endian = Endian::Little;
        let mut attr = Attr::default();
        attr.sample_type = st::TIME | st::PERIOD | st::RAW;
        let layouts = Layouts::new(&[Event::made(&attr, vec![1], endian)]);
        let bytes = build(RecordType::SAMPLE, 0, &[&[1; 16], &[0; 1 << 15]], endian).unwrap();
        let sample = Record::new(&bytes, &[], Origin::Synthetic, endian).unwrap();
        let mut switched_out = SwitchedOut::default();
        for tid in 0..2000 {
            assert!(!switched_out.insert(tid, &sample, &layouts));
        }
        assert!(switched_out.size <= HELD_MAX && switched_out.forgotten > 900, "{switched_out:?}");
        assert_eq!(switched_out.forgotten + switched_out.len() as u64, 1999, "all but the idle task");
        assert!(switched_out.insert(1999, &sample, &layouts), "the latest is there");
        assert_eq!(switched_out.sample_at(1, 5, |since| since, endian), None);
        let made = switched_out.sample_at(1999, 5, |since| since + 1, endian).unwrap();
        let made = Record::new(&made, &[], Origin::Synthetic, endian).unwrap();
        let time = 0x0101_0101_0101_0101;
        assert_eq!((made.u64(8), made.u64(16), made.bytes().len()), (Some(5), Some(time + 1), bytes.len()));
    }
}
