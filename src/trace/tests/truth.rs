//! The Intel PT recordings in tests/data/trace decode to exactly the executed code, however they are cut.

use std::collections::{BTreeMap, HashMap};
use std::fs;
use std::process::Command;

use perfx_trace::{Blocks, Counter, Event, Joint, Point, Reason, Run, Sink, Space, Step, Trace, intel_pt};

use crate::maps::folder;
use crate::recorded::{Traced, open};

/// Branches of a process on a CPU, in order; 0 where tracing begins or ends.
type Branches = BTreeMap<(u32, u32), Vec<(u64, u64)>>;

#[derive(Default, PartialEq, Debug)]
struct Happened {
    branches: Branches,
    instructions: u64,
    values: Vec<u64>,
    /// Samples of counters, and their items.
    samples: usize,
    items: Vec<(u8, u8, u64)>,
    faults: BTreeMap<Reason, u64>,
    times: BTreeMap<(u32, u32), Vec<u64>>,
}

#[derive(Default)]
struct Collect {
    cpu: u32,
    happened: Happened,
}

impl Collect {
    fn branch(&mut self, point: &Point, from: u64, to: u64) {
        let Space(pid) = point.space.unwrap();
        self.happened.branches.entry((pid, self.cpu)).or_default().push((from, to));
        self.happened.times.entry((pid, self.cpu)).or_default().push(point.time);
    }
}

impl Sink for Collect {
    fn step(&mut self, blocks: &Blocks, point: &Point, step: Step) {
        let block = &blocks[step.block];
        assert!(step.count <= block.count);
        self.happened.instructions += u64::from(step.count);
        if let Some(to) = step.to {
            assert_eq!(step.count, block.count);
            self.branch(point, block.last, blocks[to].start);
        }
    }

    fn event(&mut self, _blocks: &Blocks, point: &Point, event: Event) {
        match event {
            Event::Begin { ip, .. } | Event::Resumed { ip } => self.branch(point, 0, ip),
            Event::End { ip, to, .. } => self.branch(point, ip, to.unwrap_or(0)),
            Event::Interrupt { from, to, .. } => self.branch(point, from, to),
            Event::Ptwrite { value, .. } => self.happened.values.push(value),
            Event::Item { group, id, value } => self.happened.items.push((group, id, value)),
            Event::Sampled { .. } => self.happened.samples += 1,
            Event::Fault(fault) => *self.happened.faults.entry(fault.reason).or_default() += 1,
            _ => {}
        }
    }
}

/// Decodes a recording's buffers, cut into units of `size` bytes and pieces of `piece` bytes.
fn decode(traced: &Traced, size: u64, piece: usize) -> Happened {
    let mut collect = Collect::default();
    let mut decoder = intel_pt::Decoder::new(&traced.maps, traced.config);
    for buffer in &traced.buffers {
        collect.cpu = buffer.cpu;
        let trace = Trace::new(buffer.bytes.chunks(piece).collect(), buffer.switches.clone());
        for unit in intel_pt::units(&trace, &traced.config, size) {
            decoder.decode(&trace, &unit, &mut collect);
        }
    }
    collect.happened
}

fn truth(name: &str) -> Happened {
    let mut truth = Happened::default();
    let number = |word: &str| if word == "-" { 0 } else { u64::from_str_radix(word, 16).unwrap() };
    for line in fs::read_to_string(folder().join(name).with_extension("truth")).unwrap().lines() {
        match line.split(' ').collect::<Vec<_>>()[..] {
            ["#", "ptw", value, ..] => truth.values.push(number(value)),
            ["#", "pebs", ..] => truth.samples += 1,
            ["instructions", count] => truth.instructions = count.parse().unwrap(),
            [from, to, _, pid, cpu] => {
                let key = (pid.parse().unwrap(), cpu.parse().unwrap());
                truth.branches.entry(key).or_default().push((number(from), number(to)));
            }
            _ => panic!("{line}"),
        }
    }
    truth
}

const NAMES: [&str; 27] = [
    "user", "noret", "times", "ptwrite", "defer", "overflow", "halve", "switch", "cpus", "threads", "kernel",
    "cut", "32-bit", "filtered", "events", "paging", "pebs", "hypervisor", "vm", "old-psb", "bdm70",
    "late-psbend", "begun", "lost", "wrong-target", "skd022", "skz84",
];

fn truth_of(name: &str) -> &str {
    match name {
        "old-psb" | "bdm70" | "late-psbend" | "begun" => "switch",
        "skd022" => "hypervisor",
        "skz84" => "vm",
        _ => name,
    }
}

