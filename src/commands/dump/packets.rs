//! Shows the packets in AUXTRACE records and samples, after the line of each.

use std::io::{self, Write};

use perfx_auxtrace::{ListedPacket, Listing, trace_of};
use perfx_format::{Kinds, Layouts, Record, RecordType};
use perfx_look::json::{Hex, HexDigits, push_json};
use perfx_pipeline::{Level, Report, counted};
use schemars::JsonSchema;
use serde::Serialize;

use crate::args::Format;

/// A packet of a hardware trace.
#[derive(Serialize, JsonSchema)]
#[schemars(deny_unknown_fields)]
pub(crate) struct PacketEntry<'r> {
    /// The offset of the packet in the data of the record
    offset: Hex,
    /// The bytes of the packet; for Intel PT with following PAD packets, up to 8 bytes; absent for CoreSight
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schemars(with = "HexDigits<'r>")]
    raw: Option<HexDigits<'r>>,
    /// The id of the trace unit; only for CoreSight
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schemars(with = "u8")]
    trace_id: Option<u8>,
    /// The packet, in the words of perf (Intel PT, Arm SPE) or OpenCSD (CoreSight)
    packet: String,
}

pub(super) struct Packets {
    listing: Listing,
    format: Format,
    unknown: u64,
}

impl Packets {
    /// The kinds to be read, even if they are not shown.
    pub(super) const KINDS: Kinds =
        Listing::KINDS.union(Kinds::of(&[RecordType::AUXTRACE, RecordType::SAMPLE]));

    pub(super) fn new(format: Format) -> Packets {
        Packets { listing: Listing::default(), format, unknown: 0 }
    }

    pub(super) fn write(
        &mut self,
        record: &Record<'_>,
        layouts: &Layouts,
        is_shown: bool,
        out: &mut impl Write,
    ) -> io::Result<()> {
        if trace_of(record, layouts).is_none() {
            self.listing.see(record, layouts);
            return Ok(());
        }
        if !is_shown {
            return Ok(());
        }
        let is_text = self.format == Format::Text;
        if !is_text {
            out.write_all(b",\"packets\":[")?;
        }
        let mut is_first = true;
        let mut bytes = Vec::new();
        let is_known = self.listing.list(record, layouts, |packet| {
            if is_text {
                put_line(&packet, &mut bytes);
                return out.write_all(&bytes);
            }
            if !std::mem::replace(&mut is_first, false) {
                out.write_all(b",")?;
            }
            let ListedPacket { offset, bytes: raw, id: trace_id, text: packet } = packet;
            let (offset, raw) = (Hex(offset), raw.map(HexDigits));
            bytes.clear();
            push_json(&mut bytes, &PacketEntry { offset, raw, trace_id, packet }, false)?;
            out.write_all(&bytes)
        })?;
        self.unknown += u64::from(!is_known);
        match self.format {
            Format::Text => Ok(()),
            Format::Json => out.write_all(b"]}"),
            Format::Ndjson => out.write_all(b"]}\n"),
        }
    }

    pub(super) fn finish(&self, report: &mut Report) {
        if self.unknown > 0 {
            let records = counted(self.unknown, "record", "records");
            let what = format!(
                "--aux shows the packets of Intel PT, Arm SPE, ETMv4 and ETE; {records} have other traces, or none that an \
                 AUXTRACE_INFO record before them describes"
            );
            report.say(Level::Warning, what);
        }
    }
}

const WIDTH: usize = 16;

/// Replaces `line` with that of `perf script -D`, which for CoreSight has the id in place of the bytes.
fn put_line(packet: &ListedPacket<'_>, line: &mut Vec<u8>) {
    let ListedPacket { offset, bytes, id, text } = packet;
    line.clear();
    line.extend_from_slice(b"  ");
    let digits = (offset.checked_ilog2().unwrap_or(0) / 4 + 1).max(8);
    line.extend((0..digits).rev().map(|digit| hex(offset >> (4 * digit))));
    line.extend_from_slice(b": ");
    for byte in bytes.iter().flat_map(|bytes| bytes.iter()).chain(id) {
        line.extend([b' ', hex(u64::from(*byte) >> 4), hex(u64::from(*byte))]);
    }
    if let Some(bytes) = bytes {
        line.resize(line.len() + 3 * WIDTH.saturating_sub(bytes.len()), b' ');
    }
    line.push(b' ');
    line.extend_from_slice(text.as_bytes());
    line.push(b'\n');
}

fn hex(number: u64) -> u8 {
    b"0123456789abcdef"[(number & 15) as usize]
}
