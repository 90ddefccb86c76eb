//! `perfx list functions` and `perfx list stacks` show what is slow, and its callers.

use anyhow::{Result, bail};
use clap::{Args, ValueEnum};
use perfx_export::ranking::{CallRow, Order, Ranked, Ranking, Shape, TracedRow};
use perfx_export::{DurationSummary, Grouping, ShownEvent};
use perfx_filter::{meant, unknown};
use perfx_look::json::Document;
use perfx_look::render::printable;
use perfx_pipeline::{Level, Report};

use crate::args::{FormatArgs, Usage};
use crate::commands::export::input::{
    By, Collected, StackArgs, TraceArgs, each_recording, say_quality, say_read,
};
use crate::io::source::InputsArgs;
use crate::term::units::{NAME, columns, count, function_within, without_middle};

#[derive(Args, Clone, Debug)]
pub(super) struct RankArgs {
    /// List only the first N rows [default: all functions, 20 stacks, lines and rows of fields, the 10 slowest calls]
    #[arg(long, value_name = "N")]
    head: Option<usize>,
    /// Order of the functions [default: self]
    #[arg(long, value_enum, value_name = "ORDER")]
    sort: Option<SortKey>,
    /// The same as --sort total
    #[arg(long, conflicts_with = "sort")]
    children: bool,
    /// Show the callers of this function as a tree: its name, with or without parameters, a part that no other name
    /// contains, or a regular expression that matches the whole name
    #[arg(long, value_name = "FUNCTION", conflicts_with_all = ["callees", "sort", "children"])]
    callers: Option<String>,
    /// Show what this function calls as a tree
    #[arg(long, value_name = "FUNCTION", conflicts_with_all = ["sort", "children"])]
    callees: Option<String>,
    /// Show at most this many calls from that function [default: 10]
    #[arg(long, value_name = "N")]
    depth: Option<u32>,
    /// Leave out the rows of a tree below this share [default: 0.5%]
    #[arg(long, value_name = "PERCENT", value_parser = percentage)]
    percent_limit: Option<f64>,
    /// Count inlined calls as functions of their own, unlike the totals of perf report
    #[arg(long, conflicts_with = "itrace")]
    inline: bool,
    /// Show long names whole, also on a terminal
    #[arg(long)]
    full_names: bool,
    /// List instructions instead of source lines
    #[arg(long)]
    pub(super) insn: bool,
    #[command(flatten)]
    trace: TraceArgs,
}

#[derive(ValueEnum, Clone, Copy, Debug)]
enum SortKey {
    /// Samples in the function alone
    #[value(name = "self")]
    Own,
    /// Samples in the function and in the functions that it called
    Total,
    /// Number of samples in the function, or of its calls in a trace
    #[value(alias = "calls")]
    Samples,
    /// The name
    Name,
    /// The DSO
    Dso,
    /// The longest call in a trace
    Max,
    /// The duration that 99% of its calls in a trace do not exceed
    P99,
}

pub(crate) fn percentage(text: &str) -> Result<f64, String> {
    let number = text.strip_suffix('%').unwrap_or(text).parse::<f64>().ok();
    let number = number.filter(|number| (0.0..=100.0).contains(number));
    number.ok_or_else(|| "a percentage is needed, such as 2%".to_owned())
}

pub(crate) type Output = Document<1, Ranked>;

/// Without --head: most recordings have thousands of stacks, with long lines.
const STACKS: usize = 20;

impl RankArgs {
    /// Refuses all these options, with a usage error.
    pub(super) fn refuse_all(&self) -> Result<()> {
        if let Some(head) = self.head {
            let lines = head.saturating_add(1);
            let what = format!(
                "--head is for functions, stacks, lines, calls and fields; else use `| head -n {lines}`"
            );
            bail!(Usage(what));
        }
        self.of_rows().map(drop)
    }

    /// The number of calls to list, if given. Refuses options for functions and stacks.
    pub(super) fn head_of_calls(&self) -> Result<Option<usize>> {
        self.refuse_insn()?;
        let stacks = [("--inline", self.inline), ("--full-names", self.full_names)];
        Usage::refuse(&stacks, "functions and stacks")?;
        self.refuse_trees()?;
        Ok(self.head)
    }

