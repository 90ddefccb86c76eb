//! The contract between a pass and the pipeline: a pass surveys the recording as often as it must, and then rewrites it.
//!
//! A [`Pass`] is the plan: its name, what it needs, and its first [`Stage`]. A [`Survey`] reads all records of some kinds and ends in the next
//! stage. A [`Rewrite`] is the last stage, through which records go to the output; [`Stage::begin`] makes one when all surveys are over, and can
//! change events and features before the first record is written. So each stage is a type that holds only what it needs, and what a survey has
//! learned is moved into what uses it.
//!
//! Batches of records go through a stage one after another, in file order, unless the stage implements [`Fork`]: then each batch gets a worker
//! of its own, on any thread, and the workers are absorbed in file order. The bytes written are the same for any number of threads.
//!
//! A complete pass, which drops the EXIT records of processes that never ran (no sample has their pid):
//!
//! ```
//! use std::collections::BTreeSet;
//!
//! use anyhow::Result;
//! use perfx_format::read::Recording;
//! use perfx_format::{Kinds, Layouts, Record, RecordType, Task};
//! use perfx_pipeline::{Emit, Fork, Needs, Pass, Rewrite, Session, Stage, Survey};
//!
//! /// The plan.
//! struct DropIdleExits;
//!
//! impl Pass for DropIdleExits {
//!     fn name(&self) -> &'static str {
//!         "drop-idle-exits"
//!     }
//!
//!     fn needs(&self, _input: &Recording) -> Needs {
//!         Needs {
//!             surveys: vec![Kinds::of(&[RecordType::SAMPLE])],
//!             records: Kinds::of(&[RecordType::EXIT]),
//!             ..Needs::default()
//!         }
//!     }
//!
//!     fn start(self: Box<Self>, _input: &Recording) -> Stage {
//!         Stage::survey(Running::default())
//!     }
//! }
//!
//! /// Learns which processes have samples.
//! #[derive(Default)]
//! struct Running(BTreeSet<u32>);
//!
//! impl Survey for Running {
//!     fn record(&mut self, record: &Record<'_>, layouts: &Layouts) -> Result<()> {
//!         let task = layouts.layout_of(record).and_then(|layout| layout.pid_tid(record));
//!         self.0.extend(task.map(|(pid, _)| pid));
//!         Ok(())
//!     }
//!
//!     fn end(self, _session: &mut Session) -> Result<Stage> {
//!         Ok(Stage::rewrite_in_order(DropExits(self.0)))
//!     }
//! }
//!
//! impl Fork for Running {
//!     fn fork(&self) -> Running {
//!         Running::default()
//!     }
//!
//!     fn absorb(&mut self, later: Running) -> Result<()> {
//!         self.0.extend(later.0);
//!         Ok(())
//!     }
//! }
//!
//! /// Drops what the survey did not see.
//! struct DropExits(BTreeSet<u32>);
//!
//! impl Rewrite for DropExits {
//!     fn record(&mut self, record: Record<'_>, out: &mut Emit<'_>) -> Result<()> {
//!         let task = Task::of(&record);
//!         if task.is_some_and(|task| !self.0.contains(&task.pid)) {
//!             out.drop_record(record);
//!             return Ok(());
//!         }
//!         out.keep(record)
//!     }
//! }
//! ```

use anyhow::Result;
use perfx_format::read::{Batch, Recording};
use perfx_format::{Feature, Kinds, Layouts, Record};

use crate::emit::Emit;
use crate::session::Session;
use crate::stage::Stage;

/// A transformation, before anything has been read: its name, what it needs, and its first stage.
pub trait Pass: Send {
    /// The name that `perfx run -p` knows it by, in kebab-case.
    fn name(&self) -> &'static str;

    /// What it needs of the pipeline. Merged with the needs of the other passes, and checked before the first byte moves.
    fn needs(&self, _input: &Recording) -> Needs {
        Needs::default()
    }

    /// The first stage: a survey if [`Needs::surveys`] is not empty, otherwise what makes the rewrite, or the rewrite itself.
    fn start(self: Box<Self>, input: &Recording) -> Stage;
}

/// A read-only walk through the recording, before any pass changes anything.
pub trait Survey: Sized + Send + 'static {
    /// A batch begins. Returns those of the `declared` kinds (its entry of [`Needs::surveys`]) that it wants to see of this batch.
    fn begin_batch(&mut self, _batch: &Batch, declared: Kinds) -> Kinds {
        declared
    }

    /// One record, decompressed.
    fn record(&mut self, record: &Record<'_>, layouts: &Layouts) -> Result<()>;

    /// All records have been seen. Returns the next stage: another survey, or the rewrite.
    fn end(self, session: &mut Session) -> Result<Stage>;
}

