//! Every pass of the registry keeps every promise of the design, on every recording of `tests/data` and in
//! every form. A pass in the registry is covered by its `examples` there.
//!
//! A run takes a fixed part of the product of recordings, forms and passes: see `one_of`.

use std::collections::{BTreeMap, BTreeSet};
use std::ffi::OsString;
use std::fs;
use std::hash::{DefaultHasher, Hasher as _};
use std::path::{Path, PathBuf};
use std::sync::Mutex;
use std::sync::atomic::{AtomicUsize, Ordering};

use perfx_format::features::BuildIds;
use perfx_format::{Feature, RecordType};
use perfx_passes::{REGISTRY, parse_chain};
use perfx_pipeline::OutputForm;

use crate::examples::examples;
use crate::promises::{Holds, Input, chain, kept, of_form, run};

use crate::support::{
    Fixture, Form, Perf, Stdin, Tier, all, each, one_of, perfs, perfx, recorded, same_bytes, temp,
};
use crate::{args, tiers};

/// A change to a recording before it goes through a pass.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
enum Shape {
    AsItIs,
    /// A file becomes a pipe; a pipe or a directory becomes a file.
    OtherForm,
    Compressed,
    /// The second half is missing, or some bytes at the end.
    CutShort,
}

const SHAPES: [Shape; 4] = [Shape::AsItIs, Shape::OtherForm, Shape::Compressed, Shape::CutShort];

/// A number that depends only on the hashed value.
pub(crate) fn number(what: impl std::hash::Hash) -> usize {
    // Without random keys, so that it is the same in every run.
    let mut hasher = DefaultHasher::new();
    what.hash(&mut hasher);
    hasher.finish() as usize
}

/// The recording in that shape; `None` if that is impossible.
fn shaped(fixture: &Fixture, shape: Shape) -> Option<Vec<u8>> {
    let made = |chain: &str, form| {
        let passes = if chain.is_empty() { Vec::new() } else { parse_chain(chain).unwrap() };
        Some(run(fixture.input(&bytes(fixture)?).open().ok()?, passes, form, 1).ok()?.1)
    };
    let same = if fixture.form == Form::Pipe { OutputForm::Pipe } else { OutputForm::File };
    match shape {
        Shape::AsItIs => bytes(fixture),
        Shape::OtherForm if fixture.form == Form::File => made("", OutputForm::Pipe),
        Shape::OtherForm => made("", OutputForm::File),
        Shape::Compressed => made("compress:level=1", same),
        Shape::CutShort => {
            let mut bytes = bytes(fixture).filter(|_| fixture.form != Form::Directory)?;
            let cut = number(&fixture.name);
            let len = bytes.len();
            bytes.truncate(if cut.is_multiple_of(2) { len - len.min(cut % 64) } else { len / 2 });
            Some(bytes)
        }
    }
}

/// A directory has no bytes, but its path is enough.
fn bytes(fixture: &Fixture) -> Option<Vec<u8>> {
    match fixture.form {
        Form::Directory => Some(Vec::new()),
        _ => fs::read(&fixture.path).ok(),
    }
}

/// Every chain of one pass, and the empty chain.
fn chains() -> Vec<(&'static str, String)> {
    let mut chains = vec![("copy", String::new())];
    for entry in REGISTRY {
        chains.extend(examples(entry).iter().map(|example| (entry.name, chain(entry, example))));
    }
    chains
}

