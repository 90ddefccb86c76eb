//! `perfx completion` prints the shell's completion script.

use std::io::Write as _;

use anyhow::{Context as _, Result};
use clap::Args;
use clap_complete::{Shell, generate};

use crate::io::output::stdout;

/// Print a completion script for a shell
///
/// Examples:
///   perfx completion bash > ~/.local/share/bash-completion/completions/perfx
///   perfx completion zsh > ~/.zfunc/_perfx
///   perfx completion fish > ~/.config/fish/completions/perfx.fish
#[derive(Args, Debug)]
#[command(verbatim_doc_comment)]
pub(crate) struct Completion {
    /// Shell to print the script for
    #[arg(value_name = "SHELL")]
    shell: Shell,
}

impl Completion {
    pub(crate) fn run(&self, mut command_line: clap::Command) -> Result<u8> {
        // Not straight to standard output: `generate` panics on a closed pipe.
        let mut script = Vec::new();
        generate(self.shell, &mut command_line, "perfx", &mut script);
        let mut script = String::from_utf8(script).context("the script is not text")?;
        if self.shell == Shell::Fish {
            // fish's argparse refuses a short option other than a letter or digit, and then completes
            // nothing.
            script = script.replacen(" @/threads= ", " threads= ", 1);
        }
        stdout().write_all(script.as_bytes())?;
        Ok(0)
    }
}
