//! `perfx split` splits a recording into several complete ones: each sample is in exactly one of them.

use std::collections::HashSet;
use std::ffi::OsString;

use std::fs;
use std::os::unix::ffi::OsStrExt as _;
use std::path::{Path, PathBuf};
use std::slice;

use anyhow::{Context as _, Result, bail};
use clap::{ArgGroup, Args};
use perfx_filter::{Part, PartName, Split as Parts, SplitBy};
use perfx_format::read::Recording;
use perfx_format::{Event, Feature, sample_type};
use perfx_passes::{Decompress, DecompressOptions};
use perfx_pipeline::{
    Job, Level, Outcome, Output, OutputForm, Pass, Read, Report, counted, ordered, seconds,
};

use crate::args::{ThreadArgs, Usage, usage};
use crate::io::make_index::make_index;
use crate::io::output::{
    Existing, OutputPath, Outputs, Rules, Target, check_writable, folder, is_recording, writable_above, write,
};
use crate::io::source::{InputArgs, Source, temp_files};
use crate::term::report::VerbosityArgs;
use crate::term::units::size;

/// Split a recording into several
///
/// Every sample goes into exactly one part, as does every other record of an event (SWITCH, THROTTLE,
/// READ, LOST). Each part is a complete recording: it has the mappings, names and forks that its
/// samples need, including those from earlier parts, as `perfx filter` selects them. `perfx join` puts
/// the parts together again. Parts are uncompressed files; those of --time, --size and --samples are
/// named PREFIX.0001.data and so on, in time order, those of --by PREFIX.PID.data,
/// PREFIX.EVENT.data and so on. If PREFIX is a directory or ends with /, the parts are written into it and named
/// after the input; the directory is created if necessary. A part of --by event does not have the
/// events of the other parts.
///
/// Examples:
///   perfx split --time 10s perf.data
///   perfx split --size 100M perf.data -o parts/
///   perfx split --by pid perf.data -o processes
///   perf record -o - ./program | perfx split --samples 1000 -o program
#[derive(Args, Debug)]
#[command(verbatim_doc_comment, group = ArgGroup::new("how").required(true))]
pub(crate) struct Split {
    #[command(flatten)]
    input: InputArgs,
    /// Parts of this length, counted from the first sample: 10s, 500ms (ns, us, ms, s, m; s if omitted). A part
    /// without samples is appended to the one before
    #[arg(long, value_name = "DURATION", group = "how")]
    time: Option<String>,
    /// Parts of at most this many bytes: 100M (k, M, G: powers of 1000; KiB, MiB, GiB: of 1024)
    #[arg(long, value_name = "BYTES", group = "how")]
    size: Option<String>,
    /// Parts of this many samples; samples with the same time stay together
    #[arg(long, value_name = "N", group = "how")]
    samples: Option<String>,
    /// One part for each process, thread, name of threads, CPU, cgroup or event that has samples
    #[arg(long, value_name = "pid|tid|comm|cpu|cgroup|event", group = "how")]
    by: Option<String>,
    /// Prefix of the parts' names, or the directory to write them into [default: the input's path without .data]
    #[arg(short, long, value_name = "PREFIX")]
    output: Option<PathBuf>,
    /// In each part, leave out events without samples and build-ids of files that no process maps
    #[arg(long)]
    drop_unused: bool,
    /// Refuse to write more parts than this; each has its own copy of records that several need
    #[arg(long, value_name = "N", default_value_t = 1000)]
    max_parts: usize,
    /// Overwrite existing parts, and remove further ones of an older split
    #[arg(short, long)]
    force: bool,
    /// Also write an index of each part, as perfx index does
    #[arg(long)]
    index: bool,
    /// Dry run: report the parts, write nothing
    #[arg(short = 'n', long)]
    dry_run: bool,
    #[command(flatten)]
    threads: ThreadArgs,
    #[command(flatten)]
    verbosity: VerbosityArgs,
}

