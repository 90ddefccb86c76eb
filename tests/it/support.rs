//! Helpers of all tests: the program, the recordings, perf, temporary places, and reports of all failing
//! cases at once.
//!
//! No test depends on the machine it runs on. To run perf, use `perf("perf-new")` or `perfs(&["perf",
//! "perf-new"])`, which skip versions that are not installed, and call `run`. There perf sees no
//! configuration, no build-id cache, no file of this machine and not its kernel: `run` gives it a home of its
//! own and, with `script` and `report`, `--kallsyms` (made-up symbols) and `--symfs` (the programs of the
//! recordings). If perf may fail because of the input, check `perf.can_read(input)` first. For a program
//! other than perf, start from `clean`.

#![allow(dead_code, reason = "each module of this binary uses a part")]

use std::collections::BTreeMap;
use std::ffi::{OsStr, OsString};
use std::fs::{self, File};
use std::hash::{DefaultHasher, Hash as _, Hasher as _};
use std::io::{Cursor, Read as _, Seek as _, Write as _, pipe};
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, OnceLock};
use std::{env, iter, thread};

use perfx::{Program, Streams};
use perfx_format::read::Recording;
use perfx_format::write::RecordingWriter;
use perfx_format::{Event, Layouts, Origin, Record};
use tempfile::TempDir;

use crate::parse::{self, Contents, Order};
use crate::promises::{Input, unnamed};

/// The result of a program.
#[derive(Clone, Debug)]
pub(crate) struct Ran {
    /// `None` if it was ended by a signal.
    pub(crate) code: Option<i32>,
    pub(crate) stdout: Vec<u8>,
    pub(crate) stderr: String,
}

impl Ran {
    pub(crate) fn text(&self) -> String {
        String::from_utf8_lossy(&self.stdout).into_owned()
    }

    /// Fails with its messages unless it exited with 0 (done) or 3 (done, something is lost or suspect).
    pub(crate) fn done(self) -> Result<Ran, String> {
        match self.code {
            Some(0 | 3) => Ok(self),
            code => Err(format!("exit code {code:?}: {}", self.stderr)),
        }
    }
}

/// The standard input of a program.
pub(crate) enum Stdin<'a> {
    /// Nothing: /dev/null.
    Null,
    /// A pipe with these bytes.
    Pipe(&'a [u8]),
    File(&'a Path),
}

/// Runs a command to its end.
pub(crate) fn run(command: &mut Command, stdin: Stdin<'_>) -> Ran {
    command.stdout(Stdio::piped()).stderr(Stdio::piped());
    match stdin {
        Stdin::Null => command.stdin(Stdio::null()),
        Stdin::Pipe(_) => command.stdin(Stdio::piped()),
        Stdin::File(path) => command.stdin(File::open(path).unwrap()),
    };
    let mut child = command.spawn().unwrap_or_else(|e| panic!("{command:?}: {e}"));
    let pipe = child.stdin.take();
    let output = thread::scope(|scope| {
        if let (Some(mut pipe), Stdin::Pipe(bytes)) = (pipe, stdin) {
            // A program that does not read to the end has a reason, which its exit code shows.
            scope.spawn(move || pipe.write_all(bytes));
        }
        child.wait_with_output().unwrap()
    });
    Ran {
        code: output.status.code(),
        stdout: output.stdout,
        stderr: String::from_utf8_lossy(&output.stderr).into_owned(),
    }
}

/// A program with the same environment on every machine.
pub(crate) fn clean(program: impl AsRef<OsStr>) -> Command {
    let mut command = Command::new(program);
    command.env_clear().envs([("LC_ALL", "C"), ("TZ", "UTC0")]);
    // The last one is of tests/mutants.py.
    command.envs(
        ["PATH", "TMPDIR", "PERFX_MUTANT"].into_iter().filter_map(|name| Some((name, env::var_os(name)?))),
    );
    command
}

/// The program under test.
pub(crate) fn perfx_command() -> Command {
    clean(env!("CARGO_BIN_EXE_perfx"))
}

/// The folder in which this build is: `target`, or a target's folder in it.
pub(crate) fn target() -> &'static Path {
    let program = Path::new(env!("CARGO_BIN_EXE_perfx"));
    program.ancestors().nth(2).expect("target/PROFILE/perfx")
}

