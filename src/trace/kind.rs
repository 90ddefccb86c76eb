//! The kinds of instructions that end a block.

/// How a block ends.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub enum Kind {
    /// A conditional branch.
    Conditional,
    /// A jump to a fixed address.
    Jump,
    /// A call of a fixed address.
    Call,
    /// A jump to an address that is known only at run time.
    IndirectJump,
    /// A call of an address that is known only at run time.
    IndirectCall,
    /// A near return.
    Return,
    /// A system call, or a call of the hypervisor.
    SystemCall,
    /// A return from a system call: SYSRET, or AArch64's ERET.
    SystemReturn,
    /// A software interrupt.
    Interrupt,
    /// A return from an interrupt or exception: IRET.
    InterruptReturn,
    /// A far call.
    FarCall,
    /// A far return.
    FarReturn,
    /// A far jump.
    FarJump,
    /// VMLAUNCH or VMRESUME: a guest runs.
    GuestEntry,
    /// Not a branch, but traced like one: AArch64's ISB, and on some processors WFI and WFE.
    Barrier,
    /// No branch: this block reached its maximum length, and the next instruction is in another block.
    Next,
    /// The code after the last instruction is unknown.
    NoCode,
    /// The bytes after the last instruction are not an instruction.
    BadCode,
}

impl Kind {
    /// True for an x86 branch, other than a return, whose target only an address in the trace gives.
    #[inline(always)]
    pub(crate) fn needs_address(self) -> bool {
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

    /// True for calls of any kind.
    pub fn is_call(self) -> bool {
        use Kind::{Call, FarCall, IndirectCall, Interrupt, SystemCall};
        matches!(self, Call | IndirectCall | SystemCall | Interrupt | FarCall)
    }

    /// True for returns from a call or an interrupt.
    pub fn is_return(self) -> bool {
        matches!(self, Kind::Return | Kind::SystemReturn | Kind::InterruptReturn | Kind::FarReturn)
    }
}
