//! Finds where records go on: behind damage, or behind a place in the middle of a file at which a thread starts.

use std::cell::{Cell, RefCell};
use std::collections::BTreeSet;

use super::framed::Framed;
use crate::decode::{decode, oddities};
use crate::{Endian, Frame, HEADER_SIZE, Layouts, Origin, RECORD_SIZE_MAX, Record};

/// So many headers in a row that could be right make it likely that they are. A wrong guess costs time, nothing else.
const LIKELY: usize = 16;

/// Where the first record of `from..to` seems to begin: records are multiples of 8 bytes, and few are larger than 64 KiB. simpleperf's
/// HEADER_TRACING_DATA is a multiple of 4, and so all behind it stands between two multiples of 8.
pub(super) fn likely_start(bytes: &[u8], from: usize, to: usize, endian: Endian) -> Option<usize> {
    if from == 0 {
        return Some(0);
    }
    let good = |frame: &Frame| has_room(frame) && frame.size.is_multiple_of(8);
    let likely = |start: &usize| {
        let (run, end) = run_of(bytes, *start, endian, good);
        run == LIKELY || end == bytes.len()
    };
    (from..to.min(from + RECORD_SIZE_MAX + HEADER_SIZE)).step_by(4).find(likely)
}

/// How many headers in a row from `at` on are `good`, [`LIKELY`] at most, and where the last of their records ends.
fn run_of(bytes: &[u8], mut at: usize, endian: Endian, good: impl Fn(&Frame) -> bool) -> (usize, usize) {
    let mut run = 0;
    while run < LIKELY
        && let Ok(Some(frame)) = Frame::read(bytes, at, endian)
        && good(&frame)
        && frame.total() <= (bytes.len() - at) as u64
    {
        at += frame.total() as usize;
        run += 1;
    }
    (run, at)
}

/// The kind is known, and the record has room for its fields.
fn has_room(frame: &Frame) -> bool {
    frame.kind.name().is_some() && frame.size >= frame.kind.min_size()
}

/// The header may well be one, odd as its record may be: records of kinds without a name have sizes of whole words.
fn is_plausible(frame: &Frame) -> bool {
    frame.kind.may_exist() && (frame.kind.name().is_some() || frame.size.is_multiple_of(8))
}

/// Whether the record at `at` is odd and covers sound records: then its header is damaged, and they are not its body. Takes what it looked at
/// from `left`.
pub(super) fn covers_records(
    bytes: &[u8],
    frame: &Frame,
    at: usize,
    endian: Endian,
    layouts: &Layouts,
    left: &mut u64,
) -> bool {
    let end = at + frame.total() as usize;
    let (record, payload) = bytes[at..end].split_at(frame.size);
    let sound = Record::new(record, payload, Origin::Synthetic, endian)
        .is_ok_and(|record| is_plausible(frame) && oddities(&record, layouts).is_empty());
    !sound && (at + 1..end).any(|place| sound_records(bytes, place, PROOF, endian, layouts, left))
}

/// How many bytes of records, and how many records, can be trusted where nothing that frames stands at `end`: up to the last record that is sound,
/// or odd as others of its kind before it are, or followed by what has the header of a record. What makes a recording odd throughout (bytes behind
/// the fields, odd sizes, new kinds) is kept by that; what the damage may have touched is not.
pub(crate) fn trusted(bytes: &[u8], end: usize, endian: Endian, layouts: &Layouts) -> (usize, u64) {
    let (mut at, mut count, mut trusted) = (0, 0, (0, 0));
    let mut usual = BTreeSet::new();
    while at < end
        && let Ok(Some(frame)) = Frame::read(bytes, at, endian)
    {
        let next = at + frame.total() as usize;
        let (record, payload) = bytes[at..next].split_at(frame.size);
        let Ok(record) = Record::new(record, payload, Origin::Synthetic, endian) else { break };
        let odd: Vec<_> =
            oddities(&record, layouts).into_iter().map(|odd| (frame.kind.0, odd.code)).collect();
        let followed = || {
            Frame::read(bytes, next, endian).is_ok_and(|next| next.is_some_and(|next| is_plausible(&next)))
        };
        count += 1;
        if odd.iter().all(|odd| usual.contains(odd)) || is_plausible(&frame) && followed() {
            trusted = (next, count);
            usual.extend(odd);
        }
        at = next;
    }
    trusted
}

/// Bytes that are no record, from the start of what was looked at.
pub(super) struct Gap {
    pub(super) from: usize,
    pub(super) to: usize,
}