tiers!(every_pass_keeps_the_promises_on_every_recording_in_every_form);
fn every_pass_keeps_the_promises_on_every_recording_in_every_form(tier: Tier) {
    let (fixtures, chains) = (tier.of(all()), chains());
    let cases: Vec<_> =
        fixtures.iter().flat_map(|fixture| SHAPES.iter().map(move |shape| (fixture, *shape))).collect();
    let judged = Mutex::new(BTreeMap::<&str, usize>::new());
    let check = |(fixture, shape): &(&Fixture, Shape)| -> Result<(), String> {
        let wanted: Vec<_> = chains
            .iter()
            .flat_map(|chain| [OutputForm::File, OutputForm::Pipe].map(|form| (chain, form)))
            .filter(|((_, chain), form)| {
                let relative = chain.replace(env!("CARGO_MANIFEST_DIR"), "");
                number((&fixture.name, shape, relative, *form == OutputForm::Pipe)).is_multiple_of(one_of())
            })
            .collect();
        if wanted.is_empty() {
            return Ok(());
        }
        let Some(bytes) = shaped(fixture, *shape) else { return Ok(()) };
        let input = match shape {
            Shape::AsItIs => fixture.input(&bytes),
            _ => Input::Bytes(&bytes),
        };
        let Some(before) = Holds::of(&input) else { return Ok(()) };
        let mut wrong = Vec::new();
        for ((name, chain), form) in wanted {
            let what = if chain.is_empty() { "copy" } else { chain };
            match kept(&input, &before, chain, form) {
                Ok(None) => {}
                Ok(Some(_)) => *judged.lock().unwrap().entry(*name).or_default() += 1,
                Err(why) => wrong.push(format!("{what} to {form:?}: {why}")),
            }
        }
        if wrong.is_empty() { Ok(()) } else { Err(wrong.join("\n    ")) }
    };
    each(&cases, |(fixture, shape)| format!("{} {shape:?}", fixture.name), check);
    let judged = judged.into_inner().unwrap();
    for entry in REGISTRY {
        let count = judged.get(entry.name).copied().unwrap_or(0);
        assert!(
            count >= tier.pick(1, 10),
            "pass {} was judged on {count} recordings only: {judged:?}",
            entry.name
        );
    }
}

tiers!(every_pass_writes_the_same_bytes_on_any_number_of_threads);
/// The recordings of `tests/data` are smaller than a batch, so threads would have nothing to share.
fn every_pass_writes_the_same_bytes_on_any_number_of_threads(tier: Tier) {
    let names = [
        "recorded/forkexec.p61.data",
        "crafted/be-forkexec.p61.data",
        "crafted/z-frame-each-le.data",
        "recorded/pipe-tracepoint.p73.data",
    ];
    let inputs = names.map(|name| Fixture::new(name).repeated(tier.pick(5 << 20, 9 << 20)));
    let mut chains = chains();
    if tier == Tier::Quick {
        chains.dedup_by_key(|(name, _)| *name);
    }
    let cases: Vec<_> = chains.into_iter().map(|(_, chain)| chain).enumerate().collect();
    each(
        &cases,
        |(_, chain)| chain.clone(),
        |(at, chain)| {
            let passes = || if chain.is_empty() { Vec::new() } else { parse_chain(chain).unwrap() };
            let form = [OutputForm::File, OutputForm::Pipe][at / inputs.len() % 2];
            let input = Input::Bytes(&inputs[at % inputs.len()]);
            let done = [1, 4].map(|threads| run(input.open().unwrap(), passes(), form, threads));
            match done {
                [Ok((one, bytes)), Ok((four, others))] => {
                    if (one.report.lines, one.report.dropped) != (four.report.lines, four.report.dropped) {
                        return Err("the report is another one".to_owned());
                    }
                    same_bytes(names[at % names.len()], &bytes, &others)
                }
                [Err(one), Err(four)] if one.to_string() == four.to_string() => Ok(()),
                done => Err(format!("{:?}", done.map(|done| done.map(|(outcome, _)| outcome.report)))),
            }
        },
    );
}

/// The number of records by kind, as in `perf report --stats`; `None` if perf refuses the recording.
fn counted(perf: &Perf, bytes: &[u8]) -> Option<BTreeMap<String, u64>> {
    let folder = temp();
    let path = folder.path().join("perf.data");
    fs::write(&path, bytes).unwrap();
    let pipe = bytes[8] == 16 || bytes[15] == 16;
    let stdin = if pipe { Stdin::Pipe(bytes) } else { Stdin::Null };
    let from = if pipe { Path::new("-") } else { &path };
    let ran = perf.run(stdin, args!["report", "-f", "--stats", "-i", *from]);
    let count = |line: &str| {
        let (kind, rest) = line.trim().split_once(" events:")?;
        Some((kind.to_owned(), rest.trim().split(' ').next()?.parse().ok()?))
    };
    let text = ran.text();
    let mut counts = BTreeMap::new();
    // The first list is the total of all events.
    text.lines().filter_map(count).for_each(|(kind, count)| {
        counts.entry(kind).or_insert(count);
    });
    (ran.code == Some(0)).then_some(counts)
}