impl Split {
    pub(crate) fn run(&self) -> Result<u8> {
        let by = self.by()?;
        let prefix = self.prefix()?;
        let source = Source::of(&self.input);
        let mut report = Report::default();
        let mut recording = source.open()?;
        let threads = self.threads.count(&recording);
        source.use_index(&mut recording);
        let mut recording = expanded(recording, threads, &mut report)?;
        let bar = self.verbosity.progress(&recording);
        let parts = Parts::new(&mut recording, by, self.drop_unused, self.max_parts, threads)?;
        let called: Vec<Part> = parts.parts().collect();
        let paths = paths(&prefix, &called);
        let existing = Existing::forced(self.force);
        let rules = Rules { inputs: slice::from_ref(&source), existing, folders: true, in_place: false };
        paths.iter().try_for_each(|path| rules.check(&Target::at(path.clone())))?;
        let has_time = |event: &Event| event.attr().sample_type & sample_type::TIME != 0;
        let timed = recording.events.iter().filter(|event| has_time(event)).count();
        if 0 < timed && timed < recording.events.len() && called.len() > 1 {
            let what =
                "some records have no time, so perfx join can't join the parts again: keep the recording";
            report.say(Level::Info, what);
        }
        let older = Older::find(&prefix, &paths, by, &recording)?;
        if let (Some(part), false) = (older.parts.first(), self.force) {
            bail!(
                "{} is part of an older split, which `perfx join` would mistake for part of this one; -f removes it",
                part.display()
            );
        }
        match folder(&prefix) {
            folder if self.names_folder() => drop(writable_above(folder)?),
            folder => check_writable(folder).with_context(|| folder.display().to_string())?,
        }
        // In the third reading, each part reads its batches.
        recording.progress().expect(3);
        let (records, bytes) = parts.read;
        report.read = Read { name: Some(recording.name.clone()), records: Some(records), bytes };
        let report = self.write(recording, parts, called, paths, older, report)?;
        drop(bar);
        Ok(self.verbosity.print(&report))
    }

    fn write(
        &self,
        recording: Recording,
        parts: Parts,
        called: Vec<Part>,
        paths: Vec<PathBuf>,
        older: Older,
        mut report: Report,
    ) -> Result<Report> {
        let threads = self.threads.count(&recording);
        let place = |path| OutputPath::new(path, Existing::forced(self.force)).or_folder();
        let outputs = match (self.dry_run, paths.first()) {
            (false, Some(first)) => {
                let outputs = Outputs::new(folder(first), paths.iter().map(place).collect())?;
                Some(outputs.removing(older.parts.clone()))
            }
            _ => None,
        };
        let extras = recording.extras.clone();
        let mut lines = Report::default();
        // With many parts, each thread writes one at a time, so that no thread waits.
        let side_by_side = called.len() >= 2 * threads;
        let (makers, threads) = if side_by_side { (threads, 1) } else { (1, threads) };
        let make = |_: &mut (), (number, (recording, pass)): (usize, Again)| -> Result<Outcome> {
            let recording = recording.context("a spooled recording can be read as often as one likes")?;
            let job = Job { recording, passes: vec![pass], threads, temp_files: temp_files() };
            let form = if extras.is_empty() { OutputForm::File } else { OutputForm::DirectoryData };
            match &outputs {
                Some(outputs) => {
                    outputs.write(number, |place| write(place, job, form, &extras, Existing::Keep))
                }
                None => {
                    let name = || paths.get(number).map(|path| path.display().to_string());
                    job.run(Output::Nowhere(OutputForm::File)).with_context(|| name().unwrap_or_default())
                }
            }
        };
        let mut made = called.iter().zip(&paths);
        let jobs = parts.passes(recording).enumerate();
        ordered(jobs, &mut vec![(); makers], makers == 1, make, |outcome| -> Result<()> {
            let (outcome, Some((part, path))) = (outcome?, made.next()) else { return Ok(()) };
            let name = path.display().to_string();
            let wrote = if self.dry_run { "would write" } else { "wrote" };
            lines.say(Level::Info, format!("{wrote} {name}: {}, {}", about(part), size(outcome.written)));
            for (level, line) in outcome.report.lines {
                // A fault of the input is reported once, not for every part.
                let line = (level, line);
                if level <= Level::Warning && !report.lines.contains(&line) {
                    report.lines.push(line);
                }
            }
            Ok(())
        })?;
        if let Some(outputs) = outputs {
            outputs.commit()?;
            for path in paths.iter().filter(|_| self.index) {
                let recording = Source::Path(path.clone()).open()?;
                make_index(path, recording, threads, &mut lines)?;
            }
        }
        report.lines.extend(lines.lines);
        let removed = if self.dry_run { "would remove" } else { "removed" };
        for part in &older.parts {
            report.say(Level::Info, format!("{removed} {}, part of an older split", part.display()));
        }
        if let Some(first) = older.unrelated.first() {
            let more = match older.unrelated.len() {
                1 => String::new(),
                count => format!(" and {}", counted(count as u64 - 1, "other recording", "other recordings")),
            };
            let what = "named like a part but not written by this split; leave it out of `perfx join`";
            report.say(Level::Warning, format!("{}{more}: {what}", first.display()));
        }
        Ok(report)
    }

