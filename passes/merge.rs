//! `merge` puts the records of guests into the recording of their host: each at its place in time, under ids that tell its machine and VCPU,
//! while every record of the host stays as it is.
//!
//! Look 1 finds the VCPU threads ([`machines`]), which is enough to open the guests and find the processes that may run them ([`placed`]). Look 2
//! shows when their VCPUs ran ([`switches`]), and so how their clocks compare to the host's ([`offset`], [`schedule`], [`clock`]); where the host's
//! recording is too long for that, look 3 follows the clocks from its begin to its end. Then the guests' events join the host's ([`events`]), and their
//! records, in order ([`sorted`]) and changed into the host's ([`translate`]), go in between ([`merging`]).

mod chosen;
mod clock;
mod events;
mod guest;
mod judged;
mod machines;
mod merging;
mod moments;
mod offset;
mod placed;
pub(crate) mod report;
mod schedule;
mod sorted;
mod spec;
mod switches;
mod translate;

use std::ffi::OsString;
use std::path::PathBuf;

use anyhow::{Result, ensure};
use perfx_format::input::{Batch, Recording};
use perfx_format::{Event, Feature, Kinds, Layouts, Record, RecordType, sample_type as st};
use perfx_pipeline::address_space::Machine;
use perfx_pipeline::{Emit, Needs, Pass, Scope, Session, worker_as};

use crate::support::ids::MappedIds;
use crate::support::options::{Choice, Options};
use clock::Clock;
use machines::Machines;
use merging::Merging;
use offset::{Found, find_clocks, follow_clocks, stretches};
use placed::{Opened, Placed, open_guests};
pub use spec::GuestSpec;
use switches::{Switches, Watch, timed_kinds};

/// The pass.
#[derive(Debug, Default)]
pub struct Merge {
    options: MergeOptions,
    step: Step,
    /// The build-ids that the host's MMAP2 records hold.
    mapped_ids: MappedIds,
}

/// What the user chose.
#[derive(Clone, Debug, Default)]
pub struct MergeOptions {
    /// The guests, as [`GuestSpec::parse`] reads them.
    pub guests: Vec<OsString>,
    /// The guests' samples, too.
    pub samples: bool,
    /// Kinds that perf inject leaves out, where they say something to a reader.
    pub all: bool,
    /// `PID` below this folder stands for `/` of the guest of that process.
    pub guestmount: Option<PathBuf>,
}

/// The entry of a recording's directory that holds its kernel's memory; that of a guest's has `__` and its pid behind it.
pub const KCORE_DIR: &str = "kcore_dir";

/// What it is doing.
#[derive(Debug, Default)]
enum Step {
    /// Nothing yet, or not any more.
    #[default]
    Idle,
    /// Look 1: who is there.
    Machines(Machines),
    /// Look 2: when what happened.
    Watching { machines: Machines, guests: Vec<Opened>, watch: Watch },
    /// Look 3, at recordings so long that look 2 could not keep all of that: the same at some moments, so that clocks are followed to the end.
    Following { machines: Machines, guests: Vec<Found>, watch: Watch },
    /// All is known.
    Known { machines: Machines, guests: Vec<(Placed, Clock)>, watch: Watch },
    /// Records are on their way.
    Merging(Merging),
    /// A look at one batch of those.
    Scouting(Switches),
}

impl Merge {
    /// The kinds of a guest's records that are merged whatever is asked for: those that perf inject takes.
    pub const KINDS: [RecordType; 10] = chosen::DEFAULT;

    pub(crate) const ABOUT: &'static str = "put the records of guests into the recording of their host";
    pub(crate) const OPTIONS: &'static [Choice] = &[
        Choice {
            name: "guest",
            value: Some("GUEST"),
            about: r"PATH[\,pid=N][\,offset=N][\,scale=F][\,vcpu=V\:TID]…[\,root=DIR]; repeatable",
        },
        Choice { name: "samples", value: None, about: "the guests' samples, too" },
        Choice {
            name: "all",
            value: None,
            about: "NAMESPACES, CGROUP, THROTTLE, LOST_SAMPLES and BPF records, too",
        },
    ];

    pub(crate) fn make(options: &Options) -> Result<Box<dyn Pass>> {
        Ok(Box::new(Merge::new(MergeOptions {
            guests: options.all("guest").map(Into::into).collect(),
            samples: options.has("samples"),
            all: options.has("all"),
            guestmount: None,
        })))
    }

    /// With these options.
    pub fn new(options: MergeOptions) -> Merge {
        Merge { options, ..Merge::default() }
    }

    /// Look 1 is done (VCPU threads are known); prepares look 2 (when they ran).
    fn watch(&mut self, machines: Machines, session: &mut Session) -> Result<()> {
        let timed = |event: &Event| event.attr().sample_type & st::TIME != 0;
        ensure!(
            session.events.iter().any(timed),
            "no record of the host has a time, so there is no place for a guest's: record with --timestamp"
        );
        let guests = open_guests(&self.options, &machines, session)?;
        let find = guests.iter().any(|guest| guest.spec.offset.is_none());
        let processes = guests.iter().flat_map(|guest| &guest.processes);
        let threads = processes.flat_map(|process| process.threads.values().map(|thread| thread.tid));
        let watch = Watch::new(threads, find);
        self.step = Step::Watching { machines, guests, watch };
        Ok(())
    }

    /// The looks are done.
    fn know(
        &mut self,
        machines: Machines,
        guests: Vec<Found>,
        watch: Watch,
        session: &mut Session,
    ) -> Result<()> {
        let guests = follow_clocks(guests, &watch, session)?;
        self.step = Step::Known { machines, guests, watch };
        Ok(())
    }
}

