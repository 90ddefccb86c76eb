//! `jit` names the code of JIT compilers: it converts the jitdumps that processes mapped into ELF images, and
//! replaces the mappings of the dumps with mappings of the images.
//!
//! Code that is close together in memory goes into one image, which is mapped as a whole, at the time when
//! the dump was mapped. Only code that was loaded over older code is mapped separately, when it was loaded.

mod maps;
mod options;
mod plan;
mod recorded;

use std::collections::HashMap;
use std::ops::Range;
use std::path::PathBuf;
use std::sync::Arc;

use clap::Args;
use perfx_format::read::Recording;
use perfx_format::{Kinds, Layouts, OrderKey, Origin, Record};
use perfx_pipeline::{Emit, Fork, Needs, Pass, Place, Result, Rewrite, Session, Stage, Survey};

use crate::support::options::PassOptions;
pub use options::{JitLayout, JitOptions};
use plan::{Plan, Planner};
use recorded::Recorded;

/// The pass.
#[derive(Debug)]
pub struct Jit {
    options: JitOptions,
}

/// The options on the command line.
#[derive(Args, Clone, Debug)]
pub struct JitArgs {
    /// Write the images into this folder
    #[arg(long, value_name = "DIR", default_value = "perf.data.jit")]
    output: PathBuf,
    /// Which functions go into one image
    #[arg(long, value_name = "LAYOUT", default_value = "arena")]
    layout: JitLayout,
    /// Also look for jitdumps in this folder, by their name alone; repeatable
    #[arg(long, value_name = "DIR")]
    dir: Vec<PathBuf>,
    /// Also look for jitdumps in this sysroot or container image; repeatable
    #[arg(long, value_name = "DIR")]
    root: Vec<PathBuf>,
    /// The recording is from another machine: do not look for jitdumps at their recorded paths
    #[arg(long, alias = "no-files")]
    foreign: bool,
    /// Also name code by perf maps (perf-PID.map), for processes without a jitdump
    #[arg(long)]
    perf_maps: bool,
    /// Also put the images into this build-id cache of perf, such as ~/.debug
    #[arg(long, value_name = "DIR")]
    cache: Option<PathBuf>,
}

impl PassOptions for JitArgs {
    const NAME: &'static str = "jit";
    const ABOUT: &'static str =
        "name the code of JIT compilers: turn jitdumps into ELF images, and map these in the recording";

    fn pass(self) -> Result<Box<dyn Pass>> {
        let JitArgs { output, layout, dir, root, foreign, perf_maps, cache } = self;
        let options = JitOptions::new(output, layout, dir, root, foreign)?;
        Ok(Box::new(Jit::new(options.with_perf_maps(perf_maps).with_cache(cache))))
    }
}

impl Jit {
    /// Creates the pass with these options.
    pub fn new(options: JitOptions) -> Jit {
        Jit { options }
    }
}

struct Mapped {
    options: JitOptions,
    recorded: Recorded,
}

/// The second survey: finds the positions for mappings that have a time of their own.
struct Times {
    plan: Plan,
    times: Arc<[OrderKey]>,
    next: usize,
    /// Ranges of indices into `times`, each with the first record that is not earlier.
    places: Vec<(Range<usize>, Origin)>,
}

/// The rewrite: inserts the mappings of images, and drops the records that they replace.
struct Map {
    plan: Plan,
    changes: Arc<HashMap<Place, Change>>,
}

#[derive(Debug, Default)]
struct Change {
    before: Vec<Vec<u8>>,
    after: Vec<Vec<u8>>,
    drops: bool,
}

impl Pass for Jit {
    fn name(&self) -> &'static str {
        JitArgs::NAME
    }

    fn needs(&self, _input: &Recording) -> Needs {
        let surveys = vec![Recorded::kinds(), Kinds::ALL];
        // A jitdump may have been mapped by a compressed record.
        Needs { surveys, decompressed: true, ids: true, ..Needs::default() }
    }

    fn start(self: Box<Self>, _input: &Recording) -> Stage {
        let recorded = Recorded::new(self.options.perf_maps);
        Stage::survey_in_order(Mapped { options: self.options, recorded })
    }
}

impl Survey for Mapped {
    fn record(&mut self, record: &Record<'_>, layouts: &Layouts) -> Result<()> {
        self.recorded.learn(record, layouts);
        Ok(())
    }

