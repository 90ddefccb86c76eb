//! `perfx man` writes the manual pages from the text of `--help`.

use std::fs;
use std::path::{Path, PathBuf};

use anyhow::{Context as _, Result};
use clap::Args;

/// Write the manual pages into a folder: perfx.1 and one page per command
///
/// Existing pages are overwritten. `man perfx-inject` finds the pages if MANPATH contains the folder.
///
/// Examples:
///   perfx man --dir ~/.local/share/man/man1
#[derive(Args, Debug)]
#[command(verbatim_doc_comment)]
pub(crate) struct Man {
    /// Folder to write to; it is created if necessary
    #[arg(short = 'o', long, value_name = "DIR", visible_alias = "output")]
    dir: PathBuf,
}

impl Man {
    pub(crate) fn run(&self, mut command_line: clap::Command) -> Result<u8> {
        let name = || format!("can't create the folder {}", self.dir.display());
        fs::create_dir_all(&self.dir).with_context(name)?;
        command_line = command_line.disable_help_subcommand(true);
        command_line.build();
        write_pages(&command_line, &self.dir)?;
        Ok(0)
    }
}

fn write_pages(command: &clap::Command, folder: &Path) -> Result<()> {
    command.get_subcommands().try_for_each(|inner| write_pages(inner, folder))?;
    let version = concat!("perfx ", env!("CARGO_PKG_VERSION"));
    // An empty date would not be quoted, and the version would take its place.
    let page = clap_mangen::Man::new(with_usage(command)).date(" ").source(version).manual("perfx Manual");
    let mut roff = Vec::new();
    page.render(&mut roff)?;
    let path = folder.join(page.get_filename());
    // Makes the list of exit codes a section.
    let text = String::from_utf8(roff)?.replace("\n.SH EXTRA\nExit codes:\n", "\n.SH \"EXIT STATUS\"\n");
    fs::write(&path, line_by_line(&text)).with_context(|| path.display().to_string())
}

/// The synopsis is the usage of `--help`, which does not list every option.
fn with_usage(command: &clap::Command) -> clap::Command {
    let mut command = command.clone();
    let usage = command.render_usage().to_string();
    command.override_usage(usage.trim_start_matches("Usage:").trim().to_owned())
}

/// Keeps line breaks in examples and tables, whose lines begin with spaces; roff would refill them.
fn line_by_line(page: &str) -> String {
    let mut text = String::new();
    let mut inside = false;
    for line in page.lines() {
        if line.starts_with("  ") != inside {
            inside = !inside;
            text += if inside { ".nf\n" } else { ".fi\n" };
        }
        text += line;
        text.push('\n');
    }
    text
}
