//! The addresses in a trace, and the bytes of the trace that belong to each.

use crate::image::Space;

/// An address in a packet, and the trace up to the next one.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Visit {
    /// The address space of the code; `None` if unknown.
    pub space: Option<Space>,
    /// The address.
    pub ip: u64,
    /// The time, in ticks.
    pub time: u64,
    /// True in a guest whose code is unknown (Intel PT).
    pub is_hidden: bool,
    /// From the packet up to the next one that has an address or ends tracing.
    pub bytes: u64,
}

pub(crate) enum Position {
    Nothing,
    At(u64),
    /// An address in a guest whose code is unknown.
    Hidden(u64),
    /// Tracing ended, or the next address is unknown.
    End,
}

pub(crate) trait PositionReader {
    fn offset(&self) -> u64;
    fn read(&mut self) -> Option<Position>;
    /// The address space after the packets read so far, if known, and their time, in ticks.
    fn now(&self) -> (Option<Space>, u64);
}

/// The addresses in packets. Each is complete when the next one ends its bytes of the trace.
pub(crate) fn visits(mut reader: impl PositionReader) -> impl Iterator<Item = Visit> {
    // The last address, and the offset of its packet.
    let mut last: Option<(Visit, u64)> = None;
    std::iter::from_fn(move || {
        loop {
            let offset = reader.offset();
            let position = reader.read();
            let next = match position {
                Some(Position::Nothing) => continue,
                Some(Position::At(ip) | Position::Hidden(ip)) => {
                    let (space, time) = reader.now();
                    let is_hidden = matches!(position, Some(Position::Hidden(_)));
                    Some((Visit { space, ip, time, is_hidden, bytes: 0 }, offset))
                }
                Some(Position::End) | None => None,
            };
            let before = std::mem::replace(&mut last, next);
            if before.is_none() && position.is_some() {
                continue;
            }
            return before.map(|(visit, begin)| Visit { bytes: offset.saturating_sub(begin), ..visit });
        }
    })
}
