//! Reads the branch targets in an AArch64 kernel module that the kernel fills in when it loads it.

use std::cell::Cell;
use std::path::Path;

use build_id::{Error, Metered};
use object::elf::{
    EM_AARCH64, ET_REL, FileHeader64, R_AARCH64_CALL26, R_AARCH64_CONDBR19, R_AARCH64_JUMP26,
    R_AARCH64_TSTBR14, SHT_RELA, SHT_SYMTAB,
};
use object::read::elf::{FileHeader, Rela as _, SectionHeader, Sym as _};
use object::{Endianness, ReadCache};

use crate::compressed::MOST_READ;
use crate::name::text_at;

/// For each branch in `.text` with a relocation, ascending: its offset in `.text`, and that of its target if
/// that is in `.text`, too. Empty for files that are not relocatable, or of other processors.
///
/// # Errors
///
/// The file cannot be read, or is not valid ELF.
pub fn relocated_branches(path: &Path) -> Result<Vec<(u64, Option<u64>)>, Error> {
    let (file, _) = build_id::open(path)?;
    let (cache, left) = (ReadCache::new(file), Cell::new(MOST_READ));
    let data = Metered::new(&cache, &left);
    let damaged = |error: object::Error| Error::Damaged(error.to_string());
    let Ok(header) = FileHeader64::<Endianness>::parse(data) else { return Ok(Vec::new()) };
    let endian = header.endian().map_err(damaged)?;
    if header.e_type(endian) != ET_REL || header.e_machine(endian) != EM_AARCH64 {
        return Ok(Vec::new());
    }
    let sections = header.section_headers(endian, data).map_err(damaged)?;
    let names = header.shstrndx(endian, data).ok().and_then(|index| sections.get(index as usize));
    let names = names.and_then(|section| section.data(endian, data).ok()).unwrap_or_default();
    let text = sections.iter().position(|section| text_at(names, section.sh_name(endian)) == b".text");
    let symbols = sections.iter().find(|section| section.sh_type(endian) == SHT_SYMTAB);
    let (Some(text), Some(symbols)) = (text, symbols) else { return Ok(Vec::new()) };
    let symbols = symbols.data_as_array(endian, data).map_err(damaged)?;
    let mut branches = Vec::new();
    let is_of_text = |section: &&_| {
        let section: &object::elf::SectionHeader64<Endianness> = section;
        section.sh_type(endian) == SHT_RELA && section.sh_info(endian) as usize == text
    };
    for section in sections.iter().filter(is_of_text) {
        let entries: &[object::elf::Rela64<Endianness>] =
            section.data_as_array(endian, data).map_err(damaged)?;
        for entry in entries {
            let kinds = [R_AARCH64_CALL26, R_AARCH64_JUMP26, R_AARCH64_CONDBR19, R_AARCH64_TSTBR14];
            if !kinds.contains(&entry.r_type(endian, false)) {
                continue;
            }
            let symbol: Option<&object::elf::Sym64<Endianness>> =
                symbols.get(entry.r_sym(endian, false) as usize);
            let symbol = symbol.filter(|symbol| usize::from(symbol.st_shndx(endian).0) == text);
            let target =
                symbol.and_then(|symbol| symbol.st_value(endian).checked_add_signed(entry.r_addend(endian)));
            branches.push((entry.r_offset(endian), target));
        }
    }
    branches.sort_unstable();
    Ok(branches)
}
