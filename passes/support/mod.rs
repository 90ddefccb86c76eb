//! Code shared by several passes.

pub(crate) mod event_desc;
pub(crate) mod event_ids;
pub(crate) mod factor;
pub(crate) mod features;
pub(crate) mod id_index;
pub(crate) mod options;
pub(crate) mod switched_out;
#[cfg(test)]
pub(crate) mod tiny;
#[cfg(test)]
mod tiny_file;
pub(crate) mod tracepoints;
