//! The images of crafted dumps are read back with object, addr2line and gimli.

use std::fs;

use gimli::{BaseAddresses, CfaRule, EhFrameHdr, RunTimeEndian, UnwindContext, UnwindSection as _};
use object::read::{Object as _, ObjectSection as _, ObjectSegment as _, ObjectSymbol as _};
use perfx_format::Endian;
use perfx_format::jitdump::{Dump, Line, Load, Move, Writer};

use crate::{Arena, Functions, Image, Target, Written, arenas};

const X86_64: u32 = 62;

fn load<'a>(address: u64, name: &'a str, code: &'a [u8]) -> Load<'a> {
    let size = code.len() as u64;
    Load { pid: 7, tid: 7, address, size, index: address, name: name.as_bytes(), code }
}

/// The bytes of an image, the result of writing it, and the address and number of bytes to map.
type Made = (Vec<u8>, Written, Option<(u64, u64)>);

fn images(dump: &[u8]) -> Vec<Made> {
    let functions = Functions::of(&Dump::new(dump).unwrap());
    let images = arenas(&functions.list).into_iter().map(|arena| {
        let image = Image::new(&functions, &arena, Target::of(functions.header, Some("x86_64")));
        let file = tempfile::NamedTempFile::new().unwrap();
        // Not at the start of the file.
        let written = image.write(file.as_file(), 0x3000).unwrap();
        (fs::read(file.path()).unwrap().split_off(0x3000), written, image.mapped())
    });
    images.collect()
}

fn only_image(dump: &[u8]) -> Vec<u8> {
    let mut images = images(dump);
    assert_eq!(images.len(), 1);
    images.remove(0).0
}

fn symbols(image: &[u8]) -> Vec<(String, u64, Vec<u8>)> {
    let file = object::File::parse(image).unwrap();
    let text = file.section_by_name(".text").unwrap();
    let symbol = |symbol: object::Symbol<'_, '_>| {
        let (place, size) = (symbol.address(), symbol.size());
        let code = text.data_range(place, size).unwrap().unwrap_or_default().to_vec();
        (symbol.name().unwrap().to_owned(), place, code)
    };
    file.symbols().map(symbol).collect()
}

fn named(image: &[u8]) -> Vec<(String, u64)> {
    symbols(image).into_iter().map(|(name, place, _)| (name, place)).collect()
}

/// An `.eh_frame` as V8 and CPython write it for code of this size: one CIE, and one FDE with a PC-relative
/// address that is right if the data follows the code.
fn eh_frame(endian: Endian, size: u32, personality: bool) -> Vec<u8> {
    let word = |value: u32| endian.bytes_u32(value);
    // zR, code 1, data -8, return address 16; CFA = rsp + 8, return address at CFA - 8.
    let mut cie = [&word(0)[..], b"\x01zR\0\x01\x78\x10\x01\x1b\x0c\x07\x08\x90\x01\0\0"].concat();
    if personality {
        cie = [&word(0)[..], b"\x01zPR\0\x01\x78\x10\x06\x03\x11\x22\x33\x44\x1b\x0c\x07\x08\x90\x01\0\0"]
            .concat();
    }
    let mut frame = [&word(cie.len() as u32)[..], &cie].concat();
    let at = frame.len() as u32;
    let begin = 0u32.wrapping_sub(size.next_multiple_of(8) + at + 8);
    // advance 1, CFA = rsp + 16.
    let fde = [&word(at + 4)[..], &word(begin), &word(size), b"\0\x41\x0e\x10"].concat();
    frame.extend([&word(fde.len() as u32)[..], &fde, &[0; 4]].concat());
    frame
}

#[test]
fn an_image_mirrors_memory_and_names_all_functions() {
    for (endian, machine) in
        [(Endian::Little, X86_64), (Endian::Big, 22), (Endian::Little, 3), (Endian::Little, 0)]
    {
        let mut writer = Writer::new(endian, machine, 7);
        writer.load(1, &load(0x7123_0040, "one", &[1; 5]));
        writer.load(2, &load(0x7123_9000, "two: fib(int) <é>", &[2; 70]));
        let image = only_image(&writer.into_bytes());
        let file = object::File::parse(&*image).unwrap();
        assert_eq!((file.is_64(), file.is_little_endian()), (machine != 3, endian == Endian::Little));
        assert_eq!(
            symbols(&image),
            [("one".to_owned(), 0x1040, vec![1; 5]), ("two: fib(int) <é>".to_owned(), 0xa000, vec![2; 70])]
        );
        let segments: Vec<_> =
            file.segments().map(|segment| (segment.address(), segment.file_range().0)).collect();
        assert_eq!(segments, [(0, 0)]);
    }
}

