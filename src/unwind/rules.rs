//! Reads a file's call frame information: how to compute the registers of a caller from those of a frame.

use std::ops::Range;
use std::sync::{Arc, OnceLock};

use gimli::{
    BaseAddresses, CfaRule, CieOrFde, CommonInformationEntry, DebugFrame, EhFrame, EhFrameHdr, Encoding,
    EndianSlice, Evaluation, EvaluationResult, Location, Reader as _, RegisterRule, RunTimeEndian,
    UnwindContext, UnwindExpression, UnwindOffset, UnwindSection, Value, Vendor,
};
use perfx_format::{Bytes, Endian};
use symbols::{Arch, Section, SignalFrame, UnwindTables};

use crate::arch::{Architecture, MOST_SAVED, Number, Registers};
use crate::exidx::{self, Unwound};

type Data<'a> = EndianSlice<'a, RunTimeEndian>;

#[derive(Clone, Debug)]
pub(crate) enum Rule {
    /// The canonical frame address (CFA) is a register plus an offset. The registers in the architecture's
    /// list are at multiples of a word from the CFA, or [`SAME`] or [`LOST`].
    Simple {
        base: Number,
        offset: i32,
        saved: [i8; MOST_SAVED],
    },
    Complex(Arc<Complex>),
    /// No table covers the code: a leaf function if it is the innermost frame, else one with a frame pointer.
    Uncovered,
    /// There are no tables: follow the frame pointer.
    FramePointer,
    NoCode,
    /// The code returns from a signal handler with this frame.
    SignalReturn(SignalFrame),
    Outermost,
    /// The exception tables of 32-bit Arm have no rule: the outermost frame, or compiled without tables.
    Refused,
    /// The file is missing, or has no tables for the code.
    Missing,
}

impl Rule {
    /// True for a frame made by the kernel for a signal handler, which returns to its first byte.
    pub(crate) fn is_of_signal(&self) -> bool {
        match self {
            Rule::SignalReturn(_) => true,
            Rule::Complex(complex) => complex.is_signal,
            _ => false,
        }
    }
}

/// The register has the same value in the caller.
pub(crate) const SAME: i8 = i8::MIN;
/// The register has another value in the caller, which is unknown.
pub(crate) const LOST: i8 = i8::MIN + 1;

#[derive(Debug)]
pub(crate) struct Complex {
    cfa: Calculation,
    /// Of registers other than [`Restore::Same`].
    rules: Vec<(Number, Restore)>,
    encoding: Encoding,
    endian: RunTimeEndian,
    pub(crate) return_address: Number,
    /// The frame was made by the kernel for a signal handler.
    pub(crate) is_signal: bool,
}

#[derive(Debug)]
enum Calculation {
    Offset(Number, i64),
    Expression(Box<[u8]>),
}

#[derive(Debug)]
enum Restore {
    Lost,
    Register(Number),
    /// On the stack, at this distance from the CFA.
    At(i64),
    Is(i64),
    AtExpression(Box<[u8]>),
    IsExpression(Box<[u8]>),
    Constant(u64),
}

/// Maximum size of the entry of a function, bytes. It may be interpreted once per address; the largest of
/// 600,000 functions of LLVM, Node, Chromium and rustc has 33 kB.
const MOST_ENTRY: usize = 1 << 16;

/// Maximum size of the common entry of several functions, bytes. It is read for each; usual ones have up to
/// 36.
const MOST_COMMON: u64 = 1 << 10;

/// Maximum number of steps of an expression, about ten in practice. Hostile ones may loop.
const MOST_STEPS: u32 = 100;

