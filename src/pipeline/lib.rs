//! Sends records from a reader through passes into a writer, and copies verbatim what no pass changes.
//!
//! The way of a batch:
//!
//! ```text
//! reader thread     worker of the batch                                 main thread, in file order
//! find the batch ─► first pass ─► … ─► last pass ─► Planner ─► Plan ──► absorb the worker ─► Writer
//!      │            Emit::keep, put, drop            merges ranges      of each pass          copies ranges,
//!      └─ guess, verified by the previous batch      with new bytes                           writes bytes
//! ```

mod damage;
mod each_batch;
mod emit;
mod erased;
mod error;
mod expanded;
mod hidden;
mod job;
mod needs;
mod ordered;
mod output;
mod pass;
mod plan;
mod report;
mod rewrite;
mod scan;
mod schedule;
mod session;
mod share;
mod sink;
mod speculate;
mod stage;
mod survey;
mod text;
mod used_events;
mod writer;

pub use damage::{Damage, Purpose};
pub use emit::Emit;
pub use error::{Context, Error, Failure, NotLast, Result};
pub use job::{Job, Outcome};
pub use needs::{Interest, Needs};
pub use ordered::{ahead, ordered};
pub use output::{Output, OutputForm};
pub use pass::{Fork, Pass, Prescan, Prescanned, Rewrite, Survey};
pub use report::{LISTED, Level, Read, Report};
pub use scan::{scan, scan_both, scan_past, scan_two};
pub use schedule::Schedule;
pub use session::{Begin, Cached, Place, Session, SideFile};
pub use stage::Stage;
pub use text::{
    by_kind, count, counted, did_you_mean, is_typo, likeness, list, ranges, seconds, signed_seconds,
    wide_count,
};
pub use used_events::{
    UsedEvents, change_attr_of_each, change_attrs, changed_event_desc, leave_out_events, shorten_id_index,
};
pub use writer::zeros_before_data;
