//! Written records are read back in both byte orders, and damage affects only the records that contain it.

use super::*;

const ORDERS: [Endian; 2] = [Endian::Little, Endian::Big];

fn load<'a>(address: u64, name: &'a [u8], code: &'a [u8]) -> Load<'a> {
    Load { pid: 7, tid: 8, address, size: code.len() as u64, index: address, name, code }
}

fn names(bytes: &[u8]) -> (Vec<String>, Damage) {
    let mut records = Dump::new(bytes).unwrap().records();
    let name = |record: Record<'_>| match record.body {
        Body::Load(load) => String::from_utf8_lossy(load.name).into_owned(),
        Body::Move(moved) => format!("move {:x}", moved.new_address),
        Body::DebugInfo(info) => format!("{} lines", info.lines().count()),
        Body::Close => "close".to_owned(),
        Body::UnwindingInfo(info) => format!("unwind {}", info.eh_frame.len()),
        Body::Unknown(id) => format!("unknown {id}"),
    };
    (records.by_ref().map(name).collect(), records.damage())
}

fn three(endian: Endian) -> Vec<u8> {
    let mut writer = Writer::new(endian, 62, 7);
    for (time, name) in [(100, "one"), (200, "two"), (300, "three")] {
        // Some hours after boot.
        writer.load(20_000_000_000_000 + time, &load(time, name.as_bytes(), &[0x90; 33]));
    }
    writer.into_bytes()
}

#[test]
fn every_record_is_read_as_it_was_written() {
    for endian in ORDERS {
        let mut writer = Writer::new(endian, 183, 7);
        let line = |address, line, file| Line { address, line, column: 3, file };
        writer.debug_info(
            1,
            0x1000,
            &[line(0x1000, 5, b"a.js"), line(0x1004, 6, &[0xff]), line(0x1008, 0, b"")],
        );
        writer.unwinding_info(2, &[0x14; 24], &[1, 0x1b, 3, 0x3b, 0], 80);
        writer.load(3, &load(0x1000, b"fib(int) \xc3\xa9", &[1, 2, 3]));
        let moved = Move { pid: 7, tid: 8, old_address: 0x1000, new_address: 0x2000, size: 3, index: 0x1000 };
        writer.moved(4, &moved);
        writer.close(5);
        writer.set_flags(ARCH_TIMESTAMP);
        let bytes = writer.into_bytes();
        let dump = Dump::new(&bytes).unwrap();
        let header = Header { endian, machine: 183, is_of_v8: false, pid: 7, time: 0, flags: ARCH_TIMESTAMP };
        assert_eq!(dump.header, header);
        let mut records = dump.records();
        let Some(Body::DebugInfo(info)) = records.next().map(|record| record.body) else { panic!() };
        let lines: Vec<_> = info.lines().collect();
        assert_eq!(lines, [line(0x1000, 5, b"a.js"), line(0x1004, 6, b"a.js"), line(0x1008, 0, b"")]);
        let Some(Body::UnwindingInfo(info)) = records.next().map(|record| record.body) else { panic!() };
        assert_eq!((info.eh_frame, info.eh_frame_hdr.len(), info.mapped_size), (&[0x14; 24][..], 5, 80));
        let Some(Body::Load(read)) = records.next().map(|record| record.body) else { panic!() };
        assert_eq!((read.pid, read.tid, read.address, read.index), (7, 8, 0x1000, 0x1000));
        assert_eq!((read.name, read.code, read.size), ("fib(int) é".as_bytes(), &[1, 2, 3][..], 3));
        let Some(Record { body: Body::Move(read), time: 4, .. }) = records.next() else { panic!() };
        assert_eq!(read, moved);
        assert!(matches!(records.next(), Some(Record { body: Body::Close, time: 5, .. })));
        assert!(records.next().is_none());
        assert_eq!(records.damage(), Damage::default());
    }
}

