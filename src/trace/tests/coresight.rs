//! The CoreSight recordings in tests/data/trace decode to exactly the executed code, however they are cut.

use std::collections::BTreeMap;
use std::fs;

use perfx_format::read::Recording;
use perfx_format::record::aux::{Aux, Auxtrace};
use perfx_format::record::etm_info::{EtmInfo, TraceUnitKind};
use perfx_format::{KERNEL_PID, Mmap};
use perfx_trace::coresight::{Config, Decoder, Registers, deformat, units};
use perfx_trace::{Blocks, Event, Point, Reason, Sink, Space, Step, Switch, Trace};

use crate::maps::{Maps, folder};

struct Written {
    cpu: u32,
    bytes: Vec<u8>,
    switches: Vec<Switch>,
    config: Config,
}

fn open(name: &str) -> (Maps, Vec<Written>) {
    let mut recording = Recording::open(folder().join(name).with_extension("data")).unwrap();
    let mut maps = Maps::default();
    let mut configs = BTreeMap::new();
    let mut is_raw = false;
    let mut written = Vec::new();
    let mut records = recording.records();
    while let Some(record) = records.next_record().unwrap() {
        if let Some(info) = EtmInfo::of(&record) {
            for unit in info.units {
                let (registers, is_ete) = match unit.kind {
                    TraceUnitKind::Etm4(registers) => (registers, false),
                    TraceUnitKind::Ete(registers) => (registers, true),
                    kind => panic!("{kind:?}"),
                };
                let registers = Registers {
                    config: registers.config,
                    id0: registers.id0,
                    id2: registers.id2,
                    id8: registers.id8,
                };
                configs.insert(unit.trace_id as u8, (unit.cpu as u32, Config::new(&registers, is_ete)));
            }
        } else if let Some(mmap) = Mmap::of(&record) {
            let is_kernel = mmap.is_of_kernel();
            let path =
                String::from_utf8_lossy(mmap.name(record.layouts().trailer_size(&record))).into_owned();
            let path = if is_kernel { "/opt/perfx/trace/vmlinux64" } else { &path };
            let file = fs::read(folder().join("root").join(path.trim_start_matches('/'))).unwrap();
            // The code of the kernel begins at the second page of its file.
            let offset = if is_kernel { 0x1000 } else { mmap.pgoff() as usize };
            let end = file.len().min(offset + mmap.len() as usize);
            let pid = if is_kernel { KERNEL_PID } else { mmap.pid() };
            maps.0.push((pid, mmap.start(), file[offset..end].to_vec()));
        } else if let Some(aux) = Aux::of(&record) {
            is_raw = aux.flags & Aux::RAW != 0;
        } else if let Some(aux) = Auxtrace::of(&record) {
            let switches = match aux.tid {
                Auxtrace::ANY => Vec::new(),
                tid => vec![Switch { time: 0, space: Some(Space(tid)), guest: None }],
            };
            let streams = match is_raw {
                true => vec![(0x10, record.payload().to_vec())],
                false => deformat(record.payload()),
            };
            for (id, bytes) in streams {
                let (cpu, config) = configs[&id];
                written.push(Written { cpu, bytes, switches: switches.clone(), config });
            }
        }
    }
    (maps, written)
}

/// Branches of a process on a CPU, in order; 0 where tracing begins or ends.
type Branches = BTreeMap<(u32, u32), Vec<(u64, u64)>>;

#[derive(Default, PartialEq, Debug)]
struct Happened {
    branches: Branches,
    instructions: u64,
    faults: BTreeMap<Reason, u64>,
    times: Vec<u64>,
}

#[derive(Default)]
struct Collect {
    cpu: u32,
    last: u64,
    happened: Happened,
}

impl Collect {
    fn branch(&mut self, point: &Point, from: u64, to: u64) {
        let Space(pid) = point.space.unwrap_or(Space(0));
        self.happened.branches.entry((pid, self.cpu)).or_default().push((from, to));
        self.happened.times.push(point.time);
    }
}

impl Sink for Collect {
    fn step(&mut self, blocks: &Blocks, point: &Point, step: Step) {
        let block = &blocks[step.block];
        assert!(step.count <= block.count);
        self.happened.instructions += u64::from(step.count);
        if let Some(last) = step.count.checked_sub(1) {
            self.last = blocks.nth(step.block, last).unwrap();
        }
        if let Some(to) = step.to {
            assert_eq!(step.count, block.count);
            self.branch(point, block.last, blocks[to].start);
        }
    }

    fn event(&mut self, _blocks: &Blocks, point: &Point, event: Event) {
        match event {
            Event::Begin { ip, .. } | Event::Resumed { ip } => self.branch(point, 0, ip),
            Event::End { to: None, .. } => self.branch(point, self.last, 0),
            Event::Interrupt { to, .. } => self.branch(point, self.last, to),
            Event::Fault(fault) => {
                *self.happened.faults.entry(fault.reason).or_default() += 1;
                if fault.reason == Reason::Overflow {
                    self.branch(point, self.last, 0);
                }
            }
            _ => {}
        }
    }
}

