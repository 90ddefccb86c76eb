//! Prints build-ids as `perf buildid-list` does: those in a recording's header, of the DSOs that its samples
//! hit, of an ELF file, or of the running kernel.

use std::collections::BTreeSet;
use std::io::Write as _;

use anyhow::{Context as _, Result};
use build_id::Endianness;
use clap::Args;
use perfx_export::Grouping;
use perfx_filter::SelectArgs;
use perfx_format::Feature;
use perfx_look::render::readable;
use perfx_pipeline::Report;
use perfx_resolve::{RecordedIds, dso_name};

use crate::args::ReadArgs;
use crate::commands::export::input::StackArgs;
use crate::io::output::stdout;
use crate::io::source::{InputArgs, Source};

/// The options of perf buildid-list.
#[derive(Args, Debug)]
pub(super) struct BuildidList {
    #[command(flatten)]
    input: InputArgs,
    #[arg(long)]
    with_hits: bool,
    #[arg(long)]
    kernel: bool,
    #[command(flatten)]
    read: ReadArgs,
}

/// The notes of the running kernel.
const NOTES: &str = "/sys/kernel/notes";

/// The width of a build-id as text.
const WIDTH: usize = 40;

impl BuildidList {
    pub(super) fn run(&self) -> Result<u8> {
        let mut out = stdout();
        if self.kernel {
            let notes = std::fs::read(NOTES).context(NOTES)?;
            let id = build_id::from_notes(&notes, Endianness::default());
            writeln!(out, "{}", id.with_context(|| format!("{NOTES} has no build-id"))?)?;
            out.flush()?;
            return Ok(0);
        }
        let source = Source::of(&self.input);
        if let Source::Path(path) = &source
            && let Ok(Some(id)) = build_id::of_file(path)
        {
            writeln!(out, "{id}")?;
            return Ok(0);
        }
        let recording = source.open_rereadable()?;
        let mut report = Report::default();
        // Sorted by name.
        let mut rows = BTreeSet::new();
        if recording.features.contains_key(&Feature::BUILD_ID) && !self.with_hits {
            let ids = RecordedIds::new(&recording.features, recording.endian, &[]);
            rows.extend(ids.entries().map(|(_, name, id)| (name.to_vec(), id.to_string())));
        } else {
            let stacks = StackArgs::of(&SelectArgs::default(), self.read);
            let collected = stacks.collect(recording, &stacks.ids()?, Grouping::default(), &mut report)?;
            let facts = &collected.facts;
            let hit: BTreeSet<u32> = collected.stacks.tree.frames().filter_map(|frame| frame.dso).collect();
            for dso in hit.into_iter().filter_map(|number| facts.spaces.dsos().get(number as usize)) {
                let (dso, _) = dso;
                let id = facts.ids.get(dso).map(|id| id.to_string());
                rows.insert((dso_name(dso).to_vec(), id.unwrap_or_default()));
            }
        }
        rows.iter().try_for_each(|(name, id)| writeln!(out, "{id:WIDTH$} {}", readable(name)))?;
        out.flush()?;
        Ok(self.read.verbosity.print(&report))
    }
}
