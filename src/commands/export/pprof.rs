//! `perfx export pprof` writes the call stacks of a recording as a profile of pprof.

use anyhow::Result;
use clap::{Args, ValueEnum};
use perfx_export::Grouping;
use perfx_export::pprof::Profile;
use perfx_pipeline::{Level, Report, counted};

use super::input::{StackArgs, TraceArgs, each_recording, say_read};
use crate::io::output::OutputArgs;
use crate::io::source::InputsArgs;

/// Write call stacks as a profile for pprof, with functions, lines and inlined calls
///
/// The profile (profile.proto, gzip) is for go tool pprof, Pyroscope, Parca and speedscope. Each event has
/// two values: the number of samples and the sum of their periods. Values of several recordings add up.
///
/// Examples:
///   perfx export pprof perf.data -o perf.pb.gz && go tool pprof -top perf.pb.gz
///   perfx export pprof perf.data --labels comm,pid --event cycles -o cycles.pb.gz
#[derive(Args, Debug)]
#[command(verbatim_doc_comment)]
pub(crate) struct Pprof {
    #[command(flatten)]
    inputs: InputsArgs,
    #[command(flatten)]
    output: OutputArgs,
    /// Labels of the samples; each distinct combination of stack and labels is a sample of the profile
    #[arg(help_heading = "Profile", long, value_enum, value_name = "LABEL,…", value_delimiter = ',')]
    labels: Vec<Label>,
    /// Leave out calls that the compiler inlined and source lines, and don't read DWARF
    #[arg(help_heading = "Profile", long)]
    no_inline: bool,
    #[command(flatten, next_help_heading = "Samples")]
    trace: TraceArgs,
    #[command(flatten)]
    stacks: StackArgs,
}

/// A label of samples.
#[derive(ValueEnum, Debug, Clone, Copy, PartialEq, Eq)]
enum Label {
    /// The name of the thread
    Comm,
    /// The process
    Pid,
    /// The thread
    Tid,
    /// The CPU
    Cpu,
    /// The cgroup (perf record --all-cgroups)
    Cgroup,
}

impl Pprof {
    pub(crate) fn run(&self) -> Result<u8> {
        let ids = self.stacks.ids()?;
        let sources = self.inputs.sources()?;
        let output = self.output.open(&sources, false)?;
        let mut report = Report::default();
        let has = |label| self.labels.contains(&label);
        let grouping = Grouping {
            comm: has(Label::Comm),
            pid: has(Label::Pid),
            tid: has(Label::Tid),
            cpu: has(Label::Cpu),
            cgroup: has(Label::Cgroup),
            unmapped: true,
            ..Grouping::default()
        };
        let mut parts = Vec::new();
        each_recording(&sources, &mut report, |recording, report| {
            let collected = self.stacks.collect_or_trace(self.trace, recording, &ids, grouping, report)?;
            let search = collected.search(&ids, !self.no_inline && !self.trace.itrace);
            let (profile, named) = Profile::new(&collected.stacks, search)?;
            parts.push(profile);
            say_read(report, &collected.recording, &collected.stacks);
            named.say(report);
            Ok(())
        })?;
        let profile = Profile::joined(parts);
        profile.say_cut_off(&mut report);
        output.write(|out| profile.write(out))?;
        let samples = counted(profile.sample.len() as u64, "distinct sample", "distinct samples");
        let events = counted(profile.sample_type.len() as u64 / 2, "event", "events");
        report.say(Level::Info, format!("wrote a profile of {events}: {samples}"));
        Ok(self.stacks.verbosity.print(&report))
    }
}
