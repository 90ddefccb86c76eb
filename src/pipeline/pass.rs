//! The contract of a pass: it surveys the recording as often as necessary, and then rewrites it.
//!
//! A [`Pass`] is the plan: its name, its needs, and its first [`Stage`]. A [`Survey`] reads all records of
//! some kinds and returns the next stage. A [`Rewrite`] is the last stage, through which records go to the
//! output; [`Stage::begin`] creates it when all surveys are finished, and can change events and features
//! before the first record is written. So each stage is a type with only the data it needs, and the result of
//! a survey moves into the stage that uses it.
//!
//! Batches of records go through a stage one after the other, in file order, unless the stage implements
//! [`Fork`]: then each batch gets its own worker, on any thread, and the workers are absorbed in file order.
//! The bytes written are the same for any number of threads. The README of the package perfx-passes describes
//! the order of all calls of a chain, and how a pass learns the name of a thread at a time.
//!
//! A method that fails returns an [`Error`](crate::Error). `?` converts an error of perfx-format or std::io,
//! [`Context`](crate::Context) converts any other error or an absent value, and [`ensure!`](crate::ensure)
//! and [`bail!`](crate::bail) make one from a text. The pipeline adds the file, the pass, and the kind and
//! place of the record.
//!
//! A complete pass, which drops the EXIT records of processes that never ran (no sample has their pid):
//!
//! ```
//! use std::collections::BTreeSet;
//!
//! use perfx_format::read::Recording;
//! use perfx_format::{Kinds, Layouts, Record, RecordType, Task};
//! use perfx_pipeline::{Emit, Fork, Needs, Pass, Result, Rewrite, Session, Stage, Survey, ensure};
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
//!     fn end(self, session: &mut Session) -> Result<Stage> {
//!         ensure!(!self.0.is_empty(), "{}: no sample has a pid", session.name);
//!         Ok(Stage::rewrite_in_order(DropExits(self.0)))
//!     }
//! }
//!
//! impl Fork for Running {
//!     fn fork(&self) -> Running {
//!         Running::default()
//!     }
//!
//!     fn absorb(&mut self, later: Running) {
//!         self.0.extend(later.0);
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

use perfx_format::read::{Batch, Recording};
use perfx_format::{Kinds, Layouts, Record};

use crate::emit::Emit;
use crate::error::Result;
use crate::needs::{Interest, Needs};
use crate::session::{Place, Session};
use crate::stage::Stage;

/// A transformation that has not started: its name, its needs, and its first stage.
pub trait Pass: Send {
    /// Its name in `perfx run -p`, in kebab-case.
    fn name(&self) -> &'static str;

    /// The requirements, merged with those of the other passes and checked before any byte is written.
    fn needs(&self, _input: &Recording) -> Needs {
        Needs::default()
    }

    /// The first stage: a survey if [`Needs::surveys`] has any, else the rewrite or [`Stage::begin`].
    fn start(self: Box<Self>, input: &Recording) -> Stage;
}

/// A read-only walk through the recording before any pass changes it.
pub trait Survey: Sized + Send + 'static {
    /// Called before a batch. Returns the kinds that it needs from this batch, out of the `declared` ones
    /// (its entry of [`Needs::surveys`]).
    fn begin_batch(&mut self, _batch: &Batch, declared: Kinds) -> Kinds {
        declared
    }

    /// Reads a record, decompressed if necessary. By default, [`Survey::begin_batch`] does the work.
    ///
    /// # Errors
    ///
    /// The run fails with it; the file and the place are added.
    fn record(&mut self, _record: &Record<'_>, _layouts: &Layouts) -> Result<()> {
        Ok(())
    }

    /// Called after the last record. Returns the next stage: another survey, or the rewrite.
    ///
    /// # Errors
    ///
    /// The recording cannot be processed. The run fails before anything is written.
    fn end(self, session: &mut Session) -> Result<Stage>;
}

/// The stage that records go through on their way to the output. By default, all records are copied.
pub trait Rewrite: Sized + Send + 'static {
    /// Called before a batch, for the first pass of a chain only: the others see its output.
    fn begin_batch(&mut self, _batch: &Batch) -> Interest {
        Interest::AsDeclared
    }

    /// Called for a record of the kinds in [`Needs::records`], or at a place given to
    /// [`Begin::want_at`](crate::Begin::want_at): keeps, patches, replaces or drops it, and may put others
    /// before or after it.
    ///
    /// # Errors
    ///
    /// The run fails with it and leaves no output. The pass, the place and the kind are added.
    fn record(&mut self, record: Record<'_>, out: &mut Emit<'_>) -> Result<()> {
        out.keep(record)
    }

    /// Called after a batch's last record, to emit what is still buffered. Batches depend only on the input.
    ///
    /// # Errors
    ///
    /// As for [`Rewrite::record`].
    fn end_batch(&mut self, _out: &mut Emit<'_>) -> Result<()> {
        Ok(())
    }

    /// Called after the input's last record. Appends records, a few MiB at a time, and returns true as long
    /// as there are more.
    ///
    /// # Errors
    ///
    /// As for [`Rewrite::record`].
    fn drain(&mut self, _out: &mut Emit<'_>) -> Result<bool> {
        Ok(false)
    }

    /// Called after everything is written: appends the last records, sets features, reports.
    ///
    /// # Errors
    ///
    /// As for [`Rewrite::record`].
    fn finish(&mut self, _session: &mut Session, _out: &mut Emit<'_>) -> Result<()> {
        Ok(())
    }
}

/// A stage that can process the batches of a recording in any order, each with its own worker.
pub trait Fork: Sized {
    /// Creates a worker for one batch.
    fn fork(&self) -> Self;

    /// Absorbs a worker's result. Called in file order.
    fn absorb(&mut self, later: Self);
}

/// A rewrite whose batches are read in advance by workers on any thread.
pub trait Prescanned: Rewrite {
    /// The type of the prescan's workers.
    type Prescan: Prescan;

    /// The value from which workers are forked.
    fn prescan(&self) -> Self::Prescan;

    /// Absorbs the prescan of the next batch, before its [`Rewrite::begin_batch`] or [`Fork::fork`]. Returns
    /// the places in this batch at which the rewrite needs the record, whatever its kind.
    ///
    /// # Errors
    ///
    /// As for [`Rewrite::record`].
    fn absorb_prescan(&mut self, prescan: Self::Prescan) -> Result<Vec<Place>>;
}

/// Reads a batch in advance.
pub trait Prescan: Sized + Send + 'static {
    /// Creates a worker for one batch.
    fn fork(&self) -> Self;

    /// Reads the batch.
    ///
    /// # Errors
    ///
    /// The batch cannot be read.
    fn batch(&mut self, batch: &Batch) -> Result<()>;
}
