//! `perfx pack` puts a recording and the files that name its functions into one archive, for another machine.

use std::collections::{BTreeMap, BTreeSet};
use std::fs::{self, File};
use std::io::{self, Read, Write};
use std::path::{Path, PathBuf};
use std::sync::Arc;

use anyhow::{Context as _, Result, bail, ensure};
use clap::Args;
use perfx_export::pack::SymbolFiles;
use perfx_export::{Facts, Grouping, Search, Stacks};
use perfx_filter::FilterOptions;
use perfx_format::hex;
use perfx_format::read::{Form, Recording};
use perfx_look::json::Document;
use perfx_passes::{BuildIds, BuildIdsOptions, IdOptions, SymbolArgs};
use perfx_pipeline::{Job, Level, OutputForm, Pass, Report, counted};
use perfx_resolve::{PerfMaps, recorded_on};
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use sha2::{Digest as _, Sha256};
use symbols::Content;
use tar::{Builder, EntryType, Header};

use zstd::stream::write::Encoder;

use crate::args::{ThreadArgs, Usage, usage};
use crate::commands::export::input::{say_read, with_chains};
use crate::io::output::{OutputArgs, with_folders};
use crate::io::source::{InputsArgs, Source, each_input, temp_files};
use crate::io::sparse::ReadAt;
use crate::term::report::VerbosityArgs;
use crate::term::units::size;

/// Pack a recording with the files that have its symbols: OUT.tar.zst
///
/// The archive contains the unchanged recording and, for the code that samples or call chains hit, the files
/// and their debug files, the symbols of the kernel, images of JIT code, and perf maps. Only files with the
/// recorded build-id are taken; missing ones are reported. A build-id that the recording lacks is looked up
/// and added to the packed recording, as perfx inject -b does, but from this machine only if the recording is
/// provably of it. To a recording that is a directory, only perfx inject -b adds build-ids.
///
/// perfx unpack makes a folder from it, in which perf and perfx find the same symbols as here. The layout is
/// that of perf archive, so tar xf OUT.tar.zst -C ~/.debug works as well.
///
/// --dir writes a pack of each of several recordings into a folder: NAME.tar.zst.
///
/// The archive holds your programs, and the addresses of your kernel.
///
/// Examples:
///   perfx pack perf.data -o perf.tar.zst
///   perfx pack -n perf.data
///   perfx pack @recordings.txt --dir packs
#[derive(Args, Debug)]
#[command(verbatim_doc_comment)]
pub(crate) struct Pack {
    #[command(flatten)]
    inputs: InputsArgs,
    #[command(flatten)]
    output: OutputArgs,
    /// Write a pack of each recording into this folder, named after it; the folder is created if necessary
    #[arg(help_heading = "Output", long, value_name = "DIR", conflicts_with = "output")]
    dir: Option<PathBuf>,
    /// Dry run: list the files, write nothing
    #[arg(help_heading = "Output", short = 'n', long)]
    dry_run: bool,
    #[command(flatten, next_help_heading = "Symbols")]
    search: SymbolArgs,
    #[command(flatten, next_help_heading = "Options")]
    threads: ThreadArgs,
    #[command(flatten)]
    verbosity: VerbosityArgs,
}

/// The last file of a pack, [`MANIFEST`], by which `perfx unpack` checks the others.
pub(crate) type Output<'m> = Document<FORM, &'m Manifest>;

pub(crate) const FORM: u32 = 1;

pub(crate) const MANIFEST: &str = "manifest.json";

/// The recording's name in a pack: a file, or a folder of files.
pub(crate) const RECORDING: &str = "perf.data";

/// The folder in the build-id cache that has a link for each build-id.
pub(crate) const LINKS: &str = ".build-id";