#[test]
fn each_recording_decodes_to_its_truth() {
    for name in NAMES {
        let happened = decode(&open(name), u64::MAX, usize::MAX);
        let mut truth = truth(truth_of(name));
        let lost = match name {
            // The code between the last packet and the overflow is unknown.
            "overflow" => 2,
            "lost" => 5,
            "begun" => {
                for (key, branches) in &mut truth.branches {
                    let found = happened.branches[key].len();
                    assert!(found > 600);
                    branches.drain(..branches.len() - found);
                }
                truth.instructions - 8608
            }
            "cut" => {
                for (key, branches) in &mut truth.branches {
                    branches.truncate(happened.branches[key].len());
                    assert!(branches.len() > 100);
                }
                truth.instructions - happened.instructions
            }
            _ => 0,
        };
        for (key, branches) in &truth.branches {
            let found = &happened.branches[key];
            let differs = found.iter().zip(branches).position(|(found, truth)| found != truth);
            let around = |all: &[(u64, u64)]| {
                let at = differs.unwrap_or(found.len().min(branches.len()));
                format!("{:x?}", &all[at.saturating_sub(3).min(all.len())..(at + 3).min(all.len())])
            };
            assert!(
                found == branches,
                "{name} {key:?}, {:?}: at {differs:?}, {} instead of {}; {} and {}",
                happened.faults,
                around(found),
                around(branches),
                found.len(),
                branches.len()
            );
        }
        assert_eq!(happened.branches.len(), truth.branches.len(), "{name}");
        assert_eq!(happened.values, truth.values, "{name}");
        assert_eq!(happened.samples, truth.samples, "{name}");
        assert_eq!(happened.items.is_empty(), truth.samples == 0, "{name}");
        assert_eq!(happened.instructions, truth.instructions - lost, "{name}");
        let faults = match name {
            "overflow" => BTreeMap::from([(Reason::Overflow, 2)]),
            "lost" => BTreeMap::from([(Reason::Overflow, 4)]),
            "hypervisor" => BTreeMap::from([(Reason::Guest, 24)]),
            _ => BTreeMap::new(),
        };
        assert_eq!(happened.faults, faults, "{name}");
    }
}

#[test]
fn the_result_does_not_depend_on_how_a_trace_is_cut() {
    for name in NAMES {
        let traced = open(name);
        let whole = decode(&traced, u64::MAX, usize::MAX);
        for (size, piece) in [(0, usize::MAX), (0, 7), (300, 100), (1000, 1), (u64::MAX, 3)] {
            let happened = decode(&traced, size, piece);
            assert!(happened == whole, "{name}: units of {size}, pieces of {piece}");
        }
    }
}

/// A run: the branch to it, its first and its last instruction.
type Ips = (Option<u64>, u64, Option<u64>);

#[derive(Default)]
struct Runs {
    found: BTreeMap<Ips, u64>,
    /// The open run, and its last instruction.
    run: Option<(Option<u64>, u64)>,
    last: Option<u64>,
    /// Something was executed in it.
    has_steps: bool,
}

impl Runs {
    fn end(&mut self, end: Option<u64>) {
        if let Some((from, to)) = self.run.take().filter(|(from, _)| from.is_some() || self.has_steps) {
            *self.found.entry((from, to, end)).or_default() += 1;
        }
        (self.last, self.has_steps) = (None, false);
    }
}

impl Sink for Runs {
    fn step(&mut self, blocks: &Blocks, _point: &Point, step: Step) {
        let block = &blocks[step.block];
        self.run = self.run.or(Some((None, block.start)));
        self.has_steps = true;
        if let Some(to) = step.to {
            self.end(Some(block.last));
            self.run = Some((Some(block.last), blocks[to].start));
        } else if step.count > 0 {
            self.last = blocks.nth(step.block, step.count - 1);
        }
    }

    fn event(&mut self, _blocks: &Blocks, _point: &Point, event: Event) {
        match event {
            Event::Begin { ip, .. } | Event::Resumed { ip } => {
                self.end(None);
                self.run = Some((None, ip));
            }
            Event::End { ip, block: Some(_), to, .. } => {
                self.end(Some(ip));
                self.run = to.map(|to| (Some(ip), to));
                self.end(None);
            }
            Event::End { block: None, .. } | Event::Interrupt { .. } => self.end(self.last),
            Event::Fault(_) | Event::Sync { ip: None, .. } => self.end(None),
            Event::Sync { ip: Some(ip), .. } => self.run = self.run.or(Some((None, ip))),
            _ => {}
        }
    }
}

