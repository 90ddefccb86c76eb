//! `redact` removes data about the user and the machine from a recording, so that it can be published: names
//! become pseudonyms, and data that may contain anything is zeroed or cut out. Samples keep their addresses
//! and times.
//!
//! Every byte of the output is a decoded value that may stay, a pseudonym, or zero. Unknown bytes become
//! zeros, and unknown records and features are left out; both are reported as a loss.

mod done;
mod known;
mod names;
mod options;
mod plan;
mod raw;
mod remove;
mod survey;

use perfx_format::read::Recording;
use perfx_format::{Kinds, RecordType};
use perfx_pipeline::{Needs, Pass, Result, Stage};

use crate::scrub::needs;
use crate::support::options::PassOptions;
use remove::KEYED;
use survey::Learn;

pub use options::{Category, Redact, RedactArgs};

impl PassOptions for RedactArgs {
    const NAME: &'static str = "redact";
    const ABOUT: &'static str = "replace names by pseudonyms, and remove data about the user and the machine";

    fn pass(self) -> Result<Box<dyn Pass>> {
        Ok(Box::new(Redact::new(self)))
    }
}

impl Pass for Redact {
    fn name(&self) -> &'static str {
        RedactArgs::NAME
    }

    fn needs(&self, _input: &Recording) -> Needs {
        let kinds = if self.args.key.is_some() { Kinds::MAPPINGS } else { KEYED };
        needs(vec![kinds.union(Kinds::of(&[RecordType::FORK]))])
    }

    fn start(self: Box<Self>, _input: &Recording) -> Stage {
        Stage::survey(Learn::new(*self))
    }
}
