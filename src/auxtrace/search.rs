//! Searches for the code that ran.

use perfx_format::Endian;
use perfx_format::header::Features;
use perfx_resolve::{
    IdOptions, RecordedIds, can_have_id, guest_sources, kcore_of, object_of, recorded_on, sources,
};

use crate::clock::Clock;
use crate::image::{Code, Known};
use crate::recorded::Recorded;

/// Searches `places` for the code of a recording with these build-ids, features, byte order and name.
pub fn traced_code(
    places: &IdOptions,
    recorded: &mut Recorded,
    clock: Clock,
    ids: &RecordedIds,
    (features, endian, name): (&Features, Endian, &str),
) -> Code {
    let known = recorded.dsos().map(|(dso, flags, pid)| {
        let is_file = can_have_id(dso, flags);
        is_file.then(|| Known { object: object_of(dso, pid), id: ids.get(dso) })
    });
    let known = known.collect();
    let recorded_on = recorded_on(features, endian);
    let sources = (sources(places, !places.is_foreign(), &recorded_on), guest_sources(places, &recorded_on));
    Code::new(recorded, clock, known, sources, kcore_of(name)).with_programs(features, endian)
}