tiers!(perf_counts_the_records_that_every_pass_writes);
fn perf_counts_the_records_that_every_pass_writes(tier: Tier) {
    let perfs = perfs(&["perf", "perf-new"]);
    let mut fixtures = tier.of(recorded());
    fixtures.retain(|fixture| fixture.form != Form::Directory);
    let mut chains = chains();
    if tier == Tier::Quick {
        chains.dedup_by_key(|(name, _)| *name);
    }
    let cases: Vec<_> = chains
        .into_iter()
        .map(|(_, chain)| chain)
        .flat_map(|chain| {
            let turns = 0..tier.pick(1, 3);
            let fixtures = &fixtures;
            turns.map(move |turn| (chain.clone(), &fixtures[number((&chain, turn)) % fixtures.len()]))
        })
        .flat_map(|(chain, fixture)| {
            [OutputForm::File, OutputForm::Pipe].map(|form| (chain.clone(), fixture, form))
        })
        .collect();
    let compared = AtomicUsize::new(0);
    let check = |(chain, fixture, form): &(String, &Fixture, OutputForm)| -> Result<(), String> {
        let bytes = fixture.bytes();
        let input = Input::Bytes(&bytes);
        let Some(before) = Holds::of(&input) else { return Ok(()) };
        let Some((outcome, written)) = kept(&input, &before, chain, *form)? else { return Ok(()) };
        let after = Holds::of(&Input::Bytes(&written)).ok_or("what was written can't be opened")?;
        // For a pipe with tracing data or compressed records, perf counts only the first records.
        let known = [Feature::TRACING_DATA, Feature::COMPRESSED]
            .map(|feature| outcome.features.contains_key(&feature));
        if *form == OutputForm::Pipe && known.contains(&true) {
            return Ok(());
        }
        // perf 6.1 supports neither the attrs of later versions nor COMPRESSED2.
        let is_old = |recorded_by: Option<&str>| matches!(recorded_by, Some("p61" | "p510"));
        let old = is_old(fixture.recorded_by()) && !chain.contains("compressed2");
        for perf in perfs.iter().filter(|perf| perf.name == "perf-new" || old) {
            let Some(expected) = counted(perf, &bytes) else { continue };
            let Some(counts) = counted(perf, &written) else {
                return Err(format!("{} refuses what was written", perf.name));
            };
            for (kind, count) in &after.kinds {
                let Some(name) = kind.name().filter(|_| !of_form(*kind) && *kind != RecordType::EVENT_UPDATE)
                else {
                    continue;
                };
                // Only if perf and perfx agree about the input, too: perf skips records of some kinds.
                let count_before = before.kinds.get(kind).copied().unwrap_or(0);
                if expected.get(name).copied().unwrap_or(0) != count_before || count_before == 0 {
                    continue;
                }
                let counted = counts.get(name).copied().unwrap_or(0);
                if counted != *count {
                    return Err(format!("{} counts {counted} of {name}, where there are {count}", perf.name));
                }
                compared.fetch_add(1, Ordering::Relaxed);
            }
        }
        Ok(())
    };
    each(&cases, |(chain, fixture, form)| format!("{} {chain} to {form:?}", fixture.name), check);
    assert!(
        perfs.is_empty() || compared.into_inner() > cases.len() / tier.pick(2, 1),
        "perf could count next to nothing"
    );
}

/// The output of a chain of passes for a recording of `tests/data`, and the doctor's findings in it.
fn made(name: &str, chain: &str, form: OutputForm) -> (Vec<u8>, Vec<&'static str>) {
    let bytes = Fixture::new(name).bytes();
    let (_, written) =
        run(Input::Bytes(&bytes).open().unwrap(), parse_chain(chain).unwrap(), form, 1).unwrap();
    let codes = codes(&written);
    (written, codes)
}

