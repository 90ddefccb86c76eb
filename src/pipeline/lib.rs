//! Records flow from a reader through passes into a writer; what nobody asked for is copied as it is.

pub mod address_space;
mod ordered;
mod pass;
mod plan;
mod report;
mod run;
mod scan;
mod sink;

pub use pass::{Emit, Needs, Pass, Place, Session, worker_as};
pub use report::{Level, Report, counted};
pub use run::{Job, Outcome, Output, OutputForm, Schedule, expanded};
pub use scan::scan;
