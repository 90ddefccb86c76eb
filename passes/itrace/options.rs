//! Parses the letters of `--itrace`, as perf does (tools/perf/Documentation/itrace.txt).

use perfx_pipeline::{Result, bail, ensure};

/// What to make of records.
#[derive(Clone, Copy, PartialEq, Eq, Default, Debug)]
pub(super) struct ItraceOptions {
    /// `f`: accesses to the first-level data cache, and its misses.
    pub(super) first_level: bool,
    /// `m`: the same for the last-level cache.
    pub(super) last_level: bool,
    /// `t`: the same for the TLB.
    pub(super) tlb: bool,
    /// `b`, `c`, `r`: branches.
    pub(super) branches: bool,
    /// `a`: accesses to the memory of another socket.
    pub(super) remote: bool,
    /// `M`: loads and stores.
    pub(super) memory: bool,
    /// `i`: all operations.
    pub(super) instructions: bool,
    /// `y`: core cycles.
    pub(super) cycles: bool,
    /// `q`: how often: only addresses in packets are decoded, and only at points of synchronization.
    pub(super) quick: u32,
    /// `A`: cycles are taken for known at each sample.
    pub(super) approximate: bool,
    /// The number after `i` or `y`: one in so many records is used.
    pub(super) every: Option<u64>,
    /// The number after `i` or `y` with a unit of time; without a unit it is ns.
    pub(super) time: Option<(u64, &'static str)>,
    /// `l`: the most entries of a branch stack; 0 without it.
    pub(super) stack: u64,
    /// `c` and `r`: of branches only calls, and only returns.
    pub(super) calls: bool,
    pub(super) returns: bool,
    /// `e`: AUXTRACE_ERROR records, but not for lost packets (`e-o`) or lost data (`e-l`).
    pub(super) errors: bool,
    pub(super) no_overflows: bool,
    pub(super) no_lost: bool,
    /// `g`: the most entries of a call chain; 0 without it.
    pub(super) chain: u64,
    /// `p`: changes of frequency and power, and points of synchronization.
    pub(super) power: bool,
    /// `w`: what PTWRITE wrote.
    pub(super) ptwrites: bool,
    /// `x`: transactions.
    pub(super) transactions: bool,
    /// `s`: so many samples are left out at the beginning.
    pub(super) skip: u64,
    /// `Z`: samples have no times.
    pub(super) timeless: bool,
    /// `T`: timestamps of CoreSight are those of the counter of the recording.
    pub(super) timestamps: bool,
    /// No samples are made, only their events.
    pub(super) events_only: bool,
    /// Samples of branches and instructions have flags as raw data.
    pub(super) flags: bool,
    /// There they also say what was counted since the sample before.
    pub(super) ipc: bool,
    /// Behind that, they have the bytes of the instruction.
    pub(super) bytes: bool,
    /// Samples of instructions and cycles have where a branch goes.
    pub(super) addresses: bool,
    /// Behind that, they have how many calls have not returned.
    pub(super) depths: bool,
    /// Jumps that no condition decides are selected, too.
    pub(super) jumps: bool,
    /// `o`, `I`: samples that PEBS wrote to the trace, and events of interrupts.
    pub(super) pebs: bool,
    pub(super) interrupts: bool,
    /// `L`, `G`: samples of other events have branch stacks and call chains, too, of at most so many entries.
    pub(super) stack_of_others: u64,
    pub(super) chain_of_others: u64,
}

/// The most entries of a branch stack or call chain that perf accepts.
const STACK_MAX: u64 = 1024;
/// The entries of a branch stack if none are given.
const STACK: u64 = 64;
/// The entries of a call chain if none are given.
const CHAIN: u64 = 16;

/// perf's period if none is given, ns.
pub(super) const DEFAULT: u64 = 100_000;

/// Nanoseconds of a unit; a number without one is ns.
pub(super) fn scale(unit: &str) -> u64 {
    match unit {
        "ms" => 1_000_000,
        "us" => 1000,
        _ => 1,
    }
}

/// The rest of the text.
struct Letters<'a>(&'a str);

