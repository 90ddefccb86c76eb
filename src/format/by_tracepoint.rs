//! Values computed once from the format of each tracepoint, for any number of events.

use std::collections::HashMap;

use crate::features::{formats_by_id, trace_formats};
use crate::header::Features;
use crate::tracepoint::TraceFormat;
use crate::{Endian, Event, Feature};

/// Values computed from the formats of tracepoints, for the events of a recording.
#[derive(Clone, Default, Debug)]
pub struct ByTracepoint<T> {
    made: Vec<T>,
    events: Vec<Option<usize>>,
}

impl<T> ByTracepoint<T> {
    /// Computes a value from the format of each event's tracepoint, if feature TRACING_DATA has it.
    pub fn new<'t>(
        events: &[Event],
        features: &'t Features,
        endian: Endian,
        mut make: impl FnMut(&TraceFormat<'t>) -> T,
    ) -> ByTracepoint<T> {
        let section = features.get(&Feature::TRACING_DATA);
        let formats = section.map(|section| trace_formats(section, endian)).unwrap_or_default();
        let formats = formats_by_id(&formats);
        let (mut made, mut numbers) = (Vec::new(), HashMap::new());
        let number = |event: &Event| {
            let attr = event.attr();
            let format = formats.get(&attr.config).filter(|_| attr.is_tracepoint())?;
            let number = numbers.entry(attr.config).or_insert_with(|| {
                made.push(make(format));
                made.len() - 1
            });
            Some(*number)
        };
        let events = events.iter().map(number).collect();
        ByTracepoint { made, events }
    }

    /// The value of the event with this number; `None` if that is not a tracepoint with a format.
    pub fn get(&self, event: usize) -> Option<&T> {
        self.events.get(event).copied().flatten().map(|number| &self.made[number])
    }

    /// All values.
    pub fn values(&self) -> impl ExactSizeIterator<Item = &T> {
        self.made.iter()
    }

    /// Converts each value.
    ///
    /// # Errors
    ///
    /// The first error of `make`.
    pub fn try_map<U, E>(self, make: impl FnMut(T) -> Result<U, E>) -> Result<ByTracepoint<U>, E> {
        let made = self.made.into_iter().map(make).collect::<Result<_, _>>()?;
        Ok(ByTracepoint { made, events: self.events })
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::Attr;
    use crate::features::TracingData;

    #[test]
    fn a_format_is_parsed_once_however_many_events_have_it() {
        let format = |id| format!("name: it{id}\nID: {id}\nformat:\n");
        let formats = [1, 2, 3].map(format);
        let parts = [
            &b"\x17\x08\x44tracing0.6\0\0\x08\0\x10\0\0header_page\0"[..],
            &[0; 8],
            b"header_event\0",
            &[0; 24],
        ];
        let empty = parts.concat();
        let mut data = TracingData::read(&empty).unwrap();
        data.systems = vec![(b"s", formats.iter().map(String::as_bytes).collect())];
        let features = Features::from([(Feature::TRACING_DATA, data.write().unwrap().into())]);
        let event =
            |(type_, config)| Event::made(&Attr { type_, config, ..Attr::default() }, vec![], Endian::Little);
        // PERF_TYPE_TRACEPOINT, and another type.
        let events = [(2, 2), (2, 1), (1, 1), (2, 2), (2, 4)].map(event);
        let mut parsed = Vec::new();
        let made = ByTracepoint::new(&events, &features, Endian::Little, |format| {
            parsed.push(format.id);
            format.id.unwrap()
        });
        assert_eq!(parsed, [Some(2), Some(1)]);
        assert_eq!(
            [0, 1, 2, 3, 4, 5].map(|event| made.get(event).copied()),
            [Some(2), Some(1), None, Some(2), None, None]
        );
    }
}