impl Complex {
    /// The registers of the caller, with its stack pointer.
    pub(crate) fn apply(
        &self,
        regs: &Registers,
        arch: &Architecture,
        read: &mut impl FnMut(u64) -> Option<u64>,
    ) -> Option<Registers> {
        let cfa = match &self.cfa {
            &Calculation::Offset(base, offset) => regs.get(base)?.checked_add_signed(offset)?,
            Calculation::Expression(expression) => self.evaluate(expression, None, regs, arch, read)?,
        };
        let mut caller = *regs;
        if !self.is_signal {
            caller.keep(arch.kept);
        }
        caller.set(arch.sp, cfa.wrapping_sub(arch.cfa_above_sp));
        for (number, restore) in &self.rules {
            let value = match restore {
                Restore::Lost => None,
                Restore::Register(number) => regs.get(*number),
                Restore::At(distance) => cfa.checked_add_signed(*distance).and_then(&mut *read),
                Restore::Is(distance) => cfa.checked_add_signed(*distance),
                Restore::AtExpression(expression) => {
                    self.evaluate(expression, Some(cfa), regs, arch, read).and_then(&mut *read)
                }
                Restore::IsExpression(expression) => self.evaluate(expression, Some(cfa), regs, arch, read),
                Restore::Constant(value) => Some(*value),
            };
            match value {
                Some(value) => caller.set(*number, value),
                None => caller.forget(*number),
            }
        }
        Some(caller)
    }

    fn evaluate(
        &self,
        expression: &[u8],
        cfa: Option<u64>,
        regs: &Registers,
        arch: &Architecture,
        read: &mut impl FnMut(u64) -> Option<u64>,
    ) -> Option<u64> {
        let mut evaluation = Evaluation::new(Data::new(expression, self.endian), self.encoding);
        evaluation.set_max_iterations(MOST_STEPS);
        if let Some(cfa) = cfa {
            evaluation.set_initial_value(cfa);
        }
        let mut result = evaluation.evaluate();
        loop {
            let next = match result.ok()? {
                EvaluationResult::Complete => break,
                EvaluationResult::RequiresRegister { register, .. } => {
                    Value::Generic(regs.get(arch.place(register.0)?)?)
                }
                EvaluationResult::RequiresMemory { address, size, space: None, .. } => {
                    let word = read(address)?;
                    let size = size.clamp(1, arch.word);
                    let shift = match self.endian {
                        RunTimeEndian::Little => 0,
                        RunTimeEndian::Big => 8 * u32::from(arch.word - size),
                    };
                    let value = Value::Generic(word >> shift & (u64::MAX >> (64 - 8 * u32::from(size))));
                    result = evaluation.resume_with_memory(value);
                    continue;
                }
                _ => return None,
            };
            result = evaluation.resume_with_register(next);
        }
        match evaluation.as_result().last()?.location {
            Location::Address { address } => Some(address),
            _ => None,
        }
    }
}

pub(crate) type Context = UnwindContext<usize>;

#[derive(Debug)]
pub(crate) struct Rules {
    tables: UnwindTables<Bytes>,
    arch: &'static Architecture,
    endian: RunTimeEndian,
    bases: BaseAddresses,
    /// The file has compressed tables that were not expanded.
    pub(crate) lacks_expanded: bool,
    /// The functions of a section without a search table, by address; built on demand.
    eh_frame_index: OnceLock<Index>,
    debug_frame_index: OnceLock<Index>,
}

/// The start address of each function, and the offset of its entry in the section, ascending.
type Index = Vec<(u64, usize)>;

impl Rules {
    pub(crate) fn new(
        tables: UnwindTables<Bytes>,
        arch: &'static Architecture,
        lacks_expanded: bool,
    ) -> Rules {
        let address = |section: Option<Section<'_>>| section.map_or(0, |section| section.address);
        let (text, got) = tables.bases();
        let bases = BaseAddresses::default()
            .set_eh_frame(address(tables.eh_frame()))
            .set_eh_frame_hdr(address(tables.eh_frame_hdr()))
            .set_text(text)
            .set_got(got);
        let endian = if tables.is_big_endian() { RunTimeEndian::Big } else { RunTimeEndian::Little };
        let (eh_frame_index, debug_frame_index) = Default::default();
        Rules { tables, arch, endian, bases, lacks_expanded, eh_frame_index, debug_frame_index }
    }