/// Runs perfx with nothing on standard input: in this process if that makes no difference, which takes half
/// the time.
pub(crate) fn perfx<A: AsRef<OsStr>>(args: impl IntoIterator<Item = A>) -> Ran {
    let args: Vec<OsString> = args.into_iter().map(|arg| arg.as_ref().to_owned()).collect();
    if is_alike_here(&args) { perfx_here(args) } else { perfx_with(Stdin::Null, args) }
}

/// True if the result depends only on the arguments and the files that they name. Commands that name
/// functions search the caches of this user unless told otherwise.
fn is_alike_here(args: &[OsString]) -> bool {
    const COMMANDS: [&str; 24] = [
        "compress", "copy", "decompress", "diff", "doctor", "du", "dump", "filter", "info", "join", "merge",
        "normalize", "recover", "redact", "reindex", "remap", "repair", "retime", "sort", "split", "stats",
        "strip", "thin", "passes",
    ];
    let is = |arg: &OsString, text: &str| arg.to_str() == Some(text);
    let is_known = args.first().is_some_and(|name| COMMANDS.iter().any(|known| is(name, known)));
    let has_no_colours = !args.iter().any(|arg| arg.to_string_lossy().starts_with("--color"));
    (is_known || args.iter().any(|arg| is(arg, "--foreign"))) && has_no_colours
}

/// Runs perfx in a thread of this process, with the stack of a main thread.
fn perfx_here(args: Vec<OsString>) -> Ran {
    let (mut read, stdout) = pipe().unwrap();
    let mut said = unnamed(&[]);
    let stderr = said.try_clone().unwrap().into();
    let streams = Streams { stdin: File::open("/dev/null").unwrap().into(), stdout: stdout.into(), stderr };
    let line = iter::once("perfx".into()).chain(args);
    let (code, stdout) = thread::scope(|scope| {
        let builder = thread::Builder::new().stack_size(8 << 20);
        let run = builder.spawn_scoped(scope, || Program::default().run_with(line, streams)).unwrap();
        let mut stdout = Vec::new();
        read.read_to_end(&mut stdout).unwrap();
        // A panic has no exit code, like a process that was ended by a signal.
        (run.join().ok().map(i32::from), stdout)
    });
    let mut stderr = Vec::new();
    said.rewind().unwrap();
    said.read_to_end(&mut stderr).unwrap();
    Ran { code, stdout, stderr: String::from_utf8_lossy(&stderr).into_owned() }
}

/// Runs perfx.
pub(crate) fn perfx_with<A: AsRef<OsStr>>(stdin: Stdin<'_>, args: impl IntoIterator<Item = A>) -> Ran {
    run(perfx_command().args(args), stdin)
}

/// An argument list of strings and paths.
#[macro_export]
macro_rules! args {
    ($($arg:expr),* $(,)?) => { [$(std::ffi::OsString::from(&$arg)),*] };
}

/// A folder that is removed with the test.
pub(crate) fn temp() -> TempDir {
    tempfile::Builder::new().prefix("perfx-it-").tempdir().unwrap()
}

/// The project's root.
pub(crate) fn root() -> &'static Path {
    Path::new(env!("CARGO_MANIFEST_DIR"))
}

/// The form in which a recording is stored.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Form {
    File,
    Pipe,
    Directory,
}

/// A recording of `tests/data`.
#[derive(Clone, Debug)]
pub(crate) struct Fixture {
    /// Path below `tests/data`: `recorded/plain.p61.data`.
    pub(crate) name: String,
    pub(crate) path: PathBuf,
    pub(crate) form: Form,
}

impl Fixture {
    pub(crate) fn new(name: &str) -> Fixture {
        let path = root().join("tests/data").join(name);
        let form = form(&path);
        Fixture { name: name.to_owned(), path, form }
    }

    /// True if perfx counts several events of it as one, which perf and the tables keep separate: those of
    /// several PMUs, or of user code and of the kernel.
    pub(crate) fn has_siblings(&self) -> bool {
        ["hybrid", "modifiers"].iter().any(|part| self.name.contains(part))
    }

