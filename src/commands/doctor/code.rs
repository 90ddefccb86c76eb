//! Lists code that hardware traces of a recording need and that is not found here.

use anyhow::Result;
use perfx_auxtrace::{Known, Needed, Survey, traced_code};
use perfx_passes::IdOptions;
use perfx_resolve::{Facts, code_advice, dso_name};
use schemars::JsonSchema;
use serde::Serialize;

use crate::io::source::Source;
use crate::term::units::percent;

/// Code that a trace goes through and that is not found.
#[derive(Serialize, JsonSchema)]
#[schemars(deny_unknown_fields)]
pub(crate) struct MissingCode {
    /// The file or kernel in the recording; null if no record says what was mapped
    name: Option<String>,
    /// Its build-id in the recording
    build_id: Option<String>,
    /// Bytes of the trace after an address in this code, up to the next address in the trace
    bytes: u64,
    /// Bytes of the trace after any address
    of_bytes: u64,
    /// Option that finds it
    advice: String,
}

/// The missing code of a recording's traces, the most important first; empty without Intel PT and CoreSight.
///
/// # Errors
///
/// The recording cannot be read, or its traces are of another kind.
pub(crate) fn missing(source: &Source, ids: &IdOptions, threads: usize) -> Result<Vec<MissingCode>> {
    let mut recording = source.open()?;
    let survey = Survey::read(&mut recording, threads)?;
    if !survey.follows_code() {
        return Ok(Vec::new());
    }
    let known = Facts::survey(&mut recording, threads, false)?.ids;
    let (tracer, mut recorded) = survey.done(&recording.stored_bytes(), &recording.all_events())?;
    let about = (&recording.features, recording.endian, &*recording.name);
    let code = traced_code(ids, &mut recorded, tracer.clock(), &known, about);
    let needed = tracer.needed(&code, threads)?;
    let of_bytes = needed.iter().map(|needed| needed.bytes).sum();
    let missing = needed.into_iter().filter(|needed| !needed.is_found);
    Ok(missing.map(|needed| MissingCode::of(needed, of_bytes)).collect())
}

impl MissingCode {
    fn of(Needed { dso, known, is_hidden, bytes, .. }: Needed, of_bytes: u64) -> MissingCode {
        let id = known.as_ref().and_then(|known| known.id).map(|id| id.to_string());
        MissingCode {
            name: dso.as_ref().map(|dso| String::from_utf8_lossy(dso_name(dso)).into_owned()),
            advice: match is_hidden {
                true => "of a guest that has no records in the recording; perfx merge adds them".to_owned(),
                false => advice(known.as_ref(), dso.as_ref().and_then(|dso| dso.machine.guest())),
            },
            build_id: id,
            bytes,
            of_bytes,
        }
    }

    pub(crate) fn text(&self) -> String {
        let share = percent(self.bytes, self.of_bytes);
        let name = self.name.as_deref().unwrap_or("code that no record maps");
        let id = self.build_id.as_ref().map_or_else(String::new, |id| format!(", build-id {id}"));
        format!("    {share}  {name}{id}: {}", self.advice)
    }
}

/// The option that finds the code of a DSO; `guest` is the host process of the DSO's guest.
fn advice(known: Option<&Known>, guest: Option<u32>) -> String {
    if let (Some(Known { id: None, .. }), Some(pid)) = (known, guest) {
        return format!(
            "files of guest {pid} are found by build-id, which the recording lacks: perfx merge with root=DIR adds it"
        );
    }
    let nothing = || "it has no file; perfx inject --jit gives code of a jitdump one".to_owned();
    known.map_or_else(nothing, |known| code_advice(&known.object, known.id))
}
