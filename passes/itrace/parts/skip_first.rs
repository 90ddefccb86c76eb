//! Leaves out the first samples, for `s` of `--itrace`.

use std::collections::HashMap;

use perfx_format::{Endian, Layout, Origin, Record, RecordType};
use perfx_samples::Rows;

use crate::itrace::events::Decoded;

/// Leaves out samples, and sums up their periods.
#[derive(Debug)]
pub(crate) struct SkipFirst {
    left: u64,
    /// The ids and layouts of events whose next sample in a buffer gets the periods left out there.
    counting: Vec<(u64, Layout)>,
    /// The periods left out, by buffer and event.
    periods: HashMap<(usize, u64), u64>,
    endian: Endian,
}

impl SkipFirst {
    pub(crate) fn new<'e>(
        count: u64,
        counting: impl IntoIterator<Item = &'e Decoded>,
        endian: Endian,
    ) -> SkipFirst {
        let ids = |event: &'e Decoded| event.ids.all().map(|id| (id, Layout::new(&event.attr)));
        let counting = counting.into_iter().flat_map(ids).collect();
        SkipFirst { left: count, counting, periods: HashMap::new(), endian }
    }

    /// True if all later samples are passed on.
    #[inline(always)]
    pub(super) fn is_done(&self) -> bool {
        self.left == 0 && self.periods.is_empty()
    }

    /// Adds a row of a buffer to `to`, unless it is left out.
    pub(super) fn pass(&mut self, buffer: usize, (rows, number): (&Rows, usize), to: &mut Rows) {
        if self.is_done() {
            return to.extend(rows, number..number + 1);
        }
        let mut record = Vec::new();
        rows.write(number, &mut record);
        let key = rows.key(number).unwrap_or_default();
        self.change(buffer, &record, |record| to.push(key, |bytes| bytes.extend_from_slice(record)));
    }

    fn change(&mut self, buffer: usize, record: &[u8], push: impl FnOnce(&[u8])) {
        let Ok(sample) = Record::new(record, &[], Origin::Synthetic, self.endian) else {
            return push(record);
        };
        if sample.kind() != RecordType::SAMPLE {
            return push(record);
        }
        let own = self.counting.iter().find(|(id, layout)| layout.id(&sample) == Some(*id));
        let period = own.and_then(|(_, layout)| layout.period(&sample));
        let key = (buffer, own.map_or(0, |(id, _)| *id));
        if self.left > 0 {
            self.left -= 1;
            if let Some(period) = period {
                *self.periods.entry(key).or_default() += period;
            }
            return;
        }
        match period.and_then(|period| Some((own?, period, self.periods.remove(&key)?))) {
            Some(((_, layout), period, before)) => {
                let mut changed = record.to_vec();
                layout
                    .set_period(&mut changed, period.saturating_add(before), self.endian)
                    .unwrap_or_default();
                push(&changed);
            }
            None => push(record),
        }
    }
}
