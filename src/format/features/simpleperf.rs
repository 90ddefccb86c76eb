//! Decodes the sections that simpleperf adds to a recording: META_INFO and FILE2.
//!
//! FILE2 is a u32 size and a protobuf message for each file. A message is a series of fields: a varint with the number
//! of the field and its wire type, then a varint (0), 8 bytes (1), a varint length and so many bytes (2), or 4 bytes (5).
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

/// The value of a field.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum Field<'a> {
    Number(u64),
    Bytes(&'a [u8]),
}

/// The rest of a message. `None` is handed out if it is damaged, and nothing after that.
struct Message<'a>(&'a [u8]);

impl<'a> Message<'a> {
    fn varint(&mut self) -> Option<u64> {
        let mut value = 0;
        for shift in (0..u64::BITS).step_by(7) {
            let (&byte, rest) = self.0.split_first()?;
            self.0 = rest;
            value |= u64::from(byte & 0x7f) << shift;
            if byte & 0x80 == 0 {
                return Some(value);
            }
        }
        None
    }

    fn bytes(&mut self, len: u64) -> Option<&'a [u8]> {
        let (bytes, rest) = self.0.split_at_checked(usize::try_from(len).ok()?)?;
        self.0 = rest;
        Some(bytes)
    }

    fn field(&mut self) -> Option<(u64, Field<'a>)> {
        let tag = self.varint()?;
        let field = match tag & 7 {
            0 => Field::Number(self.varint()?),
            1 => Field::Bytes(self.bytes(8)?),
            2 => {
                let len = self.varint()?;
                Field::Bytes(self.bytes(len)?)
            }
            5 => Field::Bytes(self.bytes(4)?),
            _ => return None,
        };
        Some((tag >> 3, field))
    }
}

impl<'a> Iterator for Message<'a> {
    type Item = Option<(u64, Field<'a>)>;

    fn next(&mut self) -> Option<Self::Item> {
        if self.0.is_empty() {
            return None;
        }
        let field = self.field();
        if field.is_none() {
            self.0 = &[];
        }
        Some(field)
    }
}
