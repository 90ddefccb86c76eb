//! `perfx unpack` restores a folder from a pack of `perfx pack`, completely or not at all.

use std::cell::Cell;
use std::collections::BTreeMap;
use std::fs::{DirBuilder, File, OpenOptions};
use std::io::{self, BufReader, Read};
use std::os::unix::fs::{DirBuilderExt as _, OpenOptionsExt as _, symlink};
use std::path::{Component, Path, PathBuf};

use anyhow::{Context as _, Result, bail, ensure};
use clap::Args;
use perfx_filter::parse_bytes;
use perfx_format::bytes_of;
use perfx_pipeline::{Level, Report, count};
use serde::Deserialize;
use serde_json::Value as Json;
use tar::{Archive, EntryType};
use zstd::stream::read::Decoder;

use super::pack::{FORM, Hashed, LINKS, MANIFEST, Manifest, Missing, PackedFile, RECORDING, about};
use crate::args::Usage;
use crate::io::output::{Existing, OutputPath, is_empty};
use crate::io::sparse;
use crate::term::report::VerbosityArgs;
use crate::term::units::size;

/// Unpack an archive of perfx pack into a new folder
///
/// The folder has the recording, perf.data, and is a build-id cache of perf: perf --buildid-dir DIR and
/// perfx's --buildid-dir DIR find the files in it. Every file is checked against the hash in the pack's
/// manifest; if one differs, nothing is written. No file is written outside of the folder. A pack that
/// would expand to more than 1 GB and more than 100 times its size is refused without --max-size.
///
/// Examples:
///   perfx unpack perf.tar.zst
///   perf --buildid-dir perf report -i perf/perf.data
///   perfx export html perf/perf.data --buildid-dir perf --root perf --foreign -o perf.html
#[derive(Args, Debug)]
#[command(verbatim_doc_comment)]
pub(crate) struct Unpack {
    /// The pack; - is standard input
    #[arg(help_heading = "Input", value_name = "PACK")]
    pack: PathBuf,
    /// Folder to create [default: PACK without .tar.zst]
    #[arg(help_heading = "Output", short = 'o', long, value_name = "DIR", visible_alias = "output")]
    dir: Option<PathBuf>,
    /// Unpack up to this many bytes, however small the pack is: 20G (k, M, G: powers of 1000; KiB, MiB, GiB: of
    /// 1024) [default: 1G, or 100 times the size of the pack]
    #[arg(help_heading = "Output", long, value_name = "BYTES", value_parser = bytes)]
    max_size: Option<u64>,
    #[command(flatten)]
    verbosity: VerbosityArgs,
}

impl Unpack {
    pub(crate) fn run(&self) -> Result<u8> {
        let dir = self.dir()?;
        let is_free = dir.symlink_metadata().is_err() || dir.is_dir() && is_empty(&dir);
        ensure!(is_free, "{} exists: give another folder with -o", dir.display());
        let name = self.pack.display().to_string();
        let pack: Box<dyn Read> = if self.pack == Path::new("-") {
            Box::new(io::stdin().lock())
        } else {
            Box::new(File::open(&self.pack).with_context(|| name.clone())?)
        };
        let (mut files, mut missing) = (Vec::new(), Vec::new());
        OutputPath::new(&dir, Existing::Keep).make_folder(|folder| {
            let manifest = unpack(pack, folder, self.max_size).with_context(|| name.clone())?;
            Manifest::Pack { files, missing } = manifest;
            Ok(())
        })?;
        let mut report = Report::default();
        let dir = dir.display();
        report.say(Level::Info, format!("unpacked {} into {dir}", about(&files)));
        for Missing { name, why } in missing.iter().take(LISTED_MAX) {
            report.say(Level::Info, format!("not in the pack: {name}: {why}"));
        }
        if missing.len() > LISTED_MAX {
            report.say(
                Level::Info,
                format!("{MANIFEST} lists all {} missing files", count(missing.len() as u64)),
            );
        }
        report.say(Level::Info, format!("try: perf --buildid-dir {dir} report -i {dir}/{RECORDING}"));
        if files.iter().any(|file| file.path.starts_with("tmp/perf-")) {
            report.say(Level::Info, format!("perf reads perf maps from /tmp only: cp {dir}/tmp/*.map /tmp"));
        }
        Ok(self.verbosity.print(&report))
    }

