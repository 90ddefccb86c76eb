//! Builds ELF files that compilers do not write, for tests of several packages.

pub(crate) const ID: [u8; 20] = [0x5a; 20];

/// An ELF file of x86-64 with these sections, one function, and a build-id; `.rela.` begins the names of
/// relocations. Addresses are file offsets.
pub(crate) fn elf(sections: &[(&str, Vec<u8>)]) -> Vec<u8> {
    let note = [&[4, 0, 0, 0, 20, 0, 0, 0, 3, 0, 0, 0][..], b"GNU\0", &ID].concat();
    // The name, the kind, the section it is in, the address and the size.
    let symbol =
        [&[1, 0, 0, 0, 0x12, 0, 1, 0][..], &BASE.to_le_bytes(), &(1_u64 << 31).to_le_bytes()].concat();
    let symbols = [&[0; 24], &symbol[..]].concat();
    let mut parts: Vec<(&str, u32, &[u8])> =
        vec![(".note.gnu.build-id", 7, &note), (".symtab", 2, &symbols), (".strtab", 3, b"\0function\0")];
    let kind = |name: &str| if name.starts_with(".rela.") { 4 } else { 1 };
    parts.extend(sections.iter().map(|(name, bytes)| (*name, kind(name), &bytes[..])));
    let names: String = parts.iter().map(|(name, ..)| format!("\0{name}")).collect::<String>() + "\0";
    parts.push(("", 3, names.as_bytes()));
    // Room for the headers of the file and of its segment.
    let (mut contents, mut table) = (vec![0; 64 + 56], vec![0; 64]);
    for (name, kind, bytes) in &parts {
        contents.resize(contents.len().next_multiple_of(8), 0);
        let name = names.find(&format!("\0{name}\0")).map_or(0, |at| at as u32 + 1);
        table.extend([name.to_le_bytes(), kind.to_le_bytes()].concat());
        let at = contents.len() as u64;
        for value in [0, at, at, bytes.len() as u64] {
            table.extend(value.to_le_bytes());
        }
        // The section with names of symbols, the number of local ones, the alignment, the size of an entry.
        let [link, info, size] = match *kind {
            2 => [3, 1, 24],
            4 => [2, 0, 24],
            _ => [0; 3],
        };
        table.extend([link, info, 1, 0, size, 0].map(u32::to_le_bytes).concat());
        contents.extend(*bytes);
    }
    contents[..7].copy_from_slice(b"\x7fELF\x02\x01\x01");
    contents.resize(contents.len().next_multiple_of(8), 0);
    let at = contents.len() as u64;
    let words = [(32, 64), (40, at), (64, 1 | 5 << 32), (96, 1 << 32), (104, 1 << 32), (112, 0x1000)];
    for (at, value) in words {
        contents[at..at + 8].copy_from_slice(&u64::to_le_bytes(value));
    }
    // Type, machine, header sizes and counts, and the section with their names.
    let count = parts.len() as u16;
    for (at, value) in
        [(16, 3), (18, 62), (52, 64), (54, 56), (56, 1), (58, 64), (60, count + 1), (62, count)]
    {
        contents[at..at + 2].copy_from_slice(&u16::to_le_bytes(value));
    }
    contents.extend(table);
    contents
}

#[derive(Default)]
pub(crate) struct Dwarf4 {
    abbrev: Vec<u8>,
    info: Vec<u8>,
    line: Vec<u8>,
    ranges: Vec<u8>,
}

/// The address of the code. Nothing is at address 0.
pub(crate) const BASE: u64 = 0x1000;

const ADDRESS: u8 = 0x01;
const DATA_8: u8 = 0x07;
const FLAG_PRESENT: u8 = 0x19;
const OFFSET: u8 = 0x17;
const LOW: u8 = 0x11;
const HIGH: u8 = 0x12;
const LINES: u8 = 0x10;
const RANGES: u8 = 0x55;
const UNIT: u8 = 0x11;
const FUNCTION: u8 = 0x2e;
const INLINED: u8 = 0x1d;

impl Dwarf4 {
    fn abbreviation(&mut self, code: u8, tag: u8, has_children: bool, attributes: &[[u8; 2]]) {
        self.abbrev.extend([code, tag, u8::from(has_children)]);
        attributes.iter().for_each(|attribute| self.abbrev.extend(attribute));
        self.abbrev.extend([0, 0]);
    }

