//! What ends a block.

/// How a block ends.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub enum Kind {
    /// A conditional branch.
    Conditional,
    /// A jump to a fixed address.
    Jump,
    /// A call of a fixed address.
    Call,
    /// A jump to an address that only execution tells.
    IndirectJump,
    /// A call of an address that only execution tells.
    IndirectCall,
    /// A near return.
    Return,
    /// A system call, or a call of the hypervisor.
    SystemCall,
    /// Back from one: SYSRET, or AArch64's ERET.
    SystemReturn,
    /// A software interrupt.
    Interrupt,
    /// Back from an interrupt or exception: IRET.
    InterruptReturn,
    /// A far call.
    FarCall,
    /// A far return.
    FarReturn,
    /// A far jump.
    FarJump,
    /// VMLAUNCH or VMRESUME: a guest runs.
    GuestEntry,
    /// Not a branch, but traced like one: AArch64's ISB, and WFI and WFE if the processor does so.
    Barrier,
    /// No branch: the next instruction is in another block, because this one would be too long.
    Next,
    /// The code behind the last instruction is not known.
    NoCode,
    /// The bytes behind the last instruction are not an instruction.
    BadCode,
}

impl Kind {
    /// True for a branch other than a return whose target only an address in the trace tells (x86).
    #[inline(always)]
    pub(crate) fn is_told_by_address(self) -> bool {
        use Kind::{FarCall, FarJump, FarReturn, GuestEntry, IndirectCall, IndirectJump};
        use Kind::{Interrupt, InterruptReturn, SystemCall, SystemReturn};
        matches!(
            self,
            IndirectJump
                | IndirectCall
                | SystemCall
                | SystemReturn
                | Interrupt
                | InterruptReturn
                | FarCall
                | FarReturn
                | FarJump
                | GuestEntry
        )
    }

    /// True if it calls what is at its target.
    pub fn is_call(self) -> bool {
        use Kind::{Call, FarCall, IndirectCall, Interrupt, SystemCall};
        matches!(self, Call | IndirectCall | SystemCall | Interrupt | FarCall)
    }

    /// True if it goes back to where a call or an interrupt was.
    pub fn is_return(self) -> bool {
        matches!(self, Kind::Return | Kind::SystemReturn | Kind::InterruptReturn | Kind::FarReturn)
    }
}
