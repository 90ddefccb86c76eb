//! Writes a recording without perf: `perf script -i made.data` shows its three samples.
//!
//! ```sh
//! cargo run -p perfx-format --example write_recording -- made.data
//! ```

use std::path::Path;

use perfx_format::features::{EventDesc, NrCpus, write_event_desc, write_str};
use perfx_format::record::cpumode;
use perfx_format::write::RecordingWriter;
use perfx_format::{
    Attr, Comm, Endian, Event, Feature, Inode, MappedFile, Mmap2, RecordType, Result, sample_type,
};

/// A process with one mapped file and three samples.
pub(crate) fn write_recording(path: &Path) -> Result<()> {
    let endian = Endian::Little;
    let mut attr = Attr::default();
    attr.type_ = 1; // software: the CPU's clock, config 0
    attr.sample_period = 1_000_000;
    attr.sample_type = sample_type::IP | sample_type::TID | sample_type::TIME;
    let event = Event::made(&attr, vec![1], endian);
    let mut writer = RecordingWriter::create(path, std::slice::from_ref(&event), endian)?;

    let comm = Comm { pid: 42, tid: 42, name: b"made" };
    writer.write(&comm.write(0, &[], endian).expect("a short name fits"))?;
    let mapping = Mmap2 {
        misc: cpumode::USER,
        pid: 42,
        tid: 42,
        start: 0x40_0000,
        len: 0x1000,
        pgoff: 0,
        file: MappedFile::Inode(Inode { major: 8, minor: 1, inode: 7, generation: 0 }),
        prot: 5,  // read, execute
        flags: 2, // private
        name: b"/opt/made",
        trailer: &[],
    };
    writer.write(&mapping.write(endian).expect("a short name fits"))?;
    for (ip, time) in [(0x40_0010, 1_000), (0x40_0020, 2_000), (0x40_0010, 3_000)] {
        // In the order of the bits of sample_type: IP, TID, TIME.
        let pid_tid = [endian.bytes_u32(42); 2];
        let parts = [&endian.bytes_u64(ip)[..], pid_tid.as_flattened(), &endian.bytes_u64(time)];
        writer.write_parts(RecordType::SAMPLE, cpumode::USER, &parts)?;
    }

    writer.set_feature(Feature::HOSTNAME, write_str(b"nowhere", endian))?;
    writer.set_feature(Feature::NRCPUS, NrCpus { available: 1, online: 1 }.write(endian))?;
    let desc = EventDesc { attr: event.raw(), name: b"made-clock", ids: event.ids.clone() };
    let desc = write_event_desc(event.attr().size, &[desc], endian).expect("the attr has this size");
    writer.set_feature(Feature::EVENT_DESC, desc)?;
    writer.finish()?;
    Ok(())
}

fn main() -> std::result::Result<(), Box<dyn std::error::Error>> {
    let path = std::env::args_os().nth(1).ok_or("usage: write_recording OUTPUT")?;
    Ok(write_recording(path.as_ref())?)
}