#[test]
fn the_build_id_is_a_hash_of_the_contents() {
    let dump = |name| {
        let mut writer = Writer::new(Endian::Little, X86_64, 7);
        writer.load(1, &load(0x1000, name, &[1; 5]));
        writer.into_bytes()
    };
    let images = ["a", "a", "b"].map(|name| images(&dump(name)).remove(0));
    for (bytes, written, _) in &images {
        assert_eq!(object::File::parse(&**bytes).unwrap().build_id().unwrap().unwrap(), written.build_id);
        assert_eq!(bytes.len() as u64, written.len);
    }
    assert_eq!(images[0].0, images[1].0);
    assert_ne!(images[0].1.build_id, images[2].1.build_id);
}

#[test]
fn code_far_away_goes_into_an_image_of_its_own() {
    let mut writer = Writer::new(Endian::Little, X86_64, 7);
    for address in [0x1000_0000, 0x1008_0000, 0x9000_0000, u64::MAX - 9] {
        writer.load(1, &load(address, "f", &[1; 9]));
    }
    // Code that extends beyond the end of the address space is impossible.
    writer.load(1, &load(u64::MAX - 3, "f", &[1; 9]));
    let bytes = writer.into_bytes();
    let functions = Functions::of(&Dump::new(&bytes).unwrap());
    assert_eq!((functions.list.len(), functions.impossible), (4, 1));
    let members: Vec<_> = arenas(&functions.list).iter().map(|arena| arena.members.len()).collect();
    assert_eq!(members, [2, 1, 1]);
    assert_eq!(images(&bytes).len(), 3);
}

#[test]
fn code_loaded_over_older_code_follows_the_mirrored_code() {
    let mut writer = Writer::new(Endian::Little, X86_64, 7);
    writer.load(1, &load(0x5000, "first", &[1; 32]));
    writer.load(2, &load(0x5100, "beside", &[2; 16]));
    writer.load(3, &load(0x5010, "second", &[3; 32]));
    writer.load(4, &load(0x5010, "second", &[3; 32]));
    writer.load(5, &load(0x5000, "first", &[1; 32]));
    let bytes = writer.into_bytes();
    let functions = Functions::of(&Dump::new(&bytes).unwrap());
    let [Arena { members }] = &arenas(&functions.list)[..] else { panic!("one arena") };
    let members: Vec<_> = members.iter().map(|member| (member.function, member.reuses)).collect();
    assert_eq!(members, [(0, false), (1, false), (2, true), (4, true)]);
    let expected = [("first", 0x1000), ("beside", 0x1100), ("second", 0x2000), ("first", 0x2020)];
    assert_eq!(named(&only_image(&bytes)), expected.map(|(name, place)| (name.to_owned(), place)));
}

#[test]
fn moved_code_stays_in_the_image_of_its_first_address() {
    let mut writer = Writer::new(Endian::Little, X86_64, 7);
    writer.load(1, &load(0x5000, "f", &[1; 32]));
    let moved = Move { pid: 7, tid: 7, old_address: 0x5000, new_address: 0x5100, size: 32, index: 0x5000 };
    writer.moved(2, &moved);
    writer.moved(3, &Move { index: 9, ..moved });
    let bytes = writer.into_bytes();
    let functions = Functions::of(&Dump::new(&bytes).unwrap());
    assert_eq!(functions.impossible, 1);
    let members: Vec<_> = arenas(&functions.list)[0].members.iter().map(|member| member.is_moved).collect();
    assert_eq!(members, [false, true]);
    assert_eq!(functions.list[0].load, functions.list[1].load);
    assert_eq!(named(&only_image(&bytes)), [("f".to_owned(), 0x1000)]);
}

/// The repetition is the origin of the move, so its code must be in an image.
#[test]
fn a_repeated_function_stays_if_it_was_moved() {
    let mut writer = Writer::new(Endian::Little, X86_64, 7);
    writer.load(1, &load(0x5000, "f", &[1; 32]));
    writer.load(2, &load(0x5000, "f", &[1; 32]));
    writer.load(2, &load(0x5000, "f", &[1; 32]));
    let moved = Move { pid: 7, tid: 7, old_address: 0x5000, new_address: 0x5100, size: 32, index: 0x5000 };
    writer.moved(3, &moved);
    let bytes = writer.into_bytes();
    let functions = Functions::of(&Dump::new(&bytes).unwrap());
    let [Arena { members }] = &arenas(&functions.list)[..] else { panic!("one arena") };
    let members: Vec<_> =
        members.iter().map(|member| (member.function, member.reuses, member.is_moved)).collect();
    assert_eq!(members, [(0, false, false), (2, true, false), (3, false, true)]);
}

