//! Lists the code that the traces of a recording execute, and whether it is found, without decoding.

use std::collections::{BTreeMap, HashMap};

use foldhash::fast::RandomState;
use perfx_model::address_space::Dso;
use perfx_pipeline::Result;
use perfx_trace::{Space, Visit};

use crate::image::{Code, Known};
use crate::summary::sum;

/// Code that traces execute.
#[derive(Clone, Debug)]
pub struct Needed {
    /// The mapped file or kernel; `None` if no record names it.
    pub dso: Option<Dso>,
    /// The object that is searched for; `None` if the DSO has no file.
    pub known: Option<Known>,
    /// True for guest code whose records are missing.
    pub is_hidden: bool,
    /// True if the code is found and matches the recording.
    pub is_found: bool,
    /// The bytes of the traces from each address in this code to the next address in a packet.
    pub bytes: u64,
}

/// The bytes of the traces in each DSO, by whether its code is found.
type Sums = BTreeMap<(Option<u32>, bool), u64>;

/// The DSO at an address, and the time until which this holds.
type Places = HashMap<(Option<Space>, u64), ((Option<u32>, bool), u64), RandomState>;

/// Used as the number of a DSO for unknown code of guests.
const HIDDEN: u32 = u32::MAX;

const MOST_PLACES: usize = 1 << 16;

/// The code that traces execute, the most important first; `visits` yields the addresses in packets.
pub(crate) fn needed<T: Send>(
    code: &Code,
    traces: impl IntoIterator<Item = T, IntoIter: Send>,
    threads: usize,
    visits: impl Fn(T, &mut dyn FnMut(Visit)) + Sync,
) -> Result<Vec<Needed>> {
    let of = |trace| {
        let (mut sums, mut places) = (Sums::new(), Places::default());
        visits(trace, &mut |visit| add_visit(&mut sums, &mut places, code, visit));
        sums
    };
    Ok(listed(code, sum(traces, threads, of, add)?))
}

fn add(sums: &mut Sums, more: Sums) {
    more.into_iter().for_each(|(what, bytes)| *sums.entry(what).or_default() += bytes);
}

fn add_visit(sums: &mut Sums, places: &mut Places, code: &Code, visit: Visit) {
    let Visit { space, ip, time, is_hidden, bytes } = visit;
    if is_hidden {
        *sums.entry((Some(HIDDEN), false)).or_default() += bytes;
        return;
    }
    let known = places.get(&(space, ip)).filter(|(_, until)| time < *until);
    let what = match known {
        Some((what, _)) => *what,
        None => {
            let (dso, is_found, until) = code.state(space, ip, time);
            if places.len() == MOST_PLACES {
                places.clear();
            }
            places.insert((space, ip), ((dso, is_found), until));
            (dso, is_found)
        }
    };
    *sums.entry(what).or_default() += bytes;
}

fn listed(code: &Code, sums: Sums) -> Vec<Needed> {
    let needed = |((dso, is_found), bytes): ((Option<u32>, bool), u64)| {
        let is_hidden = dso == Some(HIDDEN);
        let (dso, known) = dso.and_then(|dso| code.dso(dso)).unzip();
        Needed { dso: dso.cloned(), known: known.flatten().cloned(), is_hidden, is_found, bytes }
    };
    let mut needed: Vec<Needed> = sums.into_iter().map(needed).collect();
    needed.sort_by_key(|needed| std::cmp::Reverse(needed.bytes));
    needed
}
