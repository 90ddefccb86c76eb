//! `merge` merges the records of guests into the recording of their host: each at its time, with ids that
//! identify its machine and VCPU. The host's records do not change.
//!
//! Survey 1 finds the VCPU threads ([`machines`]), then opens the guests and finds the processes that may run
//! them ([`placed`]). Survey 2 finds when their VCPUs ran ([`switches`]), and from that the relation of their
//! clocks to the host's ([`offset`], [`schedule`], [`clock`]). For a long recording, survey 3 follows the
//! clocks from start to end. Then the guests' events are added to the host's ([`events`]), and their records,
//! sorted ([`sorted`]) and rewritten ([`translate`]), are inserted ([`merging`]).

mod chosen;
mod clock;
mod clock_fit;
mod events;
mod guest;
mod judged;
mod machines;
mod merging;
mod moments;
mod offset;
mod placed;
pub(crate) mod report;
mod sorted;
mod spec;
mod switches;
mod translate;

use std::ffi::OsString;

use clap::Args;
use perfx_format::read::{Batch, Recording};
use perfx_format::{Event, Feature, Kinds, Layouts, Record, RecordType, sample_type as st};
use perfx_model::address_space::Machine;
use perfx_pipeline::{Context as _, Fork, Needs, Pass, Result, Session, Stage, Survey, ensure};

use crate::support::event_ids::UnlistedIds;
use crate::support::options::PassOptions;
use machines::Machines;
use merging::Merging;
use offset::{Found, find_clocks, follow_clocks, windows};
use perfx_resolve::MappedIds;
use placed::open_guests;
pub use spec::{GuestSpec, MergeOptions, MoreKinds};
use switches::{VcpuRunLog, timed_kinds};

/// The pass.
#[derive(Debug, Default)]
pub struct Merge {
    options: MergeOptions,
}

/// The options on the command line.
#[derive(Args, Clone, Debug)]
pub struct MergeArgs {
    /// Recording of a guest: PATH[,pid=N][,offset=N][,scale=F][,vcpu=V:TID]…[,root=DIR]; repeatable
    #[arg(long, value_name = "GUEST")]
    guest: Vec<OsString>,
    #[command(flatten)]
    more: MoreKinds,
}

impl PassOptions for MergeArgs {
    const NAME: &'static str = "merge";
    const ABOUT: &'static str = "merge the records of guests into the recording of their host";

    fn pass(self) -> Result<Box<dyn Pass>> {
        let MergeArgs { guest: guests, more } = self;
        Ok(Box::new(Merge::new(MergeOptions { guests, more, guestmount: None })))
    }
}

#[derive(Default)]
struct MachineSurvey {
    options: MergeOptions,
    host: Host,
}

#[derive(Default)]
struct Host {
    machines: Machines,
    mapped_ids: MappedIds,
    unlisted: UnlistedIds,
}

/// The second survey: finds when the VCPUs ran. For a long one, a third follows the clocks to the end.
struct RunSurvey {
    run_log: VcpuRunLog,
    then: Option<Then>,
}

type Then = Box<dyn FnOnce(VcpuRunLog, &mut Session) -> Result<Stage> + Send>;

impl RunSurvey {
    fn stage(
        run_log: VcpuRunLog,
        then: impl FnOnce(VcpuRunLog, &mut Session) -> Result<Stage> + Send + 'static,
    ) -> Stage {
        Stage::survey(RunSurvey { run_log, then: Some(Box::new(then)) })
    }
}

impl Merge {
    /// The kinds of guest records that are merged by default, as perf inject does.
    pub const KINDS: Kinds = chosen::DEFAULT;

    /// The pass with these options.
    pub fn new(options: MergeOptions) -> Merge {
        Merge { options }
    }
}

