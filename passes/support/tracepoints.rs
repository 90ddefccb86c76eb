//! Finds the scheduler's tracepoints among the events of a recording, and the fields of their raw data.

use perfx_format::sample::Sample;
use perfx_format::tracepoint::TraceField;
use perfx_format::{ByTracepoint, Layouts, Record, RecordType, sample_type as st};
use perfx_pipeline::{Context as _, Result, Session, bail};

/// A scheduler tracepoint, with its role in a step.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) struct Tracepoint<R> {
    pub(crate) role: R,
    fields: [Option<TraceField>; FIELDS],
}

const FIELDS: usize = 2;

/// The purpose of an event's samples, which depends on the tracepoint.
pub(crate) trait Role: Copy + 'static {
    /// The role of the tracepoint with this name in system `sched`, and the fields it needs.
    fn of(name: &[u8]) -> Option<(Self, &'static [&'static str])>;

    fn needs(self) -> u64;
}

/// The role of each event, if any, by event number.
#[derive(Clone, Debug)]
pub(crate) struct Tracepoints<R>(Vec<Option<Tracepoint<R>>>);

impl<R> Default for Tracepoints<R> {
    fn default() -> Self {
        Tracepoints(Vec::new())
    }
}

/// Bits of `attr.sample_type`, their names, and how to make perf record set them.
const RECORDED_BY: [(u64, &str, &str); 4] = [
    (st::TID, "TID", "perf record always sets this bit"),
    (st::TIME, "TIME", "record with --timestamp"),
    (st::PERIOD, "PERIOD", "record with --period"),
    (st::RAW, "RAW", "record with --raw-samples"),
];

impl<R: Role> Tracepoints<R> {
    /// Finds the tracepoints by the formats in feature TRACING_DATA, like perf. Fails if samples lack what
    /// their role needs, or a format lacks a field.
    pub(crate) fn of(session: &Session) -> Result<Tracepoints<R>> {
        Tracepoints::find(session).map_err(|error| error.in_file(&session.name))
    }

    fn find(session: &Session) -> Result<Tracepoints<R>> {
        let formats = ByTracepoint::new(&session.events, session.features(), session.endian, |format| {
            let (role, names) = R::of(format.name).filter(|_| format.system == b"sched")?;
            let fields: Vec<_> = names.iter().map(|name| (*name, format.field(name))).collect();
            Some((String::from_utf8_lossy(&format.full_name()).into_owned(), role, fields))
        });
        let mut found = Vec::new();
        for (number, event) in session.events.iter().enumerate() {
            let Some(Some((name, role, places))) = formats.get(number) else {
                found.push(None);
                continue;
            };
            let missing = role.needs() & !event.attr().sample_type;
            if let Some((_, what, how)) = RECORDED_BY.iter().find(|(bit, ..)| missing & bit != 0) {
                bail!("event {number}, {name}: its samples have no {what}: {how}");
            }
            let mut fields = [None; FIELDS];
            for (place, (field, found)) in fields.iter_mut().zip(places) {
                *place = Some(found.with_context(|| {
                    format!(
                        "event {number}, {name}: feature TRACING_DATA does not describe its field `{field}`"
                    )
                })?);
            }
            found.push(Some(Tracepoint { role: *role, fields }));
        }
        Ok(Tracepoints(found))
    }

    pub(crate) fn any(&self, is_meant: impl Fn(R) -> bool) -> bool {
        self.0.iter().flatten().any(|tracepoint| is_meant(tracepoint.role))
    }

    pub(crate) fn has(&self, event: usize) -> bool {
        self.0.get(event).is_some_and(Option::is_some)
    }

    pub(crate) fn get(&self, record: &Record<'_>, layouts: &Layouts) -> Option<Tracepoint<R>> {
        let event = layouts.event_of(record).filter(|_| record.kind() == RecordType::SAMPLE)?;
        *self.0.get(event)?
    }
}

impl<R> Tracepoint<R> {
    pub(crate) fn field(&self, number: usize, sample: &Record<'_>, layouts: &Layouts) -> Result<u64> {
        let layout = layouts.layout_of(sample).context("no event has its id")?;
        let raw = Sample::parse_known(sample, layout)?.raw.unwrap_or_default();
        let field = self.fields.get(number).copied().flatten();
        let value = field.and_then(|field| field.number(raw, sample.endian()));
        value.ok_or_else(|| sample.error("its raw data is too short for its format in TRACING_DATA").into())
    }
}
