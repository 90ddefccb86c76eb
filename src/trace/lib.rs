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
//!
//! ```
//! use perfx_trace::{Blocks, Event, Image, Mapping, Point, Sink, Space, Step, Trace, intel_pt};
//!
//! /// `loop: dec ecx; jnz loop; jmp loop` at 0x1000.
//! struct Code;
//!
//! impl Image for Code {
//!     fn code(&self, _space: Option<Space>, ip: u64, _time: u64) -> Option<Mapping<'_>> {
//!         const BYTES: &[u8] = &[0xff, 0xc9, 0x75, 0xfc, 0xeb, 0xfa];
//!         let mapping = Mapping { id: 1, start: 0x1000, bytes: BYTES, until: u64::MAX };
//!         (0x1000..0x1006).contains(&ip).then_some(mapping)
//!     }
//! }
//!
//! #[derive(Default)]
//! struct Taken(Vec<(u64, u64)>);
//!
//! impl Sink for Taken {
//!     fn step(&mut self, blocks: &Blocks, _point: &Point, step: Step) {
//!         if let Some(to) = step.to {
//!             self.0.push((blocks[step.block].last, blocks[to].start));
//!         }
//!     }
//!     fn event(&mut self, _blocks: &Blocks, _point: &Point, event: Event) {
//!         assert!(!matches!(event, Event::Fault(_)));
//!     }
//! }
//!
//! let psb = [2, 0x82].repeat(8);
//! // TIP.PGE to 0x1000, PSBEND before it; the branches T, N, T; TIP.PGD follows the jump.
//! let bytes = [&psb[..], &[2, 0x23, 0x71, 0, 0x10, 0, 0, 0, 0, 0b11010]].concat();
//! let config = intel_pt::Config::default();
//! let trace = Trace::new(vec![&bytes], Vec::new());
//! let mut taken = Taken::default();
//! let mut decoder = intel_pt::Decoder::new(&Code, config);
//! for unit in intel_pt::units(&trace, &config, u64::MAX) {
//!     decoder.decode(&trace, &unit, &mut taken);
//! }
//! assert_eq!(taken.0, [(0x1002, 0x1000), (0x1004, 0x1000), (0x1002, 0x1000)]);
//! ```

// Types of other packages contain those of this one, and derive Debug.
#![warn(missing_debug_implementations)]

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
