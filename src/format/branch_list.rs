//! Reads the branch lists of simpleperf: the branches taken after an address, and how often they were seen.
//!
//! Phones send them in place of traces: `simpleperf inject --output branch-list`, `record --decode-etm`.
//!
//! | form | |
//! |---|---|
//! | old | one message |
//! | new | `simpleperf:EtmBranchList`, u32 version 1, u8 1 if compressed, then u32 size and a message (each a zstd frame) |
//!
//! | message | fields |
//! |---|---|
//! | list | 1 `simpleperf:EtmBranchList`, 2 binary, repeated, 3 branch stacks |
//! | binary | 1 path, 2 build-id as text, 3 address, repeated, 4 type (ELF 0, kernel 1, module 2), 5 kernel |
//! | address | 1 address in the file, bit 0 set for T32, 2 branches, repeated |
//! | branches | 1 bits, the lowest of the first byte first: taken or not, 2 their number, 3 how often |
//! | kernel | 1 address of `_stext`, if the addresses are those in memory |
//!
//! Source: AOSP, simpleperf/branch_list.proto and BranchListFile.cpp.

use std::borrow::Cow;

use crate::protobuf::{Field, Message};
use crate::unzstd::{self, Decoder};
use crate::{Endian, Error, Result};

const MAGIC: &[u8] = b"simpleperf:EtmBranchList";

/// Of an expanded message, bytes.
const MOST_EXPANDED: usize = 256 << 20;

/// The traced branches of a file.
#[derive(Clone, PartialEq, Eq, Default, Debug)]
#[non_exhaustive]
pub struct TracedBinary<'a> {
    /// Its path.
    pub path: &'a [u8],
    /// Its build-id in hexadecimal; empty if it is not known.
    pub build_id: &'a [u8],
    /// True for the kernel.
    pub is_kernel: bool,
    /// The address of `_stext`, if addresses are those in memory; else 0.
    pub kernel_start: u64,
    /// The lists, in the order of the message.
    pub lists: Vec<BranchList<'a>>,
}

/// Branches one after the other.
#[derive(Clone, Copy, PartialEq, Eq, Default, Debug)]
#[non_exhaustive]
pub struct BranchList<'a> {
    /// The address of the code; bit 0 is set for T32.
    pub address: u64,
    bits: &'a [u8],
    len: u64,
    /// The number of occurrences.
    pub count: u64,
}

impl<'a> BranchList<'a> {
    /// For each branch, true if it was taken.
    pub fn taken(&self) -> impl Iterator<Item = bool> + use<'a> {
        let bits = self.bits.iter().flat_map(|&byte| (0..8).map(move |bit| byte >> bit & 1 != 0));
        bits.take(usize::try_from(self.len).unwrap_or(usize::MAX))
    }
}

/// True if a file with these first bytes is a branch list.
pub fn is_branch_list(head: &[u8]) -> bool {
    let old = head.strip_prefix(&[0x0a, MAGIC.len() as u8]).unwrap_or(head);
    old.starts_with(MAGIC)
}

/// The number of bytes that [`is_branch_list`] examines.
pub const HEAD: usize = MAGIC.len() + 2;

/// The messages of a file or section.
///
/// # Errors
///
/// It is not a branch list, of another version, cut off, or damaged.
pub fn messages(bytes: &[u8]) -> Result<Vec<Cow<'_, [u8]>>> {
    let Some(rest) = bytes.strip_prefix(MAGIC) else {
        return match is_branch_list(bytes) {
            true => Ok(vec![bytes.into()]),
            false => Err(Error::new("is not a branch list of simpleperf")),
        };
    };
    let (version, compressed) = (Endian::Little.u32(rest, 0), rest.get(4).copied());
    let (Some(1), Some(compressed @ 0..=1)) = (version, compressed) else {
        return Err(Error::new("is a branch list of another version than 1, or is cut off"));
    };
    let (mut rest, mut found) = (&rest[5..], Vec::new());
    while !rest.is_empty() {
        let at = bytes.len() - rest.len();
        let message = Endian::Little.u32(rest, 0).and_then(|size| rest.get(4..)?.get(..size as usize));
        let Some(message) = message else {
            return Err(
                Error::new(format!("the branch list is cut off in the message at offset {at:#x}")).damaged()
            );
        };
        rest = &rest[4 + message.len()..];
        found.push(match compressed {
            0 => message.into(),
            _ => expand(message, at)?.into(),
        });
    }
    Ok(found)
}

