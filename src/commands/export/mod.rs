//! `perfx export` writes the contents of a recording in the formats of other programs.

mod csv;
mod folded;
mod folder;
mod html;
pub(crate) mod input;
mod output;
mod pprof;

use anyhow::Result;
use clap::{Args, Subcommand};

/// Write a recording in the formats of other programs
#[derive(Args, Debug)]
pub(crate) struct Export {
    #[command(subcommand)]
    form: Form,
}

#[derive(Subcommand, Debug)]
enum Form {
    Csv(csv::Csv),
    Folded(Box<folded::Folded>),
    Html(Box<html::Html>),
    Pprof(Box<pprof::Pprof>),
}

impl Export {
    pub(crate) fn run(&self) -> Result<u8> {
        match &self.form {
            Form::Csv(csv) => csv.run(),
            Form::Folded(folded) => folded.run(),
            Form::Html(html) => html.run(),
            Form::Pprof(pprof) => pprof.run(),
        }
    }
}