impl Pass for Merge {
    fn name(&self) -> &'static str {
        "merge"
    }

    fn needs(&self, input: &Recording) -> Needs {
        Needs {
            records: timed_kinds(),
            looks: vec![
                Machines::kinds().union(Kinds::of(&[RecordType::MMAP2])),
                timed_kinds(),
                timed_kinds(),
            ],
            decompressed: input.is_compressed(),
            ids: true,
            reshapes: true,
            ..Needs::default()
        }
    }

    fn scope(&mut self, look: Option<usize>, batch: &Batch) -> Scope {
        match &mut self.step {
            Step::Watching { watch, .. } | Step::Following { watch, .. } if look.is_some() => {
                if !watch.has_enough() {
                    watch.switches.look_into(batch);
                }
                Scope::Only(Kinds::NONE)
            }
            Step::Scouting(switches) => {
                switches.look_into(batch);
                Scope::Only(Kinds::NONE)
            }
            Step::Merging(merging) => merging.scope(),
            _ => Scope::Wanted,
        }
    }

    fn survey(&mut self, look: usize, record: &Record<'_>, layouts: &Layouts) -> Result<()> {
        if look == 0 {
            self.mapped_ids.learn_record(record, layouts);
        }
        match &mut self.step {
            Step::Machines(machines) => machines.look_at(record),
            Step::Idle if look == 0 => {
                let mut machines = Machines::default();
                machines.look_at(record);
                self.step = Step::Machines(machines);
            }
            _ => {}
        }
        Ok(())
    }

    fn surveyed(&mut self, look: usize, session: &mut Session) -> Result<()> {
        match std::mem::take(&mut self.step) {
            Step::Machines(machines) => self.watch(machines, session)?,
            Step::Idle if look == 0 => self.watch(Machines::default(), session)?,
            Step::Watching { machines, guests, mut watch } => {
                watch.finish();
                let guestmount = self.options.guestmount.as_deref();
                let guests = find_clocks(guests, &machines, &watch, guestmount, session)?;
                let stretches = stretches(&guests);
                if stretches.is_empty() {
                    session.skip_looks();
                    self.know(machines, guests, watch, session)?;
                } else {
                    let watch = watch.again(stretches);
                    self.step = Step::Following { machines, guests, watch };
                }
            }
            Step::Following { machines, guests, mut watch } => {
                watch.finish();
                self.know(machines, guests, watch, session)?;
            }
            step => self.step = step,
        }
        Ok(())
    }

    fn begin(&mut self, session: &mut Session) -> Result<()> {
        if let Step::Known { machines, guests, watch } = std::mem::take(&mut self.step) {
            let makes = session.feature(Feature::BUILD_ID).is_none();
            self.step = Step::Merging(Merging::new(guests, &watch, &machines, session)?);
            if makes && session.feature(Feature::BUILD_ID).is_some() {
                session.add_build_ids(&self.mapped_ids.entries(Machine::Host, session.endian));
            }
        }
        Ok(())
    }

    fn record(&mut self, record: Record<'_>, out: &mut Emit<'_>) -> Result<()> {
        match &mut self.step {
            Step::Merging(merging) => merging.record(record, out),
            _ => out.keep(record),
        }
    }

    fn rest(&mut self, out: &mut Emit<'_>) -> Result<bool> {
        match &mut self.step {
            Step::Merging(merging) => merging.rest(out),
            _ => Ok(false),
        }
    }

    fn finish(&mut self, session: &mut Session, _out: &mut Emit<'_>) -> Result<()> {
        if let Step::Merging(merging) = &self.step {
            merging.finish(&mut session.report);
        }
        Ok(())
    }

    fn fork(&self) -> Option<Box<dyn Pass>> {
        let step = match &self.step {
            Step::Idle | Step::Machines(_) => Step::Machines(Machines::default()),
            Step::Watching { watch, .. } | Step::Following { watch, .. } => {
                Step::Watching { machines: Machines::default(), guests: Vec::new(), watch: watch.fork() }
            }
            Step::Scouting(switches) => Step::Scouting(switches.anew()),
            // Guests are read from front to back.
            Step::Known { .. } | Step::Merging(_) => return None,
        };
        Some(Box::new(Merge { step, ..Merge::default() }))
    }

    fn scout(&self) -> Option<Box<dyn Pass>> {
        let Step::Merging(merging) = &self.step else { return None };
        let step = Step::Scouting(merging.switches.anew());
        Some(Box::new(Merge { step, ..Merge::default() }))
    }

    fn join(&mut self, worker: Box<dyn Pass>) -> Result<()> {
        if let Some(Merge { step: later, mapped_ids, .. }) = worker_as(worker) {
            self.mapped_ids.join(mapped_ids);
            match (&mut self.step, later) {
                (Step::Machines(machines), Step::Machines(later)) => machines.join(later),
                (step @ Step::Idle, Step::Machines(later)) => *step = Step::Machines(later),
                (
                    Step::Watching { watch, .. } | Step::Following { watch, .. },
                    Step::Watching { watch: later, .. },
                ) => watch.join(later),
                (Step::Merging(merging), Step::Scouting(later)) => merging.join(later),
                _ => {}
            }
        }
        Ok(())
    }
}