    fn dir(&self) -> Result<PathBuf> {
        let name = self.pack.to_str().and_then(|pack| pack.strip_suffix(".tar.zst"));
        let by_default = || name.filter(|name| !name.is_empty() && !name.ends_with('/')).map(PathBuf::from);
        let dir = self.dir.clone().or_else(by_default);
        Ok(dir.ok_or_else(|| Usage("the pack's name does not end in .tar.zst: give -o DIR".into()))?)
    }
}

fn bytes(text: &str) -> Result<u64, String> {
    parse_bytes(text).map_err(|error| error.to_string())
}

fn unpack(pack: impl Read, folder: &Path, max_size: Option<u64>) -> Result<Manifest> {
    let read = Cell::new(0);
    let mut bounds = Bounds { read: &read, max_size, bytes: 0, names: 0 };
    let mut archive = Archive::new(Decoder::new(BufReader::new(Counting { inner: pack, read: &read }))?);
    let (mut files, mut links, mut manifest) = (BTreeMap::new(), BTreeMap::new(), None);
    let (mut long_path, mut long_link, mut names) = (None, None, 0);
    // Otherwise the crate reads names of any length into memory.
    let entries = archive.entries().context(NOT_A_PACK)?.raw(true);
    for entry in entries {
        let mut entry = entry.context(NOT_A_PACK)?;
        ensure!(manifest.is_none(), "{NOT_A_PACK}: there is something after {MANIFEST}");
        let kind = entry.header().entry_type();
        match kind {
            EntryType::GNULongName => {
                long_path = Some(long_name(&mut entry)?);
                continue;
            }
            EntryType::GNULongLink => {
                long_link = Some(long_name(&mut entry)?);
                continue;
            }
            _ => {}
        }
        let long_link = long_link.take();
        let path = long_path.take().unwrap_or_else(|| entry.path_bytes().into_owned());
        names += path.len() + long_link.as_ref().map_or(0, Vec::len);
        ensure!(names <= NAMES_MAX, "{NOT_A_PACK}: it has too many names");
        let path = inside(path).context(NOT_A_PACK)?;
        bounds.add_name()?;
        match kind {
            EntryType::Regular if path == MANIFEST => {
                let mut text = Vec::new();
                entry.take(MANIFEST_MAX + 1).read_to_end(&mut text)?;
                ensure!(text.len() as u64 <= MANIFEST_MAX, "{NOT_A_PACK}: {MANIFEST} is too large");
                manifest = Some(read_manifest(&text).context(MANIFEST)?);
                write(&mut &*text, folder, MANIFEST, &mut bounds)?;
            }
            EntryType::Regular => {
                ensure!(!Path::new(&path).starts_with(LINKS), "{NOT_A_PACK}: {path} is not a link");
                let written = write(&mut entry, folder, &path, &mut bounds)?;
                files.insert(path, written);
            }
            EntryType::Symlink => {
                let target = long_link.or_else(|| entry.link_name_bytes().map(|name| name.into_owned()));
                ensure!(entry.size() == 0, "{NOT_A_PACK}: {path} is a link with content");
                let target = String::from_utf8(target.unwrap_or_default())?;
                ensure!(is_of_cache(&path, &target), "{NOT_A_PACK}: it links {path} to {target}");
                links.insert(path, target);
            }
            _ => bail!("{NOT_A_PACK}: {path} is neither a file nor a link"),
        }
    }
    let manifest: Manifest =
        manifest.with_context(|| format!("the pack is incomplete: it has no {MANIFEST}"))?;
    let Manifest::Pack { files: listed, .. } = &manifest;
    let is_recording = |file: &PackedFile| Path::new(&file.path).starts_with(RECORDING);
    ensure!(listed.iter().any(is_recording), "{NOT_A_PACK}: it has no {RECORDING}");
    for PackedFile { path, bytes, sha256 } in listed {
        let (size, hash) =
            files.remove(path).with_context(|| format!("the pack is incomplete: {path} is missing"))?;
        ensure!(
            (size, &hash) == (*bytes, sha256),
            "{path} is damaged: {} with SHA-256 {hash}; the manifest says {} with {sha256}",
            bytes_of(size),
            bytes_of(*bytes)
        );
    }
    if let Some(path) = files.keys().next() {
        bail!("{NOT_A_PACK}: {path} is not in the manifest");
    }
    // Links come last, so that no file is written through one.
    for (link, target) in links {
        let made =
            create_above(folder, &link, &mut bounds).and_then(|()| Ok(symlink(target, folder.join(&link))?));
        made.with_context(|| link)?;
    }
    Ok(manifest)
}

