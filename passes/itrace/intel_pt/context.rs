//! The constant inputs of decoding.

use perfx_auxtrace::{Code, Recorded};
use perfx_format::Endian;

use super::events::Events;

/// The constant inputs of decoding.
#[derive(Debug)]
pub(super) struct Context {
    pub(super) recorded: Recorded,
    pub(super) code: Code,
    pub(super) events: Events,
    pub(super) endian: Endian,
    pub(super) threads: usize,
}
