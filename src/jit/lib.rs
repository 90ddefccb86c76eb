//! Converts a JIT compiler's jitdump into ELF images with symbols, source lines, unwind data and build-id.
//!
//! ```
//! use perfx_format::Endian;
//! use perfx_format::jitdump::{Dump, Load, Writer};
//! use perfx_jit::{Functions, Image, Target, arenas};
//!
//! let mut writer = Writer::new(Endian::Little, 62, 4711);
//! let (pid, tid) = (4711, 4711);
//! let load = Load { pid, tid, address: 0x7f00_0000, size: 1, index: 0, name: b"fib", code: &[0xc3] };
//! writer.load(1_000, &load);
//! let bytes = writer.into_bytes();
//!
//! let functions = Functions::of(&Dump::new(&bytes)?);
//! for arena in arenas(&functions.list) {
//!     let image = Image::new(&functions, &arena, Target::of(functions.header, None));
//!     let written = image.write(&tempfile::tempfile()?, 0)?;
//!     assert_eq!(image.place_of(0x7f00_0000), 0x1000);
//!     assert_ne!(written.build_id, [0; 20]);
//! }
//! # Ok::<(), Box<dyn std::error::Error>>(())
//! ```

// Types of other packages contain these, and derive Debug.
#![warn(missing_debug_implementations)]

mod arena;
mod functions;
mod image;
mod lines;
mod perf_map;
#[cfg(test)]
mod tests;
mod unwind;

pub use arena::{Arena, Member, arenas};
pub use functions::{Function, Functions};
pub use image::{Image, Target, Written};
