//! What several passes share.

pub(crate) mod hits;
pub(crate) mod ids;
pub(crate) mod names;
pub(crate) mod options;
