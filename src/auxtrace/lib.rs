//! Decodes the instruction traces of a recording on many threads, with results in time order: finds the AUX
//! data, the code, and which thread ran where and when.
//!
//! 1. A [`Survey`] takes in the records of [`Survey::kinds`] in file order, and ends as a [`Tracer`] with its traces and a
//!    [`Recorded`].
//! 2. [`Code`] is the [`Image`](perfx_trace::Image) that `perfx-trace` decodes with. Its caller supplies the
//!    object and the build-id of each DSO, see [`Known`].
//! 3. [`Tracer::decode`] cuts the traces at sync points, gives the parts to threads in time order, and passes
//!    on their results in that order.
//!
//! Each tracer has a module of its own: [`IntelPt`] is decoded buffer by buffer, and [`CoreSight`] piece by
//! piece, since the data of several trace units is mixed in a buffer. A new tracer is a module here, a
//! variant of [`Tracer`], whose `match`es the compiler then reports as incomplete, and a decoder of its
//! packets in `perfx-trace`.

mod buffer;
mod calls;
mod clock;
mod coresight;
mod decode;
mod filters;
mod functions;
mod image;
mod intel_pt;
mod kept;
mod kernel;
mod listing;
mod mappings;
mod needed;
mod overlap;
mod pieces;
mod places;
mod pokes;
mod presence;
mod programs;
mod recorded;
mod report;
mod running;
mod sampled;
mod sched_switch;
mod search;
mod summary;
mod survey;
mod tracer;

pub use self::buffer::Buffer;
pub use self::calls::{Calls, Change};
pub use self::clock::Clock;
pub use self::coresight::{CoreSight, Piece, TraceUnit};
pub use self::decode::{Part, Split, UNIT, Work};
pub use self::functions::Function;
pub use self::image::{Code, Known, Used};
pub use self::intel_pt::IntelPt;
pub use self::kernel::KernelText;
pub use self::listing::{ListedPacket, Listing, trace_of};
pub use self::needed::Needed;
pub use self::pieces::{ByThread, PieceOrder};
pub use self::places::Places;
pub use self::presence::Presence;
pub use self::recorded::{Counter, Lost, Recorded};
pub use self::report::{
    say_faults, say_missing, say_spe_losses, say_unknown_threads, say_unknown_units, say_used,
};
pub use self::running::{Task, Vcpu};
pub use self::search::traced_code;
pub use self::summary::Summary;
pub use self::survey::Survey;
pub use self::tracer::{Atoms, Tracer};