#[test]
fn an_image_has_no_room_for_code_missing_from_the_dump() {
    let mut writer = Writer::new(Endian::Little, X86_64, 7);
    let absent = |address, name| Load { size: 16 << 20, ..load(address, name, &[]) };
    writer.load(1, &absent(0x5000, "first"));
    writer.load(2, &absent(0x5000 + (16 << 20), "second"));
    writer.load(3, &absent(0x6000, "reuses"));
    let bytes = writer.into_bytes();
    let mut found = Vec::new();
    for (image, written, _) in images(&bytes) {
        assert!(written.len < 0x1000, "{}", written.len);
        let file = object::File::parse(&*image).unwrap();
        let segment = file.segments().next().unwrap();
        assert!(file.symbols().all(|symbol| symbol.address() + symbol.size() <= segment.size()));
        assert_eq!(file.build_id().unwrap().unwrap(), written.build_id);
        found.extend(file.symbols().map(|symbol| symbol.name().unwrap().to_owned()));
    }
    found.sort();
    assert_eq!(found, ["first", "reuses", "second"]);
    let functions = Functions::of(&Dump::new(&bytes).unwrap());
    for arena in arenas(&functions.list) {
        assert_eq!(Image::new(&functions, &arena, Target::of(functions.header, None)).gaps(), 0);
    }
}

/// File, line and column at file offsets of an image.
fn lines(image: &[u8], places: &[u64]) -> Vec<Option<(String, u32, u32)>> {
    let file = object::File::parse(image).unwrap();
    let endian = if file.is_little_endian() { RunTimeEndian::Little } else { RunTimeEndian::Big };
    let dwarf = gimli::Dwarf::load(|id| {
        let section = file.section_by_name(id.name());
        let data = section.map_or(&[][..], |section| section.data().unwrap());
        Ok::<_, gimli::Error>(gimli::EndianSlice::new(data, endian))
    });
    let context = addr2line::Context::from_dwarf(dwarf.unwrap()).unwrap();
    let line = |&place: &u64| {
        let location = context.find_location(place).unwrap()?;
        Some((location.file?.to_owned(), location.line.unwrap_or(0), location.column.unwrap_or(0)))
    };
    places.iter().map(line).collect()
}

fn line(address: u64, line: u32, file: &[u8]) -> Line<'_> {
    Line { address, line, column: 4, file }
}

#[test]
fn lines_are_found_by_addr2line() {
    for (endian, machine) in [(Endian::Little, X86_64), (Endian::Big, 22), (Endian::Little, 3)] {
        let mut writer = Writer::new(endian, machine, 7);
        // Out of order, and with Erlang's end marker.
        let first = [line(0x5008, 7, b"/src/a.erl"), line(0x5000, 6, &[0xff]), line(0x5010, 0, b"")];
        let first = [first[0], line(0x5000, 6, b"/src/a.erl"), first[2]];
        writer.debug_info(1, 0x5000, &first);
        writer.load(1, &load(0x5000, "a", &[1; 16]));
        // The lines of code that was never loaded.
        writer.debug_info(2, 0x9999, &[line(0x9999, 1, b"b")]);
        writer.load(2, &load(0x5100, "b", &[1; 16]));
        writer.debug_info(3, 0x5200, &[line(0x5200, 90, b"c.erl"), line(0x5201, 100_000, &[0xff])]);
        writer.load(3, &load(0x5200, "c", &[1; 16]));
        let found =
            lines(&only_image(&writer.into_bytes()), &[0x1000, 0x1007, 0x1008, 0x1100, 0x1200, 0x120f]);
        let at = |file: &str, line| Some((file.to_owned(), line, 4));
        let a = |line| at("/src/a.erl", line);
        assert_eq!(found, [a(6), a(6), a(7), None, at("c.erl", 90), at("c.erl", 100_000)]);
    }
}

#[test]
fn lines_of_v8_lose_the_header_that_it_adds_to_addresses() {
    let mut writer = Writer::new(Endian::Little, X86_64, 7);
    writer.debug_info(1, 0x5000, &[line(0x5040, 6, b"a.js"), line(0x5048, 7, b"a.js")]);
    writer.load(1, &load(0x5000, "a", &[1; 16]));
    let found = lines(&only_image(&writer.into_bytes()), &[0x1000, 0x1008]);
    assert_eq!(found, [6, 7].map(|line| Some(("a.js".to_owned(), line, 4))));
}

