//! Merges features that are lists (formats of tracepoints, BPF programs, BTF types, PMUs) into one list with
//! the entries of both.

use perfx_format::{Cursor, Endian};

/// A TRACING_DATA section, divided where entries can be added. The byte reference of perfx-format describes
/// its layout.
struct Tracing<'a> {
    endian: Endian,
    /// Up to the end of `header_event`.
    head: &'a [u8],
    ftrace: Vec<&'a [u8]>,
    systems: Vec<(&'a [u8], Vec<&'a [u8]>)>,
    kallsyms: &'a [u8],
    printk: &'a [u8],
    /// Command names, and everything after them.
    tail: &'a [u8],
}

impl<'a> Tracing<'a> {
    fn read(section: &'a [u8]) -> Option<Tracing<'a>> {
        let nul = |bytes: &[u8]| bytes.iter().position(|&byte| byte == 0);
        let version = 10 + nul(section.get(10..)?)? + 1;
        let endian = if *section.get(version)? != 0 { Endian::Big } else { Endian::Little };
        let mut cursor = Cursor::new(section, endian);
        cursor.bytes(version + 6)?;
        for title in [&b"header_page\0"[..], b"header_event\0"] {
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
        Some(Tracing { endian, head, ftrace, systems, kallsyms, printk, tail: cursor.rest() })
    }

    fn write(&self) -> Option<Vec<u8>> {
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

/// Adds the entries that are new.
fn add<'a>(there: &mut Vec<&'a [u8]>, more: Vec<&'a [u8]>) {
    let new: Vec<_> = more.into_iter().filter(|format| !there.contains(format)).collect();
    there.extend(new);
}

/// A TRACING_DATA section with the formats of both; `None` if one of them cannot be read, or the machines
/// differ in kind.
pub(super) fn united_tracing<'a>(one: &'a [u8], other: &'a [u8]) -> Option<Vec<u8>> {
    let (mut all, more) = (Tracing::<'a>::read(one)?, Tracing::<'a>::read(other)?);
    if all.head != more.head {
        return None;
    }
    add(&mut all.ftrace, more.ftrace);
    for (name, events) in more.systems {
        match all.systems.iter_mut().find(|(there, _)| *there == name) {
            Some((_, there)) => add(there, events),
            None => all.systems.push((name, events)),
        }
    }
    // The longer list has the entries added later.
    let longer = |one: &'a [u8], other: &'a [u8]| if one.len() < other.len() { other } else { one };
    (all.kallsyms, all.printk) = (longer(all.kallsyms, more.kallsyms), longer(all.printk, more.printk));
    all.write()
}

/// A list whose entries are numbered.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(super) enum List {
    /// u32 info size, u32 data size, u64 arrays, `struct bpf_prog_info` (its id at 4), data.
    Programs,
    /// u32 id, u32 size, bytes: types of BPF programs; PMUs, by their `attr.type`.
    Named,
}

/// A BPF_PROG_INFO, BPF_BTF or PMU_MAPPINGS section (u32 n, entries) with the entries of both; if both have a
/// number, the first one's entry.
pub(super) fn united_list(one: &[u8], other: &[u8], list: List, endian: Endian) -> Option<Vec<u8>> {
    let entries = |section| {
        let mut cursor = Cursor::new(section, endian);
        let count = cursor.u32()?;
        let entry = |cursor: &mut Cursor<'_>| {
            let start = *cursor;
            let (first, second) = (cursor.u32()?, cursor.u32()?);
            let (id, size) = match list {
                List::Named => (first, second as usize),
                List::Programs => {
                    cursor.u64()?;
                    (endian.u32(cursor.rest(), 4)?, (first as usize).checked_add(second as usize)?)
                }
            };
            cursor.bytes(size)?;
            Some((id, start.rest()[..cursor.at() - start.at()].to_vec()))
        };
        (0..count).map(|_| entry(&mut cursor)).collect::<Option<Vec<_>>>()
    };
    let mut all = entries(one)?;
    for (id, bytes) in entries(other)? {
        if !all.iter().any(|(there, _)| *there == id) {
            all.push((id, bytes));
        }
    }
    let mut out = endian.bytes_u32(u32::try_from(all.len()).ok()?).to_vec();
    all.into_iter().for_each(|(_, bytes)| out.extend(bytes));
    Some(out)
}
