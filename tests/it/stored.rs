//! Samples are named by the symbols that simpleperf and hiperf store in a recording.

use std::fs;
use std::path::Path;

use perfx_format::{Feature, Inode, MappedFile, RecordType as T};

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
    let infos = b"event_type_info\0cpu-cycles,0,0\nsched:my_event,1,0\nlater,1,0\0";
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

/// Regression: the offset was counted from the last program of this name, below the first it wrapped.
#[test]
fn code_of_the_kernel_that_is_loaded_twice_has_offsets_from_its_own_start() {
    let folder = temp();
    let data = folder.path().join("in.data");
    let mut maker = Maker::new(&data, &[event(PLAIN, Vec::new())]);
    let starts = [0xffff_0000_0000_2000_u64, 0xffff_0000_0000_6000];
    for start in starts {
        // 64 bytes of a BPF program, without BTF the name of its function is F.
        let body = [&start.to_le_bytes()[..], &[64, 0, 0, 0, 1, 0, 0, 0], b"bpf_prog_0a_F\0\0\0"].concat();
        maker.put(T::KSYMBOL, KERNEL, 0, &[&body]);
    }
    for start in starts {
        maker.put(T::SAMPLE, KERNEL, 7, &[&LE.bytes_u64(start + 0x10)]);
    }
    maker.writer.finish().unwrap();
    let ran = perfx(args!["view", "--foreign", "-F", "ip,sym,symoff", data]);
    let names: Vec<_> = ran.text().split_whitespace().skip(1).step_by(2).map(str::to_owned).collect();
    assert_eq!(names, ["bpf_prog_0a_F+0x10"; 2], "{}", ran.text());
}

/// Regression: the memory file in which .NET keeps its code was not memory to which a perf map belongs.
#[test]
fn the_code_of_dotnet_is_named_by_the_only_perf_map_of_its_container() {
    let folder = temp();
    let data = folder.path().join("in.data");
    let mut maker = Maker::new(&data, &[event(PLAIN, Vec::new())]);
    maker.comm(4711, "app", 0);
    let inode = Inode { major: 0, minor: 1, inode: 5, generation: 0 };
    let file = MappedFile::Inode(inode);
    maker.mmap2(4711, 0x10_0000, 0x10_000, file, "/memfd:doublemapper (deleted)");
    maker.sample(4711, 0x10_1004);
    maker.writer.finish().unwrap();
    let root = folder.path().join("root");
    fs::create_dir_all(root.join("tmp")).unwrap();
    fs::write(root.join("tmp/perf-1.map"), "101000 20 void [app] Program::Main()\n").unwrap();
    let ran = perfx(args!["export", "folded", "--foreign", "--root", root, data]);
    assert!(ran.text().starts_with("app;void [app] Program::Main"), "{}{}", ran.text(), ran.stderr);
    assert!(ran.stderr.contains("code in memory of process 4711 is named by "), "{}", ran.stderr);
}

/// The sections of both tools contain paths, names of functions, and the model of the phone.
#[test]
fn redact_leaves_nothing_of_what_simpleperf_and_hiperf_store() {
    let folder = temp();
    let [data, out] = ["in.data", "out.data"].map(|name| folder.path().join(name));
    let secrets = ["libsecret.so", "secretfn", "secret-phone"];
    let file = file2("/data/libsecret.so", 2, (0, (6, 0)), (0, 8, "secretfn"));
    let sections = [
        Feature::FILE,
        Feature::META_INFO,
        Feature(130),
        Feature(131),
        Feature::FILE2,
        Feature::HIPERF_FILES_SYMBOL,
        Feature::HIPERF_STACK_TABLE,
        Feature(200),
    ];
    let section = [&file[..], b"product_props\0secret-phone\0"].concat();
    recorded(&data, sections.map(|feature| (feature, section.clone())).to_vec());
    let holds = |path: &Path| {
        let bytes = fs::read(path).unwrap();
        secrets.map(|secret| bytes.windows(secret.len()).any(|window| window == secret.as_bytes()))
    };
    assert_eq!(holds(&data), [true; 3]);
    let check = perfx(args!["redact", "--check", data]);
    assert_eq!(check.code, Some(3), "{}", check.stderr);
    let ran = perfx(args!["redact", data, "-o", out]);
    assert!(ran.stderr.contains("META_INFO (129)") && ran.stderr.contains("FILE2 (132)"), "{}", ran.stderr);
    assert_eq!(holds(&out), [false; 3]);
    let check = perfx(args!["redact", "--check", out]);
    assert_eq!(check.code, Some(0), "{}", check.stderr);
}
