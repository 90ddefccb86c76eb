//! ELF files and notes written field by field as in elf(5), so that no writer shares a mistake of the reader.

#[derive(Clone, Copy, Debug)]
pub(crate) struct Shape {
    pub(crate) bits: u8,
    pub(crate) big_endian: bool,
    /// True if sections lead to the notes; `segments` is true if program headers do.
    pub(crate) sections: bool,
    pub(crate) segments: bool,
}

/// A 64-bit little-endian file with all headers.
pub(crate) const ORDINARY: Shape = Shape { bits: 64, big_endian: false, sections: true, segments: true };

/// Every shape with at least one way to the notes.
pub(crate) fn shapes() -> impl Iterator<Item = Shape> {
    let flags = || [false, true].into_iter();
    [32, 64].into_iter().flat_map(move |bits| {
        flags().flat_map(move |big_endian| {
            [(true, false), (false, true), (true, true)].map(|(sections, segments)| Shape {
                bits,
                big_endian,
                sections,
                segments,
            })
        })
    })
}

struct Bytes {
    shape: Shape,
    bytes: Vec<u8>,
}

impl Bytes {
    fn put(&mut self, size: usize, value: u64) -> &mut Bytes {
        let little = &value.to_le_bytes()[..size];
        match self.shape.big_endian {
            true => self.bytes.extend(little.iter().rev()),
            false => self.bytes.extend(little),
        }
        self
    }

    fn half(&mut self, value: u64) -> &mut Bytes {
        self.put(2, value)
    }

    fn word(&mut self, value: u64) -> &mut Bytes {
        self.put(4, value)
    }

    /// An address, offset or size: as wide as the class.
    fn wide(&mut self, value: u64) -> &mut Bytes {
        self.put(usize::from(self.shape.bits / 8), value)
    }
}

pub(crate) fn note(shape: Shape, name: &[u8], kind: u32, desc: &[u8], padding: usize) -> Vec<u8> {
    let mut note = Bytes { shape, bytes: Vec::new() };
    note.word(name.len() as u64).word(desc.len() as u64).word(kind.into());
    for part in [name, desc] {
        note.bytes.extend(part);
        note.bytes.resize(note.bytes.len().next_multiple_of(padding), 0);
    }
    note.bytes
}

pub(crate) fn elf(shape: Shape, id: &[u8]) -> Vec<u8> {
    elf_of_notes(shape, &note(shape, b"GNU\0", 3, id, 4), 4)
}

/// A file with these notes and this stated padding.
pub(crate) fn elf_of_notes(shape: Shape, notes: &[u8], align: u64) -> Vec<u8> {
    let (header, segment, section) = if shape.bits == 64 { (64, 56, 64) } else { (52, 32, 40) };
    let len = notes.len() as u64;
    let notes_at = header + if shape.segments { segment } else { 0 };
    let mut file = Bytes { shape, bytes: b"\x7fELF".to_vec() };
    let class = if shape.bits == 64 { 2 } else { 1 };
    let order = if shape.big_endian { 2 } else { 1 };
    file.bytes.extend([class, order, 1, 0, 0, 0, 0, 0, 0, 0, 0, 0]);
    file.half(3).half(62).word(1).wide(0);
    file.wide(if shape.segments { header } else { 0 });
    file.wide(if shape.sections { notes_at + len } else { 0 });
    file.word(0).half(header);
    file.half(segment).half(shape.segments.into());
    file.half(section).half(if shape.sections { 2 } else { 0 }).half(0);
    if shape.segments {
        // PT_NOTE; the flags (4 = readable) are the second field in one class, the last but one in the other.
        file.word(4);
        if shape.bits == 64 {
            file.word(4);
        }
        file.wide(notes_at).wide(0).wide(0).wide(len).wide(len);
        if shape.bits == 32 {
            file.word(4);
        }
        file.wide(align);
    }
    file.bytes.extend(notes);
    if shape.sections {
        file.bytes.resize(file.bytes.len() + section as usize, 0);
        // SHT_NOTE
        file.word(0).word(7).wide(2).wide(0).wide(notes_at).wide(len).word(0).word(0).wide(align).wide(0);
    }
    file.bytes
}
