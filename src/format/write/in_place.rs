//! Changes feature sections of a file without moving its data, so that at every moment, power cuts included,
//! the file is a complete recording.
//!
//! The place of the feature table follows from the data section, and its slots from the bitmap in the header,
//! so a new slot cannot be added in one step. Only the header can be written in one step: its 104 bytes are
//! in one sector of any disk. So all new bytes are first appended to the file, with a journal of the new
//! bitmap and table. Then the header is changed to point to the journal (in `event_types`, which readers have
//! ignored since perf 3.x) and to show only the features whose slots do not change. Then the table is
//! written, and finally the header shows all features. Each step is on disk before the next begins. In
//! between, perf sees a valid recording, for a moment with fewer features; perfx always sees all.

use std::collections::BTreeMap;
use std::fs::File;
use std::io::{Seek as _, SeekFrom, Write as _};

use crate::header::{FILE_HEADER_SIZE, FileHeader, read_at};
use crate::journal::{Journal, table};
use crate::section::{SLOT_SIZE, Section, feature_bitmap};
use crate::{Bytes, Endian, Error, FaultCode, Feature, Result};

/// The new sections of features; `None` removes the feature.
pub type Changes = BTreeMap<Feature, Option<Bytes>>;

/// Makes all changes at once. `file` is open for reading and writing, and `header` was just read from it.
/// Returns false and changes nothing if the data would have to move: a file of perf before 3.3, a damaged
/// file, or other data after the feature table.
///
/// # Errors
///
/// The file cannot be read or written. The error describes the state of the file.
pub fn replace_sections(file: &File, header: &FileHeader, changes: &Changes) -> Result<bool> {
    let io = |e| Error::io("the file can't be changed in place", e);
    let len = file.metadata().map_err(io)?.len();
    if len < FILE_HEADER_SIZE as u64 {
        return Ok(false);
    }
    let mut front = [0; FILE_HEADER_SIZE];
    read_at(file, &mut front, 0).map_err(io)?;
    let Some(steps) = steps(front, len, header, changes) else { return Ok(false) };
    let (table_at, table) = &steps[2];
    let mut old_table = vec![0; table.len().min(len.saturating_sub(*table_at) as usize)];
    read_at(file, &mut old_table, *table_at).map_err(io)?;
    carry_out(file, &steps, &Before { len, front, table: old_table })?;
    Ok(true)
}

/// The destination of the steps: a file, or a test's model of one.
trait WriteTarget {
    fn write(&self, bytes: &[u8], offset: u64) -> std::io::Result<()>;
    fn shorten(&self, len: u64) -> std::io::Result<()>;
}

impl WriteTarget for File {
    fn write(&self, bytes: &[u8], offset: u64) -> std::io::Result<()> {
        let mut file = self;
        file.seek(SeekFrom::Start(offset))?;
        file.write_all(bytes)?;
        file.sync_data()
    }

    fn shorten(&self, len: u64) -> std::io::Result<()> {
        self.set_len(len)
    }
}

struct Before {
    len: u64,
    front: [u8; FILE_HEADER_SIZE],
    table: Vec<u8>,
}

/// Carries out all steps, or undoes them. If undoing fails, the error describes the state of the file.
fn carry_out(file: &impl WriteTarget, steps: &[(u64, Vec<u8>); 4], before: &Before) -> Result<()> {
    for (number, (offset, bytes)) in steps.iter().enumerate() {
        let Err(error) = file.write(bytes, *offset) else { continue };
        let (_, with_journal) = &steps[1];
        let (table, front) = ((steps[2].0, &before.table[..]), (0, &before.front[..]));
        // While the table differs from the old one, the header must point to the journal.
        let undo = match number {
            0 => vec![],
            1 => vec![front],
            2 => vec![table, front],
            _ => vec![(0, &with_journal[..]), table, front],
        };
        let undone = undo.iter().try_for_each(|(offset, bytes)| file.write(bytes, *offset));
        let what = match undone.map(|()| file.shorten(before.len)) {
            Ok(Ok(())) => "the file can't be changed in place and is unchanged",
            Ok(Err(_)) => "the file can't be changed in place; meaningless bytes now follow its last section",
            Err(_) => {
                "the change in place may be incomplete; perfx can read the whole file, and perfx repair --in-place \
                 finishes the change"
            }
        };
        return Err(Error::io(what, error));
    }
    Ok(())
}

