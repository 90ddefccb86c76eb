//! Reads the symbols of files that simpleperf and hiperf store in a recording, for readers without the files.
//!
//! `simpleperf.rs` describes FILE and FILE2. Feature 192 of hiperf is a u32 number of files, and for each:
//!
//! | | |
//! |---|---|
//! | file | STR path, u32 type, u64 address and u64 file offset of the first code, STR build-id, u32 number of symbols |
//! | symbol | u64 address, u32 length, STR name |
//!
//! Source: AOSP, simpleperf/dso.cpp (IpToVaddrInFile), and OpenHarmony, developtools_hiperf,
//! perf_file_format.cpp and symbols_file.cpp (GetVaddrInSymbols).

use super::section::Section;
use crate::header::Features;
use crate::protobuf::{Field, Message};
use crate::{Cursor, Endian, Feature, until_nul};

/// A file whose symbols are stored in a recording.
#[derive(Clone, Default, PartialEq, Eq, Debug)]
#[non_exhaustive]
pub struct StoredFile<'f> {
    /// The name of its mapping.
    pub path: &'f [u8],
    /// The virtual address of its first code.
    pub address: u64,
    /// The offset of that code: in the file, or for a kernel module in its memory. `None` if unknown.
    pub offset: Option<u64>,
    /// Its symbols.
    pub symbols: Vec<StoredSymbol<'f>>,
}

/// A symbol of a stored file.
#[derive(Clone, Copy, Default, PartialEq, Eq, Debug)]
#[non_exhaustive]
pub struct StoredSymbol<'f> {
    /// Its virtual address in the file; that in memory for the kernel.
    pub address: u64,
    /// Its length, bytes.
    pub len: u64,
    /// Its name, possibly mangled.
    pub name: &'f [u8],
}

/// The number in simpleperf of the type of a dex file, whose addresses are offsets in the file.
const DEX: u64 = 3;

/// The files whose symbols are stored; damaged sections have those up to the damage.
pub fn stored_files(features: &Features, endian: Endian) -> Vec<StoredFile<'_>> {
    let mut files = Vec::new();
    let section = |feature| features.get(&feature).map_or(&[][..], |section| section);
    for feature in [Feature::FILE, Feature::FILE2] {
        let mut cursor = Cursor::new(section(feature), endian);
        while let Some(file) = cursor.u32().and_then(|size| cursor.bytes(size as usize)) {
            let file = if feature == Feature::FILE { old_file(file, endian) } else { Some(new_file(file)) };
            files.extend(file);
        }
    }
    let mut cursor = Cursor::new(section(Feature::HIPERF_FILES_SYMBOL), endian);
    for _ in 0..cursor.u32().unwrap_or(0) {
        let Some(file) = hiperf_file(&mut cursor) else { break };
        files.push(file);
    }
    files
}

fn old_file(file: &[u8], endian: Endian) -> Option<StoredFile<'_>> {
    let mut cursor = Cursor::new(file, endian);
    let path = c_str(&mut cursor)?;
    let (kind, address, count) = (cursor.u32()?, cursor.u64()?, cursor.u32()?);
    let mut symbols = Vec::new();
    for _ in 0..count {
        let (address, len) = (cursor.u64()?, cursor.u32()?.into());
        symbols.push(StoredSymbol { address, len, name: c_str(&mut cursor)? });
    }
    let is_dex = u64::from(kind) == DEX;
    // The oldest entries end here; a dex file has a list of offsets.
    let offset = if is_dex { Some(address) } else { cursor.u64() };
    Some(StoredFile { path, address, offset, symbols })
}

fn new_file(message: &[u8]) -> StoredFile<'_> {
    let (mut file, mut is_dex) = (StoredFile::default(), false);
    for field in Message(message).flatten() {
        match field {
            (1, Field::Bytes(path)) => file.path = path,
            (2, Field::Number(kind)) => is_dex = kind == DEX,
            (3, Field::Number(address)) => file.address = address,
            (4, Field::Bytes(symbol)) => {
                let mut read = StoredSymbol::default();
                for field in Message(symbol).flatten() {
                    match field {
                        (1, Field::Number(address)) => read.address = address,
                        (2, Field::Number(len)) => read.len = len,
                        (3, Field::Bytes(name)) => read.name = name,
                        _ => {}
                    }
                }
                file.symbols.push(read);
            }
            // A message without its only field stands for 0.
            (6 | 7, Field::Bytes(inner)) => {
                file.offset = Some(match Message(inner).next().flatten() {
                    Some((1, Field::Number(offset))) => offset,
                    _ => 0,
                });
            }
            _ => {}
        }
    }
    if is_dex {
        file.offset = Some(file.address);
    }
    file
}

