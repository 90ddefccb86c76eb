//! Reads the fields of protobuf messages, which simpleperf writes into sections of its own.
//!
//! A message is a series of fields: a varint with the number of the field and its wire type, then a varint
//! (0), 8 bytes (1), a varint length and this many bytes (2), or 4 bytes (5). A varint has 7 bits in a byte,
//! the lowest first; bit 7 is set in all bytes but the last.

#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Field<'a> {
    Number(u64),
    Bytes(&'a [u8]),
}

/// The fields of a message with their numbers. At damage it yields `None` once, and then ends.
#[derive(Clone, Debug)]
pub(crate) struct Message<'a>(pub(crate) &'a [u8]);

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

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_message_is_read_up_to_its_damage() {
        let whole = b"\x08\x96\x01\x12\x02ab\x1d\x01\x02\x03\x04\x21\x01\x02\x03\x04\x05\x06\x07\x08";
        let fields = [
            (1, Field::Number(150)),
            (2, Field::Bytes(b"ab")),
            (3, Field::Bytes(&[1, 2, 3, 4])),
            (4, Field::Bytes(&[1, 2, 3, 4, 5, 6, 7, 8])),
        ];
        assert_eq!(Message(whole).collect::<Vec<_>>(), fields.map(Some));
        for cut in 0..whole.len() {
            let read: Vec<_> = Message(&whole[..cut]).collect();
            assert!(read.iter().flatten().eq(&fields[..read.iter().flatten().count()]), "{cut}");
        }
        // An endless varint, a length beyond the end, a group.
        for damaged in [&[0xff; 11][..], b"\x12\xff\xff\xff\xff\xff\xff\xff\xff\xff\x01", b"\x0b"] {
            assert_eq!(Message(damaged).collect::<Vec<_>>(), [None]);
        }
    }
}
