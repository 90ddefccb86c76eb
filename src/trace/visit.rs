//! An address that a trace tells, and how much of the trace belongs to it.

use crate::image::Space;

/// An address that a packet tells, and the trace up to the next one.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Visit {
    /// Whose code it is; `None` if it is not known.
    pub space: Option<Space>,
    /// The address.
    pub ip: u64,
    /// The time, in ticks.
    pub time: u64,
    /// True in a guest of which it is not known where its code is (Intel PT).
    pub is_hidden: bool,
    /// From the packet up to the next one that tells an address, or that tracing ended.
    pub bytes: u64,
}

/// What a packet tells.
pub(crate) enum Told {
    Nothing,
    At(u64),
    /// The same in a guest of which it is not known where its code is.
    Hidden(u64),
    /// Tracing ended, or what comes next is not known.
    End,
}

/// Reads the packets of a trace one after the other.
pub(crate) trait Reader {
    /// The offset of the packet that is next.
    fn offset(&self) -> u64;
    /// Reads that packet; `None` at the end.
    fn read(&mut self) -> Option<Told>;
    /// Who runs behind the packets that were read, if that is known, and their time, in ticks.
    fn now(&self) -> (Option<Space>, u64);
}

/// Hands out the addresses that packets tell, each when the next one tells where its part of the trace ends.
pub(crate) fn visits(mut reader: impl Reader) -> impl Iterator<Item = Visit> {
    // The last address, and the offset of its packet.
    let mut last: Option<(Visit, u64)> = None;
    std::iter::from_fn(move || {
        loop {
            let offset = reader.offset();
            let told = reader.read();
            let next = match told {
                Some(Told::Nothing) => continue,
                Some(Told::At(ip) | Told::Hidden(ip)) => {
                    let (space, time) = reader.now();
                    let is_hidden = matches!(told, Some(Told::Hidden(_)));
                    Some((Visit { space, ip, time, is_hidden, bytes: 0 }, offset))
                }
                Some(Told::End) | None => None,
            };
            let before = std::mem::replace(&mut last, next);
            if before.is_none() && told.is_some() {
                continue;
            }
            return before.map(|(visit, begin)| Visit { bytes: offset.saturating_sub(begin), ..visit });
        }
    })
}
