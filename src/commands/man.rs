//! `perfx man` writes the manual pages, which are made of the same text as `--help`.

use std::fs;
use std::path::PathBuf;

use anyhow::{Context as _, Result};
use clap::Args;

use crate::cli::command_line;

/// Write the manual pages into a folder: perfx.1, and one for each command
///
/// Pages of that name are overwritten. `man perfx-inject` finds them in a folder of MANPATH.
///
/// Examples:
///   perfx man --dir ~/.local/share/man/man1
#[derive(Args, Debug)]
#[command(verbatim_doc_comment)]
pub(crate) struct Man {
    /// The folder, made if it is not there
    #[arg(long, value_name = "DIR")]
    dir: PathBuf,
}

impl Man {
    pub(crate) fn run(&self) -> Result<u8> {
        let name = || self.dir.display().to_string();
        fs::create_dir_all(&self.dir).with_context(name)?;
        clap_mangen::generate_to(command_line(), &self.dir).with_context(name)?;
        Ok(0)
    }
}