/// The contents of a pack.
#[derive(Serialize, Deserialize, JsonSchema, Debug)]
#[serde(tag = "what", rename_all = "kebab-case")]
#[schemars(deny_unknown_fields)]
pub(crate) enum Manifest {
    /// A pack.
    Pack {
        /// In the order of the archive
        files: Vec<PackedFile>,
        /// Files that name functions of the recording, but are not in the pack
        missing: Vec<Missing>,
    },
}

/// A file of a pack.
#[derive(Serialize, Deserialize, JsonSchema, Debug)]
#[schemars(deny_unknown_fields)]
pub(crate) struct PackedFile {
    /// Its path in the archive
    pub(crate) path: String,
    /// Its size
    pub(crate) bytes: u64,
    /// The SHA-256 of its content
    pub(crate) sha256: String,
}

/// A file that is not in the pack.
#[derive(Serialize, Deserialize, JsonSchema, Debug)]
#[schemars(deny_unknown_fields)]
pub(crate) struct Missing {
    /// Its name in the recording
    pub(crate) name: String,
    /// Why it is missing
    pub(crate) why: String,
}

struct Entry {
    path: String,
    bytes: Bytes,
}

enum Bytes {
    Open(Arc<File>),
    At(PathBuf),
    Here(perfx_format::Bytes),
}

impl Pack {
    fn files(&self, recording: Recording, ids: &IdOptions, report: &mut Report) -> Result<SymbolFiles> {
        let threads = self.threads.count(&recording);
        let mut recording = with_chains(recording, ids, threads, report)?;
        recording.progress().expect(2);
        let bar = self.verbosity.progress(&recording);
        let facts = Facts::survey(&mut recording, threads, true)?;
        let all = Arc::new(FilterOptions::default());
        let stacks = Stacks::collect(&mut recording, &facts, Grouping::default(), &all, threads, report)?;
        let (features, endian) = (&recording.features, recording.endian);
        let found =
            SymbolFiles::find(&stacks, Search { facts: &facts, features, endian, ids, inlined: true });
        drop(bar);
        say_read(report, &recording, &stacks);
        Ok(found)
    }

    pub(crate) fn run(&self) -> Result<u8> {
        let ids = self.search.clone().options().map_err(usage)?;
        let sources = self.inputs.sources()?;
        let Some(dir) = self.dir.as_ref().filter(|_| !self.dry_run) else {
            let is_one = sources.len() == 1 || self.dry_run;
            ensure!(is_one, Usage("a pack holds one recording: --dir DIR makes a pack of each".to_owned()));
            return each_input(&sources, "have no pack", |source| self.pack(source, &ids, &self.output));
        };
        let names = Source::names(&sources);
        with_folders(&BTreeSet::from([&**dir]), || {
            let mut names = names.into_iter();
            each_input(&sources, "have no pack", |source| {
                let mut name = names.next().unwrap_or_default();
                name.push(".tar.zst");
                self.pack(source, &ids, &self.output.at(dir.join(name)))
            })
        })
    }

