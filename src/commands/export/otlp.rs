//! `perfx export otlp` writes the call stacks of a recording as profiles of OpenTelemetry.

use anyhow::{Result, ensure};
use clap::{Args, ValueEnum};
use perfx_export::Grouping;
use perfx_export::otlp::{Attributes, Otlp as Profiles};
use perfx_look::clock::Clock;
use perfx_pipeline::{Level, Report, counted};

use super::input::{StackArgs, TraceArgs, each_recording, say_read, say_step};
use crate::io::output::OutputArgs;
use crate::io::source::InputsArgs;

/// Write call stacks as profiles of OpenTelemetry (OTLP), for collectors
///
/// The file is an uncompressed message of opentelemetry-proto's profiles/v1development, an alpha version. A
/// collector also accepts it as a request. Each event has two profiles: the numbers of samples and the sums
/// of their periods. Several recordings share their tables.
///
/// Examples:
///   perfx export otlp perf.data -o perf.otlp
///   perfx export otlp perf.data -o - | curl --data-binary @- -H 'Content-Type: application/x-protobuf'
///     http://localhost:4318/v1development/profiles
#[derive(Args, Debug)]
#[command(verbatim_doc_comment)]
pub(crate) struct Otlp {
    #[command(flatten)]
    inputs: InputsArgs,
    #[command(flatten)]
    output: OutputArgs,
    /// Attributes of the samples; each distinct combination of stack and attributes is a sample
    #[arg(
        help_heading = "Profile",
        long,
        value_enum,
        value_name = "ATTRIBUTE,…",
        value_delimiter = ',',
        default_value = "process,thread,container"
    )]
    attributes: Vec<Attribute>,
    /// Write the time of each sample (perf record -k CLOCK_MONOTONIC)
    #[arg(help_heading = "Profile", long)]
    times: bool,
    /// Leave out the name of the recorded machine
    #[arg(help_heading = "Profile", long)]
    no_host: bool,
    /// Leave out calls that the compiler inlined and source lines, and don't read DWARF
    #[arg(help_heading = "Profile", long)]
    no_inline: bool,
    #[command(flatten, next_help_heading = "Samples")]
    trace: TraceArgs,
    #[command(flatten)]
    stacks: StackArgs,
}

/// An attribute of samples.
#[derive(ValueEnum, Debug, Clone, Copy, PartialEq, Eq)]
enum Attribute {
    /// process.pid, process.executable.name: the process and the name of its main thread
    Process,
    /// thread.id, thread.name
    Thread,
    /// container.id (perf record --all-cgroups)
    Container,
    /// cpu.logical_number
    Cpu,
    /// Nothing
    None,
}

impl Otlp {
    pub(crate) fn run(&self) -> Result<u8> {
        let ids = self.stacks.ids()?;
        let sources = self.inputs.sources()?;
        let output = self.output.open(&sources, false)?;
        let mut report = Report::default();
        let has = |attribute| self.attributes.contains(&attribute);
        let (process, thread) = (has(Attribute::Process), has(Attribute::Thread));
        let (container, cpu) = (has(Attribute::Container), has(Attribute::Cpu));
        let attributes = Attributes { process, thread, host: !self.no_host };
        let grouping = Grouping {
            comm: thread,
            pid: process,
            tid: process || thread,
            cpu,
            cgroup: container,
            time: self.times,
            unmapped: true,
            // As in `list functions`.
            own_address: true,
            ..Grouping::default()
        };
        let mut profiles = Profiles::default();
        each_recording(&sources, &mut report, |recording, report| {
            let clock = Clock::of(&recording);
            ensure!(
                !self.times || clock.wall_offset().is_some(),
                "{}: it does not relate its clock to the wall clock, which --times needs; record with \
                 perf record -k CLOCK_MONOTONIC, or leave out --times",
                recording.name
            );
            let collected = self.stacks.collect_or_trace(self.trace, recording, &ids, grouping, report)?;
            let named = profiles.add(
                &collected.stacks,
                collected.search(&ids, !self.no_inline && !self.trace.itrace),
                clock,
                attributes,
            )?;
            say_read(report, &collected.recording, &collected.stacks);
            named.say(report);
            say_step(report, &collected.stacks);
            Ok(())
        })?;
        let profiles = profiles.finish();
        profiles.say_cut_off(&mut report);
        output.write(|out| profiles.write(out))?;
        let number = counted(profiles.profiles().count() as u64, "profile", "profiles");
        let samples: usize = profiles.profiles().map(|profile| profile.samples.len()).sum();
        let samples = counted(samples as u64, "distinct sample", "distinct samples");
        report.say(Level::Info, format!("wrote {number}: {samples}"));
        Ok(self.stacks.verbosity.print(&report))
    }
}
