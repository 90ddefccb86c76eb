//! The mapped files, read when the first stack needs them.

use std::collections::HashMap;
use std::ffi::OsStr;
use std::fs::File;
use std::os::unix::ffi::OsStrExt as _;
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex, OnceLock, PoisonError};

use build_id::RecordedOn;
use perfx_format::{Bytes, Endian};
use perfx_model::address_space::{AddressSpaces, Hit, Machine};
use perfx_model::mapped_files::MappedFiles;
use perfx_resolve::{IdOptions, RecordedIds, can_have_id, dso_name, object_of};
use symbols::{FileIdentity, MOST_READ, Sources, UnwindTables};

use crate::arch::Architectures;
use crate::rules::Rules;

pub(crate) struct Images {
    pub(crate) archs: Architectures,
    endian: Endian,
    pub(crate) spaces: Arc<AddressSpaces>,
    files: MappedFiles,
    ids: RecordedIds,
    options: IdOptions,
    sources: Sources,
    /// The files made by earlier passes, such as images of JIT code, which get their names only at the end.
    made: HashMap<PathBuf, Bytes>,
    loaded: Vec<OnceLock<Loaded>>,
    read: Mutex<FileCache>,
}

#[derive(Default)]
struct FileCache {
    /// By device and inode: a file may have several names.
    files: HashMap<(u64, u64), Arc<Rules>>,
    expanded: u64,
}

pub(crate) enum Loaded {
    /// It is in no file, like the code of a JIT compiler.
    Memory,
    /// It is in the stack or the heap, which contain no code.
    Data,
    /// The recorded file was not found, for these reasons.
    Missing(String),
    Image(Arc<Rules>),
}

impl Images {
    pub(crate) fn new(
        (archs, endian): (Architectures, Endian),
        spaces: Arc<AddressSpaces>,
        files: MappedFiles,
        ids: RecordedIds,
        options: IdOptions,
        recorded_on: &RecordedOn,
        made: HashMap<PathBuf, Bytes>,
    ) -> Images {
        let sources = Sources::new(!options.is_foreign(), options.roots(), options.caches(), recorded_on);
        let loaded = spaces.dsos().iter().map(|_| OnceLock::new()).collect();
        let read = Mutex::default();
        Images { archs, endian, spaces, files, ids, options, sources, made, loaded, read }
    }

    pub(crate) fn get(&self, hit: Hit) -> &Loaded {
        self.loaded[hit.dso as usize].get_or_init(|| self.load(hit.dso as usize))
    }

    pub(crate) fn offset(&self, hit: Hit, address: u64) -> u64 {
        self.files.offset(hit, address)
    }

    /// The name of a DSO at which walks end, and the reasons.
    pub(crate) fn missing(&self, dso: u32) -> (&[u8], &str) {
        let reasons = match self.loaded[dso as usize].get() {
            Some(Loaded::Missing(reasons)) => reasons,
            Some(Loaded::Image(rules)) if rules.lacks_expanded => EXPAND_TOO_FAR,
            _ => "it has no unwind tables for some of its code",
        };
        (dso_name(&self.spaces.dsos()[dso as usize].0), reasons)
    }

    fn load(&self, number: usize) -> Loaded {
        let (dso, flags) = &self.spaces.dsos()[number];
        if matches!(dso_name(dso), b"[stack]" | b"[heap]") {
            return Loaded::Data;
        }
        if dso.kernel || !can_have_id(dso, *flags) {
            return Loaded::Memory;
        }
        if dso.machine != Machine::Host {
            return Loaded::Missing("it is a file of a guest, not of this machine".to_owned());
        }
        let path = dso_name(dso);
        if let Some(made) = self.made.get(Path::new(OsStr::from_bytes(path))) {
            return match UnwindTables::new(made.clone()) {
                Ok(tables) => self.image(tables, None),
                Err(error) => Loaded::Missing(error.to_string()),
            };
        }
        let id = self.options.known_id(dso).or_else(|| self.ids.get(dso));
        let map = |file: &File| Bytes::map(file).ok();
        match self.sources.unwind_tables(&object_of(dso, self.files.process(number)), id, map) {
            Ok((tables, file)) => self.image(tables, file),
            Err(reasons) => Loaded::Missing(reasons),
        }
    }

    fn image(&self, mut tables: UnwindTables<Bytes>, file: Option<FileIdentity>) -> Loaded {
        let is_recorded = tables.is_big_endian() == (self.endian == Endian::Big);
        let arch = self.archs.all().find(|arch| is_recorded && tables.arch() == Some(arch.arch));
        let Some(arch) = arch else {
            return Loaded::Missing("the file is of another architecture".to_owned());
        };
        let mut read = self.read.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some(rules) = file.and_then(|file| read.files.get(&file)) {
            return Loaded::Image(rules.clone());
        }
        let mut left = MOST_READ - read.expanded;
        let lacks_expanded = !tables.expand(&mut left);
        read.expanded = MOST_READ - left;
        // Without tables, callers can only be found by frame pointers.
        if arch.frame_record.is_none() && !tables.has_frames() {
            let why = if lacks_expanded { EXPAND_TOO_FAR } else { "it has no unwind tables" };
            return Loaded::Missing(why.to_owned());
        }
        let rules = Arc::new(Rules::new(tables, arch, lacks_expanded));
        read.files.extend(file.map(|file| (file, rules.clone())));
        Loaded::Image(rules)
    }
}

const EXPAND_TOO_FAR: &str = "its compressed unwind tables are damaged, or expand to too many bytes";
