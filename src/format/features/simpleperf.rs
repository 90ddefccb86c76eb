//! Decodes the sections that simpleperf adds to a recording: META_INFO and FILE2.
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
use crate::Value;
use crate::protobuf::{Field, Message};

/// Keys and values, each with its NUL. No key is empty.
pub(super) fn meta_info(s: &mut Section<'_>) -> Option<()> {
    s.repeated("infos", |s| {
        s.rest().first().filter(|byte| **byte != 0)?;
        s.c_str("key")?;
        s.c_str("value")
    })
    .map(drop)
}

/// Files, with the number of their symbols.
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
            s.add_issue("section-short", "the message of a file ends within a field");
        }
        Some(())
    })
    .map(drop)
}

fn type_name(kind: u64) -> &'static str {
    let names = ["kernel", "kernel module", "ELF file", "dex file", "symbol map"];
    usize::try_from(kind).ok().and_then(|kind| names.get(kind)).copied().unwrap_or("unknown")
}
