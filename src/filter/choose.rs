//! The last survey of `filter`: finds the kept samples and what they need.

use std::sync::Arc;

use perfx_format::read::Batch;
use perfx_format::{Kinds, Layouts, Record};
use perfx_pipeline::{Fork, Place, Result, Session, Stage, Survey};

use crate::chooser::{Chooser, Lookups};
use crate::chosen::ChosenSamples;
use crate::cut::{CutRecords, FilterPlan};

pub(crate) struct Choose {
    chooser: Arc<Chooser>,
    lookups: Lookups,
    chosen: ChosenSamples,
}

impl Choose {
    pub(crate) fn new(chooser: Arc<Chooser>) -> Choose {
        Choose { lookups: chooser.lookups(), chooser, chosen: ChosenSamples::default() }
    }
}

impl Survey for Choose {
    fn begin_batch(&mut self, batch: &Batch, declared: Kinds) -> Kinds {
        self.chosen.turn_to(Place::of_batch(batch));
        if self.chooser.may_choose_of(batch) { declared } else { Kinds::NONE }
    }

    fn record(&mut self, record: &Record<'_>, layouts: &Layouts) -> Result<()> {
        self.chosen.look_at(record, layouts, &self.chooser, &mut self.lookups);
        Ok(())
    }

    fn end(mut self, session: &mut Session) -> Result<Stage> {
        self.chosen.turn_to(None);
        let cut = CutRecords::new(FilterPlan::new(self.chooser, self.chosen, None, &session.events));
        Ok(Stage::begin(|begin| Ok(cut.begin(begin))))
    }
}

impl Fork for Choose {
    fn fork(&self) -> Choose {
        let chooser = self.chooser.clone();
        Choose::new(chooser)
    }

    fn absorb(&mut self, later: Choose) {
        self.chosen.join(later.chosen);
    }
}
