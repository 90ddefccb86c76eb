//! The files that were mapped, read when the first stack needs them.

use std::os::unix::ffi::OsStrExt as _;
use std::os::unix::fs::FileExt as _;
use std::sync::{Arc, OnceLock};

use build_id::RecordedOn;
use framehop::{ExplicitModuleSectionInfo, Module, Unwinder as _};
use perfx_format::Bytes;
use perfx_format::read::TempFiles;
use perfx_model::address_space::{AddressSpaces, Hit, Machine};
use perfx_model::mapped_files::MappedFiles;
use perfx_pipeline::{Made, Result};
use symbols::{Section, Sources, UnwindTables};

use super::arch::Architecture;
use crate::support::ids::{IdOptions, RecordedIds, can_have_id, dso_name, object_of};

/// The unwinder of each DSO.
pub(super) struct Images<A: Architecture> {
    pub(super) spaces: Arc<AddressSpaces>,
    files: MappedFiles,
    ids: RecordedIds,
    options: IdOptions,
    sources: Sources,
    /// The files of earlier passes, such as images of JIT code. They get their names only at the end.
    made: Vec<Made>,
    temp_files: TempFiles,
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
        made: Vec<Made>,
        temp_files: TempFiles,
    ) -> Images<A> {
        let sources = Sources::new(!options.no_files(), options.roots(), options.caches(), recorded_on);
        let loaded = spaces.dsos().iter().map(|_| OnceLock::new()).collect();
        let nowhere = A::Unwinder::default();
        Images { spaces, files, ids, options, sources, made, temp_files, loaded, nowhere }
    }

    /// What a mapping shows.
    pub(super) fn get(&self, hit: Hit) -> &Loaded<A> {
        self.loaded[hit.dso as usize].get_or_init(|| self.load(hit.dso as usize))
    }

    /// The offset in the file of an address in a mapping.
    pub(super) fn offset(&self, hit: Hit, address: u64) -> u64 {
        self.files.offset(hit, address)
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
        let path = dso_name(dso);
        if let Some(made) = self.made.iter().find(|made| made.path.as_os_str().as_bytes() == path) {
            return match of_made(made) {
                Ok(tables) => self.image(tables),
                Err(reason) => Loaded::Missing(reason),
            };
        }
        let id = self.options.known_id(dso).or_else(|| self.ids.get(dso));
        match self.sources.unwind_tables(&object_of(dso, self.files.process(number)), id) {
            Ok(tables) => self.image(tables),
            Err(reasons) => Loaded::Missing(reasons),
        }
    }

    fn image(&self, tables: UnwindTables) -> Loaded<A> {
        if tables.arch != Some(A::ARCH) {
            return Loaded::Missing("the file is of another architecture".to_owned());
        }
        match Image::new(tables, &self.temp_files) {
            Ok(image) => Loaded::Image(Box::new(image)),
            Err(error) => Loaded::Missing(format!("its tables can't be stored: {error}")),
        }
    }
}

/// The tables of a file that an earlier pass has made. It is mapped: an image of JIT code may have holes of any size.
fn of_made(made: &Made) -> std::result::Result<UnwindTables, String> {
    let bytes = Bytes::map(&made.from).map_err(|error| error.to_string())?;
    let image = bytes.get(made.range.start as usize..made.range.end as usize).unwrap_or_default();
    UnwindTables::of_image(image).map_err(|error| error.to_string())
}

/// Larger sections go into a temporary file, so that private memory is bounded, whatever was mapped.
const MOST_IN_MEMORY: usize = 1 << 20;

/// Moves a large section into a temporary file.
fn stored(bytes: Vec<u8>, temp_files: &TempFiles) -> Result<Bytes> {
    if bytes.len() <= MOST_IN_MEMORY {
        return Ok(Bytes::from(bytes));
    }
    let file = temp_files()?;
    file.write_all_at(&bytes, 0)?;
    Ok(Bytes::map(&file)?)
}

impl<A: Architecture> Image<A> {
    fn new(mut tables: UnwindTables, temp_files: &TempFiles) -> Result<Image<A>> {
        let addresses = tables.addresses();
        let parts = |section: Option<Section>| -> Result<_> {
            let Some(Section { addresses, bytes }) = section else { return Ok((None, None)) };
            Ok((Some(addresses), Some(stored(bytes, temp_files)?)))
        };
        let (eh_frame_svma, eh_frame) = parts(tables.eh_frame.take())?;
        let (eh_frame_hdr_svma, eh_frame_hdr) = parts(tables.eh_frame_hdr.take())?;
        let (_, debug_frame) = parts(tables.debug_frame.take())?;
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
        Ok(Image { unwinder, tables })
    }

    /// The address in the file's own address space of the byte at this offset of the file.
    pub(super) fn address_of(&self, offset: u64) -> Option<u64> {
        self.tables.address_of(offset)
    }

    /// True if the instruction at this address of the file returns from a signal handler.
    pub(super) fn is_signal_return(&self, address: u64) -> bool {
        self.tables.signal_returns.binary_search(&address).is_ok()
    }
}
