//! The files that were mapped, read when the first stack needs them.

use std::sync::{Arc, OnceLock};

use build_id::RecordedOn;
use framehop::{ExplicitModuleSectionInfo, Module, Unwinder as _};
use perfx_format::Bytes;
use perfx_model::address_space::{AddressSpaces, Hit, Machine};
use symbols::{Section, Sources, UnwindTables};

use super::arch::Architecture;
use crate::support::ids::{IdOptions, RecordedIds, can_have_id, dso_name, object_of};

/// What the survey learns about mappings.
#[derive(Debug, Default)]
pub(super) struct MappedFiles {
    /// For each mapping, the difference between offsets in the file and addresses; wraps around.
    shifts: Vec<u64>,
    /// For each DSO, a process that has mapped it.
    pids: Vec<Option<u32>>,
}

impl MappedFiles {
    /// Takes in the next mapping.
    pub(super) fn learn(&mut self, dso: u32, shift: u64, pid: Option<u32>) {
        self.shifts.push(shift);
        if dso as usize == self.pids.len() {
            self.pids.push(pid);
        }
    }
}

/// The unwinder of each DSO.
pub(super) struct Images<A: Architecture> {
    pub(super) spaces: Arc<AddressSpaces>,
    files: MappedFiles,
    ids: RecordedIds,
    options: IdOptions,
    sources: Sources,
    loaded: Vec<OnceLock<Loaded<A>>>,
    /// For code that is in no file: it follows frame pointers.
    pub(super) nowhere: A::Unwinder,
}

/// The code at an address.
pub(super) enum Loaded<A: Architecture> {
    /// It is in no file, such as that of a JIT compiler.
    Memory,
    /// There is no file that is the recorded one, for these reasons.
    Missing(String),
    /// It is in a file.
    Image(Box<Image<A>>),
}

/// A file.
pub(super) struct Image<A: Architecture> {
    pub(super) unwinder: A::Unwinder,
    tables: UnwindTables,
}

/// Framehop numbers the changes of all unwinders with 16 bits, and needs two numbers for each image: more
/// images would take each other's rules from the cache.
const MOST_IMAGES: usize = 1 << 14;

impl<A: Architecture> Images<A> {
    pub(super) fn new(
        spaces: Arc<AddressSpaces>,
        files: MappedFiles,
        ids: RecordedIds,
        options: IdOptions,
        recorded_on: &RecordedOn,
    ) -> Images<A> {
        let sources = Sources::new(!options.no_files(), options.roots(), options.caches(), recorded_on);
        let loaded = spaces.dsos().iter().map(|_| OnceLock::new()).collect();
        Images { spaces, files, ids, options, sources, loaded, nowhere: A::Unwinder::default() }
    }

    /// What a mapping shows.
    pub(super) fn get(&self, hit: Hit) -> &Loaded<A> {
        self.loaded[hit.dso as usize].get_or_init(|| self.load(hit.dso as usize))
    }

    /// The offset in the file of an address in a mapping.
    pub(super) fn offset(&self, hit: Hit, address: u64) -> u64 {
        address.wrapping_add(self.files.shifts.get(hit.mapping as usize).copied().unwrap_or_default())
    }

    /// The DSOs that are missing, with the reasons.
    pub(super) fn missing(&self) -> impl Iterator<Item = (u32, &[u8], &str)> {
        (0..).zip(&self.loaded).filter_map(|(number, loaded)| match loaded.get()? {
            Loaded::Missing(reasons) => {
                Some((number, dso_name(&self.spaces.dsos()[number as usize].0), &**reasons))
            }
            _ => None,
        })
    }

    fn load(&self, number: usize) -> Loaded<A> {
        let (dso, flags) = &self.spaces.dsos()[number];
        if dso.kernel || !can_have_id(dso, *flags) {
            return Loaded::Memory;
        }
        if dso.machine != Machine::Host {
            return Loaded::Missing("it is of a guest, whose files are not here".to_owned());
        }
        if number >= MOST_IMAGES {
            return Loaded::Missing(format!("more than {MOST_IMAGES} files are mapped"));
        }
        let id = self.options.known_id(dso).or_else(|| self.ids.get(dso));
        let pid = self.files.pids.get(number).copied().flatten();
        match self.sources.unwind_tables(&object_of(dso, pid), id) {
            Ok(tables) if tables.arch == Some(A::ARCH) => Loaded::Image(Box::new(Image::new(tables))),
            Ok(_) => Loaded::Missing("the file is of another architecture".to_owned()),
            Err(reasons) => Loaded::Missing(reasons),
        }
    }
}

impl<A: Architecture> Image<A> {
    fn new(mut tables: UnwindTables) -> Image<A> {
        let addresses = tables.addresses();
        let parts = |section: Option<Section>| {
            section.map(|section| (section.addresses, Bytes::from(section.bytes))).unzip()
        };
        let (eh_frame_svma, eh_frame) = parts(tables.eh_frame.take());
        let (eh_frame_hdr_svma, eh_frame_hdr) = parts(tables.eh_frame_hdr.take());
        let (_, debug_frame) = parts(tables.debug_frame.take());
        let sections = ExplicitModuleSectionInfo {
            base_svma: addresses.start,
            text_svma: tables.text.take().map(|text| text.addresses),
            got_svma: tables.got.take().map(|got| got.addresses),
            eh_frame_svma,
            eh_frame,
            eh_frame_hdr_svma,
            eh_frame_hdr,
            debug_frame,
            ..ExplicitModuleSectionInfo::default()
        };
        let mut unwinder = A::Unwinder::default();
        // It unwinds in the file's own address space, whatever the processes that mapped the file.
        unwinder.add_module(Module::new(String::new(), addresses.clone(), addresses.start, sections));
        Image { unwinder, tables }
    }

    /// The address in the file's own address space of the byte at this offset of the file.
    pub(super) fn address_of(&self, offset: u64) -> Option<u64> {
        self.tables.address_of(offset)
    }

    /// True if a signal handler returns to this address of the file.
    pub(super) fn is_signal_return(&self, address: u64) -> bool {
        self.tables.signal_returns.binary_search(&address).is_ok()
    }
}
