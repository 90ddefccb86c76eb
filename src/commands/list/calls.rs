//! `perfx list calls` shows how long the calls of a function in a trace took, and the slowest of them.

use anyhow::{Context as _, Result, bail};
use clap::Args;
use perfx_export::{CallList, DurationSummary, Grouping, Instance, IsNamed, WatchedCalls};
use perfx_filter::{is_meant, unknown};
use perfx_look::json::Document;
use perfx_look::render::printable;
use perfx_pipeline::{Level, Report};

use crate::args::{FormatArgs, Usage};
use crate::commands::export::input::{StackArgs, say_read};
use crate::io::source::InputsArgs;
use crate::term::units::{NAME, columns, count, table, without_middle};

#[derive(Args, Debug)]
pub(super) struct CallArgs {
    /// List the spans from a call of A to the next call of B on the same thread
    #[arg(long, num_args = 2, value_names = ["A", "B"])]
    between: Option<Vec<String>>,
    /// End the spans where B returns
    #[arg(long, requires = "between")]
    until_return: bool,
}

pub(crate) type Output = Document<1, CallList>;

/// Without --head.
const SLOWEST: usize = 10;

/// Per line.
const CALLED: usize = 4;

impl CallArgs {
    /// Refuses these options for other lists.
    pub(super) fn refuse(&self) -> Result<()> {
        Usage::refuse(&[("--between", self.between.is_some())], "calls: perfx list calls --between A B")
    }

    pub(super) fn run(
        &self,
        head: Option<usize>,
        inputs: &InputsArgs,
        stacks: &StackArgs,
        format: FormatArgs,
    ) -> Result<u8> {
        let (name, rest) = inputs.split_first();
        let (wanted, inputs) = match (&self.between, name) {
            (Some(between), _) => (between.clone(), inputs),
            (None, Some(name)) => (vec![name.to_string_lossy().into_owned()], &rest),
            (None, None) => bail!(Usage("give a function: perfx list calls NAME [INPUT]".into())),
        };
        let is: Vec<_> = wanted.iter().map(|name| is_meant(name)).collect();
        let watched = WatchedCalls {
            begin: is.first().context("no function")?,
            end: is.get(1).map(|end| (end as IsNamed<'_>, self.until_return)),
            most: head.unwrap_or(SLOWEST),
        };
        let mut sources = inputs.sources()?;
        let (Some(source), true) = (sources.pop(), sources.is_empty()) else {
            bail!(Usage("calls are listed for one recording only: give one".into()));
        };
        let mut report = Report::default();
        let grouping = Grouping { own_address: true, ..Grouping::default() };
        let (collected, found) =
            stacks.trace(source.open_indexed()?, &stacks.ids()?, grouping, Some(&watched), &mut report)?;
        say_read(&mut report, &collected.recording, &collected.stacks);
        let found = found.unwrap_or_default();
        for (wanted, functions) in wanted.iter().zip(&found.functions) {
            if functions.is_empty() {
                report.say(Level::Warning, unknown(wanted, found.names.iter().map(String::as_str)));
            }
        }
        if found.durations.summary().is_none()
            && !found.is_timeless
            && found.functions.iter().zip(&wanted).all(|(names, _)| !names.is_empty())
        {
            let unfinished = count(found.unfinished);
            let what = if self.between.is_some() { "span" } else { "call" };
            let what = format!("no {what} began and ended in the trace; {unfinished} began and did not end");
            report.say(Level::Warning, what);
        }
        let list = found.list(self.between.is_some());
        format.print(|| text(&list, columns()), || Output::new(list.clone()))?;
        Ok(stacks.verbosity.print(&report))
    }
}

fn text(list: &CallList, columns: usize) -> String {
    let (title, unfinished, durations, histogram, slowest) = match list {
        CallList::Calls { functions, unfinished, durations, histogram, slowest } => {
            (format!("calls of {}", functions.join(", ")), unfinished, durations, histogram, slowest)
        }
        CallList::Spans { functions, until, unfinished, durations, histogram, slowest } => (
            format!("spans from {} to {}", functions.join(", "), until.join(", ")),
            unfinished,
            durations,
            histogram,
            slowest,
        ),
    };
    let Some(DurationSummary { calls, mean_ns, median_ns, p99_ns, max_ns, off_cpu_ns }) = durations else {
        return String::new();
    };
    let cells = |cells: &[&str]| cells.iter().map(|&cell| cell.to_owned()).collect::<Vec<_>>();
    let mut summary = vec![cells(&["calls", "unfinished", "mean ns", "median", "p99", "max", "off CPU"])];
    let numbers = [*calls, *unfinished, mean_ns.0, median_ns.0, p99_ns.0, max_ns.0, off_cpu_ns.0];
    summary.push(numbers.into_iter().map(count).collect());
    let most = histogram.iter().map(|row| row.calls).max().unwrap_or(1);
    let mut ranges = vec![cells(&["from ns", "to ns", "calls"])];
    ranges
        .extend(histogram.iter().map(|row| vec![count(row.from_ns.0), count(row.to_ns.0), count(row.calls)]));
    let bars = histogram.iter().map(|row| "#".repeat((row.calls * BAR).div_ceil(most) as usize));
    let mut instances = vec![cells(&["time", "ns", "off CPU", "thread", "CPU"])];
    instances.extend(slowest.iter().map(|call| {
        let Instance { time_ns, duration_ns, off_cpu_ns, pid, tid, cpu, .. } = call;
        let time = format!("{}.{:09}", time_ns.0 / NS_IN_S, time_ns.0 % NS_IN_S);
        let cpu = cpu.map_or_else(|| "-".to_owned(), |cpu| cpu.to_string());
        vec![time, count(duration_ns.0), count(off_cpu_ns.0), format!("{pid}/{tid}"), cpu]
    }));
    let called = slowest.iter().map(|call| {
        let mut shown: Vec<String> = call
            .called
            .iter()
            .take(CALLED)
            .map(|called| {
                let (calls, ns) = (count(called.calls), count(called.duration_ns.0));
                format!("{} ({calls} × in {ns} ns)", printable(&called.function))
            })
            .collect();
        let more = call.called.len().saturating_sub(CALLED);
        shown.extend((more > 0).then(|| format!("{more} more")));
        shown.join(", ")
    });
    let title = without_middle(&printable(&title), columns);
    let titled = |title: &str| std::iter::once(title.to_owned());
    format!(
        "{title}\n{}\n{}\n{}",
        table(&summary),
        beside(&ranges, titled("").chain(bars), columns),
        beside(&instances, titled("called").chain(called), columns)
    )
}

const NS_IN_S: u64 = 1_000_000_000;

const BAR: u64 = 40;

/// A table with texts on its right.
fn beside(rows: &[Vec<String>], texts: impl Iterator<Item = String>, columns: usize) -> String {
    let line = |(line, text): (&str, String)| {
        let text = without_middle(&text, columns.saturating_sub(line.chars().count() + 2).max(NAME));
        format!("{line}  {text}").trim_end().to_owned() + "\n"
    };
    table(rows).lines().zip(texts).map(line).collect()
}
