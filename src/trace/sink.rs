//! What a decoder found, as its caller gets it: steps from block to block, and events between them.

use crate::block::Blocks;
use crate::image::Space;
use crate::step::{BlockId, PathId, Step};

/// Takes what happened, in the order in which it was executed.
///
/// A step is called for every block, some hundred million times a second: it should be short, and inlined.
pub trait Sink {
    /// A block was executed.
    fn step(&mut self, blocks: &Blocks, point: &Point, step: Step);

    /// A block was executed, and the next one behind it: the trace tells nothing of its end, so that the next
    /// step belongs to the same piece of code. CoreSight tells of every branch but those in front of a source
    /// address (ETE).
    #[inline(always)]
    fn straight(&mut self, blocks: &Blocks, point: &Point, step: Step) {
        self.step(blocks, point, step);
    }

    /// The steps of a path were executed, those behind its lead at the time `now`.
    ///
    /// A sink that does not have to look at each step can take them at once.
    #[inline(always)]
    fn path(&mut self, blocks: &Blocks, point: &Point, path: PathId) {
        each_step(self, blocks, point, path);
    }

    /// Something other than a step.
    fn event(&mut self, blocks: &Blocks, point: &Point, event: Event);

    /// A packet told the time: `now` of what follows; instructions that are counted to divide the time
    /// between two such packets are counted from 0 again.
    #[inline(always)]
    fn time(&mut self, now: u64) {
        let _ = now;
    }

    /// A packet told how many core cycles code was traced up to the next branch that needs a packet; `exact`
    /// if CYC packets tell them, else they are estimated. Only if the tracer's configuration says that they
    /// are counted.
    #[inline(always)]
    fn cycles(&mut self, total: u64, exact: bool) {
        let _ = (total, exact);
    }

    /// All blocks are about to be dropped, to keep memory bounded: ids of blocks mean nothing afterwards.
    /// This may happen between any two packets, depending on what the decoder did before, so that results
    /// must not depend on it.
    fn forget(&mut self, blocks: &Blocks) {
        let _ = blocks;
    }
}

/// Hands the steps of a path to a sink, one by one.
#[inline(always)]
pub fn each_step<S: Sink + ?Sized>(sink: &mut S, blocks: &Blocks, point: &Point, path: PathId) {
    let (lead, others) = blocks.steps(path).split_at(usize::from(blocks.path(path).lead));
    lead.iter().for_each(|step| sink.step(blocks, point, *step));
    let point = Point { time: point.now, ..*point };
    others.iter().for_each(|step| sink.step(blocks, &point, *step));
}

/// Where the trace was when something happened.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Point {
    /// The time at the last packet that told of the flow up to here: branches that need no packet come with
    /// the time of the packet in front of them. Ticks of the time-stamp counter with Intel PT; 0 if not
    /// known.
    pub time: u64,
    /// The time at the packet that is being read, which tells of the next branch that needs one.
    pub now: u64,
    /// Whose code it is; `None` if it is not known.
    pub space: Option<Space>,
    /// The offset in the trace of the packet that was being read, bytes.
    pub offset: u64,
}