impl Letters<'_> {
    fn next(&mut self) -> Option<char> {
        let mut chars = self.0.chars();
        let letter = chars.next();
        self.0 = chars.as_str();
        letter
    }

    fn skip_separators(&mut self) {
        self.0 = self.0.trim_start_matches([' ', ',']);
    }

    /// A number, if there is one.
    fn number(&mut self) -> Option<u64> {
        self.skip_separators();
        let end = self.0.find(|letter: char| !letter.is_ascii_digit()).unwrap_or(self.0.len());
        let (digits, rest) = self.0.split_at(end);
        self.0 = rest;
        if digits.is_empty() { None } else { Some(digits.parse().unwrap_or(u64::MAX)) }
    }

    /// The number of entries after `g`, `G`, `l` or `L`.
    fn entries(&mut self, letter: char, default: u64) -> Result<u64> {
        let entries = self.number().unwrap_or(default);
        ensure!(
            (1..=STACK_MAX).contains(&entries),
            "--itrace: {entries} entries after `{letter}`; 1 to {STACK_MAX} are possible"
        );
        Ok(entries)
    }
}

impl ItraceOptions {
    /// Those of `--itrace` without letters, as in `perf inject`.
    pub(super) fn without_letters() -> ItraceOptions {
        ItraceOptions {
            first_level: true,
            last_level: true,
            tlb: true,
            branches: true,
            remote: true,
            memory: true,
            instructions: true,
            cycles: true,
            power: true,
            ptwrites: true,
            transactions: true,
            pebs: true,
            interrupts: true,
            errors: true,
            ..ItraceOptions::default()
        }
    }

    /// The same in `perf script`: of branches only calls, and no samples of instructions.
    pub(super) fn without_letters_to_look_at() -> ItraceOptions {
        let (calls, instructions, cycles) = (true, false, false);
        ItraceOptions { calls, instructions, cycles, ..ItraceOptions::without_letters() }
    }

    /// Parses the letters. Those that are only for other tracers have no effect.
    pub(super) fn parse(text: &str) -> Result<ItraceOptions> {
        let mut letters = Letters(text);
        let mut options = ItraceOptions::default();
        while let Some(letter) = letters.next() {
            match letter {
                'i' | 'y' => {
                    options.instructions |= letter == 'i';
                    options.cycles |= letter == 'y';
                    options.period(&mut letters)?;
                }
                'b' | 'c' | 'r' => {
                    options.branches = true;
                    options.calls |= letter == 'c';
                    options.returns |= letter == 'r';
                }
                'f' => options.first_level = true,
                'm' => options.last_level = true,
                't' => options.tlb = true,
                'a' => options.remote = true,
                'M' => options.memory = true,
                'l' => options.stack = letters.entries(letter, STACK)?,
                'g' => options.chain = letters.entries(letter, CHAIN)?,
                'L' => options.stack_of_others = letters.entries(letter, STACK)?,
                'G' => options.chain_of_others = letters.entries(letter, CHAIN)?,
                's' => {
                    let skipped = letters.number();
                    ensure!(skipped.is_some(), "--itrace: `s` needs a number: how many events to skip");
                    options.skip = skipped.unwrap_or(0);
                }
                'e' | 'd' => {
                    options.errors |= letter == 'e';
                    // Flags: + or - and a letter each.
                    while letters.0.starts_with(['+', '-']) {
                        let flag = (letter, letters.next(), letters.next());
                        options.no_overflows |= flag == ('e', Some('-'), Some('o'));
                        options.no_lost |= flag == ('e', Some('-'), Some('l'));
                    }
                }
                'x' | 'w' | 'p' | 'o' | 'I' => {
                    options.transactions |= letter == 'x';
                    options.ptwrites |= letter == 'w';
                    options.power |= letter == 'p';
                    options.pebs |= letter == 'o';
                    options.interrupts |= letter == 'I';
                }
                'A' => options.approximate = true,
                'q' => options.quick = options.quick.saturating_add(1),
                'Z' | 'T' => {
                    options.timeless |= letter == 'Z';
                    options.timestamps |= letter == 'T';
                }
                ' ' | ',' => {}
                other => bail!(
                    "--itrace={text}: unknown letter `{other}`; Intel PT and CoreSight have iybcrxwpoIelLgGsAqZT, \
                     Arm SPE ibfmtaMl"
                ),
            }
        }
        Ok(options)
    }

    /// Whether samples of other events get something from the trace.
    pub(super) fn changes_others(&self) -> bool {
        self.stack_of_others > 0 || self.chain_of_others > 0
    }

    /// The number and unit after `i`.
    fn period(&mut self, letters: &mut Letters<'_>) -> Result<()> {
        let Some(number) = letters.number() else { return Ok(()) };
        letters.skip_separators();
        let rest = letters.0;
        let unit = ["ms", "us", "ns", "i", "t"].into_iter().find(|&unit| rest.starts_with(unit));
        ensure!(
            unit.is_some() || rest.is_empty(),
            "--itrace: `{rest}` is not a unit; a number after `i` has i, t, ms, us or ns"
        );
        // Without a unit, perf takes ns.
        let unit = unit.unwrap_or_default();
        letters.0 = &rest[unit.len()..];
        if unit == "i" {
            self.every = Some(number.max(1));
        } else {
            self.time = Some((number, unit));
        }
        Ok(())
    }

