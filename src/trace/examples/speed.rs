//! Measures how fast Intel PT of one process is decoded on one thread: `speed RECORDING count|stacks|steps`.
//!
//! `count` counts runs by paths, `stacks` keeps the last 64 branches, `steps` visits every step. The first
//! buffer of a recording of tests/data/trace/ptmake.py is decoded; its programs must still exist.

use std::collections::HashMap;
use std::error::Error;
use std::time::Instant;

use perfx_format::Mmap;
use perfx_format::read::Recording;
use perfx_format::record::aux::Auxtrace;
use perfx_trace::{
    Blocks, Counter, Event, Image, Joint, Mapping, PathId, Point, Run, Sink, Space, Step, Switch, Trace,
    intel_pt,
};

struct Maps(Vec<(u64, Vec<u8>)>);

impl Image for Maps {
    fn code(&self, _space: Option<Space>, ip: u64, _time: u64) -> Option<Mapping<'_>> {
        let is_in = |start: u64, len: usize| ip.checked_sub(start).is_some_and(|at| at < len as u64);
        let at = self.0.iter().position(|(start, bytes)| is_in(*start, bytes.len()))?;
        let (start, bytes) = &self.0[at];
        Some(Mapping { id: at as u64, start: *start, bytes, until: u64::MAX })
    }
}

struct Stacks {
    ring: [(u64, u64); 64],
    branches: usize,
    instructions: u64,
    faults: u64,
}

impl Sink for Stacks {
    #[inline(always)]
    fn step(&mut self, blocks: &Blocks, _point: &Point, step: Step) {
        self.instructions += u64::from(step.count);
        if let Some(to) = step.to {
            self.ring[self.branches % 64] = (blocks[step.block].last, blocks[to].start);
            self.branches += 1;
        }
    }

    fn event(&mut self, _blocks: &Blocks, _point: &Point, event: Event) {
        self.faults += u64::from(matches!(event, Event::Fault(_)));
    }
}

/// Takes whole paths, and passes on their steps.
struct ByPath(Stacks);

impl Sink for ByPath {
    #[inline(always)]
    fn step(&mut self, blocks: &Blocks, point: &Point, step: Step) {
        self.0.step(blocks, point, step);
    }

    #[inline(always)]
    fn path(&mut self, blocks: &Blocks, point: &Point, path: PathId) {
        blocks.steps(path).iter().for_each(|step| self.0.step(blocks, point, *step));
    }

    fn event(&mut self, blocks: &Blocks, point: &Point, event: Event) {
        self.0.event(blocks, point, event);
    }
}

fn main() -> Result<(), Box<dyn Error>> {
    let arguments: Vec<String> = std::env::args().skip(1).collect();
    let [path, what] = &arguments[..] else { return Err("usage: speed RECORDING count|stacks|steps".into()) };
    let mut recording = Recording::open(path)?;
    let (mut maps, mut bytes, mut pid) = (Maps(Vec::new()), Vec::new(), 0);
    let mut records = recording.records();
    while let Some(record) = records.next_record()? {
        if let Some(mmap) = Mmap::of(&record) {
            let name = mmap.name(record.layouts().trailer_size(&record));
            let Ok(file) = std::fs::read(String::from_utf8_lossy(name).into_owned()) else { continue };
            let end = file.len().min((mmap.pgoff() + mmap.len()) as usize);
            maps.0.push((mmap.start(), file[mmap.pgoff() as usize..end].to_vec()));
            pid = mmap.pid();
        } else if Auxtrace::of(&record).is_some() && bytes.is_empty() {
            bytes = record.payload().to_vec();
        }
    }
    let config = intel_pt::Config {
        mtc_period: 6,
        tsc_per_ctc: Some((2, 1)),
        tsc_ratio: 32,
        near: 0x1234,
        ..intel_pt::Config::default()
    };
    let trace = Trace::new(vec![&bytes], vec![Switch { time: 0, space: Some(Space(pid)), guest: None }]);
    let mut decoder = intel_pt::Decoder::new(&maps, config);
    let start = Instant::now();
    let units = intel_pt::units(&trace, &config, 32 << 10);
    let stacks = Stacks { ring: [(0, 0); 64], branches: 0, instructions: 0, faults: 0 };
    let found = match &**what {
        "count" => {
            let mut counter = Counter::new(HashMap::<Run, u64>::new());
            let (mut joint, mut joined) = (Joint::default(), Vec::new());
            for unit in units {
                decoder.decode(&trace, &unit, &mut counter);
                joined.extend(joint.join(&counter.end_unit(decoder.blocks())));
            }
            decoder.forget(&mut counter);
            let runs = counter.into_inner();
            let sum: u64 = runs.iter().filter(|(run, _)| run.from.is_some()).map(|(_, count)| count).sum();
            format!("{sum} branches, {} runs, {} joined", runs.len(), joined.len())
        }
        "stacks" => {
            let mut sink = ByPath(stacks);
            units.for_each(|unit| decoder.decode(&trace, &unit, &mut sink));
            format!(
                "{} branches, {} instructions, {} faults",
                sink.0.branches, sink.0.instructions, sink.0.faults
            )
        }
        _ => {
            let mut sink = stacks;
            units.for_each(|unit| decoder.decode(&trace, &unit, &mut sink));
            format!("{} branches, {} instructions, {} faults", sink.branches, sink.instructions, sink.faults)
        }
    };
    let seconds = start.elapsed().as_secs_f64();
    println!("{what}: {found}; {seconds:.3} s, {:.0} MB/s", bytes.len() as f64 / 1e6 / seconds);
    Ok(())
}
