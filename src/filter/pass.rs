//! The pass `filter`: its rules, and its first survey.
//!
//! A *process* is kept if it, or a descendant, owns a kept sample (a child inherits its parent's mappings).
//! If only times, kinds and machines are selected, it is also kept if it is alive in a window. MMAP, MMAP2,
//! COMM, FORK, EXIT, NAMESPACES and ITRACE_START of kept processes are kept up to the end of the last window,
//! as are all records of the kernel's address space (its MMAPs, KSYMBOL, BPF_EVENT, TEXT_POKE), CGROUP, and
//! records of unknown kinds. Chunks of AUX data are cut if their format is known.

use std::sync::Arc;

use perfx_format::read::{Batch, Recording};
use perfx_format::{Kinds, Layouts, Record, RecordType};
use perfx_pipeline::{Fork, Level, Needs, Pass, Result, Session, Stage, Survey};

use crate::choice::FilterOptions;
use crate::choose::Choose;
use crate::chooser::Chooser;
use crate::cut::{CutRecords, NAME};
use crate::find_functions::{self, LearnFacts};
use crate::gathered::Gathered;

/// The pass.
#[derive(Clone, Debug)]
pub struct Filter {
    options: Arc<FilterOptions>,
}

struct Gather {
    options: Arc<FilterOptions>,
    gathered: Gathered,
}

impl Filter {
    /// The name of the pass.
    pub const NAME: &'static str = NAME;

    /// The pass with these options.
    pub fn new(options: FilterOptions) -> Filter {
        Filter { options: Arc::new(options) }
    }
}

impl Pass for Filter {
    fn name(&self) -> &'static str {
        Filter::NAME
    }

    fn needs(&self, _input: &Recording) -> Needs {
        let mut surveys = vec![Gathered::kinds(&self.options)];
        if self.options.chooses_functions() {
            surveys.extend(find_functions::kinds());
        }
        surveys.push(Kinds::of(&[RecordType::SAMPLE]));
        Needs { surveys, ..CutRecords::needs() }
    }

    fn start(self: Box<Self>, _input: &Recording) -> Stage {
        let gather = Gather { gathered: Gathered::new(&self.options), options: self.options };
        // The meaning of a mapping depends on those before it.
        if gather.gathered.changes.is_some() { Stage::survey_in_order(gather) } else { Stage::survey(gather) }
    }
}

impl Survey for Gather {
    fn begin_batch(&mut self, batch: &Batch, declared: Kinds) -> Kinds {
        self.gathered.count_samples(batch);
        declared.without(RecordType::SAMPLE)
    }

    fn record(&mut self, record: &Record<'_>, layouts: &Layouts) -> Result<()> {
        self.gathered.look_at(record, layouts, &self.options);
        Ok(())
    }

    fn end(self, session: &mut Session) -> Result<Stage> {
        let known = (&session.all_events()[..], session.features(), session.endian);
        let chooser = Chooser::new(self.gathered, &self.options, known);
        let chooser = Arc::new(chooser.map_err(|error| error.in_file(&session.name))?);
        if let Some(doubt) = &chooser.doubt {
            session.report.say(Level::Warning, doubt.clone());
        }
        chooser.hints.taken().iter().for_each(|line| session.report.say(Level::Info, line));
        if self.options.chooses_functions() {
            return Ok(Stage::survey_in_order(LearnFacts::new(chooser)));
        }
        Ok(Stage::survey(Choose::new(chooser)))
    }
}

impl Fork for Gather {
    fn fork(&self) -> Gather {
        Gather { options: self.options.clone(), gathered: Gathered::new(&self.options) }
    }

    fn absorb(&mut self, later: Gather) {
        self.gathered.join(later.gathered);
    }
}
