//! `perfx passes` lists what `perfx run -p` can run.

use std::io::Write as _;

use anyhow::Result;
use clap::Args;
use perfx_passes::REGISTRY;

/// List the passes and their options
#[derive(Args, Debug)]
pub(crate) struct Passes {}

impl Passes {
    pub(crate) fn run(&self) -> Result<u8> {
        let mut text = String::new();
        for entry in REGISTRY {
            text += &format!("{}\n    {}\n", entry.name, entry.about);
            for option in entry.options {
                let value = option.value.map(|value| format!("={value}")).unwrap_or_default();
                text += &format!("    {:<20} {}\n", format!(":{}{value}", option.name), option.about);
            }
        }
        std::io::stdout().write_all(text.as_bytes())?;
        Ok(0)
    }
}
