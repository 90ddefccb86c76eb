//! Decodes the sections that simpleperf adds to a recording: META_INFO, FILE and FILE2.
//!
//! FILE has for each file a u32 size of what follows, a path with its NUL, a u32 type, a u64 min_vaddr, a u32
//! number of symbols, and these: u64 vaddr, u32 len, name with its NUL. Then follow the offsets of dex files
//! (u32 number, u64 each) or, in newer versions, one u64: the offset of `min_vaddr`.
//!
//! FILE2 is a u32 size and a protobuf message for each file.
//!
//! | field of a file | |
//! |---|---|
//! | 1 path, 2 type, 3 min_vaddr | the kernel 0, a module 1, ELF 2, dex 3, a symbol map 4, unknown 5 |
//! | 4 symbol, repeated | 1 vaddr, 2 len, 3 name |
//! | 5 dex_file, 6 elf_file, 7 kernel_module | 1 the offsets of dex files; of `min_vaddr` in the file or in memory |
//!
//! Source: AOSP, simpleperf/record_file_format.h and record_file.proto.

use super::section::Section;
use crate::protobuf::{Field, Message};
use crate::{FaultCode, Value};

/// Keys and values, each with its NUL. No key is empty.
pub(super) fn meta_infos(s: &mut Section<'_>) -> Option<()> {
    s.repeated("infos", |s| {
        s.rest().first().filter(|byte| **byte != 0)?;
        s.c_str("key")?;
        s.c_str("value")
    })
    .map(drop)
}

pub(crate) fn meta_info<'f>(section: &'f [u8], key: &[u8]) -> Option<&'f [u8]> {
    let mut texts = section.split(|&byte| byte == 0);
    std::iter::from_fn(|| texts.next().zip(texts.next()))
        .find_map(|(name, value)| (name == key).then_some(value))
}

/// Files as older versions wrote them, with the number of their symbols.
pub(super) fn old_files(s: &mut Section<'_>) -> Option<()> {
    s.repeated("files", |s| {
        let size = s.int::<u32>("size")?;
        let left = s.left();
        s.c_str("path")?;
        let kind = s.int::<u32>("type")?;
        s.note("type", Value::Name(type_name(kind.into()).into()));
        s.hex::<u64>("min_vaddr")?;
        s.number::<u32>("symbols")?;
        // The rest of the file: its symbols, and offsets.
        let read = left.checked_sub(s.left())? as u64;
        s.take("symbols", u64::from(size).checked_sub(read)?)?;
        Some(())
    })
    .map(drop)
}

pub(super) fn files(s: &mut Section<'_>) -> Option<()> {
    s.repeated("files", |s| {
        let size = s.int::<u32>("size")?;
        let message = s.take("file", size)?;
        let (mut symbols, mut is_whole) = (0, true);
        for field in Message(message) {
            match field {
                Some((1, Field::Bytes(path))) => s.note("path", Value::Text(path)),
                Some((2, Field::Number(kind))) => s.note("type", Value::Name(type_name(kind).into())),
                Some((3, Field::Number(address))) => s.note("min_vaddr", Value::Hex(address)),
                Some((4, Field::Bytes(_))) => symbols += 1,
                Some((5..=7, Field::Bytes(inner))) => {
                    if let Some(Some((1, Field::Number(offset)))) = Message(inner).next() {
                        s.note("offset", Value::Hex(offset));
                    }
                }
                Some(_) => {}
                None => is_whole = false,
            }
        }
        s.note("symbols", Value::Number(symbols));
        if !is_whole {
            s.add_issue(FaultCode::SectionShort, "the message of a file ends within a field");
        }
        Some(())
    })
    .map(drop)
}

fn type_name(kind: u64) -> &'static str {
    let names = ["kernel", "kernel module", "ELF file", "dex file", "symbol map"];
    usize::try_from(kind).ok().and_then(|kind| names.get(kind)).copied().unwrap_or("unknown")
}
