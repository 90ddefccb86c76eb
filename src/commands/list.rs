//! `perfx list` lists what a recording names: events, DSOs, build-ids, processes, threads, cgroups or mappings.

use anyhow::Result;
use clap::Args;
use perfx_export::list::{Listing, What, list};
use perfx_look::json::{Document, Text};
use perfx_look::render;
use perfx_pipeline::Report;

use crate::args::ReadArgs;
use crate::io::source::{InputArgs, Source};
use crate::term::units::{count, fitted};

/// List the events, DSOs, build-ids, processes, threads, cgroups or mappings of a recording
///
/// Each row has the number of samples and the sum of their periods, as counted by perf report -n. The
/// most sampled come first; events and mappings come in the order of the recording.
///
/// Examples:
///   perfx list events perf.data
///   perfx list processes --json perf.data | jq '.rows[] | select(.samples == 0).pid'
///   perf record -o - ./program | perfx list dsos
#[derive(Args, Debug)]
#[command(verbatim_doc_comment)]
pub(crate) struct List {
    /// What to list
    #[arg(value_enum, value_name = "WHAT")]
    what: What,
    #[command(flatten)]
    input: InputArgs,
    #[command(flatten)]
    read: ReadArgs,
}

/// What is printed as JSON.
pub(crate) type Output = Document<2, Listing>;

impl List {
    pub(crate) fn run(&self) -> Result<u8> {
        let mut recording = Source::of(&self.input).open_indexed()?;
        let mut report = Report::default();
        recording.progress().expect(2);
        let bar = self.read.verbosity.progress(&recording);
        let listing = list(&mut recording, self.what, self.read.threads.count(), &mut report)?;
        drop(bar);
        self.read.format.print(|| text(&listing), || Output::new(listing.clone()))?;
        Ok(self.read.verbosity.print(&report))
    }
}

fn text(listing: &Listing) -> String {
    let rows = match listing {
        Listing::Events { rows } => lines(&["event", "samples", "period"], rows, |row| {
            vec![shown(&row.name, None), count(row.samples), count(row.period.0)]
        }),
        Listing::Dsos { rows } => lines(&["DSO", "mappings", "samples", "period"], rows, |row| {
            let name = shown(&row.name, row.guest);
            vec![name, count(row.mappings), count(row.samples), count(row.period.0)]
        }),
        Listing::BuildIds { rows } => lines(&["DSO", "build-id", "samples", "period"], rows, |row| {
            let name = shown(&row.name, row.guest);
            vec![name, row.build_id.clone(), count(row.samples), count(row.period.0)]
        }),
        Listing::Processes { rows } => {
            lines(&["process", "threads", "mappings", "samples", "period"], rows, |row| {
                let name = format!("{} {}", row.pid, shown(&row.comm, row.guest));
                vec![name, count(row.threads), count(row.mappings), count(row.samples), count(row.period.0)]
            })
        }
        Listing::Threads { rows } => lines(&["thread", "process", "samples", "period"], rows, |row| {
            let name = format!("{} {}", row.tid, shown(&row.comm, row.guest));
            vec![name, row.pid.to_string(), count(row.samples), count(row.period.0)]
        }),
        Listing::Cgroups { rows } => lines(&["cgroup", "samples", "period"], rows, |row| {
            let path =
                row.path.as_ref().map_or_else(|| format!("(id {})", row.id.0), |path| shown(path, None));
            vec![path, count(row.samples), count(row.period.0)]
        }),
        Listing::Mappings { rows } => {
            lines(&["mapping", "process", "start", "size", "offset", "access", "samples"], rows, |row| {
                vec![
                    shown(&row.name, row.guest),
                    row.pid.to_string(),
                    format!("{:#x}", row.start.0),
                    format!("{:#x}", row.length.0),
                    format!("{:#x}", row.offset.0),
                    row.access.clone().unwrap_or_default(),
                    count(row.samples),
                ]
            })
        }
    };
    fitted(&rows)
}

fn lines<R>(title: &[&str], rows: &[R], row: impl Fn(&R) -> Vec<String>) -> Vec<Vec<String>> {
    let title = title.iter().map(|&word| word.to_owned()).collect();
    std::iter::once(title).chain(rows.iter().map(row)).collect()
}

fn shown(name: &Text<Vec<u8>>, guest: Option<u32>) -> String {
    let name = render::readable(&name.0);
    match guest {
        Some(pid) => format!("{name} (guest of {pid})"),
        None => name,
    }
}
