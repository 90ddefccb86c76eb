//! `sort` sorts the records of a recording by time. A sorted recording stays unchanged.

use clap::Args;
use perfx_pipeline::{Pass, Result};

use crate::combine::{Combine, CombineOptions};
use crate::support::options::PassOptions;

/// The options of `sort`, which has none.
#[derive(Args, Clone, Copy, Debug)]
pub struct SortArgs {}

impl PassOptions for SortArgs {
    const NAME: &'static str = "sort";
    const ABOUT: &'static str = "put records in time order";

    fn pass(self) -> Result<Box<dyn Pass>> {
        Ok(Box::new(sort()))
    }
}

/// The pass.
pub fn sort() -> Combine {
    Combine::new(SortArgs::NAME, CombineOptions::default())
}