    /// The file itself, or a directory's `data`.
    pub(crate) fn bytes(&self) -> Vec<u8> {
        let path = if self.form == Form::Directory { self.path.join("data") } else { self.path.clone() };
        fs::read(&path).unwrap_or_else(|e| panic!("{}: {e}", path.display()))
    }

    /// The recording for a library; its bytes were read before.
    pub(crate) fn input<'a>(&'a self, bytes: &'a [u8]) -> Input<'a> {
        match self.form {
            Form::Directory => Input::Directory(&self.path),
            _ => Input::Bytes(bytes),
        }
    }

    /// The recording with its records repeated until they have at least `size` bytes.
    pub(crate) fn repeated(&self, size: usize) -> Vec<u8> {
        let bytes = self.bytes();
        let order = Order::of(&bytes);
        let again = |data: &[u8]| data.repeat(size / data.len() + 1);
        if self.form == Form::Pipe {
            let records = parse::records(&bytes[16..], order);
            let first = records.iter().find(|record| !record.is_front).expect("a pipe with records");
            let (front, data) = bytes.split_at(16 + first.at);
            return [front, &again(data)].concat();
        }
        self.with_data(again)
    }

    /// The file with other records.
    pub(crate) fn with_data(&self, change: impl FnOnce(&[u8]) -> Vec<u8>) -> Vec<u8> {
        let bytes = self.bytes();
        let order = Order::of(&bytes);
        let contents = Contents::file(&bytes);
        assert_eq!(contents.not_canonical(&bytes), None, "{}", self.name);
        let (front, rest) = bytes.split_at(contents.data.start);
        let (data, rest) = rest.split_at(contents.data.len());
        let (mut front, data, mut rest) = (front.to_vec(), change(data), rest.to_vec());
        order.set_u64(&mut front, 48, data.len() as u64);
        for slot in 0..contents.features.len() {
            let moved = (data.len() as u64).wrapping_sub(contents.data.len() as u64);
            let offset = order.u64(&rest, slot * 16).wrapping_add(moved);
            order.set_u64(&mut rest, slot * 16, offset);
        }
        [front, data, rest].concat()
    }

    /// The version of perf that recorded it.
    pub(crate) fn recorded_by(&self) -> Option<&str> {
        let stem = self.name.split('/').nth(1)?.strip_suffix(".data")?;
        Some(stem.rsplit_once('.')?.1)
    }
}

fn form(path: &Path) -> Form {
    if path.is_dir() {
        return Form::Directory;
    }
    let mut header = Vec::new();
    let file = File::open(path).unwrap_or_else(|e| panic!("{}: {e}", path.display()));
    file.take(16).read_to_end(&mut header).unwrap();
    match header.get(8..) {
        Some([16, 0, 0, 0, 0, 0, 0, 0] | [0, 0, 0, 0, 0, 0, 0, 16]) => Form::Pipe,
        _ => Form::File,
    }
}

fn fixtures(folder: &str) -> Vec<Fixture> {
    let mut found = Vec::new();
    for entry in fs::read_dir(root().join("tests/data").join(folder)).unwrap() {
        let entry = entry.unwrap();
        let name = format!("{folder}/{}", entry.file_name().into_string().unwrap());
        if !name.ends_with(".data") {
            continue;
        }
        let path = entry.path();
        // Files of `perf record --switch-output`, which belong together.
        if path.is_dir() && !path.join("data").exists() && path.join("1.data").exists() {
            let mut parts: Vec<_> =
                fs::read_dir(&path).unwrap().map(|part| part.unwrap().file_name()).collect();
            parts.sort();
            found
                .extend(parts.iter().map(|part| Fixture::new(&format!("{name}/{}", part.to_string_lossy()))));
        } else {
            found.push(Fixture::new(&name));
        }
    }
    found.sort_by(|a, b| a.name.cmp(&b.name));
    assert!(found.len() > 10, "tests/data/{folder} is not complete");
    found
}

/// The recordings made by perf.
pub(crate) fn recorded() -> Vec<Fixture> {
    fixtures("recorded")
}

/// The recordings made by `tests/data/craft.py`: forms, versions and faults that no installed perf writes.
pub(crate) fn crafted() -> Vec<Fixture> {
    fixtures("crafted")
}

/// Both kinds.
pub(crate) fn all() -> Vec<Fixture> {
    let mut all = recorded();
    all.extend(crafted());
    all
}