    /// Refuses what is not decoded of Intel PT.
    pub(super) fn check_for_pt(&self, letters: &str) -> Result<()> {
        ensure!(
            !(self.cycles || self.ptwrites) || self.quick == 0,
            "--itrace={letters}: the places of y and w depend on the code, which q does not look at"
        );
        let events = [self.instructions, self.branches, self.errors, self.power, self.ptwrites];
        let others = [self.transactions, self.pebs, self.interrupts, self.cycles];
        ensure!(
            events.iter().chain(&others).any(|is_selected| *is_selected) || self.changes_others(),
            "--itrace={letters} selects no event: Intel PT has i y b c r x w p o I e; l adds branch stacks and g call \
             chains to these, L and G to recorded samples"
        );
        Ok(())
    }

    /// Refuses what selects no event of CoreSight. The letters that only Intel PT has have no effect.
    pub(super) fn check_for_coresight(&self, letters: &str) -> Result<()> {
        ensure!(
            self.instructions || self.branches || self.errors,
            "--itrace={letters} selects no event: CoreSight has i b c r e; l adds branch stacks to i, and g call chains"
        );
        Ok(())
    }

    /// Refuses what the data of Arm SPE can't have.
    pub(super) fn check_for_spe(&self) -> Result<()> {
        if let Some((number, unit)) = self.time {
            bail!(
                "--itrace=i{number}{unit}: the period of Arm SPE is a number of records; i100i takes one in 100"
            );
        }
        let caches = self.first_level || self.last_level || self.tlb;
        let any = caches || self.branches || self.remote || self.memory || self.instructions;
        ensure!(
            any,
            "--itrace selects no event: Arm SPE has i b f m t a M, and l adds branch stacks to these"
        );
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn letters_select_events() {
        let none = ItraceOptions::default();
        let instructions = ItraceOptions { instructions: true, ..none };
        let cases = [
            ("", none),
            (" ,", none),
            ("i1i", ItraceOptions { every: Some(1), ..instructions }),
            ("i 1000 i l64", ItraceOptions { every: Some(1000), stack: 64, ..instructions }),
            (
                "bl2,fe+o-l",
                ItraceOptions {
                    branches: true,
                    stack: 2,
                    first_level: true,
                    errors: true,
                    no_lost: true,
                    ..none
                },
            ),
            ("i0ic", ItraceOptions { every: Some(1), branches: true, calls: true, ..instructions }),
            (
                "mtaMs5xwpI",
                ItraceOptions {
                    last_level: true,
                    tlb: true,
                    remote: true,
                    memory: true,
                    skip: 5,
                    transactions: true,
                    ptwrites: true,
                    power: true,
                    interrupts: true,
                    ..none
                },
            ),
            ("i", instructions),
            ("y5iA", ItraceOptions { cycles: true, every: Some(5), approximate: true, ..none }),
            ("ig", ItraceOptions { chain: 16, ..instructions }),
            ("ig64qq", ItraceOptions { chain: 64, quick: 2, ..instructions }),
            ("bGL8", ItraceOptions { branches: true, stack_of_others: 8, chain_of_others: 16, ..none }),
            ("ZT", ItraceOptions { timeless: true, timestamps: true, ..none }),
        ];
        for (text, expected) in cases {
            assert_eq!(ItraceOptions::parse(text).unwrap(), expected, "{text}");
        }
        for wrong in ["z", "i5q", "l0", "g1025", "s"] {
            assert!(ItraceOptions::parse(wrong).is_err(), "{wrong}");
        }
        for time in ["i100usle", "i5", "i1t", "i99999999999999999999ms"] {
            assert!(ItraceOptions::parse(time).unwrap().check_for_spe().is_err(), "{time}");
        }
        assert!(ItraceOptions::without_letters().check_for_spe().is_ok());
        for (text, is_known) in [("i7iy9iqs3xwpoIAG", true), ("bL", true), ("bTL", true), ("yxwpoIA", false)]
        {
            let options = ItraceOptions::parse(text).unwrap();
            assert_eq!(options.check_for_coresight(text).is_ok(), is_known, "{text}");
        }
        assert!(none.check_for_spe().is_err() && none.check_for_pt("").is_err());
    }
}
