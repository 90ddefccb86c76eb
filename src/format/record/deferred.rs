//! CALLCHAIN_DEFERRED records contain the user part of call chains, recorded on return to user space.

use super::reader::Reader;
use crate::decode::sample::callchain;
use crate::sample::U64s;
use crate::{FaultCode, Record, RecordType};

pub(crate) const IPS: usize = 24;

/// A CALLCHAIN_DEFERRED record (include/uapi/linux/perf_event.h, since Linux 6.19).
///
/// | byte | |
/// |---|---|
/// | 8 | u64 cookie, u64 nr |
/// | 24 | nr × u64 address; then the trailer |
#[derive(Clone, Copy, Debug)]
pub struct CallchainDeferred<'a> {
    /// Equals the last address of the samples that the record completes.
    pub cookie: u64,
    /// The addresses, innermost first. Empty if they do not fit into the record.
    pub ips: U64s<'a>,
}

impl<'a> CallchainDeferred<'a> {
    /// Parses a CALLCHAIN_DEFERRED record; `None` for other kinds, and for a record that is too short.
    pub fn of(record: &Record<'a>) -> Option<CallchainDeferred<'a>> {
        if record.kind() != RecordType::CALLCHAIN_DEFERRED {
            return None;
        }
        let count = usize::try_from(record.u64(16).unwrap_or(0)).unwrap_or(usize::MAX);
        let ips = record.bytes().get(IPS..).unwrap_or_default();
        let ips = ips.get(..count.saturating_mul(8)).unwrap_or_default();
        Some(CallchainDeferred { cookie: record.u64(8)?, ips: U64s::new(ips, record.endian()) })
    }

    pub(crate) fn decode(d: &mut Reader<'_>) -> Option<()> {
        d.hex::<u64>("cookie")?;
        let count = d.int::<u64>("nr")?;
        let all = d.left() / 8;
        let fitting = usize::try_from(count).unwrap_or(usize::MAX).min(all);
        let chain = U64s::new(d.take("ips", fitting * 8)?, d.endian());
        d.note("ips", callchain(chain));
        if count > fitting as u64 {
            d.add_issue(
                FaultCode::CountTooLarge,
                format!("{count} items of `ips`, but only {fitting} are there"),
            );
            return None;
        }
        Some(())
    }
}