fn hiperf_file<'f>(cursor: &mut Cursor<'f>) -> Option<StoredFile<'f>> {
    let path = text(cursor)?;
    let (_kind, address, offset) = (cursor.u32()?, cursor.u64()?, Some(cursor.u64()?));
    text(cursor)?;
    let (count, mut symbols) = (cursor.u32()?, Vec::new());
    for _ in 0..count {
        let (address, len) = (cursor.u64()?, cursor.u32()?.into());
        symbols.push(StoredSymbol { address, len, name: text(cursor)? });
    }
    Some(StoredFile { path, address, offset, symbols })
}

pub(super) fn hiperf_files(s: &mut Section<'_>) -> Option<()> {
    s.counted("files", 32, |s| {
        s.text("path")?;
        s.number::<u32>("type")?;
        s.hex::<u64>("address")?;
        s.hex::<u64>("offset")?;
        s.text("build_id")?;
        for _ in 0..s.number::<u32>("symbols")? {
            s.take("symbols", 12_u64)?;
            let len = s.int::<u32>("symbols")?;
            s.take("symbols", len)?;
        }
        Some(())
    })
}

fn c_str<'f>(cursor: &mut Cursor<'f>) -> Option<&'f [u8]> {
    let len = cursor.rest().iter().position(|&byte| byte == 0)?;
    Some(&cursor.bytes(len + 1)?[..len])
}

fn text<'f>(cursor: &mut Cursor<'f>) -> Option<&'f [u8]> {
    let len = cursor.u32()?;
    cursor.bytes(len as usize).map(until_nul)
}

#[cfg(test)]
mod tests {
    use super::*;

    const LE: Endian = Endian::Little;

    fn read(feature: Feature, section: Vec<u8>) -> Vec<(String, u64, Option<u64>, Vec<String>)> {
        let features = Features::from_iter([(feature, section.into())]);
        let text = |bytes: &[u8]| String::from_utf8_lossy(bytes).into_owned();
        let symbol = |symbol: &StoredSymbol<'_>| {
            format!("{:x}+{:x} {}", symbol.address, symbol.len, text(symbol.name))
        };
        let file = |file: StoredFile<'_>| {
            (text(file.path), file.address, file.offset, file.symbols.iter().map(symbol).collect())
        };
        stored_files(&features, LE).into_iter().map(file).collect()
    }

    #[test]
    fn the_symbols_of_simpleperf_are_read_in_both_forms() {
        let symbol = b"\x10\x10\0\0\0\0\0\0\x08\0\0\0f\0";
        let old = |kind: u8, rest: &[u8]| {
            let file =
                [b"/a\0", &[kind, 0, 0, 0][..], &LE.bytes_u64(0x1000), &[1, 0, 0, 0], symbol, rest].concat();
            [LE.bytes_u32(file.len() as u32).to_vec(), file].concat()
        };
        let expected = |offset| vec![("/a".to_owned(), 0x1000, offset, vec!["1010+8 f".to_owned()])];
        assert_eq!(read(Feature::FILE, old(2, &LE.bytes_u64(0x200))), expected(Some(0x200)));
        assert_eq!(read(Feature::FILE, old(2, &[])), expected(None));
        assert_eq!(read(Feature::FILE, old(3, &[0; 4])), expected(Some(0x1000)));
        let new = b"\x18\0\0\0\x0a\x02/a\x10\x02\x18\x80\x20\x22\x08\x08\x90\x20\x10\x08\x1a\x01f\x32\x03\x08\x80\x04";
        let whole = read(Feature::FILE2, new.to_vec());
        assert_eq!(whole, expected(Some(0x200)));
        assert_eq!(read(Feature::FILE2, [&new[..], &new[..9]].concat()), whole);
    }

    #[test]
    fn the_symbols_of_hiperf_are_read_up_to_damage() {
        let string = |text: &str| [&LE.bytes_u32(text.len() as u32 + 1)[..], text.as_bytes(), b"\0"].concat();
        let file = [
            string("/a"),
            vec![3, 0, 0, 0],
            LE.bytes_u64(0x1000).to_vec(),
            LE.bytes_u64(0x200).to_vec(),
            string("0102"),
            vec![1, 0, 0, 0],
            LE.bytes_u64(0x1010).to_vec(),
            vec![8, 0, 0, 0],
            string("f"),
        ]
        .concat();
        let section = [&[2, 0, 0, 0], &file[..], &file[..9]].concat();
        let expected = vec![("/a".to_owned(), 0x1000, Some(0x200), vec!["1010+8 f".to_owned()])];
        assert_eq!(read(Feature::HIPERF_FILES_SYMBOL, section), expected);
    }
}
