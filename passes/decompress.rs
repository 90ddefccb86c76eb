//! `decompress` replaces COMPRESSED and COMPRESSED2 records by the records they hold, and clears the feature that announces them.

use anyhow::Result;
use perfx_format::input::Recording;
use perfx_format::{Feature, Kinds, Record, RecordType};
use perfx_pipeline::{Damage, Emit, Needs, Pass, Session};

use crate::support::options::{Choice, Options};

/// The pass.
#[derive(Clone, Copy, Debug, Default)]
pub struct Decompress {
    options: DecompressOptions,
}

/// What the user chose.
#[derive(Clone, Copy, Debug, Default)]
pub struct DecompressOptions {
    /// Keep what can be read of a damaged recording.
    pub salvage: bool,
}

impl Decompress {
    pub(crate) const ABOUT: &'static str = "replace COMPRESSED records by the records they hold";
    pub(crate) const OPTIONS: &'static [Choice] =
        &[Choice { name: "salvage", value: None, about: "keep what can be read of a damaged recording" }];

    pub(crate) fn make(options: &Options) -> Result<Box<dyn Pass>> {
        Ok(Box::new(Decompress::new(DecompressOptions { salvage: options.has("salvage") })))
    }

    /// With these options.
    pub fn new(options: DecompressOptions) -> Decompress {
        Decompress { options }
    }
}

impl Pass for Decompress {
    fn name(&self) -> &'static str {
        "decompress"
    }

    fn needs(&self, _input: &Recording) -> Needs {
        Needs {
            records: Kinds::of(&[RecordType::HEADER_FEATURE]),
            decompressed: true,
            damage: if self.options.salvage { Damage::Salvage } else { Damage::Refuse },
            ..Needs::default()
        }
    }

    fn begin(&mut self, session: &mut Session) -> Result<()> {
        // What the header said is gone already; pipe data may say it later.
        if session.feature(Feature::COMPRESSED).is_none() {
            session.clear_feature(Feature::COMPRESSED);
        }
        Ok(())
    }

    fn record(&mut self, record: Record<'_>, out: &mut Emit<'_>) -> Result<()> {
        if announces_compression(&record) {
            out.drop_record(record);
            return Ok(());
        }
        out.keep(record)
    }

    fn fork(&self) -> Option<Box<dyn Pass>> {
        Some(Box::new(*self))
    }
}

/// A HEADER_FEATURE record among the others that holds feature COMPRESSED.
pub(crate) fn announces_compression(record: &Record<'_>) -> bool {
    record.kind() == RecordType::HEADER_FEATURE && record.u64(8) == Some(Feature::COMPRESSED.0.into())
}