    fn pack(&self, source: &Source, ids: &IdOptions, output: &OutputArgs) -> Result<u8> {
        let open = || output.open(std::slice::from_ref(source), false);
        let output = (!self.dry_run).then(open).transpose()?;
        let mut report = Report::default();
        let recording = source.open_rereadable()?;
        let mut entries = recorded_files(source, &recording)?;
        let again = recording.try_clone().context("the recording can't be read again")?;
        let mut found = self.files(recording, ids, &mut report)?;
        let is_directory = matches!(again.form, Form::Directory { .. });
        if found.without_id > 0 && is_directory {
            let what =
                "pack adds no build-ids to a directory; perfx inject -b searches for those that are missing";
            report.say(Level::Info, what);
        } else if found.without_id > 0 {
            let threads = self.threads.count(&again);
            let of_recording = ids.clone().of_recording(&recorded_on(&again.features, again.endian));
            let with_ids = with_build_ids(again, &of_recording, threads)?;
            let file = with_ids.main_file().context("the recording can't be read again")?;
            let mut of_second = Report::default();
            let second = self.files(with_ids, ids, &mut of_second)?;
            if second.without_id < found.without_id {
                let dsos = counted(found.without_id - second.without_id, "DSO", "DSOs");
                report.say(Level::Info, format!("added the build-ids of {dsos} to the packed recording"));
                entries = vec![Entry { path: RECORDING.to_owned(), bytes: Bytes::Open(file) }];
                found = second;
            }
        }
        let missing = found.missing.iter().map(|(name, why)| Missing {
            name: String::from_utf8_lossy(name).into_owned(),
            why: why.clone(),
        });
        let missing: Vec<Missing> = missing.collect();
        let links = put_files(found, &mut entries);
        for Missing { name, why } in &missing {
            report.say(Level::Warning, format!("{name}: {why}, so its functions have no names elsewhere"));
        }
        match output {
            None => {
                for Entry { path, bytes } in &entries {
                    report.say(Level::Info, format!("would pack {path}: {}", size(bytes.len()?)));
                }
            }
            Some(output) => {
                let mut packed = String::new();
                output.write(|out| {
                    let Manifest::Pack { files, .. } = write(out, entries, &links, missing)?;
                    packed = about(&files);
                    Ok::<(), anyhow::Error>(())
                })?;
                report.say(Level::Info, format!("packed {packed}"));
            }
        }
        Ok(self.verbosity.print(&report))
    }
}

/// The recording with the build-ids of all DSOs that its samples hit, in a temporary file.
fn with_build_ids(recording: Recording, ids: &IdOptions, threads: usize) -> Result<Recording> {
    let is_pipe = recording.form == Form::Pipe;
    // The records of a file stay.
    let options = BuildIdsOptions { feature_only: !is_pipe, ids: ids.clone(), ..BuildIdsOptions::default() };
    let passes: Vec<Box<dyn Pass>> = vec![Box::new(BuildIds::new(options))];
    let job = Job { recording, passes, threads, temp_files: temp_files() };
    Ok(job.into_recording(if is_pipe { OutputForm::Pipe } else { OutputForm::File })?.0)
}

fn recorded_files(source: &Source, recording: &Recording) -> Result<Vec<Entry>> {
    if let Source::Path(folder) = source
        && folder.is_dir()
    {
        let mut entries = Vec::new();
        add_folder(folder, RECORDING, &mut entries)?;
        return Ok(entries);
    }
    let file = recording.main_file().context("the recording can't be read again")?;
    Ok(vec![Entry { path: RECORDING.to_owned(), bytes: Bytes::Open(file) }])
}

fn add_folder(folder: &Path, path: &str, entries: &mut Vec<Entry>) -> Result<()> {
    let name = || folder.display().to_string();
    let inside = fs::read_dir(folder).with_context(name)?.collect::<io::Result<Vec<_>>>();
    let mut inside = inside.with_context(name)?;
    inside.sort_by_key(fs::DirEntry::file_name);
    for entry in inside {
        let (place, kind) = (entry.path(), entry.file_type().with_context(name)?);
        let path = match entry.file_name().to_str() {
            Some(name) => format!("{path}/{name}"),
            None => bail!("{}: its name is not UTF-8", place.display()),
        };
        if kind.is_dir() {
            add_folder(&place, &path, entries)?;
        } else {
            ensure!(kind.is_file(), "{} is not a regular file", place.display());
            entries.push(Entry { path, bytes: Bytes::At(place) });
        }
    }
    Ok(())
}

