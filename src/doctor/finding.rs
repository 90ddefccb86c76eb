//! Collects findings: for each code the first locations, and their number.

use std::collections::BTreeMap;
use std::sync::Arc;

use perfx_format::{Error, Issue, Origin, RecordType};

use crate::codes::{Code, FindingKind, code};

/// The location of a fault.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Location {
    /// The place in the input; the stream counts the files of a directory.
    pub origin: Option<Origin>,
    /// The kind of the faulty record.
    pub kind: Option<RecordType>,
    /// One sentence, with the numbers.
    pub what: String,
}

impl Location {
    /// A place at an absolute offset of the main file, outside records.
    pub fn at(offset: u64, what: impl Into<String>) -> Location {
        Location { origin: Some(Origin::Input { stream: 0, offset }), kind: None, what: what.into() }
    }

    /// A finding without a place.
    pub fn nowhere(what: impl Into<String>) -> Location {
        Location { origin: None, kind: None, what: what.into() }
    }
}

/// All places of one code.
#[derive(Clone, Debug)]
pub struct Finding {
    /// The code.
    pub code: &'static Code,
    /// How often it was found.
    pub count: u64,
    /// The first locations.
    pub locations: Vec<Location>,
}

/// Findings by code, in the order in which they were first found.
#[derive(Clone, Debug, Default)]
pub struct Findings {
    most: usize,
    found: Vec<Finding>,
    by_code: BTreeMap<&'static str, usize>,
}

impl Findings {
    /// Keeps at most this many locations of each code.
    pub fn new(most: usize) -> Findings {
        Findings { most, ..Findings::default() }
    }

    /// Adds a finding.
    pub fn add(&mut self, name: &'static str, location: Location) {
        let most = self.most;
        let finding = self.of(code(name));
        finding.count += 1;
        if finding.locations.len() < most {
            finding.locations.push(location);
        }
    }

    /// Adds an issue found by decoding.
    pub fn issue(&mut self, odd: Issue, origin: Option<Origin>, kind: Option<RecordType>) {
        self.add(odd.code.as_str(), Location { origin, kind, what: odd.what });
    }

    /// Adds an error of the reader; returns `false` if the recording is not at fault.
    pub fn error(&mut self, error: &Error) -> bool {
        let Some(code) = error.fault_code() else { return false };
        let location =
            Location { origin: error.place(), kind: error.record_kind(), what: error.what().to_owned() };
        self.add(code.as_str(), location);
        true
    }

    /// Adds findings from a later part of the recording.
    pub fn append(&mut self, later: Findings) {
        let most = self.most;
        for other in later.found {
            let finding = self.of(other.code);
            finding.count += other.count;
            let room = most.saturating_sub(finding.locations.len());
            finding.locations.extend(other.locations.into_iter().take(room));
        }
    }

    fn of(&mut self, code: &'static Code) -> &mut Finding {
        let index = *self.by_code.entry(code.code).or_insert_with(|| {
            self.found.push(Finding { code, count: 0, locations: Vec::new() });
            self.found.len() - 1
        });
        &mut self.found[index]
    }

    fn sorted(mut self) -> Vec<Finding> {
        self.found.sort_by_key(|finding| finding.code.kind == FindingKind::Note);
        self.found
    }
}

/// The overall state of a recording.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug)]
pub enum Verdict {
    /// Nothing is wrong.
    Sound,
    /// Something is wrong, but every record can be read.
    Suspect,
    /// Not all of it can be read.
    Unreadable,
}

/// The result of examining a recording.
#[derive(Clone, Debug)]
pub struct Diagnosis {
    /// The name that the user gave.
    pub name: Arc<str>,
    /// The overall state.
    pub verdict: Verdict,
    /// The number of records examined.
    pub records: u64,
    /// All records can be read, although perf refuses the recording because it was not finished.
    pub whole: bool,
    /// The file names of a directory, indexed by the number in an [`Origin`]; otherwise one name.
    pub streams: Vec<Arc<str>>,
    /// Faults first, then notes.
    pub findings: Vec<Finding>,
    /// True if it has AUXTRACE records, or AUX data in samples.
    pub has_traces: bool,
    /// True if samples of an event have call chains.
    pub has_chains: bool,
}

impl Diagnosis {
    pub(crate) fn new(name: Arc<str>, streams: Vec<Arc<str>>, findings: Findings, broken: bool) -> Diagnosis {
        let findings = findings.sorted();
        let faulty = findings.iter().any(|finding| finding.code.kind == FindingKind::Fault);
        let verdict = match (broken, faulty) {
            (true, _) => Verdict::Unreadable,
            (false, true) => Verdict::Suspect,
            (false, false) => Verdict::Sound,
        };
        let (has_traces, has_chains) = (false, false);
        Diagnosis { name, verdict, records: 0, whole: !broken, streams, findings, has_traces, has_chains }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn shown(findings: Findings) -> Vec<(&'static str, u64, Vec<String>)> {
        let whats = |found: &Finding| found.locations.iter().map(|location| location.what.clone()).collect();
        findings.sorted().iter().map(|found| (found.code.code, found.count, whats(found))).collect()
    }

    #[test]
    fn all_findings_are_counted_but_only_the_first_have_a_place_and_faults_precede_notes() {
        let mut findings = Findings::new(2);
        findings.add("hole", Location::nowhere("a"));
        findings.add("magic", Location::at(0, "b"));
        let mut later = Findings::new(2);
        for what in ["c", "d", "e"] {
            later.add("hole", Location::at(8, what));
        }
        later.add("header-cut", Location::at(4, "f"));
        findings.append(later);
        let of = |whats: &[&str]| whats.iter().map(|&what| what.to_owned()).collect::<Vec<_>>();
        let expected =
            [("magic", 1, of(&["b"])), ("header-cut", 1, of(&["f"])), ("hole", 4, of(&["a", "c"]))];
        assert_eq!(shown(findings), expected);
    }

    #[test]
    fn notes_alone_are_no_fault_and_what_can_not_be_read_is_worse_than_a_fault() {
        let verdict = |codes: &[&'static str], broken| {
            let mut findings = Findings::new(1);
            codes.iter().for_each(|code| findings.add(code, Location::nowhere("")));
            let diagnosis = Diagnosis::new("name".into(), Vec::new(), findings, broken);
            (diagnosis.verdict, diagnosis.whole)
        };
        assert_eq!(verdict(&[], false), (Verdict::Sound, true));
        assert_eq!(verdict(&["hole"], false), (Verdict::Sound, true));
        assert_eq!(verdict(&["hole", "magic"], false), (Verdict::Suspect, true));
        assert_eq!(verdict(&["hole"], true), (Verdict::Unreadable, false));
        assert!(Verdict::Sound < Verdict::Suspect && Verdict::Suspect < Verdict::Unreadable);
    }

    #[test]
    fn each_code_is_listed_once_and_says_what_it_means() {
        use crate::codes::CODES;
        let mut names: Vec<_> = CODES.iter().map(|code| code.code).collect();
        names.sort_unstable();
        assert!(names.windows(2).all(|pair| pair[0] != pair[1]), "{names:?}");
        assert!(CODES.iter().all(|listed| code(listed.code) == listed && listed.about.len() > 10));
        assert_eq!(code("no such code").code, "unlisted");
    }
}
