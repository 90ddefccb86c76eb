//! Copies a recording without the records of one process.
//!
//! ```sh
//! cargo run -p perfx-format --example drop_process -- perf.data 1234 without-1234.data
//! ```

use std::path::Path;

use perfx_format::read::Recording;
use perfx_format::write::RecordingWriter;

/// Returns the number of records dropped. The records of the copy are not compressed.
pub(crate) fn drop_process(input: &Path, pid: u32, output: &Path) -> perfx_format::Result<u64> {
    let mut recording = Recording::open(input)?;
    recording.check_whole()?;
    let mut writer = RecordingWriter::create(output, &recording.events, recording.endian)?;
    for (&feature, section) in &recording.features {
        writer.set_feature(feature, section.clone())?;
    }
    let mut dropped = 0;
    let mut records = recording.records();
    while let Some(record) = records.next_record()? {
        if record.pid() == Some(pid) {
            dropped += 1;
        } else {
            writer.write_record(&record)?;
        }
    }
    writer.finish()?;
    Ok(dropped)
}

fn main() -> Result<(), Box<dyn std::error::Error>> {
    let args: Vec<_> = std::env::args_os().skip(1).collect();
    let [input, pid, output] = args.as_slice() else {
        return Err("usage: drop_process RECORDING PID OUTPUT".into());
    };
    let pid = pid.to_str().ok_or("a PID is a number")?.parse()?;
    let dropped = drop_process(input.as_ref(), pid, output.as_ref())?;
    println!("left out {dropped} records");
    Ok(())
}
