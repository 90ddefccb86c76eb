//! `perfx export html` writes one recording, or a comparison of two, as a page that opens in any browser.

use anyhow::{Result, bail};
use clap::Args;
use perfx_doctor::examine;
use perfx_export::annotate::{Annotated, annotate};
use perfx_export::html::{Side, pack, write};
use perfx_export::{Facts, Grouping, NamedStacks, ShownEvent, Stacks};
use perfx_format::read::Recording;
use perfx_look::{LostCount, Times, stats_and_du};
use perfx_passes::IdOptions;
use perfx_pipeline::{Level, Report, counted};
use perfx_resolve::kcore_of;
use serde::Serialize;

use super::input::{
    Collected, StackArgs, TraceArgs, again, each_recording, say_files, say_left_out, say_read,
};
use crate::args::Usage;
use crate::commands::doctor::FileEntry;
use crate::commands::du::{ByteTable, tables};
use crate::commands::info::headings;
use crate::io::output::OutputArgs;
use crate::io::source::InputsArgs;
use crate::term::units::{duration, size};

/// Write a page for a browser: samples over time, a flame graph and tables
///
/// The page is one file that needs no network and no server. Two recordings are compared: the flame
/// graph and the table show how the shares of functions changed.
///
/// Examples:
///   perfx export html perf.data -o report.html
///   perfx export html before.data after.data -o change.html
///   perfx export html perf.data --comm 'nginx.*' --event cycles -o nginx.html
///   perfx export html perf.data --annotate 20 -o report.html
#[derive(Args, Debug)]
#[command(verbatim_doc_comment)]
pub(crate) struct Html {
    #[command(flatten)]
    inputs: InputsArgs,
    #[command(flatten)]
    output: OutputArgs,
    /// Leave out calls that the compiler inlined, and don't read DWARF
    #[arg(help_heading = "Page", long)]
    no_inline: bool,
    /// Show source lines and instructions of the N functions with the most samples (x86-64; the
    /// page then holds their source)
    #[arg(help_heading = "Page", long, value_name = "N", default_value_t = 0, hide_default_value = true)]
    annotate: usize,
    #[command(flatten, next_help_heading = "Samples")]
    trace: TraceArgs,
    #[command(flatten)]
    stacks: StackArgs,
}

#[derive(Serialize)]
struct About {
    name: String,
    info: Vec<(&'static str, Vec<(String, String)>)>,
    doctor: FileEntry,
    lost: LostCount,
    time: Times,
    bytes: Vec<ByteTable>,
    warnings: Vec<String>,
    broken_chains: Vec<String>,
}

struct Read {
    about: About,
    facts: Facts,
    stacks: Stacks,
    placed: Vec<u32>,
    shown: Option<u32>,
    annotated: Annotated,
}

impl Html {
    pub(crate) fn run(&self) -> Result<u8> {
        let ids = self.stacks.ids()?;
        let sources = self.inputs.sources()?;
        if sources.len() > 2 {
            bail!(Usage(format!("{} recordings: a page shows one, or compares two", sources.len())));
        }
        if sources.len() > 1 && self.annotate > 0 {
            bail!(Usage(
                "--annotate shows the code of one recording: two builds have different code".to_owned()
            ));
        }
        if self.trace.itrace && self.annotate > 0 {
            bail!(Usage(
                "--annotate shows where samples are in the code; calls of --itrace are in none".to_owned()
            ));
        }
        let output = self.output.open(&sources, false)?;
        let mut report = Report::default();
        let mut named = NamedStacks::new(sources.len());
        let mut sides = Vec::new();
        let mut event = ShownEvent::default();
        each_recording(&sources, &mut report, |recording, report| {
            sides.push(self.read(recording, &ids, &mut named, &mut event, report)?);
            Ok(())
        })?;
        let samples = sides.iter().flat_map(|side| side.stacks.rows.values()).map(|of| of.samples).sum();
        let sides: Vec<Side<'_>> = sides
            .iter_mut()
            .map(|Read { about, facts, stacks, placed, shown, annotated }| {
                let annotated = std::mem::take(annotated);
                let about = serde_json::to_value(about)?;
                Ok(Side { stacks, facts, placed, shown: *shown, annotated, about })
            })
            .collect::<Result<_>>()?;
        let packed = pack(&named, sides)?;
        output.write(|out| write(&packed, out))?;
        let (one, many) = if self.trace.itrace { ("call", "calls") } else { ("sample", "samples") };
        let samples = counted(samples, one, many);
        let functions = counted(named.functions.len() as u64, "function", "functions");
        let data = size(packed.len() as u64);
        report.say(Level::Info, format!("wrote a page of {samples} in {functions}: {data} of data"));
        Ok(self.stacks.verbosity.print(&report))
    }

    fn read(
        &self,
        recording: Recording,
        ids: &IdOptions,
        named: &mut NamedStacks,
        event: &mut ShownEvent,
        report: &mut Report,
    ) -> Result<Read> {
        // The page does not show the recording's folder.
        let name = recording.name.rsplit('/').next().unwrap_or_default().to_owned();
        let kcore = kcore_of(&recording.name);
        let threads = self.stacks.threads.count(&recording);
        let again = |recording: &Recording| {
            let mut again = again(recording)?;
            again.name = name.as_str().into();
            Ok::<_, anyhow::Error>(again)
        };
        let diagnosis = examine(again(&recording)?, threads, PLACES)?;
        // These reports are repeated when the stacks are read.
        let (stats, du) = stats_and_du(&mut again(&recording)?, threads, &mut Report::default())?;
        let mut about = About {
            info: headings(&mut again(&recording)?),
            doctor: FileEntry::of(&diagnosis),
            lost: stats.lost,
            time: stats.time,
            bytes: tables(&du),
            warnings: Vec::new(),
            broken_chains: Vec::new(),
            name,
        };
        let grouping = Grouping {
            comm: true,
            pid: true,
            tid: true,
            cpu: true,
            cgroup: true,
            time: true,
            ..Grouping::default()
        };
        let mut collected = self.stacks.collect_or_trace(self.trace, recording, ids, grouping, report)?;
        // A page can show events with different units one after the other.
        collected.chooses_events &= collected.stacks.sampled(&collected.facts).adds_up().is_ok();
        let shown = collected.shown(event, false)?;
        // Calls from a trace are function starts, without lines.
        let inlined = !self.no_inline && !self.trace.itrace;
        let (placed, found) = named.add(&collected.stacks, collected.search(ids, inlined))?;
        let annotated = match shown.filter(|_| self.annotate > 0) {
            Some(shown) => {
                let search = collected.search(ids, true);
                annotate(&collected.stacks, shown, self.annotate, search, kcore.as_deref())?
            }
            None => Annotated::default(),
        };
        about.broken_chains = collected.chain_quality().sentences();
        let Collected { recording, facts, stacks, bar, .. } = collected;
        drop(bar);
        say_files(report, Level::Info, &annotated.sources, "the page holds the text of {}");
        say_left_out(report, &annotated);
        say_read(report, &recording, &stacks);
        found.say(report);
        if stacks.step > 0 {
            let step = duration(stacks.step);
            let line = format!(
                "there are too many samples for exact times: times are rounded down to multiples of {step}"
            );
            report.say(Level::Info, line);
        }
        let warnings = report.lines.iter().filter(|(level, _)| *level <= Level::Warning);
        about.warnings = warnings.map(|(_, line)| line.replace(&*recording.name, &about.name)).collect();
        Ok(Read { about, facts, stacks, placed, shown, annotated })
    }
}

const PLACES: usize = 3;
