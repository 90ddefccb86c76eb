//! Chooses the event that is shown of recordings with several events: the same one in all of them.

use perfx_format::event_name::without_modifiers;
use perfx_pipeline::{Result, bail};
use perfx_resolve::Facts;

use crate::stacks::Stacks;

/// The event that is shown, as chosen in the first recording that has samples.
#[derive(Clone, Default, Debug)]
pub struct ShownEvent(Option<Vec<u8>>);

impl ShownEvent {
    /// The number of the event in a recording; `None` if the recording has no samples. In the first recording it is
    /// [`Stacks::first_event`], in the others the event with that name, apart from modifiers: `cpu-clock:ppp` is
    /// `cpu-clock`.
    ///
    /// # Errors
    ///
    /// The recording has samples, but none of that event.
    pub fn of(&mut self, recording: &str, stacks: &Stacks, facts: &Facts) -> Result<Option<u32>> {
        let Some(first) = stacks.first_event(facts) else { return Ok(None) };
        let name = |event: u32| facts.events.get(event as usize).map_or(&b""[..], |event| &event.name);
        let shown = self.0.get_or_insert_with(|| name(first).to_vec());
        let same = |event: &u32| without_modifiers(name(*event)) == without_modifiers(shown);
        let exact = stacks.times.keys().copied().find(|&event| name(event) == shown);
        let Some(event) = exact.or_else(|| stacks.times.keys().copied().find(same)) else {
            let text = |name: &[u8]| String::from_utf8_lossy(name).into_owned();
            let sampled: Vec<String> = stacks.times.keys().map(|&event| text(name(event))).collect();
            bail!(
                "{recording}: has no samples of {}, the event chosen in the first recording, only of {}; --event \
                 selects events",
                text(shown),
                sampled.join(", ")
            );
        };
        Ok(Some(event))
    }
}
