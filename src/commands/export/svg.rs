//! `perfx export svg` draws the call stacks of a recording as one flame graph, a picture for a ticket.

use anyhow::Result;
use clap::Args;
use perfx_export::svg::{Drawn, Picture, write};
use perfx_export::{NamedStacks, ShownEvent};
use perfx_pipeline::{Level, Report, count, counted};

use super::input::{By, Collected, StackArgs, TraceArgs, say_read};
use crate::io::output::OutputArgs;
use crate::io::source::{InputArgs, Source};

/// Draw call stacks as one flame graph, a picture for a ticket or a document
///
/// Names are text that a browser can search, and the colours are those of export html. The picture shows one
/// event, cycles or a clock if there are several, unless --event selects another. Frames narrower than half
/// a pixel are left out. With --itrace, widths are times in functions; without times in the trace, calls.
///
/// Examples:
///   perfx export svg perf.data -o flame.svg
///   perfx export svg perf.data --comm nginx --time 20%-40% -o flame.svg
#[derive(Args, Debug)]
#[command(verbatim_doc_comment)]
pub(crate) struct Svg {
    #[command(flatten)]
    input: InputArgs,
    #[command(flatten)]
    output: OutputArgs,
    /// Outermost frames
    #[arg(help_heading = "Picture", long, value_enum, default_value_t = By::Comm)]
    by: By,
    /// Leave out calls that the compiler inlined, and don't read DWARF
    #[arg(help_heading = "Picture", long)]
    no_inline: bool,
    #[command(flatten, next_help_heading = "Samples")]
    trace: TraceArgs,
    #[command(flatten)]
    stacks: StackArgs,
}

impl Svg {
    pub(crate) fn run(&self) -> Result<u8> {
        let ids = self.stacks.ids()?;
        let source = Source::of(&self.input);
        let output = self.output.open(std::slice::from_ref(&source), true)?;
        let mut report = Report::default();
        let grouping = self.by.grouping();
        let recording = source.open_indexed()?;
        let mut collected =
            self.stacks.collect_or_trace(self.trace, recording, &ids, grouping, &mut report)?;
        let event = collected.shown(&mut ShownEvent::default(), false)?;
        let mut named = NamedStacks::new(1);
        let (placed, found) =
            named.add(&collected.stacks, collected.search(&ids, !self.no_inline && !self.trace.itrace))?;
        let Collected { recording, facts, mut stacks, bar, .. } = collected;
        drop(bar);
        say_read(&mut report, &recording, &stacks);
        self.by.say(&facts, &stacks, &mut report);
        found.say(&mut report);
        // Calls that took no time are left out, unless the trace has no times at all.
        if self.trace.itrace && stacks.have_periods() {
            stacks.rows.retain(|_, weight| weight.period > 0);
        }
        let sampled = stacks.sampled(&facts);
        if !self.trace.itrace {
            sampled.say(event, false, &mut report);
        }
        let name = event.map_or("no samples".into(), |event| sampled.name(event));
        // The title has the file's name without its folder.
        let title = format!("{}: {name}", recording.name.rsplit('/').next().unwrap_or_default());
        let mut drawn = Drawn { frames: 0, left_out: 0 };
        let picture =
            Picture { named: &named, stacks: &stacks, grouping, placed: &placed, event, title: &title };
        output.write(|out| {
            drawn = write(picture, out)?;
            Ok::<_, std::io::Error>(())
        })?;
        let narrow = match drawn.left_out {
            0 => String::new(),
            narrow => format!("; {} too narrow", count(narrow)),
        };
        let frames = counted(drawn.frames, "frame", "frames");
        report.say(Level::Info, format!("drew {frames}{narrow}"));
        Ok(self.stacks.verbosity.print(&report))
    }
}
