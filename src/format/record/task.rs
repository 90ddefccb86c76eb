//! COMM, FORK and EXIT records report a thread's name, start and end. A SWITCH has all of it in `misc`.

use super::builder::build;
use super::reader::Reader;
use crate::{Endian, HEADER_SIZE, Kinds, Record, RecordType, until_nul};

/// Bit 13 of a COMM's `misc`: the process executes a new program.
pub const COMM_EXEC: u16 = 1 << 13;

/// Bit 13 of the `misc` of SWITCH and SWITCH_CPU_WIDE: the thread leaves its CPU; otherwise it begins to run.
pub const SWITCH_OUT: u16 = 1 << 13;

/// PERF_RECORD_MISC_SWITCH_OUT_PREEMPT: the task that leaves the CPU could have continued.
pub const SWITCH_PREEMPT: u16 = 1 << 14;

pub(crate) const COMM_NAME: usize = 16;

/// A COMM record (include/uapi/linux/perf_event.h, `PERF_RECORD_COMM`).
///
/// | byte | |
/// |---|---|
/// | 8 | u32 pid, u32 tid |
/// | 16 | name, at most 15 bytes from the kernel; a NUL, zeros up to 8 bytes; then the trailer |
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Comm<'a> {
    /// The process.
    pub pid: u32,
    /// The thread with this name.
    pub tid: u32,
    /// Its new name.
    pub name: &'a [u8],
}

impl<'a> Comm<'a> {
    /// Parses a COMM record. `trailer` is the length of its trailer, at which a name without a NUL ends.
    /// `None` for other kinds, and for a record too short for a name.
    pub fn of(record: &Record<'a>, trailer: usize) -> Option<Comm<'a>> {
        if record.kind() != RecordType::COMM {
            return None;
        }
        let end = record.bytes().len().saturating_sub(trailer).max(COMM_NAME);
        let name = until_nul(record.bytes().get(COMM_NAME..end)?);
        Some(Comm { pid: record.u32(8)?, tid: record.u32(12)?, name })
    }

    pub(crate) fn decode(d: &mut Reader<'_>) -> Option<()> {
        d.task()?;
        d.text("comm")
    }

    /// Builds the record. `None` if it is larger than a record can be.
    pub fn write(&self, misc: u16, trailer: &[u8], endian: Endian) -> Option<Vec<u8>> {
        let mut name = self.name.to_vec();
        name.resize((name.len() + 1).next_multiple_of(8), 0);
        let words = [self.pid, self.tid].map(|word| endian.bytes_u32(word));
        build(RecordType::COMM, misc, &[words.as_flattened(), &name, trailer], endian)
    }
}

/// A FORK or EXIT record (include/uapi/linux/perf_event.h, `PERF_RECORD_FORK` and `PERF_RECORD_EXIT`).
///
/// | byte | |
/// |---|---|
/// | 8 | u32 pid, u32 ppid, u32 tid, u32 ptid |
/// | 24 | u64 time, also if the trailer has the time |
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Task {
    /// The process. Equals `ppid` for a new thread of an existing process.
    pub pid: u32,
    /// Its parent.
    pub ppid: u32,
    /// The thread that starts or ends.
    pub tid: u32,
    /// The thread that created it.
    pub ptid: u32,
    /// The time, ns.
    pub time: u64,
}

impl Task {
    /// Parses a FORK or EXIT record. `None` for other kinds, and for a record that is too short.
    pub fn of(record: &Record<'_>) -> Option<Task> {
        if !matches!(record.kind(), RecordType::FORK | RecordType::EXIT) {
            return None;
        }
        Some(Task {
            pid: record.u32(8)?,
            ppid: record.u32(12)?,
            tid: record.u32(16)?,
            ptid: record.u32(20)?,
            time: record.u64(24)?,
        })
    }

