//! `strip` leaves out contents that other programs can't read: AUX data, events and their samples, SWITCH
//! records.
//!
//! quipper and AutoFDO require the same `sample_type` for all events, so an event without records is removed
//! from the header, too. Other records stay even if no sample needs them; `filter` drops those.

use std::collections::{BTreeSet, HashMap, HashSet};
use std::sync::Arc;

use clap::Args;
use perfx_filter::{EventList, named_events};
use perfx_format::event_name::names_of;
use perfx_format::read::{Form, Recording};
use perfx_format::record::event_update::{name_update, updated_id};
use perfx_format::sample::without_parts as sample_without;
use perfx_format::{
    Event, Feature, Kinds, Layouts, Record, RecordType, Time, sample_type as st, without_parts,
};
use perfx_pipeline::{
    Begin, Emit, Fork, Level, Needs, OutputForm, Pass, Result, Rewrite, Session, Stage, Survey, UsedEvents,
    bail, change_attrs, counted, ensure, leave_out_events, list, shorten_id_index,
};

use crate::support::options::{PassCommand, PassOptions};

/// Leave out contents that other programs can't read: AUX data, events, SWITCH records
///
/// --aux leaves out AUXTRACE, AUXTRACE_INFO, AUXTRACE_ERROR, AUX, ITRACE_START and AUX_OUTPUT_HW_ID
/// records, feature AUXTRACE, and the AUX data in samples. --event and --recorded leave out the
/// SAMPLE, THROTTLE, UNTHROTTLE and READ records of these events. An event without any records left is
/// removed from the header, because quipper and AutoFDO require all events to be alike. All other
/// records stay.
///
/// perfx strip does not decode AUX data; perfx inject --itrace and perf inject --itrace do. On their output,
/// perfx strip --recorded has the effect of perf inject --strip.
///
/// Examples:
///   perfx strip --aux --switches perf.data -o plain.data
///   perfx strip --event 'dummy.*' perf.data -o without-dummy.data
///   perf inject --itrace=i100usle -i perf.data -o decoded.data; perfx strip --recorded decoded.data -o afdo.data
#[derive(Args, Clone, Debug, Default)]
#[command(verbatim_doc_comment)]
pub struct StripArgs {
    /// Leave out AUX data: its records, feature AUXTRACE, its events, and the AUX data in samples
    #[arg(long)]
    aux: bool,
    /// Leave out events whose name matches, and their samples
    #[arg(short, long, alias = "events", value_name = "REGEX,…", value_parser = EventList::parse)]
    event: Vec<EventList>,
    /// Leave out SWITCH and SWITCH_CPU_WIDE records
    #[arg(long)]
    switches: bool,
    /// From the output of perf inject --itrace, leave out the recorded events and SWITCH records, and keep
    /// the decoded events
    #[arg(long)]
    recorded: bool,
}

impl PassOptions for StripArgs {
    const NAME: &'static str = "strip";
    const ABOUT: &'static str = "leave out AUX data, events or SWITCH records";
    const COMMAND: Option<PassCommand> =
        Some(PassCommand { group: "Cut and join", one_of: &["aux", "event", "switches", "recorded"] });

    fn pass(self) -> Result<Box<dyn Pass>> {
        Ok(Box::new(Strip { args: Arc::new(self), ..Strip::recorded() }))
    }
}

/// The pass.
#[derive(Clone, Debug)]
pub struct Strip {
    args: Arc<StripArgs>,
    follows_itrace: bool,
    /// Refuse a recording without decoded events.
    must_find: bool,
    /// Keep all samples of such a recording.
    keeps_undecoded: bool,
}

impl Strip {
    /// The pass with option `--recorded`, as `perf inject --strip`.
    pub fn recorded() -> Strip {
        let args = StripArgs { recorded: true, ..StripArgs::default() };
        Strip { args: Arc::new(args), follows_itrace: false, must_find: true, keeps_undecoded: false }
    }

    /// Like [`Strip::recorded`], directly after [`Itrace`](crate::Itrace), without reading its output first:
    /// the recording shows which events to leave out.
    pub fn after_itrace() -> Strip {
        Strip { follows_itrace: true, ..Strip::recorded() }
    }

    /// Accepts recordings without decoded events, too; `keeps_undecoded` is true to keep all their samples, and
    /// false to leave them out.
    #[must_use]
    pub fn of_any(self, keeps_undecoded: bool) -> Strip {
        Strip { must_find: false, keeps_undecoded, ..self }
    }
}

struct Gather {
    strip: Strip,
    found: Found,
}