    /// The number of lines to list, if given, and true for instructions. Refuses other options.
    pub(super) fn of_lines(&self) -> Result<(Option<usize>, bool)> {
        self.refuse_ranks()?;
        Ok((self.head, self.insn))
    }

    /// The number of rows of fields to list, if given. Refuses other options.
    pub(super) fn of_rows(&self) -> Result<Option<usize>> {
        self.refuse_insn()?;
        self.refuse_ranks()?;
        Ok(self.head)
    }

    fn refuse_insn(&self) -> Result<()> {
        Usage::refuse(&[("--insn", self.insn)], "lines")
    }

    fn refuse_ranks(&self) -> Result<()> {
        let [inline, itrace] = [("--inline", self.inline), ("--itrace", self.trace.itrace)];
        Usage::refuse(&[inline, itrace, ("--full-names", self.full_names)], "functions and stacks")?;
        self.refuse_trees()
    }

    fn refuse_trees(&self) -> Result<()> {
        let given = [
            ("--sort", self.sort.is_some()),
            ("--children", self.children),
            ("--callers", self.callers.is_some()),
            ("--callees", self.callees.is_some()),
            ("--depth", self.depth.is_some()),
            ("--percent-limit", self.percent_limit.is_some()),
        ];
        Usage::refuse(&given, "functions")
    }

    pub(super) fn functions(
        &self,
        inputs: &InputsArgs,
        stacks: &StackArgs,
        format: (FormatArgs, Option<By>),
    ) -> Result<u8> {
        self.refuse_insn()?;
        let (around, calls) = (self.callers.as_ref().or(self.callees.as_ref()), self.callers.is_none());
        if around.is_none() {
            let given =
                [("--depth", self.depth.is_some()), ("--percent-limit", self.percent_limit.is_some())];
            Usage::refuse(&given, "--callers and --callees")?;
        } else {
            Usage::refuse(
                &[("--head", self.head.is_some())],
                "lists; a tree has --depth and --percent-limit",
            )?;
        }
        let Some(around) = around else {
            let order = match self.sort {
                _ if self.children => Order::Total,
                None | Some(SortKey::Own) => Order::Own,
                Some(SortKey::Total) => Order::Total,
                Some(SortKey::Samples) => Order::Samples,
                Some(SortKey::Name) => Order::Name,
                Some(SortKey::Dso) => Order::Dso,
                Some(SortKey::Max) => Order::Longest,
                Some(SortKey::P99) => Order::Percentile,
            };
            if matches!(order, Order::Longest | Order::Percentile) && !self.trace.itrace {
                bail!(Usage("samples have no durations: --sort max and p99 need --itrace".into()));
            }
            let head = self.head.unwrap_or(usize::MAX);
            return self.run(inputs, stacks, format, |ranking, _| match self.trace.itrace {
                true => ranking.traced_functions(order, head),
                false => ranking.functions(order, head),
            });
        };
        let depth = self.depth.unwrap_or(10);
        self.run(inputs, stacks, format, |ranking, percent_limit| {
            let chosen = meant(around, ranking.names()).unwrap_or_default();
            match calls {
                true => ranking.callees(&chosen, Shape { depth, percent_limit }),
                false => ranking.callers(&chosen, Shape { depth, percent_limit }),
            }
        })
    }

    pub(super) fn stacks(
        &self,
        inputs: &InputsArgs,
        stacks: &StackArgs,
        format: (FormatArgs, Option<By>),
    ) -> Result<u8> {
        self.refuse_insn()?;
        self.refuse_trees()?;
        self.run(inputs, stacks, format, |ranking, _| ranking.stacks(self.head.unwrap_or(STACKS)))
    }