/// The recordings in the form that perf writes, or nearly: without those of the table of `validation.rs`
/// (`val-*`), which have one fault each, and those that end too early (`cut-*`). For tests that compare
/// several commands; other tests check their reaction to faults. With PERFX_CASES=24, all.
pub(crate) fn sound() -> Vec<Fixture> {
    let is_faulty = |name: &str| name.starts_with("crafted/val-") || name.starts_with("recorded/cut-");
    all().into_iter().filter(|fixture| one_of() == 1 || !is_faulty(&fixture.name)).collect()
}

/// The recordings whose name contains the text.
pub(crate) fn named(part: &str) -> Vec<Fixture> {
    let found: Vec<_> = all().into_iter().filter(|fixture| fixture.name.contains(part)).collect();
    assert!(!found.is_empty(), "no recording is called {part}");
    found
}

/// Runs `check` for every case, on all processors, and fails with all errors.
pub(crate) fn each<T: Sync>(
    cases: &[T],
    name: impl Fn(&T) -> String + Sync,
    check: impl Fn(&T) -> Result<(), String> + Sync,
) {
    each_number(cases.len(), &|number| name(&cases[number]), &|number| check(&cases[number]));
}

/// Not generic: threads for each of 150 callers took a twelfth of the time to compile all tests.
fn each_number(
    count: usize,
    name: &(dyn Fn(usize) -> String + Sync),
    check: &(dyn Fn(usize) -> Result<(), String> + Sync),
) {
    assert!(count > 0, "there is no case to check");
    let next = AtomicUsize::new(0);
    let wrong = Mutex::new(Vec::new());
    let work = || {
        while let Some(case) = Some(next.fetch_add(1, Ordering::Relaxed)).filter(|&case| case < count) {
            let done = std::panic::catch_unwind(std::panic::AssertUnwindSafe(|| check(case)));
            if let Err(what) = done.unwrap_or_else(|_| Err("panicked, see above".to_owned())) {
                wrong.lock().unwrap().push(format!("{}: {what}", name(case)));
            }
        }
    };
    thread::scope(|scope| {
        for _ in 0..thread::available_parallelism().map_or(2, usize::from) {
            scope.spawn(work);
        }
    });
    let mut wrong = wrong.into_inner().unwrap();
    wrong.sort();
    let shown = &wrong[..wrong.len().min(20)];
    assert!(wrong.is_empty(), "{} of {count} cases:\n{}", wrong.len(), shown.join("\n"));
}

/// PERFX_CASES: exhaustive tests check this many times as many cases.
pub(crate) fn times() -> usize {
    env::var("PERFX_CASES").map_or(1, |times| times.parse().expect("PERFX_CASES is a number"))
}

/// An exhaustive test of a product of recordings, forms and commands checks one case of 24; with
/// PERFX_CASES=24, all.
pub(crate) fn one_of() -> usize {
    (24 / times()).max(1)
}

/// The part of its cases that a test checks: see `tiers`.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Tier {
    /// Few that differ from each other, in `cargo test`.
    Quick,
    /// All, in `cargo test -- --include-ignored`.
    Exhaustive,
}

/// Makes two tests of a function that takes a [`Tier`]: `NAME::quick`, and `NAME::exhaustive`, which is
/// ignored.
#[macro_export]
macro_rules! tiers {
    ($name:ident) => {
        mod $name {
            use $crate::support::Tier;

            #[test]
            fn quick() {
                super::$name(Tier::Quick);
            }

            #[test]
            #[ignore = "exhaustive: all recordings and cases"]
            fn exhaustive() {
                super::$name(Tier::Exhaustive);
            }
        }
    };
}

