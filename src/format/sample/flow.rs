//! The kind of a decoded sample of a trace: the flags that perf gives it (`PERF_IP_FLAG_*`). No recording of
//! perf contains them; in recordings decoded by perfx for its own use, they are the raw data of samples.

/// The flags of a sample.
#[derive(Clone, Copy, PartialEq, Eq, Default, Debug)]
pub struct FlowFlags(pub u32);

#[allow(missing_docs, reason = "the names are those of perf")]
impl FlowFlags {
    pub const BRANCH: u32 = 1;
    pub const CALL: u32 = 1 << 1;
    pub const RETURN: u32 = 1 << 2;
    pub const CONDITIONAL: u32 = 1 << 3;
    pub const SYSCALL: u32 = 1 << 4;
    pub const ASYNC: u32 = 1 << 5;
    pub const INTERRUPT: u32 = 1 << 6;
    pub const ABORT: u32 = 1 << 7;
    pub const BEGIN: u32 = 1 << 8;
    pub const END: u32 = 1 << 9;
    pub const IN_TRANSACTION: u32 = 1 << 10;
    pub const GUEST_ENTRY: u32 = 1 << 11;
    pub const GUEST_EXIT: u32 = 1 << 12;
    pub const INTERRUPTS_OFF: u32 = 1 << 13;
    pub const TOGGLES_INTERRUPTS: u32 = 1 << 14;
}

const NAMES: [(u32, &str); 14] = [
    (FlowFlags::BRANCH | FlowFlags::CALL, "call"),
    (FlowFlags::BRANCH | FlowFlags::RETURN, "return"),
    (FlowFlags::BRANCH | FlowFlags::CONDITIONAL, "jcc"),
    (FlowFlags::BRANCH, "jmp"),
    (FlowFlags::BRANCH | FlowFlags::CALL | FlowFlags::INTERRUPT, "int"),
    (FlowFlags::BRANCH | FlowFlags::RETURN | FlowFlags::INTERRUPT, "iret"),
    (FlowFlags::BRANCH | FlowFlags::CALL | FlowFlags::SYSCALL, "syscall"),
    (FlowFlags::BRANCH | FlowFlags::RETURN | FlowFlags::SYSCALL, "sysret"),
    (FlowFlags::BRANCH | FlowFlags::ASYNC, "async"),
    (FlowFlags::BRANCH | FlowFlags::CALL | FlowFlags::ASYNC | FlowFlags::INTERRUPT, "hw int"),
    (FlowFlags::BRANCH | FlowFlags::ABORT, "tx abrt"),
    (FlowFlags::BRANCH | FlowFlags::CALL | FlowFlags::GUEST_ENTRY, "vmentry"),
    (FlowFlags::BRANCH | FlowFlags::CALL | FlowFlags::ASYNC | FlowFlags::GUEST_EXIT, "vmexit"),
    (0, ""),
];

impl FlowFlags {
    /// The flags in the raw data of a sample.
    #[inline]
    pub fn of_raw(raw: &[u8], endian: crate::Endian) -> Option<FlowFlags> {
        endian.u32(raw, 0).map(FlowFlags)
    }

    /// The address after the branch in the raw data of its sample, to which a call returns; 0 if unknown.
    #[inline]
    pub fn return_address(raw: &[u8], endian: crate::Endian) -> Option<u64> {
        Some(u64::from(endian.u32(raw, 4)?) | u64::from(endian.u32(raw, 8)?) << 32)
    }

    /// The instructions and core cycles since the previous sample, in its raw data; 0 cycles if unknown.
    pub fn counted(raw: &[u8], endian: crate::Endian) -> Option<(u64, u64)> {
        let word = |at| Some(u64::from(endian.u32(raw, at)?) | u64::from(endian.u32(raw, at + 4)?) << 32);
        Some((word(12)?, word(20)?))
    }

    /// The bytes of the instruction, in the raw data of an Intel PT sample; `None` without room for them.
    pub fn instruction(raw: &[u8]) -> Option<&[u8]> {
        let (len, bytes) = raw.get(28..44)?.split_first()?;
        bytes.get(..usize::from(*len & FlowFlags::LENGTH))
    }

    /// The size of addresses in the code of that instruction, 64, 32 or 16 bits, if it is one of x86.
    pub fn instruction_bits(raw: &[u8]) -> Option<u32> {
        let size = raw.get(28)? >> FlowFlags::LENGTH.count_ones();
        FlowFlags::SIZES.iter().find(|(known, _)| *known == size).map(|(_, bits)| *bits)
    }

    /// The length of an instruction of x86 and the size of its addresses, in bits, as in raw data.
    pub fn length_and_bits(len: u8, bits: u32) -> u8 {
        let size = FlowFlags::SIZES.iter().find(|(_, known)| *known == bits).map_or(0, |(size, _)| *size);
        len & FlowFlags::LENGTH | size << FlowFlags::LENGTH.count_ones()
    }

    /// No instruction is longer than 15 bytes; the bits above are the size of addresses.
    const LENGTH: u8 = 0xf;
    const SIZES: [(u8, u32); 3] = [(1, 64), (2, 32), (3, 16)];

    /// The number of calls that have not returned, in raw data that ends with it.
    pub fn depth(raw: &[u8], endian: crate::Endian) -> Option<u32> {
        endian.u32(raw, raw.len().checked_sub(8)?)
    }

    /// In perf's notation: begin or end of tracing, the kind of branch, and letters for the state: x in a
    /// transaction, D interrupts disabled, t if that changes.
    pub fn text(self) -> String {
        const STATES: [(u32, &str); 3] = [
            (FlowFlags::IN_TRANSACTION, "x"),
            (FlowFlags::INTERRUPTS_OFF, "D"),
            (FlowFlags::TOGGLES_INTERRUPTS, "t"),
        ];
        let states = STATES.iter().filter(|(bit, _)| self.0 & bit != 0);
        let letters: String = states.map(|(_, letter)| *letter).collect();
        let states = STATES.iter().fold(0, |bits, (bit, _)| bits | bit);
        let rest = self.0 & !(FlowFlags::BEGIN | FlowFlags::END | states);
        let edge = match self.0 {
            bits if bits & FlowFlags::BEGIN != 0 => "tr strt ",
            bits if bits & FlowFlags::END != 0 => "tr end  ",
            _ => "",
        };
        let name = NAMES.iter().find(|(bits, _)| *bits == rest).map_or("other", |(_, name)| name);
        match letters.is_empty() {
            true => format!("{edge}{name}"),
            false => format!("{edge}{name:<15}{:>6}", format!("({letters})")),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn flags_have_the_names_of_perf() {
        let text = |bits| FlowFlags(bits).text();
        assert_eq!(text(FlowFlags::BRANCH | FlowFlags::BEGIN), "tr strt jmp");
        assert_eq!(
            text(FlowFlags::BRANCH | FlowFlags::CALL | FlowFlags::SYSCALL | FlowFlags::END),
            "tr end  syscall"
        );
        let jcc = FlowFlags::BRANCH | FlowFlags::CONDITIONAL;
        assert_eq!(text(jcc | FlowFlags::IN_TRANSACTION), "jcc               (x)");
        assert_eq!(text(FlowFlags::INTERRUPTS_OFF), "                  (D)");
        let all = jcc | FlowFlags::IN_TRANSACTION | FlowFlags::INTERRUPTS_OFF | FlowFlags::TOGGLES_INTERRUPTS;
        assert_eq!(text(all), "jcc             (xDt)");
        assert_eq!(text(0), "");
    }
}
