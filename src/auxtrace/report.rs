//! Reports the code used, the AUX data that could not be decoded, and why.

use std::collections::BTreeMap;

use perfx_model::spe::SpeCounts;
use perfx_pipeline::{Level, Report, count, counted};
use perfx_trace::Reason;

use crate::image::Code;
use crate::recorded::Recorded;

/// Reports the files whose code was used, and what is unknown about them.
pub fn say_used(code: &Code, report: &mut Report) {
    for used in code.used() {
        let name = String::from_utf8_lossy(&used.name);
        let id = used.id.map_or_else(|| "no build-id".to_owned(), |id| format!("build-id {id}"));
        let path = used.path.as_ref().map(|path| path.to_string_lossy());
        let place = path.filter(|path| *path != name).map_or_else(String::new, |path| format!(": {path}"));
        report.say(Level::Info, format!("used the code of {name}, {id}{place}"));
    }
    let ignored = code.ignored_changes();
    if ignored > 0 {
        let changes = counted(ignored, "change", "changes");
        let what = format!(
            "{changes} of the kernel's code (TEXT_POKE) are too many, or too long: code decoded there may be wrong"
        );
        report.say(Level::Warning, what);
    }
}

/// Reports how often the flow was lost, by reason.
pub fn say_faults(reasons: &BTreeMap<Reason, u64>, report: &mut Report) {
    let total: u64 = reasons.values().sum();
    if total == 0 {
        return;
    }
    let each = reasons.iter().map(|(reason, times)| format!("{} × {}", count(*times), reason.text()));
    let reasons: Vec<String> = each.collect();
    let what = format!(
        "decoding stopped at {}, each time up to the next known address: {}",
        counted(total, "place", "places"),
        reasons.join(", ")
    );
    report.say(Level::Loss, what);
}

/// Reports traces that are missing in the recording or cannot be read.
pub fn say_missing(recorded: &Recorded, report: &mut Report) {
    let lost = recorded.lost.len() as u64;
    if lost > 0 {
        let times = counted(lost, "time", "times");
        report.say(Level::Loss, format!("the kernel lost data of the traces {times}: a buffer was full"));
    }
    say_unreadable(recorded.unreadable, report);
    if recorded.repeated > 0 {
        let records = counted(recorded.repeated, "AUX record covers", "AUX records cover");
        let what = format!("{records} AUX data that earlier ones cover, too: it was decoded once");
        report.say(Level::Loss, what);
    }
}

/// Reports CoreSight traces whose id belongs to no trace unit.
pub fn say_unknown_units(traces: u64, report: &mut Report) {
    if traces > 0 {
        let traces = counted(traces, "trace has", "traces have");
        report.say(Level::Loss, format!("{traces} an id in frames that no record assigns to a CPU"));
    }
}

/// Reports how many decoded items, called `samples`, belong to unknown threads.
pub fn say_unknown_threads(unknown: u64, samples: &str, report: &mut Report) {
    if unknown > 0 {
        let what = format!(
            "the threads of {} {samples} are unknown: neither CONTEXT packets nor SWITCH records name them",
            count(unknown)
        );
        report.say(Level::Warning, what);
    }
}

/// Reports Arm SPE data that could not be decoded.
pub fn say_spe_losses(counts: SpeCounts, report: &mut Report) {
    let SpeCounts { bad_bytes, broken, unreadable, .. } = counts;
    if bad_bytes + broken > 0 {
        let bytes = counted(bad_bytes, "byte of the AUX data does", "bytes of the AUX data do");
        let broken = counted(broken, "record", "records");
        let what =
            format!("{bytes} not belong to a packet of Arm SPE; {broken} with such damage were left out");
        report.say(Level::Loss, what);
    }
    say_unreadable(unreadable, report);
}

/// Reports pieces of AUX data inside compressed records that can't be decoded.
fn say_unreadable(pieces: u64, report: &mut Report) {
    if pieces > 0 {
        let pieces = counted(pieces, "piece", "pieces");
        report.say(Level::Loss, format!("{pieces} of AUX data inside compressed records can't be decoded"));
    }
}