#[derive(Debug, Default)]
struct Found {
    used: UsedEvents,
    /// The events of records that `itrace` drops.
    used_by_data: UsedEvents,
    samples: Samples,
    traced: BTreeSet<usize>,
    names: HashMap<u64, Vec<u8>>,
    has_aux: bool,
    has_switches: bool,
}

#[derive(Debug, Default)]
struct Samples {
    counts: Vec<u64>,
    /// The earliest and latest time of each event's samples, ns.
    times: Vec<(u64, u64)>,
}

struct LeaveOut {
    plan: Arc<Plan>,
    /// All samples, including dropped ones.
    samples: Samples,
    /// The number of samples whose AUX data was removed.
    cut: u64,
}

#[derive(Debug)]
struct Plan {
    dropped: Kinds,
    events: BTreeSet<usize>,
    gone: HashSet<u64>,
    left_out: u64,
    aux: bool,
}

/// perf inject numbers its decoded events from the first id of the AUX event plus this.
const DECODED: u64 = 1_000_000_000;

fn is_decoded(event: &Event) -> bool {
    !event.ids.is_empty() && event.ids.iter().all(|&id| id >= DECODED)
}

impl StripArgs {
    fn dropped(&self) -> Kinds {
        let aux = if self.aux { Kinds::AUX } else { Kinds::NONE };
        if self.switches || self.recorded { aux.union(Kinds::SWITCHES) } else { aux }
    }

    fn is_empty(&self) -> bool {
        self.dropped().is_empty() && self.event.is_empty()
    }
}

impl Found {
    fn look_at(&mut self, record: &Record<'_>, layouts: &Layouts, args: &StripArgs) {
        let kind = record.kind();
        let event = layouts.event_of(record).filter(|_| kind.is_kernel());
        self.has_aux |= Kinds::AUX.contains(kind) || layouts.any_samples(st::AUX);
        self.has_switches |= Kinds::SWITCHES.contains(kind);
        if args.aux && Kinds::AUX_OF_KERNEL.contains(kind) {
            self.traced.extend(event);
        }
        if kind == RecordType::SAMPLE {
            return self.samples.add(event, record, layouts);
        }
        if kind == RecordType::EVENT_UPDATE {
            self.names.extend(name_update(record).map(|(id, name)| (id, name.to_vec())));
        }
        if !args.dropped().contains(kind) && !Kinds::OF_EVENT.contains(kind) {
            let is_of_data = Kinds::DECODED_AUX.contains(kind);
            let used = if is_of_data { &mut self.used_by_data } else { &mut self.used };
            used.look_at(record, layouts);
        }
    }

    /// Decides what to leave out, and changes the session's events and features to those of the output.
    fn plan(mut self, strip: &Strip, session: &mut Begin<'_>) -> Result<Plan> {
        let Strip { args, must_find, keeps_undecoded, .. } = strip;
        let events = session.events.clone();
        let names = names_of(&events, session.features(), &[], session.endian, &self.names);
        let named = named_events(&names, &args.event, &mut session.report);
        let leaves_out = |number: usize| named[number] || args.recorded && !is_decoded(&events[number]);
        let mut chosen: BTreeSet<usize> = (0..named.len()).filter(|&number| leaves_out(number)).collect();
        ensure!(
            !must_find || !args.recorded || chosen.len() < events.len(),
            "{}: there is no event that perf inject --itrace has decoded; use perfx strip --aux to leave out AUX data, \
             and perfx strip --event to leave out events",
            session.name
        );
        if *keeps_undecoded && chosen.len() == events.len() {
            chosen.clear();
        }
        if session.form == OutputForm::Pipe {
            self.samples.set_times(&chosen, session);
        }
        for event in &chosen {
            if let Some(count) = self.samples.counts.get_mut(*event) {
                *count = 0;
            }
        }
        // Events without samples in the input stay. If no event would be left, all stay.
        let is_last = !must_find && chosen.len() == events.len();
        let stays = |event: &usize| is_last || !chosen.contains(event) && !self.traced.contains(event);
        let others = (0..events.len()).filter(stays);
        self.used.add(others);
        let gone = self.used.gone(&events, &self.samples.counts);
        let left_out = leave_out_events(session, &gone);
        let is_gone = |event: &Event| !event.ids.is_empty() && event.ids.iter().all(|id| gone.contains(id));
        let stay: Vec<_> =
            (0..events.len()).filter(|&event| named[event] && !is_gone(&events[event])).collect();
        if !stay.is_empty() {
            let stay =
                list(stay.into_iter().map(|event| String::from_utf8_lossy(&names[event].name).into_owned()));
            let what =
                format!("stays in the header without samples, because other records have its id: {stay}");
            session.report.say(Level::Warning, what);
        }
        if args.aux {
            if session.feature(Feature::AUXTRACE).is_some() {
                session.clear_feature(Feature::AUXTRACE);
            }
            change_attrs(session, |raw, endian| without_parts(raw, st::AUX, endian));
        }
        Ok(Plan { dropped: args.dropped(), events: chosen, gone, left_out, aux: args.aux })
    }
}

