//! Finds the build-id, 1 to 20 bytes, of a path, the kernel, a module or the vdso, or the reason for none.
//!
//! A *build-id* is the linker's fingerprint of a program (`ld --build-id`, see ld(1)); it identifies the
//! build of a sample's code long after the file at that path has changed. [`Finder`] searches the places
//! where one can be found, in order; [`of_file`], [`from_elf`] and [`from_notes`] read one; [`KnownIds`]
//! holds those that the user gives.
//!
//! This package does not know perf.data: its caller gives the [`Finder`] the few facts it needs.

// Other packages derive Debug for types that contain these.
#![warn(missing_debug_implementations)]

/// The example of the README is compiled.
#[cfg(doctest)]
#[doc = include_str!("README.md")]
pub struct Readme;

mod answer;
mod cache;
mod elf;
mod finder;
mod installed;
mod known;
mod root;
mod running;

use std::cmp::Ordering;
use std::collections::BTreeSet;
use std::fmt;
use std::hash::{Hash, Hasher};
use std::path::PathBuf;

pub use crate::answer::{Answer, Reason, Source};
pub use crate::elf::{Error, Metered, from_elf, from_notes, of_file, of_open, open, open_unlinked};
pub use crate::finder::{Finder, Object, Places, RecordedOn, without_deleted};
pub use crate::installed::module_name;
pub use crate::known::{KnownError, KnownIds, read_list};
pub use crate::root::{resolve, resolve_folder};
pub use object::Endianness;

/// The user's home folder (`HOME`), with perf's build-id cache (`.debug`). Like perf, this does not read the
/// password database if the variable is not set; perf 6.1 and 7.3 then add nothing to a cache.
pub fn home() -> Option<PathBuf> {
    std::env::var_os("HOME").filter(|home| !home.is_empty()).map(PathBuf::from)
}

/// A build-id: 1 to 20 bytes, not all zero.
///
/// A perf.data record has room for 20 bytes, and the kernel keeps as many (`BUILD_ID_SIZE_MAX` in
/// include/linux/buildid.h). GNU ld makes 20 (sha1), 16 (md5, uuid) or those of `--build-id=0x...`; lld also
/// makes 8 (fast). perf treats a build-id of zeros as none, so there is no such value.
///
/// Old versions of perf and simpleperf write 20 bytes for a shorter id, with zeros at the end. So ids that
/// differ only in zeros at the end are equal.
#[derive(Clone, Copy)]
pub struct BuildId {
    /// Bytes past `len` are zero.
    bytes: [u8; BuildId::MAX],
    len: u8,
}

impl PartialEq for BuildId {
    fn eq(&self, other: &BuildId) -> bool {
        self.bytes == other.bytes
    }
}

impl Eq for BuildId {}

impl Hash for BuildId {
    fn hash<H: Hasher>(&self, hasher: &mut H) {
        self.bytes.hash(hasher);
    }
}

impl PartialOrd for BuildId {
    fn partial_cmp(&self, other: &BuildId) -> Option<Ordering> {
        Some(self.cmp(other))
    }
}

impl Ord for BuildId {
    fn cmp(&self, other: &BuildId) -> Ordering {
        self.bytes.cmp(&other.bytes)
    }
}

impl BuildId {
    /// The largest length of a build-id, bytes.
    pub const MAX: usize = 20;

    /// A build-id of these bytes; `None` if there are none, more than [`BuildId::MAX`], or only zeros.
    pub fn new(id: &[u8]) -> Option<BuildId> {
        if id.iter().all(|&byte| byte == 0) {
            return None;
        }
        let mut bytes = [0; BuildId::MAX];
        bytes.get_mut(..id.len())?.copy_from_slice(id);
        Some(BuildId { bytes, len: id.len() as u8 })
    }

    /// Parses hex digits of either case, as `perf buildid-list`, `readelf -n` and `file` print them.
    ///
    /// # Errors
    ///
    /// The text is not a build-id; the error contains the reason.
    pub fn from_hex(hex: &str) -> Result<BuildId, HexError> {
        if hex.is_empty() {
            return Err(HexError::Empty);
        }
        let mut digits = Vec::new();
        for (n, digit) in hex.chars().enumerate() {
            let value = digit.to_digit(16).ok_or(HexError::NotHex { digit, position: n + 1 })?;
            digits.push(value as u8);
        }
        if digits.len() % 2 != 0 {
            return Err(HexError::Odd { digits: digits.len() });
        }
        if digits.len() > 2 * BuildId::MAX {
            return Err(HexError::TooLong { bytes: digits.len() / 2 });
        }
        let bytes: Vec<u8> = digits.chunks(2).map(|pair| pair[0] << 4 | pair[1]).collect();
        BuildId::new(&bytes).ok_or(HexError::Zero)
    }

    /// The bytes: between 1 and [`BuildId::MAX`] of them.
    pub fn as_bytes(&self) -> &[u8] {
        &self.bytes[..usize::from(self.len)]
    }

    /// The id without padding: zeros after the usual length, 8 or 16, if there are [`BuildId::MAX`] bytes.
    #[must_use]
    pub fn unpadded(mut self) -> BuildId {
        if usize::from(self.len) == BuildId::MAX
            && let Some(len) =
                [8, 16].into_iter().find(|&len| self.bytes[len..].iter().all(|&byte| byte == 0))
        {
            self.len = len as u8;
        }
        self
    }

    /// Hexadecimal spellings under which a file may be stored: equal ids of this length and of the usual
    /// ones, shortest first. The first is the file's own, except for the few ids that end in many zeros.
    pub fn spellings(&self) -> impl Iterator<Item = String> {
        let used = self.bytes.iter().rposition(|&byte| byte != 0).map_or(0, |last| last + 1);
        let lengths = BTreeSet::from([usize::from(self.len), 8, 16, BuildId::MAX]);
        let digits = BuildId { len: BuildId::MAX as u8, ..*self }.to_string();
        lengths.into_iter().filter(move |&len| len >= used).map(move |len| digits[..2 * len].to_owned())
    }
}

