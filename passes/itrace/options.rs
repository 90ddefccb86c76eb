//! Parses the letters of `--itrace`, as perf does (tools/perf/Documentation/itrace.txt).

use perfx_pipeline::{Context as _, Result, bail, ensure};

use self::Takes::{Entries, Flags, Nothing, Number, Period};

/// The options of `--itrace`.
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
    /// `q`: only addresses in packets are decoded; twice: only those at sync points.
    pub(super) quick: u32,
    /// `A`: each sample has a cycle count, even if only approximate.
    pub(super) approximate: bool,
    /// The number after `i` or `y`: one in this many records is used.
    pub(super) every: Option<u64>,
    /// The number after `i` or `y` with a unit of time; without a unit it is ns.
    pub(super) time: Option<(u64, &'static str)>,
    /// `l`: maximum of entries in a branch stack; 0 without it.
    pub(super) stack: u64,
    /// `c` and `r`: only the branches that are calls, and returns.
    pub(super) calls: bool,
    pub(super) returns: bool,
    /// `e`: AUXTRACE_ERROR records, but not for lost packets (`e-o`) or lost data (`e-l`).
    pub(super) errors: bool,
    pub(super) no_overflows: bool,
    pub(super) no_lost: bool,
    /// `g`: maximum of entries in a call chain; 0 without it.
    pub(super) chain: u64,
    /// `p`: changes of frequency and power, and sync points.
    pub(super) power: bool,
    /// `w`: values written by PTWRITE.
    pub(super) ptwrites: bool,
    /// `x`: transactions.
    pub(super) transactions: bool,
    /// `s`: the number of samples left out at the beginning.
    pub(super) skip: u64,
    /// `Z`: samples have no times.
    pub(super) timeless: bool,
    /// `T`: timestamps of CoreSight come from the recording's clock.
    pub(super) timestamps: bool,
    pub(super) extras: Extras,
    /// Unconditional jumps are selected, too.
    pub(super) jumps: bool,
    /// `o`, `I`: samples written to the trace by PEBS, and events of interrupts.
    pub(super) pebs: bool,
    pub(super) interrupts: bool,
    /// `L`, `G`: maximum of entries in branch stacks and call chains added to other events' samples.
    pub(super) recorded_stack: u64,
    pub(super) recorded_chain: u64,
}

/// Parts of decoded samples in addition to perf's: raw data ([`FlowFlags`](perfx_format::sample::FlowFlags))
/// of branches and instructions in this order, and addresses.
#[derive(Clone, Copy, PartialEq, Eq, Default, Debug)]
pub struct Extras {
    /// The kind of branch.
    pub flow: bool,
    /// The instructions and cycles since the last sample.
    pub counts: bool,
    /// The bytes of the instruction.
    pub instructions: bool,
    /// The call depth; a return counts for the call that it ends.
    pub depths: bool,
    /// The target of a branch, as the address of samples of instructions.
    pub targets: bool,
}

/// The most entries of a branch stack or call chain that perf accepts.
const STACK_MAX: u64 = 1024;
/// Default entries of a branch stack.
const STACK: u64 = 64;
/// Default entries of a call chain.
const CHAIN: u64 = 16;

const PT: u8 = 1;
const ETM: u8 = 2;
const SPE: u8 = 4;

/// The text that may follow a letter.
enum Takes {
    Nothing,
    /// The period of all samples: a number, and an optional unit.
    Period,
    /// The maximum of entries in a list, and its default.
    Entries(u64),
    Number,
    /// Any number of + or - with a letter each.
    Flags,
}

/// A letter, the tracers that have it (others ignore it), what may follow it, and its setter.
struct Letter(char, u8, Takes, fn(&mut ItraceOptions, u64));

/// The letters that select events. The help of `inject` and docs/guide/{traces,inject}.md list them, too.
const EVENTS: &[Letter] = &[
    Letter('i', PT | ETM | SPE, Period, |options, _| options.instructions = true),
    Letter('y', PT, Period, |options, _| options.cycles = true),
    Letter('b', PT | ETM | SPE, Nothing, |options, _| options.branches = true),
    Letter('c', PT | ETM, Nothing, |options, _| (options.branches, options.calls) = (true, true)),
    Letter('r', PT | ETM, Nothing, |options, _| (options.branches, options.returns) = (true, true)),
    Letter('x', PT, Nothing, |options, _| options.transactions = true),
    Letter('w', PT, Nothing, |options, _| options.ptwrites = true),
    Letter('p', PT, Nothing, |options, _| options.power = true),
    Letter('o', PT, Nothing, |options, _| options.pebs = true),
    Letter('I', PT, Nothing, |options, _| options.interrupts = true),
    Letter('e', PT | ETM, Flags, |options, _| options.errors = true),
    Letter('f', SPE, Nothing, |options, _| options.first_level = true),
    Letter('m', SPE, Nothing, |options, _| options.last_level = true),
    Letter('t', SPE, Nothing, |options, _| options.tlb = true),
    Letter('a', SPE, Nothing, |options, _| options.remote = true),
    Letter('M', SPE, Nothing, |options, _| options.memory = true),
];