impl Pass for Merge {
    fn name(&self) -> &'static str {
        MergeArgs::NAME
    }

    fn needs(&self, input: &Recording) -> Needs {
        let machines = match input.events.len() {
            // Any of its records can have an id that the event does not list.
            1 => Kinds::ALL,
            _ => Machines::kinds().union(Kinds::of(&[RecordType::MMAP2])),
        };
        Needs {
            records: timed_kinds().union(Kinds::of(&[RecordType::HEADER_ATTR, RecordType::HEADER_BUILD_ID])),
            surveys: vec![machines, timed_kinds(), timed_kinds()],
            decompressed: input.is_compressed(),
            ids: true,
            ..Needs::default()
        }
    }

    fn start(self: Box<Self>, _input: &Recording) -> Stage {
        Stage::survey(MachineSurvey { options: self.options, host: Host::default() })
    }
}

impl Survey for MachineSurvey {
    fn record(&mut self, record: &Record<'_>, layouts: &Layouts) -> Result<()> {
        self.host.mapped_ids.learn_record(record, layouts);
        self.host.unlisted.learn(record, layouts);
        self.host.machines.look_at(record);
        Ok(())
    }

    fn end(self, session: &mut Session) -> Result<Stage> {
        let MachineSurvey { options, host } = self;
        Layouts::new(&session.events).check_ids().map_err(|e| e.file(&session.name))?;
        let timed = |event: &Event| event.attr().sample_type & st::TIME != 0;
        ensure!(
            session.events.iter().any(timed),
            "{}: no record of the host has a time, so a guest's can't be placed: record with --timestamp",
            session.name
        );
        let guests = open_guests(&options, &host.machines, session)?;
        let find = guests.iter().any(|guest| guest.spec.offset.is_none());
        let processes = guests.iter().flat_map(|guest| &guest.processes);
        let threads = processes.flat_map(|process| process.threads.values().map(|thread| thread.tid));
        let run_log = VcpuRunLog::new(threads, find);
        Ok(RunSurvey::stage(run_log, move |run_log, session| {
            let guestmount = options.guestmount.as_deref();
            let guests = find_clocks(guests, &host.machines, &run_log, guestmount, session)?;
            let windows = windows(&guests);
            if windows.is_empty() {
                return merging(host, guests, run_log, session);
            }
            let run_log = run_log.narrowed_to(windows);
            Ok(RunSurvey::stage(run_log, |run_log, session| merging(host, guests, run_log, session)))
        }))
    }
}

impl Fork for MachineSurvey {
    fn fork(&self) -> MachineSurvey {
        MachineSurvey::default()
    }

    fn absorb(&mut self, later: MachineSurvey) {
        self.host.mapped_ids.join(later.host.mapped_ids);
        self.host.unlisted.join(later.host.unlisted);
        self.host.machines.join(later.host.machines);
    }
}

impl Survey for RunSurvey {
    fn begin_batch(&mut self, batch: &Batch, _declared: Kinds) -> Kinds {
        self.run_log.look_into(batch);
        Kinds::NONE
    }

    fn end(self, session: &mut Session) -> Result<Stage> {
        let RunSurvey { mut run_log, then } = self;
        run_log.finish();
        then.context("no work after the survey")?(run_log, session)
    }
}

impl Fork for RunSurvey {
    fn fork(&self) -> RunSurvey {
        RunSurvey { run_log: self.run_log.fork(), then: None }
    }

    fn absorb(&mut self, later: RunSurvey) {
        self.run_log.join(later.run_log);
    }
}

fn merging(host: Host, guests: Vec<Found>, run_log: VcpuRunLog, session: &mut Session) -> Result<Stage> {
    let guests = follow_clocks(guests, &run_log, session)?;
    Ok(Stage::begin(move |begin| {
        let makes = begin.feature(Feature::BUILD_ID).is_none();
        host.unlisted.list_in(&mut begin.events);
        let merging = Merging::new(guests, &run_log, &host.machines, begin)?;
        if makes && begin.feature(Feature::BUILD_ID).is_some() {
            // The feature hides the ids in MMAP2 records.
            let entries = host.mapped_ids.entries(Machine::Host, begin.endian);
            begin.add_build_ids(&entries);
        }
        // Guests are read sequentially.
        Ok(Stage::rewrite_prescanned_in_order(merging))
    }))
}
