//! `perfx diff --profile` compares the weights of functions in the runs of two programs.

use std::path::PathBuf;

use anyhow::{Result, bail, ensure};
use clap::Args;
use perfx_export::changes::{Change, ChangeOptions, Noise, ProfileDiff, Run, compare};
use perfx_export::folded::Count;
use perfx_export::{Grouping, NamedStacks, ShownEvent};
use perfx_filter::SelectArgs;
use perfx_look::render::readable;
use perfx_pipeline::{Level, Report, counted};

use crate::args::{ReadArgs, Usage};
use crate::commands::export::input::{Collected, StackArgs, each_recording, filter_of, say_read};
use crate::commands::list::percentage;
use crate::io::source::{InputsArgs, Source, refuse_twice};
use crate::term::units::{count, duration, fitted};

/// The options of a comparison of profiles.
#[derive(Args, Debug)]
#[command(next_help_heading = "Profiles")]
pub(super) struct ProfileArgs {
    /// Compare the weights of functions in the samples instead of the contents
    #[arg(long, conflicts_with = "ignore")]
    pub(super) profile: bool,
    /// Runs of the other side; @FILE is a list of them, one per line
    #[arg(long, value_name = "B", num_args = 1.., requires = "profile")]
    vs: Vec<PathBuf>,
    /// Ignore changes below this percentage of the weight of a run of A [default: 1%]
    #[arg(long, value_name = "PERCENT", value_parser = percentage, requires = "profile")]
    threshold: Option<f64>,
    /// Probability of reporting a change although nothing changed. For N comparisons, give 5%/N
    #[arg(long, value_name = "PERCENT", value_parser = percentage, default_value = "5%", requires = "profile")]
    false_alarms: f64,
    /// List only the first N functions
    #[arg(long, value_name = "N", requires = "profile")]
    head: Option<usize>,
    /// Compare shares of the samples instead of weights, for services, whose weight depends on the load
    #[arg(long, requires = "profile")]
    shares: bool,
    /// Compare weights per EVENT instead of per run, for runs with different work: a tracepoint of each request
    #[arg(long, value_name = "EVENT", requires = "profile", conflicts_with = "shares")]
    per: Option<String>,
    /// Also count the samples in the functions that a function called
    #[arg(long, requires = "profile")]
    total: bool,
    /// Leave out calls that the compiler inlined, and don't read DWARF
    #[arg(long, requires = "profile")]
    no_inline: bool,
    #[command(flatten, next_help_heading = "Samples")]
    select: SelectArgs,
}

impl ProfileArgs {
    pub(super) fn check(&self) -> Result<()> {
        let is_given =
            || self.select.searches() || filter_of(&self.select).map_or(true, |filter| !filter.is_empty());
        if !self.profile && is_given() {
            bail!(Usage("options that select samples or search for symbols need --profile".into()));
        }
        Ok(())
    }

    pub(super) fn run(&self, recordings: &[PathBuf], read: ReadArgs) -> Result<(ProfileDiff, Report)> {
        let [a, b] = match (recordings, &*self.vs) {
            ([a, b], []) => [vec![a.clone()], vec![b.clone()]],
            (a, b) if !b.is_empty() => [a.to_vec(), b.to_vec()],
            _ => {
                bail!(Usage(
                    "give two recordings, or the runs of one side, --vs, and those of the other".into()
                ))
            }
        };
        let (a, b) = (InputsArgs::of(a).sources()?, InputsArgs::of(b).sources()?);
        let sources = [&a[..], &b[..]].concat();
        refuse_twice(&sources)?;
        let (mut found, report) = self.compare(&sources, a.len(), read)?;
        found.functions.truncate(self.head.unwrap_or(usize::MAX));
        Ok((found, report))
    }

    fn compare(&self, sources: &[Source], split: usize, read: ReadArgs) -> Result<(ProfileDiff, Report)> {
        let options = StackArgs::of(&self.select, read);
        let ids = options.ids()?;
        let mut report = Report::default();
        let mut named = NamedStacks::new(sources.len());
        let mut runs: Vec<Run> = Vec::new();
        let mut shown = ShownEvent::default();
        let grouping = Grouping { comm: true, ..Grouping::default() };
        each_recording(sources, &mut report, |recording, report| {
            let mut collected = options.collect(recording, &ids, grouping, report)?;
            let only = collected.shown(&mut shown, false)?;
            let (placed, found) = named.add(&collected.stacks, collected.search(&ids, !self.no_inline))?;
            let Collected { recording, facts, stacks, bar, .. } = collected;
            drop(bar);
            say_read(report, &recording, &stacks);
            found.say(report);
            let sampled = stacks.sampled(&facts);
            let is_counted = |event: u32| only.is_none_or(|only| only == event);
            let mut run = Run::new(&named, &stacks, &placed, self.total, |row, weight| {
                is_counted(row.event).then(|| Count::Period.of(weight))
            });
            let events = || sampled.iter().map(|(event, _)| event).filter(|&event| is_counted(event));
            run.events = events().map(|event| sampled.name(event).into_owned()).collect();
            run.time = events().all(|event| sampled.is_time(event));
            if let Some(per) = &self.per {
                let is_it = |event: u32| {
                    let name = sampled.name(event);
                    name == per.as_str() || name.split_once(':').is_some_and(|(_, name)| name == per)
                };
                let units = sampled.iter().filter(|(event, _)| is_it(*event));
                let work = units.map(|(_, weight)| Count::Period.of(&weight)).sum::<u64>();
                ensure!(work > 0, "{}: has no samples of {per} (--per)", recording.name);
                run.work = Some(work);
            }
            ensure!(
                run.samples > 0,
                "{}: there is nothing to compare, because no samples are selected",
                recording.name
            );
            sampled.say(only, false, report);
            runs.push(run);
            Ok(())
        })?;
        let options = ChangeOptions {
            threshold: self.threshold.unwrap_or(1.0),
            error: self.false_alarms / 100.0,
            trusts_one_run: self.threshold.is_some(),
            total: self.total,
            shares: self.shares,
            per: self.per.clone(),
        };
        let (a, b) = runs.split_at(split);
        let found = compare(&named, [a, b], &options);
        report_changes(&found, &mut report);
        Ok((found, report))
    }
}

