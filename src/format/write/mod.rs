//! Writes a recording as a file or as pipe data, and changes feature sections of a file in place.

#[cfg(feature = "fs")]
mod create;
mod in_place;
#[cfg(feature = "fs")]
mod new_file;
mod pipe;
mod recording;
mod tail;

pub use in_place::*;
#[cfg(feature = "fs")]
pub use tempfile::{Builder, TempPath};

#[cfg(feature = "fs")]
pub use new_file::{NewFile, folder, plain, rename_new, temporary};
pub use pipe::{Unsaid, event_type_record, feature_record, pipe_front, tracing_data_record};
pub use recording::RecordingWriter;
pub use tail::write_tail;