/// The bytes and the offset of each step. Each step is on disk before the next.
fn steps(
    front: [u8; FILE_HEADER_SIZE],
    len: u64,
    header: &FileHeader,
    changes: &Changes,
) -> Option<[(u64, Vec<u8>); 4]> {
    let endian = header.magic.endian;
    let sound = header.faults.iter().all(|fault| fault.code == FaultCode::InPlaceInterrupted);
    if header.magic.size != FILE_HEADER_SIZE as u64 || !header.event_types.is_empty() || !sound {
        return None;
    }
    let mut appended = Vec::new();
    let mut append = |bytes: &[u8]| {
        let section = Section { offset: len + appended.len() as u64, size: bytes.len() as u64 };
        appended.extend_from_slice(bytes);
        section
    };
    let mut slots: Vec<(Feature, Section)> =
        header.sections.iter().filter(|(feature, _)| !changes.contains_key(feature)).copied().collect();
    for (&feature, bytes) in changes {
        slots.extend(bytes.as_ref().map(|bytes| (feature, append(bytes))));
    }
    slots.sort_unstable_by_key(|(feature, _)| *feature);
    let table_at = Section { offset: header.data.end(), size: slots.len() as u64 * SLOT_SIZE };
    // The changed bytes must not belong to anything else.
    let front_at = Section { offset: 0, size: FILE_HEADER_SIZE as u64 };
    let crossed = header.ids.iter().any(|ids| ids.overlaps(&table_at) || ids.overlaps(&front_at))
        || slots.iter().any(|(_, section)| section.overlaps(&front_at));
    if crossed || header.attrs.overlaps(&table_at) {
        return None;
    }
    // A table that grows may overlap sections, which therefore move to the end of the file, too.
    for (feature, section) in &mut slots {
        if section.overlaps(&table_at) {
            *section = append(header.features.get(feature)?);
        }
    }
    let journal = Journal { slots };
    let journal_at = append(&journal.write(endian));
    // Slots that do not change, counted from the front of the table, stay visible throughout. After an
    // interrupted change it is unknown how much of the table was written.
    let same = journal
        .slots
        .iter()
        .zip(&header.sections)
        .take_while(|(new, old)| header.faults.is_empty() && new == old);
    let stay = same.map(|(slot, _)| slot.0);
    let all = journal.slots.iter().map(|slot| slot.0);
    Some([
        (len, appended),
        (0, with_features(front, stay, journal_at, endian)),
        (table_at.offset, table(&journal.slots, endian)),
        (0, with_features(front, all, Section::default(), endian)),
    ])
}

fn with_features(
    mut front: [u8; FILE_HEADER_SIZE],
    features: impl IntoIterator<Item = Feature>,
    journal: Section,
    endian: Endian,
) -> Vec<u8> {
    front[56..64].copy_from_slice(&endian.bytes_u64(journal.offset));
    front[64..72].copy_from_slice(&endian.bytes_u64(journal.size));
    front[72..].copy_from_slice(&feature_bitmap(features, endian));
    front.to_vec()
}

#[cfg(test)]
mod tests {
    use std::cell::{Cell, RefCell};

    use super::*;

    const FILE: &[u8] = include_bytes!("../../../tests/data/recorded/z.p73.data");

    fn read(file: &[u8]) -> FileHeader {
        FileHeader::read(&Bytes::from(file.to_vec())).unwrap()
    }

    fn apply(file: &mut Vec<u8>, (offset, bytes): &(u64, Vec<u8>)) {
        let range = *offset as usize..*offset as usize + bytes.len();
        file.resize(file.len().max(range.end), 0);
        file[range].copy_from_slice(bytes);
    }

    /// A power cut after any step, or while the table is written, leaves all features, each old or new.
    #[test]
    fn a_power_cut_at_any_step_leaves_a_complete_file() {
        let old = read(FILE);
        assert!(!old.features.contains_key(&Feature::BUILD_ID), "the table must have to grow");
        let section = || Some(Bytes::from(b"a section of its own".to_vec()));
        for changes in [
            vec![(Feature::BUILD_ID, section())],
            vec![(Feature::HOSTNAME, section())],
            vec![(Feature(250), section())],
            vec![(Feature::HOSTNAME, None)],
            vec![(Feature::BUILD_ID, section()), (Feature::ARCH, section()), (Feature::SAMPLE_TIME, None)],
        ] {
            let changes = Changes::from_iter(changes);
            let front = *FILE.first_chunk().unwrap();
            let steps = steps(front, FILE.len() as u64, &old, &changes).unwrap();
            let mut file = FILE.to_vec();
            for (number, step) in steps.iter().enumerate() {
                for part in 0..step.1.len() {
                    // The header reaches the disk in one piece, the other bytes possibly one by one.
                    if step.0 != 0 {
                        let mut torn = file.clone();
                        apply(&mut torn, &(step.0, step.1[..part].to_vec()));
                        check(&read(&torn), &old, &changes);
                    }
                }
                apply(&mut file, step);
                let now = read(&file);
                check(&now, &old, &changes);
                assert_eq!(now.faults.is_empty(), number == 0 || number == 3);
                assert_eq!(now.data, old.data);
            }
            let now = read(&file);
            for (feature, section) in &changes {
                assert_eq!(now.features.get(feature), section.as_ref());
            }
        }
    }

