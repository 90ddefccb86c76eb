//! Finds the next record: after damage, or after an arbitrary position in a file where a thread starts.

use std::cell::{Cell, RefCell};
use std::collections::BTreeSet;

use super::framed::Framed;
use crate::decode::{decode, issues};
use crate::{Endian, Frame, HEADER_SIZE, Layouts, Origin, RECORD_SIZE_MAX, Record};

/// This many consecutive plausible headers are likely to be headers. A wrong guess only costs time.
const LIKELY: usize = 16;

/// The likely start of the first record in `from..to`: record sizes are multiples of 8 bytes, and few are
/// larger than 64 KiB. The size of simpleperf's HEADER_TRACING_DATA is a multiple of 4, so all later records
/// are between two multiples of 8.
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

/// The number of consecutive `good` headers from `at` on, at most [`LIKELY`], and the end of the last record.
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

fn has_room(frame: &Frame) -> bool {
    frame.kind.name().is_some() && frame.size >= frame.kind.min_size()
}

/// True if this may be a header, even of an odd record: records of unknown kinds have sizes of whole words.
fn is_plausible(frame: &Frame) -> bool {
    frame.kind.may_exist() && (frame.kind.name().is_some() || frame.size.is_multiple_of(8))
}

pub(super) fn is_sound(bytes: &[u8], frame: &Frame, at: usize, endian: Endian, layouts: &Layouts) -> bool {
    let (record, payload) = bytes[at..at + frame.total() as usize].split_at(frame.size);
    Record::new(record, payload, Origin::Synthetic, endian)
        .is_ok_and(|record| is_plausible(frame) && issues(&record, layouts).is_empty())
}

/// True if the record at `at`, which is odd, covers sound records. Then its header is damaged, and the sound
/// records are not part of it. Subtracts the examined bytes from `left`.
pub(super) fn covers_records(
    bytes: &[u8],
    frame: &Frame,
    at: usize,
    endian: Endian,
    layouts: &Layouts,
    left: &mut u64,
) -> bool {
    let end = at + frame.total() as usize;
    (at + 1..end).any(|place| sound_records(bytes, place, PROOF, endian, layouts, left))
}

/// The numbers of bytes and of records that can be trusted if there is no valid frame at `end`: up to the
/// last record that is sound, or odd like earlier ones of its kind, or followed by a plausible header. This
/// keeps records that are odd throughout a recording (bytes after the fields, odd sizes, new kinds), and
/// excludes those that the damage may have changed.
pub(crate) fn trusted(bytes: &[u8], end: usize, endian: Endian, layouts: &Layouts) -> (usize, u64) {
    let (mut at, mut count, mut trusted) = (0, 0, (0, 0));
    let mut usual = BTreeSet::new();
    while at < end
        && let Ok(Some(frame)) = Frame::read(bytes, at, endian)
    {
        let next = at + frame.total() as usize;
        let (record, payload) = bytes[at..next].split_at(frame.size);
        let Ok(record) = Record::new(record, payload, Origin::Synthetic, endian) else { break };
        let odd: Vec<_> = issues(&record, layouts).into_iter().map(|odd| (frame.kind.0, odd.code)).collect();
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

pub(super) struct Gap {
    pub(super) from: usize,
    pub(super) to: usize,
}

/// This many consecutive records, each of a known kind and sound in all its fields, prove that records
/// continue at the first of them. Fewer suffice if they end exactly where the data ends.
const PROOF: usize = 4;

/// Maximum number of bytes to examine per byte of the input: enough for real holes, and bounded.
pub(super) const PROBES_PER_BYTE: u64 = 32;

/// True if there are `count` sound records at `at`, or fewer followed directly by the end of the data.
/// Subtracts the examined bytes from `left`.
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
            Ok(record) if decode(&record, layouts).issues.is_empty() => at += frame.total() as usize,
            _ => return false,
        }
    }
    true
}

/// The bytes after the records in `framed`, up to the next record or the end; `None` for a truncated record.
pub(super) fn gap(
    rest: &[u8],
    framed: &Framed,
    endian: Endian,
    layouts: &Layouts,
    left: &mut u64,
) -> Option<Gap> {
    // The records before the gap may have lost bytes to it, or consist of its bytes.
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
            // Plausible headers may be chance, in bodies of equal size. Sound records are a proof.
            let better = (to + 1..end).find(|&at| sound_records(rest, at, PROOF, endian, layouts, left));
            let better = better.filter(|&better| !is_on_chain(rest, to, better, endian));
            return Some(Gap { from, to: better.unwrap_or(to) });
        }
        to += 1;
    }
    // The start of a plausible record: the records before it are real.
    let plausible = framed.bad.is_none() && framed.cut.as_ref().is_none_or(is_plausible);
    (!plausible).then_some(Gap { from, to: rest.len() })
}

/// [`LIKELY`] consecutive plausible headers, or [`PROOF`] up to the end, are as good as sound records if most
/// are of known kinds, or if they are where records would be without the gap (`aligned`) and of few kinds.
/// Returns the last record's end.
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

/// True if one of the consecutive records from `start` on begins at `place`.
fn is_on_chain(bytes: &[u8], start: usize, place: usize, endian: Endian) -> bool {
    let mut at = start;
    while at < place
        && let Ok(Some(frame)) = Frame::read(bytes, at, endian)
    {
        at += frame.total() as usize;
    }
    at == place
}
