//! What several passes share.

pub(crate) mod hits;
pub(crate) mod ids;
pub(crate) mod options;