#[test]
fn what_is_behind_a_close_is_read_too() {
    let mut writer = Writer::new(Endian::Little, 62, 7);
    writer.load(1, &load(1, b"one", &[1]));
    writer.close(2);
    writer.load(3, &load(2, b"two", &[1]));
    assert_eq!(names(&writer.into_bytes()).0, ["one", "close", "two"]);
}

#[test]
fn a_longer_header_is_skipped() {
    for endian in ORDERS {
        let mut bytes = three(endian);
        endian.set_u32(&mut bytes, 8, 48).unwrap();
        bytes.splice(40..40, [0xaa; 8]);
        assert_eq!(names(&bytes).0, ["one", "two", "three"]);
    }
}

#[test]
fn a_header_that_is_none_is_refused() {
    let bytes = three(Endian::Little);
    assert!(Dump::new(&bytes[..39]).is_err() && Dump::new(b"").is_err() && Dump::new(&[0; 64]).is_err());
    for (at, value) in [(4, 2), (8, 39), (8, u32::MAX), (32, 2), (36, 1)] {
        let mut bytes = bytes.clone();
        Endian::Little.set_u32(&mut bytes, at, value).unwrap();
        let error = Dump::new(&bytes).unwrap_err().to_string();
        assert!(error.contains("jitdump"), "{error}");
    }
}

#[test]
fn a_file_that_ends_inside_a_record_has_all_before_it() {
    for endian in ORDERS {
        let bytes = three(endian);
        let end = bytes.len();
        for len in end - 40..end {
            let (names, damage) = names(&bytes[..len]);
            assert_eq!(names, ["one", "two"], "{len}");
            assert_eq!((damage.broken, damage.unfinished > 0), (0, true), "{len}");
        }
    }
}

#[test]
fn a_record_that_is_cut_short_in_the_middle_costs_only_itself() {
    for endian in ORDERS {
        let whole = three(endian);
        let size = 56 + 4 + 33;
        // The beginning of an unfinished record, of every length, before the second record.
        for torn in 1..size {
            let mut bytes = whole.clone();
            let front = bytes[40 + size..][..torn].to_vec();
            bytes.splice(40 + size..40 + size, front);
            let (names, damage) = names(&bytes);
            assert_eq!(names, ["one", "two", "three"], "{torn}");
            assert_eq!((damage.broken, damage.skipped), (1, torn as u64), "{torn}");
        }
    }
}

#[test]
fn a_size_of_code_beyond_the_record_costs_only_that_record() {
    for endian in ORDERS {
        let mut bytes = three(endian);
        endian.set_u64(&mut bytes, 40 + 93 + 40, 1 << 20).unwrap();
        let (names, damage) = names(&bytes);
        assert_eq!(names, ["one", "three"]);
        assert_eq!((damage.broken, damage.skipped), (1, 93));
    }
}

#[test]
fn code_may_be_absent_or_followed_by_more() {
    let mut writer = Writer::new(Endian::Little, 62, 7);
    writer.load(1, &load(1, b"absent", b""));
    writer.load(2, &load(2, b"more", &[5; 20]));
    let mut bytes = writer.into_bytes();
    Endian::Little.set_u64(&mut bytes, 40 + 40, 77).unwrap();
    let second = 40 + 56 + 7;
    Endian::Little.set_u64(&mut bytes, second + 40, 3).unwrap();
    let loads: Vec<_> = Dump::new(&bytes).unwrap().records().map(|record| record.body).collect();
    let [Body::Load(absent), Body::Load(more)] = loads[..] else { panic!("{loads:?}") };
    assert_eq!((absent.size, absent.code), (77, &[][..]));
    assert_eq!((more.size, more.code), (3, &[5; 3][..]));
}

#[test]
fn records_of_unknown_ids_are_passed_over() {
    let mut bytes = three(Endian::Little);
    let mut unknown = bytes[40..][..24].to_vec();
    unknown[0] = 9;
    unknown[4] = 24;
    bytes.splice(40 + 93..40 + 93, unknown);
    let (names, damage) = names(&bytes);
    assert_eq!(names, ["one", "unknown 9", "two", "three"]);
    assert_eq!(damage, Damage { unknown: 1, ..Damage::default() });
}