fn report_changes(found: &ProfileDiff, report: &mut Report) {
    let beyond = found.functions.iter().filter(|function| function.change.beyond_noise).count();
    let what = match (found.all.beyond_noise, beyond) {
        (false, 0) => "nothing".to_owned(),
        (true, 0) => "the total".to_owned(),
        (false, beyond) => counted(beyond as u64, "function", "functions"),
        (true, beyond) => format!("the total and {}", counted(beyond as u64, "function", "functions")),
    };
    let noise = match found.noise {
        Noise::Sampling => "the noise of sampling",
        Noise::SamplingAndRuns => "the noise of sampling and of runs",
    };
    let of = if found.per.is_none() { "a run" } else { "the total" };
    let moved = format!("{what} changed by {}% of {of} or more, and by more than {noise}", found.threshold);
    report.say(Level::Info, moved);
    if let Some(detectable) = found.all.detectable.map(three_digits) {
        let what =
            format!("a change of the total by {detectable} would be found in 8 of 10 such comparisons");
        report.say(Level::Info, what);
    }
    if found.paired {
        report.say(
            Level::Info,
            "the sides took turns, so each run was compared with the other one of its turn",
        );
    }
    if found.noise == Noise::Sampling {
        let so = if found.changed || !(found.all.beyond_noise || beyond > 0) {
            ""
        } else {
            "; without --threshold, that does not count as a change"
        };
        let what =
            "differences between runs are unknown, because there is one run on each side (--vs takes more)";
        report.say(Level::Info, format!("{what}{so}"));
    }
}

pub(super) fn text(found: &ProfileDiff) -> String {
    // The weight of a unit of work may be small.
    let weight = |weight: f64| match (found.time, &found.per) {
        (true, Some(_)) if weight < 1e6 => format!("{:.3} µs", weight / 1e3),
        (true, _) => duration(weight as u64),
        (false, Some(_)) if weight < 1e3 => format!("{weight:.3}"),
        (false, _) => count(weight as u64),
    };
    let row = |name: String, of: &Change| {
        let verdict = match (of.probability, of.beyond_noise) {
            (_, true) => "changed",
            (Some(_), false) if of.change.abs() >= found.threshold && of.change != 0.0 => "noise",
            (_, false) => "",
        };
        let margin = of.margin.map_or_else(String::new, |margin| format!(" ± {}", three_digits(margin)));
        let change = of.relative.map_or_else(|| "new".to_owned(), |change| format!("{change:+.2}%{margin}"));
        let probability = of.probability.map_or_else(String::new, probability);
        let detectable = of.detectable.map_or_else(String::new, three_digits);
        let shares = format!("{:.2}% → {:.2}%", of.share_a, of.share_b);
        let of_run = format!("{:+.2}%", of.change);
        let cells = [name, weight(of.a), weight(of.b), change, probability, detectable, shares, of_run];
        [&cells[..], &[verdict.to_owned()]].concat()
    };
    let [per, run] = match &found.per {
        Some(event) => [event.rsplit(':').next().unwrap_or(event), "total"],
        None => ["run", "run"],
    };
    let sides = ["A", "B"].map(|side| format!("{side} per {per}"));
    let header = ["change", "p", "detectable"].map(str::to_owned);
    let shares = [format!("share of the {run}"), format!("change of {run}"), String::new()];
    let mut rows = vec![[&[String::new()][..], &sides, &header, &shares].concat()];
    rows.push(row("total".to_owned(), &found.all));
    rows.extend(found.comms.iter().map(|of| row(format!("comm {}", of.comm), &of.change)));
    rows.extend(found.functions.iter().map(|of| {
        let file = of.file.as_deref().map_or("no file", |file| file.rsplit('/').next().unwrap_or(file));
        row(format!("{} ({})", of.function, readable(file.as_bytes())), &of.change)
    }));
    fitted(&rows)
}

fn three_digits(percent: f64) -> String {
    let digits = if percent < 10.0 { 2 } else { usize::from(percent < 100.0) };
    format!("{percent:.digits$}%")
}

fn probability(probability: f64) -> String {
    if probability >= 0.001 { format!("{probability:.3}") } else { format!("{probability:.0e}") }
}
