//! AUXTRACE_ERROR records report places where AUX data could not be decoded.

use super::builder::build;
use super::reader::Reader;
use crate::{Endian, HEADER_SIZE, Record, RecordType, until_nul};

/// An AUXTRACE_ERROR record (tools/lib/perf/include/perf/event.h, `perf_record_auxtrace_error`).
///
/// | byte | |
/// |---|---|
/// | 8 | u32 type, u32 code, u32 CPU, u32 pid, u32 tid, u32 format: 1, 2 in a guest |
/// | 32 | u64 address, u64 time, the message with a NUL, up to 64 bytes |
/// | 112 | in a guest: u32 process of the host that runs it, u32 its CPU |
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct AuxtraceError<'a> {
    /// The error, in the numbers of the tracer.
    pub code: u32,
    /// The CPU.
    pub cpu: u32,
    /// The process.
    pub pid: u32,
    /// The thread.
    pub tid: u32,
    /// The address up to which the flow is known.
    pub ip: u64,
    /// The time, ns.
    pub time: u64,
    /// The code in words.
    pub message: &'a str,
    /// In a guest, the process of the host that runs it, and its CPU.
    pub guest: Option<(u32, u32)>,
}

const OF_TRACES: u32 = 1;
/// The record has a time, and also names a guest.
const WITH_TIME: u32 = 1;
const WITH_GUEST: u32 = 2;
const MESSAGE_START: usize = 48;
const MESSAGE: usize = 64;

impl<'r> AuxtraceError<'r> {
    /// Parses an AUXTRACE_ERROR of an instruction trace; `None` for other records, and one that is too short.
    ///
    /// | byte | |
    /// |---|---|
    /// | 8 | u32 type, code, CPU, process, thread, format |
    /// | 32 | u64 address |
    /// | 40 | u64 time, if the format is not 0 |
    /// | 40 or 48 | the code in words, up to a NUL |
    /// | 112 | u32 machine_pid, VCPU, if the format is 2 or more |
    pub fn of(record: &Record<'r>) -> Option<AuxtraceError<'r>> {
        let number = |at: usize| record.u32(HEADER_SIZE + 4 * at);
        let is_of_trace = record.kind() == RecordType::AUXTRACE_ERROR && number(0) == Some(OF_TRACES);
        let has_time = number(5)? != 0;
        let (time, after) = if has_time { (record.u64(40)?, MESSAGE_START) } else { (0, 40) };
        let message = std::str::from_utf8(until_nul(record.bytes().get(after..)?)).unwrap_or_default();
        let (code, cpu, pid, tid, ip) = (number(1)?, number(2)?, number(3)?, number(4)?, record.u64(32)?);
        let at = MESSAGE_START + MESSAGE;
        let guest = (number(5)? >= WITH_GUEST).then(|| record.u32(at).zip(record.u32(at + 4))).flatten();
        let guest = guest.filter(|(machine_pid, _)| *machine_pid != 0);
        is_of_trace.then_some(AuxtraceError { code, cpu, pid, tid, ip, time, message, guest })
    }
}

impl AuxtraceError<'_> {
    /// The record, as perf 6.1 and 7.3 write it.
    pub fn write(&self, endian: Endian) -> Vec<u8> {
        let format = if self.guest.is_some() { WITH_GUEST } else { WITH_TIME };
        let words = [OF_TRACES, self.code, self.cpu, self.pid, self.tid, format];
        let mut body: Vec<u8> = words.into_iter().flat_map(|word| endian.bytes_u32(word)).collect();
        body.extend([self.ip, self.time].into_iter().flat_map(|word| endian.bytes_u64(word)));
        let message = self.message.as_bytes();
        body.extend(&message[..message.len().min(MESSAGE - 1)]);
        body.push(0);
        if let Some((machine_pid, vcpu)) = self.guest {
            body.resize(MESSAGE_START + MESSAGE - HEADER_SIZE, 0);
            body.extend([machine_pid, vcpu].into_iter().flat_map(|word| endian.bytes_u32(word)));
        }
        body.resize(body.len().next_multiple_of(8), 0);
        build(RecordType::AUXTRACE_ERROR, 0, &[&body], endian).unwrap_or_default()
    }
}

pub(crate) fn decode(d: &mut Reader<'_>) -> Option<()> {
    d.named::<u32>("type", &[(1, "ITRACE")])?;
    d.number::<u32>("code")?;
    d.any::<u32>("cpu")?;
    d.task()?;
    let format = d.number::<u32>("fmt")?;
    d.hex::<u64>("ip")?;
    if format > 0 {
        d.number::<u64>("time")?;
    }
    if format < 2 {
        return d.text("msg");
    }
    d.field_text("msg", MESSAGE)?;
    d.any::<u32>("machine_pid")?;
    d.any::<u32>("vcpu").map(drop)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::Origin;

    #[test]
    fn what_is_written_is_read() {
        for (guest, size) in [(None, 80), (Some((1000, 3)), 120)] {
            let message = "Failed to get instruction";
            let error = AuxtraceError { code: 5, cpu: 1, pid: 2, tid: 3, ip: 4, time: 6, message, guest };
            for endian in [Endian::Little, Endian::Big] {
                let bytes = error.write(endian);
                assert_eq!(bytes.len(), size);
                let record = Record::new(&bytes, &[], Origin::Synthetic, endian).unwrap();
                assert_eq!(AuxtraceError::of(&record), Some(error));
            }
        }
    }
}