#[test]
fn both_orders_of_unwinding_data_are_told_apart() {
    let (eh_frame, header) = (&[0x14, 0, 0, 0, 0, 0, 0, 0, 1][..], &[1, 0x1b, 3, 0x3b, 9, 9, 9, 9][..]);
    for (data, expected) in [
        ([eh_frame, header].concat(), (eh_frame, header)),
        ([header, eh_frame].concat(), (eh_frame, header)),
        (header.to_vec(), (&[][..], header)),
    ] {
        let info = UnwindingInfo::new(&data, header.len(), 0).unwrap();
        assert_eq!((info.eh_frame, info.eh_frame_hdr), expected);
    }
    assert_eq!(UnwindingInfo::new(eh_frame, 10, 0), None);
}

#[test]
fn entries_with_freed_names_are_found_by_their_size() {
    for count in 1..20 {
        let name = *b"\x10\x7f\0\0\0\0\0\0\x20\x7f\0\0\0\0\0\0/a/fib.js";
        let lines: Vec<_> =
            (0..count).map(|at| Line { address: 0x40 + at, line: 7, column: 1, file: &name }).collect();
        let mut writer = Writer::new(Endian::Little, 62, 7);
        writer.debug_info(1, 0, &lines);
        let mut bytes = writer.into_bytes();
        let size = bytes.len() - 40;
        bytes.resize(40 + size.next_multiple_of(8), 0);
        let padded = bytes.len() - 40;
        Endian::Little.set_u32(&mut bytes, 44, padded as u32).unwrap();
        let Some(Body::DebugInfo(info)) =
            Dump::new(&bytes).unwrap().records().next().map(|record| record.body)
        else {
            panic!()
        };
        let found = info.lines_of_one_size(|address| (0x40..0x40 + count).contains(&address)).unwrap();
        assert_eq!(found, lines, "{count}");
    }
}

#[test]
fn nothing_panics_and_every_byte_is_accounted_for_however_a_file_is_damaged() {
    let mut state = 88_172_645_463_325_252_u64;
    let mut random = move || {
        state ^= state << 13;
        state ^= state >> 7;
        state ^= state << 17;
        state
    };
    for endian in ORDERS {
        let mut writer = Writer::new(endian, 62, 7);
        for number in 0..40 {
            let line = Line { address: number, line: 1, column: 0, file: b"f" };
            writer.debug_info(number, number, &[line; 3]);
            writer.unwinding_info(number, &[0; 17], &[1, 2, 3], 0);
            writer.load(number, &load(number, b"name", &[7; 25]));
        }
        let whole = writer.into_bytes();
        for _ in 0..3000 {
            let mut bytes = whole.clone();
            for _ in 0..1 + random() % 8 {
                let at = random() as usize % bytes.len();
                match random() % 4 {
                    0 => drop(bytes.drain(at..(at + random() as usize % 60).min(bytes.len()))),
                    1 => drop(bytes.splice(at..at, (0..random() % 60).map(|byte| byte as u8))),
                    _ => bytes[at] = [0, 1, 0xff, random() as u8][random() as usize % 4],
                }
                if bytes.is_empty() {
                    break;
                }
            }
            let Ok(dump) = Dump::new(&bytes) else { continue };
            let mut records = dump.records();
            let mut at = 0;
            for record in records.by_ref() {
                assert!(record.offset >= at && record.offset < bytes.len());
                at = record.offset;
                match record.body {
                    Body::DebugInfo(info) => {
                        let lines = info.lines().count() as u64;
                        let others = info.lines_of_one_size(|_| true).map_or(0, |lines| lines.len());
                        assert!(lines <= info.count && others <= bytes.len() / ENTRY_SIZE);
                    }
                    Body::Load(load) => assert!(load.code.is_empty() || load.code.len() as u64 == load.size),
                    _ => {}
                }
            }
            let damage = records.damage();
            assert!(damage.skipped + damage.unfinished <= bytes.len() as u64);
        }
    }
}