/// The other letters.
const SETTINGS: &[Letter] = &[
    Letter('l', PT | ETM | SPE, Entries(STACK), |options, most| options.stack = most),
    Letter('L', PT, Entries(STACK), |options, most| options.recorded_stack = most),
    Letter('g', PT | ETM, Entries(CHAIN), |options, most| options.chain = most),
    Letter('G', PT, Entries(CHAIN), |options, most| options.recorded_chain = most),
    Letter('s', PT, Number, |options, skipped| options.skip = skipped),
    Letter('A', PT, Nothing, |options, _| options.approximate = true),
    Letter('q', PT, Nothing, |options, _| options.quick = options.quick.saturating_add(1)),
    Letter('Z', PT | ETM, Nothing, |options, _| options.timeless = true),
    Letter('T', ETM, Nothing, |options, _| options.timestamps = true),
    // Separators, and perf's log.
    Letter(' ', 0, Nothing, |_, _| {}),
    Letter(',', 0, Nothing, |_, _| {}),
    Letter('d', 0, Flags, |_, _| {}),
];

fn letters(tables: &[&[Letter]], tracers: u8, between: &str) -> String {
    let letters = tables.iter().copied().flatten().filter(|Letter(_, of, ..)| of & tracers != 0);
    letters.map(|Letter(letter, ..)| letter.to_string()).collect::<Vec<_>>().join(between)
}

/// perf's default period, ns.
pub(super) const DEFAULT: u64 = 100_000;

