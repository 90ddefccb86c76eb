//! Records flow from a reader through passes into a writer; what nobody asked for is copied as it is.

pub mod address_space;
mod draft;
mod hidden;
mod ordered;
mod pass;
mod plan;
mod report;
mod run;
mod scan;
mod sink;
mod words;

pub use ordered::{ahead, ordered};
pub use pass::{Damage, Emit, Needs, Pass, Place, Scope, Session, worker_as};
pub use report::{LISTED, Level, Report};
pub use run::{Job, NotLast, Outcome, Output, OutputForm, Schedule, in_file, opened};
pub use scan::{scan, scan_both, scan_past, scan_two};
pub use words::{count, counted, did_you_mean, is_slip, wide_count};
