//! Writes the front of pipe data, and changes feature sections of a file in place.

mod in_place;
mod pipe;

pub use in_place::*;
pub use pipe::{Unsaid, event_type_record, pipe_front};