    fn names_folder(&self) -> bool {
        self.output.as_ref().is_some_and(|output| output.as_os_str().as_bytes().ends_with(b"/"))
    }

    fn by(&self) -> Result<SplitBy> {
        let given =
            [("time", &self.time), ("size", &self.size), ("samples", &self.samples), ("by", &self.by)];
        let given = given.into_iter().find_map(|(name, value)| Some((name, value.as_ref()?)));
        let Some((name, value)) = given else {
            bail!(Usage("give --time, --size, --samples or --by".into()))
        };
        SplitBy::parse(name, value).map_err(usage)
    }

    fn prefix(&self) -> Result<PathBuf> {
        let input = match Source::of(&self.input) {
            Source::Path(path) => path,
            Source::Stdin => PathBuf::from("perf.data"),
        };
        let input = without_data(&input);
        let Some(output) = &self.output else { return Ok(input) };
        if output == Path::new("-") {
            bail!(Usage("parts can't be written to standard output: give -o PREFIX".into()));
        }
        let is_directory = self.names_folder() || output.is_dir();
        if !is_directory && output.metadata().is_ok_and(|found| !found.is_file()) {
            bail!(Usage(format!("{} is a device, and parts are files: give -o PREFIX", output.display())));
        }
        Ok(match input.file_name() {
            Some(name) if is_directory => output.join(name),
            _ => without_data(output),
        })
    }
}

#[derive(Default)]
struct Older {
    /// Files that can only come from an older split into more parts.
    parts: Vec<PathBuf>,
    /// Files that may come from an older split, or be something else.
    unrelated: Vec<PathBuf>,
}

impl Older {
    /// Parts have the ids, command and machine of the whole recording.
    fn find(prefix: &Path, paths: &[PathBuf], by: SplitBy, whole: &Recording) -> Result<Older> {
        let mut older = Older::default();
        let named = |number: usize| named(prefix, &format!("{number:04}"));
        if !matches!(by, SplitBy::Pid | SplitBy::Event | SplitBy::Property(_)) {
            // Parts are numbered without gaps.
            let rest = (paths.len() + 1..).map(named).take_while(|path| is_part(path, whole));
            older.parts.extend(rest);
        }
        let start = prefix.file_name().unwrap_or_default().as_bytes();
        let Ok(entries) = fs::read_dir(folder(prefix)) else { return Ok(older) };
        for entry in entries {
            let path = prefix.with_file_name(entry?.file_name());
            let name = path.file_name().unwrap_or_default().as_bytes();
            let label = name.strip_prefix(start).and_then(|rest| rest.strip_prefix(b"."));
            let label = label.and_then(|rest| rest.strip_suffix(b".data"));
            let digits = |label: &[u8]| label.iter().all(u8::is_ascii_digit);
            let is_label = label
                .is_some_and(|label| matches!(by, SplitBy::Event | SplitBy::Property(_)) || digits(label));
            let known = |other: &PathBuf| other.file_name() == path.file_name();
            if is_label && !paths.iter().chain(&older.parts).any(known) && is_recording(&path) {
                older.unrelated.push(path);
            }
        }
        older.unrelated.sort();
        Ok(older)
    }
}