const NOT_A_PACK: &str = "not a pack of perfx";

/// A pack may expand to this, or to a multiple of its size. Recordings and programs shrink by a factor of 3
/// to 30; data that shrinks by 100 is nearly empty.
const SIZE_MAX: u64 = 1_000_000_000;
const SIZE_OF_BYTE: u64 = 100;

/// The maximum number of files, folders and links: a base, plus one for this many bytes. In the manifest,
/// each file has a hash of 32 bytes, and a path with a build-id of 20.
const NAMES_OF_ANY: u64 = 1000;
const BYTES_OF_NAME: u64 = 8;

const DEPTH_MAX: usize = 256;

/// The maximum size of the manifest, which has about 200 bytes for each file.
const MANIFEST_MAX: u64 = 8 << 20;

/// For all names in an archive, bytes.
const NAMES_MAX: usize = 16 << 20;

const LISTED_MAX: usize = 20;

/// PATH_MAX.
const NAME_MAX: u64 = 4096;

/// The next entry's name, if it does not fit in its header.
fn long_name(entry: &mut impl Read) -> Result<Vec<u8>> {
    let mut name = Vec::new();
    entry.take(NAME_MAX + 1).read_to_end(&mut name)?;
    ensure!(name.len() as u64 <= NAME_MAX, "{NOT_A_PACK}: a name is too long");
    while name.last() == Some(&0) {
        name.pop();
    }
    Ok(name)
}

/// The path of an entry, checked to be inside the folder.
fn inside(path: Vec<u8>) -> Result<String> {
    let path = String::from_utf8(path).context("a name is not UTF-8")?;
    let mut parts = Path::new(&path).components().peekable();
    ensure!(parts.clone().count() <= DEPTH_MAX, "a path has more than {DEPTH_MAX} folders");
    let stays = parts.peek().is_some() && parts.all(|part| matches!(part, Component::Normal(_)));
    ensure!(stays && !path.ends_with('/'), "`{path}` is not a path inside the pack");
    Ok(path)
}

/// True for a link of perf's build-id cache: `.build-id/XX/…` to a folder of the cache.
fn is_of_cache(link: &str, target: &str) -> bool {
    let is_hex = |text: &str| !text.is_empty() && text.bytes().all(|byte| byte.is_ascii_hexdigit());
    let parts: Vec<&str> = link.split('/').collect();
    let is_link = matches!(parts[..], [LINKS, first, rest] if is_hex(first) && is_hex(rest));
    let below = target.strip_prefix("../../").filter(|below| !Path::new(below).starts_with(LINKS));
    is_link && below.is_some_and(|below| inside(below.into()).is_ok())
}

