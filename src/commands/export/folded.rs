//! `perfx export folded` writes the call stacks of recordings as folded lines, the input of flame graphs.

use anyhow::Result;
use clap::{Args, ValueEnum};
use perfx_export::folded::{Count, Folded as Lines, FoldedOptions};
use perfx_export::{Grouping, Row, ShownEvent, Weight};
use perfx_pipeline::{Level, Report, counted};

use super::input::{By, Collected, StackArgs, TraceArgs, each_recording, say_read};
use crate::io::output::OutputArgs;
use crate::io::source::InputsArgs;

/// Write call stacks as folded lines for flame graphs: comm;outermost;…;innermost COUNT
///
/// The lines are those of perf script | stackcollapse-perf.pl, sorted. If there are several events, cycles or
/// a clock is counted, unless --event selects some. COUNT is the sum of the periods: nanoseconds of cpu-clock
/// and of waits that off-cpu measured, otherwise events. Counts of several recordings add up.
///
/// Examples:
///   perfx export folded perf.data | flamegraph.pl > flame.svg
///   perfx export folded perf.data --weight samples --by pid -o perf.folded
///   perfx export folded perf.data --time 20%-40% --comm 'nginx.*' --kernel
///   perfx export folded @recordings.txt -o all.folded
#[derive(Args, Debug)]
#[command(verbatim_doc_comment)]
pub(crate) struct Folded {
    #[command(flatten)]
    inputs: InputsArgs,
    #[command(flatten)]
    output: OutputArgs,
    /// First frames of a line
    #[arg(help_heading = "Lines", long, value_enum, default_value_t = By::Comm)]
    by: By,
    /// The number at the end of a line
    #[arg(help_heading = "Lines", long, value_enum, default_value_t = Unit::Period)]
    weight: Unit,
    /// Mark functions of the kernel with _[k]
    #[arg(help_heading = "Lines", long)]
    kernel: bool,
    /// Mark functions of a perf map (/tmp/perf-PID.map) with _[j]
    #[arg(help_heading = "Lines", long)]
    jit: bool,
    /// The same as --kernel --jit
    #[arg(help_heading = "Lines", long)]
    all: bool,
    /// Show where frames without a symbol are: their offset in the file
    #[arg(help_heading = "Lines", long)]
    addrs: bool,
    /// Leave out calls that the compiler inlined, and don't read DWARF
    #[arg(help_heading = "Lines", long)]
    no_inline: bool,
    /// Leave out the callers of this function
    #[arg(help_heading = "Lines", long, value_name = "FUNCTION")]
    skip_after: Vec<String>,
    #[command(flatten, next_help_heading = "Samples")]
    trace: TraceArgs,
    #[command(flatten)]
    stacks: StackArgs,
}

/// The unit that a line counts.
#[derive(ValueEnum, Debug, Clone, Copy)]
enum Unit {
    /// The sum of the samples' periods, as in perf report: time (ns) of a clock or off the CPU, cycles, events
    Period,
    /// The number of samples
    Samples,
}

impl Folded {
    pub(crate) fn run(&self) -> Result<u8> {
        let ids = self.stacks.ids()?;
        let sources = self.inputs.sources()?;
        let output = self.output.open(&sources, true)?;
        let mut report = Report::default();
        let mut parts = Vec::new();
        let mut shown = ShownEvent::default();
        each_recording(&sources, &mut report, |recording, report| {
            let mut collected =
                self.stacks.collect_or_trace(self.trace, recording, &ids, self.grouping(), report)?;
            let only = collected.shown(&mut shown, matches!(self.weight, Unit::Samples))?;
            let search = collected.search(&ids, !self.no_inline && !self.trace.itrace);
            let Collected { recording, facts, stacks, .. } = &collected;
            let sampled = stacks.sampled(facts);
            let count = match self.weight {
                Unit::Period => Count::Period,
                Unit::Samples => Count::Samples,
            };
            // Calls that took no time are left out, unless the trace has no times at all.
            let is_timed = self.trace.itrace && stacks.have_periods();
            let counts = |row: &Row, weight: &Weight| match count {
                _ if only.is_some_and(|only| only != row.event) => None,
                Count::Period if is_timed => Some(weight.period).filter(|ns| *ns > 0),
                _ => Some(count.of(weight)),
            };
            let (lines, named) = Lines::new(stacks, search, &self.options(), counts)?;
            parts.push(lines);
            say_read(report, recording, stacks);
            self.by.say(facts, stacks, report);
            named.say(report);
            sampled.say(only, matches!(self.weight, Unit::Samples), report);
            Ok(())
        })?;
        let lines = Lines::joined(parts);
        if sources.len() > 1 {
            lines.say_cut_off(&mut report);
        }
        output.write(|out| lines.write(out))?;
        report.say(Level::Info, format!("wrote {}", counted(lines.len() as u64, "stack", "stacks")));
        Ok(self.stacks.verbosity.print(&report))
    }

    fn grouping(&self) -> Grouping {
        Grouping { unmapped: self.addrs, ..self.by.grouping() }
    }

    fn options(&self) -> FoldedOptions {
        FoldedOptions {
            grouping: self.grouping(),
            kernel: self.kernel || self.all,
            jit: self.jit || self.all,
            addresses: self.addrs,
            skip_after: self.skip_after.clone(),
        }
    }
}