fn codes(bytes: &[u8]) -> Vec<&'static str> {
    let diagnosis = perfx_doctor::examine(Input::Bytes(bytes).open().unwrap(), 1, 1).unwrap();
    diagnosis.findings.iter().map(|finding| finding.code.code).collect()
}

#[test]
fn filter_keeps_the_events_that_stat_records_count() {
    let (_, codes) = made("recorded/stat.p61.data", "filter:drop-unused", OutputForm::File);
    assert!(!codes.contains(&"id-unknown"), "{codes:?}");
}

#[test]
fn build_ids_are_added_before_bytes_that_are_not_entries() {
    let name = "crafted/val-feature-build-id-size-0.data";
    let (written, codes) = made(name, r"build-ids:all:foreign:known=ab [kernel.kallsyms]", OutputForm::File);
    let recording = Input::Bytes(&written).open().unwrap();
    let entries = BuildIds::new(&recording.features[&Feature::BUILD_ID], recording.endian);
    assert_eq!(entries.map(|entry| entry.id.to_vec()).collect::<Vec<_>>(), [[0xab]], "{codes:?}");
}

#[test]
fn merge_gives_an_identifier_also_to_an_event_among_the_records() {
    let (_, chain) = chains().into_iter().find(|(name, _)| *name == "merge").unwrap();
    for form in [OutputForm::File, OutputForm::Pipe] {
        let (_, codes) = made("crafted/val-pipe-attr-late.data", &chain, form);
        assert!(!codes.contains(&"id-position"), "{form:?}: {codes:?}");
    }
}

#[test]
fn reindex_times_takes_no_time_from_samples_without_one() {
    let (_, codes) = made("crafted/order-no-time.data", "reindex-times:add", OutputForm::File);
    assert!(!codes.contains(&"sample-time"), "{codes:?}");
}

#[test]
fn a_build_id_at_the_front_of_pipe_data_may_have_a_trailer() {
    let (compressed, _) = made("crafted/attr-128-pipe.data", "compress", OutputForm::Pipe);
    let ids = parse_chain("build-ids:all:foreign:known=b0 /tmp/perfx-data/work/burn").unwrap();
    let (_, written) = run(Input::Bytes(&compressed).open().unwrap(), ids, OutputForm::Pipe, 1).unwrap();
    assert_eq!(codes(&written), Vec::<&str>::new());
}

