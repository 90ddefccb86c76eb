//! Reads the descriptions of tracepoints in feature TRACING_DATA: their names, and the positions of the
//! fields in their raw data, which differ between kernels.

use crate::{Endian, until_nul};

/// A tracepoint, from its file `format` in tracefs on the recorded machine.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct TraceFormat<'a> {
    /// Its system: `sched`.
    pub system: &'a [u8],
    /// Its name: `sched_switch`.
    pub name: &'a [u8],
    /// The `attr.config` of its events, if the file states it.
    pub id: Option<u64>,
    /// The text of the whole file.
    pub text: &'a [u8],
}

/// A field of a tracepoint's raw data.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct TraceField {
    /// The number of bytes before it.
    pub offset: usize,
    /// Its size in bytes.
    pub size: usize,
}

/// The contents of a field of a tracepoint's raw data.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum TraceFieldKind {
    /// A number, or several.
    Numbers,
    /// Text, or bytes such as an address of a network: [`NamedField::is_text`].
    Bytes,
    /// The address of something.
    Pointer,
    /// The position of data after the fields: u16 offset, u16 length, from the start of the raw data
    /// (`__data_loc`) or from the end of this field (`__rel_loc`).
    Located {
        /// True for `__rel_loc`.
        relative: bool,
    },
}

/// A field of a tracepoint with its name.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct NamedField<'a> {
    /// Its name.
    pub name: &'a str,
    /// Its type in C, or that of its numbers.
    pub type_name: &'a str,
    /// Its position.
    pub field: TraceField,
    /// Its contents.
    pub kind: TraceFieldKind,
    /// True for an array of `char`. perf also treats `u8` as text, and loses addresses that begin with 0.
    pub is_text: bool,
    /// True if its numbers are signed.
    pub signed: bool,
    /// The size of one of its numbers, bytes.
    pub number_size: usize,
}

/// The value of a field.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum TraceValue<'r> {
    /// A signed number.
    Signed(i64),
    /// An unsigned number.
    Unsigned(u64),
    /// The address of something.
    Pointer(u64),
    /// Text that may end with a 0, and the bytes after it.
    Text(&'r [u8]),
    /// Bytes that are not text.
    Bytes(&'r [u8]),
}

impl<'r> TraceValue<'r> {
    /// The bytes before the first 0; `None` for numbers.
    pub fn text(self) -> Option<&'r [u8]> {
        let (TraceValue::Text(bytes) | TraceValue::Bytes(bytes)) = self else { return None };
        Some(until_nul(bytes))
    }
}

/// Maximum number of fields that are used of a tracepoint: each takes time in each sample.
const FIELDS_MAX: usize = 256;

const NAME_MAX: usize = 255;

const TYPE_WORDS: [&str; 26] = [
    "field", "unsigned", "signed", "char", "short", "int", "long", "bool", "const", "volatile", "u8", "u16",
    "u32", "u64", "s8", "s16", "s32", "s64", "__u8", "__u16", "__u32", "__u64", "__s64", "__data_loc",
    "__rel_loc", "",
];

impl<'a> NamedField<'a> {
    /// True for the first fields of all tracepoints: u16 type, u8 flags, u8 preempt_count, s32 pid.
    pub fn is_common(&self) -> bool {
        let TraceField { offset, size } = self.field;
        let names = ["common_type", "common_flags", "common_preempt_count", "common_pid"];
        names.contains(&self.name) && offset.saturating_add(size) <= 8
    }

    fn with_name(&self, line: &str, name: &str) -> String {
        let declared = line.split(';').next().unwrap_or_default();
        let at = declared.rfind(self.name).unwrap_or(declared.len());
        let (before, after) = declared.split_at(at);
        let after = after.get(self.name.len()..).unwrap_or_default();
        let words =
            [before, after].map(|part| part.split(|letter: char| !letter.is_alphanumeric() && letter != '_'));
        let is_number = |word: &str| word.is_empty() || word.parse::<u16>().is_ok();
        let is_plain = words.into_iter().flatten().all(|word| TYPE_WORDS.contains(&word) || is_number(word));
        let TraceField { offset, size } = self.field;
        let declared = match self.kind {
            _ if is_plain => format!("{}{name}{after}", before.trim_start()),
            TraceFieldKind::Numbers if matches!(size, 1 | 2 | 4 | 8) => format!("field:u{} {name}", size * 8),
            TraceFieldKind::Numbers | TraceFieldKind::Bytes => format!("field:unsigned char {name}[{size}]"),
            TraceFieldKind::Pointer => format!("field:void *{name}"),
            TraceFieldKind::Located { relative: false } => format!("field:__data_loc char[] {name}"),
            TraceFieldKind::Located { relative: true } => format!("field:__rel_loc char[] {name}"),
        };
        let signed = u8::from(line.contains("signed:1;"));
        format!("\t{declared};\toffset:{offset};\tsize:{size};\tsigned:{signed};\n")
    }