    fn run(
        &self,
        inputs: &InputsArgs,
        options: &StackArgs,
        (format, by): (FormatArgs, Option<By>),
        rank: impl Fn(&Ranking, f64) -> Ranked,
    ) -> Result<u8> {
        let ids = options.ids()?;
        let mut report = Report::default();
        if self.trace.itrace && by.is_some() {
            bail!(Usage("--by groups samples; select the calls of a process by --pid".into()));
        }
        // Samples of a CPU, cgroup or container are not grouped by thread names as well.
        let group = by.map(By::grouping).map(|by| Grouping { comm: by.comm && !by.cpu && !by.cgroup, ..by });
        let mut ranking = group.map_or_else(Ranking::default, Ranking::by);
        let mut shown = ShownEvent::default();
        let grouping = Grouping { own_address: true, ..group.unwrap_or_default() };
        each_recording(&inputs.sources()?, &mut report, |recording, report| {
            let mut collected = options.collect_or_trace(self.trace, recording, &ids, grouping, report)?;
            let event = collected.shown(&mut shown, false)?;
            let Collected { recording, facts, stacks, .. } = &collected;
            let sampled = stacks.sampled(facts);
            let named = ranking.add(stacks, collected.search(&ids, self.inline), event)?;
            say_read(report, recording, stacks);
            by.into_iter().for_each(|by| by.say(facts, stacks, report));
            named.say(report);
            if !self.trace.itrace {
                sampled.say(event, false, report);
                say_quality(collected.chain_quality(), report);
            }
            Ok(())
        })?;
        let limit = self.percent_limit.unwrap_or(0.5);
        let ranked = rank(&ranking, limit);
        let tree = |ranked: &Ranked| match ranked {
            Ranked::Callers { rows, .. } | Ranked::Callees { rows, .. } => {
                Some(rows.iter().filter(|row| row.depth == 0).map(|row| row.percent).sum::<f64>())
            }
            _ => None,
        };
        if tree(&ranked) == Some(0.0) {
            let name = self.callers.as_ref().or(self.callees.as_ref()).map_or("", String::as_str);
            let what = match tree(&rank(&ranking, 0.0)) {
                Some(hidden) if hidden > 0.0 => format!(
                    "`{name}` has {hidden:.2}% of the samples, and rows below {limit}% are left out: \
                     --percent-limit 0 shows them"
                ),
                _ => match meant(name, ranking.names()) {
                    Ok(_) => format!("`{name}` has no share of the samples"),
                    Err(_) if self.inline => unknown(name, ranking.names()),
                    Err(_) => {
                        format!("{}; --inline also lists inlined functions", unknown(name, ranking.names()))
                    }
                },
            };
            report.say(Level::Warning, what);
        }
        let columns = if self.full_names { usize::MAX } else { columns() };
        format.print(|| text(&ranked, columns), || Output::new(ranked.clone()))?;
        Ok(options.verbosity.print(&report))
    }
}

/// A list with lines of at most `columns` characters: wide names are shortened in the middle, to 16 or more.
pub(crate) fn text(ranked: &Ranked, columns: usize) -> String {
    match ranked {
        Ranked::Functions { rows, .. } => {
            let file = |dso: &Option<String>| printable(dso.as_deref().map_or("[unknown]", last));
            let files = rows.iter().map(|row| file(&row.dso).chars().count()).max().unwrap_or(0);
            let width = files.clamp("DSO".len(), if columns == usize::MAX { files.max(3) } else { 24 });
            let groups: Vec<String> =
                rows.iter().map(|row| row.group.as_deref().map_or_else(String::new, printable)).collect();
            let widest = groups.iter().map(|group| group.chars().count()).max().unwrap_or(0);
            // Empty without groups.
            let group = |text: &str| {
                if widest > 0 { format!("{text:width$}  ", width = widest.max(5)) } else { String::new() }
            };
            let title = group("group");
            let rest = columns.saturating_sub(width + 33 + title.chars().count()).max(NAME);
            let mut text = format!("   self    total     samples  {title}{:width$}  function\n", "DSO");
            for (row, of) in rows.iter().zip(&groups) {
                let file = without_middle(&file(&row.dso), width);
                let name = function_within(&printable(&row.function), rest);
                let (own, total, samples) = (row.self_percent, row.total_percent, count(row.samples));
                let of = group(of);
                text += &format!("{own:6.2}%  {total:6.2}%  {samples:>10}  {of}{file:width$}  {name}\n");
            }
            if rows.is_empty() { String::new() } else { text }
        }
        Ranked::TracedFunctions { rows, .. } => traced(rows, columns),
        Ranked::Stacks { rows, .. } => {
            let lines = rows.iter().map(|row| {
                let frames: Vec<&str> = row.group.iter().chain(&row.stack).map(String::as_str).collect();
                let stack =
                    without_middle(&printable(&frames.join(";")), columns.saturating_sub(21).max(NAME));
                format!("{:6.2}%  {:>10}  {stack}\n", row.percent, count(row.samples))
            });
            let title = if rows.is_empty() { "" } else { "  share     samples  stack\n" };
            std::iter::once(title.to_owned()).chain(lines).collect()
        }
        Ranked::Callers { rows, .. } | Ranked::Callees { rows, .. } => {
            let line = |row: &CallRow| {
                let indent = 2 * row.depth as usize;
                // A function without a symbol is named after its file.
                let file = row.dso.as_deref().map(last);
                let file = file.filter(|file| row.function != format!("[{file}]"));
                let file = file.map_or_else(String::new, |file| format!(" ({file})"));
                let group = row.group.as_ref().filter(|_| row.depth == 0);
                let group = group.map_or_else(String::new, |group| format!(" in {group}"));
                let name = printable(&format!("{}{file}{group}", row.function));
                let name = function_within(&name, columns.saturating_sub(indent + 9).max(NAME));
                format!("{:6.2}%  {:indent$}{name}\n", row.percent, "")
            };
            rows.iter().map(line).collect()
        }
    }
}

