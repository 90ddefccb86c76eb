//! Samples are named by the symbols that simpleperf and hiperf store in a recording.

use std::path::Path;

use perfx_format::{Feature, RecordType as T};

use crate::args;
use crate::maker::{LE, Maker, PLAIN, USER, event};
use crate::support::{perfx, temp};

/// PERF_RECORD_MISC_KERNEL.
const KERNEL: u16 = 1;

/// A recording with samples in a program, a kernel and its module.
fn recorded(path: &Path, features: Vec<(Feature, Vec<u8>)>) {
    let mut maker = Maker::new(path, &[event(PLAIN, Vec::new())]);
    for (feature, section) in features {
        maker.writer.set_feature(feature, section).unwrap();
    }
    maker.comm(7, "prog", 0);
    let mapping = |start: u64, len: u64, pgoff: u64, name: &str| {
        let mut padded = name.as_bytes().to_vec();
        padded.resize((name.len() + 8) / 8 * 8, 0);
        [&[start, len, pgoff].map(u64::to_le_bytes).concat()[..], &padded].concat()
    };
    let kernel = [u32::MAX, 0].map(u32::to_le_bytes).concat();
    for (start, len, name) in [
        (0xffff_0000_0000_0000, 0x10_0000, "[kernel.kallsyms]"),
        (0xffff_1000_0000_0000, 0x1_0000, "[vbox-guest]"),
    ] {
        maker.put(T::MMAP, KERNEL, 0, &[&kernel, &mapping(start, len, 0, name)]);
    }
    maker.put(
        T::MMAP,
        USER,
        7,
        &[&[7_u32; 2].map(u32::to_le_bytes).concat(), &mapping(0x10_0000, 0x8000, 0x4000, "/data/libx.so")],
    );
    maker.sample(7, 0x10_0014);
    for ip in [0xffff_0000_0000_0204, 0xffff_1000_0000_1002] {
        maker.put(T::SAMPLE, KERNEL, 7, &[&LE.bytes_u64(ip)]);
    }
    maker.writer.finish().unwrap();
}

/// A field of a protobuf message: its number, and bytes or a number.
fn bytes(field: u8, bytes: &[u8]) -> Vec<u8> {
    [&[field << 3 | 2, bytes.len() as u8], bytes].concat()
}

fn number(field: u8, mut number: u64) -> Vec<u8> {
    let mut made = vec![field << 3];
    while number > 0x7f {
        made.push(number as u8 | 0x80);
        number >>= 7;
    }
    made.push(number as u8);
    made
}

/// An entry of FILE2: path, type, address and offset of the first code, in the field of this number, and a
/// symbol.
fn file2(path: &str, kind: u64, (address, offset): (u64, (u8, u64)), symbol: (u64, u64, &str)) -> Vec<u8> {
    let (start, len, name) = symbol;
    let symbol = [number(1, start), number(2, len), bytes(3, name.as_bytes())].concat();
    let parts = [
        bytes(1, path.as_bytes()),
        number(2, kind),
        number(3, address),
        bytes(4, &symbol),
        bytes(offset.0, &number(1, offset.1)),
    ];
    let message = parts.concat();
    [&LE.bytes_u32(message.len() as u32)[..], &message].concat()
}

fn names(data: &Path) -> Vec<String> {
    let ran = perfx(args!["view", "--foreign", "-F", "ip,sym", data]);
    assert_eq!(ran.code, Some(0), "{}", ran.stderr);
    let name = |line: &str| Some(line.trim().split_once(' ')?.1.to_owned());
    ran.text().lines().filter_map(name).collect()
}

/// Regression: 31 public recordings hold all their symbols, and only addresses were shown.
#[test]
fn the_symbols_in_a_recording_of_simpleperf_name_its_samples() {
    let folder = temp();
    let data = folder.path().join("in.data");
    let files = [
        file2("[kernel.kallsyms]", 0, (0, (6, 0)), (0xffff_0000_0000_0200, 8, "vfs_read")),
        file2("/vendor/vbox-guest.ko", 1, (0x40, (7, 0x1000)), (0x40, 8, "vbg_ioctl")),
        file2("/data/libx.so", 2, (0x6000, (6, 0x4000)), (0x6010, 8, "_ZN1x3hotEv")),
    ];
    let infos = b"event_type_info\0cpu-cycles,0,0\nsched:my_event,1,0\0";
    recorded(&data, vec![(Feature::FILE2, files.concat()), (Feature::META_INFO, infos.to_vec())]);
    assert_eq!(names(&data), ["x::hot()", "vfs_read", "vbg_ioctl"]);
    let events = perfx(args!["list", "events", data]).text();
    assert!(events.contains("sched:my_event"), "{events}");
}

#[test]
fn the_symbols_in_an_old_recording_of_simpleperf_have_no_offset() {
    let folder = temp();
    let data = folder.path().join("in.data");
    let file = [
        &b"/data/libx.so\0"[..],
        &[2, 0, 0, 0],
        &LE.bytes_u64(0x6000),
        &[1, 0, 0, 0],
        &LE.bytes_u64(0x6010),
        &[8, 0, 0, 0],
        b"hot\0",
    ]
    .concat();
    let section = [&LE.bytes_u32(file.len() as u32)[..], &file].concat();
    recorded(&data, vec![(Feature::FILE, section)]);
    assert_eq!(names(&data)[0], "hot");
}

#[test]
fn the_symbols_in_a_recording_of_hiperf_name_its_samples() {
    let folder = temp();
    let data = folder.path().join("in.data");
    let text = |text: &str| [&LE.bytes_u32(text.len() as u32 + 1)[..], text.as_bytes(), b"\0"].concat();
    let section = [
        vec![1, 0, 0, 0],
        text("/data/libx.so"),
        vec![3, 0, 0, 0],
        LE.bytes_u64(0x6000).to_vec(),
        LE.bytes_u64(0x4000).to_vec(),
        text(""),
        vec![1, 0, 0, 0],
        LE.bytes_u64(0x6010).to_vec(),
        vec![8, 0, 0, 0],
        text("hot"),
    ];
    recorded(&data, vec![(Feature::HIPERF_FILES_SYMBOL, section.concat())]);
    assert_eq!(names(&data)[0], "hot");
}
