//! `drop-comm` drops the samples of threads that had certain names when the sample was taken.

use std::sync::Arc;

use clap::Args;
use perfx_format::read::Recording;
use perfx_format::{Kinds, Layouts, OrderKey, Record, RecordType};
use perfx_model::guests::Guests;
use perfx_model::tasks::{TaskChanges, Tasks};
use perfx_passes::{PassCommand, PassOptions};
use perfx_pipeline::{Emit, Fork, Needs, Pass, Result, Rewrite, Session, Stage, Survey, ensure};

// `perfx run -p drop-comm:name=NAME` and `perfx drop-comm --name NAME` parse these options alike.
/// Drop the samples of threads with certain names
///
/// Examples:
///   perfx-example drop-comm --name cc1 perf.data -o rest.data
#[derive(Args, Clone, Debug)]
#[command(verbatim_doc_comment)]
pub(crate) struct DropComm {
    /// A name of threads whose samples are dropped; repeatable
    #[arg(long, value_name = "NAME")]
    name: Vec<String>,
}

impl PassOptions for DropComm {
    const NAME: &'static str = "drop-comm";
    const ABOUT: &'static str = "drop the samples of threads with certain names";
    const COMMAND: Option<PassCommand> = Some(PassCommand { group: "Cut and join", one_of: &["name"] });

    fn pass(self) -> Result<Box<dyn Pass>> {
        ensure!(!self.name.iter().any(String::is_empty), "--name is empty, and no thread has an empty name");
        Ok(Box::new(self))
    }
}

impl Pass for DropComm {
    fn name(&self) -> &'static str {
        DropComm::NAME
    }

    fn needs(&self, _input: &Recording) -> Needs {
        Needs {
            surveys: vec![TaskChanges::kinds().union(Kinds::of(&[RecordType::ID_INDEX]))],
            records: Kinds::of(&[RecordType::SAMPLE]),
            // A record inside a COMPRESSED one can't be dropped.
            decompressed: true,
            ..Needs::default()
        }
    }

    fn start(self: Box<Self>, _input: &Recording) -> Stage {
        Stage::survey(Names { options: *self, changes: TaskChanges::new(true), guests: Guests::default() })
    }
}

/// Learns the names of all threads. A sample may precede the record that names its thread in the file, so this must end
/// before the first sample is judged.
struct Names {
    options: DropComm,
    changes: TaskChanges,
    guests: Guests,
}

impl Survey for Names {
    fn record(&mut self, record: &Record<'_>, layouts: &Layouts) -> Result<()> {
        match record.kind() {
            // Threads of a guest have numbers of their own.
            RecordType::ID_INDEX => self.guests.learn(record),
            _ => drop(self.changes.add(record, layouts)),
        }
        Ok(())
    }

    fn end(self, _session: &mut Session) -> Result<Stage> {
        let Names { options, changes, guests } = self;
        let tasks = Tasks::new(changes, &guests);
        Ok(Stage::rewrite(DropSamples(Arc::new(Threads { names: options.name, tasks, guests }))))
    }
}

impl Fork for Names {
    fn fork(&self) -> Names {
        Names { options: self.options.clone(), changes: TaskChanges::new(true), guests: Guests::default() }
    }

    fn absorb(&mut self, later: Names) {
        self.changes.absorb(later.changes);
        self.guests.absorb(later.guests);
    }
}

/// What the survey found.
struct Threads {
    names: Vec<String>,
    tasks: Tasks,
    guests: Guests,
}

/// Drops samples. Batches do not depend on each other, so each has its own worker.
struct DropSamples(Arc<Threads>);

impl Rewrite for DropSamples {
    fn record(&mut self, record: Record<'_>, out: &mut Emit<'_>) -> Result<()> {
        let DropSamples(threads) = self;
        let layouts = out.layouts();
        let layout = layouts.layout_of(&record);
        let has_name = layout.and_then(|layout| layout.pid_tid(&record)).is_some_and(|(pid, tid)| {
            let machine = threads.guests.machine(&record, layouts, Some(pid));
            let name = threads.tasks.name(machine, tid, OrderKey::of(&record, layout, layouts));
            threads.names.iter().any(|dropped| *dropped.as_bytes() == *name)
        });
        if has_name {
            out.drop_record(record);
            return Ok(());
        }
        out.keep(record)
    }
}

impl Fork for DropSamples {
    fn fork(&self) -> DropSamples {
        DropSamples(self.0.clone())
    }

    fn absorb(&mut self, _later: DropSamples) {}
}
