//! `perfx passes` lists the passes for `perfx run -p`, with their effects and needs.

use std::io::Cursor;
use std::slice;

use anyhow::Result;
use clap::Args;
use perfx_format::header::Magic;
use perfx_format::read::Recording;
use perfx_format::{Endian, Kinds};
use perfx_look::json::Document;
use perfx_passes::{PassSpec, parse_chain_of};
use perfx_pipeline::{Job, Needs};
use schemars::JsonSchema;
use serde::Serialize;

use crate::args::FormatArgs;
use crate::io::source::temp_files;
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

pub(crate) type Output = Document<2, Printed>;

/// # perfx passes
///
/// The document of perfx passes --format json, or a line of --format ndjson
#[derive(Serialize, JsonSchema)]
#[serde(tag = "what", rename_all = "lowercase")]
#[schemars(deny_unknown_fields)]
pub(crate) enum Printed {
    Passes { passes: Vec<PassEntry> },
    Pass(PassEntry),
}

/// A pass.
#[derive(Serialize, JsonSchema)]
#[schemars(deny_unknown_fields)]
pub(crate) struct PassEntry {
    #[serde(flatten)]
    needs: PassNeeds,
    about: &'static str,
    options: Vec<PassOption>,
}

/// The requirements of a pass.
#[derive(Serialize, JsonSchema)]
#[schemars(deny_unknown_fields)]
pub(crate) struct PassNeeds {
    name: String,
    /// The kinds that each of its surveys reads, before anything is written
    surveys: Vec<KindSet>,
    /// The kinds that its rewrite sees
    changes: KindSet,
    /// It needs COMPRESSED records replaced with their contents
    decompressed: bool,
    /// It needs the event of every record to be known
    tells_events: bool,
    /// Features that are left out after it unless it sets them
    stale: Vec<String>,
}

/// Kinds of records.
#[derive(Serialize, JsonSchema)]
#[serde(rename_all = "lowercase")]
enum KindSet {
    Every,
    /// Names of record kinds
    #[serde(untagged)]
    Names(Vec<&'static str>),
}

/// An option of a pass.
#[derive(Serialize, JsonSchema)]
#[schemars(deny_unknown_fields)]
struct PassOption {
    name: String,
    /// Name of the option's value; null for a switch
    value: Option<String>,
    about: String,
}

impl Passes {
    pub(crate) fn run(&self, registry: &[PassSpec]) -> Result<u8> {
        let mut passes = self.format.printer();
        for entry in registry {
            let needs = needs(entry)?;
            let text = |_: &PassEntry| as_text(entry, &needs);
            passes.print(PassEntry::of(entry, &needs), text, |pass| Output::new(Printed::Pass(pass)))?;
        }
        passes.end(|passes| Output::new(Printed::Passes { passes }))?;
        Ok(0)
    }
}

fn needs(entry: &PassSpec) -> Result<Needs> {
    let nothing = Cursor::new(Magic::pipe_header(Endian::Little));
    let recording = Recording::from_reader(Box::new(nothing), "nothing".into(), temp_files())?;
    let passes = parse_chain_of(slice::from_ref(entry), entry.name)?;
    let job = Job { recording, passes, threads: 1, temp_files: temp_files() };
    let schedule = job.schedule()?;
    Ok(schedule.needs().first().map(|(_, needs)| needs.clone()).unwrap_or_default())
}

impl From<Kinds> for KindSet {
    fn from(kinds: Kinds) -> KindSet {
        if kinds == Kinds::ALL { KindSet::Every } else { KindSet::Names(kinds.names()) }
    }
}

fn kinds_text(kinds: Kinds) -> String {
    if kinds == Kinds::ALL { "every record".to_owned() } else { kinds.names().join(", ") }
}

/// The name of each option, the name of its value, if any, and its description.
fn options(entry: &PassSpec) -> impl Iterator<Item = (String, Option<String>, String)> {
    let options: Vec<clap::Arg> =
        entry.options().get_arguments().filter(|arg| !arg.is_hide_set()).cloned().collect();
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
    let mut say = |what: &str, value: String| text += &format!("    {what:<10} {value}\n");
    for (number, survey) in needs.surveys.iter().enumerate().filter(|(_, survey)| **survey != Kinds::NONE) {
        say(&format!("survey {}", number + 1), format!("reads {}", kinds_text(*survey)));
    }
    if needs.decompressed {
        say("needs", "COMPRESSED records replaced with their contents".to_owned());
    }
    if needs.ids {
        say("needs", "the event of each record".to_owned());
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

impl PassEntry {
    fn of(entry: &PassSpec, needs: &Needs) -> PassEntry {
        let option = |(name, value, about)| PassOption { name, value, about };
        PassEntry {
            needs: PassNeeds::of(entry.name, needs),
            about: entry.about,
            options: options(entry).map(option).collect(),
        }
    }
}

impl PassNeeds {
    pub(crate) fn of(name: &str, needs: &Needs) -> PassNeeds {
        PassNeeds {
            name: name.to_owned(),
            surveys: needs.surveys.iter().map(|&survey| survey.into()).collect(),
            changes: needs.records.into(),
            decompressed: needs.decompressed,
            tells_events: needs.ids,
            stale: needs.stale.iter().map(ToString::to_string).collect(),
        }
    }
}
