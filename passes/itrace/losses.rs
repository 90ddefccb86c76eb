//! Counts the samples made, and what could not be decoded and why.

use std::cmp::Reverse;
use std::collections::BTreeMap;

use perfx_auxtrace::{Code, Recorded, say_faults, say_missing, say_unknown_units, say_used};
use perfx_format::names::is_jit_memory;
use perfx_pipeline::{LISTED, Level, Report, count, counted};
use perfx_trace::Reason;

/// How often the flow was lost, by reason and by file of the code, if any.
type Faults = BTreeMap<(Reason, Option<Box<[u8]>>), u64>;

/// The results of decoding.
#[derive(Clone, Default, Debug)]
pub(crate) struct Counts {
    pub(super) samples: u64,
    pub(super) instructions: u64,
    pub(super) faults: Faults,
    /// Samples of counters whose event is unknown.
    pub(super) uncounted: u64,
    /// Samples whose thread is unknown.
    pub(super) unknown: u64,
    /// Trace ids in frames that no trace unit has.
    pub(super) unknown_units: u64,
}

impl Counts {
    pub(super) fn add(&mut self, other: &Counts) {
        self.samples += other.samples;
        self.instructions += other.instructions;
        self.uncounted += other.uncounted;
        self.unknown += other.unknown;
        self.unknown_units += other.unknown_units;
        for (what, count) in &other.faults {
            *self.faults.entry(what.clone()).or_default() += count;
        }
    }

    /// Reports the samples of a trace, and what could not be decoded.
    pub(super) fn say(&self, tracer: &str, code: &Code, recorded: &Recorded, report: &mut Report) {
        let samples = counted(self.samples, "sample", "samples");
        let instructions = counted(self.instructions, "instruction", "instructions");
        report.say(Level::Info, format!("made {samples} of {instructions} that {tracer} traced"));
        say_used(code, report);
        let mut reasons: BTreeMap<Reason, u64> = BTreeMap::new();
        for ((reason, _), count) in &self.faults {
            *reasons.entry(*reason).or_default() += count;
        }
        say_faults(&reasons, report);
        let mut files: BTreeMap<&[u8], u64> = BTreeMap::new();
        for ((reason, name), count) in &self.faults {
            if let (Reason::NoCode, Some(name)) = (reason, name) {
                *files.entry(name).or_default() += count;
            }
        }
        if let Some((name, times)) = files.iter().max_by_key(|(name, times)| (**times, Reverse(**name))) {
            let all = counted(files.len() as u64, "file", "files");
            let times = counted(*times, "place", "places");
            let hint = match is_jit_memory(name) {
                true => "inject --jit gives code of a jitdump a file",
                false => "--root and --buildid-dir say where it is",
            };
            let name = String::from_utf8_lossy(name);
            let what = format!("the code of {all} was not found, of {name} at {times}; {hint}{LISTED}");
            report.say(Level::Info, what);
        }
        for ((reason, name), times) in &self.faults {
            let name = name.as_deref().map_or_else(|| "no file".into(), String::from_utf8_lossy);
            report.say(Level::Detail, format!("{name}: {} × {}", count(*times), reason.text()));
        }
        say_missing(recorded, report);
        say_unknown_units(self.unknown_units, report);
        if self.uncounted > 0 {
            let samples = counted(self.uncounted, "sample", "samples");
            let what = format!(
                "{samples} of PEBS in the trace belong to no event: AUX_OUTPUT_HW_ID records do not say what the \
                 counters counted"
            );
            report.say(Level::Loss, what);
        }
        if self.unknown > 0 {
            let samples = counted(self.unknown, "sample", "samples");
            let what = format!("the threads of {samples} are unknown: no record says which thread ran there");
            report.say(Level::Warning, what);
        }
    }
}
