//! ID_INDEX records map each event id to a CPU, a thread and a guest: a view and a writer.

use super::builder::build;
use super::reader::{Reader, any};
use crate::{Cursor, Endian, FaultCode, HEADER_SIZE, Layouts, RECORD_SIZE_MAX, Record, RecordType};

const ENTRIES: usize = 16;
const ENTRY: usize = 32;
const MACHINE: usize = 16;

/// Any CPU, any thread, or an unknown VCPU.
pub const ANY: u64 = u64::MAX;

/// An entry: the facts about one event id.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct IdEntry {
    /// The id.
    pub id: u64,
    /// Its index in the event's table of CPUs and threads.
    pub idx: u64,
    /// The CPU on which the event counts, or [`ANY`].
    pub cpu: u64,
    /// The thread in which the event counts, or [`ANY`].
    pub tid: u64,
    /// The host process that runs the event's guest; 0 for the host itself.
    pub machine_pid: u64,
    /// The VCPU of that guest.
    pub vcpu: u64,
}

/// An ID_INDEX record (tools/lib/perf/include/perf/event.h, `perf_record_id_index`).
///
/// | byte | |
/// |---|---|
/// | 8 | u64 n |
/// | 16 | n × {u64 id, idx, cpu, tid} |
/// | 16 + 32 n | n × {u64 machine_pid, vcpu}, since perf 6.0, if there is room |
///
/// Entries beyond the end of the record are ignored, whatever n says.
#[derive(Clone, Copy, Debug)]
pub struct IdIndex<'a> {
    record: Record<'a>,
    claimed: Option<u64>,
    count: usize,
    has_machines: bool,
}

impl<'a> IdIndex<'a> {
    /// Parses an ID_INDEX record; `None` for other kinds.
    pub fn of(record: &Record<'a>) -> Option<IdIndex<'a>> {
        if record.kind() != RecordType::ID_INDEX {
            return None;
        }
        let claimed = record.u64(HEADER_SIZE);
        let room = record.bytes().len().saturating_sub(ENTRIES);
        let count = claimed.map_or(usize::MAX, |count| usize::try_from(count).unwrap_or(usize::MAX));
        let has_machines = count <= room / (ENTRY + MACHINE);
        Some(IdIndex { record: *record, claimed, count: count.min(room / ENTRY), has_machines })
    }

    pub(crate) fn decode(layouts: &Layouts, d: &mut Reader<'_>) -> Option<()> {
        let count = d.int::<u64>("nr")?;
        let all = d.rest();
        // A record has less than 64 KiB, so this saturates without harm.
        let first = usize::try_from(count).unwrap_or(usize::MAX).min(all.len()) * ENTRY;
        let second = all.get(first..first + first / 2).unwrap_or_default();
        let mut machines = Cursor::new(second, d.endian());
        let mut unknown = Vec::new();
        d.list("entries", count, ENTRY, |d| {
            let id = d.number::<u64>("id")?;
            // perf looks the id up even if there is only one event, without ids.
            if id != 0 && layouts.event_of_id(id).is_none() {
                unknown.push(id);
            }
            d.number::<u64>("idx")?;
            d.any::<u64>("cpu")?;
            d.any::<u64>("tid")?;
            if let Some((pid, vcpu)) = machines.u64().zip(machines.u64()) {
                d.note("machine_pid", any(pid));
                d.note("vcpu", any(vcpu));
            }
            Some(())
        })?;
        if let Some(id) = unknown.first() {
            d.add_issue(
                FaultCode::IdUnknown,
                format!("no event has the id {id} ({} such ids)", unknown.len()),
            );
        }
        d.take("machines", second.len()).map(drop)
    }

    /// The number of entries.
    pub fn len(&self) -> usize {
        self.count
    }

    /// True if it has no entries.
    pub fn is_empty(&self) -> bool {
        self.count == 0
    }

    /// True if the record has as many entries as its count says.
    pub fn is_count_right(&self) -> bool {
        self.claimed == Some(self.count as u64)
    }

    /// True if the record has the second array, which names the guests.
    pub fn has_machines(&self) -> bool {
        self.has_machines
    }

    pub(crate) fn ids_at(&self) -> impl Iterator<Item = usize> + use<> {
        (0..self.count).map(|number| ENTRIES + number * ENTRY)
    }

    /// The entries.
    pub fn entries(&self) -> impl Iterator<Item = IdEntry> + use<'a> {
        let IdIndex { record, count, has_machines, .. } = *self;
        let word = move |at| record.u64(at).unwrap_or(0);
        let machine = move |at| if has_machines { word(at) } else { 0 };
        (0..count).map(move |number| {
            let (at, machine_at) = (ENTRIES + number * ENTRY, ENTRIES + count * ENTRY + number * MACHINE);
            IdEntry {
                id: word(at),
                idx: word(at + 8),
                cpu: word(at + 16),
                tid: word(at + 24),
                machine_pid: machine(machine_at),
                vcpu: machine(machine_at + 8),
            }
        })
    }
}

