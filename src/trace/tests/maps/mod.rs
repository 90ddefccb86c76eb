//! Finds the recordings in tests/data/trace, and keeps the code that they map.

use std::path::{Path, PathBuf};

use perfx_format::KERNEL_PID;
use perfx_trace::{Image, Mapping, Space};

pub(crate) fn folder() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../../tests/data/trace")
}

/// The mappings of a recording, each with its pid.
#[derive(Default)]
pub(crate) struct Maps(pub(crate) Vec<(u32, u64, Vec<u8>)>);

impl Image for Maps {
    fn code(&self, space: Option<Space>, ip: u64, _time: u64) -> Option<Mapping<'_>> {
        let mut maps = self.0.iter().enumerate();
        let found = maps.find(|(_, (pid, start, bytes))| {
            let is_its = *pid == KERNEL_PID || Some(Space(*pid)) == space;
            is_its && ip.checked_sub(*start).is_some_and(|at| at < bytes.len() as u64)
        });
        let (at, (_, start, bytes)) = found?;
        Some(Mapping { id: at as u64, start: *start, bytes, until: u64::MAX })
    }
}
