//! `perfx run` sends a recording through any chain of passes; the other writing commands are presets of it.

use anyhow::Result;
use clap::Args;
use perfx_look::json::Document;
use perfx_passes::{PassSpec, parse_chain_of};
use perfx_pipeline::{Error, Job, OutputForm, Pass, Schedule};
use schemars::JsonSchema;
use serde::Serialize;

use crate::args::{FormatArgs, Usage, usage};
use crate::commands::passes::PassNeeds;
use crate::io::output::WriteArgs;
use crate::io::source::{Source, temp_files};

/// Send a recording through a chain of passes
///
/// A chain is PASS[:OPTION[=VALUE]]…[,PASS…]; `perfx passes` lists the passes. In values, \ escapes
/// the characters `,`, `:` and `\`.
///
/// Examples:
///   perfx run -p build-ids perf.data -o out.data
///   perfx run -p mmap2-build-ids:root=/srv/image,build-ids:all perf.data -o out.data
///   perfx run -p build-ids --explain perf.data
///   perfx run -p build-ids --explain --json perf.data
#[derive(Args, Debug)]
#[command(verbatim_doc_comment)]
pub(crate) struct Run {
    /// Passes, in the order in which records go through them; repeatable
    #[arg(short, long, value_name = "CHAIN", required = true)]
    passes: Vec<String>,
    /// Print the plan, without running it
    #[arg(long)]
    explain: bool,
    #[command(flatten)]
    format: FormatArgs,
    #[command(flatten)]
    write: WriteArgs,
}

impl Run {
    pub(crate) fn run(&self, passes: &[PassSpec]) -> Result<u8> {
        let passes = parse_chain_of(passes, &self.passes.join(",")).map_err(usage)?;
        let done = self.chain(passes);
        done.map_err(|error| match error.downcast_ref() {
            Some(Error::NotLast(misplaced)) => Usage(misplaced.to_string()).into(),
            _ => error,
        })
    }

    fn chain(&self, passes: Vec<Box<dyn Pass>>) -> Result<u8> {
        if self.explain {
            let recording = Source::of(&self.write.input).open()?;
            let job = Job { recording, passes, threads: 1, temp_files: temp_files() };
            let schedule = job.schedule()?;
            let text = || schedule.explain(OutputForm::File).iter().map(|line| format!("{line}\n")).collect();
            self.format.print(text, || explained(&schedule))?;
            return Ok(0);
        }
        self.write.transform("run", passes)
    }
}

pub(crate) type Output = Document<2, Printed>;

/// # perfx run --explain
///
/// The document of perfx run --explain --format json
#[derive(Serialize, JsonSchema)]
#[serde(tag = "what", rename_all = "lowercase")]
#[schemars(deny_unknown_fields)]
pub(crate) enum Printed {
    Schedule {
        /// The input goes to a temporary file first
        spools: bool,
        /// There are COMPRESSED records, and they are replaced with their contents
        decompresses: bool,
        /// In the order in which records go through them
        passes: Vec<PassNeeds>,
    },
}

fn explained(schedule: &Schedule) -> Output {
    Output::new(Printed::Schedule {
        spools: schedule.spools(),
        decompresses: schedule.decompresses(),
        passes: schedule.needs().iter().map(|(name, needs)| PassNeeds::of(name, needs)).collect(),
    })
}