/// The recordings of quick tests: one of each form, kind of sample, kind of record, and age.
const FEW: [&str; 40] = [
    "crafted/attr-152-le.data",
    "crafted/aux-samples.data",
    "crafted/be-forkexec.p61.data",
    "crafted/features-unknown-be.data",
    "crafted/guest-le.data",
    "crafted/kind-many.data",
    "crafted/kinds-le.data",
    "crafted/kinds-user-pipe-be.data",
    "crafted/order-late.data",
    "crafted/sample-all-be.data",
    "crafted/spe-z.data",
    "crafted/v1-72-attr64-be.data",
    "crafted/val-size-7.data",
    "crafted/val-unterminated-mmap2.data",
    "crafted/z-mixed-le.data",
    "recorded/allbits.p73.data",
    "recorded/bpf.p73.data",
    "recorded/buildid-mmap.p73.data",
    "recorded/cgroups.p73.data",
    "recorded/dwarf.p61.data",
    "recorded/forkexec.p61.data",
    "recorded/fp-defer.p73.data",
    "recorded/fp.p61.data",
    "recorded/group-read.p61.data",
    "recorded/inject-b.p61.data",
    "recorded/kcore.p61.data",
    "recorded/killed.p61.data",
    "recorded/latency.p73.data",
    "recorded/namespaces.p61.data",
    "recorded/nothing.p73.data",
    "recorded/pipe-group.p61.data",
    "recorded/pipe-tracepoint.p73.data",
    "recorded/pipe-z.p61.data",
    "recorded/plain.p510.data",
    "recorded/stat.p61.data",
    "recorded/switch.p61.data",
    "recorded/threads-z.p73.data",
    "recorded/threads.p61.data",
    "recorded/tracepoint.p61.data",
    "recorded/z.p73.data",
];

impl Tier {
    /// Of these recordings, the few or all.
    pub(crate) fn of(self, mut recordings: Vec<Fixture>) -> Vec<Fixture> {
        let is_one = |recording: &Fixture| FEW.contains(&recording.name.as_str());
        recordings.retain(|recording| self == Tier::Exhaustive || is_one(recording));
        recordings
    }

    /// A number, size or the like for each tier.
    pub(crate) fn pick<T>(self, quick: T, exhaustive: T) -> T {
        match self {
            Tier::Quick => quick,
            Tier::Exhaustive => exhaustive,
        }
    }

    /// The first `few` of these cases, or all.
    pub(crate) fn first<T>(self, few: usize, cases: &[T]) -> &[T] {
        &cases[..self.pick(few, cases.len())]
    }

    /// The ways to test a recording. In an exhaustive run, all for one that a perf recorded. For one made by
    /// hand, and in a quick run, `few` of them: there are many such recordings, which differ in one detail.
    pub(crate) fn some_of<'a, T>(
        self,
        fixture: &Fixture,
        ways: &'a [T],
        few: usize,
    ) -> impl Iterator<Item = &'a T> {
        let takes_all = fixture.name.starts_with("recorded/") || one_of() == 1;
        let first = fixture.name.bytes().map(usize::from).sum::<usize>() % ways.len();
        let number = if takes_all { self.pick(few, ways.len()) } else { few };
        ways.iter().cycle().skip(first).take(number)
    }
}

/// `each` over recordings.
pub(crate) fn each_fixture(fixtures: &[Fixture], check: impl Fn(&Fixture) -> Result<(), String> + Sync) {
    each(fixtures, |fixture| fixture.name.clone(), check);
}

/// Runs `perfx export FORMAT` to standard output.
pub(crate) fn export(format: &str, inputs: &[&Path], more: &[&str]) -> Ran {
    let mut command = perfx_command();
    command.args(["export", format, "--foreign", "-o", "-"]).args(inputs).args(more);
    run(&mut command, Stdin::Null)
}

/// Checks what `perfx export FORMAT` writes for each recording, with the symbols of the third argument. If it
/// fails, it must write nothing.
pub(crate) fn each_export(
    tier: Tier,
    format: &str,
    check: impl Fn(&Fixture, &Ran, &str) -> Result<(), String> + Sync,
) {
    let Some(root) = workloads() else { return };
    let root = root.to_str().unwrap();
    each_fixture(&tier.of(recorded()), |fixture| {
        let ran = export(format, &[&fixture.path], &["--root", root]);
        match (ran.code, ran.stdout.is_empty()) {
            (Some(1), true) => Ok(()),
            (Some(1), false) => Err("an error left output".into()),
            _ => check(fixture, &ran, root),
        }
    });
}

