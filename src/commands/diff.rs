//! `perfx diff` compares the contents of two recordings in any form, and shows where they begin to differ.

mod profile;

use std::collections::BTreeSet;
use std::path::PathBuf;

use anyhow::{Result, bail};
use clap::Args;
use perfx_export::changes::ProfileDiff;
use perfx_format::Feature;
use perfx_format::read::Recording;
use perfx_look::json::Document;
use perfx_look::render::{form_name, kind_name};
use perfx_look::{Diff as Found, Difference, RecordPlace, Shown};
use perfx_pipeline::{Level, Report, counted};
use schemars::JsonSchema;
use serde::Serialize;

use self::profile::ProfileArgs;
use crate::args::{ReadArgs, Usage};
use crate::io::source::{Source, refuse_twice, temp_files};

/// Compare two recordings: events, features, counts, and the first record that differs
///
/// Recordings are equal if they have the same contents, in any form: file, pipe data, directory,
/// compressed or not. Details of storage are ignored: offsets, the order of sections, the size of
/// attrs, features AUXTRACE, COMPRESSED and DIR_FORMAT, and whether names and build-ids are stored
/// in the header or among the records. If they are equal, nothing is printed to standard output.
///
/// With --profile, the weight of all samples (the sum of their periods; of cpu-clock, time) and of each
/// function is compared, per run or, with --per, per unit of work. Functions that changed by
/// --threshold of a run or more are listed: how much more or less they weigh (± the 95 % confidence
/// interval), the probability p of such a change by noise, and the least change that 8 of 10 such
/// comparisons find. They count as changed if that is more than two kinds of noise: that of sampling (a
/// binomial test), and that between runs (Student's t test; for a function, its own variance and, half
/// as much, that of the typical function; if at least four runs of each side took turns and the
/// machine's speed varied, by their differences). Programs and libraries are the same by build-id, else
/// by name without folder and version. The probability of any false change is 5 %: a third of it for
/// the total, the rest for the functions in proportion to their shares (Holm's method). --vs takes
/// several runs on each side; five are enough. With one run on each side, only the noise of sampling is
/// known, and the exit code is 4 only if --threshold is given. If there are several events, cycles or a
/// clock is compared, unless --event selects some.
///
/// Examples:
///   perfx diff a.data b.data
///   perfx diff --ignore HOSTNAME,CMDLINE expected.data new.data
///   perfx inject -b perf.data | perfx diff --json perf.data -
///   perfx diff --profile --threshold 2% before.data after.data
///   perfx diff --profile before-*.data --vs after-*.data
///   perfx diff --profile --per http:request before-*.data --vs after-*.data
#[derive(Args, Debug)]
#[command(verbatim_doc_comment, after_help = EXIT_CODES)]
pub(crate) struct Diff {
    /// The two recordings to compare; - is standard input. With --vs, the recordings of one side
    #[arg(help_heading = "Input", value_name = "A", required = true)]
    recordings: Vec<PathBuf>,
    /// Features that may differ
    #[arg(long, value_name = "FEATURE,…", value_delimiter = ',')]
    ignore: Vec<String>,
    #[command(flatten)]
    profile: ProfileArgs,
    #[command(flatten)]
    read: ReadArgs,
}

const EXIT_CODES: &str = "\
Exit codes:
  0  equal; with --profile, not changed
  1  failed: one of them can't be read, or has no samples to compare
  2  invalid command line
  3  different, or damaged; with --profile, something was lost or is suspect
  4  with --profile: changed";

const CHANGED: u8 = 4;

const SUSPECT: u8 = 3;

pub(crate) type Output<'f> = Document<3, Printed<'f>>;