/// Maximum number of entries of one record. perf splits by the size of the longer form in both cases.
const ENTRIES_MAX: usize = (RECORD_SIZE_MAX - ENTRIES) / (ENTRY + MACHINE);

/// Builds ID_INDEX records of these entries, none without entries. `with_machines` adds the second array.
pub fn write_id_index(entries: &[IdEntry], with_machines: bool, endian: Endian) -> Vec<Vec<u8>> {
    entries.chunks(ENTRIES_MAX).map(|entries| one_id_index(entries, with_machines, endian)).collect()
}

/// Builds one ID_INDEX record with these entries, possibly none. It has room for 1,364 entries with machines
/// and for 2,047 without; further ones are left out.
pub fn one_id_index(entries: &[IdEntry], with_machines: bool, endian: Endian) -> Vec<u8> {
    let size = if with_machines { ENTRY + MACHINE } else { ENTRY };
    let entries = &entries[..entries.len().min((RECORD_SIZE_MAX - ENTRIES) / size)];
    let ids = entries.iter().flat_map(|entry| [entry.id, entry.idx, entry.cpu, entry.tid]);
    let machines = entries.iter().filter(|_| with_machines);
    let machines = machines.flat_map(|entry| [entry.machine_pid, entry.vcpu]);
    let words = [entries.len() as u64].into_iter().chain(ids).chain(machines);
    let body: Vec<u8> = words.flat_map(|word| endian.bytes_u64(word)).collect();
    build(RecordType::ID_INDEX, 0, &[&body], endian).unwrap_or_default()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::Origin;

    fn entries(count: u64) -> Vec<IdEntry> {
        let entry = |n| IdEntry { id: n + 1, idx: n, cpu: n % 4, tid: ANY, machine_pid: n % 3, vcpu: n % 2 };
        (0..count).map(entry).collect()
    }

    #[test]
    fn what_is_written_is_read_in_both_forms_and_byte_orders() {
        for endian in [Endian::Little, Endian::Big] {
            for (count, records) in [(0, 0), (1, 1), (1364, 1), (1365, 2), (3000, 3)] {
                for with_machines in [false, true] {
                    let written = write_id_index(&entries(count), with_machines, endian);
                    assert_eq!(written.len(), records);
                    let mut read = Vec::new();
                    for bytes in &written {
                        let record = Record::new(bytes, &[], Origin::Synthetic, endian).unwrap();
                        let index = IdIndex::of(&record).unwrap();
                        assert!(index.is_count_right() && index.has_machines() == with_machines);
                        let ids = index.ids_at().filter_map(|at| record.u64(at));
                        assert!(ids.eq(index.entries().map(|entry| entry.id)));
                        read.extend(index.entries());
                    }
                    let machine = |entry: &mut IdEntry| {
                        if !with_machines {
                            (entry.machine_pid, entry.vcpu) = (0, 0);
                        }
                    };
                    let mut wanted = entries(count);
                    wanted.iter_mut().for_each(machine);
                    assert_eq!(read, wanted);
                }
            }
        }
    }

    #[test]
    fn a_wrong_count_gives_the_entries_that_are_there() {
        let mut bytes = write_id_index(&entries(4), false, Endian::Little).remove(0);
        for (claimed, found, machines) in [(4, 4, false), (5, 4, false), (u64::MAX, 4, false), (2, 2, true)] {
            Endian::Little.set_u64(&mut bytes, HEADER_SIZE, claimed);
            let record = Record::new(&bytes, &[], Origin::Synthetic, Endian::Little).unwrap();
            let index = IdIndex::of(&record).unwrap();
            let seen = (index.len(), index.entries().count(), index.has_machines());
            assert_eq!(seen, (found, found, machines), "{claimed}");
            assert_eq!(index.is_count_right(), claimed <= 4);
        }
        let short = [69, 0, 0, 0, 0, 0, 8, 0];
        let record = Record::new(&short, &[], Origin::Synthetic, Endian::Little).unwrap();
        let index = IdIndex::of(&record).unwrap();
        assert!(index.is_empty() && !index.is_count_right());
    }
}
