//! Code shared by several passes.

pub(crate) mod event_desc;
pub(crate) mod event_ids;
pub(crate) mod features;
pub(crate) mod options;
pub(crate) mod sample_time;
pub(crate) mod switched_out;
pub(crate) mod text;
pub(crate) mod tracepoints;
pub(crate) mod used_events;