    fn end(self, session: &mut Session) -> Result<Stage> {
        let Mapped { options, mut recorded } = self;
        recorded.sort();
        let mut planner = Planner::new(&recorded, &options, session)?;
        planner.dumps(session)?;
        planner.perf_maps(session)?;
        let mut plan = planner.finish();
        if plan.timed.is_empty() {
            return Ok(Map::stage(plan, Vec::new(), session));
        }
        // A stable sort: mappings with the same time stay in the order of the plan.
        plan.timed.sort_by_key(|(key, _)| *key);
        let times = plan.timed.iter().map(|(key, _)| *key).collect();
        Ok(Stage::survey(Times { plan, times, next: 0, places: Vec::new() }))
    }
}

impl Times {
    /// Gives times with an index below `end` that have no position yet the position before this record.
    fn found(&mut self, end: usize, origin: Origin) {
        if end > self.next {
            self.places.push((self.next..end, origin));
            self.next = end;
        }
    }
}

impl Survey for Times {
    fn record(&mut self, record: &Record<'_>, layouts: &Layouts) -> Result<()> {
        let Some(&next) = self.times.get(self.next) else { return Ok(()) };
        let key = layouts.recorded_time(record).map(OrderKey::at);
        if let Some(key) = key.filter(|&key| key >= next) {
            let end = self.times.partition_point(|&other| other <= key);
            self.found(end, record.origin());
        }
        Ok(())
    }

    fn end(self, session: &mut Session) -> Result<Stage> {
        Ok(Map::stage(self.plan, self.places, session))
    }
}

impl Fork for Times {
    fn fork(&self) -> Times {
        Times { plan: Plan::default(), times: self.times.clone(), next: 0, places: Vec::new() }
    }

    fn absorb(&mut self, later: Times) {
        later.places.into_iter().for_each(|(range, origin)| self.found(range.end, origin));
    }
}

impl Map {
    /// Begins the rewrite. Mappings later than the last record are left out: no sample hits their code.
    fn stage(mut plan: Plan, places: Vec<(Range<usize>, Origin)>, session: &mut Session) -> Stage {
        let mut changes = HashMap::<Place, Change>::new();
        let mut put = |origin: Origin, bytes: Vec<u8>| {
            if let Some(place) = session.place(origin) {
                changes.entry(place).or_default().before.push(bytes);
            }
        };
        plan.at.drain(..).for_each(|(origin, bytes)| put(origin, bytes));
        let mut timed = plan.timed.drain(..).map(|(_, bytes)| bytes);
        for (range, origin) in places {
            timed.by_ref().take(range.len()).for_each(|bytes| put(origin, bytes));
        }
        drop(timed);
        for (origin, bytes) in plan.after.drain(..) {
            if let Some(place) = session.place(origin) {
                changes.entry(place).or_default().after.push(bytes);
            }
        }
        for origin in plan.dropped.drain(..) {
            if let Some(place) = session.place(origin) {
                changes.entry(place).or_default().drops = true;
            }
        }
        Stage::begin(move |begin| {
            changes.keys().for_each(|&place| begin.want_at(place));
            Ok(Stage::rewrite(Map { plan, changes: Arc::new(changes) }))
        })
    }
}

impl Rewrite for Map {
    fn record(&mut self, record: Record<'_>, out: &mut Emit<'_>) -> Result<()> {
        let Some(change) = out.place(&record).and_then(|place| self.changes.get(&place)) else {
            return out.keep(record);
        };
        change.before.iter().try_for_each(|bytes| out.put(bytes))?;
        if change.drops {
            out.drop_record(record);
        } else {
            out.keep(record)?;
        }
        change.after.iter().try_for_each(|bytes| out.put(bytes))
    }

    fn finish(&mut self, session: &mut Session, _out: &mut Emit<'_>) -> Result<()> {
        session.made.append(&mut self.plan.files);
        session.report.lines.append(&mut self.plan.report.lines);
        Ok(())
    }
}

impl Fork for Map {
    fn fork(&self) -> Map {
        Map { plan: Plan::default(), changes: self.changes.clone() }
    }

    fn absorb(&mut self, _later: Map) {}
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_mapping_has_the_first_place_that_is_found_for_it() {
        let times: Vec<OrderKey> = (1..=9).map(OrderKey::at).collect();
        let mut all = Times { plan: Plan::default(), times: times.into(), next: 0, places: Vec::new() };
        let (mut first, mut second) = (all.fork(), all.fork());
        let at = |offset| Origin::Input { stream: 0, offset };
        first.found(2, at(10));
        first.found(2, at(11));
        first.found(1, at(12));
        first.found(5, at(13));
        assert_eq!((first.next, &first.places[..]), (5, &[(0..2, at(10)), (2..5, at(13))][..]));
        second.found(4, at(20));
        second.found(7, at(21));
        all.absorb(first);
        all.absorb(second);
        assert_eq!(all.places, [(0..2, at(10)), (2..5, at(13)), (5..7, at(21))]);
    }
}
