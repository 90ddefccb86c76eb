//! `perfx diff --profile` compares the shares that functions have in the samples of two recordings.

use anyhow::{Result, bail, ensure};
use clap::Args;
use perfx_export::folded::Count;
use perfx_export::shares::{MovedFunction, Profile, ProfileDiff, compare};
use perfx_export::{Facts, Grouping, NamedStacks, Row, ShownEvent, Stacks, Weight};
use perfx_look::render::readable;
use perfx_pipeline::{Level, Report, counted};

use crate::args::{ReadArgs, Usage};
use crate::commands::export::input::{ChosenArgs, Collected, each_recording, say_read};
use crate::commands::list::percentage;
use crate::io::source::Source;
use crate::term::units::fitted;

/// The options of a comparison of profiles.
#[derive(Args, Debug)]
#[command(next_help_heading = "Profiles")]
pub(super) struct ProfileArgs {
    /// Compare the shares that functions have in the samples, instead of the contents
    #[arg(long, conflicts_with = "ignore")]
    pub(super) profile: bool,
    /// List functions whose share moved by at least so many percentage points [default: 1%]
    #[arg(long, value_name = "PERCENT", value_parser = percentage, requires = "profile")]
    threshold: Option<f64>,
    /// Compare shares of the samples in a function and in what it called
    #[arg(long, requires = "profile")]
    total: bool,
    /// Leave out calls that the compiler inlined, and don't read DWARF
    #[arg(long, requires = "profile")]
    no_inline: bool,
    #[command(flatten)]
    chosen: ChosenArgs,
}

impl ProfileArgs {
    /// Refuses options that have no effect.
    pub(super) fn check(&self) -> Result<()> {
        if !self.profile && self.chosen.is_given() {
            bail!(Usage("options that select samples or search for symbols need --profile".into()));
        }
        Ok(())
    }

    /// Compares the recordings. The report says what was read and found.
    pub(super) fn compare(&self, sources: &[Source; 2], read: ReadArgs) -> Result<(ProfileDiff, Report)> {
        let ids = self.chosen.ids()?;
        let mut report = Report::default();
        let mut named = NamedStacks::new(2);
        let mut sides: Vec<(Stacks, Facts, Vec<u32>, Option<u32>)> = Vec::new();
        let mut shown = ShownEvent::default();
        each_recording(sources, &mut report, |recording, said| {
            let collected = self.chosen.collect(
                recording,
                &ids,
                Grouping::default(),
                (read.threads.count(), read.verbosity),
                said,
            )?;
            let (placed, found) = named.add(&collected.stacks, collected.search(&ids, !self.no_inline))?;
            let Collected { recording, facts, stacks, chooses_events, bar } = collected;
            drop(bar);
            say_read(said, &recording, &stacks);
            found.say(said);
            // Like folded lines: of several events only the first one, unless some are chosen.
            let only = if chooses_events { None } else { shown.of(&recording.name, &stacks, &facts)? };
            sides.push((stacks, facts, placed, only));
            Ok(())
        })?;
        let counts = |at: usize, event: u32| {
            let (_, facts, _, only) = &sides[at];
            facts.events.get(event as usize).filter(|_| only.is_none_or(|only| only == event))
        };
        let profile = |at: usize| {
            let (stacks, _, placed, _) = &sides[at];
            let events = stacks.times.keys().filter_map(|&event| counts(at, event));
            let events = events.map(|event| String::from_utf8_lossy(&event.name).into_owned()).collect();
            Profile { stacks, placed, events }
        };
        let count = |at: usize, row: &Row, weight: &Weight| {
            counts(at, row.event).map(|event| Count::Shown.of(Some(event), weight))
        };
        let threshold = self.threshold.unwrap_or(1.0);
        let found = compare(&named, [profile(0), profile(1)], count, threshold, self.total);
        for (source, side) in sources.iter().zip([&found.a, &found.b]) {
            ensure!(
                side.samples > 0,
                "{source}: there is nothing to compare, because no samples are selected"
            );
            let samples = counted(side.samples, "sample", "samples");
            report.say(Level::Info, format!("{source}: {samples} of {}", side.events.join(", ")));
        }
        let moved = match found.moved.len() {
            0 => "no function's share".to_owned(),
            moved => format!("the share of {}", counted(moved as u64, "function", "functions")),
        };
        report.say(Level::Info, format!("{moved} moved by {threshold}% or more"));
        Ok((found, report))
    }
}

/// The functions as a table.
pub(super) fn text(found: &ProfileDiff) -> String {
    if found.moved.is_empty() {
        return String::new();
    }
    let row = |moved: &MovedFunction| {
        let file = moved.file.as_deref().map_or("no file", |file| file.rsplit('/').next().unwrap_or(file));
        let name = format!("{} ({})", moved.function, readable(file.as_bytes()));
        vec![name, format!("{:.2}%", moved.a), format!("{:.2}%", moved.b), format!("{:+.2}%", moved.change)]
    };
    let mut rows = vec![["function", "A", "B", "change"].map(str::to_owned).to_vec()];
    rows.extend(found.moved.iter().map(row));
    fitted(&rows)
}