    fn unit(&mut self, start: u64, size: u64, entries: &[u8]) {
        let body = [&[1][..], &start.to_le_bytes(), &size.to_le_bytes(), &[0; 4], entries].concat();
        self.info.extend((body.len() as u32 + 7).to_le_bytes());
        self.info.extend([4, 0, 0, 0, 0, 0, 8]);
        self.info.extend(body);
    }

    /// Adds a line program with this many lines, one for every 16 bytes of code.
    fn lines(&mut self, count: u64) {
        // Instructions of 1 byte, lines from -5 on in steps of 14, 13 opcodes; no folders and one file, f.c.
        let header =
            [1, 1, 1, 0xfb, 14, 13, 0, 1, 1, 1, 1, 0, 0, 0, 1, 0, 0, 1, 0, b'f', b'.', b'c', 0, 0, 0, 0, 0];
        let rows = [13 + 16 * 14 + 5].repeat(count as usize);
        // Sets the address, and adds the first row.
        let program = [&[0, 9, 2][..], &BASE.to_le_bytes(), &[1], &rows, &[0, 1, 1]].concat();
        self.line.extend((header.len() as u32 + program.len() as u32 + 6).to_le_bytes());
        self.line.extend([&[4, 0][..], &(header.len() as u32).to_le_bytes(), &header, &program].concat());
    }

    pub(crate) fn sections(&self) -> [(&'static str, Vec<u8>); 4] {
        [
            (".debug_abbrev", [&self.abbrev[..], &[0]].concat()),
            (".debug_info", self.info.clone()),
            (".debug_line", self.line.clone()),
            (".debug_ranges", self.ranges.clone()),
        ]
    }
}

/// A file whose only function has `count` inlined calls, each with the same list of `count` ranges.
pub(crate) fn shared_ranges(count: u64) -> Dwarf4 {
    let mut made = Dwarf4::default();
    made.abbreviation(1, UNIT, true, &[[LOW, ADDRESS], [HIGH, DATA_8], [LINES, OFFSET]]);
    made.abbreviation(2, FUNCTION, true, &[[LOW, ADDRESS], [HIGH, DATA_8]]);
    made.abbreviation(3, INLINED, false, &[[RANGES, OFFSET]]);
    let function = [&[2][..], &BASE.to_le_bytes(), &(count * 16).to_le_bytes()].concat();
    made.unit(BASE, count * 16, &[&function[..], &[3, 0, 0, 0, 0].repeat(count as usize), &[0, 0]].concat());
    for at in 0..count {
        made.ranges.extend([at * 16 + 1, at * 16 + 9].map(u64::to_le_bytes).concat());
    }
    made.ranges.extend([0; 16]);
    made.lines(count);
    made
}

pub(crate) fn shared_lines(count: u64) -> Dwarf4 {
    let mut made = Dwarf4::default();
    made.abbreviation(1, UNIT, false, &[[LOW, ADDRESS], [HIGH, DATA_8], [LINES, OFFSET]]);
    (0..count).for_each(|at| made.unit(BASE + at * 16, 16, &[]));
    made.lines(count);
    made
}

/// A file whose only function has calls inlined into each other.
pub(crate) fn nested(count: u64) -> Dwarf4 {
    let mut made = shared_ranges(0);
    made.info.clear();
    made.abbreviation(4, INLINED, true, &[[LOW, ADDRESS], [HIGH, DATA_8]]);
    let call = |code: u8| [&[code][..], &BASE.to_le_bytes(), &64_u64.to_le_bytes()].concat();
    made.unit(BASE, 64, &[call(2), call(4).repeat(count as usize), vec![0; count as usize + 2]].concat());
    made
}

/// A file whose only unit has an entry with `count` attributes that take no bytes.
pub(crate) fn many_attributes(count: u64) -> Dwarf4 {
    let mut made = Dwarf4::default();
    made.abbreviation(1, UNIT, true, &[[LOW, ADDRESS], [HIGH, DATA_8], [LINES, OFFSET]]);
    made.abbreviation(2, FUNCTION, true, &vec![[1, FLAG_PRESENT]; count as usize]);
    made.unit(BASE, 64, &[2, 0, 0]);
    made
}