/// Adds the found files; returns the links of the build-id cache, and their targets.
fn put_files(found: SymbolFiles, entries: &mut Vec<Entry>) -> BTreeMap<String, String> {
    let mut links = BTreeMap::new();
    let folders = found.folders(&[RECORDING, MANIFEST, LINKS]);
    for ((id, dso), folder) in found.dsos.into_iter().zip(folders.into_values()) {
        let hex = id.to_string();
        for (name, content) in dso.files {
            let bytes = match content {
                Content::File(place) => Bytes::At(place),
                Content::Bytes(bytes) => Bytes::Here(bytes.into()),
            };
            entries.push(Entry { path: format!("{folder}/{name}"), bytes });
        }
        links.insert(format!("{LINKS}/{}/{}", &hex[..2], &hex[2..]), format!("../../{folder}"));
    }
    for (pid, map) in found.maps {
        let path = PerfMaps::path(pid).trim_start_matches('/').to_owned();
        entries.push(Entry { path, bytes: Bytes::Here(map) });
    }
    links
}

impl Bytes {
    fn len(&self) -> Result<u64> {
        Ok(match self {
            Bytes::Open(file) => file.metadata()?.len(),
            Bytes::At(place) => fs::metadata(place).with_context(|| place.display().to_string())?.len(),
            Bytes::Here(bytes) => bytes.len() as u64,
        })
    }

    fn reader(&self) -> Result<Box<dyn Read + '_>> {
        Ok(match self {
            // The position stays, because standard input shares it with other programs.
            Bytes::Open(file) => Box::new(ReadAt::new(file, 0)),
            Bytes::At(place) => {
                Box::new(build_id::open(place).with_context(|| place.display().to_string())?.0)
            }
            Bytes::Here(bytes) => Box::new(&bytes[..]),
        })
    }
}

pub(crate) struct Hashed<R> {
    inner: R,
    hash: Sha256,
}

impl<R> Hashed<R> {
    pub(crate) fn new(inner: R) -> Hashed<R> {
        Hashed { inner, hash: Sha256::new() }
    }

    /// The hash of everything read, in sha256sum's form.
    pub(crate) fn sha256(self) -> String {
        hex(&self.hash.finalize())
    }
}

impl<R: Read> Read for Hashed<R> {
    fn read(&mut self, into: &mut [u8]) -> io::Result<usize> {
        let count = self.inner.read(into)?;
        self.hash.update(&into[..count]);
        Ok(count)
    }
}

/// Writes the archive, and returns its manifest. Times, owners and modes of the files are not stored.
fn write(
    out: &mut dyn Write,
    entries: Vec<Entry>,
    links: &BTreeMap<String, String>,
    missing: Vec<Missing>,
) -> Result<Manifest> {
    let mut files = Vec::new();
    let mut archive = Builder::new(Encoder::new(out, LEVEL)?);
    let header = |kind, bytes| {
        let mut header = Header::new_gnu();
        header.set_entry_type(kind);
        header.set_mode(0o644);
        header.set_size(bytes);
        header
    };
    for Entry { path, bytes } in entries {
        let size = bytes.len()?;
        let mut content = Hashed::new(bytes.reader()?.take(size));
        let put = archive.append_data(&mut header(EntryType::Regular, size), &path, &mut content);
        put.with_context(|| path.clone())?;
        ensure!(content.inner.limit() == 0, "{path}: the file was cut short while it was read");
        files.push(PackedFile { path, bytes: size, sha256: content.sha256() });
    }
    for (link, target) in links {
        archive.append_link(&mut header(EntryType::Symlink, 0), link, target)?;
    }
    let manifest = Manifest::Pack { files, missing };
    let text = serde_json::to_vec_pretty(&Output::new(&manifest))?;
    archive.append_data(&mut header(EntryType::Regular, text.len() as u64), MANIFEST, &*text)?;
    archive.into_inner()?.finish()?;
    Ok(manifest)
}

pub(crate) fn about(files: &[PackedFile]) -> String {
    let bytes = files.iter().map(|file| file.bytes).fold(0, u64::saturating_add);
    format!("{} of {}", counted(files.len() as u64, "file", "files"), size(bytes))
}

/// As in `perfx compress`. Higher levels take several times as long, to save a tenth.
const LEVEL: i32 = 3;
