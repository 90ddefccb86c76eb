//! The mappings of a recording, collected in file order.

use std::collections::HashMap;
use std::sync::OnceLock;

use perfx_format::record::ksymbol::{Ksymbol, TextPoke};
use perfx_format::{Layouts, OrderKey, Record};
use perfx_model::address_space::{AddressSpaces, Dso, Machine, Mapping as Mapped};
use perfx_resolve::{is_kernel_name, kernel_reference};
use symbols::Reference;

use crate::filters::Filter;
use crate::pokes::Poke;

#[derive(Debug, Default)]
pub(crate) struct Mappings {
    pub(crate) spaces: AddressSpaces,
    pub(crate) places: Vec<Place>,
    /// For each DSO, the first process that mapped it.
    pids: Vec<Option<u32>>,
    /// The position of the kernel, from its first mapping, and those of the kernels of guests.
    pub(crate) reference: Option<Reference>,
    pub(crate) guest_references: HashMap<Machine, Reference>,
    /// The DSOs of the kernel and its modules, by number, and their addresses.
    pub(crate) kernel: Vec<(u32, Place)>,
    pub(crate) pokes: Vec<Poke>,
    /// The number of changes left out because there are too many, or too long.
    pub(crate) ignored_pokes: u64,
    /// Address filters; without any, all code is traced.
    pub(crate) filters: Vec<Filter>,
    /// The beginnings and ends of mappings, ascending; computed at the first use.
    pub(crate) bounds: OnceLock<Vec<u64>>,
}

/// Maximum number of kept changes; later ones are ignored.
const MOST_POKES: usize = 1 << 13;

#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub(crate) struct Place {
    pub(crate) start: u64,
    pub(crate) end: u64,
    /// An address plus this, wrapping, is its offset in the file.
    pub(crate) shift: u64,
}

impl Mappings {
    /// Takes in the next mapping or kernel symbol, which belongs to this DSO.
    pub(crate) fn learn(&mut self, dso: u32, record: &Record<'_>, layouts: &Layouts, machine: Machine) {
        let mapping = Mapped::read(record, layouts);
        let mapping = mapping.as_ref();
        if dso as usize == self.pids.len() {
            self.pids.push(mapping.filter(|mapping| !mapping.kernel).map(|mapping| mapping.pid));
        }
        let symbol = || Ksymbol::of(record).map(|symbol| (symbol.address, symbol.length.into(), 0));
        let place = mapping.map(|mapping| (mapping.start, mapping.len, mapping.pgoff)).or_else(symbol);
        let (start, len, offset) = place.unwrap_or_default();
        let place = Place { start, end: start.saturating_add(len), shift: offset.wrapping_sub(start) };
        self.places.push(place);
        if let Some(mapping) = mapping.filter(|mapping| mapping.kernel && machine == Machine::Host) {
            self.kernel.push((dso, place));
            self.reference = self.reference.take().or_else(|| reference(mapping));
        }
        if let Some(mapping) = mapping.filter(|mapping| mapping.kernel && machine != Machine::Host)
            && let Some(reference) = reference(mapping)
        {
            self.guest_references.entry(machine).or_insert(reference);
        }
    }

    pub(crate) fn change(&mut self, poke: &TextPoke<'_>, at: OrderKey) {
        match Poke::new(poke, at).filter(|_| self.pokes.len() < MOST_POKES) {
            Some(poke) => self.pokes.push(poke),
            None => self.ignored_pokes += 1,
        }
    }

    pub(crate) fn dsos(&self) -> impl ExactSizeIterator<Item = (&Dso, u32, Option<u32>)> {
        let dsos = self.spaces.dsos().iter().zip(&self.pids);
        dsos.map(|((dso, flags), pid)| (dso, *flags, *pid))
    }
}

/// The position of a kernel. The mapping of simpleperf has neither a symbol nor an offset, and begins at `_stext`.
fn reference(mapping: &Mapped<'_>) -> Option<Reference> {
    kernel_reference(mapping).or_else(|| {
        let is_of_simpleperf = is_kernel_name(mapping.name) && mapping.name.ends_with(b"]");
        let begins = is_of_simpleperf && mapping.pgoff == 0 && mapping.start > 0;
        begins.then(|| Reference { name: b"_stext".to_vec(), address: mapping.start, kernel: None })
    })
}