/// The arguments of every command, except threads and input; `OUT` is the output. Commands made from a pass
/// are not listed: they run with the pass's examples. Any other command that is missing here fails the test
/// below.
const COMMANDS: &[(&str, &[&str])] = &[
    ("completion", &["bash"]),
    ("completion", &["elvish"]),
    ("completion", &["fish"]),
    ("completion", &["powershell"]),
    ("completion", &["zsh"]),
    ("copy", &["-o", "OUT"]),
    ("copy", &["--to", "pipe", "-o", "OUT"]),
    ("copy", &["--to", "pipe", "-o", "-"]),
    ("decompress", &["--salvage", "-o", "OUT"]),
    ("diff", &["OTHER"]),
    ("diff", &["--profile", "--foreign", "OTHER"]),
    ("doctor", &[]),
    ("du", &[]),
    ("dump", &["--raw"]),
    ("dump", &["--format", "ndjson"]),
    ("export", &["autofdo", "--foreign", "--dir", "OUT"]),
    ("export", &["bolt", "--foreign", "--dir", "OUT"]),
    ("export", &["csv", "--foreign", "--dir", "OUT"]),
    ("export", &["firefox", "--foreign", "-o", "OUT"]),
    ("export", &["folded", "--foreign", "-o", "OUT"]),
    ("export", &["html", "--foreign", "-o", "OUT"]),
    ("export", &["otlp", "--foreign", "-o", "OUT"]),
    ("export", &["parquet", "--foreign", "--spe", "--dir", "OUT"]),
    ("export", &["pprof", "--foreign", "-o", "OUT"]),
    ("export", &["profgen", "--foreign", "--binary", "OTHER", "-o", "OUT"]),
    ("export", &["svg", "--foreign", "-o", "OUT"]),
    ("filter", &["--time", "20%-60%", "--drop-unused", "-o", "OUT"]),
    ("filter", &["--symbol", "function", "--foreign", "-o", "OUT"]),
    ("index", &[]),
    ("info", &["-v"]),
    ("inject", &["--buildids", "--foreign", "-v", "-o", "OUT"]),
    ("inject", &["--mmap2-buildid-all", "--foreign", "--to", "pipe", "-o", "OUT"]),
    ("inject", &["--itrace=i100ibl", "--foreign", "-o", "OUT"]),
    ("inject", &["--aslr", "-o", "OUT"]),
    ("inject", &["--convert-callchain", "--foreign", "-o", "OUT"]),
    ("join", &["--mix", "-o", "OUT", "OTHER"]),
    ("list", &["build-ids"]),
    ("list", &["calls", "main", "--foreign"]),
    ("list", &["cgroups"]),
    ("list", &["dsos"]),
    ("list", &["events"]),
    ("list", &["fields", "sched:sched_switch", "--by", "prev_comm", "--foreign"]),
    ("list", &["functions", "--foreign"]),
    ("list", &["functions", "--callers", ".", "--foreign"]),
    ("list", &["functions", "--by", "pid", "--foreign"]),
    ("list", &["functions", "--itrace", "--foreign"]),
    ("list", &["io", "--foreign"]),
    ("list", &["irqs", "--foreign"]),
    ("list", &["kmem", "--foreign"]),
    ("list", &["lines", "main", "--foreign"]),
    ("list", &["locks", "--foreign"]),
    ("list", &["mappings"]),
    ("list", &["namespaces"]),
    ("list", &["processes"]),
    ("list", &["sched", "--foreign"]),
    ("list", &["stacks", "--foreign"]),
    ("list", &["syscalls", "--foreign"]),
    ("list", &["threads"]),
    ("man", &["--dir", "OUT"]),
    ("merge", &["-o", "OUT"]),
    ("overview", &["--foreign"]),
    ("pack", &["--foreign", "-o", "OUT"]),
    ("passes", &[]),
    ("recover", &["-o", "OUT"]),
    ("redact", &["-o", "OUT"]),
    ("redact", &["--check"]),
    ("reindex", &["-o", "OUT"]),
    ("repair", &["-v", "-o", "OUT"]),
    ("run", &["-p", "sort,reindex-times:add", "-o", "OUT"]),
    ("shim", &["OUT"]),
    ("sort", &["-o", "OUT"]),
    ("split", &["--by", "pid", "-o", "OUT"]),
    ("split", &["--by", "comm", "-o", "OUT"]),
    ("stats", &[]),
    ("symbolize", &["-o", "OUT"]),
    ("unpack", &["-o", "OUT"]),
    ("view", &["--foreign"]),
    ("watch", &["--", "test", "-e"]),
];

/// The command that a line of the table runs: `perfx export folded` of `export` and its arguments.
pub(crate) fn command_of(name: &str, args: &[impl AsRef<str>]) -> clap::Command {
    let command_line = perfx::Program::default().command_line();
    let command = command_line.find_subcommand(name).expect("it is there");
    let below = args.first().and_then(|arg| command.find_subcommand(arg.as_ref()));
    below.unwrap_or(command).clone()
}

/// True if it works on several threads.
pub(crate) fn takes_threads(command: &clap::Command) -> bool {
    command.get_arguments().any(|arg| arg.get_short() == Some('@'))
}

/// All commands with their arguments: those above, and those made from passes.
pub(crate) fn commands() -> Vec<(String, Vec<String>)> {
    let above = COMMANDS.iter().map(|(command, args)| {
        ((*command).to_owned(), args.iter().map(|&arg| arg.to_owned()).collect::<Vec<_>>())
    });
    let passes = REGISTRY.iter().filter(|spec| spec.command.is_some());
    let examples = passes.flat_map(|spec| examples(spec).iter().map(|example| (spec.name, *example)));
    let of_passes = examples.map(|(name, example)| {
        let options = example.split(':').filter(|option| !option.is_empty());
        let args = options.map(|option| format!("--{option}")).chain(["-o", "OUT"].map(str::to_owned));
        (name.to_owned(), args.collect())
    });
    above.chain(of_passes).collect()
}