    /// Parses a line `field:TYPE NAME;offset:N;size:N;signed:0;`, where `[8]` may follow the name.
    fn parse(line: &'a str) -> Option<NamedField<'a>> {
        let mut parts = line.trim().strip_prefix("field:")?.split(';').map(str::trim);
        let declared = parts.next()?;
        let before = declared.split_once('[').filter(|(before, _)| before.contains(' '));
        let located = declared.starts_with("__data_loc") || declared.starts_with("__rel_loc");
        // `__data_loc char[] name` has its brackets in the type.
        let named = if located { declared } else { before.map_or(declared, |(before, _)| before) };
        let name = named.rsplit([' ', '*']).next()?;
        let type_name = named[..named.len() - name.len()].trim_end();
        // Raw data is not larger than a record.
        let mut number = |title| parts.next()?.strip_prefix(title)?.parse::<u16>().ok();
        let (offset, size) = (usize::from(number("offset:")?), usize::from(number("size:")?));
        let signed = parts.next() == Some("signed:1");
        let count = before.and_then(|(_, count)| count.split(']').next()?.parse::<usize>().ok());
        let number_size = count.and_then(|count| size.checked_div(count)).unwrap_or(size);
        let words = || named.split([' ', '*', '[']);
        let has = |word| words().any(|other| other == word);
        let is_text = has("char") && !has("unsigned") && !has("signed");
        let bytes = ["char", "u8", "__u8", "uint8_t", "s8", "bool"];
        let kind = match () {
            () if located => TraceFieldKind::Located { relative: declared.starts_with("__rel_loc") },
            () if named.contains('*') => TraceFieldKind::Pointer,
            () if before.is_some() && bytes.into_iter().any(has) => TraceFieldKind::Bytes,
            () if before.is_some() || matches!(size, 1 | 2 | 4 | 8) => TraceFieldKind::Numbers,
            () => TraceFieldKind::Bytes,
        };
        let field = TraceField { offset, size };
        Some(NamedField { name, type_name, field, kind, is_text, signed, number_size })
    }

    /// The value in a sample's raw data; bytes for several numbers. `None` if the raw data ends before.
    pub fn value<'r>(&self, raw: &'r [u8], endian: Endian) -> Option<TraceValue<'r>> {
        match self.kind {
            TraceFieldKind::Numbers if self.number_size == self.field.size => {
                return self.number(0, raw, endian);
            }
            TraceFieldKind::Pointer => return self.field.number(raw, endian).map(TraceValue::Pointer),
            TraceFieldKind::Numbers | TraceFieldKind::Bytes | TraceFieldKind::Located { .. } => {}
        }
        let place = self.place(raw, endian)?;
        let bytes = raw.get(place.offset..place.offset.checked_add(place.size)?)?;
        Some(if self.is_text { TraceValue::Text(bytes) } else { TraceValue::Bytes(bytes) })
    }

    /// The position of its data, which may be outside the raw data. `None` if this ends before the field.
    pub fn place(&self, raw: &[u8], endian: Endian) -> Option<TraceField> {
        match self.kind {
            TraceFieldKind::Located { relative } => self.field.located(relative, raw, endian),
            _ => Some(self.field),
        }
    }

    /// One of its numbers.
    pub fn number<'r>(&self, index: usize, raw: &[u8], endian: Endian) -> Option<TraceValue<'r>> {
        let size = self.number_size;
        let (from, end) = (index.checked_mul(size)?, index.checked_add(1)?.checked_mul(size)?);
        let offset = self.field.offset.checked_add(from).filter(|_| end <= self.field.size)?;
        let number = TraceField { offset, size }.number(raw, endian)?;
        // Moves the sign to the highest bit and back.
        let unused = 64 - 8 * size as u32;
        Some(match self.signed {
            true => TraceValue::Signed((number << unused).cast_signed() >> unused),
            false => TraceValue::Unsigned(number),
        })
    }
}

impl<'a> TraceFormat<'a> {
    /// The fields, in the order of the text; at most 256, more than any kernel's tracepoint has.
    pub fn fields(&self) -> impl Iterator<Item = NamedField<'a>> + use<'a> {
        let lines = str::from_utf8(self.text).unwrap_or_default().lines();
        lines.filter_map(NamedField::parse).take(FIELDS_MAX)
    }

