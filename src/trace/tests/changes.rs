//! Cached code is never used for other code, and code without packets is walked in linear time.

use perfx_trace::{Blocks, Event, Image, Mapping, Point, Reason, Sink, Space, Step, Switch, Trace, intel_pt};

const START: u64 = 0x1000;
const SPACE: Space = Space(1);

/// Code of [`SPACE`] at [`START`]: `before` up to the tick `change`, then `after`.
struct Code {
    before: &'static [u8],
    after: &'static [u8],
    change: u64,
}

impl Image for Code {
    fn code(&self, space: Option<Space>, ip: u64, time: u64) -> Option<Mapping<'_>> {
        let (id, bytes, until) =
            if time < self.change { (1, self.before, self.change) } else { (2, self.after, u64::MAX) };
        let is_known = space == Some(SPACE) && (START..START + bytes.len() as u64).contains(&ip);
        is_known.then_some(Mapping { id, start: START, bytes, until })
    }
}

#[derive(Default)]
struct Found {
    steps: u64,
    instructions: u64,
    faults: Vec<Reason>,
}

impl Sink for Found {
    fn step(&mut self, _blocks: &Blocks, _point: &Point, step: Step) {
        self.steps += 1;
        self.instructions += u64::from(step.count);
    }

    fn event(&mut self, _blocks: &Blocks, _point: &Point, event: Event) {
        if let Event::Fault(fault) = event {
            self.faults.push(fault.reason);
        }
    }
}

fn decode(code: &Code, switches: Vec<Switch>, bytes: &[u8]) -> Found {
    let all = [&[2, 0x82].repeat(8)[..], &[2, 0x23], bytes].concat();
    let (trace, config) = (Trace::new(vec![&all], switches), intel_pt::Config::default());
    let (mut found, mut decoder) = (Found::default(), intel_pt::Decoder::new(code, config));
    for unit in intel_pt::units(&trace, &config, u64::MAX) {
        decoder.decode(&trace, &unit, &mut found);
    }
    found
}

/// TIP.PGE to [`START`].
const BEGIN: [u8; 7] = [0x71, 0, 0x10, 0, 0, 0, 0];
/// TIP.PGD without an address.
const END: u8 = 1;
/// Six branches, all taken.
const TAKEN: u8 = 0b1111_1110;

fn tsc(value: u8) -> [u8; 8] {
    [0x19, value, 0, 0, 0, 0, 0, 0]
}

fn always() -> Vec<Switch> {
    vec![Switch { time: 0, space: Some(SPACE), guest: None }]
}

#[test]
fn a_path_is_not_taken_through_code_that_has_changed() {
    // One, then two instructions before the branch to the first of them.
    let (before, after) = (&[0x90, 0x75, 0xfd][..], &[0x90, 0x90, 0x75, 0xfc][..]);
    let code = Code { before, after, change: 9 };
    let bytes = [&tsc(1)[..], &BEGIN, &[TAKEN; 3], &tsc(9), &[TAKEN; 2]].concat();
    let found = decode(&code, always(), &bytes);
    assert_eq!((found.instructions, found.faults), (18 * 2 + 12 * 3, vec![]));
}

#[test]
fn code_of_a_known_process_is_not_used_for_an_unknown_one() {
    let code = Code { before: &[0x90, 0x75, 0xfd], after: &[], change: u64::MAX };
    let switches = [always(), vec![Switch { time: 5, space: None, guest: None }]].concat();
    let bytes = [&tsc(1)[..], &BEGIN, &[TAKEN; 2], &[0x0d], &tsc(5), &BEGIN, &[TAKEN; 2]].concat();
    let found = decode(&code, switches, &bytes);
    assert_eq!(found.instructions, 12 * 2);
    assert_eq!(found.faults.last(), Some(&Reason::NoCode));
}

#[test]
fn code_without_packets_is_walked_in_linear_time() {
    // A jump to itself; and calls and jumps in a circle.
    for before in [&[0xeb, 0xfe][..], &[0xe8, 1, 0, 0, 0, 0x90, 0xeb, 0xf8]] {
        let code = Code { before, after: &[], change: u64::MAX };
        let bytes: Vec<u8> = [&BEGIN[..], &[TAKEN], &[END]].concat().repeat(5000);
        let found = decode(&code, always(), &bytes);
        assert!(found.faults.contains(&Reason::Endless));
        assert!(found.steps <= 256 * (bytes.len() as u64 + 40), "{} for {}", found.steps, bytes.len());
    }
}

#[test]
fn the_last_64_calls_can_be_returned_to() {
    // The first branch decides: call the beginning again, or return.
    let code =
        Code { before: &[0x75, 6, 0xe8, 0xf9, 0xff, 0xff, 0xff, 0xc3, 0xc3], after: &[], change: u64::MAX };
    // Not taken `depth` times, then taken, then returns.
    for (depth, is_known) in [(64, true), (65, false)] {
        let branches = [vec![false; depth], vec![true; 1 + depth]].concat();
        let packets = branches.iter().map(|is_taken| if *is_taken { 0b110 } else { 0b100 });
        let bytes: Vec<u8> = BEGIN.into_iter().chain(packets).collect();
        let found = decode(&code, always(), &bytes);
        assert_eq!(found.faults, if is_known { vec![] } else { vec![Reason::UnknownReturn] }, "{depth}");
    }
}
