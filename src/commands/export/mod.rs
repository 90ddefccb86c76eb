//! `perfx export` writes the contents of a recording in the formats of other programs.

mod branches;
mod csv;
mod firefox;
mod folded;
mod html;
pub(crate) mod input;
mod otlp;
mod parquet;
mod pprof;
mod svg;

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
    Autofdo(Box<branches::Autofdo>),
    Bolt(Box<branches::Bolt>),
    Csv(Box<csv::Csv>),
    Firefox(Box<firefox::Firefox>),
    Folded(Box<folded::Folded>),
    Html(Box<html::Html>),
    Otlp(Box<otlp::Otlp>),
    Parquet(Box<parquet::Parquet>),
    Pprof(Box<pprof::Pprof>),
    Profgen(Box<branches::Profgen>),
    Svg(Box<svg::Svg>),
}

impl Export {
    pub(crate) fn run(&self) -> Result<u8> {
        match &self.form {
            Form::Autofdo(autofdo) => autofdo.run(),
            Form::Bolt(bolt) => bolt.run(),
            Form::Profgen(profgen) => profgen.run(),
            Form::Csv(csv) => csv.run(),
            Form::Firefox(firefox) => firefox.run(),
            Form::Folded(folded) => folded.run(),
            Form::Html(html) => html.run(),
            Form::Otlp(otlp) => otlp.run(),
            Form::Parquet(parquet) => parquet.run(),
            Form::Pprof(pprof) => pprof.run(),
            Form::Svg(svg) => svg.run(),
        }
    }
}
