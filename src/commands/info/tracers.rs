//! Describes the tracers of a recording's AUX data, and how they were configured.

use perfx_auxtrace::Presence;
use perfx_format::read::{Form, Recording};
use perfx_format::record::aux::AuxtraceInfo;
use perfx_format::record::etm_info::{EtmInfo, TraceUnitKind};
use perfx_format::record::pt_info::PtInfo;
use perfx_format::{Event, Record, RecordType};
use perfx_pipeline::counted;

#[derive(Default)]
pub(super) struct Tracers {
    /// Each tracer once.
    pub(super) names: Vec<&'static str>,
    pub(super) traced: Vec<String>,
}

impl Tracers {
    /// Reads the recording up to the first sample, except pipe data, which can be read only once.
    pub(super) fn of(recording: &mut Recording) -> Tracers {
        let mut found = Tracers::default();
        let has_aux = Presence::is_listed(recording) && recording.form != Form::Pipe;
        let events = recording.events.clone();
        for batch in recording.batches().take(usize::from(has_aux)).flatten() {
            let mut walker = batch.walk();
            while let Ok(Some(record)) = walker.next_record() {
                if matches!(record.kind(), RecordType::SAMPLE | RecordType::AUXTRACE) {
                    break;
                }
                found.add(&record, &events);
            }
        }
        found
    }

    fn add(&mut self, record: &Record<'_>, events: &[Event]) {
        let Some(info) = AuxtraceInfo::of(record) else { return };
        let name = info.tracer().unwrap_or("unknown tracer");
        if !self.names.contains(&name) {
            self.names.push(name);
            self.names.sort_unstable();
        }
        let config = |pmu_type: u64| {
            let event = events.iter().find(|event| u64::from(event.attr().type_) == pmu_type);
            event.map_or(0, |event| event.attr().config)
        };
        if let Some(info) = PtInfo::of(record) {
            self.traced = intel_pt(&info, config(info.pmu_type));
        } else if let Some(info) = EtmInfo::of(record) {
            self.traced = coresight(&info);
        }
    }
}

fn intel_pt(info: &PtInfo, config: u64) -> Vec<String> {
    let has = |bits: u64| config & bits != 0;
    let mut traced = vec![match PtInfo::traces_branches(config) {
        true => "branches".to_owned(),
        false => "no branches".to_owned(),
    }];
    let mut add = |is_on: bool, what: &str| traced.extend(is_on.then(|| what.to_owned()));
    add(has(PtInfo::PTWRITE), "PTWRITE");
    add(has(PtInfo::POWER), "power events");
    add(has(info.tsc_bit), "TSC");
    add(has(info.cyc_bit), "CYC");
    add(has(info.no_return_compression_bit), "returns not compressed");
    if has(info.mtc_bit) {
        // More than 2^15 indicates damage.
        let every = 1_u64.checked_shl(info.mtc_period(config).into());
        traced.push(
            every.map_or("MTC".to_owned(), |every| format!("MTC every {every} ticks of the crystal clock")),
        );
    }
    traced
        .push(if info.is_per_cpu { "a buffer for each CPU" } else { "a buffer for each thread" }.to_owned());
    if info.is_snapshot {
        traced.push("snapshots".to_owned());
    }
    let switches = match info.switches {
        0 => "switches not recorded",
        PtInfo::BY_SAMPLES => "switches by sched:sched_switch",
        _ => "switches by SWITCH records",
    };
    traced.push(switches.to_owned());
    if let Some((tsc, crystal)) = info.tsc_per_ctc {
        traced.push(format!("{tsc} TSC ticks for {crystal} of the crystal clock"));
    }
    if info.conv.is_none() {
        traced.push("TSC not convertible to times".to_owned());
    }
    traced
}

/// Bits of TRCCONFIGR.
const CONFIGURED: [(u32, &str); 5] =
    [(4, "cycle counts"), (6, "context ids"), (7, "VMIDs"), (11, "timestamps"), (12, "return stack")];

fn coresight(info: &EtmInfo) -> Vec<String> {
    let Some(first) = info.units.first() else { return Vec::new() };
    let (kind, config) = match first.kind {
        TraceUnitKind::Etm4(registers) => ("ETMv4", registers.config),
        TraceUnitKind::Ete(registers) => ("ETE", registers.config),
        _ => ("ETMv3", 0),
    };
    let cpus = counted(info.units.len() as u64, "CPU", "CPUs");
    let configured = CONFIGURED.iter().filter(|(bit, _)| config >> bit & 1 != 0);
    std::iter::once(format!("{kind} of {cpus}"))
        .chain(configured.map(|(_, what)| (*what).to_owned()))
        .collect()
}