/// # perfx diff --format json
///
/// The differences between two recordings, or between their profiles.
#[derive(Serialize, JsonSchema)]
#[serde(tag = "what", rename_all = "lowercase")]
pub(crate) enum Printed<'f> {
    Diff(&'f Found),
    Profile(&'f ProfileDiff),
}

/// The maximum length of a value in text, in characters; JSON has all.
const SHOWN: usize = 120;

impl Diff {
    pub(crate) fn run(&self) -> Result<u8> {
        let mut ignored = BTreeSet::new();
        for name in &self.ignore {
            let wanted = name.to_ascii_uppercase();
            let Some(feature) = Feature::NAMED.iter().find(|feature| feature.name() == Some(&*wanted)) else {
                bail!(Usage(format!("unknown feature `{name}`")));
            };
            ignored.insert(*feature);
        }
        self.profile.check()?;
        if self.profile.profile {
            let (found, report) = self.profile.run(&self.recordings, self.read)?;
            self.read.format.print(|| profile::text(&found), || Output::new(Printed::Profile(&found)))?;
            let code = self.read.verbosity.print(&report);
            return Ok(if found.changed && code != SUSPECT { CHANGED } else { code });
        }
        let [a, b] = &*self.recordings else { bail!(Usage("give two recordings to compare".into())) };
        let sources = [a, b].map(|path| Source::named(path));
        refuse_twice(&sources)?;
        let (mut a, mut b) = (open(&sources[0])?, open(&sources[1])?);
        let mut report = Report::default();
        let bar = self.read.verbosity.progress(&a);
        let threads = self.read.threads.count(&a).max(self.read.threads.count(&b));
        let found = perfx_look::diff(&mut a, &mut b, &ignored, threads, &mut report)?;
        drop(bar);
        self.read.format.print(|| text(&found), || Output::new(Printed::Diff(&found)))?;
        let [name_a, name_b] =
            [&a, &b].map(|recording| format!("{} ({})", recording.name, form_name(recording.form)));
        let same = counted(found.equal_records, "record", "records");
        report.say(
            Level::Info,
            match found.equal {
                true => format!("{name_a} and {name_b} are equal: {same}"),
                false if found.equal_records == 0 => {
                    format!("{name_a} and {name_b} differ from the first record on")
                }
                false => format!("{name_a} and {name_b} differ; the first {same} are equal"),
            },
        );
        let code = self.read.verbosity.print(&report);
        Ok(if found.equal { code } else { 3 })
    }
}

/// To count after a difference, the input is read twice, so one that can be read only once is spooled.
fn open(source: &Source) -> Result<Recording> {
    Ok(source.open()?.spooled(&temp_files())?)
}

fn text(found: &Found) -> String {
    let mut text: String = found.differences.iter().map(difference_text).collect();
    if let Some(first) = &found.first_record {
        let place = |place: &Option<RecordPlace>| match place {
            None => "end".to_owned(),
            Some(RecordPlace { kind, bytes, place, .. }) => {
                format!("{} of {bytes} bytes at {}", kind_name(kind.0), place.0)
            }
        };
        text += &format!("record {}: {} | {}\n", first.number, place(&first.a), place(&first.b));
        for field in &first.fields {
            text += &format!("  {}", difference_text(field));
        }
    }
    text
}

fn difference_text(difference: &Difference) -> String {
    let chars =
        |shown: &Option<Shown>| shown.iter().flat_map(|shown| shown.text().chars()).collect::<Vec<_>>();
    let (a, b) = (chars(&difference.a), chars(&difference.b));
    let alike = a.iter().zip(&b).take_while(|(a, b)| a == b).count();
    // Long values are shown from shortly before the first difference.
    let from = if a.len().max(b.len()) > SHOWN { alike.saturating_sub(SHOWN / 4) } else { 0 };
    let text = |shown: &Option<Shown>, chars: &[char]| {
        if shown.is_none() {
            return "absent".to_owned();
        }
        let part = chars.iter().skip(from).take(SHOWN);
        let (before, after) = (from > 0, chars.len() > from + SHOWN);
        let dots = |cut: bool| cut.then_some('…');
        dots(before).into_iter().chain(part.copied()).chain(dots(after)).collect()
    };
    let words = [&*difference.place, &*difference.field].into_iter().filter(|word| !word.is_empty());
    format!(
        "{}: {} | {}\n",
        words.collect::<Vec<_>>().join(" "),
        text(&difference.a, &a),
        text(&difference.b, &b)
    )
}