    /// The rule for the instruction at `offset`, or for a call that ends with this byte; and where it holds.
    pub(crate) fn get(&self, offset: u64, context: &mut Context) -> (Rule, Range<u64>) {
        let alone = offset..offset.saturating_add(1);
        let Some(address) = self.tables.address_of(offset) else { return (Rule::FramePointer, alone) };
        let (found, is_damaged) = self.find(address, context);
        let is_signal = |rule: &Rule| matches!(rule, Rule::Complex(complex) if complex.is_signal);
        // A C library may have no tables for it, or tables without registers.
        let is_possible = found.as_ref().is_none_or(|(rule, _)| is_signal(rule));
        if let Some(frame) = is_possible.then(|| self.tables.signal_return(offset)).flatten() {
            return (Rule::SignalReturn(frame), alone);
        }
        match found {
            Some((rule, range)) => {
                let shift = offset.wrapping_sub(address);
                let start = range.start.wrapping_add(shift);
                (rule, start..start.saturating_add(range.end.saturating_sub(range.start)))
            }
            None if is_damaged => (Rule::FramePointer, alone),
            // So few functions have tables that a missing one does not prove that there is no frame.
            None if self.arch.arch == Arch::Arm => (Rule::Missing, alone),
            None => (Rule::Uncovered, alone),
        }
    }

    /// The rule of the tables, the addresses where it applies, and true if no table is usable.
    fn find(&self, address: u64, context: &mut Context) -> (Option<(Rule, Range<u64>)>, bool) {
        let mut is_damaged = true;
        if let Some(section) = self.tables.eh_frame() {
            let data = Data::new(section.bytes, self.endian);
            let mut eh_frame = EhFrame::from(data);
            eh_frame.set_address_size(self.arch.word);
            eh_frame.set_vendor(self.vendor());
            let entry = self.eh_frame_entry(&eh_frame, data, address);
            is_damaged = entry.is_none();
            let found = entry.and_then(|entry| self.rule(&eh_frame, data, entry, address, context));
            if found.is_some() {
                return (found, false);
            }
        }
        let Some(section) = self.tables.debug_frame() else { return (self.find_exidx(address), is_damaged) };
        let data = Data::new(section.bytes, self.endian);
        let mut debug_frame = DebugFrame::from(data);
        debug_frame.set_address_size(self.arch.word);
        debug_frame.set_vendor(self.vendor());
        let index = self.debug_frame_index.get_or_init(|| index(&debug_frame, data, &self.bases));
        let entry = find(index, address);
        let found = entry.and_then(|entry| self.rule(&debug_frame, data, entry, address, context));
        (found.or_else(|| self.find_exidx(address)), false)
    }

    fn find_exidx(&self, address: u64) -> Option<(Rule, Range<u64>)> {
        let section = self.tables.exidx()?;
        let endian = if self.tables.is_big_endian() { Endian::Big } else { Endian::Little };
        let memory = |address| self.tables.memory(address);
        let (found, range) = exidx::find(section.bytes, section.address, address, endian, memory)?;
        let rule = match found {
            Unwound::Refused => Rule::Refused,
            Unwound::Frame { base, offset, saved } => {
                let complex = Complex {
                    cfa: Calculation::Offset(base, offset),
                    rules: saved.into_iter().map(|(number, at)| (number, Restore::At(at))).collect(),
                    encoding: Encoding { address_size: 4, format: gimli::Format::Dwarf32, version: 1 },
                    endian: self.endian,
                    return_address: self.arch.return_address,
                    is_signal: false,
                };
                complex.simple(self.arch).unwrap_or_else(|| Rule::Complex(Arc::new(complex)))
            }
        };
        Some((rule, range))
    }

    /// The vendor of the instructions: aarch64 code with authenticated return addresses has an extra one.
    fn vendor(&self) -> Vendor {
        if self.arch.arch == Arch::Aarch64 { Vendor::AArch64 } else { Vendor::Default }
    }

