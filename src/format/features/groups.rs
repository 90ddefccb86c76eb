//! Reads and writes the GROUP_DESC section, and divides events into its groups.

use std::cmp::Reverse;
use std::collections::BinaryHeap;
use std::ops::Range;

use super::put_str;
use super::section::{Int as _, Section};
use crate::Endian;

/// A group of the GROUP_DESC section.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct GroupDesc<'a> {
    /// The name; [`GroupDesc::NO_NAME`] if the user gave none.
    pub name: &'a [u8],
    /// Position of the leader among the file's attrs; the members follow it.
    pub leader: u32,
    /// Number of events, the leader included.
    pub members: u32,
}

impl GroupDesc<'_> {
    /// The name that perf writes for a group without a name.
    pub const NO_NAME: &'static [u8] = b"{anon_group}";
}

/// The groups of a GROUP_DESC section; `None` when it is damaged.
pub fn read_group_desc(section: &[u8], endian: Endian) -> Option<Vec<GroupDesc<'_>>> {
    group_desc(&mut Section::new(section, endian))
}

/// The ranges into which groups divide this many events, in order: the events of a group with its number, or
/// a single event without one. Groups of perf share no events. In a damaged section, an event of several groups
/// belongs to the first.
///
/// ```
/// use perfx_format::features::{GroupDesc, grouped_events};
///
/// let group = GroupDesc { name: b"mine", leader: 1, members: 2 };
/// assert_eq!(grouped_events(&[group], 4), [(0..1, None), (1..3, Some(0)), (3..4, None)]);
/// ```
pub fn grouped_events(groups: &[GroupDesc<'_>], events: usize) -> Vec<(Range<usize>, Option<usize>)> {
    let mut starts: Vec<_> = (0..groups.len()).collect();
    starts.sort_by_key(|&number| groups[number].leader);
    let has_begun = |&number: &usize, event| groups[number].leader as usize <= event;
    let has_ended = |number: usize, event| {
        (event as u64) >= u64::from(groups[number].leader) + u64::from(groups[number].members)
    };
    let (mut starts, mut begun) = (starts.into_iter().peekable(), BinaryHeap::new());
    let mut grouped: Vec<(Range<usize>, Option<usize>)> = Vec::new();
    for event in 0..events {
        begun.extend(std::iter::from_fn(|| starts.next_if(|number| has_begun(number, event)).map(Reverse)));
        while begun.peek().is_some_and(|Reverse(number)| has_ended(*number, event)) {
            begun.pop();
        }
        let group = begun.peek().map(|Reverse(number)| *number);
        match grouped.last_mut() {
            Some((members, last)) if group.is_some() && *last == group => members.end += 1,
            _ => grouped.push((event..event + 1, group)),
        }
    }
    grouped
}

/// Encodes a GROUP_DESC section: u32 number of groups, then for each STR name, u32 leader, u32 members.
pub fn write_group_desc(groups: &[GroupDesc<'_>], endian: Endian) -> Vec<u8> {
    let mut out = Vec::new();
    (groups.len() as u32).put(endian, &mut out);
    for group in groups {
        put_str(group.name, endian, &mut out);
        group.leader.put(endian, &mut out);
        group.members.put(endian, &mut out);
    }
    out
}

pub(super) fn group_desc<'a>(s: &mut Section<'a>) -> Option<Vec<GroupDesc<'a>>> {
    let count = s.int::<u32>("number of groups")?;
    s.list("groups", count, 12, |s| {
        Some(GroupDesc { name: s.text("name")?, leader: s.number("leader")?, members: s.number("members")? })
    })
}
