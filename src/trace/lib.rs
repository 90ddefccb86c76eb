//! Decodes traces of executed instructions (Intel PT, CoreSight) into branches, times and errors, whatever
//! the bytes: without panic, in linear time and bounded memory.
//!
//! A trace contains only what the code does not: whether conditional branches were taken, where indirect ones
//! went, and when. The decoder walks the code from packet to packet and calls a [`Sink`]: with a [`Step`] for
//! each executed [`Block`], and an [`Event`] for everything else.
//!
//! ```text
//! trace   TIP.PGE 1000   TNT: taken          not taken          TIP 2000           TIP.PGD
//! code        └─► 1000: dec, jnz 1000 ─► 1000: dec, jnz 1000 ─► 1004: jmp *%rax ─► 2000: ret
//! sink    Event::Begin       Step                Step               Step           Step, Event::End
//! ```
//!
//! The caller describes
//! - the bytes: a [`Trace`], the pieces of one buffer of a CPU or thread in order, with a sorted list of its
//!   context [`Switch`]es;
//! - the processor: an [`intel_pt::Config`] or a [`coresight::Config`];
//! - the code: an [`Image`] that returns the mapping at an address of a [`Space`] at a time.
//!
//! The packets of both describe the flow alike: CoreSight's atoms are TNT bits, which direct jumps have, too,
//! and its addresses are TIP packets. So both share [`Blocks`] and the walk through them.

// Types of other packages contain those of this one, and derive Debug.
#![warn(missing_debug_implementations)]

/// The example of the README is compiled.
#[cfg(doctest)]
#[doc = include_str!("README.md")]
pub struct Readme;

mod a64;
mod block;
mod bytes;
pub mod coresight;
mod count;
mod flow;
mod image;
pub mod intel_pt;
mod kind;
mod listing;
mod path;
mod sink;
mod step;
mod visit;

pub use self::block::{Block, Blocks, instruction_length};
pub use self::bytes::Trace;
pub use self::count::{Counter, Ends, Joint, Place, Run, Sums};
pub use self::image::{Image, Mapping, Space, Switch, Switches};
pub use self::kind::Kind;
pub use self::listing::listing;
pub use self::path::Path;
pub use self::sink::{Event, Fault, Point, Reason, Sink, each_step};
pub use self::step::{BlockId, PathId, Step};
pub use self::visit::Visit;