/// The nanoseconds of a unit; none means ns.
pub(super) fn scale(unit: &str) -> u64 {
    match unit {
        "ms" => 1_000_000,
        "us" => 1000,
        _ => 1,
    }
}

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

    fn number(&mut self) -> Option<u64> {
        self.skip_separators();
        let end = self.0.find(|letter: char| !letter.is_ascii_digit()).unwrap_or(self.0.len());
        let (digits, rest) = self.0.split_at(end);
        self.0 = rest;
        if digits.is_empty() { None } else { Some(digits.parse().unwrap_or(u64::MAX)) }
    }

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
    /// The events of `--itrace` without letters in `perf inject`.
    pub(super) fn inject_defaults() -> ItraceOptions {
        ItraceOptions::all_but("cr")
    }

    /// The same in `perf script`: only calls as branches, and no samples of instructions.
    pub(super) fn script_defaults() -> ItraceOptions {
        ItraceOptions::all_but("iybr")
    }

    /// All events except those of these letters.
    fn all_but(letters: &str) -> ItraceOptions {
        let mut options = ItraceOptions::default();
        let rest = EVENTS.iter().filter(|Letter(letter, ..)| !letters.contains(*letter));
        rest.for_each(|Letter(.., sets)| sets(&mut options, 0));
        options
    }

    pub(super) fn parse(text: &str) -> Result<ItraceOptions> {
        let mut rest = Letters(text);
        let mut options = ItraceOptions::default();
        while let Some(letter) = rest.next() {
            let known = EVENTS.iter().chain(SETTINGS).find(|Letter(known, ..)| *known == letter);
            let Letter(_, _, takes, sets) = known.with_context(|| {
                let of = |tracers| letters(&[EVENTS, SETTINGS], tracers, "");
                let (traces, spe) = (of(PT | ETM), of(SPE));
                format!(
                    "--itrace={text}: unknown letter `{letter}`; Intel PT and CoreSight have {traces}, Arm SPE {spe}"
                )
            })?;
            let mut number = 0;
            match takes {
                Nothing => {}
                Period => options.period(&mut rest)?,
                Entries(default) => number = rest.entries(letter, *default)?,
                Number => {
                    let skipped = rest.number();
                    number = skipped.context("--itrace: `s` needs a number: how many events to skip")?;
                }
                Flags => {
                    while rest.0.starts_with(['+', '-']) {
                        let flag = (letter, rest.next(), rest.next());
                        options.no_overflows |= flag == ('e', Some('-'), Some('o'));
                        options.no_lost |= flag == ('e', Some('-'), Some('l'));
                    }
                }
            }
            sets(&mut options, number);
        }
        Ok(options)
    }

    /// True if an event of any of these tracers is selected: its setter changes nothing.
    fn selects(&self, tracers: u8) -> bool {
        EVENTS.iter().any(|Letter(_, of, _, sets)| {
            let mut with = *self;
            sets(&mut with, 0);
            of & tracers != 0 && with == *self
        })
    }

    /// True if samples of other events get parts from the trace.
    pub(super) fn extends_recorded(&self) -> bool {
        self.recorded_stack > 0 || self.recorded_chain > 0
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
        // perf's default unit is ns.
        let unit = unit.unwrap_or_default();
        letters.0 = &rest[unit.len()..];
        if unit == "i" {
            self.every = Some(number.max(1));
        } else {
            self.time = Some((number, unit));
        }
        Ok(())
    }

    /// Rejects options that are not decoded for Intel PT.
    pub(super) fn check_for_pt(&self, given: &str) -> Result<()> {
        ensure!(
            !(self.cycles || self.ptwrites) || self.quick == 0,
            "--itrace={given}: the places of y and w depend on the code, which q does not look at"
        );
        let events = letters(&[EVENTS], PT, " ");
        ensure!(
            self.selects(PT) || self.extends_recorded(),
            "--itrace={given} selects no event: Intel PT has {events}; l adds branch stacks and g call chains to these, \
             L and G to recorded samples"
        );
        Ok(())
    }

    /// Rejects options that select no CoreSight event. Letters specific to Intel PT are ignored.
    pub(super) fn check_for_coresight(&self, given: &str) -> Result<()> {
        let events = letters(&[EVENTS], ETM, " ");
        ensure!(
            self.selects(ETM),
            "--itrace={given} selects no event: CoreSight has {events}; l adds branch stacks to i, and g call chains"
        );
        Ok(())
    }

    /// Rejects options that Arm SPE data cannot have.
    pub(super) fn check_for_spe(&self) -> Result<()> {
        if let Some((number, unit)) = self.time {
            bail!(
                "--itrace=i{number}{unit}: the period of Arm SPE is a number of records; i100i takes one in 100"
            );
        }
        let events = letters(&[EVENTS], SPE, " ");
        ensure!(
            self.selects(SPE),
            "--itrace selects no event: Arm SPE has {events}, and l adds branch stacks to these"
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
            ("bGL8", ItraceOptions { branches: true, recorded_stack: 8, recorded_chain: 16, ..none }),
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
        assert!(ItraceOptions::inject_defaults().check_for_spe().is_ok());
        for (text, is_known) in [("i7iy9iqs3xwpoIAG", true), ("bL", true), ("bTL", true), ("yxwpoIA", false)]
        {
            let options = ItraceOptions::parse(text).unwrap();
            assert_eq!(options.check_for_coresight(text).is_ok(), is_known, "{text}");
        }
        assert!(none.check_for_spe().is_err() && none.check_for_pt("").is_err());
    }

    /// A page below docs.
    fn page(name: &str) -> String {
        std::fs::read_to_string(format!("{}/../docs/{name}", env!("CARGO_MANIFEST_DIR"))).unwrap()
    }

    /// The letters in a text, sorted: words that are only a letter, perhaps with a number.
    fn letters_in(text: &str) -> String {
        let words = text.split(|letter: char| !letter.is_alphanumeric());
        let letter = |word: &str| {
            let letter = word.chars().next().filter(char::is_ascii_alphabetic)?;
            word[1..].bytes().all(|byte| byte.is_ascii_digit()).then_some(letter)
        };
        sorted(words.filter_map(letter))
    }

    fn sorted(letters: impl Iterator<Item = char>) -> String {
        letters.collect::<std::collections::BTreeSet<_>>().into_iter().collect()
    }

    /// The text after `from`, up to `to`.
    fn part<'t>(text: &'t str, from: &str, to: &str) -> &'t str {
        let (_, rest) = text.split_once(from).unwrap_or_else(|| panic!("{from}"));
        rest.split_once(to).unwrap_or_else(|| panic!("{to}")).0
    }

    /// The first letters quoted in the first cells of a table's rows.
    fn letters_of_rows(text: &str, head: &str) -> String {
        let cells = part(text, head, "\n\n").lines().filter_map(|row| row.split('|').nth(1));
        let quoted = cells.flat_map(|cell| cell.split('`').skip(1).step_by(2));
        sorted(quoted.filter_map(|quoted| quoted.chars().next()))
    }

    #[test]
    fn pages_and_helps_list_the_letters_of_each_tracer() {
        let of = |tracers| sorted(letters(&[EVENTS, SETTINGS], tracers, "").chars());
        let (traces, inject) = (page("guide/traces.md"), page("guide/inject.md"));
        assert_eq!(letters_in(part(&traces, "intel_pt//u` |", "|")), of(PT));
        assert_eq!(letters_in(part(&traces, "cs_etm//u` |", "|")), of(ETM));
        assert_eq!(letters_of_rows(&traces, "| letters | samples |\n|---|---|\n"), of(PT | ETM));
        assert_eq!(letters_of_rows(&inject, "| letter | samples |\n|---|---|\n"), of(SPE));
        let helps = page("commands.md").split_whitespace().collect::<Vec<_>>().join(" ");
        assert_eq!(letters_in(part(&helps, "--itrace decodes Arm SPE", "Of Intel PT")), of(SPE));
        assert_eq!(letters_in(part(&helps, "Of Intel PT it decodes", "CoreSight has")), of(PT));
        assert_eq!(letters_in(part(&helps, "CoreSight has", "Code is found")), of(ETM));
        let default = part(&helps, "letters as for perfx inject --itrace [default: ", "]");
        let of_script = ItraceOptions::parse(&format!("{default}fmtaM")).unwrap();
        assert_eq!(of_script, ItraceOptions::script_defaults());
        assert!(traces.contains(&format!("`--itrace={default}`")));
    }
}
