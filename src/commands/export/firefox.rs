//! `perfx export firefox` writes call stacks over time as a profile for the Firefox Profiler.

use anyhow::Result;
use clap::Args;
use perfx_export::firefox::{FirefoxProfile, losses};
use perfx_export::{Grouping, ShownEvent};
use perfx_look::clock::Clock;
use perfx_pipeline::{Level, Report, counted};

use super::input::{Collected, StackArgs, TraceArgs, each_recording, say_read, say_step};
use crate::io::output::OutputArgs;
use crate::io::source::InputsArgs;

/// Write call stacks over time as a profile for the Firefox Profiler (profiler.firefox.com), with symbols
///
/// The profile has a track for each thread, with functions, source lines and inlined calls inside, so it can
/// be opened anywhere. If there are several events, the stacks of cycles or of a clock are shown, unless
/// --event selects some; the others are counters of their process. Losses of the kernel are shown as markers,
/// and a thread without samples for a while as idle. Times are those of the wall clock if the recording has
/// it (perf record -k CLOCK_MONOTONIC).
///
/// Examples:
///   perfx export firefox perf.data -o perf.json.gz
///   perfx export firefox perf.data --time 10%-20% --comm 'nginx.*' -o nginx.json.gz
#[derive(Args, Debug)]
#[command(verbatim_doc_comment)]
pub(crate) struct Firefox {
    #[command(flatten)]
    inputs: InputsArgs,
    #[command(flatten)]
    output: OutputArgs,
    /// Leave out calls that the compiler inlined and source lines, and don't read DWARF
    #[arg(help_heading = "Profile", long)]
    no_inline: bool,
    #[command(flatten, next_help_heading = "Samples")]
    trace: TraceArgs,
    #[command(flatten)]
    stacks: StackArgs,
}

impl Firefox {
    pub(crate) fn run(&self) -> Result<u8> {
        let ids = self.stacks.ids()?;
        let sources = self.inputs.sources()?;
        let output = self.output.open(&sources, false)?;
        let mut report = Report::default();
        let grouping = Grouping { pid: true, tid: true, time: true, unmapped: true, ..Grouping::default() };
        let mut profile = FirefoxProfile::default();
        let mut event = ShownEvent::default();
        each_recording(&sources, &mut report, |recording, report| {
            let mut collected =
                self.stacks.collect_or_trace(self.trace, recording, &ids, grouping, report)?;
            let threads = self.stacks.threads.count(&collected.recording);
            let lost = losses(&mut collected.recording, threads)?;
            let shown = collected.shown(&mut event, false)?;
            // Calls from a trace are function starts, without lines.
            let search = collected.search(&ids, !self.no_inline && !self.trace.itrace);
            let named =
                profile.add(&collected.stacks, search, lost, shown, Clock::of(&collected.recording))?;
            let Collected { recording, stacks, bar, .. } = collected;
            drop(bar);
            say_read(report, &recording, &stacks);
            named.say(report);
            say_step(report, &stacks);
            Ok(())
        })?;
        output.write(|out| profile.write(out))?;
        let samples = counted(profile.samples(), "sample", "samples");
        let threads = counted(profile.threads() as u64, "thread", "threads");
        let counters = counted(profile.counter_tracks() as u64, "counter", "counters");
        report.say(Level::Info, format!("wrote {samples} of {threads}, and {counters}"));
        Ok(self.stacks.verbosity.print(&report))
    }
}