impl Samples {
    #[inline]
    fn add(&mut self, event: Option<usize>, sample: &Record<'_>, layouts: &Layouts) {
        self.grow(layouts.all().len());
        let Some(event) = event else { return };
        if let Some((count, span)) = self.counts.get_mut(event).zip(self.times.get_mut(event)) {
            *count += 1;
            if let Some(time) = layouts.time(sample).map(Time::ns) {
                *span = (span.0.min(time), span.1.max(time));
            }
        }
    }

    #[inline]
    fn grow(&mut self, events: usize) {
        if events > self.counts.len() {
            self.counts.resize(events, 0);
            self.times.resize(events, (u64::MAX, 0));
        }
    }

    fn join(&mut self, later: Samples) {
        self.grow(later.counts.len());
        for (count, more) in self.counts.iter_mut().zip(later.counts) {
            *count += more;
        }
        for (span, more) in self.times.iter_mut().zip(later.times) {
            *span = (span.0.min(more.0), span.1.max(more.1));
        }
    }

    fn set_times(&self, left_out: &BTreeSet<usize>, session: &mut Session) {
        let stay = self.times.iter().enumerate().filter(|(event, _)| !left_out.contains(event));
        let both = |(first, last): (u64, u64), (_, span): (usize, &(u64, u64))| {
            (first.min(span.0), last.max(span.1))
        };
        let times = stay.fold((u64::MAX, 0), both);
        if left_out.iter().any(|&event| self.counts.get(event).is_some_and(|&count| count > 0)) {
            session.set_sample_time(times);
        }
    }
}

impl Pass for Strip {
    fn name(&self) -> &'static str {
        StripArgs::NAME
    }

    fn needs(&self, input: &Recording) -> Needs {
        let holds_aux = input.events.iter().any(|event| event.attr().sample_type & st::AUX != 0);
        let by_event = !self.args.event.is_empty() || self.args.recorded || self.args.aux && holds_aux;
        let records = Kinds::of(&[RecordType::ID_INDEX, RecordType::EVENT_UPDATE]).union(self.args.dropped());
        let records = if by_event { records.union(Kinds::OF_EVENT) } else { records };
        // Events among the records of pipe data are not known when the rewrite begins.
        let surveys_input = self.follows_itrace && input.form != Form::Pipe;
        let surveys = vec![Kinds::ALL];
        Needs { records, surveys, surveys_input, decompressed: true, ids: true, ..Needs::default() }
    }

    fn start(self: Box<Self>, _input: &Recording) -> Stage {
        if self.args.is_empty() {
            return Stage::begin(|_| {
                bail!("nothing to leave out: give --aux, --event, --switches or --recorded")
            });
        }
        Stage::survey(Gather { strip: *self, found: Found::default() })
    }
}

impl Survey for Gather {
    fn record(&mut self, record: &Record<'_>, layouts: &Layouts) -> Result<()> {
        self.found.look_at(record, layouts, &self.strip.args);
        Ok(())
    }

    fn end(mut self, session: &mut Session) -> Result<Stage> {
        let surveyed = session.events.len();
        Ok(Stage::begin(move |begin| {
            let is_decoded = self.strip.follows_itrace && begin.events.len() > surveyed;
            if !is_decoded {
                self.found.used.join(std::mem::take(&mut self.found.used_by_data));
            }
            if self.strip.args.aux && !self.found.has_aux {
                begin.report.say(Level::Info, "there is no AUX data");
            }
            if self.strip.args.switches && !self.found.has_switches {
                begin.report.say(Level::Info, "there are no SWITCH records");
            }
            let plan = self.found.plan(&self.strip, begin)?;
            Ok(Stage::rewrite(LeaveOut { plan: Arc::new(plan), samples: Samples::default(), cut: 0 }))
        }))
    }
}

impl Fork for Gather {
    fn fork(&self) -> Gather {
        Gather { strip: self.strip.clone(), found: Found::default() }
    }

