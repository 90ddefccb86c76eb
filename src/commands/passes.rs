//! `perfx passes` lists the passes for `perfx run -p`, with what each one does and needs.

use std::io::{Cursor, Write as _};

use anyhow::Result;
use clap::Args;
use perfx_format::header::Magic;
use perfx_format::read::Recording;
use perfx_format::{Endian, Kinds};
use perfx_passes::{PassSpec, REGISTRY, parse_chain};
use perfx_pipeline::{Job, Needs};
use serde_json::{Value as Json, json};

use crate::args::{Format, FormatArgs};
use crate::io::source::temp_files;
use crate::io::target::stdout;
use crate::term::report::heading;

/// List the passes: what they do, need and change, with their options
///
/// Shows what each pass needs without options for an uncompressed recording. `perfx run --explain`
/// shows what a chain of passes needs for a given recording.
///
/// Examples:
///   perfx passes
///   perfx passes --format ndjson
#[derive(Args, Debug)]
#[command(verbatim_doc_comment)]
pub(crate) struct Passes {
    #[command(flatten)]
    format: FormatArgs,
}

/// Version of the JSON forms.
const SCHEMA: u32 = 2;

impl Passes {
    pub(crate) fn run(&self) -> Result<u8> {
        let mut text = String::new();
        let mut passes = Vec::new();
        for entry in REGISTRY {
            let needs = needs(entry)?;
            match self.format.format() {
                Format::Text => text += &as_text(entry, &needs),
                Format::Json => passes.push(as_json(entry, &needs)),
                Format::Ndjson => {
                    let mut object = json!({"schema": SCHEMA, "what": "pass"});
                    if let (Some(object), Json::Object(mut pass)) =
                        (object.as_object_mut(), as_json(entry, &needs))
                    {
                        object.append(&mut pass);
                    }
                    text += &format!("{object}\n");
                }
            }
        }
        if self.format.format() == Format::Json {
            text = format!("{:#}\n", json!({"schema": SCHEMA, "what": "passes", "passes": passes}));
        }
        stdout().write_all(text.as_bytes())?;
        Ok(0)
    }
}

/// The needs of the pass for an empty recording.
fn needs(entry: &PassSpec) -> Result<Needs> {
    let nothing = Cursor::new(Magic::pipe_header(Endian::Little));
    let recording = Recording::from_reader(Box::new(nothing), "nothing".into(), temp_files())?;
    let job = Job { recording, passes: parse_chain(entry.name)?, threads: 1, temp_files: temp_files() };
    let schedule = job.schedule()?;
    Ok(schedule.needs().first().map(|(_, needs)| needs.clone()).unwrap_or_default())
}

/// The kinds by name.
pub(crate) fn kinds(kinds: Kinds) -> Json {
    if kinds == Kinds::ALL { json!("every") } else { json!(kinds.names()) }
}

fn kinds_text(kinds: Kinds) -> String {
    if kinds == Kinds::ALL { "every record".to_owned() } else { kinds.names().join(", ") }
}

/// For each option of a pass its name, the name of its value if it has one, and what it does.
fn options(entry: &PassSpec) -> impl Iterator<Item = (String, Option<String>, String)> {
    let options: Vec<clap::Arg> = entry.options().get_arguments().cloned().collect();
    options.into_iter().filter_map(|option| {
        let value = option
            .get_action()
            .takes_values()
            .then(|| option.get_value_names()?.first().map(ToString::to_string));
        Some((option.get_long()?.to_owned(), value.flatten(), option.get_help()?.to_string()))
    })
}

fn as_text(entry: &PassSpec, needs: &Needs) -> String {
    let mut text = format!("{}\n    {}\n", heading(entry.name), entry.about);
    let mut say = |what: &str, said: String| text += &format!("    {what:<10} {said}\n");
    for (number, survey) in needs.surveys.iter().enumerate() {
        say(&format!("survey {}", number + 1), format!("reads {}", kinds_text(*survey)));
    }
    if needs.decompressed {
        say("needs", "COMPRESSED records replaced with their contents".to_owned());
    }
    if needs.ids {
        say("needs", "to tell each record's event".to_owned());
    }
    if !needs.records.is_empty() {
        say("changes", kinds_text(needs.records));
    }
    if !needs.stale.is_empty() {
        let stale: Vec<_> = needs.stale.iter().map(ToString::to_string).collect();
        say("makes stale", stale.join(", "));
    }
    for (name, value, about) in options(entry) {
        let value = value.map(|value| format!("={value}")).unwrap_or_default();
        text += &format!("    {:<20} {about}\n", format!(":{name}{value}"));
    }
    text
}

fn as_json(entry: &PassSpec, needs: &Needs) -> Json {
    let options = options(entry);
    let options: Vec<_> =
        options.map(|(name, value, about)| json!({"name": name, "value": value, "about": about})).collect();
    let mut object = needs_json(entry.name, needs);
    object["about"] = json!(entry.about);
    object["options"] = json!(options);
    object
}

/// What a pass needs of the pipeline.
pub(crate) fn needs_json(name: &str, needs: &Needs) -> Json {
    json!({
        "name": name,
        "surveys": needs.surveys.iter().map(|survey| kinds(*survey)).collect::<Vec<_>>(),
        "changes": kinds(needs.records),
        "decompressed": needs.decompressed,
        "tells_events": needs.ids,
        "stale": needs.stale.iter().map(ToString::to_string).collect::<Vec<_>>(),
    })
}
