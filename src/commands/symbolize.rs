//! `perfx symbolize` names the places in a table of build-ids and offsets.

use std::path::{Path, PathBuf};

use anyhow::Result;
use clap::Args;
use perfx_export::symbolize::Unnamed;
use perfx_pipeline::Report;
use perfx_resolve::FileArgs;

use crate::args::usage;
use crate::io::output::{Existing, NewFiles, Rules, Target, folder};
use crate::io::source::Source;
use crate::term::report::VerbosityArgs;

/// Name the functions in a table of build-ids and offsets, for tables without symbols
///
/// Reads the columns build_id, offset and, if there is one, path of Parquet files, and writes a row with
/// symbol, symbol_offset, file, line and inline for each distinct place. Each file is searched for and read
/// once, however many recordings it is in. docs/guide/fleet.md has the queries.
///
/// Examples:
///   perfx symbolize places.parquet --root /srv/images/web -o names.parquet
///   perfx symbolize places.parquet --debuginfod -o names.parquet
#[derive(Args, Debug)]
#[command(verbatim_doc_comment)]
pub(crate) struct Symbolize {
    /// Parquet files with the columns build_id (text, hex) and offset
    #[arg(help_heading = "Input", required = true, value_name = "TABLE")]
    tables: Vec<PathBuf>,
    /// The Parquet file to write
    #[arg(help_heading = "Output", short, long, value_name = "FILE")]
    output: PathBuf,
    /// Overwrite an existing output
    #[arg(help_heading = "Output", short, long)]
    force: bool,
    /// Leave out calls that the compiler inlined and source lines, and don't read DWARF
    #[arg(help_heading = "Output", long)]
    no_inline: bool,
    #[command(flatten)]
    files: FileArgs,
    #[command(flatten, next_help_heading = "Options")]
    verbosity: VerbosityArgs,
}

impl Symbolize {
    pub(crate) fn run(&self) -> Result<u8> {
        let ids = self.files.clone().options().map_err(usage)?;
        let existing = Existing::forced(self.force);
        let inputs: Vec<Source> = self.tables.iter().cloned().map(Source::Path).collect();
        let rules = Rules { inputs: &inputs, existing, folders: false, in_place: false };
        rules.check(&Target::at(self.output.clone()))?;
        let mut places = Unnamed::default();
        self.tables.iter().try_for_each(|table| places.read(table))?;
        let files = NewFiles::below(folder(&self.output))?;
        let out = files.create(self.output.clone())?;
        let mut report = Report::default();
        places.write(&ids, !self.no_inline, out, &mut report)?;
        files.commit(existing, Path::to_owned)?;
        Ok(self.verbosity.print(&report))
    }
}
