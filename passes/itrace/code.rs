//! The code that ran, as the pass finds it.

use perfx_auxtrace::{Clock, Code, Known, Recorded};
use perfx_format::Endian;
use perfx_format::header::Features;
use perfx_pipeline::{Level, Report, Result, Session, counted};

use super::found::learn_ids;
use perfx_resolve::{IdOptions, RecordedIds, can_have_id, kcore_of, object_of, recorded_on, sources};

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
    learn_ids(&mut ids, build_ids, session.endian);
    let code =
        traced_code(places, recorded, clock, &ids, (session.features(), session.endian, &session.name));
    code.take_bytes(&session.made_files()?);
    Ok(code)
}

/// The code of a recording with these build-ids, features, byte order and name, searched for in the places of `places`.
pub fn traced_code<T>(
    places: &IdOptions,
    recorded: &mut Recorded<T>,
    clock: Clock,
    ids: &RecordedIds,
    (features, endian, name): (&Features, Endian, &str),
) -> Code {
    let known = recorded.dsos().map(|(dso, flags, pid)| {
        let is_file = can_have_id(dso, flags);
        is_file.then(|| Known { object: object_of(dso, pid), id: ids.get(dso) })
    });
    let known = known.collect();
    let sources = sources(places, !places.no_files(), &recorded_on(features, endian));
    Code::new(recorded, clock, known, sources, kcore_of(name))
}

/// Reports the files whose code was used, and what is not known of it.
pub fn say_used(code: &Code, report: &mut Report) {
    for used in code.used() {
        let name = String::from_utf8_lossy(&used.name);
        let id = used.id.map_or_else(|| "no build-id".to_owned(), |id| format!("build-id {id}"));
        let path = used.path.as_ref().map(|path| path.to_string_lossy());
        let place = path.filter(|path| *path != name).map_or_else(String::new, |path| format!(": {path}"));
        report.say(Level::Info, format!("used the code of {name}, {id}{place}"));
    }
    let ignored = code.ignored_changes();
    if ignored > 0 {
        let changes = counted(ignored, "change", "changes");
        let what = format!(
            "{changes} of the kernel's code (TEXT_POKE) are too many, or too long: what was decoded there may be wrong"
        );
        report.say(Level::Warning, what);
    }
}
