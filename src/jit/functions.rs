//! The functions of a jitdump: each LOAD and MOVE with what the records before it say of it.

use std::collections::HashMap;

use perfx_format::jitdump::{Body, Damage, DebugInfo, Dump, Header, Load, UnwindingInfo};

/// The functions of a jitdump.
#[derive(Clone, Debug)]
pub struct Functions<'a> {
    /// The header of the dump.
    pub header: Header,
    /// In the order of the dump.
    pub list: Vec<Function<'a>>,
    /// What of the dump could not be read.
    pub damage: Damage,
    /// Functions at addresses, or of sizes, that no code has, and MOVE records of functions that were never loaded.
    pub impossible: u64,
}

/// Code at an address from a moment on.
#[derive(Clone, Debug)]
pub struct Function<'a> {
    /// When, of the dump's clock.
    pub time: u64,
    /// The process.
    pub pid: u32,
    /// The first byte.
    pub address: u64,
    /// Bytes; not 0, and `address` and all of it can be added up.
    pub size: u64,
    /// What the dump calls it.
    pub index: u64,
    /// What it is called.
    pub name: &'a [u8],
    /// Its bytes; none where the dump does not have them.
    pub code: &'a [u8],
    pub(crate) lines: Option<Box<DebugInfo<'a>>>,
    pub(crate) unwinding: Option<Box<UnwindingInfo<'a>>>,
    /// Where it was when the dump said its lines.
    pub(crate) loaded_at: u64,
}

/// Code of which the dump holds no bytes is not larger.
const SIZE_WITHOUT_CODE: u64 = 16 << 20;

/// A longer name than the 64 KiB that a record of perf.data can hold helps nobody.
const NAME_MAX: usize = 0xff00;

impl Function<'_> {
    /// The address behind it.
    pub fn end(&self) -> u64 {
        self.address + self.size
    }

    /// The same code under the same name, at the same place.
    pub(crate) fn is_again(&self, other: &Function<'_>) -> bool {
        let place = |function: &Function<'_>| (function.address, function.size);
        place(self) == place(other) && self.name == other.name && self.code == other.code
    }
}

impl<'a> Functions<'a> {
    /// All functions of a dump.
    pub fn of(dump: &Dump<'a>) -> Functions<'a> {
        let mut functions =
            Functions { header: dump.header, list: Vec::new(), damage: Damage::default(), impossible: 0 };
        let (mut lines, mut unwinding) = (None, None);
        // By process and index, which of them was loaded last.
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
                        ..Function::of(&load, record.time)
                    };
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
        // A writer may say that it made nothing.
        if function.size == 0 {
            return false;
        }
        let has_end = function.address.checked_add(function.size).is_some();
        let is_possible = has_end && (!function.code.is_empty() || function.size <= SIZE_WITHOUT_CODE);
        if is_possible {
            self.list.push(function);
        } else {
            self.impossible += 1;
        }
        is_possible
    }
}

impl<'a> Function<'a> {
    fn of(load: &Load<'a>, time: u64) -> Function<'a> {
        let Load { pid, address, size, index, name, code, .. } = *load;
        let name = &name[..name.len().min(NAME_MAX)];
        Function {
            time,
            pid,
            address,
            size,
            index,
            name,
            code,
            lines: None,
            unwinding: None,
            loaded_at: address,
        }
    }
}
