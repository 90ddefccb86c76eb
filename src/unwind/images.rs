//! The files that were mapped, read when the first stack needs them.

use std::collections::HashMap;
use std::ffi::OsStr;
use std::fs::File;
use std::os::unix::ffi::OsStrExt as _;
use std::path::{Path, PathBuf};
use std::sync::{Arc, OnceLock};

use build_id::RecordedOn;
use perfx_format::{Bytes, Endian};
use perfx_model::address_space::{AddressSpaces, Hit, Machine};
use perfx_model::mapped_files::MappedFiles;
use perfx_resolve::{IdOptions, RecordedIds, can_have_id, dso_name, object_of};
use symbols::{Sources, UnwindTables};

use crate::arch::Architectures;
use crate::rules::Rules;

/// The unwind tables of each DSO.
pub(crate) struct Images {
    pub(crate) archs: Architectures,
    endian: Endian,
    pub(crate) spaces: Arc<AddressSpaces>,
    files: MappedFiles,
    ids: RecordedIds,
    options: IdOptions,
    sources: Sources,
    /// The files of earlier passes, such as images of JIT code. They get their names only at the end.
    made: HashMap<PathBuf, Bytes>,
    loaded: Vec<OnceLock<Loaded>>,
}

/// The code at an address.
pub(crate) enum Loaded {
    /// It is in no file, such as that of a JIT compiler.
    Memory,
    /// It is the stack or the heap, where no code is.
    Data,
    /// There is no file that is the recorded one, for these reasons.
    Missing(String),
    /// It is in a file.
    Image(Box<Rules>),
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
        let sources = Sources::new(!options.no_files(), options.roots(), options.caches(), recorded_on);
        let loaded = spaces.dsos().iter().map(|_| OnceLock::new()).collect();
        Images { archs, endian, spaces, files, ids, options, sources, made, loaded }
    }

    /// What a mapping shows.
    pub(crate) fn get(&self, hit: Hit) -> &Loaded {
        self.loaded[hit.dso as usize].get_or_init(|| self.load(hit.dso as usize))
    }

    /// The offset in the file of an address in a mapping.
    pub(crate) fn offset(&self, hit: Hit, address: u64) -> u64 {
        self.files.offset(hit, address)
    }

    /// The name of a DSO at whose code walks end, and the reasons.
    pub(crate) fn missing(&self, dso: u32) -> (&[u8], &str) {
        let reasons = match self.loaded[dso as usize].get() {
            Some(Loaded::Missing(reasons)) => reasons,
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
            return Loaded::Missing("it is of a guest, whose files are not here".to_owned());
        }
        let path = dso_name(dso);
        if let Some(made) = self.made.get(Path::new(OsStr::from_bytes(path))) {
            return match UnwindTables::new(made.clone()) {
                Ok(tables) => self.image(tables),
                Err(error) => Loaded::Missing(error.to_string()),
            };
        }
        let id = self.options.known_id(dso).or_else(|| self.ids.get(dso));
        let map = |file: &File| Bytes::map(file).ok();
        match self.sources.unwind_tables(&object_of(dso, self.files.process(number)), id, map) {
            Ok(tables) => self.image(tables),
            Err(reasons) => Loaded::Missing(reasons),
        }
    }

    fn image(&self, tables: UnwindTables<Bytes>) -> Loaded {
        let is_recorded = tables.is_big_endian() == (self.endian == Endian::Big);
        let arch = self.archs.all().find(|arch| is_recorded && tables.arch() == Some(arch.arch));
        match arch {
            None => Loaded::Missing("the file is of another architecture".to_owned()),
            // Nothing else leads from its frames to their callers.
            Some(arch) if arch.frame_record.is_none() && !tables.has_frames() => {
                Loaded::Missing("it has no unwind tables".to_owned())
            }
            Some(arch) => Loaded::Image(Box::new(Rules::new(tables, arch))),
        }
    }
}
