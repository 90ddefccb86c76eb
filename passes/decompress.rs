//! `decompress` replaces COMPRESSED and COMPRESSED2 records with their contents, and removes their feature.

use clap::Args;
use perfx_format::read::Recording;
use perfx_format::record::header_records::is_feature;
use perfx_format::{Feature, Kinds, Record, RecordType};
use perfx_pipeline::{Damage, Emit, Fork, Needs, Pass, Result, Rewrite, Stage};

use crate::support::options::PassOptions;

/// The pass.
#[derive(Clone, Copy, Debug, Default)]
pub struct Decompress {
    options: DecompressOptions,
}

/// The options of the pass.
#[derive(Args, Clone, Copy, Debug, Default)]
pub struct DecompressOptions {
    /// Keep the readable records of a damaged recording, and report losses
    #[arg(long)]
    pub salvage: bool,
}

impl PassOptions for DecompressOptions {
    const NAME: &'static str = "decompress";
    const ABOUT: &'static str = "replace COMPRESSED records with their contents";

    fn pass(self) -> Result<Box<dyn Pass>> {
        Ok(Box::new(Decompress::new(self)))
    }
}

impl Decompress {
    /// The pass with these options.
    pub fn new(options: DecompressOptions) -> Decompress {
        Decompress { options }
    }
}

impl Pass for Decompress {
    fn name(&self) -> &'static str {
        DecompressOptions::NAME
    }

    fn needs(&self, _input: &Recording) -> Needs {
        Needs {
            records: Kinds::of(&[RecordType::HEADER_FEATURE]),
            decompressed: true,
            damage: if self.options.salvage { Damage::Salvage } else { Damage::Refuse },
            // Surveys see the contents of compressed records anyway.
            barrier: false,
            ..Needs::default()
        }
    }

    fn start(self: Box<Self>, _input: &Recording) -> Stage {
        Stage::begin(move |begin| {
            // Only the header's feature is already removed, not that among records of pipe data.
            if begin.feature(Feature::COMPRESSED).is_none() {
                begin.clear_feature(Feature::COMPRESSED);
            }
            Ok(Stage::rewrite(*self))
        })
    }
}

impl Rewrite for Decompress {
    fn record(&mut self, record: Record<'_>, out: &mut Emit<'_>) -> Result<()> {
        if announces_compression(&record) {
            out.drop_record(record);
            return Ok(());
        }
        out.keep(record)
    }
}

impl Fork for Decompress {
    fn fork(&self) -> Decompress {
        *self
    }

    fn absorb(&mut self, _later: Decompress) {}
}

pub(crate) fn announces_compression(record: &Record<'_>) -> bool {
    is_feature(record, Feature::COMPRESSED)
}