fn last(path: &str) -> &str {
    path.rsplit('/').next().unwrap_or(path)
}

/// The functions of a trace, with the time off the CPU if there is any.
fn traced(rows: &[TracedRow], columns: usize) -> String {
    let off_cpu = |row: &TracedRow| row.durations.as_ref().map_or(0, |of| of.off_cpu_ns.0);
    let has_off_cpu = rows.iter().any(|row| off_cpu(row) > 0);
    let mut title = vec!["calls", "self ns", "total ns", "mean", "median", "p99", "max"];
    title.extend(has_off_cpu.then_some("off CPU"));
    let cells = rows.iter().map(|row| {
        let lasting = |ns: fn(&DurationSummary) -> u64| {
            row.durations.as_ref().map_or_else(|| "-".to_owned(), |of| count(ns(of)))
        };
        let mut cells = vec![count(row.calls), count(row.self_ns.0), count(row.total_ns.0)];
        cells.extend([lasting(|of| of.mean_ns.0), lasting(|of| of.median_ns.0)]);
        cells.extend([lasting(|of| of.p99_ns.0), lasting(|of| of.max_ns.0)]);
        cells.extend(has_off_cpu.then(|| count(off_cpu(row))));
        cells
    });
    let title: Vec<String> = title.into_iter().map(str::to_owned).collect();
    let numbers: Vec<Vec<String>> = std::iter::once(title).chain(cells).collect();
    let names = rows
        .iter()
        .map(|row| [printable(row.dso.as_deref().map_or("[unknown]", last)), printable(&row.function)]);
    let names = std::iter::once(["DSO".to_owned(), "function".to_owned()]).chain(names);
    let width = |column: usize| numbers.iter().map(|row| row[column].chars().count()).max().unwrap_or(0);
    let widths: Vec<usize> = (0..numbers[0].len()).map(width).collect();
    let dso = names.clone().map(|[file, _]| file.chars().count()).max().unwrap_or(0);
    let dso = dso.min(if columns == usize::MAX { dso } else { 24 });
    let rest = columns.saturating_sub(widths.iter().sum::<usize>() + 2 * widths.len() + dso + 2).max(NAME);
    let line = |(numbers, [file, name]): (&Vec<String>, [String; 2])| {
        let numbers: String =
            numbers.iter().zip(&widths).map(|(cell, &width)| format!("{cell:>width$}  ")).collect();
        format!("{numbers}{:dso$}  {}\n", without_middle(&file, dso), function_within(&name, rest))
    };
    if rows.is_empty() { String::new() } else { numbers.iter().zip(names).map(line).collect() }
}