/// Python, if it has these packages.
pub(crate) fn python(packages: &str) -> Option<impl Fn(&[&str], &Path) -> Ran> {
    let python = env::var("PERFX_PYTHON").unwrap_or("python3".to_owned());
    let start =
        move |args: &[&str], folder: &Path| run(clean(&python).args(args).current_dir(folder), Stdin::Null);
    let import = format!("import {packages}");
    let found = std::panic::catch_unwind(|| start(&["-c", &import], Path::new("/")).code == Some(0));
    if !found.unwrap_or(false) {
        assert!(env::var_os("PERFX_PYTHON").is_none(), "PERFX_PYTHON lacks some of {packages}");
        skipped(&format!(
            "tests that need {packages} of Python (pip install, and PERFX_PYTHON; opentelemetry.proto is in opentelemetry-proto, \
                  axe_core_python in axe-core-python)"
        ));
        return None;
    }
    Some(start)
}

/// Checks that both are equal; the error shows where they begin to differ.
pub(crate) fn same_bytes(what: &str, left: &[u8], right: &[u8]) -> Result<(), String> {
    if left == right {
        return Ok(());
    }
    let at = left.iter().zip(right).position(|(a, b)| a != b).unwrap_or(left.len().min(right.len()));
    Err(format!("{what}: {} and {} bytes, which differ from {at:#x} on", left.len(), right.len()))
}

/// A recording as a file, with other events, and with other records: `change` gets each record with its
/// layouts and its bytes, which it may change, and returns true if the record stays.
pub(crate) fn rewritten(
    path: &Path,
    event: impl Fn(&Event) -> Event,
    mut change: impl FnMut(&Record<'_>, &Layouts, &mut Vec<u8>) -> bool,
) -> Vec<u8> {
    let mut recording = Recording::open(path).unwrap();
    let endian = recording.endian;
    let layouts = Layouts::new(&recording.events);
    let events: Vec<Event> = recording.events.iter().map(event).collect();
    let mut writer = RecordingWriter::to_file(Cursor::new(Vec::new()), &events, endian).unwrap();
    for (&feature, section) in &recording.features {
        writer.set_feature(feature, section.clone()).unwrap();
    }
    let mut records = recording.records();
    while let Some(record) = records.next_record().unwrap() {
        let mut bytes = record.bytes().to_vec();
        if change(&record, &layouts, &mut bytes) {
            let record = Record::new(&bytes, record.payload(), Origin::Synthetic, endian).unwrap();
            writer.write_record(&record).unwrap();
        }
    }
    writer.finish().unwrap().into_inner()
}

/// True if these bytes are somewhere among the others.
pub(crate) fn holds(bytes: &[u8], part: impl AsRef<[u8]>) -> bool {
    let part = part.as_ref();
    bytes.windows(part.len()).any(|window| window == part)
}

/// Checks that both are equal; the error shows the first lines that differ.
pub(crate) fn same_lines(what: &str, left: &[String], right: &[String]) -> Result<(), String> {
    if left == right {
        return Ok(());
    }
    let at = left.iter().zip(right).position(|(a, b)| a != b).unwrap_or(left.len().min(right.len()));
    let line = |lines: &[String]| lines.get(at).cloned().unwrap_or_else(|| "(end)".to_owned());
    let (total, other) = (left.len(), right.len());
    Err(format!("{what}: line {} of {total} and {other}:\n  - {}\n  + {}", at + 1, line(left), line(right)))
}

/// A folder that replaces `/`, with the recordings' workloads built in it. `None` without a compiler, which
/// is reported; in CI that is a failure.
pub(crate) fn workloads() -> Option<&'static Path> {
    static ROOT: OnceLock<Option<PathBuf>> = OnceLock::new();
    let root = ROOT.get_or_init(|| {
        // Kept for the next run. Another concurrent run builds the same.
        let sources = self::root().join("tests/data/work");
        let mut hasher = DefaultHasher::new();
        let mut names: Vec<_> = fs::read_dir(&sources).unwrap().map(|entry| entry.unwrap().path()).collect();
        names.sort();
        names.iter().for_each(|path| fs::read(path).unwrap().hash(&mut hasher));
        let target = Path::new(env!("CARGO_TARGET_TMPDIR"));
        let root = target.join(format!("recorded-{:x}", hasher.finish()));
        if root.is_dir() {
            return Some(root);
        }
        let new = tempfile::tempdir_in(target).unwrap();
        let mut build = clean("sh");
        build.arg(sources.join("build.sh")).arg(new.path().join("tmp/perfx-data/work"));
        let ran = run(&mut build, Stdin::Null);
        if ran.code == Some(0) {
            // Fails if another run was faster.
            let _ = fs::rename(new.path(), &root);
            return Some(root);
        }
        assert!(
            env::var_os("CI").is_none(),
            "the workloads can't be built (apt-get install gcc): {}",
            ran.stderr
        );
        skipped("what needs the workloads, for which there is no gcc");
        None
    });
    root.as_deref()
}

