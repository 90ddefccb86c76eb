//! What the events of a recording are called.

use perfx_format::Feature;
use perfx_format::features::read_event_desc;
use perfx_pipeline::Session;

/// The name of each event, in the order of the attrs; empty where nothing says it.
pub(crate) fn event_names(session: &Session) -> Vec<Vec<u8>> {
    let section = session.feature(Feature::EVENT_DESC);
    let said = section.and_then(|section| read_event_desc(section, session.endian)).unwrap_or_default();
    let by_id = |id: &u64| said.iter().find(|event| event.ids.contains(id));
    let events = session.events.iter().enumerate();
    let name = |(index, event): (usize, &perfx_format::Event)| {
        let known = event.ids.iter().find_map(by_id).or_else(|| said.get(index));
        known.map_or_else(Vec::new, |event| event.name.to_vec())
    };
    events.map(name).collect()
}