/// What records go through on their way to the output. Every method has a default, and the defaults copy.
pub trait Rewrite: Sized + Send + 'static {
    /// A batch begins. Only the first pass of a chain is asked, because the others see only what it lets through.
    fn begin_batch(&mut self, _batch: &Batch) -> Interest {
        Interest::AsDeclared
    }

    /// One record of the kinds in [`Needs::records`], or at a place given to [`Begin::want_at`](crate::Begin::want_at): keep, patch, replace or drop it, put others
    /// before or after it.
    fn record(&mut self, record: Record<'_>, out: &mut Emit<'_>) -> Result<()> {
        out.keep(record)
    }

    /// Called after a batch's last record. Batch boundaries depend on nothing but the input and carry no meaning; emit what is still buffered.
    fn end_batch(&mut self, _out: &mut Emit<'_>) -> Result<()> {
        Ok(())
    }

    /// All records of the input have passed. Puts what belongs after them, a few MiB at a time, and returns true as long as there is more.
    fn drain(&mut self, _out: &mut Emit<'_>) -> Result<bool> {
        Ok(false)
    }

    /// All is written: puts what belongs at the very end, sets features, reports.
    fn finish(&mut self, _session: &mut Session, _out: &mut Emit<'_>) -> Result<()> {
        Ok(())
    }
}

/// A stage that can take the batches of a recording in any order, each with a worker of its own.
pub trait Fork: Sized {
    /// A worker for one batch.
    fn fork(&self) -> Self;

    /// Takes in what a worker learned from its batch. Called in file order.
    fn absorb(&mut self, later: Self) -> Result<()>;
}

/// A rewrite that must take batches in order, but lets workers on other threads read them beforehand, so that less is left to do. Only the first
/// pass of a chain is prescanned, because the others see what it lets through.
pub trait Prescanned: Rewrite {
    /// What reads a batch beforehand.
    type Prescan: Prescan;

    /// What later prescans fork from.
    fn prescan(&self) -> Self::Prescan;

    /// Takes in what a worker learned from the batch that comes next, before its [`Rewrite::begin_batch`].
    fn absorb_prescan(&mut self, prescan: Self::Prescan) -> Result<()>;
}

/// Reads a batch before its turn comes.
pub trait Prescan: Sized + Send + 'static {
    /// A worker for one batch.
    fn fork(&self) -> Self;

    /// Reads the batch.
    fn batch(&mut self, batch: &Batch) -> Result<()>;
}

/// What a rewrite wants of a batch.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Interest {
    /// The kinds in its [`Needs::records`]; all others are copied.
    AsDeclared,
    /// Only these kinds. All others are dropped unseen and not counted, so the pass must report them.
    DropRest(Kinds),
    /// Only these kinds; all others are copied. The passes after it still see what they need.
    KeepRest(Kinds),
}

/// What a pass needs of the pipeline, as data.
#[derive(Clone, Debug)]
pub struct Needs {
    /// The kinds that its [`Rewrite::record`] wants. All others are copied without being looked at.
    pub records: Kinds,
    /// The kinds that each of its surveys wants.
    pub surveys: Vec<Kinds>,
    /// Its rewrite wants COMPRESSED records replaced with what they hold, so the output is not compressed.
    pub decompressed: bool,
    /// It cannot work unless the layout of every record is known.
    pub ids: bool,
    /// Features that are wrong after it, dropped unless the pass sets them.
    pub stale: &'static [Feature],
    /// No other pass can read what it writes, so none may come after it.
    pub last: bool,
    /// Later passes must survey what this pass writes, which goes to a temporary file in between. False only for a pass that changes nothing
    /// that a survey could learn: no time, id or mapping, and no record that it drops.
    pub barrier: bool,
    /// What to do if records cannot be read. Of several passes the strongest counts.
    pub damage: Damage,
}

impl Default for Needs {
    fn default() -> Self {
        Needs {
            records: Kinds::NONE,
            surveys: Vec::new(),
            decompressed: false,
            ids: false,
            stale: &[],
            last: false,
            barrier: true,
            damage: Damage::Tolerate,
        }
    }
}

/// What to do if records cannot be read.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Default, Debug)]
pub enum Damage {
    /// Damage that perf tolerates (pipe data or a zstd stream that ends inside a record) is reported as a loss; any other damage is an error.
    #[default]
    Tolerate,
    /// A zstd stream must be whole, too.
    Refuse,
    /// What can be read is kept, and the rest is reported as a loss.
    Salvage,
}
