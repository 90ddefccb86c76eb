//! `join` merges the records of several recordings of one machine into one recording, in time order. Equal
//! events become one event, and records that several inputs share are written once.

use std::ffi::OsString;

use clap::Args;
use perfx_pipeline::{Pass, Result};

use crate::combine::spec::{InputSpec, offset};
use crate::combine::{Combine, CombineOptions, Joined};
use crate::support::options::PassOptions;

/// The options of `join` on the command line.
#[derive(Args, Clone, Debug)]
pub struct JoinArgs {
    /// Another recording, PATH[,offset=NS]; repeatable
    #[arg(long, value_name = "INPUT")]
    with: Vec<OsString>,
    /// How far the first input's clock is ahead
    #[arg(long, value_name = "NS", allow_hyphen_values = true, value_parser = offset)]
    offset: Option<i64>,
    /// Join recordings of different machines or boots
    #[arg(long)]
    mix: bool,
}

impl PassOptions for JoinArgs {
    const NAME: &'static str = "join";
    const ABOUT: &'static str = "join several recordings of one machine, in time order";

    fn pass(self) -> Result<Box<dyn Pass>> {
        let named = |path: &OsString| Ok(Joined::Named(InputSpec::parse(path)?));
        let others = self.with.iter().map(named).collect::<Result<_>>()?;
        let JoinArgs { offset, mix, .. } = self;
        Ok(Box::new(join(CombineOptions { offset, others, mix, take_kcore: false })))
    }
}

/// The pass with these options.
pub fn join(options: CombineOptions) -> Combine {
    Combine::new(JoinArgs::NAME, options)
}