fn expand(message: &[u8], at: usize) -> Result<Vec<u8>> {
    let mut expanded = Vec::new();
    let why = match unzstd::append(&mut Decoder::new(), message, &mut expanded, MOST_EXPANDED) {
        Ok(0) => return Ok(expanded),
        Ok(_) => "is cut off".to_owned(),
        Err(why) => why,
    };
    Err(Error::new(format!("the message at offset {at:#x} can't be decompressed: {why}")).damaged())
}

/// The binaries of a message, and true if there are branch stacks (LBR), too. `None` if it is damaged.
pub fn binaries(message: &[u8]) -> Option<(Vec<TracedBinary<'_>>, bool)> {
    let (mut found, mut has_stacks) = (Vec::new(), false);
    for field in Message(message) {
        match field? {
            (2, Field::Bytes(bytes)) => found.push(binary(bytes)?),
            (3, Field::Bytes(_)) => has_stacks = true,
            _ => {}
        }
    }
    Some((found, has_stacks))
}

fn binary(message: &[u8]) -> Option<TracedBinary<'_>> {
    let mut found = TracedBinary::default();
    for field in Message(message) {
        match field? {
            (1, Field::Bytes(path)) => found.path = path,
            (2, Field::Bytes(id)) => found.build_id = id,
            (3, Field::Bytes(address)) => lists(address, &mut found.lists)?,
            (4, Field::Number(kind)) => found.is_kernel = kind == 1,
            (5, Field::Bytes(kernel)) => {
                for field in Message(kernel) {
                    if let (1, Field::Number(start)) = field? {
                        found.kernel_start = start;
                    }
                }
            }
            _ => {}
        }
    }
    Some(found)
}

fn lists<'a>(message: &'a [u8], all: &mut Vec<BranchList<'a>>) -> Option<()> {
    let (mut at, first) = (0, all.len());
    for field in Message(message) {
        match field? {
            (1, Field::Number(address)) => at = address,
            (2, Field::Bytes(branches)) => {
                let mut list = BranchList::default();
                for field in Message(branches) {
                    match field? {
                        (1, Field::Bytes(bits)) => list.bits = bits,
                        (2, Field::Number(len)) => list.len = len,
                        (3, Field::Number(count)) => list.count = count,
                        _ => {}
                    }
                }
                all.push(list);
            }
            _ => {}
        }
    }
    all.iter_mut().skip(first).for_each(|list| list.address = at);
    Some(())
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::unzstd::tests::stored_frame;

    fn field(number: u8, bytes: &[u8]) -> Vec<u8> {
        [&[number << 3 | 2, bytes.len() as u8], bytes].concat()
    }

    fn list() -> Vec<u8> {
        let branches = field(2, b"\x0a\x02\x05\x01\x10\x09\x18\x07");
        let address = field(3, &[b"\x08\x84\x20", &branches[..]].concat());
        let binary = [&field(1, b"/a")[..], &field(2, b"c4"), &address, b"\x20\x01", &field(5, b"\x08\x03")];
        [field(1, MAGIC), field(2, &binary.concat()), field(3, b"")].concat()
    }

    fn framed(compressed: u8, message: &[u8]) -> Vec<u8> {
        [MAGIC, &[1, 0, 0, 0, compressed], &(message.len() as u32).to_le_bytes(), message].concat()
    }

    #[test]
    fn both_forms_are_read() {
        let packed = stored_frame(&list());
        for file in [list(), framed(0, &list()), framed(1, &packed)] {
            assert!(is_branch_list(&file[..HEAD]));
            let messages = messages(&file).unwrap();
            let (binaries, has_stacks) = binaries(&messages[0]).unwrap();
            assert!(messages.len() == 1 && has_stacks);
            let [TracedBinary { path: b"/a", build_id: b"c4", is_kernel: true, kernel_start: 3, lists }] =
                &binaries[..]
            else {
                panic!("{binaries:?}")
            };
            assert_eq!((lists[0].address, lists[0].count), (0x1004, 7));
            let taken = [true, false, true, false, false, false, false, false, true];
            assert!(lists[0].taken().eq(taken));
        }
    }

    #[test]
    fn damage_is_refused_or_read_without_a_panic() {
        for file in [list(), framed(0, &list()), framed(1, &stored_frame(&list()))] {
            for at in 0..file.len() {
                for changed in [&file[..at], &[&file[..at], &[0xff], &file[at + 1..]].concat()] {
                    for message in messages(changed).unwrap_or_default() {
                        drop(binaries(&message));
                    }
                }
            }
        }
        assert!(messages(b"PERFILE2").is_err());
    }
}
