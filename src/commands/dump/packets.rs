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
    /// Its offset in the data of the record
    offset: Hex,
    /// Its bytes, and of Intel PT PAD packets after it up to 8 bytes; not of CoreSight
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schemars(with = "HexDigits<'r>")]
    raw: Option<HexDigits<'r>>,
    /// The id of the trace unit; only of CoreSight
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schemars(with = "u8")]
    trace_id: Option<u8>,
    /// In the words of perf (Intel PT, Arm SPE) or OpenCSD (CoreSight)
    packet: String,
}

pub(super) struct Packets {
    listing: Listing,
    format: Format,
    unknown: u64,
}

impl Packets {
    /// The records that are read for packets, even if they are not shown.
    pub(super) const KINDS: Kinds =
        Listing::KINDS.union(Kinds::of(&[RecordType::AUXTRACE, RecordType::SAMPLE]));

    pub(super) fn new(format: Format) -> Packets {
        Packets { listing: Listing::default(), format, unknown: 0 }
    }

    /// Takes in a record of [`Packets::KINDS`], and writes its packets after it if it `is_shown`.
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
        let mut json = Vec::new();
        let is_known = self.listing.list(record, layouts, |packet| {
            if is_text {
                return line(&packet, out);
            }
            if !std::mem::replace(&mut is_first, false) {
                out.write_all(b",")?;
            }
            let ListedPacket { offset, bytes, id: trace_id, text: packet } = packet;
            let (offset, raw) = (Hex(offset), bytes.map(HexDigits));
            json.clear();
            push_json(&mut json, &PacketEntry { offset, raw, trace_id, packet }, false)?;
            out.write_all(&json)
        })?;
        self.unknown += u64::from(!is_known);
        match self.format {
            Format::Text => Ok(()),
            Format::Json => out.write_all(b"]}"),
            Format::Ndjson => out.write_all(b"]}\n"),
        }
    }

    /// Reports packets that are not shown.
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

/// The width of a packet's bytes, as in perf.
const WIDTH: usize = 16;

/// Writes a line as `perf script -D` does; for CoreSight, with the id in place of the bytes.
fn line(packet: &ListedPacket<'_>, out: &mut impl Write) -> io::Result<()> {
    let ListedPacket { offset, bytes, id, text } = packet;
    write!(out, "  {offset:08x}: ")?;
    if let Some(bytes) = bytes {
        bytes.iter().try_for_each(|byte| write!(out, " {byte:02x}"))?;
        (bytes.len()..WIDTH).try_for_each(|_| out.write_all(b"   "))?;
    }
    if let Some(id) = id {
        write!(out, " {id:02x}")?;
    }
    writeln!(out, " {text}")
}
