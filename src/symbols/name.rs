//! Symbol names without copies: a hostile file can give a million symbols one long string.

use std::borrow::Borrow;
use std::fmt;
use std::hash::{Hash, Hasher};
use std::ops::{Deref, Range};
use std::sync::Arc;

use memchr::memchr_iter;

/// A name in a shared table of strings.
#[derive(Clone)]
pub struct Name {
    table: Arc<[u8]>,
    from: u32,
    to: u32,
}

impl Deref for Name {
    type Target = [u8];

    fn deref(&self) -> &[u8] {
        self.table.get(self.from as usize..self.to as usize).unwrap_or_default()
    }
}

impl<B: AsRef<[u8]>> From<B> for Name {
    fn from(name: B) -> Name {
        let name = name.as_ref();
        let name = &name[..name.len().min(u32::MAX as usize)];
        Name { table: name.into(), from: 0, to: name.len() as u32 }
    }
}

impl PartialEq for Name {
    fn eq(&self, other: &Name) -> bool {
        **self == **other
    }
}

impl Eq for Name {}

impl Hash for Name {
    fn hash<H: Hasher>(&self, state: &mut H) {
        (**self).hash(state);
    }
}

impl Borrow<[u8]> for Name {
    fn borrow(&self) -> &[u8] {
        self
    }
}

impl fmt::Debug for Name {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{:?}", String::from_utf8_lossy(self))
    }
}

/// Maximum ratio of the total length of names to their table; symbols of one name share a string.
const MOST_SHARED: u64 = 16;

/// The names of a string table, whose total length is bounded.
pub(crate) struct Names {
    table: Arc<[u8]>,
    /// The ends of names, ascending: the end of long, overlapping names is searched for once.
    ends: Vec<u32>,
    left: u64,
}

impl Names {
    pub(crate) fn new(table: &[u8]) -> Names {
        let table = &table[..table.len().min(u32::MAX as usize)];
        let zeros = memchr_iter(0, table).map(|at| at as u32);
        let ends = zeros.chain([table.len() as u32]).collect();
        Names { table: table.into(), ends, left: table.len() as u64 * MOST_SHARED }
    }

    pub(crate) fn range(&self, from: u32) -> Range<u32> {
        let end = self.ends.get(self.ends.partition_point(|&end| end < from));
        from..end.copied().unwrap_or(from)
    }

    pub(crate) fn bytes(&self, Range { start, end }: &Range<u32>) -> &[u8] {
        self.table.get(*start as usize..*end as usize).unwrap_or_default()
    }

    /// The name in this range; `None` if all names together are too long.
    pub(crate) fn name(&mut self, Range { start, end }: Range<u32>) -> Option<Name> {
        self.left = self.left.checked_sub(u64::from(end - start))?;
        Some(Name { table: self.table.clone(), from: start, to: end })
    }
}

pub(crate) fn text_at(table: &[u8], at: u32) -> &[u8] {
    let rest = table.get(at as usize..).unwrap_or_default();
    rest.split(|&byte| byte == 0).next().unwrap_or_default()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_that_overlap_are_slices_of_one_table_and_bounded() {
        let mut names = Names::new(b"\0abcdef\0gh");
        assert_eq!((names.range(1), names.range(4), names.range(8)), (1..7, 4..7, 8..10));
        assert_eq!(names.bytes(&names.range(4)), b"def");
        assert_eq!(names.bytes(&names.range(99)), b"");
        let total: u64 = (0..).map_while(|_| names.name(1..7)).map(|name| name.len() as u64).sum();
        assert!(total > 15 * 10 && total <= 16 * 10, "{total}");
    }
}
