//! `filter` keeps the selected samples and the records that readers need for them (see `perfx-filter`).

use perfx_filter::{Filter, FilterArgs};
use perfx_pipeline::{Pass, Result};

use crate::support::options::PassOptions;

impl PassOptions for FilterArgs {
    const NAME: &'static str = Filter::NAME;
    const ABOUT: &'static str = "keep only samples selected by time, process, CPU, event, DSO and more, and the \
        records readers need for them";

    fn pass(self) -> Result<Box<dyn Pass>> {
        Ok(Box::new(Filter::new(self.try_into()?)))
    }
}
