//! Recordings of programs whose DWARF, unwind tables and traces make readers repeat their work, for
//! [`crate::growth`].

use std::fs;
use std::path::Path;

use perfx_format::features::write_str;
use perfx_format::{Attr, Event, Feature, MappedFile, RecordType as T, sample_type as st};

use crate::made::{BASE, Dwarf4, ID, elf, many_attributes, nested, shared_lines, shared_ranges};
use crate::maker::{LE, Maker, PLAIN, USER, event};

/// A name, the number of items, and a function that writes a recording with this many into a folder, as
/// `in.data`.
pub(crate) type Family = (&'static str, u64, fn(&Path, u64));

/// The address of the program's mapping, from which on its code is in memory.
const START: u64 = 1 << 40;
const CODE: u64 = START + BASE;

/// Writes the program beside the recording, and a recording of it.
fn with_program(
    folder: &Path,
    sections: &[(&str, Vec<u8>)],
    events: &[Event],
    records: impl FnOnce(&mut Maker),
) {
    fs::create_dir_all(folder.join("nowhere")).unwrap();
    fs::write(folder.join("nowhere/program"), elf(sections)).unwrap();
    let mut maker = Maker::new(&folder.join("in.data"), events);
    maker.writer.set_feature(Feature::ARCH, write_str(b"x86_64", LE)).unwrap();
    maker.comm(1, "first", 0);
    maker.mmap2(1, START, 1 << 31, MappedFile::BuildId(&ID), "/nowhere/program");
    records(&mut maker);
    maker.writer.finish().unwrap();
}

/// A recording with samples at each 16th byte of the code.
fn with_dwarf(folder: &Path, dwarf: &Dwarf4, n: u64) {
    with_program(folder, &dwarf.sections(), &[event(PLAIN, vec![1])], |maker| {
        (0..n).for_each(|number| maker.sample(1, CODE + 16 * number));
    });
}

/// The call frame information of one function that has all of the code: its caller's frame is 8 bytes above
/// the stack pointer, unless these instructions change that.
fn table(instructions: &[u8]) -> Vec<u8> {
    let mut table = entry(&cie(b""));
    table.extend(fde(table.len(), BASE, 1 << 30, instructions));
    table.extend([0; 4]);
    table
}

fn entry(body: &[u8]) -> Vec<u8> {
    [&(body.len() as u32).to_le_bytes(), body].concat()
}

fn cie(augmentation: &[u8]) -> Vec<u8> {
    // The CFA is the stack pointer and 8; the return address is 8 bytes below.
    let length: &[u8] = if augmentation.is_empty() { &[] } else { &[0] };
    [&[0, 0, 0, 0, 1], augmentation, &[0, 1, 0x78, 16], length, &[0x0c, 7, 8, 0x90, 1]].concat()
}

/// The entry of a function, at this distance after the entry that it refers to.
fn fde(distance: usize, start: u64, size: u64, instructions: &[u8]) -> Vec<u8> {
    let distance = distance as u32 + 4;
    entry(&[&distance.to_le_bytes()[..], &start.to_le_bytes(), &size.to_le_bytes(), instructions].concat())
}

/// A recording with the stacks of samples at these offsets of the code, full of return addresses into it.
fn with_stacks(folder: &Path, section: (&str, Vec<u8>), places: impl Iterator<Item = u64>, words: usize) {
    let mut attr = Attr::default();
    (attr.type_, attr.sample_period) = (1, 1000);
    attr.sample_type = PLAIN | st::CALLCHAIN | st::REGS_USER | st::STACK_USER;
    // sample_id_all, exclude_callchain_user; the registers are BP, SP and IP.
    attr.flags = 1 << 18 | 1 << 22;
    (attr.sample_regs_user, attr.sample_stack_user) = (7 << 6, 8 * words as u32);
    let events = [Event::made(&attr, vec![1], LE)];
    with_program(folder, &[section], &events, |maker| {
        let (stack_start, size) = (0x7000_0000_0000, 8 * words as u64);
        let stack: Vec<u8> = (0..words as u64).flat_map(|word| (CODE + 8 + word).to_le_bytes()).collect();
        for place in places {
            let ip = CODE + place;
            let head = [ip, 1 << 32 | 1, maker.time, 0, 2, 0, stack_start, ip, size].map(u64::to_le_bytes);
            maker
                .writer
                .write_parts(T::SAMPLE, USER, &[head.as_flattened(), &stack, &size.to_le_bytes()])
                .unwrap();
            maker.time += 1;
        }
    });
}

/// A recording of a program that begins with this code, and of its traces by CPU 0: with its event's
/// `config`, its description, and the flags of the AUX records.
fn with_traces(folder: &Path, code: &[u8], (config, info, flags): (u64, &[u64], u64), traces: &[&[u8]]) {
    let mut traced = Attr::default();
    (traced.type_, traced.config, traced.sample_period) = (8, config, 1);
    (traced.sample_type, traced.flags) = (PLAIN | st::IDENTIFIER, 1 << 18);
    let events = [Event::made(&traced, vec![1], LE)];
    // The code follows all sections except this one, whose position is not known before.
    let section = |front: usize| vec![(".text", [&vec![0; front], code].concat())];
    let at = elf(&section(0)).windows(code.len()).position(|bytes| bytes == code).unwrap();
    let sections = section(BASE as usize - at);
    with_program(folder, &sections, &events, |maker| {
        let info: Vec<u8> = info.iter().flat_map(|word| word.to_le_bytes()).collect();
        maker.writer.write_parts(T::AUXTRACE_INFO, 0, &[&info]).unwrap();
        maker.put(T::ITRACE_START, 0, 1, &[&[1, 0, 0, 0, 1, 0, 0, 0]]);
        let mut offset = 0;
        for trace in traces {
            let mut trace = trace.to_vec();
            trace.resize(trace.len().next_multiple_of(8), 0);
            let size = trace.len() as u64;
            let aux = [offset, size, flags].map(u64::to_le_bytes);
            maker.put(T::AUX, 0, 1, &[aux.as_flattened()]);
            let words = [size, offset, 0x1234, 1 << 32, 0xffff_ffff].map(u64::to_le_bytes);
            let head = [&71_u32.to_le_bytes()[..], &[0, 0, 48, 0], words.as_flattened()].concat();
            maker.writer.write(&[head, trace].concat()).unwrap();
            offset += size;
        }
    });
}

/// A recording of Intel PT, with these packets after the first address, which is that of the code; with
/// snapshots, they are those of the first.
fn with_pt(folder: &Path, code: &[u8], packets: &[u8], snapshots: Option<&[&[u8]]>) {
    let is_snapshot = snapshots.is_some().into();
    let info = [1, 8, 0, 1, 0, 1, 0x400, 0x800, 0, is_snapshot, 0, 0x200, 0x3c000, 0, 0, 2, 0x20, 0];
    // PSB, TSC, the end of PSB, and the begin of tracing.
    let front =
        [&[2, 0x82].repeat(8)[..], &[0x19], &2_000_000_u64.to_le_bytes()[..7], &[2, 0x23, 0x71]].concat();
    let trace = [&front, &CODE.to_le_bytes()[..6], packets].concat();
    // Times and branches.
    let traces = [&[&trace[..]], snapshots.unwrap_or_default()].concat();
    with_traces(folder, code, (0x2401, &info, 0), &traces);
}

/// A recording of an ETMv4 of CoreSight without frames, with these packets after the first address.
fn with_etm(folder: &Path, code: &[u8], packets: &[u8]) {
    let unit = [0x4040_4040_4040_4040, 0, 8, 0x800, 0x10, 0x2800_0ea1, 0x4100_f422, 0x2000_1088, 0, 0xcc, !0];
    let info = [&[3, 1, 8 << 32 | 1, 0][..], &unit].concat();
    // A-Sync, Trace Info, Trace On, and the address with its context.
    let place = [(CODE >> 2 & 0x7f) as u8, (CODE >> 9 & 0x7f) as u8];
    let address = [&[0x85][..], &place, &(CODE >> 16).to_le_bytes()[..6], &[0x30]].concat();
    let trace = [&[0; 11][..], &[0x80, 1, 1, 0, 4], &address, packets].concat();
    // Times, and PERF_AUX_FLAG_CORESIGHT_FORMAT_RAW.
    with_traces(folder, code, (1 << 28, &info, 0x100), &[&trace]);
}

/// A TIP packet to an offset of the code.
fn jump(offset: u64) -> Vec<u8> {
    [&[0x4d], &((CODE + offset) as u32).to_le_bytes()[..]].concat()
}

pub(crate) const OF_PROGRAMS: [Family; 13] = [
    ("ranges that inlined calls share", 1000, |folder, n| with_dwarf(folder, &shared_ranges(n), n)),
    ("lines that units share", 500, |folder, n| with_dwarf(folder, &shared_lines(n), n)),
    ("calls nested in each other", 2000, |folder, n| with_dwarf(folder, &nested(n), 3)),
    ("entries with endless attributes", 2000, |folder, n| with_dwarf(folder, &many_attributes(n), 3)),
    ("rows of an unwind table", 100, |folder, n| {
        // DW_CFA_advance_loc by 1.
        let rows = table(&[0x41; 60_000]);
        with_stacks(folder, (".eh_frame", rows), (0..n).map(|number| number * 7919 % 60_000), 1);
    }),
    ("functions whose tables share long entries", 2000, |folder, n| {
        let mut tables = Vec::new();
        let long = entry(&cie(&[&b"z"[..], &b"S".repeat(n as usize)].concat()));
        let starts = [0, long.len()];
        tables.extend([&long[..], &long].concat());
        for number in 0..n {
            let at = tables.len() - starts[number as usize % 2];
            tables.extend(fde(at, BASE + 16 * number, 16, &[0]));
        }
        tables.extend([0; 4]);
        with_stacks(folder, (".eh_frame", tables), (0..n).map(|number| 16 * number), 1);
    }),
    ("expressions that loop", 300, |folder, n| {
        // DW_CFA_def_cfa_expression: DW_OP_skip to itself.
        let tables = table(&[0x0f, 3, 0x2f, 0xfd, 0xff]);
        with_stacks(folder, (".eh_frame", tables), 0..n, 64);
    }),
    ("long expressions of each register of each frame", 5, |folder, n| {
        // The stack pointer plus 8, after many operations without effect; the other registers likewise.
        let expression = [&[0x77, 8][..], &[0x96; 95]].concat();
        let block = [&[0x61][..], &expression].concat();
        let of_register = |register: u8| [&[0x16, register][..], &block].concat();
        let registers: Vec<u8> =
            [0, 1, 2, 3, 4, 5, 6, 8, 9, 10, 11, 12, 13, 14, 15].into_iter().flat_map(of_register).collect();
        let tables = table(&[&[0x0f][..], &block, &registers].concat());
        with_stacks(folder, (".eh_frame", tables), 0..n, 512);
    }),
    ("traced code that never branches", 200, |folder, n| {
        let code = [&[0x90; 4000][..], &[0xff, 0xe0]].concat();
        let packets: Vec<u8> = (0..n).flat_map(|number| jump(number * 7919 % 4000)).collect();
        with_pt(folder, &code, &packets, None);
    }),
    ("traced jumps without a packet", 100, |folder, n| {
        let code = [&[0xeb, 0].repeat(1000)[..], &[0xff, 0xe0]].concat();
        let packets: Vec<u8> = (0..n).flat_map(|number| jump(2 * (number * 7919 % 1000))).collect();
        with_pt(folder, &code, &packets, None);
    }),
    ("a traced jump to itself", 4000, |folder, n| {
        with_pt(folder, &[0xeb, 0xfe], &[0xfc].repeat(n as usize), None);
    }),
    ("snapshots that are in a large one", 3000, |folder, n| {
        let packets = [0].repeat(200 * n as usize);
        with_pt(folder, &[0xeb, 0xfe], &packets, Some(&vec![&[0; 8][..]; n as usize]));
    }),
    ("a traced branch to itself of CoreSight", 4000, |folder, n| {
        // 24 branches in each byte.
        with_etm(folder, &[0, 0, 0, 0x14], &[0xd4].repeat(n as usize));
    }),
];
