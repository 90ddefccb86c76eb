//! Copies a recording without the records of one kind.
//!
//! ```sh
//! cargo run -p perfx-format --example strip_kind -- perf.data SAMPLE out.data
//! ```

use std::path::Path;

use perfx_format::RecordType;
use perfx_format::read::Recording;
use perfx_format::write::RecordingWriter;

/// Returns the number of records left out. The records of the copy are not compressed.
pub(crate) fn strip_kind(input: &Path, kind: RecordType, output: &Path) -> perfx_format::Result<u64> {
    let mut recording = Recording::open(input)?;
    recording.check_whole()?;
    let mut writer = RecordingWriter::create(output, &recording.events, recording.endian)?;
    for (&feature, section) in &recording.features {
        writer.set_feature(feature, section.clone())?;
    }
    let mut left_out = 0;
    let mut records = recording.records();
    while let Some(record) = records.next_record()? {
        if record.kind() == kind {
            left_out += 1;
        } else {
            writer.write_record(&record)?;
        }
    }
    writer.finish()?;
    Ok(left_out)
}

fn main() -> Result<(), Box<dyn std::error::Error>> {
    let args: Vec<_> = std::env::args_os().skip(1).collect();
    let [input, kind, output] = args.as_slice() else {
        return Err("usage: strip_kind RECORDING KIND OUTPUT".into());
    };
    let kind =
        kind.to_str().and_then(RecordType::parse).ok_or("the kind is a name, such as SAMPLE, or a number")?;
    println!("left out {} records", strip_kind(input.as_ref(), kind, output.as_ref())?);
    Ok(())
}
