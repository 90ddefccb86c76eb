//! Changes addresses in the call chains and branch stacks of SAMPLE and CALLCHAIN_DEFERRED records.

use std::borrow::Cow;

use super::cpumode::USER;
use super::deferred::{CallchainDeferred, IPS};
use crate::sample::{Marker, U64s, branches_range, callchain_range};
use crate::{HEADER_SIZE, Layout, Record, Result};

/// Changes the addresses of the call chain of a sample or CALLCHAIN_DEFERRED record for which `change`
/// returns another one; it takes the cpumode and the address. `bytes` are those of the record, perhaps with
/// other changes of the same size; they are copied only to be changed. Returns the number of changed ones.
pub fn change_frames(
    record: &Record<'_>,
    layout: Option<&Layout>,
    bytes: &mut Cow<'_, [u8]>,
    change: impl FnMut(u16, u64) -> Option<u64>,
) -> u64 {
    let (start, chain, cpumode) = match (CallchainDeferred::of(record), layout) {
        (Some(deferred), _) => (IPS, deferred.ips, USER),
        (None, Some(layout)) => {
            let Some(range) = callchain_range(record, layout) else { return 0 };
            let chain =
                U64s::new(record.body().get(range.start + 8..range.end).unwrap_or_default(), record.endian());
            (HEADER_SIZE + range.start + 8, chain, record.cpumode())
        }
        (None, None) => return 0,
    };
    let mut count = 0;
    for (at, new) in changed(chain, cpumode, change) {
        record.endian().set_u64(bytes.to_mut(), start + at * 8, new);
        count += 1;
    }
    count
}

/// The changed addresses of a call chain: the index of each entry, and the new address.
pub(crate) fn changed(
    chain: U64s<'_>,
    mut cpumode: u16,
    mut change: impl FnMut(u16, u64) -> Option<u64>,
) -> impl Iterator<Item = (usize, u64)> {
    let mut cookie = false;
    chain.iter().enumerate().filter_map(move |(at, entry)| {
        if std::mem::take(&mut cookie) {
            return None;
        }
        if let Some(marker) = Marker::of(entry) {
            cpumode = marker.cpumode();
            cookie = marker == Marker::USER_DEFERRED;
            return None;
        }
        let new = change(cpumode, entry).filter(|&new| new != entry)?;
        Some((at, new))
    })
}

/// Changes the addresses of the branch stack of a sample, source and target, as [`change_frames`] does.
///
/// # Errors
///
/// The record is not a sample, or is shorter than its parts say.
pub fn change_branches(
    record: &Record<'_>,
    layout: &Layout,
    bytes: &mut Cow<'_, [u8]>,
    mut change: impl FnMut(u64) -> u64,
) -> Result<()> {
    let range = branches_range(record, layout)?.unwrap_or_default();
    let words = U64s::new(record.bytes().get(range.clone()).unwrap_or_default(), record.endian());
    // The third word of each branch has its flags.
    for (at, word) in words.iter().enumerate().filter(|(at, _)| at % 3 != 2) {
        record.endian().set_u64(bytes.to_mut(), range.start + at * 8, change(word));
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::record::builder::build;
    use crate::record::cpumode::KERNEL;
    use crate::{Attr, Endian, Origin, RecordType, sample_type as st};

    #[test]
    fn only_addresses_change_each_with_its_cpumode() {
        for endian in [Endian::Little, Endian::Big] {
            let words =
                |words: &[u64]| words.iter().flat_map(|&word| endian.bytes_u64(word)).collect::<Vec<u8>>();
            let attr = Attr { sample_type: st::IP | st::CALLCHAIN, ..Attr::default() };
            let layout = Layout::new(&attr);
            let changed = |bytes: &[u8]| {
                let record = Record::new(bytes, &[], Origin::Synthetic, endian).unwrap();
                let mut new = Cow::Borrowed(bytes);
                let count = change_frames(&record, Some(&layout), &mut new, |cpumode, address| {
                    (address > 10).then_some(address + u64::from(cpumode) * 100)
                });
                let same = matches!(new, Cow::Borrowed(_));
                let words = (1..new.len() / 8).filter_map(|at| endian.u64(&new, at * 8)).collect::<Vec<_>>();
                assert_eq!(same, count == 0);
                (count, words)
            };
            let markers = [Marker::KERNEL, Marker::USER, Marker::USER_DEFERRED].map(|marker| marker.0);
            let [kernel, user, deferred] = markers;
            let sample = |chain: &[u64]| {
                let body = [&[50, chain.len() as u64], chain].concat();
                build(RecordType::SAMPLE, KERNEL, &[&words(&body)], endian).unwrap()
            };
            let old = sample(&[11, kernel, 12, user, 13, 5, deferred, 14]);
            let expected = vec![50, 8, 111, kernel, 112, user, 213, 5, deferred, 14];
            assert_eq!(changed(&old), (3, expected));
            assert_eq!(changed(&sample(&[1, 2])).0, 0);
            let body = words(&[77, 2, 20, 3]);
            let deferred = build(RecordType::CALLCHAIN_DEFERRED, 0, &[&body], endian).unwrap();
            assert_eq!(changed(&deferred), (1, vec![77, 2, 220, 3]));
            for cut in (8..old.len()).step_by(8) {
                let mut short = old[..cut].to_vec();
                crate::record::builder::set_size(&mut short, endian);
                changed(&short);
            }
        }
    }
}