/// Decodes a recording's buffers, cut into units of `size` bytes and pieces of `piece` bytes.
fn decode((maps, all): &(Maps, Vec<Written>), size: u64, piece: usize) -> Happened {
    let mut collect = Collect::default();
    for written in all {
        let mut decoder = Decoder::new(maps, &written.config);
        collect.cpu = written.cpu;
        let trace = Trace::new(written.bytes.chunks(piece).collect(), written.switches.clone());
        for unit in units(&trace, &written.config, size) {
            decoder.decode(&written.config, &trace, &unit, &mut collect);
        }
    }
    collect.happened
}

fn truth(name: &str) -> Happened {
    let mut truth = Happened::default();
    let number = |word: &str| if word == "-" { 0 } else { u64::from_str_radix(word, 16).unwrap() };
    for line in fs::read_to_string(folder().join(name).with_extension("truth")).unwrap().lines() {
        match line.split(' ').collect::<Vec<_>>()[..] {
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

const NAMES: [&str; 16] = [
    "etm-user", "etm-signal", "etm-raw", "etm-ete", "etm-stack", "etm-times", "etm-cycles", "etm-context",
    "etm-speculation", "etm-interrupt", "etm-kernel", "etm-cpus", "etm-threads", "etm-overflow", "etm-cut",
    "etm-q",
];

#[test]
fn each_recording_decodes_to_its_truth() {
    for name in NAMES {
        let happened = decode(&open(name), u64::MAX, usize::MAX);
        let mut truth = truth(name);
        let lost = match name {
            // The code between the last packet and the overflow is unknown, as is that after the last branch.
            "etm-overflow" | "etm-cpus" | "etm-threads" => truth.instructions - happened.instructions,
            "etm-cut" => {
                for (key, branches) in &mut truth.branches {
                    branches.truncate(happened.branches[key].len());
                    assert!(branches.len() > 100);
                }
                truth.instructions - happened.instructions
            }
            _ => 0,
        };
        for (key, branches) in &mut truth.branches {
            let found = &happened.branches[key];
            // The trace does not contain its own end.
            if branches.last().is_some_and(|(_, to)| *to == 0) && branches.len() == found.len() + 1 {
                branches.pop();
            }
            let differs = found.iter().zip(&*branches).position(|(found, truth)| found != truth);
            let around = |all: &[(u64, u64)]| {
                let at = differs.unwrap_or(found.len().min(branches.len()));
                format!("{:x?}", &all[at.saturating_sub(3).min(all.len())..(at + 3).min(all.len())])
            };
            assert!(
                found == &*branches,
                "{name} {key:?}, {:?}: at {differs:?}, {} instead of {}; {} and {}",
                happened.faults,
                around(found),
                around(branches),
                found.len(),
                branches.len()
            );
        }
        assert_eq!(happened.branches.len(), truth.branches.len(), "{name}");
        assert_eq!(happened.instructions, truth.instructions - lost, "{name}");
        let faults = match name {
            "etm-overflow" => BTreeMap::from([(Reason::Overflow, 4)]),
            _ => BTreeMap::new(),
        };
        assert_eq!(happened.faults, faults, "{name}");
    }
}

#[test]
fn the_result_does_not_depend_on_how_a_trace_is_cut() {
    for name in NAMES {
        let opened = open(name);
        let whole = decode(&opened, u64::MAX, usize::MAX);
        for (size, piece) in [(0, usize::MAX), (0, 7), (300, 100), (1000, 1), (u64::MAX, 3)] {
            let happened = decode(&opened, size, piece);
            assert!(happened == whole, "{name}: units of {size}, pieces of {piece}");
        }
    }
}

#[test]
fn damaged_traces_decode_the_same_however_they_are_cut() {
    let mut state = 0x1234_5678_9abc_def1u64;
    let mut random = |below: usize| {
        state = state.wrapping_mul(0x5851_F42D_4C95_7F2D).wrapping_add(0x1405_7B7E_F767_814F);
        (state >> 33) as usize % below
    };
    for name in NAMES {
        let (maps, all) = open(name);
        for _ in 0..30 {
            let mut damaged = Vec::new();
            for written in &all {
                let mut bytes = written.bytes.clone();
                for _ in 0..1 + random(8) {
                    let at = random(bytes.len());
                    match random(4) {
                        0 => bytes[at] = random(256) as u8,
                        1 => bytes.truncate(at + 1),
                        2 => drop(bytes.drain(at..(at + random(40)).min(bytes.len() - 1).max(at))),
                        _ => bytes[at] ^= 1 << random(8),
                    }
                }
                damaged.push(Written { bytes, switches: written.switches.clone(), ..*written });
            }
            let damaged = (Maps(maps.0.clone()), damaged);
            let whole = decode(&damaged, u64::MAX, usize::MAX);
            for (size, piece) in [(0, usize::MAX), (100, 7), (300, 1)] {
                let happened = decode(&damaged, size, piece);
                assert!(happened == whole, "{name}: units of {size}, pieces of {piece}");
            }
        }
    }
}
