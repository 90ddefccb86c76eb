//! Builds `.eh_frame` and `.eh_frame_hdr` of an image from the unwind data that a dump has for each function.
//!
//! Writers assume that perf puts `.eh_frame` after the code, at the next multiple of 8. An image has one
//! `.eh_frame` for all functions, so each FDE is rewritten with addresses relative to its new position, and a
//! CIE that several functions share is written once. Pointers to personality routines and language-specific
//! data are left out, because profilers don't use them.

use std::collections::HashMap;

use perfx_format::{Cursor, Endian, until_nul};

use crate::Function;

/// A signed 4-byte pointer relative to its own address (`DW_EH_PE_pcrel | DW_EH_PE_sdata4`).
const PCREL_SDATA4: u8 = 0x1b;

/// A signed 4-byte pointer relative to the start of `.eh_frame_hdr` (`DW_EH_PE_datarel | DW_EH_PE_sdata4`).
const DATAREL_SDATA4: u8 = 0x3b;

/// An unsigned 4-byte value (`DW_EH_PE_udata4`).
const UDATA4: u8 = 0x03;

#[derive(Debug)]
pub(crate) struct Unwind {
    endian: Endian,
    is_64: bool,
    start: u64,
    bytes: Vec<u8>,
    /// The position in `bytes` of each CIE, by its contents.
    cies: HashMap<Vec<u8>, usize>,
    /// The file offsets of the code of each FDE and of the FDE itself.
    table: Vec<(u64, u64)>,
}

#[derive(Clone)]
struct Cie {
    written: usize,
    encoding: u8,
    /// Its FDEs have augmentation data.
    augmented: bool,
}

/// Reads an unsigned LEB128 number: its value and its bytes.
fn uleb<'a>(fields: &mut Cursor<'a>) -> Option<(u64, &'a [u8])> {
    let rest = fields.rest();
    let len = rest.iter().position(|byte| byte & 0x80 == 0)? + 1;
    let bytes = fields.bytes(len)?;
    let value = bytes
        .iter()
        .rev()
        .try_fold(0u64, |value, byte| value.checked_mul(128).map(|value| value | u64::from(byte & 0x7f)))?;
    Some((value, bytes))
}

impl Unwind {
    pub(crate) fn new(start: u64, endian: Endian, is_64: bool) -> Unwind {
        Unwind { endian, is_64, start, bytes: Vec::new(), cies: HashMap::new(), table: Vec::new() }
    }

    /// Adds the unwind data of a function at file offset `place`. Entries that can't be parsed are left out.
    pub(crate) fn add(&mut self, function: &Function<'_>, place: u64) {
        let Some(info) = &function.unwinding else { return };
        let mut cies = HashMap::new();
        let mut fdes = Vec::new();
        let mut fields = Cursor::new(info.eh_frame, self.endian);
        loop {
            let at = fields.at();
            let Some(entry) = fields.u32().filter(|&len| len > 4).and_then(|len| fields.bytes(len as usize))
            else {
                break;
            };
            let mut entry = Cursor::new(entry, self.endian);
            match entry.u32() {
                Some(0) => {
                    if let Some(cie) = self.cie(entry) {
                        cies.insert(at, cie);
                    }
                }
                Some(back) => {
                    let cie = (at + 4).checked_sub(back as usize).and_then(|at| cies.get(&at));
                    fdes.extend(cie.map(|cie: &Cie| (at, cie.clone(), entry)));
                }
                None => {}
            }
        }
        let is_only = fdes.len() == 1;
        for (at, cie, entry) in fdes {
            let _ = self.fde(function, place, (at, &cie, entry), is_only);
        }
    }

    /// Parses the part of a CIE after its id, and writes the CIE unless an equal one was written.
    fn cie(&mut self, mut entry: Cursor<'_>) -> Option<Cie> {
        let version = entry.u8().filter(|&version| matches!(version, 1 | 3))?;
        let augmentation = until_nul(entry.rest());
        entry.bytes(augmentation.len() + 1)?;
        let (_, code_alignment) = uleb(&mut entry)?;
        let (_, data_alignment) = uleb(&mut entry)?;
        let register = if version == 1 { entry.bytes(1)? } else { uleb(&mut entry)?.1 };
        let mut encoding = 0;
        let (mut letters, mut augmented) = (b"zR".to_vec(), false);
        if let Some(rest) = augmentation.strip_prefix(b"z") {
            augmented = true;
            let (len, _) = uleb(&mut entry)?;
            let mut data = Cursor::new(entry.bytes(usize::try_from(len).ok()?)?, self.endian);
            for &letter in rest {
                match letter {
                    b'R' => encoding = data.u8()?,
                    b'L' => drop(data.u8()?),
                    b'P' => {
                        let encoding = data.u8()?;
                        data.bytes(self.pointer_size(encoding)?)?;
                    }
                    // S: a signal frame. B: return addresses are signed with the B key.
                    b'S' | b'B' => letters.push(letter),
                    _ => return None,
                }
            }
        } else if !augmentation.is_empty() {
            return None;
        }
        let mut body = vec![version];
        body.extend(&letters);
        body.push(0);
        body.extend([code_alignment, data_alignment, register].concat());
        body.extend([1, PCREL_SDATA4]);
        body.extend(entry.rest());
        // Padded with DW_CFA_nop.
        body.resize(body.len().next_multiple_of(4), 0);
        let written = match self.cies.get(&body) {
            Some(&written) => written,
            None => {
                let written = self.bytes.len();
                self.entry(0, &body);
                self.cies.insert(body, written);
                written
            }
        };
        Some(Cie { written, encoding, augmented })
    }

