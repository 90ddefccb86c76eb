//! Trace units of Arm processors (CoreSight): ETMv4 and ETE. Source: Arm IHI 0064 and IHI 0029.
//!
//! Only AArch64 is decoded: at T32 or A32 instructions, the flow is lost with
//! [`Reason::InstructionSet`](crate::Reason::InstructionSet).

mod decoder;
mod frames;
mod packet;
mod show;
mod speculation;
mod units;
mod visits;

pub use self::decoder::Decoder;
pub use self::frames::{Deformatted, deformat, deformat_with_places};
pub use self::show::{Listed, list};
pub use self::units::{Unit, first_time, units};
pub use self::visits::visits;

use crate::kind::Kind;

/// The kind of the branch at `ip` and its target if that is fixed; `None` for an AArch64 instruction without
/// an atom in the trace. `waits` is [`Config::waits`].
pub fn branch(word: u32, ip: u64, waits: bool) -> Option<(Kind, u64)> {
    crate::a64::branch(word, ip, waits)
}

/// Registers of a trace unit, as Linux reports them.
#[derive(Clone, Copy, PartialEq, Eq, Default, Debug)]
pub struct Registers {
    /// TRCCONFIGR: the enabled features.
    pub config: u64,
    /// TRCIDR0, TRCIDR2 and TRCIDR8: the capabilities of the unit.
    pub id0: u64,
    /// TRCIDR2.
    pub id2: u64,
    /// TRCIDR8.
    pub id8: u64,
}

/// The packet that identifies the process.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum ContextId {
    /// Linux at EL1 writes it to CONTEXTIDR_EL1.
    El1,
    /// Linux at EL2 writes it to CONTEXTIDR_EL2, traced in place of the VMID.
    El2,
}

/// The configuration of a trace unit, as far as decoding depends on it.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Config {
    is_ete: bool,
    /// Indirect branches without an address return to the last call.
    return_stack: bool,
    /// The sizes of a context id and of a VMID.
    context_id_bytes: u8,
    vmid_bytes: u8,
    /// Cycle counts commit elements.
    commits_with_cycles: bool,
    /// The maximum number of elements that are neither committed nor cancelled.
    most_speculative: u32,
    waits: bool,
    context: Option<ContextId>,
}

impl Config {
    /// The configuration of an ETMv4, or of an ETE if `is_ete`.
    pub fn new(registers: &Registers, is_ete: bool) -> Config {
        let Registers { config, id0, id2, id8 } = *registers;
        let has = |register: u64, bit: u32| register >> bit & 1 != 0;
        let size = |code: u64| match code & 0x1f {
            1 => 1,
            2 => 2,
            4 => 4,
            _ => 0,
        };
        Config {
            is_ete,
            return_stack: has(config, 12),
            context_id_bytes: size(id2 >> 5),
            vmid_bytes: size(id2 >> 10),
            commits_with_cycles: !has(id0, 29),
            most_speculative: u32::try_from(id8).unwrap_or(u32::MAX),
            waits: has(id2, 31),
            context: match (has(config, 6), has(config, 7) && has(config, 15)) {
                (_, true) => Some(ContextId::El2),
                (true, false) => Some(ContextId::El1),
                _ => None,
            },
        }
    }

    /// True if WFI and WFE are traced like branches.
    pub fn waits(&self) -> bool {
        self.waits
    }

    /// The source of process ids. If there is one, the spaces of a trace are thread ids, and the switches of
    /// the [`Trace`](crate::Trace) are unused.
    pub fn context(&self) -> Option<ContextId> {
        self.context
    }
}
