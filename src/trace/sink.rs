//! The interface between a decoder and its caller: steps from block to block, and events between them.

use crate::block::Blocks;
use crate::image::Space;
use crate::step::{BlockId, PathId, Step};

/// Receives steps and events in the order of execution.
///
/// `step` is called for every block, some hundred million times a second: it should be short, and inlined.
pub trait Sink {
    /// A block was executed.
    fn step(&mut self, blocks: &Blocks, point: &Point, step: Step);

    /// Like [`Sink::step`], where the next block follows without a packet: the next step continues the same
    /// straight code. Only before a source address (ETE), the block may end with a branch that is not taken.
    #[inline(always)]
    fn straight(&mut self, blocks: &Blocks, point: &Point, step: Step) {
        self.step(blocks, point, step);
    }

    /// The steps of a path were executed, those after its lead at the time `now`.
    ///
    /// A sink that does not need each step can handle them at once.
    #[inline(always)]
    fn path(&mut self, blocks: &Blocks, point: &Point, path: PathId) {
        each_step(self, blocks, point, path);
    }

    /// Anything other than a step.
    fn event(&mut self, blocks: &Blocks, point: &Point, event: Event);

    /// A packet set the time to `now`; the count of instructions that subdivides the time restarts.
    #[inline(always)]
    fn time(&mut self, now: u64) {
        let _ = now;
    }

    /// A packet gave the total of core cycles in traced code up to the next branch that needs a packet.
    /// `exact` if from CYC packets, else estimated. Called only if the tracer's configuration counts cycles.
    #[inline(always)]
    fn cycles(&mut self, total: u64, exact: bool) {
        let _ = (total, exact);
    }

    /// All blocks are about to be dropped to bound memory: their ids become invalid. This may happen between
    /// any two packets; results must not depend on it.
    fn forget(&mut self, blocks: &Blocks) {
        let _ = blocks;
    }
}

/// Passes the steps of a path to a sink, one by one.
#[inline(always)]
pub fn each_step<S: Sink + ?Sized>(sink: &mut S, blocks: &Blocks, point: &Point, path: PathId) {
    let (lead, others) = blocks.steps(path).split_at(usize::from(blocks.path(path).lead));
    lead.iter().for_each(|step| sink.step(blocks, point, *step));
    let point = Point { time: point.now, ..*point };
    others.iter().for_each(|step| sink.step(blocks, &point, *step));
}

/// The position in the trace at a step or event.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
#[non_exhaustive]
pub struct Point {
    /// The time at the last control-flow packet: branches that need no packet have the time of the preceding
    /// one. Ticks of the time-stamp counter with Intel PT; 0 if unknown.
    pub time: u64,
    /// The time at the current packet, which contains the next branch that needs one.
    pub now: u64,
    /// The address space of the code; `None` if unknown.
    pub space: Option<Space>,
    /// The offset of the current packet in the trace, bytes.
    pub offset: u64,
}

