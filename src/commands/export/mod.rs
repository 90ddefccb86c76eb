//! `perfx export` writes the contents of a recording in the formats of other programs.

mod cell;
mod csv;
mod folder;
mod gather;
mod names;
mod overview;

use anyhow::Result;
use clap::{Args, Subcommand};

/// Write tables of a recording for other programs
#[derive(Args, Debug)]
pub(crate) struct Export {
    #[command(subcommand)]
    form: Form,
}

#[derive(Subcommand, Debug)]
enum Form {
    Csv(csv::Csv),
}

impl Export {
    pub(crate) fn run(&self) -> Result<u8> {
        match &self.form {
            Form::Csv(csv) => csv.run(),
        }
    }
}
