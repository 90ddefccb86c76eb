//! Makes the samples of the parts of traces on the threads that decode them, as if one thread had decoded all in order.
//!
//! A thread notes what it decodes of a part in a [`Log`]. In its turn, when all parts in front of it in the buffer have been
//! noted, the [`Sampler`] of the buffer goes on to the end of the notes. [`Turns`] is the work of
//! [`decode`](perfx_auxtrace::decode) that does both, and what it makes of a part are
//! the samples in a [`Spool`](spool::Spool), which [`Merge`] hands out in the order of time.

mod log;
mod merge;
mod room;
mod skip;
mod spool;
mod turn;
mod turns;

pub(super) use self::log::{Entry, Notes};
pub(super) use self::merge::Merge;
pub(super) use self::room::Room;
pub(super) use self::skip::Skip;
pub(super) use self::spool::Spool;
pub(super) use self::turns::{Sampler, Samples, Turns};
