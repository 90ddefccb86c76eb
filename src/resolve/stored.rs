//! Finds the symbols of a DSO in a recording of simpleperf or hiperf.

use std::collections::HashMap;
use std::ffi::{OsStr, OsString};
use std::os::unix::ffi::OsStrExt as _;
use std::path::Path;
use std::sync::{Arc, OnceLock};

use perfx_format::Endian;
use perfx_format::features::{StoredFile, stored_files};
use perfx_format::header::Features;
use perfx_model::address_space::{Dso, Machine};
use symbols::{Image, Symbol, Symbols};

use crate::facts::Facts;
use crate::ids::{dso_name, is_kernel_name};

#[derive(Debug)]
pub(crate) struct StoredFiles<'f> {
    files: Vec<StoredFile<'f>>,
    by_name: HashMap<OsString, Named>,
}

#[derive(Debug, Default)]
struct Named {
    files: Vec<usize>,
    /// Shared by DSOs of this name, which may be many with different inodes.
    symbols: OnceLock<Arc<Symbols>>,
}

impl<'f> StoredFiles<'f> {
    pub(crate) fn new(features: &'f Features, endian: Endian) -> StoredFiles<'f> {
        let files = stored_files(features, endian);
        let mut by_name = HashMap::<OsString, Named>::new();
        for (number, file) in files.iter().enumerate().filter(|(_, file)| !file.symbols.is_empty()) {
            let path = OsStr::from_bytes(file.path);
            by_name.entry(path.to_owned()).or_default().files.push(number);
            // A module is mapped by its path, or by its name in brackets.
            let key = module_key(file.path);
            if key != path {
                by_name.entry(key).or_default().files.push(number);
            }
        }
        StoredFiles { files, by_name }
    }

    pub(crate) fn image(&self, number: u32, facts: &Facts) -> Option<Image> {
        let (dso, _) = facts.spaces.dsos().get(number as usize)?;
        if dso.machine != Machine::Host {
            return None;
        }
        let name = dso_name(dso);
        let is_module = dso.kernel && !is_kernel_name(name);
        let named = || self.by_name.get(OsStr::from_bytes(name));
        let named = named().or_else(|| self.by_name.get(&module_key(name)).filter(|_| is_module))?;
        let shift = self.shift(dso, number, &self.files[*named.files.first()?], facts)?;
        let symbols = named.symbols.get_or_init(|| {
            let symbols = named.files.iter().flat_map(|&file| &self.files[file].symbols);
            let symbols = symbols.map(|symbol| Symbol {
                start: symbol.address,
                end: symbol.address.saturating_add(symbol.len),
                limit: u64::MAX,
                weak: false,
                global: true,
                name: symbol.name.into(),
            });
            Arc::new(Symbols::new(symbols.collect()))
        });
        Some(Image::Kernel { symbols: symbols.clone(), shift, place: None })
    }

    /// The distance from the place of a frame to the address of its symbol; wraps.
    fn shift(&self, dso: &Dso, number: u32, file: &StoredFile<'_>, facts: &Facts) -> Option<u64> {
        if dso.kernel && is_kernel_name(dso_name(dso)) {
            return Some(0);
        }
        // The place of code is its address in a module, its offset in a file.
        let start = match dso.kernel {
            true => facts.modules.get(&number).copied().flatten()?.wrapping_add(file.offset.unwrap_or(0)),
            false => file.offset.or_else(|| facts.parts.first(number))?,
        };
        Some(file.address.wrapping_sub(start))
    }
}

fn module_key(path: &[u8]) -> OsString {
    let mut key = OsString::from("[");
    key.push(build_id::module_name(Path::new(OsStr::from_bytes(path))));
    key.push("]");
    key
}
