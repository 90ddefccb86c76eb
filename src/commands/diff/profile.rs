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
    /// Refuses options that have no effect.
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

    /// Compares the first `split` recordings with the others.
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
        };
        let (a, b) = runs.split_at(split);
        let found = compare(&named, [a, b], options);
        report_changes(&found, &mut report);
        Ok((found, report))
    }
}

/// Reports the changes, and how they were tested.
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
    let moved = format!("{what} changed by {}% or more, and by more than {noise}", found.threshold);
    report.say(Level::Info, moved);
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
    let weight = |weight: f64| if found.time { duration(weight as u64) } else { count(weight as u64) };
    let row = |name: String, of: &Change| {
        let verdict = match (of.probability, of.beyond_noise) {
            (_, true) => "changed",
            (Some(_), false) if of.change.abs() >= found.threshold && of.change != 0.0 => "noise",
            (_, false) => "",
        };
        let percent = |share: f64| format!("{share:.2}%");
        let shares = [percent(of.share_a), percent(of.share_b)];
        let change = format!("{:+.2}%", of.change);
        [vec![name, weight(of.a), weight(of.b)], shares.into(), vec![change, verdict.to_owned()]].concat()
    };
    let header = ["", "A", "B", "share A", "share B", "change", ""];
    let mut rows = vec![header.map(str::to_owned).to_vec(), row("total".to_owned(), &found.all)];
    rows.extend(found.comms.iter().map(|of| row(format!("comm {}", of.comm), &of.change)));
    rows.extend(found.functions.iter().map(|of| {
        let file = of.file.as_deref().map_or("no file", |file| file.rsplit('/').next().unwrap_or(file));
        row(format!("{} ({})", of.function, readable(file.as_bytes())), &of.change)
    }));
    fitted(&rows)
}
