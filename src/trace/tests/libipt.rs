//! libipt executes the same instructions as perfx-trace, even in damaged traces, until either notices.

mod program;

use perfx_trace::{Blocks, Event, Point, Sink, Step, Trace, intel_pt};

use self::program::Libipt;
use crate::recorded::{Buffer, Traced, open};

/// The addresses of instructions; `None` where something is wrong.
#[derive(Default)]
struct Executed(Vec<Option<u64>>);

impl Sink for Executed {
    fn step(&mut self, blocks: &Blocks, _point: &Point, step: Step) {
        self.0.extend((0..step.count).map(|number| blocks.nth(step.block, number)));
    }

    fn event(&mut self, _blocks: &Blocks, _point: &Point, event: Event) {
        self.0.extend(matches!(event, Event::Fault(_)).then_some(None));
    }
}

fn ours(traced: &Traced, buffer: &Buffer, bytes: &[u8]) -> Vec<Option<u64>> {
    let mut executed = Executed::default();
    let mut decoder = intel_pt::Decoder::new(&traced.maps, traced.config);
    let trace = Trace::new(vec![bytes], buffer.switches.clone());
    for unit in intel_pt::units(&trace, &traced.config, 0) {
        decoder.decode(&trace, &unit, &mut executed);
    }
    executed.0
}

fn theirs(libipt: &Libipt, traced: &Traced, bytes: &[u8], has_errata: bool) -> Vec<Option<u64>> {
    let code: Vec<(u64, &[u8])> =
        traced.maps.0.iter().map(|(_, start, bytes)| (*start, &bytes[..])).collect();
    let lines = libipt.lines(bytes, &code, has_errata);
    lines.iter().map(|line| u64::from_str_radix(line, 16).ok()).collect()
}

/// Not ptwrite.data: libipt expects a PTWRITE, which its program lacks.
#[test]
fn libipt_executes_the_same_instructions() {
    let Some(libipt) = Libipt::build("insns") else { return };
    for (name, step, has_errata) in [
        ("user", 40, false),
        ("noret", 90, false),
        ("times", 90, false),
        ("defer", 60, false),
        ("halve", 20, false),
        ("kernel", 90, false),
        ("wrong-target", usize::MAX, true),
        ("skd022", usize::MAX, true),
    ] {
        let traced = open(name);
        let buffer = traced.buffers.iter().find(|buffer| buffer.cpu == 0).unwrap();
        let whole = ours(&traced, buffer, &buffer.bytes);
        assert!(whole.len() > 1000 && whole == theirs(&libipt, &traced, &buffer.bytes, has_errata), "{name}");
        for at in (0..buffer.bytes.len()).step_by(step) {
            let mut bytes = buffer.bytes.clone();
            bytes[at] ^= if at % 3 == 0 { 0xff } else { 1 << (at % 8) };
            let both = [ours(&traced, buffer, &bytes), theirs(&libipt, &traced, &bytes, has_errata)];
            let [ours, theirs] = both.map(|all| -> Vec<u64> { all.into_iter().map_while(|ip| ip).collect() });
            let differs = ours.iter().zip(&theirs).position(|(ours, theirs)| ours != theirs);
            assert!(
                differs.is_none(),
                "{name} with a changed byte at {at}: instruction {differs:?} of {} and {}",
                ours.len(),
                theirs.len()
            );
        }
    }
}

#[test]
fn the_errata_of_each_model_are_those_that_libipt_lists() {
    let Some(libipt) = Libipt::build("errata") else { return };
    let lines = libipt.errata();
    assert!(lines.len() >= 30, "{lines:?}");
    for line in lines {
        let numbers: Vec<u32> = line.split(' ').map(|word| word.parse().unwrap()).collect();
        let intel_pt::Errata { bdm64, skd007, skd022, skz84 } = intel_pt::Errata::of(numbers[0], numbers[1]);
        assert_eq!([bdm64, skd007, skd022, skz84].map(u32::from), numbers[2..], "{line}");
    }
}