/// The functions with unwind data: start, size, and the CFA rules at the first and the last byte.
fn frames(image: &[u8]) -> Vec<(u64, u64, [String; 2])> {
    let file = object::File::parse(image).unwrap();
    let endian = if file.is_little_endian() { RunTimeEndian::Little } else { RunTimeEndian::Big };
    let section = |name| {
        let section = file.section_by_name(name).unwrap();
        (section.address(), section.data().unwrap())
    };
    let ((at, data), (header_at, header)) = (section(".eh_frame"), section(".eh_frame_hdr"));
    let bases = BaseAddresses::default().set_eh_frame(at).set_eh_frame_hdr(header_at);
    let mut frames = gimli::EhFrame::new(data, endian);
    let size = if file.is_64() { 8 } else { 4 };
    frames.set_address_size(size);
    let header = EhFrameHdr::new(header, endian).parse(&bases, size).unwrap();
    assert_eq!(header.eh_frame_ptr(), gimli::Pointer::Direct(at));
    let table = header.table().unwrap();
    let mut found = Vec::new();
    let mut entries = frames.entries(&bases);
    while let Some(entry) = entries.next().unwrap() {
        let gimli::CieOrFde::Fde(fde) = entry else { continue };
        let fde = fde.parse(gimli::EhFrame::cie_from_offset).unwrap();
        let (start, len) = (fde.initial_address(), fde.len());
        // Looked up in the search table, as an unwinder does.
        let rule = |address| {
            let mut context = UnwindContext::new();
            let cie = gimli::EhFrame::cie_from_offset;
            let row = table.unwind_info_for_address(&frames, &bases, &mut context, address, cie).unwrap();
            match row.cfa() {
                CfaRule::RegisterAndOffset { register, offset } => format!("r{}+{offset}", register.0),
                rule => format!("{rule:?}"),
            }
        };
        found.push((start, len, [rule(start), rule(start + len - 1)]));
    }
    found
}

#[test]
fn unwind_data_is_found_at_the_new_places() {
    for (endian, machine) in [(Endian::Little, X86_64), (Endian::Big, 22), (Endian::Little, 3)] {
        let mut writer = Writer::new(endian, machine, 7);
        for (number, size) in [(0, 11), (1, 16), (2, 90)] {
            writer.unwinding_info(1, &eh_frame(endian, size, number == 2), &[], 0);
            writer.load(1, &load(0x5000 + number * 0x100, "f", &vec![1; size as usize]));
        }
        writer.unwinding_info(2, &eh_frame(endian, 24, false), &[], 0);
        writer.load(2, &load(0x5008, "again", &[1; 24]));
        let rules = || ["r7+8".to_owned(), "r7+16".to_owned()];
        let expected = [(0x1000, 11), (0x1100, 16), (0x1200, 90), (0x2000, 24)];
        let expected = expected.map(|(start, len)| (start, len, rules()));
        let (image, _, mapped) = images(&writer.into_bytes()).remove(0);
        assert_eq!(frames(&image), expected);
        assert_eq!(mapped, Some((0x4000, 0x4000)));
        // A CIE is written once for all functions.
        let file = object::File::parse(&*image).unwrap();
        assert!(file.section_by_name(".eh_frame").unwrap().size() < 24 + 4 * 24 + 8);
    }
}

#[test]
fn unwind_data_that_makes_no_sense_is_left_out() {
    let whole = eh_frame(Endian::Little, 16, false);
    for len in 0..whole.len() {
        for byte in [0, 0xff, 0x7f] {
            let mut broken = whole.clone();
            broken[len] = byte;
            for frame in [&broken, &broken[..len].to_vec()] {
                let mut writer = Writer::new(Endian::Little, X86_64, 7);
                writer.unwinding_info(1, frame, &[], 0);
                writer.load(1, &load(0x5000, "f", &[1; 16]));
                assert_eq!(named(&only_image(&writer.into_bytes())), [("f".to_owned(), 0x1000)]);
            }
        }
    }
}

#[test]
fn a_dump_of_distant_addresses_makes_no_large_files() {
    let mut writer = Writer::new(Endian::Little, X86_64, 7);
    for number in 0..200u64 {
        writer.load(number, &load(number << 21, "f", &[1]));
        writer.load(number, &load(0x7000_0000_0000, "reused", &[number as u8; 3]));
    }
    let images = images(&writer.into_bytes());
    assert!(images.iter().all(|(bytes, ..)| bytes.len() < 2 << 20), "{}", images.len());
}
