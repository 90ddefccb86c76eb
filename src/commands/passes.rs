//! `perfx passes` lists what `perfx run -p` can run: what each pass does, needs and makes stale, asked of the pass itself.

use std::io::{Cursor, Write as _};

use anyhow::Result;
use clap::Args;
use perfx_format::header::Magic;
use perfx_format::input::Recording;
use perfx_format::{Endian, Kinds};
use perfx_passes::{Entry, REGISTRY, parse_chain};
use perfx_pipeline::{Job, Needs};
use serde_json::{Value as Json, json};

use crate::args::{Format, FormatArgs};
use crate::io::source::spool;
use crate::io::target::stdout;
use crate::term::report::heading;

/// List the passes: what they do, need and change, and their options
///
/// What a pass needs is told as without options and of a recording that is not compressed;
/// `perfx run --explain` tells it of a chain and a recording.
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
const SCHEMA: u32 = 1;

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

/// Of a recording that holds nothing.
fn needs(entry: &Entry) -> Result<Needs> {
    let nothing = Cursor::new(Magic::pipe_header(Endian::Little));
    let recording = Recording::from_reader(Box::new(nothing), "nothing".into(), spool())?;
    let job = Job { recording, passes: parse_chain(entry.name)?, threads: 1, spool: spool() };
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

fn as_text(entry: &Entry, needs: &Needs) -> String {
    let mut text = format!("{}\n    {}\n", heading(entry.name), entry.about);
    let mut say = |what: &str, said: String| text += &format!("    {what:<10} {said}\n");
    for (number, look) in needs.looks.iter().enumerate() {
        say(&format!("look {}", number + 1), format!("reads {}", kinds_text(*look)));
    }
    if needs.decompressed {
        say("needs", "COMPRESSED records replaced by what they hold".to_owned());
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
    for option in entry.options {
        let value = option.value.map(|value| format!("={value}")).unwrap_or_default();
        text += &format!("    {:<20} {}\n", format!(":{}{value}", option.name), option.about);
    }
    text
}

fn as_json(entry: &Entry, needs: &Needs) -> Json {
    let options: Vec<_> = entry
        .options
        .iter()
        .map(|option| json!({"name": option.name, "value": option.value, "about": option.about}))
        .collect();
    let mut object = needs_json(entry.name, needs);
    object["about"] = json!(entry.about);
    object["options"] = json!(options);
    object
}

/// What a pass needs of the pipeline.
pub(crate) fn needs_json(name: &str, needs: &Needs) -> Json {
    json!({
        "name": name,
        "looks": needs.looks.iter().map(|look| kinds(*look)).collect::<Vec<_>>(),
        "changes": kinds(needs.records),
        "decompressed": needs.decompressed,
        "tells_events": needs.ids,
        "stale": needs.stale.iter().map(ToString::to_string).collect::<Vec<_>>(),
    })
}