    /// Rewrites an FDE that was at position `at` of the function's `.eh_frame`.
    fn fde(
        &mut self,
        function: &Function<'_>,
        place: u64,
        (at, cie, mut entry): (usize, &Cie, Cursor<'_>),
        is_only: bool,
    ) -> Option<()> {
        // The distance from the start of the code at which perf would have put the FDE's address field.
        let here = function.size.checked_next_multiple_of(8)?.wrapping_add(at as u64 + 8);
        let size = self.pointer_size(cie.encoding)?;
        let start = self.pointer(entry.bytes(size)?, cie.encoding)?;
        let start = match cie.encoding & 0x70 {
            0x10 => here.wrapping_add(start),
            _ => start.wrapping_sub(function.loaded_at),
        };
        let start = if self.is_64 { start } else { u64::from(start as u32) };
        let range = self.pointer(entry.bytes(size)?, cie.encoding & 0x07)?;
        let start = if start < function.size { start } else { is_only.then_some(0)? };
        let range = range.min(function.size - start);
        if cie.augmented {
            let (len, _) = uleb(&mut entry)?;
            entry.bytes(usize::try_from(len).ok()?)?;
        }
        let written = self.bytes.len();
        let from = self.start + written as u64 + 8;
        let relative = i32::try_from((place + start).cast_signed() - from.cast_signed()).ok()?;
        let mut body = Vec::with_capacity(16 + entry.rest().len());
        body.extend(self.endian.bytes_u32(relative.cast_unsigned()));
        body.extend(self.endian.bytes_u32(u32::try_from(range).ok().filter(|&range| range > 0)?));
        body.push(0);
        body.extend(entry.rest());
        body.resize(body.len().next_multiple_of(4), 0);
        self.entry(u32::try_from(written + 4 - cie.written).ok()?, &body);
        self.table.push((place + start, self.start + written as u64));
        Some(())
    }

    fn entry(&mut self, id: u32, body: &[u8]) {
        self.bytes.extend(self.endian.bytes_u32(body.len() as u32 + 4));
        self.bytes.extend(self.endian.bytes_u32(id));
        self.bytes.extend(body);
    }

    fn pointer_size(&self, encoding: u8) -> Option<usize> {
        match encoding & 0x07 {
            0 => Some(if self.is_64 { 8 } else { 4 }),
            2 => Some(2),
            3 => Some(4),
            4 => Some(8),
            _ => None,
        }
    }

    fn pointer(&self, bytes: &[u8], encoding: u8) -> Option<u64> {
        let signed = encoding & 0x08 != 0;
        Some(match bytes.len() {
            2 if signed => i64::from(self.endian.u16(bytes, 0)?.cast_signed()).cast_unsigned(),
            4 if signed => i64::from(self.endian.u32(bytes, 0)?.cast_signed()).cast_unsigned(),
            2 => self.endian.u16(bytes, 0)?.into(),
            4 => self.endian.u32(bytes, 0)?.into(),
            _ => self.endian.u64(bytes, 0)?,
        })
    }

    /// `.eh_frame`, the file offset of `.eh_frame_hdr`, and that; `None` if no function has unwind data.
    pub(crate) fn finish(mut self) -> Option<(Vec<u8>, u64, Vec<u8>)> {
        if self.table.is_empty() {
            return None;
        }
        self.table.sort_unstable();
        self.bytes.extend([0; 4]);
        let at = (self.start + self.bytes.len() as u64).next_multiple_of(8);
        let relative = |place: u64, from: u64| {
            let distance = i32::try_from(place.cast_signed() - from.cast_signed()).ok()?;
            Some(self.endian.bytes_u32(distance.cast_unsigned()))
        };
        let mut header = vec![1, PCREL_SDATA4, UDATA4, DATAREL_SDATA4];
        header.extend(relative(self.start, at + 4)?);
        header.extend(self.endian.bytes_u32(self.table.len() as u32));
        for &(start, fde) in &self.table {
            header.extend(relative(start, at)?);
            header.extend(relative(fde, at)?);
        }
        Some((self.bytes, at, header))
    }
}