/// What happened between two steps.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
#[non_exhaustive]
pub enum Event {
    /// Tracing began at `ip`: the first instruction to be executed.
    Begin {
        /// Its address.
        ip: u64,
        /// True if that is where a guest goes on, or its host behind it.
        is_exchange: bool,
    },
    /// After a fault the flow is known again from `ip` on. What ran in between is not known.
    Resumed {
        /// The address of the next instruction.
        ip: u64,
    },
    /// Execution was at `ip`; the code in front of it was not decoded.
    Passed {
        /// The address of the next instruction.
        ip: u64,
    },
    /// Tracing ended. The step before it has the last instructions.
    End {
        /// The branch that was executed last, as a system call; or with `asynchronous` the instruction that
        /// would have been next.
        ip: u64,
        /// The branch's block, if a branch ended it.
        block: Option<BlockId>,
        /// Where execution went, if the trace has that: the code there is not traced.
        to: Option<u64>,
        /// Where a guest, or its host behind it, goes on, if the code of both is traced.
        exchange: Option<u64>,
    },
    /// An interrupt or exception: instead of the instruction at `from`, that at `to` was next.
    Interrupt {
        /// The address of the instruction that was not executed.
        from: u64,
        /// The address of the handler, whose first instruction is next.
        to: u64,
        /// True if a transaction was aborted.
        aborts: bool,
    },
    /// The exception that the next [`Event::Interrupt`], [`Event::End`] or system call is (CoreSight).
    Exception {
        /// Its type: 0 reset, 2 a call, 14 and 15 interrupts.
        number: u16,
    },
    /// PTWRITE wrote a value.
    Ptwrite {
        /// The address of the instruction if the trace has it; else where execution was known to be.
        ip: Option<u64>,
        /// True if the trace has the address.
        exact: bool,
        /// 4 or 8 bytes.
        value: u64,
    },
    /// A transaction began or was committed.
    Transaction {
        /// The next instruction.
        ip: Option<u64>,
        /// True if it began.
        inside: bool,
    },
    /// The ratio of the core to the bus clock changed.
    Frequency {
        /// Where execution is, if that is known.
        ip: Option<u64>,
        /// In units of the bus clock, 100 MHz as a rule.
        ratio: u8,
    },
    /// Power states.
    Power {
        /// Where execution was, if known.
        ip: Option<u64>,
        /// True if the trace has the address.
        exact: bool,
        /// What happened.
        what: crate::intel_pt::Power,
    },
    /// An event that interrupts or changes the flow, other than a branch (event trace: CFE).
    Control {
        /// Where execution was, if the trace has that.
        ip: Option<u64>,
        /// 1 an interrupt or exception, 2 the return from one, 3 and 4 system management, 7 and 8 into and
        /// out of a guest.
        kind: u8,
        /// The number of the interrupt or exception.
        vector: u8,
    },
    /// What belongs to the next [`Event::Control`] (EVD).
    ControlData {
        /// 0 the address of a page fault, 1 and 2 the qualification and the reason of a VM exit.
        kind: u8,
        /// Its value.
        payload: u64,
    },
    /// The interrupt flag of the processor has changed.
    InterruptFlag {
        /// The instruction that changed it; `None` if that is the next branch that needs a packet, or the
        /// beginning of tracing.
        ip: Option<u64>,
        /// True if interrupts can come now.
        on: bool,
    },
    /// An item of the next [`Event::Sampled`] (Intel PT: BIP).
    Item {
        /// The group of items that it belongs to (BBP).
        group: u8,
        /// Its number in the group.
        id: u8,
        /// Its value.
        value: u64,
    },
    /// The processor wrote a sample of a counter to the trace (PEBS).
    Sampled {
        /// Where execution was, if known.
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
    /// The trace names the thread that runs, maybe the same as before (CoreSight).
    Context,
    /// A point of synchronization: the trace repeats its state. A trace begins with one.
    Sync {
        /// The address of the next instruction, which is known from here on after a fault and at the
        /// beginning of a trace. `None` if tracing is off.
        ip: Option<u64>,
        /// The offset in the trace.
        offset: u64,
        /// Interrupts can come (Intel PT).
        interrupts: bool,
    },
    /// Something is lost or wrong.
    Fault(Fault),
    /// The trace ends here; more may have been executed (CoreSight).
    Over,
}

/// Something that is lost or wrong in a trace: what ran from there to the next [`Event`] that begins, resumes
/// or synchronizes is not known. The offset and the time are those of the [`Point`].
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub struct Fault {
    /// What is wrong.
    pub reason: Reason,
    /// Up to where execution is known, the address of the next instruction; `None` if it was not known
    /// before.
    pub ip: Option<u64>,
}

/// What may be wrong with a trace, or with the code that it is compared with.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
#[non_exhaustive]
pub enum Reason {
    /// The processor lost packets, as the trace says.
    Overflow,
    /// Bytes that are not a packet.
    BadPacket,
    /// The trace ends within a packet.
    CutPacket,
    /// A packet that cannot be at this place.
    UnexpectedPacket,
    /// A packet lacks the address that is needed there.
    NoAddress,
    /// The code at the fault's address is not known.
    NoCode,
    /// The bytes at the fault's address are not an instruction.
    BadCode,
    /// The code does not have the branch that the trace has there: it is not the code that ran, or the trace
    /// is damaged.
    Mismatch,
    /// A return to the last call, which is not known because something was lost before.
    UnknownReturn,
    /// More code without a packet than any program has: a loop that cannot end.
    Endless,
    /// The processor executed instructions of a set that is not decoded: T32 or A32.
    InstructionSet,
    /// The trace says how many instructions were executed, but not which.
    NoPath,
    /// A guest runs, and it is not known where its code is.
    Guest,
}

impl Reason {
    /// All of them.
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

    /// In words, for a list of counts.
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
            Reason::NoPath => "the trace does not tell which instructions were executed",
            Reason::Guest => "a guest ran whose records the recording lacks (perfx merge adds them)",
        }
    }
}
