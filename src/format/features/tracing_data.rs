//! Divides feature TRACING_DATA into parts, and builds it from parts.

use crate::{Cursor, Endian};

/// The beginning of the section, before its version.
pub(super) const MAGIC: &[u8] = b"\x17\x08\x44tracing";

const HEADERS: [&[u8]; 2] = [b"header_page\0", b"header_event\0"];

/// A TRACING_DATA section, divided at the positions where it can grow. The byte reference has its layout.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct TracingData<'a> {
    endian: Endian,
    /// The size of `long` on the recorded machine, bytes.
    pub long_size: u8,
    /// Up to the end of `header_event`.
    pub head: &'a [u8],
    /// Formats of ftrace.
    pub ftrace: Vec<&'a [u8]>,
    /// Each system's name and the formats of its events.
    pub systems: Vec<(&'a [u8], Vec<&'a [u8]>)>,
    /// Addresses and names of kernel functions.
    pub kallsyms: &'a [u8],
    /// Formats of printk.
    pub printk: &'a [u8],
    /// Command names, and everything after them.
    pub tail: &'a [u8],
}

impl<'a> TracingData<'a> {
    /// Reads the section; `None` if it is damaged.
    pub fn read(section: &'a [u8]) -> Option<TracingData<'a>> {
        let nul = |bytes: &[u8]| bytes.iter().position(|&byte| byte == 0);
        let version = 10 + nul(section.get(10..)?)? + 1;
        let endian = if *section.get(version)? != 0 { Endian::Big } else { Endian::Little };
        let mut cursor = Cursor::new(section, endian);
        let long_size = *cursor.bytes(version + 6)?.get(version + 1)?;
        for title in HEADERS {
            cursor.bytes(title.len()).filter(|found| *found == title)?;
            let size = usize::try_from(cursor.u64()?).ok()?;
            cursor.bytes(size)?;
        }
        let head = &section[..cursor.at()];
        let text = |cursor: &mut Cursor<'a>| {
            let size = usize::try_from(cursor.u64()?).ok()?;
            cursor.bytes(size)
        };
        let short = |cursor: &mut Cursor<'a>| {
            let size = cursor.u32()? as usize;
            cursor.bytes(size)
        };
        let formats = |cursor: &mut Cursor<'a>| {
            let count = cursor.u32()?;
            (0..count).map(|_| text(cursor)).collect::<Option<Vec<_>>>()
        };
        let ftrace = formats(&mut cursor)?;
        let count = cursor.u32()?;
        let mut systems = Vec::new();
        for _ in 0..count {
            let name = cursor.bytes(nul(cursor.rest())?)?;
            cursor.u8()?;
            systems.push((name, formats(&mut cursor)?));
        }
        let (kallsyms, printk) = (short(&mut cursor)?, short(&mut cursor)?);
        Some(TracingData { endian, long_size, head, ftrace, systems, kallsyms, printk, tail: cursor.rest() })
    }

    /// The section without data about the machine other than formats: addresses and names of kernel
    /// functions, formats of printk, and command names.
    #[must_use]
    pub fn without_texts(self) -> TracingData<'a> {
        // The length of the command names, which the section has since version 0.6.
        let tail = if self.tail.len() >= 8 { &[0; 8][..] } else { &[] };
        TracingData { kallsyms: &[], printk: &[], tail, ..self }
    }

    /// The head without those of its texts `header_page` and `header_event` for which `goes` is true, each
    /// replaced by a newline: perf needs neither, but refuses an empty text. `None` if the head does not have
    /// the magic and a numeric version.
    pub fn head_without(&self, goes: impl Fn(&[u8]) -> bool) -> Option<Vec<u8>> {
        let rest = self.head.strip_prefix(MAGIC)?;
        let nul = rest.iter().position(|&byte| byte == 0)?;
        let is_version = rest[..nul].iter().all(|byte| byte.is_ascii_digit() || *byte == b'.');
        let (front, rest) = self.head.split_at_checked(MAGIC.len() + nul + 7).filter(|_| is_version)?;
        let (mut out, mut cursor) = (front.to_vec(), Cursor::new(rest, self.endian));
        for title in HEADERS {
            out.extend_from_slice(cursor.bytes(title.len())?);
            let size = usize::try_from(cursor.u64()?).ok()?;
            let text = cursor.bytes(size)?;
            let text = if goes(text) { &b"\n"[..] } else { text };
            out.extend(self.endian.bytes_u64(text.len() as u64));
            out.extend_from_slice(text);
        }
        Some(out)
    }

    /// The section's bytes; `None` if a list or text is too long.
    pub fn write(&self) -> Option<Vec<u8>> {
        let mut out = self.head.to_vec();
        let count = |count: usize| Some(self.endian.bytes_u32(u32::try_from(count).ok()?));
        let formats = |formats: &[&[u8]], out: &mut Vec<u8>| {
            out.extend(count(formats.len())?);
            for text in formats {
                out.extend(self.endian.bytes_u64(text.len() as u64));
                out.extend_from_slice(text);
            }
            Some(())
        };
        formats(&self.ftrace, &mut out)?;
        out.extend(count(self.systems.len())?);
        for (name, events) in &self.systems {
            out.extend_from_slice(name);
            out.push(0);
            formats(events, &mut out)?;
        }
        for text in [self.kallsyms, self.printk] {
            out.extend(count(text.len())?);
            out.extend_from_slice(text);
        }
        out.extend_from_slice(self.tail);
        Some(out)
    }
}
