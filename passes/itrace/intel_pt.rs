//! Makes samples of the traces of Intel PT, as perf 7.3 does.

mod batches;
mod context;
mod events;
mod log;
mod losses;
mod sampler;
mod stacks;
mod turns;

use std::path::Path;
use std::sync::{Arc, Mutex, PoisonError};

use perfx_auxtrace::{Code, Known};
use perfx_format::read::{KCORE_DIR, StoredBytes};
use perfx_format::{Layouts, Record};
use perfx_pipeline::{Begin, Context as _, Emit, Level, Report, Result, Session, Stage, counted};

use self::context::Context;
use self::events::Events;
use self::losses::Counts;
use super::found::{Found, NAME, learn_ids};
use super::options::ItraceOptions;
use super::step::{Decode, Decoder};
use crate::combine::{Batches, Combine};
use crate::support::ids::{IdOptions, RecordedIds, can_have_id, object_of, recorded_on};

/// The stage that decodes the recording.
pub(super) fn stage(
    (options, letters): (&ItraceOptions, &str),
    places: &IdOptions,
    found: Found,
    stored: &StoredBytes,
    session: &Session,
) -> Result<Stage> {
    let in_file = || session.name.to_string();
    options.check_for_pt(letters).with_context(in_file)?;
    let mut recorded = found.traces.done(stored, &session.events).with_context(in_file)?;
    let events = Events::of(options, &recorded, &session.events).with_context(in_file)?;
    let dsos: Vec<_> = recorded.dsos().map(|(dso, flags, _)| (dso.clone(), flags)).collect();
    let mut ids = RecordedIds::new(session.features(), session.endian, &dsos);
    learn_ids(&mut ids, &found.build_ids, session.endian);
    let known = recorded.dsos().map(|(dso, flags, pid)| {
        let is_file = can_have_id(dso, flags);
        is_file.then(|| Known { object: object_of(dso, pid), id: ids.get(dso) })
    });
    let known = known.collect();
    let sources = sources(places, session);
    let kcore = Some(Path::new(&*session.name).join(KCORE_DIR).join("kcore")).filter(|kcore| kcore.is_file());
    let code = Code::new(&mut recorded, known, sources, kcore);
    let decoded = events.decoded();
    let context = Context { recorded, code, events, endian: session.endian, threads: session.threads };
    let pt = Pt { context: Arc::new(context), counts: Arc::default() };
    Ok(Combine::with_step(NAME, Decode::new(pt, decoded, found.names)).stage())
}

/// The places in which code is searched for.
fn sources(ids: &IdOptions, session: &Session) -> symbols::Sources {
    let recorded_on = recorded_on(session.features(), session.endian);
    // perf searches its own cache without being told.
    let own = build_id::home().filter(|_| !ids.no_files()).map(|home| home.join(".debug"));
    let caches: Vec<_> = ids.caches().iter().cloned().chain(own.filter(|own| own.is_dir())).collect();
    let sources = symbols::Sources::new(!ids.no_files(), ids.roots(), &caches, &recorded_on);
    sources.with_debuginfod(ids.debuginfod().cloned()).with_kernel(ids.kernel().cloned())
}

/// Makes samples.
#[derive(Debug)]
struct Pt {
    context: Arc<Context>,
    counts: Arc<Mutex<Counts>>,
}

impl Decoder for Pt {
    fn begin(&mut self, session: &mut Begin<'_>) {
        if self.context.recorded.clock().conv.is_none() {
            let what = "the time-stamp counter cannot be converted to times, so decoded samples have none";
            session.report.say(Level::Warning, what);
        }
    }

    fn samples(&mut self) -> Option<Batches> {
        Some(batches::of(self.context.clone(), self.counts.clone()))
    }

    fn sample(&mut self, record: Record<'_>, _layouts: &Layouts, out: &mut Emit<'_>) -> Result<()> {
        out.keep(record)
    }

    fn see(&mut self, _record: &Record<'_>, _layouts: &Layouts) {}

    fn finish(&mut self, report: &mut Report) {
        let counts = self.counts.lock().unwrap_or_else(PoisonError::into_inner);
        let samples = counted(counts.samples, "sample", "samples");
        let instructions = counted(counts.instructions, "instruction", "instructions");
        report.say(Level::Info, format!("made {samples} of {instructions} that Intel PT traced"));
        for used in self.context.code.used() {
            let name = String::from_utf8_lossy(&used.name);
            let id = used.id.map_or_else(|| "no build-id".to_owned(), |id| format!("build-id {id}"));
            let path = used.path.as_ref().map(|path| path.to_string_lossy());
            let place =
                path.filter(|path| *path != name).map_or_else(String::new, |path| format!(": {path}"));
            report.say(Level::Info, format!("used the code of {name}, {id}{place}"));
        }
        counts.say(&self.context, report);
    }
}