/// An event between two steps.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
#[non_exhaustive]
pub enum Event {
    /// Tracing began.
    Begin {
        /// The address of the first instruction.
        ip: u64,
        /// True if a guest was entered here, or left for its host.
        is_exchange: bool,
    },
    /// The flow is known again after a fault. The code in between is unknown.
    Resumed {
        /// The address of the next instruction.
        ip: u64,
    },
    /// Execution was at `ip`; the code before it was not decoded.
    Passed {
        /// The address of the next instruction.
        ip: u64,
    },
    /// Tracing ended. The step before it has the last instructions.
    End {
        /// The last branch, such as a system call; without a `block`, the instruction that was next.
        ip: u64,
        /// The branch's block, if a branch ended it.
        block: Option<BlockId>,
        /// The target if the trace has it: the code there is not traced.
        to: Option<u64>,
        /// The address at which a guest or its host continues, if both are traced.
        exchange: Option<u64>,
    },
    /// An interrupt or exception: the instruction at `to` was executed instead of that at `from`.
    Interrupt {
        /// The address of the instruction that was not executed.
        from: u64,
        /// The address of the handler, whose first instruction is next.
        to: u64,
        /// True if a transaction was aborted.
        aborts: bool,
    },
    /// The type of the next exception, an [`Event::Interrupt`], [`Event::End`] or system call (CoreSight).
    Exception {
        /// Its type: 0 reset, 2 a call, 14 and 15 interrupts.
        number: u16,
    },
    /// PTWRITE wrote a value.
    Ptwrite {
        /// The address of the instruction if the trace has it; else the last known address.
        ip: Option<u64>,
        /// True if the trace has the address.
        exact: bool,
        /// 4 or 8 bytes.
        value: u64,
    },
    /// A transaction began or was committed.
    Transaction {
        /// The address of the next instruction.
        ip: Option<u64>,
        /// True if it began.
        inside: bool,
    },
    /// The ratio of the core to the bus clock changed.
    Frequency {
        /// The current address, if known.
        ip: Option<u64>,
        /// In units of the bus clock, usually 100 MHz.
        ratio: u8,
    },
    /// The power state changed.
    Power {
        /// The current address, if known.
        ip: Option<u64>,
        /// True if the trace has the address.
        exact: bool,
        /// The change.
        what: crate::intel_pt::Power,
    },
    /// An event that interrupts or changes the flow, other than a branch (event trace: CFE).
    Control {
        /// The current address, if the trace has it.
        ip: Option<u64>,
        /// 1 interrupt or exception, 2 return, 3, 4 system management, 7, 8 entry and exit of a guest.
        kind: u8,
        /// The number of the interrupt or exception.
        vector: u8,
    },
    /// Data of the next [`Event::Control`] (EVD).
    ControlData {
        /// 0 the address of a page fault, 1 and 2 the qualification and the reason of a VM exit.
        kind: u8,
        /// Its value.
        payload: u64,
    },
    /// The interrupt flag of the processor has changed.
    InterruptFlag {
        /// The instruction that changed it; `None` for the next branch with a packet, or if tracing begins.
        ip: Option<u64>,
        /// True if interrupts are enabled now.
        on: bool,
    },
    /// An item of the next [`Event::Sampled`] (Intel PT: BIP).
    Item {
        /// The group of the item (BBP).
        group: u8,
        /// Its number in the group.
        id: u8,
        /// Its value.
        value: u64,
    },
    /// The processor wrote a sample of a counter to the trace (PEBS).
    Sampled {
        /// The current address, if known.
        ip: Option<u64>,
        /// True for a sample of 32-bit code.
        is_32_bit: bool,
    },
    /// A page table was loaded: bits 51-12 of CR3 (Intel PT: PIP).
    PageTable {
        /// The address.
        cr3: u64,
        /// True in a guest (VMX non-root operation).
        guest: bool,
    },
    /// The trace names the current thread, maybe the same as before (CoreSight).
    Context,
    /// A sync point: the trace repeats its state. Every trace begins with one.
    Sync {
        /// The address of the next instruction, known even after a fault; `None` if tracing is off.
        ip: Option<u64>,
        /// The offset in the trace.
        offset: u64,
        /// Interrupts are enabled (Intel PT).
        interrupts: bool,
    },
    /// Data is lost or wrong.
    Fault(Fault),
    /// The trace ends here; more may have been executed (CoreSight).
    Over,
}

/// A loss or an error in a trace: the code executed up to the next [`Event`] that begins, resumes or
/// synchronizes is unknown. The offset and the time are those of the [`Point`].
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
#[non_exhaustive]
pub struct Fault {
    /// The kind of error.
    pub reason: Reason,
    /// The address of the next instruction, up to which execution is known; `None` if it was unknown before.
    pub ip: Option<u64>,
}

/// The kinds of errors in a trace, or in the code that it is matched with.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
#[non_exhaustive]
pub enum Reason {
    /// The processor reported lost packets.
    Overflow,
    /// Bytes that are not a packet.
    BadPacket,
    /// The trace ends inside a packet.
    CutPacket,
    /// A packet that is not allowed here.
    UnexpectedPacket,
    /// A packet lacks a required address.
    NoAddress,
    /// The code at the fault's address is unknown.
    NoCode,
    /// The bytes at the fault's address are not an instruction.
    BadCode,
    /// The code has no branch where the trace has one: another program ran, or the trace is damaged.
    Mismatch,
    /// A return to the last call, which was lost before.
    UnknownReturn,
    /// A loop without a packet that cannot end: more code than any program has between two packets.
    Endless,
    /// The instruction set is not decoded: T32 or A32.
    InstructionSet,
    /// The trace has the number of executed instructions, but not their path.
    NoPath,
    /// A guest runs whose code is unknown.
    Guest,
}

impl Reason {
    /// All reasons.
    pub const ALL: [Reason; 13] = [
        Reason::Overflow,
        Reason::BadPacket,
        Reason::CutPacket,
        Reason::UnexpectedPacket,
        Reason::NoAddress,
        Reason::NoCode,
        Reason::BadCode,
        Reason::Mismatch,
        Reason::UnknownReturn,
        Reason::Endless,
        Reason::InstructionSet,
        Reason::NoPath,
        Reason::Guest,
    ];

    /// A phrase for a list of counts.
    pub fn text(self) -> &'static str {
        match self {
            Reason::Overflow => "the processor lost packets",
            Reason::BadPacket => "bytes that are not a packet",
            Reason::CutPacket => "a packet is cut off",
            Reason::UnexpectedPacket => "a packet at the wrong place",
            Reason::NoAddress => "a packet without its address",
            Reason::NoCode => "the code is not known",
            Reason::BadCode => "the code is not an instruction",
            Reason::Mismatch => "the trace does not match the code",
            Reason::UnknownReturn => "a return to a call that was lost",
            Reason::Endless => "a loop without an end",
            Reason::InstructionSet => "32-bit Arm code",
            Reason::NoPath => "the trace does not show which instructions were executed",
            Reason::Guest => {
                "a guest was running that has no records in the recording (perfx merge adds them)"
            }
        }
    }
}