/// True if a signal is ignored here, as by nohup or a shell's `&`: then it is in all child processes,
/// including perfx.
pub(crate) fn is_ignored(signal: i32) -> bool {
    let status = fs::read_to_string("/proc/self/status").unwrap();
    let mask = status.lines().find_map(|line| line.strip_prefix("SigIgn:")).unwrap().trim();
    u64::from_str_radix(mask, 16).unwrap() >> (signal - 1) & 1 == 1
}

/// Reports what a test skips, straight to standard error: a test's normal output is shown only if it fails.
pub(crate) fn skipped(what: &str) {
    let _ = writeln!(std::io::stderr(), "SKIPPED: {what}");
}

/// True if a program is installed. If not, this is reported; in CI that is a failure.
pub(crate) fn is_installed(program: &str, how: &str) -> bool {
    let path = env::var_os("PATH").unwrap_or_default();
    let found = env::split_paths(&path).any(|folder| folder.join(program).is_file());
    if !found {
        assert!(env::var_os("CI").is_none(), "{program} is missing. To install it: {how}");
        skipped(&format!("what needs {program}, which is missing. To install it: {how}"));
    }
    found
}

/// A perf that is isolated from this machine.
#[derive(Debug)]
pub(crate) struct Perf {
    /// Its name in [`PERFS`], which stands for its version. [`Perf::program`] is the program to start.
    pub(crate) name: &'static str,
    path: PathBuf,
    home: TempDir,
}

/// The perfs that tests use: name, version, and how to get it. Each is the program of this name or `perf`,
/// whichever has this version.
const PERFS: [(&str, &str, &str); 5] = [
    ("perf", "6.1", "apt-get install linux-perf, of Debian 12"),
    ("perf-bullseye", "5.10", "linux-perf-5.10 of Debian 11, unpacked, with a wrapper of this name in PATH"),
    ("perf-trixie", "6.12", "linux-perf of Debian 13, unpacked, with a wrapper of this name in PATH"),
    ("perf-sid", "7.2", "linux-perf of Debian sid, unpacked, with a wrapper of this name in PATH"),
    ("perf-new", "7.3", "built from the kernel's tools/perf, with a wrapper of this name in PATH"),
];

/// The version that a program of this name in PATH has, with its path.
fn version_of(program: &str) -> Option<(PathBuf, String)> {
    static KNOWN: Mutex<BTreeMap<String, Option<(PathBuf, String)>>> = Mutex::new(BTreeMap::new());
    let find = || {
        let folders = env::var_os("PATH")?;
        let path =
            env::split_paths(&folders).map(|folder| folder.join(program)).find(|path| path.is_file())?;
        // It may be there, but not for this user.
        let ran = clean(&path).arg("--version").output().ok()?;
        Some((path, String::from_utf8_lossy(&ran.stdout).trim().to_owned()))
    };
    KNOWN.lock().unwrap().entry(program.to_owned()).or_insert_with(find).clone()
}

/// A perf by its name in [`PERFS`]. `None` if none of this version is installed, which is reported; in CI
/// that is a failure for 6.1, and for the others with PERFX_ALL_PERFS.
pub(crate) fn perf(name: &str) -> Option<Perf> {
    let (name, version, how) = *PERFS.iter().find(|(known, ..)| *known == name).expect("a perf of the list");
    let is_it = |said: &str| {
        let rest = said.strip_prefix("perf version ").and_then(|said| said.strip_prefix(version));
        rest.is_some_and(|rest| !rest.starts_with(|char: char| char.is_ascii_digit()))
    };
    let found = [name, "perf"].into_iter().filter_map(version_of).find(|(_, said)| is_it(said));
    if let Some((path, _)) = found {
        let perf = Perf { name, path, home: temp() };
        fs::write(perf.home.path().join("kallsyms"), kallsyms()).unwrap();
        return Some(perf);
    }
    let needed = name == "perf" || env::var_os("PERFX_ALL_PERFS").is_some();
    assert!(env::var_os("CI").is_none() || !needed, "perf {version} is missing. To install it: {how}");
    skipped(&format!("what needs perf {version}, which is missing. To install it: {how}"));
    None
}

