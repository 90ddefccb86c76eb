//! A damaged byte of an Intel PT trace changes nothing before it, nor from the next sync point on.

use perfx_trace::{Blocks, Event, Point, Reason, Sink, Step, Trace, intel_pt};

use crate::recorded::{Buffer, Traced, open};

/// Branches with the offset of the packet at which each was taken, and the faults.
#[derive(Default)]
struct List {
    branches: Vec<(u64, u64, u64)>,
    faults: Vec<(u64, Reason)>,
    events: Vec<Event>,
}

impl Sink for List {
    fn step(&mut self, blocks: &Blocks, point: &Point, step: Step) {
        if let Some(to) = step.to {
            self.branches.push((point.offset, blocks[step.block].last, blocks[to].start));
        }
    }

    fn event(&mut self, _blocks: &Blocks, point: &Point, event: Event) {
        self.events.push(event);
        match event {
            Event::Begin { ip, .. } | Event::Resumed { ip } => self.branches.push((point.offset, 0, ip)),
            Event::End { ip, to, .. } => self.branches.push((point.offset, ip, to.unwrap_or(0))),
            Event::Interrupt { from, to, .. } => self.branches.push((point.offset, from, to)),
            Event::Fault(fault) => self.faults.push((point.offset, fault.reason)),
            _ => {}
        }
    }
}

fn first(traced: &Traced) -> &Buffer {
    traced.buffers.iter().find(|buffer| buffer.cpu == 0).unwrap()
}

fn decode(traced: &Traced, bytes: &[u8]) -> List {
    decode_in_units(traced, bytes, 0)
}

fn decode_in_units(traced: &Traced, bytes: &[u8], size: u64) -> List {
    let mut list = List::default();
    let mut decoder = intel_pt::Decoder::new(&traced.maps, traced.config);
    let trace = Trace::new(vec![bytes], first(traced).switches.clone());
    for unit in intel_pt::units(&trace, &traced.config, size) {
        decoder.decode(&trace, &unit, &mut list);
    }
    list
}

const PSB: [u8; 16] = [2, 0x82, 2, 0x82, 2, 0x82, 2, 0x82, 2, 0x82, 2, 0x82, 2, 0x82, 2, 0x82];
const LONGEST: u64 = 16;
/// The longest PSB+ in these recordings, bytes.
const LONGEST_PSB: u64 = 48;

/// The branches that no damage at `at` may change: those before it, and from the next PSB on.
fn kept(list: &List, at: u64, next: u64) -> Vec<(u64, u64, u64)> {
    // The address of a PSB+ is that of the code before it.
    let is_kept = |offset: u64| offset + LONGEST_PSB <= at || offset > next.saturating_add(LONGEST);
    list.branches.iter().filter(|(offset, ..)| is_kept(*offset)).copied().collect()
}

#[test]
fn damage_does_not_spread_past_the_next_sync_point() {
    for (name, step) in
        [("halve", 1), ("user", 7), ("noret", 13), ("times", 11), ("defer", 7), ("kernel", 11), ("pebs", 61)]
    {
        let traced = open(name);
        let whole = &first(&traced).bytes;
        let truth = decode(&traced, whole);
        assert_eq!(truth.faults, [], "{name}");
        let psbs = (0..whole.len()).filter(|at| whole[*at..].starts_with(&PSB));
        let psbs: Vec<u64> = psbs.map(|at| at as u64).collect();
        let (mut changed, mut hidden) = (0, 0);
        for at in (0..whole.len()).step_by(step) {
            let next = psbs.iter().copied().find(|psb| *psb > at as u64).unwrap_or(u64::MAX);
            let flip = if at / step % 2 == 0 { 0xff } else { 1 << (at / step / 2 % 8) };
            let mut bytes = whole.clone();
            bytes[at] ^= flip;
            let damaged = decode(&traced, &bytes);
            let [kept, wanted] = [&damaged, &truth].map(|list| kept(list, at as u64, next));
            assert!(kept == wanted, "{name}: {flip:#x} at {at}: {} of {}", kept.len(), wanted.len());
            changed += u32::from(damaged.branches != truth.branches);
            hidden += u32::from(damaged.branches != truth.branches && damaged.faults.is_empty());
        }
        // Damage that gives another valid trace goes unnoticed: a branch the other way, another target.
        assert!(changed > 25 && hidden * 3 < changed, "{name}: {hidden} of {changed}");
    }
}

#[test]
fn a_psb_is_found_even_if_a_bad_packet_swallows_its_first_byte() {
    let traced = open("halve");
    let whole = &first(&traced).bytes;
    let psb = (1..whole.len()).find(|at| whole[*at..].starts_with(&PSB)).unwrap();
    // The last packet before it becomes a TIP of nine bytes, and the next one is bad.
    let mut bytes = whole.clone();
    bytes[psb - 8..psb].copy_from_slice(&[0xcd; 8]);
    let (damaged, truth) = (decode(&traced, &bytes), decode(&traced, whole));
    let after = |list: &List| {
        list.branches.iter().filter(|branch| branch.0 > psb as u64 + LONGEST).copied().collect::<Vec<_>>()
    };
    assert!(after(&damaged).len() > 20 && after(&damaged) == after(&truth));
}

#[test]
fn a_damaged_trace_is_decoded_the_same_however_it_is_cut() {
    // Not random: each run damages the same bytes.
    let mut random = 0x1234_5678_9abc_def1_u64;
    let mut next = |below: usize| {
        random = random.wrapping_mul(6364136223846793005).wrapping_add(1442695040888963407);
        (random >> 33) as usize % below
    };
    // The block at an end is its number in the decoder.
    let as_text = |list: &List| -> Vec<String> {
        let numbered = |event: &Event| match *event {
            Event::End { ip, to, .. } => format!("end {ip:x} {to:x?}"),
            event => format!("{event:x?}"),
        };
        list.events.iter().map(numbered).collect()
    };
    for name in ["pebs", "hypervisor", "vm", "events", "rare", "paging", "bdm70", "late-psbend", "lost"] {
        let traced = open(name);
        let whole = &first(&traced).bytes;
        for round in 0..80 {
            let mut bytes = whole.clone();
            for _ in 0..1 + next(4) {
                let at = next(bytes.len());
                bytes[at] = next(256) as u8;
            }
            let [cut, one] = [0, u64::MAX].map(|size| decode_in_units(&traced, &bytes, size));
            let [cut, one] = [&cut, &one].map(as_text);
            let differs = (0..cut.len().max(one.len())).find(|at| cut.get(*at) != one.get(*at));
            let at = differs.unwrap_or(0);
            assert!(differs.is_none(), "{name}, {round}: {:?} and {:?} at {at}", cut.get(at), one.get(at));
        }
    }
}
