//! NAMESPACES records name the namespaces of a task by device and inode.

use super::reader::Reader;
use crate::{Endian, Record, RecordType, Value, named};

/// The offset of the first namespace, and the size of each.
const ENTRIES: usize = 24;
const ENTRY: usize = 16;

named! {
    /// A kind of namespace, in the order of the records.
    #[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
    #[allow(missing_docs, reason = "the names are those of /proc/PID/ns")]
    pub enum NamespaceKind {
        Net = "net",
        Uts = "uts",
        Ipc = "ipc",
        Pid = "pid",
        User = "user",
        Mnt = "mnt",
        Cgroup = "cgroup",
    }
    /// Its name in /proc/PID/ns.
    fn name
}

/// The namespaces of a task, by their inodes; 0 for those that its kernel does not have.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
pub struct Namespaces([u64; NamespaceKind::ALL.len()]);

impl Namespaces {
    /// The process, the thread and its namespaces in a NAMESPACES record; `None` for others or a short one.
    pub fn of(record: &Record<'_>) -> Option<(u32, u32, Namespaces)> {
        if record.kind() != RecordType::NAMESPACES {
            return None;
        }
        let count = record.u64(16)?;
        let mut inodes = [0; NamespaceKind::ALL.len()];
        for (number, inode) in (0..count).zip(&mut inodes) {
            *inode = record.u64(ENTRIES + number as usize * ENTRY + 8)?;
        }
        Some((record.u32(8)?, record.u32(12)?, Namespaces(inodes)))
    }

    pub(crate) fn decode(d: &mut Reader<'_>) -> Option<()> {
        d.task()?;
        let count = d.int::<u64>("nr_namespaces")?;
        let mut kinds = NamespaceKind::ALL.into_iter();
        d.list("link_info", count, ENTRY, |d| {
            if let Some(kind) = kinds.next() {
                d.note("ns", Value::Name(kind.name().into()));
            }
            d.number::<u64>("dev")?;
            d.number::<u64>("ino").map(drop)
        })
    }

    /// The inode of its namespace of a kind.
    pub fn inode(&self, kind: NamespaceKind) -> Option<u64> {
        Some(self.0[kind as usize]).filter(|&inode| inode != 0)
    }
}

/// Replaces device and inode of each namespace in the bytes of a NAMESPACES record
/// (include/uapi/linux/perf_event.h, `PERF_RECORD_NAMESPACES`). Nothing changes in other records.
///
/// | byte | |
/// |---|---|
/// | 8 | u32 pid, u32 tid, u64 count |
/// | 24 | for each: u64 device, u64 inode; then the trailer |
pub fn change_namespaces(record: &mut [u8], endian: Endian, mut change: impl FnMut(u64, u64) -> (u64, u64)) {
    if endian.u32(record, 0) != Some(RecordType::NAMESPACES.0) {
        return;
    }
    let stated = endian.u64(record, 16).unwrap_or(0);
    let fitting = record.len().saturating_sub(ENTRIES) / ENTRY;
    let count = usize::try_from(stated).unwrap_or(usize::MAX).min(fitting);
    for entry in record.get_mut(ENTRIES..).unwrap_or_default().chunks_exact_mut(ENTRY).take(count) {
        if let Some((device, inode)) = endian.u64(entry, 0).zip(endian.u64(entry, 8)) {
            let (device, inode) = change(device, inode);
            endian.set_u64(entry, 0, device);
            endian.set_u64(entry, 8, inode);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::record::builder::build;

    #[test]
    fn only_the_namespaces_that_are_counted_and_there_change() {
        for endian in [Endian::Little, Endian::Big] {
            for (stated, changed) in [(0, 0), (1, 1), (2, 2), (99, 3), (u64::MAX, 3)] {
                let words = [5, stated, 1, 2, 3, 4, 5, 6].map(|word| endian.bytes_u64(word));
                let mut record = build(RecordType::NAMESPACES, 0, &[words.as_flattened()], endian).unwrap();
                change_namespaces(&mut record, endian, |device, inode| (device + 100, inode + 1000));
                let word = |at: usize| endian.u64(&record, 24 + at * 8).unwrap();
                let inodes: Vec<u64> = (0..3).map(|entry| word(entry * 2 + 1)).collect();
                let expected = (0..3).map(|entry| entry * 2 + 2 + if entry < changed { 1000 } else { 0 });
                assert_eq!(inodes, expected.collect::<Vec<_>>());
                assert_eq!(word(0), if changed > 0 { 101 } else { 1 });
            }
            let mut short = build(RecordType::NAMESPACES, 0, &[&[9; 4]], endian).unwrap();
            change_namespaces(&mut short, endian, |_, _| (0, 0));
        }
    }
}
