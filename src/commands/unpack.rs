//! `perfx unpack` makes a folder of what `perfx pack` has packed, all of it or nothing.

use std::collections::BTreeMap;
use std::fs::{DirBuilder, File, OpenOptions};
use std::io::{self, BufReader, Read};
use std::os::unix::fs::{DirBuilderExt as _, OpenOptionsExt as _, symlink};
use std::path::{Component, Path, PathBuf};

use anyhow::{Context as _, Result, bail, ensure};
use clap::Args;
use perfx_pipeline::{Level, Report, count};
use tar::{Archive, EntryType};
use zstd::stream::read::Decoder;

use super::pack::{Hashed, MANIFEST, Manifest, Missing, PackedFile, RECORDING, about};
use crate::args::Usage;
use crate::io::commit::{Existing, OutputPath, folder, is_empty};
use crate::term::report::VerbosityArgs;

/// Unpack what perfx pack has packed into a new folder
///
/// The folder has the recording, perf.data, and is a build-id cache of perf: perf --buildid-dir DIR and
/// perfx's --buildid-dir DIR find the files in it. Every file is checked against the hash in the pack's
/// manifest; if one differs, nothing is written. No file is written outside of the folder.
///
/// Examples:
///   perfx unpack perf.tar.zst
///   perf --buildid-dir perf report -i perf/perf.data
///   perfx export html perf/perf.data --buildid-dir perf --root perf --no-files -o perf.html
#[derive(Args, Debug)]
#[command(verbatim_doc_comment)]
pub(crate) struct Unpack {
    /// The pack; - is standard input
    #[arg(help_heading = "Input", value_name = "PACK")]
    pack: PathBuf,
    /// Folder to create [default: PACK without .tar.zst]
    #[arg(help_heading = "Output", short = 'o', long, value_name = "DIR", visible_alias = "output")]
    dir: Option<PathBuf>,
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
            let manifest = unpack(pack, folder).with_context(|| name.clone())?;
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

    /// The folder to create.
    fn dir(&self) -> Result<PathBuf> {
        let name = self.pack.to_str().and_then(|pack| pack.strip_suffix(".tar.zst"));
        let by_default = || name.filter(|name| !name.is_empty() && !name.ends_with('/')).map(PathBuf::from);
        let dir = self.dir.clone().or_else(by_default);
        Ok(dir.ok_or_else(|| Usage("the pack's name does not end in .tar.zst: give -o DIR".into()))?)
    }
}

/// Unpacks everything into the folder, and checks it.
fn unpack(pack: impl Read, folder: &Path) -> Result<Manifest> {
    let mut archive = Archive::new(Decoder::new(BufReader::new(pack))?);
    let (mut files, mut links, mut manifest) = (BTreeMap::new(), BTreeMap::new(), None);
    let (mut long_path, mut long_link, mut names) = (None, None, 0);
    // Raw, because otherwise the crate reads long names into memory, however long they are.
    let entries = archive.entries().context(NOT_A_PACK)?.raw(true);
    for entry in entries {
        let mut entry = entry.context(NOT_A_PACK)?;
        ensure!(manifest.is_none(), "{NOT_A_PACK}: there is something behind {MANIFEST}");
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
        match kind {
            EntryType::Regular if path == MANIFEST => {
                let mut text = Vec::new();
                entry.take(MANIFEST_MAX).read_to_end(&mut text)?;
                manifest = Some(serde_json::from_slice(&text).context(MANIFEST)?);
                write(&mut &*text, &folder.join(MANIFEST))?;
            }
            EntryType::Regular => {
                ensure!(!path.starts_with(".build-id"), "{NOT_A_PACK}: {path} is not a link");
                let written = write(&mut entry, &folder.join(&path)).with_context(|| path.clone())?;
                files.insert(path, written);
            }
            EntryType::Symlink => {
                let target = long_link.or_else(|| entry.link_name_bytes().map(|name| name.into_owned()));
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
            "{path} is damaged: {size} bytes with SHA-256 {hash}; the manifest says {bytes} bytes with {sha256}"
        );
    }
    if let Some(path) = files.keys().next() {
        bail!("{NOT_A_PACK}: {path} is not in the manifest");
    }
    // Last, so that no file was written through one.
    for (link, target) in links {
        let link = folder.join(link);
        create_above(&link)?;
        symlink(target, &link).with_context(|| link.display().to_string())?;
    }
    Ok(manifest)
}

/// Why an archive is refused.
const NOT_A_PACK: &str = "not a pack of perfx";

/// The longest manifest, bytes; it has some 200 for each file.
const MANIFEST_MAX: u64 = 8 << 20;

/// What all names in an archive have together at most, bytes.
const NAMES_MAX: usize = 16 << 20;

/// The most missing files to list.
const LISTED_MAX: usize = 20;

/// The longest name in an archive, bytes: PATH_MAX.
const NAME_MAX: u64 = 4096;

/// The name of the next entry, if it does not fit into that entry's header.
fn long_name(entry: &mut impl Read) -> Result<Vec<u8>> {
    let mut name = Vec::new();
    entry.take(NAME_MAX + 1).read_to_end(&mut name)?;
    ensure!(name.len() as u64 <= NAME_MAX, "{NOT_A_PACK}: a name is too long");
    while name.last() == Some(&0) {
        name.pop();
    }
    Ok(name)
}

/// The path of an entry, if it is inside the folder.
fn inside(path: Vec<u8>) -> Result<String> {
    let path = String::from_utf8(path).context("a name is not UTF-8")?;
    let mut parts = Path::new(&path).components().peekable();
    let stays = parts.peek().is_some() && parts.all(|part| matches!(part, Component::Normal(_)));
    ensure!(stays && !path.ends_with('/'), "`{path}` is not a path inside the pack");
    Ok(path)
}

/// True if perf's build-id cache has such a link: `.build-id/XX/…` to a folder of the cache.
fn is_of_cache(link: &str, target: &str) -> bool {
    let is_hex = |text: &str| !text.is_empty() && text.bytes().all(|byte| byte.is_ascii_hexdigit());
    let parts: Vec<&str> = link.split('/').collect();
    let is_link = matches!(parts[..], [".build-id", first, rest] if is_hex(first) && is_hex(rest));
    let below = target.strip_prefix("../../").filter(|below| !below.starts_with(".build-id"));
    is_link && below.is_some_and(|below| inside(below.into()).is_ok())
}

/// Writes a new file; returns its size and hash.
fn write(from: &mut impl Read, path: &Path) -> Result<(u64, String)> {
    create_above(path)?;
    // The mode of perf's files.
    let mut file = OpenOptions::new().write(true).create_new(true).mode(0o600).open(path)?;
    let mut from = Hashed::new(from);
    let bytes = io::copy(&mut from, &mut file)?;
    Ok((bytes, from.sha256()))
}

/// Creates the folder of a file.
fn create_above(path: &Path) -> Result<()> {
    let folder = folder(path);
    let made = DirBuilder::new().mode(0o700).recursive(true).create(folder);
    made.with_context(|| folder.display().to_string())
}