/// The runs of a recording, counted by paths. If `forgets`, blocks are dropped after every unit.
fn count(traced: &Traced, size: u64, forgets: bool) -> BTreeMap<Ips, u64> {
    let (mut joined, mut counter) = (Vec::new(), Counter::new(HashMap::<Run, u64>::new()));
    let mut decoder = intel_pt::Decoder::new(&traced.maps, traced.config);
    for buffer in &traced.buffers {
        let trace = Trace::new(vec![&buffer.bytes], buffer.switches.clone());
        let mut joint = Joint::default();
        for unit in intel_pt::units(&trace, &traced.config, size) {
            decoder.decode(&trace, &unit, &mut counter);
            if forgets {
                decoder.forget(&mut counter);
            }
            joined.extend(joint.join(&counter.end_unit(decoder.blocks())));
        }
        joined.extend(joint.end());
    }
    decoder.forget(&mut counter);
    let counted = counter.into_inner().into_iter();
    let mut runs = BTreeMap::new();
    for (run, count) in counted.chain(joined.into_iter().map(|run| (run, 1))) {
        let key = (run.from.map(|from| from.ip), run.to.ip, run.end.map(|end| end.ip));
        *runs.entry(key).or_default() += count;
    }
    runs
}

#[test]
fn runs_are_counted_by_paths_as_by_steps() {
    for name in NAMES {
        let traced = open(name);
        let mut steps = Runs::default();
        let mut decoder = intel_pt::Decoder::new(&traced.maps, traced.config);
        for buffer in &traced.buffers {
            let trace = Trace::new(vec![&buffer.bytes], buffer.switches.clone());
            for unit in intel_pt::units(&trace, &traced.config, u64::MAX) {
                decoder.decode(&trace, &unit, &mut steps);
            }
            steps.end(None);
        }
        for size in [0, 500, u64::MAX] {
            for forgets in [false, true] {
                let counted = count(&traced, size, forgets);
                assert!(counted == steps.found, "{name}, units of {size}, forgotten: {forgets}");
            }
        }
        let mut branches: BTreeMap<(u64, u64), u64> = BTreeMap::new();
        for (from, to) in
            truth(truth_of(name)).branches.into_values().flatten().filter(|(from, to)| *from.min(to) != 0)
        {
            *branches.entry((from, to)).or_default() += 1;
        }
        for ((from, to, _), count) in steps.found {
            if let Some(left) = from.and_then(|from| branches.get_mut(&(from, to))) {
                *left -= count;
            }
        }
        branches.retain(|_, left| *left > 0);
        match name {
            // Branches that lead out of the trace are not runs.
            "cut" | "filtered" => {}
            "begun" => {}
            // Interrupts have no source branch.
            "wrong-target" => assert!(branches.keys().all(|(from, to)| from == to), "{branches:x?}"),
            "kernel" | "paging" | "hypervisor" | "vm" | "skd022" | "skz84" => {
                assert_eq!(branches.len(), 1, "{branches:x?}")
            }
            _ => assert_eq!(branches, BTreeMap::new(), "{name}"),
        }
    }
}

/// Both of perf's versions count cycles in the same way.
#[test]
fn times_are_those_of_perf() {
    for perf in ["perf", "perf-new"] {
        for name in ["user", "times", "cpus", "switch", "defer", "overflow"] {
            let mut command = Command::new(perf);
            command.arg("script").arg("-i").arg(folder().join(name).with_extension("data"));
            command.arg("--symfs").arg(folder().join("root"));
            command.args(["--itrace=b", "--ns", "-F", "pid,cpu,time,ip,addr"]);
            let Ok(output) = command.output() else {
                eprintln!("skipped: there is no {perf}");
                return;
            };
            let mut times: BTreeMap<(u32, u32), Vec<u64>> = BTreeMap::new();
            for line in String::from_utf8(output.stdout).unwrap().lines() {
                let [pid, cpu, time, ..] = line.split_whitespace().collect::<Vec<_>>()[..] else {
                    panic!("{line}")
                };
                let cpu = cpu.trim_matches(['[', ']']).parse().unwrap();
                let time = time.replace(['.', ':'], "").parse().unwrap();
                times.entry((pid.parse().unwrap(), cpu)).or_default().push(time);
            }
            let happened = decode(&open(name), u64::MAX, usize::MAX);
            for (key, times) in &times {
                let own = &happened.times[key];
                let differs = own.iter().zip(times).position(|(own, perf)| own != perf);
                let at = differs.unwrap_or(0);
                assert!(differs.is_none(), "{perf} {name} {key:?} at {at}: {} {}", own[at], times[at]);
                assert_eq!(own.len(), times.len(), "{perf} {name} {key:?}");
            }
            assert_eq!(happened.times.len(), times.len(), "{perf} {name}");
        }
    }
}