    fn absorb(&mut self, later: Gather) {
        let Found { used, used_by_data, samples, traced, names, has_aux, has_switches } = later.found;
        self.found.used.join(used);
        self.found.used_by_data.join(used_by_data);
        self.found.samples.join(samples);
        self.found.traced.extend(traced);
        self.found.names.extend(names);
        self.found.has_aux |= has_aux;
        self.found.has_switches |= has_switches;
    }
}

impl Rewrite for LeaveOut {
    fn record(&mut self, record: Record<'_>, out: &mut Emit<'_>) -> Result<()> {
        let plan = &*self.plan;
        let (kind, layouts) = (record.kind(), out.layouts());
        let is_gone = match kind {
            RecordType::EVENT_UPDATE => updated_id(&record).is_some_and(|id| plan.gone.contains(&id)),
            kind if Kinds::OF_EVENT.contains(kind) => {
                let event = layouts.event_of(&record);
                if kind == RecordType::SAMPLE {
                    self.samples.add(event, &record, layouts);
                }
                event.is_some_and(|event| plan.events.contains(&event))
            }
            kind => plan.dropped.contains(kind),
        };
        if is_gone {
            out.drop_record(record);
            return Ok(());
        }
        if kind == RecordType::ID_INDEX && !plan.gone.is_empty() {
            return shorten_id_index(&record, &plan.gone, out);
        }
        let layout = layouts.layout_of(&record).filter(|_| plan.aux && kind == RecordType::SAMPLE);
        match layout.filter(|layout| layout.sample_type & st::AUX != 0) {
            Some(layout) => {
                self.cut += 1;
                out.replace(&record, &sample_without(&record, layout, st::AUX)?)
            }
            None => out.keep(record),
        }
    }

    fn finish(&mut self, session: &mut Session, _out: &mut Emit<'_>) -> Result<()> {
        let Plan { events, left_out, .. } = &*self.plan;
        if session.form != OutputForm::Pipe {
            self.samples.set_times(events, session);
        }
        if *left_out > 0 {
            session.report.say(Level::Info, format!("left out {}", counted(*left_out, "event", "events")));
        }
        if self.cut > 0 {
            let samples = counted(self.cut, "sample", "samples");
            session.report.say(Level::Info, format!("left out the AUX data of {samples}"));
        }
        Ok(())
    }
}

impl Fork for LeaveOut {
    fn fork(&self) -> LeaveOut {
        LeaveOut { plan: self.plan.clone(), samples: Samples::default(), cut: 0 }
    }

    fn absorb(&mut self, later: LeaveOut) {
        self.samples.join(later.samples);
        self.cut += later.cut;
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::support::tiny::{FIELDS, file, ran, record, sample};

    #[test]
    fn switches_and_aux_records_are_left_out_and_all_else_stays() {
        let (switch, aux) = (record(14, 0, &[]), record(11, 0, &[0, 8, 0]));
        let records = [sample(7, 5, 1), switch, aux, sample(8, 6, 1)];
        let left = |options: &str| {
            let mut ran = ran(&format!("strip:{options}"), file(FIELDS, 0, &records, &[])).unwrap();
            (ran.each(|record| record.kind().0), ran.said)
        };
        assert_eq!(left("switches").0, [9, 11, 9]);
        assert_eq!(left("aux").0, [9, 14, 9]);
        assert_eq!(left("aux:switches"), (vec![9, 9], vec![]));
        let error = ran("strip", file(FIELDS, 0, &records, &[])).err().unwrap().to_string();
        assert!(error.contains("nothing to leave out"), "{error}");
        let there_are_none = ran("strip:switches:aux", file(FIELDS, 0, &records[..1], &[])).unwrap().said;
        assert_eq!(there_are_none, ["Info: there is no AUX data", "Info: there are no SWITCH records"]);
    }

    #[test]
    fn samples_are_counted_and_timed_by_event() {
        let mut samples = Samples { counts: vec![2], times: vec![(5, 9)] };
        samples.join(Samples { counts: vec![1, 4], times: vec![(3, 7), (u64::MAX, 0)] });
        assert_eq!((samples.counts, samples.times), (vec![3, 4], vec![(3, 9), (u64::MAX, 0)]));
        let decoded =
            |ids: &[u64]| is_decoded(&Event::new(vec![0; 64], ids.to_vec(), perfx_format::Endian::Little));
        assert!(decoded(&[1_000_000_000, 1_000_000_001]) && !decoded(&[1_000_000_000, 5]) && !decoded(&[]));
    }
}
