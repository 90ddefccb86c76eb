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
    /// A system call, a software interrupt, a far call, a call of the hypervisor.
    FarCall,
    /// Back from one: SYSRET, IRET, a far return, VMLAUNCH.
    FarReturn,
    /// A far jump.
    FarJump,
    /// Not a branch, but traced like one: AArch64's ISB, and WFI and WFE if the processor does so.
    Barrier,
    /// No branch: the next instruction is in another block, because this one would be too long.
    Next,
    /// The code behind the last instruction is not known.
    NoCode,
    /// The bytes behind the last instruction are not an instruction.
    BadCode,
}
