//! Collects the functions of a jitdump: each LOAD or MOVE, with its DEBUG_INFO and UNWINDING_INFO records.

use std::collections::HashMap;

use perfx_format::jitdump::{Body, Damage, DebugInfo, Dump, Header, Load, UnwindingInfo};

/// The functions of a jitdump.
#[derive(Clone, Debug)]
pub struct Functions<'a> {
    /// The header of the dump.
    pub header: Header,
    /// The functions, in the order of the dump.
    pub list: Vec<Function<'a>>,
    /// The parts of the dump that could not be read.
    pub damage: Damage,
    /// The number of functions with an impossible address or size, and of MOVEs of unknown functions.
    pub impossible: u64,
}

/// A function at one address, from one time on.
#[derive(Clone, Debug)]
pub struct Function<'a> {
    /// The time at which it was loaded at, or moved to, this address, in the dump's clock.
    pub time: u64,
    /// The process that contains it.
    pub pid: u32,
    /// The address of its first byte.
    pub address: u64,
    /// Its size in bytes, which is not 0; `address + size` does not overflow.
    pub size: u64,
    /// The index by which MOVE records refer to it.
    pub index: u64,
    /// The number of its LOAD record. Moved functions have that of the function they were copied from.
    pub load: u32,
    /// Its name.
    pub name: &'a [u8],
    /// Its machine code; empty if the dump does not contain it.
    pub code: &'a [u8],
    pub(crate) lines: Option<Box<DebugInfo<'a>>>,
    pub(crate) unwinding: Option<Box<UnwindingInfo<'a>>>,
    /// The address at which it was loaded, to which the addresses in `lines` refer, also after a MOVE.
    pub(crate) loaded_at: u64,
}

/// The largest size that is accepted for a function whose code is not in the dump, bytes.
const SIZE_WITHOUT_CODE: u64 = 16 << 20;

/// Longer names are cut to this many bytes, so that they fit in a record of perf.data (64 KiB).
const NAME_MAX: usize = 0xff00;

impl Function<'_> {
    /// The address after its last byte.
    pub fn end(&self) -> u64 {
        self.address + self.size
    }

    /// True if code can be at this address and of this size.
    pub(crate) fn is_possible(&self) -> bool {
        let has_end = self.address.checked_add(self.size).is_some();
        has_end && (!self.code.is_empty() || self.size <= SIZE_WITHOUT_CODE)
    }

    pub(crate) fn is_again(&self, other: &Function<'_>) -> bool {
        let place = |function: &Function<'_>| (function.address, function.size);
        place(self) == place(other) && self.name == other.name && self.code == other.code
    }
}

impl<'a> Functions<'a> {
    /// Collects all functions of a dump.
    pub fn of(dump: &Dump<'a>) -> Functions<'a> {
        let mut functions =
            Functions { header: dump.header, list: Vec::new(), damage: Damage::default(), impossible: 0 };
        let (mut lines, mut unwinding) = (None, None);
        let mut loads = 0;
        // By pid and index: the last loaded function.
        let mut loaded = HashMap::new();
        let mut records = dump.records();
        for record in records.by_ref() {
            match record.body {
                Body::DebugInfo(info) => lines = Some(info),
                Body::UnwindingInfo(info) => unwinding = Some(info),
                Body::Load(load) => {
                    let (lines, unwinding): (Option<DebugInfo<'_>>, _) = (lines.take(), unwinding.take());
                    let lines = lines.filter(|lines| lines.address == load.address);
                    let function = Function {
                        lines: lines.map(Box::new),
                        unwinding: unwinding.map(Box::new),
                        ..Function::of(&load, record.time, loads)
                    };
                    loads += 1;
                    if functions.add(function) {
                        loaded.insert((load.pid, load.index), functions.list.len() - 1);
                    }
                }
                Body::Move(moved) => {
                    let old = loaded.get(&(moved.pid, moved.index)).and_then(|&at| functions.list.get(at));
                    match old.cloned() {
                        Some(old) => {
                            functions.add(Function { time: record.time, address: moved.new_address, ..old });
                        }
                        None => functions.impossible += 1,
                    }
                }
                _ => {}
            }
        }
        functions.damage = records.damage();
        functions
    }

    fn add(&mut self, function: Function<'a>) -> bool {
        // Some writers record functions without code.
        if function.size == 0 {
            return false;
        }
        let is_possible = function.is_possible();
        if is_possible {
            self.list.push(function);
        } else {
            self.impossible += 1;
        }
        is_possible
    }
}

impl<'a> Function<'a> {
    fn of(load: &Load<'a>, time: u64, number: u32) -> Function<'a> {
        let Load { pid, address, size, index, name, code, .. } = *load;
        Function { time, code, index, ..Function::without_code(pid, address, size, name, number) }
    }

    /// A function with only name and address; `load` is its number in the list.
    pub(crate) fn without_code(pid: u32, address: u64, size: u64, name: &'a [u8], load: u32) -> Function<'a> {
        Function {
            time: 0,
            pid,
            address,
            size,
            index: load.into(),
            load,
            name: &name[..name.len().min(NAME_MAX)],
            code: &[],
            lines: None,
            unwinding: None,
            loaded_at: address,
        }
    }
}