    /// The offset of the entry that may cover an address.
    fn eh_frame_entry(&self, eh_frame: &EhFrame<Data<'_>>, data: Data<'_>, address: u64) -> Option<usize> {
        let Some(section) = self.tables.eh_frame_hdr() else {
            return find(self.eh_frame_index.get_or_init(|| index(eh_frame, data, &self.bases)), address);
        };
        let hdr = EhFrameHdr::new(section.bytes, self.endian).parse(&self.bases, self.arch.word).ok()?;
        let table = hdr.table()?;
        let entry = table.lookup(address, &self.bases).ok()?.direct().ok()?;
        // Not by `pointer_to_offset`, which overflows if the table points before the section.
        let offset = entry.checked_sub(hdr.eh_frame_ptr().direct().ok()?)?;
        usize::try_from(offset).ok()
    }

    /// The rule of an entry of `data`, and where it applies; `None` if it does not cover the address.
    fn rule<'a, S: UnwindSection<Data<'a>>>(
        &self,
        section: &S,
        data: Data<'a>,
        entry: usize,
        address: u64,
        context: &mut Context,
    ) -> Option<(Rule, Range<u64>)> {
        let arch = self.arch;
        let common = |section: &S, bases: &_, at| common(section, data, bases, at);
        let entry = section.fde_from_offset(&self.bases, S::Offset::from(entry), common).ok()?;
        if entry.entry_len() > MOST_ENTRY {
            return None;
        }
        let row = entry.unwind_info_for_address(section, &self.bases, context, address).ok()?;
        let bytes = |expression: &UnwindExpression<usize>| {
            Some(expression.get(section).ok()?.0.to_slice().ok()?.into_owned().into_boxed_slice())
        };
        let range = row.start_address()..row.end_address();
        let cfa = match row.cfa() {
            CfaRule::RegisterAndOffset { register, offset } => {
                Calculation::Offset(arch.place(register.0)?, *offset)
            }
            CfaRule::Expression(expression) => Calculation::Expression(bytes(expression)?),
        };
        let mut rules = Vec::new();
        for (register, rule) in row.registers() {
            let Some(register) = arch.place(register.0) else { continue };
            let restore = match rule {
                RegisterRule::SameValue => continue,
                RegisterRule::Offset(distance) => Restore::At(*distance),
                RegisterRule::ValOffset(distance) => Restore::Is(*distance),
                RegisterRule::Register(from) => arch.place(from.0).map_or(Restore::Lost, Restore::Register),
                RegisterRule::Expression(expression) => Restore::AtExpression(bytes(expression)?),
                RegisterRule::ValExpression(expression) => Restore::IsExpression(bytes(expression)?),
                RegisterRule::Constant(value) => Restore::Constant(*value),
                _ => Restore::Lost,
            };
            rules.push((register, restore));
        }
        let is_signal = entry.is_signal_trampoline();
        let return_address = arch.place(entry.cie().return_address_register().0)?;
        let of_return = rules.iter().find(|(register, _)| *register == return_address);
        // A frame without a return address is the outermost, unless it is still in the register of the call.
        if matches!(of_return, Some((_, Restore::Lost))) || of_return.is_none() && arch.call_pushes {
            return Some((Rule::Outermost, range));
        }
        let (encoding, endian) = (entry.cie().encoding(), self.endian);
        let complex = Complex { cfa, rules, encoding, endian, return_address, is_signal };
        Some((complex.simple(arch).unwrap_or_else(|| Rule::Complex(Arc::new(complex))), range))
    }
}

impl Complex {
    /// True if the return address is still in the register of the call.
    pub(crate) fn keeps_return_address(&self, arch: &Architecture) -> bool {
        let is_it = |(number, _): &&(Number, Restore)| *number == self.return_address;
        !self.is_signal
            && self.return_address == arch.return_address
            && !self.rules.iter().any(|rule| is_it(&rule))
    }