/// Commands without a recording as input.
pub(crate) const WITHOUT_INPUT: [&str; 4] = ["completion", "man", "passes", "shim"];

/// The result of a command: exit code, output, messages, and files with their bytes.
type RunResult = (Option<i32>, Vec<u8>, String, BTreeMap<String, Vec<u8>>);

fn files(folder: &Path, below: &str, found: &mut BTreeMap<String, Vec<u8>>) {
    for entry in fs::read_dir(folder).unwrap() {
        let path = entry.unwrap().path();
        let name = format!("{below}/{}", path.file_name().unwrap().to_string_lossy());
        if path.is_dir() {
            files(&path, &name, found);
        } else {
            found.insert(name, fs::read(&path).unwrap());
        }
    }
}

/// Runs a command of the table in an empty folder.
fn done(command: &str, args: &[&str], threads: &str, input: &Path) -> RunResult {
    let folder = temp();
    let other = Fixture::new("recorded/switch.p61.data").path;
    // An index is written beside its recording.
    let beside = (command == "index").then(temp);
    let input = beside.as_ref().map_or_else(|| input.to_owned(), |beside| copied(input, beside.path()));
    let mut all: Vec<OsString> = vec![command.into()];
    all.extend(args.iter().map(|arg| match *arg {
        "OUT" => folder.path().join("out").into(),
        "OTHER" => other.clone().into(),
        arg => arg.into(),
    }));
    if !WITHOUT_INPUT.contains(&command) {
        // The host precedes its guest.
        all.push(input.clone().into());
        all.extend((command == "merge").then(|| other.into()));
    }
    if takes_threads(&command_of(command, args)) {
        all.extend(["-@", threads].map(OsString::from));
    }
    let ran = perfx(all);
    let mut left = BTreeMap::new();
    files(folder.path(), "", &mut left);
    let mut stderr = ran.stderr.replace(folder.path().to_str().unwrap(), "PLACE");
    if let Some(beside) = beside {
        files(beside.path(), "", &mut left);
        left.retain(|name, _| name.ends_with(".pfi"));
        stderr = stderr.replace(beside.path().to_str().unwrap(), "PLACE");
    }
    (ran.code, ran.stdout, stderr, left)
}

fn copied(recording: &Path, folder: &Path) -> PathBuf {
    let copy = folder.join(recording.file_name().unwrap());
    if recording.is_dir() {
        let mut found = BTreeMap::new();
        files(recording, "", &mut found);
        for (name, bytes) in found {
            let place = copy.join(name.trim_start_matches('/'));
            fs::create_dir_all(place.parent().unwrap()).unwrap();
            fs::write(place, bytes).unwrap();
        }
    } else {
        fs::copy(recording, &copy).unwrap();
    }
    copy
}

/// Names in a recording must not reach the terminal unescaped.
fn is_escaped(text: &str) -> bool {
    text.chars().all(|char| !char.is_control() || char == '\n' || char == '\t')
}

/// Checks the promises that are visible in a command's exit code, standard error and folder.
fn keeps_its_word(command: &str, args: &[&str], input: &Path) -> Result<(), String> {
    let one = done(command, args, "1", input);
    if one != done(command, args, "4", input) {
        return Err("a second run with four threads does something else".to_owned());
    }
    let (code, stdout, stderr, left) = one;
    let is_text = !stdout.starts_with(b"PERF") && !stdout.starts_with(b"2ELIFREP");
    if !is_escaped(&stderr) || is_text && !is_escaped(&String::from_utf8_lossy(&stdout)) {
        return Err(format!("control characters of the recording are printed: {stderr:?}"));
    }
    let said_a_loss = stderr.lines().any(|line| line.starts_with("perfx: lost: "));
    match code {
        Some(0) if said_a_loss => Err(format!("the exit code is 0, but something was lost: {stderr}")),
        // `export autofdo --dir` reports that no program has branches.
        Some(0 | 3) if args.contains(&"OUT") && left.is_empty() && !stderr.contains(" into 0 files") => {
            Err(format!("it left no output: {stderr}"))
        }
        Some(0 | 3) if left.keys().any(|name| name.contains("/.perfx-")) => {
            Err(format!("it left a temporary file: {:?}", left.keys()))
        }
        Some(0 | 3) => Ok(()),
        Some(1) if !left.is_empty() => Err(format!("it failed, and left {:?}", left.keys())),
        Some(1) => {
            let name = input.file_name().unwrap().to_string_lossy();
            let said = format!("{stderr}{}", String::from_utf8_lossy(&stdout));
            let named = said.contains(&*name) || said.contains(".data");
            if named { Ok(()) } else { Err(format!("the error names no file: {stderr}")) }
        }
        code => Err(format!("exit code {code:?}: {stderr}")),
    }
}

