//! Finds the callers that the call chains of neighbouring samples share, so that each is looked up once.

use std::ops::Range;

use perfx_format::record::cpumode::{GUEST_KERNEL, GUEST_USER};
use perfx_format::sample::{U64s, cpumode_after};
use perfx_format::{OrderKey, Record};

/// The last call chain.
#[derive(Debug, Default)]
pub struct Callers {
    pid: Option<u32>,
    cpumode: u16,
    /// The times for which its addresses belong to the same mappings.
    during: Range<OrderKey>,
    /// Its entries, as recorded.
    words: Vec<u8>,
}

impl Callers {
    /// Sets the next chain, with the process and the key of its record, and the cpumode before its first marker.
    /// Returns the number of outermost entries that it shares with the last one, with the same mappings.
    pub fn begin(
        &mut self,
        record: &Record<'_>,
        (pid, key): (Option<u32>, OrderKey),
        chain: U64s<'_>,
        cpumode: u16,
    ) -> usize {
        let is_same = self.pid == pid && self.during.contains(&key) && !record.is_of_guest();
        let shared = if is_same { self.shared(record, chain, cpumode) } else { 0 };
        if shared == 0 {
            self.during = OrderKey::ALL;
        }
        self.words.clear();
        self.words.extend_from_slice(chain.bytes());
        (self.pid, self.cpumode) = (pid, cpumode);
        shared
    }

    fn shared(&self, record: &Record<'_>, chain: U64s<'_>, cpumode: u16) -> usize {
        let own = U64s::new(&self.words, record.endian());
        let (old, _) = own.bytes().as_chunks::<8>();
        let (new, _) = chain.bytes().as_chunks::<8>();
        let shared = old.iter().rev().zip(new.iter().rev()).take_while(|(old, new)| old == new).count();
        let after = |chain: U64s<'_>, cpumode| cpumode_after(chain.first(chain.len() - shared), cpumode);
        let cpumode = after(chain, cpumode);
        if cpumode.is_some() && cpumode == after(own, self.cpumode) { shared } else { 0 }
    }

    /// Limits the validity of the chain to the times of the mapping of one of its addresses.
    #[inline]
    pub fn are_during(&mut self, record: &Record<'_>, cpumode: u16, mapped: &Range<OrderKey>) {
        // The guest also depends on the event.
        let is_guest = matches!(record.level(cpumode), GUEST_KERNEL | GUEST_USER);
        let end = if is_guest { OrderKey::FIRST } else { self.during.end.min(mapped.end) };
        self.during = self.during.start.max(mapped.start)..end;
    }

    /// True if the next chain may share entries.
    pub fn are_known(&self) -> bool {
        !self.during.is_empty()
    }
}

#[cfg(test)]
mod tests {
    use perfx_format::record::builder::build;
    use perfx_format::record::cpumode::USER;
    use perfx_format::sample::Marker;
    use perfx_format::{Endian, Origin, RecordType};

    use super::*;

    #[test]
    fn callers_are_shared_in_the_same_mode_while_the_mappings_last() {
        let endian = Endian::Little;
        let bytes = build(RecordType::SAMPLE, USER, &[&[0; 8]], endian).unwrap();
        let record = Record::new(&bytes, &[], Origin::Synthetic, endian).unwrap();
        let [kernel, user, deferred] = [Marker::KERNEL, Marker::USER, Marker::USER_DEFERRED].map(|of| of.0);
        let mut callers = Callers::default();
        let mut next = |pid, key, chain: &[u64], until| {
            let words: Vec<u8> = chain.iter().flat_map(|&word| endian.bytes_u64(word)).collect();
            let chain = U64s::new(&words, endian);
            let shared = callers.begin(&record, (Some(pid), OrderKey::at(key)), chain, USER);
            callers.are_during(&record, USER, &(OrderKey::FIRST..OrderKey::at(until)));
            shared
        };
        assert_eq!(next(1, 1, &[7, 8, 9], 50), 0);
        assert_eq!(next(1, 2, &[5, 8, 9], 50), 2);
        assert_eq!(next(1, 3, &[kernel, 6, user, 5, 8, 9], 50), 3);
        assert_eq!(next(1, 4, &[kernel, 5, 8, 9], 50), 0, "the same addresses in the kernel");
        assert_eq!(next(1, 5, &[deferred, 8, 9], 50), 0, "8 is a cookie");
        assert_eq!(next(1, 6, &[8, 9], 10), 0, "and now it is an address");
        assert_eq!(next(1, 9, &[7, 8, 9], 50), 2);
        assert_eq!(next(1, 10, &[7, 8, 9], 50), 0, "a mapping ended at 10");
        assert_eq!(next(2, 11, &[7, 8, 9], 50), 0, "another process");
        assert_eq!(next(2, 12, &[8, 9], 50), 2);
    }
}
