//! Collects the figures of a recording from several threads.

use std::collections::HashMap;
use std::sync::{Arc, Mutex, PoisonError};

use anyhow::Result;
use perfx_format::event_name::event_names;
use perfx_format::header::Severity;
use perfx_format::read::Recording;
use perfx_look::LiveCount;

#[derive(Clone, Default)]
pub(super) struct Seen(Arc<Mutex<Figures>>);

#[derive(Clone, Default)]
pub(super) struct Figures {
    /// As stored.
    pub(super) bytes: u64,
    pub(super) count: LiveCount,
    /// The names of events, in the order of the counts.
    pub(super) names: Vec<String>,
}

impl Seen {
    pub(super) fn now(&self) -> Figures {
        self.0.lock().unwrap_or_else(PoisonError::into_inner).clone()
    }

    fn update(&self, change: impl FnOnce(&mut Figures)) {
        change(&mut self.0.lock().unwrap_or_else(PoisonError::into_inner));
    }

    /// Counts the records of a stream until it ends.
    pub(super) fn count(&self, mut recording: Recording) -> Result<()> {
        self.name_events(&recording);
        let is_torn = recording.faults.iter().any(|fault| fault.severity >= Severity::Loss);
        self.update(|figures| figures.count.torn |= is_torn);
        recording = recording.live();
        for batch in recording.decompressed() {
            let mut count = LiveCount::default();
            count.add(&batch?)?;
            self.update(|figures| figures.count.join(&count));
        }
        Ok(())
    }

    fn name_events(&self, recording: &Recording) {
        let names = event_names(recording, &HashMap::new());
        let names: Vec<String> =
            names.iter().map(|event| String::from_utf8_lossy(&event.name).into_owned()).collect();
        self.update(|figures| figures.names = names);
    }

    pub(super) fn add_bytes(&self, bytes: u64) {
        self.update(|figures| figures.bytes += bytes);
    }
}