    pub(crate) fn decode(d: &mut Reader<'_>) -> Option<()> {
        for name in ["pid", "ppid", "tid", "ptid"] {
            d.any::<u32>(name)?;
        }
        d.number::<u64>("time").map(drop)
    }

    /// Builds a record of kind FORK or EXIT.
    pub fn write(&self, kind: RecordType, misc: u16, trailer: &[u8], endian: Endian) -> Option<Vec<u8>> {
        let words = [self.pid, self.ppid, self.tid, self.ptid].map(|word| endian.bytes_u32(word));
        build(kind, misc, &[words.as_flattened(), &endian.bytes_u64(self.time), trailer], endian)
    }
}

/// The pid in a record's own fields, if it is of [`Kinds::NAMING_PID`].
#[inline]
pub fn named_pid(record: &Record<'_>) -> Option<u32> {
    record.u32(HEADER_SIZE).filter(|_| Kinds::NAMING_PID.contains(record.kind()))
}

/// The pid and tid of the thread that a record of [`Kinds::NAMING_TASK`] is about.
pub fn named_task(record: &Record<'_>) -> Option<(u32, u32)> {
    match record.kind() {
        RecordType::FORK => Task::of(record).map(|task| (task.pid, task.tid)),
        kind if Kinds::NAMING_TASK.contains(kind) => record.u32(8).zip(record.u32(12)),
        _ => None,
    }
}

/// The pid and tid of the thread that a CPU runs from a SWITCH_CPU_WIDE record on. `None` for other kinds,
/// and for a switch to the thread that the record's trailer names.
pub fn next_task(record: &Record<'_>) -> Option<(u32, u32)> {
    let leaves = record.kind() == RecordType::SWITCH_CPU_WIDE && record.misc() & SWITCH_OUT != 0;
    record.u32(8).zip(record.u32(12)).filter(|_| leaves)
}

pub(crate) fn decode_switch(d: &mut Reader<'_>) -> Option<()> {
    d.any::<u32>("next_prev_pid")?;
    d.any::<u32>("next_prev_tid").map(drop)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::Origin;

    #[test]
    fn what_is_written_is_read_again() {
        for endian in [Endian::Little, Endian::Big] {
            let view = |bytes: &[u8], check: &dyn Fn(&Record<'_>)| {
                assert_eq!(bytes.len() % 8, 0);
                check(&Record::new(bytes, &[], Origin::Synthetic, endian).unwrap());
            };
            for trailer in [&[][..], &[0x41; 16]] {
                for name in [&b""[..], b"sh", b"seven..", b"fifteen-letters", &[b'x'; 300]] {
                    let comm = Comm { pid: 7, tid: u32::MAX, name };
                    view(&comm.write(COMM_EXEC, trailer, endian).unwrap(), &|record| {
                        assert_eq!(Comm::of(record, trailer.len()), Some(comm));
                        assert_eq!((record.misc(), Task::of(record)), (COMM_EXEC, None));
                    });
                }
                let task = Task { pid: 8, ppid: 7, tid: 9, ptid: 6, time: u64::MAX - 1 };
                for kind in [RecordType::FORK, RecordType::EXIT] {
                    view(&task.write(kind, 0, trailer, endian).unwrap(), &|record| {
                        assert_eq!((record.kind(), Task::of(record)), (kind, Some(task)));
                        assert_eq!(Comm::of(record, trailer.len()), None);
                    });
                }
            }
        }
    }

    #[test]
    fn a_record_too_short_has_no_view() {
        for (kind, size) in [(RecordType::COMM, 15), (RecordType::FORK, 31), (RecordType::EXIT, 8)] {
            let mut bytes = vec![0; size];
            bytes[0] = kind.0 as u8;
            bytes[6] = size as u8;
            let record = Record::new(&bytes, &[], Origin::Synthetic, Endian::Little).unwrap();
            assert_eq!((Comm::of(&record, 0), Task::of(&record)), (None, None), "{kind}");
        }
    }
}