#[test]
fn every_command_is_in_the_table() {
    let commands = commands();
    let known: BTreeSet<String> = commands
        .iter()
        .map(|(command, args)| match command_of(command, args).get_name() {
            name if name == command => command.clone(),
            below => format!("{command} {below}"),
        })
        .collect();
    let mut there = BTreeSet::new();
    for command in perfx::Program::default().command_line().get_subcommands() {
        let below =
            command.get_subcommands().map(|below| format!("{} {}", command.get_name(), below.get_name()));
        let before = there.len();
        there.extend(below);
        if there.len() == before {
            there.insert(command.get_name().to_owned());
        }
        // The values of `list` and the like.
        for value in command.get_positionals().flat_map(clap::Arg::get_possible_values) {
            let is_it = |(known, args): &(String, Vec<String>)| {
                known == command.get_name() && args.iter().any(|arg| arg == value.get_name())
            };
            assert!(commands.iter().any(is_it), "{} {}", command.get_name(), value.get_name());
        }
    }
    assert_eq!(known, there);
}

tiers!(every_command_keeps_its_word_on_a_part_of_the_recordings);
fn every_command_keeps_its_word_on_a_part_of_the_recordings(tier: Tier) {
    let fixtures = tier.of(all());
    let commands = commands();
    let cases: Vec<_> = commands
        .iter()
        .flat_map(|command| fixtures.iter().map(move |fixture| (command, fixture)))
        .filter(|(command, fixture)| number((command, &fixture.name)).is_multiple_of(one_of()))
        .collect();
    each(
        &cases,
        |((command, args), fixture)| format!("{command} {args:?} {}", fixture.name),
        |((command, args), fixture)| {
            let args: Vec<&str> = args.iter().map(String::as_str).collect();
            keeps_its_word(command, &args, &fixture.path)
        },
    );
}

tiers!(no_name_of_a_recording_reaches_a_terminal_unescaped);
fn no_name_of_a_recording_reaches_a_terminal_unescaped(tier: Tier) {
    let folder = temp();
    let hostile = |name: &str| {
        let mut bytes = Fixture::new(name).bytes();
        for (from, to) in
            [(&b"/tmp/"[..], &b"\x1b[2J/"[..]), (b"burn", b"\x1b[8m"), (b"perfx", b"\r\x07\x9b0m")]
        {
            while let Some(at) = bytes.windows(from.len()).position(|window| window == from) {
                bytes[at..at + to.len()].copy_from_slice(to);
            }
        }
        let path = folder.path().join(name.replace('/', "-"));
        fs::write(&path, bytes).unwrap();
        path
    };
    let inputs = [
        hostile("recorded/forkexec.p61.data"),
        hostile("recorded/pipe-named.p73.data"),
        hostile("crafted/val-size-7.data"),
    ];
    let mut cases = commands();
    for (_, chain) in chains().into_iter().filter(|(_, chain)| !chain.is_empty()) {
        cases.push(("run".to_owned(), ["-v", "-p", &chain, "-o", "OUT"].map(str::to_owned).to_vec()));
    }
    let cases: Vec<_> =
        cases.iter().flat_map(|case| tier.first(1, &inputs).iter().map(move |input| (case, input))).collect();
    each(
        &cases,
        |((command, args), input)| format!("{command} {args:?} {}", input.display()),
        |((command, args), input)| {
            let args: Vec<&str> = args.iter().map(String::as_str).collect();
            keeps_its_word(command, &args, input)
        },
    );
}