/// The installed ones of these perfs.
pub(crate) fn perfs(names: &[&str]) -> Vec<Perf> {
    names.iter().filter_map(|name| perf(name)).collect()
}

/// A kernel with a symbol every 64 KiB, at the addresses of the recorded kernels.
fn kallsyms() -> String {
    let symbols = (0xffff_ffff_8101_0000..0xffff_ffff_8300_0000_u64).step_by(1 << 16);
    let lines = symbols.map(|address| format!("{address:x} T made_up_{:x}\n", address >> 16 & 0xfff));
    std::iter::once("ffffffff81000000 T _text\n".to_owned()).chain(lines).collect()
}

/// True for lines of perf that name functions.
fn resolves(line: &[&OsStr]) -> bool {
    line.first().is_some_and(|&command| command == "script" || command == "report")
}

impl Perf {
    /// The program.
    pub(crate) fn path(&self) -> &Path {
        &self.path
    }

    /// Its name in PATH.
    pub(crate) fn program(&self) -> &str {
        self.path.file_name().and_then(OsStr::to_str).expect("a name of the list")
    }

    /// Runs it.
    pub(crate) fn run<A: AsRef<OsStr>>(&self, stdin: Stdin<'_>, args: impl IntoIterator<Item = A>) -> Ran {
        type Known = BTreeMap<(&'static str, Vec<OsString>), Arc<OnceLock<Ran>>>;
        static KNOWN: Mutex<Known> = Mutex::new(BTreeMap::new());
        let args: Vec<A> = args.into_iter().collect();
        let args: Vec<&OsStr> = args.iter().map(AsRef::as_ref).collect();
        // Many tests ask for the same text of a stored recording.
        let in_folder = |folder: &Path| args.iter().any(|arg| Path::new(arg).starts_with(folder));
        let is_stored = in_folder(&root().join("tests/data")) && !in_folder(&env::temp_dir());
        if !is_stored || !resolves(&args) || !matches!(stdin, Stdin::Null) {
            return self.run_again(stdin, &args);
        }
        let line = args.iter().map(|&arg| arg.to_owned()).collect();
        let known = KNOWN.lock().unwrap().entry((self.name, line)).or_default().clone();
        known.get_or_init(|| self.run_again(stdin, &args)).clone()
    }

    fn run_again(&self, stdin: Stdin<'_>, args: &[&OsStr]) -> Ran {
        let home = self.home.path();
        let mut command = clean(&self.path);
        command.current_dir(home).env("HOME", home).env("PAGER", "cat").env("DEBUGINFOD_URLS", "");
        command.env("PERF_CONFIG_NOSYSTEM", "1").env("PERF_BUILDID_DIR", home.join("cache"));
        let (subcommand, args) = args.split_at(usize::from(resolves(args)));
        command.args(subcommand);
        if !subcommand.is_empty() {
            let symfs = workloads().unwrap_or(home);
            command.arg("--kallsyms").arg(home.join("kallsyms")).arg("--symfs").arg(symfs);
        }
        run(command.args(args), stdin)
    }

    /// Runs `perf script` without inlined calls, with the programs below `root` and no symbols of a kernel.
    pub(crate) fn script(&self, input: &Path, root: &Path, more: &[&str]) -> Ran {
        let mut line = args!["script", "--symfs", root, "--kallsyms", "/dev/null"].to_vec();
        line.extend(args!["--no-inline", "-f", "-i", input]);
        self.run(Stdin::Null, line.into_iter().chain(more.iter().map(OsString::from)))
    }

    /// True if perf shows this recording, which perfx did not write. A failure or crash is reported.
    pub(crate) fn can_read(&self, input: &Path) -> bool {
        let ran = self.run(Stdin::Null, args!["script", "-f", "-i", input]);
        if ran.code != Some(0) {
            skipped(&format!("{} of {}, which it can't read: {:?}", self.name, input.display(), ran.code));
        }
        ran.code == Some(0)
    }
}
