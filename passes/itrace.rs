//! `itrace` decodes AUX data into samples, as `perf inject --itrace` does: data of Arm SPE, and with the code
//! that ran, data of Intel PT and CoreSight. It leaves data of other tracers to perf.
//!
//! perf 7.3 is the model: its events, ids and names, and its samples.

mod apart;
mod code_events;
mod context;
mod coresight;
mod events;
mod flow;
mod found;
mod intel_pt;
mod losses;
mod options;
mod parts;
mod producer;
mod recorded;
mod ring;
mod spe;
mod stacks;
mod step;
mod templates;

use clap::Args;
use perfx_auxtrace::Tracer;
use perfx_format::read::{Recording, StoredBytes};
use perfx_format::record::event_update::name_update;
use perfx_format::{Kinds, Layouts, Record, RecordType};
use perfx_model::spe::SpeData;
use perfx_pipeline::{Context as _, Level, Needs, Pass, Result, Session, Stage, Survey, ensure};
use perfx_resolve::{IdOptions, SymbolArgs};

pub use self::apart::{Apart, DecodedTrace, TraceProgress};
use self::found::{Found, NAME};
pub use self::options::Extras;
use self::options::ItraceOptions;
use self::recorded::RecordedSample;
use crate::support::options::PassOptions;

/// The options of `itrace`.
#[derive(Args, Clone, Debug)]
pub struct ItraceArgs {
    /// What to make of the data: letters as for perf script --itrace; by default, all events that perf inject makes
    #[arg(long, value_name = "LETTERS")]
    events: Option<String>,
    #[command(flatten)]
    code: SymbolArgs,
}

impl PassOptions for ItraceArgs {
    const NAME: &'static str = NAME;
    const ABOUT: &'static str = "decode the AUX data of Arm SPE, Intel PT or CoreSight into samples";

    fn pass(self) -> Result<Box<dyn Pass>> {
        Ok(Box::new(Itrace::new(self.events.as_deref(), self.code.options()?)?))
    }
}

/// The pass.
#[derive(Clone, Debug)]
pub struct Itrace {
    letters: Option<String>,
    options: ItraceOptions,
    ids: IdOptions,
    apart: Option<Apart>,
}

impl Itrace {
    /// The pass with the letters of `perf inject --itrace`. Code is searched for in the places of `ids`.
    ///
    /// # Errors
    ///
    /// A letter is unknown to perf, or a number is out of range.
    pub fn new(letters: Option<&str>, ids: IdOptions) -> Result<Itrace> {
        let options = letters.map_or_else(|| Ok(ItraceOptions::inject_defaults()), ItraceOptions::parse)?;
        Ok(Itrace { letters: letters.map(str::to_owned), options, ids, apart: None })
    }

    /// The pass with the letters of `perf script --itrace`.
    ///
    /// # Errors
    ///
    /// As for [`Itrace::new`].
    pub fn with_script_defaults(letters: Option<&str>, ids: IdOptions) -> Result<Itrace> {
        let mut pass = Itrace::new(letters, ids)?;
        if letters.is_none() {
            pass.options = ItraceOptions::script_defaults();
        }
        Ok(pass)
    }

    /// Adds these parts to the samples.
    #[must_use]
    pub fn with(mut self, extras: Extras) -> Itrace {
        self.options.extras = extras;
        self
    }

    /// Makes only the events; a [`DecodedTrace`] of the written recording decodes their samples.
    #[must_use]
    pub fn apart(self, apart: Apart) -> Itrace {
        Itrace { apart: Some(apart), ..self }
    }

    /// Selects the branches that may lead to another function, with flags: calls, returns, unconditional
    /// jumps, and where tracing begins and ends. Code is searched for in the places of `ids`.
    #[must_use]
    pub fn calls(ids: IdOptions) -> Itrace {
        let options = ItraceOptions {
            branches: true,
            calls: true,
            returns: true,
            jumps: true,
            extras: Extras { flow: true, ..Extras::default() },
            ..ItraceOptions::default()
        };
        Itrace { letters: Some("cr".to_owned()), options, ids, apart: None }
    }
}

