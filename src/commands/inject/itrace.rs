//! `--itrace` names the perf command that decodes the AUX data of a recording, because perfx can't.

use std::collections::BTreeSet;

use perfx_format::read::Recording;
use perfx_format::record::aux::AuxtraceInfo;
use perfx_format::{Kinds, Layouts, Record, RecordType};
use perfx_pipeline::{Fork, Level, Needs, Pass, Result, Session, Stage, Survey, ensure};

/// A pass that fails if there is AUX data to decode.
#[derive(Clone, Debug)]
pub(super) struct ByPerf {
    /// The options for perf inject.
    options: String,
    tracers: BTreeSet<Option<&'static str>>,
    data: bool,
}

impl ByPerf {
    /// Creates the pass for `--itrace=OPTIONS`, with or without `--strip`.
    pub(super) fn new(options: &str, strip: bool) -> ByPerf {
        let equals = if options.is_empty() { "" } else { "=" };
        let strip = if strip { " --strip" } else { "" };
        let options = format!("--itrace{equals}{options}{strip}");
        ByPerf { options, tracers: BTreeSet::new(), data: false }
    }
}

impl Pass for ByPerf {
    fn name(&self) -> &'static str {
        "itrace"
    }

    fn needs(&self, _input: &Recording) -> Needs {
        let aux = Kinds::of(&[RecordType::AUXTRACE_INFO, RecordType::AUXTRACE]);
        Needs { surveys: vec![aux], barrier: false, ..Needs::default() }
    }

    fn start(self: Box<Self>, _input: &Recording) -> Stage {
        Stage::survey(*self)
    }
}

impl Survey for ByPerf {
    fn record(&mut self, record: &Record<'_>, _layouts: &Layouts) -> Result<()> {
        self.tracers.extend(AuxtraceInfo::of(record).map(|info| info.tracer()));
        self.data |= record.kind() == RecordType::AUXTRACE;
        Ok(())
    }

    fn end(self, session: &mut Session) -> Result<Stage> {
        let ByPerf { options, tracers, data } = self;
        let tracers: Vec<_> =
            tracers.into_iter().map(|tracer| tracer.unwrap_or("an unknown tracer")).collect();
        let of = if tracers.is_empty() { "an unknown tracer".to_owned() } else { tracers.join(" and ") };
        let name = &session.name;
        ensure!(
            tracers.is_empty() && !data,
            "{name}: contains AUX data of {of}, which perf must decode: perf inject {options} -i {name} -o FILE; \
             perfx strip --aux leaves the data out"
        );
        session.report.say(Level::Warning, "there is no AUX data to decode");
        Ok(Stage::copy())
    }
}

impl Fork for ByPerf {
    fn fork(&self) -> ByPerf {
        ByPerf { options: String::new(), tracers: BTreeSet::new(), data: false }
    }

    fn absorb(&mut self, later: ByPerf) -> Result<()> {
        self.tracers.extend(later.tracers);
        self.data |= later.data;
        Ok(())
    }
}
