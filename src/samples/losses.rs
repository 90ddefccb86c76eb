//! Counts and reports the losses of a recording: missing and damaged parts.

use std::ops::AddAssign;

use perfx_format::record::lost;
use perfx_format::sample_type as st;
use perfx_pipeline::{Level, Report, count, counted};

use crate::sample::SampleView;

/// Incomplete samples and lost parts.
#[derive(Clone, Copy, PartialEq, Eq, Default, Debug)]
pub struct Losses {
    /// Samples of unknown events: left out.
    pub astray: u64,
    /// Counters of unknown events in samples: left out.
    pub counters: u64,
    /// Samples too short for their fields: left out.
    pub short: u64,
    /// Samples too short for their fields: only the missing fields are left out.
    pub partial: u64,
    /// Samples with registers of an unknown ABI: later fields are left out.
    pub cut: u64,
    /// Samples whose chain does not fit into them, or has frames that are not in the recording.
    pub torn: u64,
    /// Chains whose user part is not in the recording.
    pub incomplete: u64,
    /// Samples whose branch stacks lack taken branches: left out.
    pub gappy: u64,
    /// Records lost while recording. The reader lost nothing, so they don't change the exit code.
    pub recording: lost::Losses,
}

impl AddAssign for Losses {
    fn add_assign(&mut self, other: Losses) {
        self.astray += other.astray;
        self.counters += other.counters;
        self.short += other.short;
        self.partial += other.partial;
        self.cut += other.cut;
        self.torn += other.torn;
        self.incomplete += other.incomplete;
        self.gappy += other.gappy;
        self.recording.join(other.recording);
    }
}

impl Losses {
    /// Counts a sample if it has registers of an unknown ABI.
    pub fn see(&mut self, sample: SampleView<'_>) {
        let is_cut = || sample.parts().is_ok_and(|parts| parts.is_cut);
        self.cut += u64::from(sample.has(st::REGS_USER | st::REGS_INTR) && is_cut());
    }

    /// Reports losses; `left_out` describes omitted samples, such as `not counted`.
    pub fn say(self, left_out: &str, report: &mut Report) {
        let mut say = |level, count: u64, [one, many]: [&str; 2], rest: &str| {
            if count > 0 {
                report.say(level, format!("{} {rest}", counted(count, one, many)));
            }
        };
        let astray = [
            "sample belongs to no event of the recording and is",
            "samples belong to no event of the recording and are",
        ];
        say(Level::Loss, self.astray, astray, left_out);
        let counters = [
            "counter in samples belongs to no event of the recording and is",
            "counters in samples belong to no event of the recording and are",
        ];
        say(Level::Loss, self.counters, counters, left_out);
        let short =
            ["sample is too short for its fields and is", "samples are too short for their fields and are"];
        say(Level::Loss, self.short, short, left_out);
        let partial = ["sample is too short for its fields", "samples are too short for their fields"];
        say(Level::Loss, self.partial, partial, "and only partly read");
        let cut = [
            "sample has registers of an unknown ABI and is",
            "samples have registers of an unknown ABI and are",
        ];
        say(Level::Loss, self.cut, cut, "only read up to these");
        let torn = [
            "call chain is cut off, or some of its frames are not in the recording; only the address",
            "call chains are cut off, or some of their frames are not in the recording; only the addresses",
        ];
        say(Level::Loss, self.torn, torn, if self.torn == 1 { "is used" } else { "are used" });
        let gappy = [
            "sample has a branch stack that lacks taken branches and is",
            "samples have branch stacks that lack taken branches and are",
        ];
        say(Level::Loss, self.gappy, gappy, left_out);
        let incomplete = ["call chain lacks its user part", "call chains lack their user parts"];
        let record = "because its record is not in the recording";
        let records = "because their records are not in the recording";
        let why = if self.incomplete == 1 { record } else { records };
        say(Level::Warning, self.incomplete, incomplete, why);
        let lost = u64::try_from(self.recording.total()).unwrap_or(u64::MAX);
        let what = ["record was lost", "records were lost"];
        let help = "while recording: a larger buffer (perf record -m) or a lower rate (-F, -c) prevents that";
        say(Level::Info, lost, what, help);
    }
}

/// Reports sums of periods that are cut off at `most`, the largest number that can be written.
pub fn say_cut_off(sums: impl IntoIterator<Item = u64>, most: u64, report: &mut Report) {
    let cut_off = sums.into_iter().filter(|&sum| sum >= most).count() as u64;
    if cut_off > 0 {
        let sums = counted(cut_off, "sum of periods is", "sums of periods are");
        report.say(Level::Loss, format!("{sums} cut off at {}, the largest number", count(most)));
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_loss_is_reported_in_the_singular_or_the_plural() {
        let said = |losses: Losses| {
            let mut report = Report::default();
            losses.say("not counted", &mut report);
            report.lines.into_iter().map(|(level, line)| format!("{level:?} {line}")).collect::<Vec<_>>()
        };
        assert!(said(Losses::default()).is_empty());
        let one = Losses {
            astray: 1,
            counters: 1,
            short: 1,
            partial: 1,
            cut: 1,
            torn: 1,
            incomplete: 1,
            gappy: 1,
            ..Losses::default()
        };
        assert_eq!(
            said(one),
            [
                "Loss 1 sample belongs to no event of the recording and is not counted",
                "Loss 1 counter in samples belongs to no event of the recording and is not counted",
                "Loss 1 sample is too short for its fields and is not counted",
                "Loss 1 sample is too short for its fields and only partly read",
                "Loss 1 sample has registers of an unknown ABI and is only read up to these",
                "Loss 1 call chain is cut off, or some of its frames are not in the recording; only the address is used",
                "Loss 1 sample has a branch stack that lacks taken branches and is not counted",
                "Warning 1 call chain lacks its user part because its record is not in the recording",
            ]
        );
        let mut sum = Losses {
            astray: 1,
            counters: 2,
            short: 3,
            partial: 4,
            cut: 5,
            torn: 6,
            incomplete: 7,
            gappy: 8,
            ..Losses::default()
        };
        sum += Losses {
            astray: 10,
            counters: 20,
            short: 30,
            partial: 40,
            cut: 50,
            torn: 60,
            incomplete: 70,
            gappy: 80,
            ..Losses::default()
        };
        let lines = said(sum);
        let counts: Vec<&str> = lines.iter().map(|line| line.split(' ').nth(1).unwrap()).collect();
        assert_eq!(counts, ["11", "22", "33", "44", "55", "66", "88", "77"]);
        assert!(
            lines[5].ends_with("only the addresses are used")
                && lines[7].ends_with("because their records are not in the recording")
        );
    }

    #[test]
    fn sums_at_the_largest_number_are_cut_off() {
        let said = |sums: &[u64]| {
            let mut report = Report::default();
            say_cut_off(sums.iter().copied(), 1000, &mut report);
            report.lines.pop().map(|(_, line)| line)
        };
        assert_eq!(said(&[0, 999]), None);
        let line = "1 sum of periods is cut off at 1,000, the largest number";
        assert_eq!(said(&[1000, 3]).as_deref(), Some(line));
        assert_eq!(
            said(&[1000, 1001]).unwrap(),
            line.replace("1 sum of periods is", "2 sums of periods are")
        );
    }
}