    fn check(now: &FileHeader, old: &FileHeader, changes: &Changes) {
        for (feature, bytes) in &old.features {
            let is = now.features.get(feature);
            let new = changes.get(feature).is_some_and(|new| is == new.as_ref());
            assert!(is == Some(bytes) || new, "{feature}");
        }
        assert_eq!(now.events, old.events);
    }

    struct Failing {
        bytes: RefCell<Vec<u8>>,
        writes: Cell<usize>,
        recovers: bool,
    }

    impl WriteTarget for Failing {
        fn write(&self, bytes: &[u8], offset: u64) -> std::io::Result<()> {
            let failed = self.writes.get() == 0;
            if !failed || self.recovers {
                self.writes.set(self.writes.get().wrapping_sub(1));
            }
            // A failing write may have written a part.
            let part = if failed && offset != 0 { bytes.len() / 2 } else { bytes.len() };
            if !failed || self.recovers {
                apply(&mut self.bytes.borrow_mut(), &(offset, bytes[..part].to_vec()));
            }
            if failed { Err(std::io::ErrorKind::StorageFull.into()) } else { Ok(()) }
        }

        fn shorten(&self, len: u64) -> std::io::Result<()> {
            self.bytes.borrow_mut().truncate(len as usize);
            Ok(())
        }
    }

    #[test]
    fn a_failed_write_leaves_the_file_unchanged_or_describes_its_state() {
        let old = read(FILE);
        let section = || Some(Bytes::from(b"a section of its own".to_vec()));
        let changes = Changes::from_iter([(Feature::BUILD_ID, section()), (Feature::ARCH, section())]);
        let front = *FILE.first_chunk().unwrap();
        let steps = steps(front, FILE.len() as u64, &old, &changes).unwrap();
        let table = FILE[steps[2].0 as usize..][..steps[2].1.len()].to_vec();
        let before = Before { len: FILE.len() as u64, front, table };
        for recovers in [true, false] {
            for writes in 0..4 {
                let bytes = RefCell::new(FILE.to_vec());
                let file = Failing { bytes, writes: Cell::new(writes), recovers };
                let error = carry_out(&file, &steps, &before).unwrap_err();
                let now = file.bytes.into_inner();
                if recovers || writes == 0 {
                    assert!(error.what().ends_with("is unchanged"), "{error}");
                    assert!(now == FILE, "after {writes} writes");
                } else {
                    assert!(error.what().contains("may be incomplete"), "{error}");
                    check(&read(&now), &old, &changes);
                }
            }
        }
    }

    /// perfx can read an unfinished change and finish it.
    #[test]
    fn an_interrupted_change_is_finished_by_the_next() {
        let old = read(FILE);
        let front = *FILE.first_chunk().unwrap();
        let change =
            |text: &str| Changes::from([(Feature::BUILD_ID, Some(Bytes::from(text.as_bytes().to_vec())))]);
        let first = steps(front, FILE.len() as u64, &old, &change("one")).unwrap();
        let mut file = FILE.to_vec();
        first[..2].iter().for_each(|step| apply(&mut file, step));
        apply(&mut file, &(first[2].0, first[2].1[..20].to_vec()));
        let half = read(&file);
        let front = *file.first_chunk().unwrap();
        let second = steps(front, file.len() as u64, &half, &change("two")).unwrap();
        second.iter().for_each(|step| apply(&mut file, step));
        let now = read(&file);
        assert!(now.faults.is_empty());
        assert_eq!(now.features[&Feature::BUILD_ID][..], b"two"[..]);
        assert_eq!(now.features.len(), old.features.len() + 1);
    }
}