    /// The text with another name, its own fields named `field1`, `field2`, …, and no print format.
    pub fn with_name(&self, name: &str) -> Vec<u8> {
        let text = String::from_utf8_lossy(self.text);
        let lines = text.lines().take_while(|line| !line.starts_with("print fmt:"));
        let fields = lines.filter_map(|line| Some((line, NamedField::parse(line)?)));
        let (common, own): (Vec<_>, Vec<_>) = fields.partition(|(_, field)| field.is_common());
        let common: String = common.iter().map(|(line, field)| field.with_name(line, field.name)).collect();
        let own = own.iter().enumerate();
        let own: String =
            own.map(|(at, (line, field))| field.with_name(line, &format!("field{}", at + 1))).collect();
        let id = self.id.map_or(String::new(), |id| format!("ID: {id}\n"));
        // Readers distinguish common fields from others by the empty line between them.
        format!("name: {name}\n{id}format:\n{common}\n{own}\nprint fmt: \"\"\n").into_bytes()
    }

    /// Parses the text of a file `format`, which begins with the lines `name: NAME` and `ID: NUMBER`. `None`
    /// if it begins otherwise, or the name is too long for a folder.
    pub fn parse(system: &'a [u8], text: &'a [u8]) -> Option<TraceFormat<'a>> {
        let mut lines = text.strip_prefix(b"name: ")?.split(|&byte| byte == b'\n');
        let name = lines.next().filter(|name| name.len() <= NAME_MAX)?;
        let id = lines.next().and_then(|line| str::from_utf8(line.strip_prefix(b"ID: ")?).ok()?.parse().ok());
        Some(TraceFormat { system, name, id, text })
    }

    /// `system:name`, perf's name for its events.
    pub fn full_name(&self) -> Vec<u8> {
        [self.system, b":", self.name].concat()
    }

    /// The field of this name.
    pub fn field(&self, name: &str) -> Option<TraceField> {
        self.fields().find(|field| field.name == name).map(|field| field.field)
    }
}

impl TraceField {
    /// The unsigned number in it; `None` if it is not a number, or if the raw data ends before it.
    pub fn number(&self, raw: &[u8], endian: Endian) -> Option<u64> {
        match self.size {
            1 => raw.get(self.offset).copied().map(u64::from),
            2 => endian.u16(raw, self.offset).map(u64::from),
            4 => endian.u32(raw, self.offset).map(u64::from),
            8 => endian.u64(raw, self.offset),
            _ => None,
        }
    }

    /// The position in the raw data that a field of [`TraceFieldKind::Located`] contains; it need not be
    /// inside. `None` if the raw data ends before the field.
    pub fn located(&self, relative: bool, raw: &[u8], endian: Endian) -> Option<TraceField> {
        let place = self.number(raw, endian)?;
        let (offset, size) = ((place & 0xffff) as usize, (place >> 16 & 0xffff) as usize);
        let from = if relative { self.offset.saturating_add(self.size) } else { 0 };
        Some(TraceField { offset: from.saturating_add(offset), size })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const FORMAT: &[u8] = b"name: sched_switch\nID: 316\nformat:\n\
        \tfield:unsigned short common_type;\toffset:0;\tsize:2;\tsigned:0;\n\
        \n\
        \tfield:char prev_comm[16];\toffset:8;\tsize:16;\tsigned:0;\n\
        \tfield:__data_loc char[] name;\toffset:24;\tsize:4;\tsigned:0;\n\
        \tfield:const char *what;\toffset:28;\tsize:8;\tsigned:0;\n\
        \tfield:pid_t next_pid;\toffset:36;\tsize:4;\tsigned:1;\n\n\
        print fmt: \"field:x\", REC->next_pid\n";

    #[test]
    fn fields_are_found_by_name_whatever_their_type() {
        let format = TraceFormat::parse(b"sched", FORMAT).unwrap();
        assert_eq!((format.full_name(), format.id), (b"sched:sched_switch".to_vec(), Some(316)));
        let field = |name| format.field(name).map(|field| (field.offset, field.size));
        assert_eq!(field("common_type"), Some((0, 2)));
        assert_eq!(field("prev_comm"), Some((8, 16)));
        assert_eq!(field("what"), Some((28, 8)));
        assert_eq!(field("next_pid"), Some((36, 4)));
        assert_eq!((field("pid"), field("x"), field("")), (None, None, None));
        let kinds: Vec<_> = format.fields().map(|field| field.kind).collect();
        let located = TraceFieldKind::Located { relative: false };
        use TraceFieldKind::{Bytes, Numbers, Pointer};
        assert_eq!(kinds, [Numbers, Bytes, located, Pointer, Numbers]);
    }

    #[test]
    fn a_renamed_format_has_the_same_fields_under_other_names() {
        let format = TraceFormat::parse(b"probe_app", FORMAT).unwrap();
        let text = format.with_name("other");
        let new = TraceFormat::parse(b"probe", &text).unwrap();
        assert_eq!((new.full_name(), new.id), (b"probe:other".to_vec(), Some(316)));
        let names: Vec<_> = new.fields().map(|field| field.name).collect();
        assert_eq!(names, ["common_type", "field1", "field2", "field3", "field4"]);
        let places = |format: &TraceFormat<'_>| {
            format.fields().map(|field| (field.field, field.kind)).collect::<Vec<_>>()
        };
        assert_eq!(places(&new), places(&format));
        let text = String::from_utf8(text).unwrap();
        assert!(
            text.contains("char field1[16];\toffset:8;") && text.ends_with("print fmt: \"\"\n"),
            "{text}"
        );
        assert!(!text.contains("comm[") && !text.contains("REC->"), "{text}");
        // Numbers that no raw data has.
        let text = b"name: x\nID: 1\nformat:\n\tfield:char a[41111111];\toffset:8;\tsize:16;\tsigned:0;\n\
            \tfield:char b[8];\toffset:41111111;\tsize:8;\tsigned:0;\n";
        let text = TraceFormat::parse(b"probe_app", text).unwrap().with_name("other");
        assert!(!String::from_utf8_lossy(&text).contains("4111"));
    }