impl fmt::Display for BuildId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.as_bytes().iter().try_for_each(|byte| write!(f, "{byte:02x}"))
    }
}

impl fmt::Debug for BuildId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Display::fmt(self, f)
    }
}

/// The reason why a text is not a build-id.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum HexError {
    /// There are no digits.
    Empty,
    /// A character is not a hex digit.
    NotHex {
        /// The character.
        digit: char,
        /// Its position, counted in characters from 1.
        position: usize,
    },
    /// The number of digits is odd.
    Odd {
        /// The number of digits.
        digits: usize,
    },
    /// More than [`BuildId::MAX`] bytes.
    TooLong {
        /// The number of bytes.
        bytes: usize,
    },
    /// All zero, which perf treats as no build-id.
    Zero,
}

impl fmt::Display for HexError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            HexError::Empty => write!(f, "the build-id is empty"),
            HexError::NotHex { digit, position } => {
                write!(f, "character {position} of the build-id, {digit:?}, is not a hex digit")
            }
            HexError::Odd { digits } => write!(f, "the build-id has an odd number of hex digits, {digits}"),
            HexError::TooLong { bytes } => {
                write!(f, "the build-id has {bytes} bytes, at most {} are possible", BuildId::MAX)
            }
            HexError::Zero => write!(f, "the build-id is all zero, which means that there is none"),
        }
    }
}

impl std::error::Error for HexError {}

#[cfg(test)]
mod tests {
    use std::hash::BuildHasher as _;

    use super::*;

    #[test]
    fn a_build_id_has_1_to_20_bytes_and_is_not_zero() {
        assert_eq!(BuildId::new(&[]), None);
        assert_eq!(BuildId::new(&[1; 21]), None);
        assert_eq!(BuildId::new(&[0; 20]), None);
        assert_eq!(BuildId::new(&[0, 7]).unwrap().as_bytes(), [0, 7]);
        assert_eq!(BuildId::new(&[9; 20]).unwrap().as_bytes(), [9; 20]);
    }

    #[test]
    fn zeros_at_the_end_of_an_id_are_padding() {
        let id = |bytes: &[u8]| BuildId::new(bytes).unwrap();
        assert_eq!(id(&[1]), id(&[1, 0]));
        assert_eq!(id(&[1]).cmp(&id(&[1, 0])), Ordering::Equal);
        let state = std::hash::RandomState::new();
        assert_eq!(state.hash_one(id(&[1])), state.hash_one(id(&[1, 0])));
        // The zeros are kept, though.
        assert_eq!(id(&[1, 0]).to_string(), "0100");
        let mut ids = [id(&[2]), id(&[1, 0, 1]), id(&[1])];
        ids.sort();
        assert_eq!(ids, [id(&[1]), id(&[1, 0, 1]), id(&[2])]);
    }

    #[test]
    fn only_padding_zeros_are_removed_from_an_id() {
        let unpadded = |used: usize, len: usize| {
            let bytes: Vec<u8> = (0..len).map(|at| u8::from(at < used)).collect();
            BuildId::new(&bytes).unwrap().unpadded().as_bytes().len()
        };
        let lengths = [(16, 20), (8, 20), (7, 20), (19, 20), (17, 20), (15, 16), (20, 20), (3, 4)];
        assert_eq!(lengths.map(|(used, len)| unpadded(used, len)), [16, 8, 8, 20, 20, 16, 20, 4]);
    }

    #[test]
    fn a_file_may_be_stored_under_its_id_with_and_without_zeros() {
        let lengths = |id: &[u8]| {
            let spellings: Vec<String> = BuildId::new(id).unwrap().spellings().collect();
            assert!(spellings.iter().all(|hex| BuildId::from_hex(hex).ok() == BuildId::new(id)));
            spellings.iter().map(|hex| hex.len() / 2).collect::<Vec<_>>()
        };
        let padded: [u8; 20] = std::array::from_fn(|at| u8::from(at < 16));
        assert_eq!(lengths(&padded), [16, 20]);
        assert_eq!(lengths(&[9; 16]), [16, 20]);
        assert_eq!(lengths(&[9; 20]), [20]);
        assert_eq!(lengths(&[9, 9, 0]), [3, 8, 16, 20]);
        let ends_in_zero: [u8; 20] = std::array::from_fn(|at| u8::from(at < 19));
        assert_eq!(lengths(&ends_in_zero), [20]);
    }

    #[test]
    fn hex_there_and_back() {
        let id = BuildId::from_hex("00aBcDeF").unwrap();
        assert_eq!(id.as_bytes(), [0x00, 0xab, 0xcd, 0xef]);
        assert_eq!(id.to_string(), "00abcdef");
        assert_eq!(format!("{id:?}"), "00abcdef");
    }

    #[test]
    fn a_hex_error_explains_the_fault() {
        let says = |hex: &str| BuildId::from_hex(hex).unwrap_err().to_string();
        assert_eq!(says(""), "the build-id is empty");
        assert_eq!(says("abc"), "the build-id has an odd number of hex digits, 3");
        assert_eq!(says("abxé"), "character 3 of the build-id, 'x', is not a hex digit");
        assert_eq!(says("é"), "character 1 of the build-id, 'é', is not a hex digit");
        assert_eq!(says(&"ab".repeat(21)), "the build-id has 21 bytes, at most 20 are possible");
        assert_eq!(says("0000"), "the build-id is all zero, which means that there is none");
    }
}
