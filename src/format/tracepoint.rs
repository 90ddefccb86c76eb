//! Reads what feature TRACING_DATA says about tracepoints: their names, and the positions of the fields in
//! their raw data, which differ between kernels.

use crate::Endian;

/// A tracepoint, as the file `format` of tracefs described it where it was recorded.
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

impl<'a> TraceFormat<'a> {
    /// Parses the text of a file `format`, which begins with the lines `name: NAME` and `ID: NUMBER`.
    pub(crate) fn parse(system: &'a [u8], text: &'a [u8]) -> Option<TraceFormat<'a>> {
        let mut lines = text.strip_prefix(b"name: ")?.split(|&byte| byte == b'\n');
        let name = lines.next()?;
        let id = lines.next().and_then(|line| str::from_utf8(line.strip_prefix(b"ID: ")?).ok()?.parse().ok());
        Some(TraceFormat { system, name, id, text })
    }

    /// `system:name`, perf's name for its events.
    pub fn full_name(&self) -> Vec<u8> {
        [self.system, b":", self.name].concat()
    }

    /// The field of this name. Its line reads `field:TYPE NAME;offset:N;size:N;signed:0;`, where `[8]` may
    /// follow the name.
    pub fn field(&self, name: &str) -> Option<TraceField> {
        let lines = str::from_utf8(self.text).ok()?.lines();
        lines.filter_map(|line| line.trim().strip_prefix("field:")).find_map(|line| {
            let mut parts = line.split(';').map(str::trim);
            let declared = parts.next()?.split('[').next()?;
            let declared = declared.rsplit([' ', '*']).next()?;
            let mut number = |title| parts.next()?.strip_prefix(title)?.parse().ok();
            let (offset, size) = (number("offset:")?, number("size:")?);
            (declared == name).then_some(TraceField { offset, size })
        })
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
    fn what_is_not_a_format_is_none() {
        assert_eq!([&b""[..], b"ID: 4\nname: x\n"].map(|text| TraceFormat::parse(b"sched", text)), [None; 2]);
        for text in [&b"name: x"[..], b"name: x\nID: y\n", b"name: x\nID: \xff\n"] {
            assert_eq!(TraceFormat::parse(b"sched", text).and_then(|format| format.id), None);
        }
        let odd = b"name: x\nID: 1\n\tfield:\n\tfield:a;offset:99999999999999999999;size:1;\n\tfield:\xff b;offset:1;size:1;\n";
        assert_eq!(TraceFormat::parse(b"s", odd).unwrap().field("a"), None);
    }
}