    #[test]
    fn a_field_is_read_in_the_order_of_the_recording_where_the_raw_data_holds_it() {
        let number =
            |offset, size, endian| TraceField { offset, size }.number(&[1, 2, 3, 4, 5, 6, 7, 8], endian);
        assert_eq!(number(1, 1, Endian::Little), Some(2));
        assert_eq!(number(2, 2, Endian::Big), Some(0x304));
        assert_eq!(number(4, 4, Endian::Little), Some(0x0807_0605));
        assert_eq!(number(0, 8, Endian::Big), Some(0x0102_0304_0506_0708));
        for (offset, size) in [(5, 4), (0, 16), (0, 0), (usize::MAX, 4), (8, 1)] {
            assert_eq!(number(offset, size, Endian::Little), None);
        }
    }

    #[test]
    fn located_data_is_counted_from_the_start_or_from_its_field() {
        let field = TraceField { offset: 4, size: 4 };
        let raw = [9, 9, 9, 9, 8, 0, 3, 0, b'a', b'b', 0];
        let place = |relative| field.located(relative, &raw, Endian::Little).map(|at| (at.offset, at.size));
        assert_eq!((place(false), place(true)), (Some((8, 3)), Some((16, 3))));
        assert_eq!(field.located(false, &raw[..7], Endian::Little), None);
    }

    #[test]
    fn only_arrays_of_char_are_text() {
        let lines = [
            "field:char comm[2];",
            "field:__data_loc char[] comm;",
            "field:unsigned char comm[2];",
            "field:__u8 comm[2];",
            "field:__data_loc u8[] comm;",
            "field:__data_loc unsigned char[] comm;",
        ];
        let lines = lines
            .map(|line| format!("{line}\toffset:8;\tsize:{};", if line.contains("loc") { 4 } else { 2 }));
        let raw = [0, 0, 0, 0, 0, 0, 0, 0, 12, 0, 2, 0, 0, 1];
        let values = lines.map(|line| NamedField::parse(&line).unwrap().value(&raw, Endian::Little).unwrap());
        use TraceValue::{Bytes, Text};
        let (own, located) = (&raw[8..10], &raw[12..]);
        let expected = [Text(own), Text(located), Bytes(own), Bytes(own), Bytes(located), Bytes(located)];
        assert_eq!(values, expected);
    }

    #[test]
    fn text_that_is_not_a_format_is_none() {
        assert_eq!([&b""[..], b"ID: 4\nname: x\n"].map(|text| TraceFormat::parse(b"sched", text)), [None; 2]);
        for text in [&b"name: x"[..], b"name: x\nID: y\n", b"name: x\nID: \xff\n"] {
            assert_eq!(TraceFormat::parse(b"sched", text).and_then(|format| format.id), None);
        }
        let odd = b"name: x\nID: 1\n\tfield:\n\tfield:a;offset:99999999999999999999;size:1;\n\tfield:\xff b;offset:1;size:1;\n";
        assert_eq!(TraceFormat::parse(b"s", odd).unwrap().field("a"), None);
    }
}