fn read_manifest(text: &[u8]) -> Result<Manifest> {
    #[derive(Deserialize)]
    struct Form {
        schema: Json,
    }
    let Form { schema } = serde_json::from_slice(text)?;
    ensure!(schema == FORM, "its schema is {schema}, and this version of perfx reads schema {FORM}");
    Ok(serde_json::from_slice(text)?)
}

struct Counting<'c, R> {
    inner: R,
    read: &'c Cell<u64>,
}

impl<R: Read> Read for Counting<'_, R> {
    fn read(&mut self, into: &mut [u8]) -> io::Result<usize> {
        let count = self.inner.read(into)?;
        self.read.set(self.read.get() + count as u64);
        Ok(count)
    }
}

struct Bounds<'c> {
    read: &'c Cell<u64>,
    max_size: Option<u64>,
    bytes: u64,
    names: u64,
}

impl Bounds<'_> {
    fn add_name(&mut self) -> Result<()> {
        self.names += 1;
        let most = NAMES_OF_ANY + self.read.get() / BYTES_OF_NAME;
        ensure!(self.names <= most, "{NOT_A_PACK}: it has too many files and folders for its size");
        Ok(())
    }

    fn add_bytes(&mut self, bytes: u64) -> io::Result<()> {
        self.bytes += bytes;
        let most =
            self.max_size.unwrap_or_else(|| SIZE_MAX.max(self.read.get().saturating_mul(SIZE_OF_BYTE)));
        if self.bytes <= most {
            return Ok(());
        }
        let what = match self.max_size {
            Some(most) => format!("the files have more than {}, which --max-size allows", size(most)),
            None => format!(
                "the files have more than {} and more than {SIZE_OF_BYTE} times the size of the pack: if you trust it, \
                 allow more with --max-size",
                size(SIZE_MAX)
            ),
        };
        Err(io::Error::other(what))
    }
}

struct Bounded<'b, 'c, R> {
    inner: R,
    bounds: &'b mut Bounds<'c>,
}

impl<R: Read> Read for Bounded<'_, '_, R> {
    fn read(&mut self, into: &mut [u8]) -> io::Result<usize> {
        let count = self.inner.read(into)?;
        self.bounds.add_bytes(count as u64)?;
        Ok(count)
    }
}

fn write(from: &mut impl Read, folder: &Path, path: &str, bounds: &mut Bounds<'_>) -> Result<(u64, String)> {
    create_above(folder, path, bounds).with_context(|| path.to_owned())?;
    // The mode of perf's files.
    let new = OpenOptions::new().write(true).create_new(true).mode(0o600).open(folder.join(path));
    let file = new.with_context(|| path.to_owned())?;
    let mut from = Hashed::new(Bounded { inner: from, bounds });
    let bytes = sparse::copy(&mut from, &file).with_context(|| path.to_owned())?;
    Ok((bytes, from.sha256()))
}

/// Creates the folders of a path. Errors don't show the temporary name of `folder`.
fn create_above(folder: &Path, path: &str, bounds: &mut Bounds<'_>) -> Result<()> {
    let above = Path::new(path).ancestors().skip(1);
    let missing: Vec<&Path> = above.take_while(|above| !folder.join(above).is_dir()).collect();
    for above in missing.into_iter().rev() {
        bounds.add_name()?;
        DirBuilder::new().mode(0o700).create(folder.join(above))?;
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_pack_may_expand_to_a_gigabyte_or_to_a_hundred_times_its_size() {
        for (read, most) in [(0, SIZE_MAX), (1 << 30, 100 << 30)] {
            let read = Cell::new(read);
            let mut bounds = Bounds { read: &read, max_size: None, bytes: 0, names: 0 };
            assert!(bounds.add_bytes(most).is_ok());
            assert!(bounds.add_bytes(1).unwrap_err().to_string().contains("--max-size"));
            bounds.max_size = Some(most + 1);
            assert!(bounds.add_bytes(0).is_ok());
        }
    }
}