/// True if the file may be a part of `whole`: it has the same command and machine, and no other events.
fn is_part(path: &Path, whole: &Recording) -> bool {
    let Ok(part) = Recording::open(path) else { return false };
    let same = |feature| part.features.get(&feature) == whole.features.get(&feature);
    let features = [Feature::HOSTNAME, Feature::OSRELEASE, Feature::CMDLINE];
    features.into_iter().all(same) && part.events.iter().all(|event| whole.events.contains(event))
}

/// Another reader of the recording, and the pass that makes a part from it.
type Again = (Option<Recording>, Box<dyn Pass>);

/// Decompresses and spools the recording if necessary; otherwise each part would expand all of it.
fn expanded(recording: Recording, threads: usize, report: &mut Report) -> Result<Recording> {
    let recording = recording.spooled(&temp_files())?;
    if !recording.is_compressed() {
        return Ok(recording);
    }
    let extras = recording.extras.clone();
    let form = if extras.is_empty() { OutputForm::File } else { OutputForm::DirectoryData };
    let pass = Box::new(Decompress::new(DecompressOptions::default()));
    let job = Job { recording, passes: vec![pass], threads, temp_files: temp_files() };
    let (mut expanded, done) = job.into_recording(form)?;
    report.include(done.report);
    expanded.extras = extras;
    Ok(expanded)
}

/// Removes `.data`: `out.data` and `out` are the same prefix.
fn without_data(path: &Path) -> PathBuf {
    if path.extension().is_some_and(|extension| extension == "data") {
        path.with_extension("")
    } else {
        path.to_owned()
    }
}

fn paths(prefix: &Path, parts: &[Part]) -> Vec<PathBuf> {
    let mut taken = HashSet::new();
    let path = |(number, part): (usize, &Part)| {
        let mut label = match &part.name {
            PartName::Number => format!("{number:04}"),
            // perf shows the pid of samples without a process in this way.
            PartName::Pid(pid) => pid.cast_signed().to_string(),
            PartName::Event(name) | PartName::Comm(name) | PartName::Cgroup(name) => {
                name.iter().take(LABEL_MAX).map(|&byte| in_a_name(byte)).collect()
            }
            PartName::Tid(tid) => tid.cast_signed().to_string(),
            PartName::Cpu(cpu) => format!("cpu{}", cpu.cast_signed()),
        };
        while !taken.insert(label.clone()) {
            label += &format!(".{number}");
        }
        named(prefix, &label)
    };
    (1..).zip(parts).map(path).collect()
}

fn named(prefix: &Path, label: &str) -> PathBuf {
    let mut path = OsString::from(prefix);
    path.push(format!(".{label}.data"));
    PathBuf::from(path)
}

/// File systems limit names to 255 bytes.
const LABEL_MAX: usize = 100;

/// Event names contain slashes and other special characters.
fn in_a_name(byte: u8) -> char {
    if byte.is_ascii_alphanumeric() || b"-_.:=,+@".contains(&byte) { byte.into() } else { '_' }
}

fn about(part: &Part) -> String {
    let mut text = counted(part.samples, "sample", "samples");
    match &part.name {
        PartName::Number => {}
        PartName::Pid(pid) => text += &format!(" of process {}", pid.cast_signed()),
        PartName::Tid(tid) => text += &format!(" of thread {}", tid.cast_signed()),
        PartName::Cpu(cpu) => text += &format!(" of CPU {}", cpu.cast_signed()),
        PartName::Event(name) | PartName::Comm(name) | PartName::Cgroup(name) => {
            text += &format!(" of {}", String::from_utf8_lossy(name));
        }
    }
    if let Some((first, last)) = part.times {
        text += &format!(", from {} to {}", seconds(first), seconds(last));
    }
    text
}
