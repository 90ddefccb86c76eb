//! The code that ran, as the pass finds it.

use perfx_auxtrace::{Clock, Code, Recorded, traced_code};
use perfx_pipeline::{Result, Session};
use perfx_resolve::{IdOptions, RecordedIds};

/// The code of a recording, also that in files that earlier passes have made. `build_ids` are its HEADER_BUILD_ID records.
pub(super) fn of<T>(
    places: &IdOptions,
    recorded: &mut Recorded<T>,
    clock: Clock,
    build_ids: &[Vec<u8>],
    session: &Session,
) -> Result<Code> {
    let dsos: Vec<_> = recorded.dsos().map(|(dso, flags, _)| (dso.clone(), flags)).collect();
    let mut ids = RecordedIds::new(session.features(), session.endian, &dsos);
    ids.learn_records(build_ids, session.endian);
    let code =
        traced_code(places, recorded, clock, &ids, (session.features(), session.endian, &session.name));
    code.take_bytes(&session.made_files()?);
    Ok(code)
}