/// The first survey: finds the AUX data and its description.
struct Find {
    pass: Itrace,
    stored: StoredBytes,
    found: Found,
}

impl Pass for Itrace {
    fn name(&self) -> &'static str {
        ItraceArgs::NAME
    }

    fn needs(&self, input: &Recording) -> Needs {
        let samples =
            if self.options.extends_recorded() { Kinds::of(&[RecordType::SAMPLE]) } else { Kinds::NONE };
        let described = SpeData::KINDS
            .union(samples)
            .union(perfx_auxtrace::Survey::of(input).kinds())
            .union(Kinds::of(&[RecordType::EVENT_UPDATE, RecordType::HEADER_BUILD_ID]));
        Needs {
            records: Kinds::ALL,
            surveys: vec![described, Kinds::ALL],
            decompressed: true,
            ids: true,
            ..Needs::default()
        }
    }

    fn start(self: Box<Self>, input: &Recording) -> Stage {
        let apart = self.apart.clone();
        let found = Found { traces: perfx_auxtrace::Survey::of(input), apart, ..Found::default() };
        Stage::survey_in_order(Find { pass: *self, stored: input.stored_bytes(), found })
    }
}

impl Survey for Find {
    fn record(&mut self, record: &Record<'_>, layouts: &Layouts) -> Result<()> {
        let found = &mut self.found;
        found.spe.add(record)?;
        found.traces.add(record, layouts);
        if self.pass.options.extends_recorded()
            && let Some(sample) =
                layouts.layout_of(record).and_then(|layout| RecordedSample::of(record, layout))
        {
            found.samples.push(sample);
        }
        found.names.extend(name_update(record).map(|(id, name)| (id, name.to_vec())));
        if record.kind() == RecordType::HEADER_BUILD_ID {
            found.build_ids.push(record.bytes().to_vec());
        }
        Ok(())
    }

    fn end(self, session: &mut Session) -> Result<Stage> {
        let Find { pass: Itrace { letters, options, ids, .. }, stored, mut found } = self;
        let name = &session.name;
        ensure!(
            found.traces.follows_code() || !options.jumps,
            "{name}: has no trace of Intel PT or CoreSight (perf record -e intel_pt//, -e cs_etm//), which contains all calls"
        );
        if found.spe.is_empty() {
            session.report.say(Level::Warning, "there is no AUX data to decode");
            return Ok(Stage::begin(|begin| {
                begin.want_only(Kinds::NONE);
                Ok(Stage::copy())
            }));
        }
        if found.spe.spe().is_some() {
            // Without letters, perf script makes the same samples as perf inject.
            let all = ItraceOptions { extras: options.extras, ..ItraceOptions::inject_defaults() };
            let options = if letters.is_none() { all } else { options };
            return spe::stage(&options, found, stored, session);
        }
        ensure!(
            found.traces.follows_code(),
            "{name}: contains AUX data of {}, which perfx does not decode: {}; perfx strip --aux leaves the data out",
            found.spe.tracers(),
            found.spe.shown_by()
        );
        let (in_file, letters) = (|| name.to_string(), letters.unwrap_or_default());
        let traces = std::mem::take(&mut found.traces).done(&stored, &session.events);
        match traces.with_context(in_file)? {
            (Tracer::IntelPt(tracer), recorded) => {
                options.check_for_pt(&letters).with_context(in_file)?;
                intel_pt::stage(&options, &ids, (tracer, recorded), found, session)
            }
            (Tracer::CoreSight(tracer), recorded) => {
                options.check_for_coresight(&letters).with_context(in_file)?;
                coresight::stage(&options, &ids, (tracer, recorded), found, session)
            }
        }
    }
}