    fn simple(&self, arch: &Architecture) -> Option<Rule> {
        let Calculation::Offset(base, offset) = self.cfa else { return None };
        let is_usual = !self.is_signal && self.return_address == arch.return_address;
        let offset = i32::try_from(offset).ok().filter(|_| is_usual)?;
        let word = i64::from(arch.word);
        let mut saved = [SAME; MOST_SAVED];
        for (register, restore) in &self.rules {
            let Some(slot) = arch.saved.iter().position(|saved| saved == register) else {
                // A rule for the stack pointer, which normally follows from the CFA; s390x saves that value.
                if *register == arch.sp && arch.cfa_above_sp == 0 {
                    return None;
                }
                continue;
            };
            saved[slot] = match restore {
                Restore::Lost => LOST,
                Restore::At(distance) if distance % word == 0 => {
                    i8::try_from(distance / word).ok().filter(|&distance| distance > LOST)?
                }
                _ => return None,
            };
        }
        Some(Rule::Simple { base, offset, saved })
    }
}

/// The common entry at this offset of the section. Its length is checked before it is read.
fn common<'a, S: UnwindSection<Data<'a>>>(
    section: &S,
    data: Data<'a>,
    bases: &BaseAddresses,
    at: S::Offset,
) -> gimli::Result<CommonInformationEntry<Data<'a>>> {
    let mut entry = data;
    entry.skip(UnwindOffset::<usize>::into(at))?;
    let (length, _) = entry.read_initial_length()?;
    if length as u64 > MOST_COMMON {
        return Err(gimli::Error::Io);
    }
    section.cie_from_offset(bases, at)
}

fn index<'a, S: UnwindSection<Data<'a>>>(section: &S, data: Data<'a>, bases: &BaseAddresses) -> Index {
    let mut index = Index::new();
    let mut last = None;
    let mut entries = section.entries(bases);
    while let Ok(Some(entry)) = entries.next() {
        let CieOrFde::Fde(entry) = entry else { continue };
        let entry = entry.parse(|section, bases, offset| {
            let at = UnwindOffset::<usize>::into(offset);
            match &last {
                Some((known, cie)) if *known == at => Ok(Clone::clone(cie)),
                _ => {
                    let cie = common(section, data, bases, offset)?;
                    last = Some((at, Clone::clone(&cie)));
                    Ok(cie)
                }
            }
        });
        index.extend(entry.map(|entry| (entry.initial_address(), entry.offset())));
    }
    index.sort_unstable();
    index
}

fn find(index: &Index, address: u64) -> Option<usize> {
    let after = index.partition_point(|&(start, _)| start <= address);
    index.get(after.checked_sub(1)?).map(|&(_, entry)| entry)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::arch::X86_64;

    #[test]
    fn an_endless_expression_is_given_up() {
        let encoding = Encoding { address_size: 8, format: gimli::Format::Dwarf32, version: 1 };
        // DW_OP_skip to itself.
        let cfa = Calculation::Expression(Box::new([0x2f, 0xfd, 0xff]));
        let complex = |cfa, rules| Complex {
            cfa,
            rules,
            encoding,
            endian: RunTimeEndian::Little,
            return_address: 16,
            is_signal: false,
        };
        let endless = complex(cfa, Vec::new());
        assert!(endless.apply(&Registers::UNKNOWN, &X86_64, &mut |_| Some(0)).is_none());
        // DW_OP_breg7 8, DW_OP_deref: the word after the stack pointer.
        let cfa = Calculation::Expression(Box::new([0x77, 8, 0x06]));
        let complex = complex(cfa, vec![(16, Restore::At(-8)), (6, Restore::Lost)]);
        let mut regs = Registers::UNKNOWN;
        regs.set(7, 0x1000);
        regs.set(6, 5);
        regs.set(3, 7);
        let caller = complex.apply(&regs, &X86_64, &mut |address| Some(address + 0x100)).unwrap();
        assert_eq!(
            [7, 16, 6, 3].map(|number| caller.get(number)),
            [Some(0x1108), Some(0x1200), None, Some(7)]
        );
    }
}