/// So many records in a row, each of a known kind and sound in all its fields, prove that records go on where the first of them begins. Fewer
/// will do where they end exactly where the data does.
const PROOF: usize = 4;

/// How many bytes may be looked at while looking for records, for each byte there is: enough for a real hole, and an end to a hostile one.
pub(super) const PROBES_PER_BYTE: u64 = 32;

/// Whether `count` sound records stand at `at`, or fewer with the end of the data right behind them. Takes what it looked at from `left`.
fn sound_records(
    bytes: &[u8],
    mut at: usize,
    count: usize,
    endian: Endian,
    layouts: &Layouts,
    left: &mut u64,
) -> bool {
    for _ in 0..count {
        if at == bytes.len() {
            break;
        }
        *left = left.saturating_sub(1);
        let Ok(Some(frame)) = Frame::read(bytes, at, endian) else { return false };
        let named = frame.kind.name().is_some() && frame.size >= frame.kind.min_size();
        if !named || frame.total() > (bytes.len() - at) as u64 || *left == 0 {
            return false;
        }
        let (record, payload) = bytes[at..at + frame.total() as usize].split_at(frame.size);
        let origin = Origin::Input { stream: 0, offset: 0 };
        *left = left.saturating_sub(frame.size as u64);
        match Record::new(record, payload, origin, endian) {
            Ok(record) if decode(&record, layouts).odd.is_empty() => at += frame.total() as usize,
            _ => return false,
        }
    }
    true
}

/// What stands behind the records that `framed` found: up to where records go on, or to the end. `None`: nothing but a record cut short.
pub(super) fn gap(
    rest: &[u8],
    framed: &Framed,
    endian: Endian,
    layouts: &Layouts,
    left: &mut u64,
) -> Option<Gap> {
    // The records before the gap may have lost something to it, or be made of what it is.
    let (from, _) = trusted(rest, framed.end, endian, layouts);
    let mut to = from + 1;
    while to + HEADER_SIZE <= rest.len() && *left > 0 {
        // Holes are mostly zeros, and no record begins with eight of them.
        if rest[to..to + HEADER_SIZE] == [0; HEADER_SIZE] {
            to += 1;
            continue;
        }
        if sound_records(rest, to, PROOF, endian, layouts, left) {
            return Some(Gap { from, to });
        }
        if let Some(end) = goes_on(rest, to, endian, (to - from).is_multiple_of(8), left) {
            // Headers alone may be chance, above all in bodies of one size. Sound records between them prove that they are.
            let better = (to + 1..end).find(|&at| sound_records(rest, at, PROOF, endian, layouts, left));
            let better = better.filter(|&better| !is_on_chain(rest, to, better, endian));
            return Some(Gap { from, to: better.unwrap_or(to) });
        }
        to += 1;
    }
    // The beginning of a record that may well be one: those before it are what they seem.
    let plausible = framed.bad.is_none() && framed.cut.as_ref().is_none_or(is_plausible);
    (!plausible).then_some(Gap { from, to: rest.len() })
}

/// So many headers in a row that may be right prove the same as a few sound records, if most of them are of known kinds, or if they stand where
/// records would without the gap (`aligned`) and are of a few kinds only. Returns where the last of their records ends.
fn goes_on(rest: &[u8], at: usize, endian: Endian, aligned: bool, left: &mut u64) -> Option<usize> {
    let good =
        |frame: &Frame| if frame.kind.name().is_some() { has_room(frame) } else { is_plausible(frame) };
    let (run, end) = run_of(rest, at, endian, good);
    *left = left.saturating_sub(run as u64);
    if run < LIKELY && (run < PROOF || end < rest.len()) {
        return None;
    }
    let (known, new) = (Cell::new(0), RefCell::new(BTreeSet::new()));
    run_of(rest, at, endian, |frame| {
        match frame.kind.name() {
            Some(_) => known.set(known.get() + 1),
            None => drop(new.borrow_mut().insert(frame.kind)),
        }
        good(frame)
    });
    (known.get() * 2 >= run || aligned && new.borrow().len() * PROOF <= run).then_some(end)
}

/// Whether one of the records in a row from `start` on begins at `place`.
fn is_on_chain(bytes: &[u8], start: usize, place: usize, endian: Endian) -> bool {
    let mut at = start;
    while at < place
        && let Ok(Some(frame)) = Frame::read(bytes, at, endian)
    {
        at += frame.total() as usize;
    }
    at == place
}
