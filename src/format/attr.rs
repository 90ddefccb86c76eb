//! The attr of an event as recorded, with a decoded copy, so that attrs larger than the known struct survive.

use std::borrow::Cow;
use std::fmt;

use crate::Endian;

/// The smallest attr, `PERF_ATTR_SIZE_VER0`, in bytes.
pub const ATTR_SIZE_MIN: usize = 64;

/// The largest attr, bytes: a page, as in the kernel (kernel/events/core.c, perf_copy_attr).
pub const ATTR_SIZE_MAX: usize = 4096;

/// One event of the recording: its `struct perf_event_attr` as recorded, and the ids of its counters.
#[derive(Clone, PartialEq, Eq)]
pub struct Event {
    raw: Vec<u8>,
    attr: Attr,
    /// The ids in the records of this event: one for each CPU and thread.
    pub ids: Vec<u64>,
}

impl Event {
    /// Makes an event from the bytes of an attr of any size. Missing bytes up to 64 decode as zeros.
    pub fn new(raw: Vec<u8>, ids: Vec<u64>, endian: Endian) -> Event {
        let attr = Attr::decode(&raw, endian);
        Event { raw, attr, ids }
    }

    /// Makes an event from the fields of an attr.
    ///
    /// ```
    /// use perfx_format::{Attr, Endian, Event, sample_type};
    ///
    /// let mut attr = Attr::default();
    /// attr.type_ = 1; // software
    /// attr.sample_type = sample_type::IP | sample_type::TID | sample_type::TIME;
    /// let event = Event::made(&attr, vec![1], Endian::Little);
    /// assert_eq!((event.raw().len(), event.attr().size), (64, 64));
    /// ```
    pub fn made(attr: &Attr, ids: Vec<u64>, endian: Endian) -> Event {
        Event::new(attr.encode(endian), ids, endian)
    }

    /// The attr's bytes as recorded.
    pub fn raw(&self) -> &[u8] {
        &self.raw
    }

    /// The decoded attr.
    pub fn attr(&self) -> &Attr {
        &self.attr
    }

    /// Returns the event with its attr's bytes changed by `edit`.
    pub fn edited(&self, endian: Endian, edit: impl FnOnce(&mut Vec<u8>)) -> Event {
        let mut raw = self.raw.clone();
        edit(&mut raw);
        Event::new(raw, self.ids.clone(), endian)
    }

    /// True if the attrs are equal except for their sizes, and the extra bytes of the longer one are zeros.
    pub fn measures_the_same_as(&self, other: &Event) -> bool {
        let (one, other) = (self.raw(), other.raw());
        let common = one.len().min(other.len());
        let zeros = |rest: &[u8]| rest.iter().all(|&byte| byte == 0);
        let same = || one[..4] == other[..4] && one[8..common] == other[8..common];
        common > 8 && same() && zeros(&one[common..]) && zeros(&other[common..])
    }

    /// The attr's bytes for a writer: padded with zeros to at least `size` bytes, and with `attr.size` set to
    /// the length, because readers step by it. Borrowed if nothing has to change.
    pub fn written(&self, size: usize, endian: Endian) -> Cow<'_, [u8]> {
        let size = size.max(self.raw.len());
        let stated = if self.attr.size == 0 { ATTR_SIZE_MIN } else { self.attr.size as usize };
        if stated == size && self.raw.len() == size {
            return Cow::Borrowed(&self.raw);
        }
        let mut raw = self.raw.clone();
        raw.resize(size, 0);
        // The cast is safe: the attr came from a record or a section of this file, so it is far below 4 GiB.
        endian.set_u32(&mut raw, 4, size as u32);
        Cow::Owned(raw)
    }
}

impl fmt::Debug for Event {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Event({} attr bytes, {} ids)", self.raw.len(), self.ids.len())
    }
}

macro_rules! attr_fields {
    ($($at:literal $int:ident $set:ident $name:ident $doc:literal;)*) => {
        /// The decoded fields of `struct perf_event_attr` (include/uapi/linux/perf_event.h). Those that a
        /// short one lacks are 0.
        #[derive(Clone, Copy, PartialEq, Eq, Default, Debug)]
        #[non_exhaustive]
        pub struct Attr {
            $(#[doc = concat!("Byte ", stringify!($at), ": ", $doc)] pub $name: $int,)*
            /// Byte 40: the flag bits, from bit 0 (`disabled`) to bit 39 (`defer_output`), numbered as a
            /// little-endian compiler allocates them.
            pub flags: u64,
        }

        impl Attr {
            /// Decodes the fields that `raw` is long enough for.
            pub fn decode(raw: &[u8], endian: Endian) -> Attr {
                Attr {
                    $($name: endian.$int(raw, $at).unwrap_or(0),)*
                    flags: flags(raw, endian),
                }
            }

            /// Encodes the fields in as few bytes as possible, but at least `size` and at least 64, so that
            /// the oldest perf that can read the attr does. `attr.size` is set to the length.
            pub fn encode(&self, endian: Endian) -> Vec<u8> {
                let mut raw = vec![0; ATTR_SIZE_MAX];
                $(endian.$set(&mut raw, $at, self.$name);)*
                raw[40..48].copy_from_slice(&flag_bytes(self.flags, endian));
                let used = raw.iter().rposition(|&byte| byte != 0).map_or(0, |last| last + 1);
                let size = used.max(self.size as usize).clamp(ATTR_SIZE_MIN, ATTR_SIZE_MAX).next_multiple_of(8);
                raw.truncate(size);
                endian.set_u32(&mut raw, 4, size as u32);
                raw
            }
        }
    };
}

attr_fields! {
    0 u32 set_u32 type_ "PMU type: 0 hardware, 1 software, 2 tracepoint, 3 cache, 4 raw, 5 breakpoint, others are dynamic.";
    4 u32 set_u32 size "Size of the attr in bytes, as its writer set it.";
    8 u64 set_u64 config "The event within its PMU.";
    16 u64 set_u64 sample_period "Period, or frequency in Hz with the `freq` flag.";
    24 u64 set_u64 sample_type "The parts of a sample: see `SampleType`.";
    32 u64 set_u64 read_format "The parts of a counter read.";
    48 u32 set_u32 wakeup_events "Events, or bytes with the `watermark` flag, until the reader is woken.";
    52 u32 set_u32 bp_type "Kind of breakpoint.";
    56 u64 set_u64 config1 "Also bp_addr, kprobe_func, uprobe_path.";
    64 u64 set_u64 config2 "Also bp_len, kprobe_addr, probe_offset.";
    72 u64 set_u64 branch_sample_type "The parts of a branch stack.";
    80 u64 set_u64 sample_regs_user "Mask of the user registers in a sample.";
    88 u32 set_u32 sample_stack_user "Bytes of user stack in a sample.";
    92 u32 set_u32 clockid "Clock of the times, with the `use_clockid` flag.";
    96 u64 set_u64 sample_regs_intr "Mask of the registers at the interrupt in a sample.";
    104 u32 set_u32 aux_watermark "AUX bytes until the reader is woken.";
    108 u16 set_u16 sample_max_stack "Most frames in a call chain.";
    112 u32 set_u32 aux_sample_size "AUX bytes in a sample.";
    116 u32 set_u32 aux_action "Bit 0 start_paused, 1 pause, 2 resume.";
    120 u64 set_u64 sig_data "Data of the signal sent with `sigtrap`.";
    128 u64 set_u64 config3 "More configuration.";
    136 u64 set_u64 config4 "More configuration.";
}

/// The flag word, in which bit 0 is `disabled`. Compilers for big-endian machines allocate bit fields from
/// the other end of each byte, so there the bytes keep their order and the bits of each byte are reversed.
fn flags(raw: &[u8], endian: Endian) -> u64 {
    let value = Endian::Little.u64(raw, 40).unwrap_or(0);
    u64::from_le_bytes(flag_bytes(value, endian))
}

/// Converts flags to the bytes of an attr, or back: reverses the bits of each byte on big-endian machines.
fn flag_bytes(flags: u64, endian: Endian) -> [u8; 8] {
    match endian {
        Endian::Little => flags.to_le_bytes(),
        Endian::Big => flags.to_le_bytes().map(u8::reverse_bits),
    }
}

/// Sets or clears the flag with this bit number in an attr, or returns `None` if the attr is too short.
pub fn set_attr_flag(raw: &mut [u8], bit: u32, value: bool, endian: Endian) -> Option<()> {
    let byte = raw.get_mut(40 + bit as usize / 8)?;
    let mask = match endian {
        Endian::Little => 1 << (bit % 8),
        Endian::Big => 0x80 >> (bit % 8),
    };
    *byte = if value { *byte | mask } else { *byte & !mask };
    Some(())
}

/// Sets the `sample_type` of an attr.
pub fn set_sample_type(raw: &mut [u8], sample_type: u64, endian: Endian) {
    endian.set_u64(raw, 24, sample_type);
}

/// Adds these bits to the `sample_type` of an attr.
pub fn add_to_sample_type(raw: &mut [u8], bits: u64, endian: Endian) {
    if let Some(before) = endian.u64(raw, 24) {
        set_sample_type(raw, before | bits, endian);
    }
}

/// Sets the period of an attr, or its frequency if the `freq` flag is set.
pub fn set_sample_period(raw: &mut [u8], period: u64, endian: Endian) {
    endian.set_u64(raw, 16, period);
}

/// Sets the clock of an attr, as for clock_gettime(2); `None` is perf's own clock.
pub fn set_clockid(raw: &mut [u8], clockid: Option<u32>, endian: Endian) {
    set_attr_flag(raw, 25, clockid.is_some(), endian);
    endian.set_u32(raw, 92, clockid.unwrap_or(0));
}

/// Removes these parts, bits of `sample_type`, from the samples of an attr, and clears the other fields of
/// removed registers, user stacks and AUX data.
pub fn without_parts(raw: &mut [u8], parts: u64, endian: Endian) {
    use crate::sample_type as st;
    if let Some(sample_type) = endian.u64(raw, 24) {
        set_sample_type(raw, sample_type & !parts, endian);
    }
    if parts & st::AUX != 0 {
        endian.set_u32(raw, 112, 0);
        set_attr_flag(raw, 31, false, endian);
    }
    if parts & st::REGS_USER != 0 {
        endian.set_u64(raw, 80, 0);
    }
    if parts & st::STACK_USER != 0 {
        endian.set_u32(raw, 88, 0);
    }
    if parts & st::REGS_INTR != 0 {
        endian.set_u64(raw, 96, 0);
    }
}

/// The contents of the branch stacks of an event, according to its attr.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum BranchStacks {
    /// No branches.
    None,
    /// The last branches that were taken: between two of them, code ran straight on.
    Taken,
    /// Only branches of some kinds, such as calls or those in transactions.
    OfKinds,
    /// The calls that have not returned, without the branches between them (`perf record --call-graph lbr`).
    Calls,
}

impl BranchStacks {
    /// The branch stacks of an attr with this `branch_sample_type`: bit 3 ANY, 4-7, 10, 12 and 13 kinds of
    /// branches, 8 and 9 only branches inside or outside transactions, 11 CALL_STACK.
    pub(crate) fn of(branch_sample_type: u64) -> BranchStacks {
        const ANY: u64 = 1 << 3;
        const KINDS: u64 = 0x37f0;
        const IN_TX: u64 = 1 << 8;
        const NO_TX: u64 = 1 << 9;
        const CALL_STACK: u64 = 1 << 11;
        match branch_sample_type {
            bits if bits & CALL_STACK != 0 => BranchStacks::Calls,
            // Both together exclude nothing.
            bits if (bits & IN_TX != 0) != (bits & NO_TX != 0) => BranchStacks::OfKinds,
            bits if bits & ANY == 0 && bits & KINDS != 0 => BranchStacks::OfKinds,
            _ => BranchStacks::Taken,
        }
    }
}

/// Bit 17 of `attr.branch_sample_type`: a branch stack has the index of its newest branch.
pub const BRANCH_HW_INDEX: u64 = 1 << 17;

/// Adds these parts to the samples of an attr: CALLCHAIN, and BRANCH_STACK with the index of the newest
/// branch. Parts that the samples already have are unchanged.
pub fn with_history_parts(raw: &mut Vec<u8>, parts: u64, endian: Endian) {
    use crate::sample_type as st;
    const BEHIND_BRANCHES: usize = 80;
    let Some(before) = endian.u64(raw, 24) else { return };
    set_sample_type(raw, before | parts & (st::CALLCHAIN | st::BRANCH_STACK), endian);
    if parts & !before & st::BRANCH_STACK != 0 {
        if raw.len() < BEHIND_BRANCHES {
            raw.resize(BEHIND_BRANCHES, 0);
            shorten_attr(raw, BEHIND_BRANCHES, endian);
        }
        endian.set_u64(raw, 72, BRANCH_HW_INDEX);
    }
}

/// Adds user call chains to the samples of an attr; of REGS_USER and STACK_USER removes the parts `left_out`.
pub fn with_user_callchains(raw: &mut [u8], left_out: u64, endian: Endian) {
    set_attr_flag(raw, 22, false, endian);
    without_parts(raw, left_out, endian);
}

/// Clears `config1` and `config2` of an attr: the address of a breakpoint or of a probe.
pub fn clear_address(raw: &mut [u8], endian: Endian) {
    endian.set_u64(raw, 56, 0);
    endian.set_u64(raw, 64, 0);
}

/// Sets the `type` and `config` of an attr.
pub fn set_event(raw: &mut [u8], type_: u32, config: u64, endian: Endian) {
    endian.set_u32(raw, 0, type_);
    endian.set_u64(raw, 8, config);
}

/// Shortens an attr to at most `size` bytes and sets its `size` field to the new length.
pub fn shorten_attr(raw: &mut Vec<u8>, size: usize, endian: Endian) {
    raw.truncate(size);
    let size = raw.len() as u32;
    endian.set_u32(raw, 4, size);
}

/// The part of attrs that a reader knows: the largest size, bytes, and for each field the known bits.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
#[allow(missing_docs, reason = "the names are those of the fields")]
#[non_exhaustive]
pub struct KnownAttr {
    pub size: usize,
    /// The flags after `read_format`, by their bit numbers.
    pub flags: u64,
    pub sample_type: u64,
    pub read_format: u64,
    pub branch_sample_type: u64,
}

impl KnownAttr {
    /// Shortens an attr, and clears unknown bits. Returns true if bytes other than zero were cut off.
    pub fn narrow(&self, raw: &mut Vec<u8>, endian: Endian) -> bool {
        self.clear_bits(raw, endian);
        let cuts = raw.get(self.size..).is_some_and(|rest| rest.iter().any(|&byte| byte != 0));
        shorten_attr(raw, self.size, endian);
        cuts
    }

    pub(crate) fn clear_bits(&self, raw: &mut [u8], endian: Endian) {
        let unknown = !self.sample_type & endian.u64(raw, 24).unwrap_or(0);
        without_parts(raw, unknown, endian);
        if raw.len() >= 48 {
            let known = flags(raw, endian) & self.flags;
            raw[40..48].copy_from_slice(&flag_bytes(known, endian));
        }
        for (at, known) in [(32, self.read_format), (72, self.branch_sample_type)] {
            if let Some(bits) = endian.u64(raw, at) {
                endian.set_u64(raw, at, bits & known);
            }
        }
    }
}

/// The flags of an attr by bit number. Bits 15 and 16 are the two bits of `precise_ip`.
pub const ATTR_FLAGS: &[(u32, &str)] = &[
    (0, "disabled"),
    (1, "inherit"),
    (2, "pinned"),
    (3, "exclusive"),
    (4, "exclude_user"),
    (5, "exclude_kernel"),
    (6, "exclude_hv"),
    (7, "exclude_idle"),
    (8, "mmap"),
    (9, "comm"),
    (10, "freq"),
    (11, "inherit_stat"),
    (12, "enable_on_exec"),
    (13, "task"),
    (14, "watermark"),
    (17, "mmap_data"),
    (18, "sample_id_all"),
    (19, "exclude_host"),
    (20, "exclude_guest"),
    (21, "exclude_callchain_kernel"),
    (22, "exclude_callchain_user"),
    (23, "mmap2"),
    (24, "comm_exec"),
    (25, "use_clockid"),
    (26, "context_switch"),
    (27, "write_backward"),
    (28, "namespaces"),
    (29, "ksymbol"),
    (30, "bpf_event"),
    (31, "aux_output"),
    (32, "cgroup"),
    (33, "text_poke"),
    (34, "build_id"),
    (35, "inherit_thread"),
    (36, "remove_on_exec"),
    (37, "sigtrap"),
    (38, "defer_callchain"),
    (39, "defer_output"),
];

impl Attr {
    /// `type` and `config` of PERF_COUNT_SW_DUMMY, an event that never counts.
    pub const DUMMY: (u32, u64) = (1, 9);

    /// True for an event that has no samples ([`Attr::DUMMY`]).
    pub fn is_dummy(&self) -> bool {
        (self.type_, self.config) == Attr::DUMMY
    }

    /// PERF_TYPE_TRACEPOINT: the raw data of its samples is decoded with the recording's TRACING_DATA.
    pub fn is_tracepoint(&self) -> bool {
        self.type_ == 2
    }

    /// True for PERF_TYPE_HARDWARE and PERF_TYPE_HW_CACHE: the upper half of `config` is a PMU's type, or 0.
    fn is_generic(&self) -> bool {
        matches!(self.type_, 0 | 3)
    }

    /// The type of the PMU of a generic event; `None` if the kernel chooses it.
    pub fn pmu_of_generic(&self) -> Option<u32> {
        Some((self.config >> 32) as u32).filter(|&pmu| self.is_generic() && pmu != 0)
    }

    /// `config`; for a generic event, without its PMU's type.
    pub fn config_on_any_pmu(&self) -> u64 {
        if self.is_generic() { self.config & u64::from(u32::MAX) } else { self.config }
    }

    /// The flags `exclude_user`, `_kernel`, `_hv`, `_host` and `_guest`, for comparison.
    pub fn excluded_modes(&self) -> u64 {
        self.flags & (0b111 << 4 | 0b11 << 19)
    }

    pub(crate) fn with_excluded_modes(&self, excluded: u64) -> Attr {
        Attr { flags: self.flags & !self.excluded_modes() | excluded, ..*self }
    }

    /// PERF_TYPE_BREAKPOINT: `config1` is an address.
    pub fn is_breakpoint(&self) -> bool {
        self.type_ == 5
    }

    /// PERF_COUNT_SW_BPF_OUTPUT: a BPF program makes its samples.
    pub fn is_bpf_output(&self) -> bool {
        self.type_ == 1 && self.config == 10
    }

    /// The value of the flag with this bit number.
    pub fn flag(&self, bit: u32) -> bool {
        self.flags >> bit & 1 == 1
    }

    /// `sample_id_all`: every kernel record ends in a sample_id trailer.
    pub fn sample_id_all(&self) -> bool {
        self.flag(18)
    }

    /// `freq`: `sample_period` is a frequency, and the kernel sets the period of each sample.
    pub fn freq(&self) -> bool {
        self.flag(10)
    }

    /// `aux_output`: the samples are written to the AUX data of the group's leader.
    pub fn aux_output(&self) -> bool {
        self.flag(31)
    }

    /// The requested samples per second; `None` if the event has a period instead.
    pub fn frequency(&self) -> Option<u64> {
        self.freq().then_some(self.sample_period)
    }

    /// The period of all samples; `None` if the kernel sets it for each sample.
    pub fn fixed_period(&self) -> Option<u64> {
        (!self.freq()).then_some(self.sample_period)
    }

    /// `use_clockid`: times are those of the clock `clockid`.
    pub fn use_clockid(&self) -> bool {
        self.flag(25)
    }

    /// `context_switch`: SWITCH records show all switches of the tasks or CPUs of the event.
    pub fn context_switch(&self) -> bool {
        self.flag(26)
    }

    /// `build_id`: MMAP2 records may contain a build-id instead of device and inode.
    pub fn build_id(&self) -> bool {
        self.flag(34)
    }

    /// `precise_ip`, 0 to 3.
    pub fn precise_ip(&self) -> u8 {
        (self.flags >> 15 & 3) as u8
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn flags_of_a_big_endian_attr_are_the_same_bits() {
        let mut little = vec![0; 64];
        Endian::Little.set_u64(&mut little, 40, 1 << 18 | 1 << 34 | 1);
        let mut big = little.clone();
        big[40..48].iter_mut().for_each(|b| *b = b.reverse_bits());
        assert_eq!(Attr::decode(&little, Endian::Little).flags, Attr::decode(&big, Endian::Big).flags);
        assert!(Attr::decode(&big, Endian::Big).build_id());
    }

    #[test]
    fn a_flag_is_read_where_it_was_set() {
        for endian in [Endian::Little, Endian::Big] {
            for &(bit, _) in ATTR_FLAGS {
                let mut raw = vec![0; 64];
                set_attr_flag(&mut raw, bit, true, endian).unwrap();
                assert_eq!(Attr::decode(&raw, endian).flags, 1 << bit);
                set_attr_flag(&mut raw, bit, false, endian).unwrap();
                assert_eq!(raw, [0; 64]);
            }
        }
    }

    #[test]
    fn an_attr_that_is_encoded_is_decoded_again() {
        for endian in [Endian::Little, Endian::Big] {
            let raw: Vec<u8> = (1..=144).collect();
            let mut attr = Attr::decode(&raw, endian);
            attr.size = 144;
            assert_eq!(Attr::decode(&attr.encode(endian), endian), attr);
            let mut small = Attr { type_: 1, flags: 1 << 18, ..Attr::default() };
            assert_eq!(small.encode(endian).len(), 64);
            small.clockid = 1;
            assert_eq!(small.encode(endian).len(), 96);
        }
    }

    #[test]
    fn a_short_attr_decodes_with_zeros() {
        let attr = Attr::decode(&[1, 0, 0, 0, 64], Endian::Little);
        assert_eq!((attr.type_, attr.size, attr.config4), (1, 0, 0));
    }

    /// Between two branches of some kinds, code did not run straight on.
    #[test]
    fn only_a_branch_stack_without_a_filter_holds_all_branches() {
        // USER, ANY, HW_INDEX, ANY and ANY_CALL.
        assert_eq!([0, 1, 1 << 3, 1 << 17, 1 << 3 | 1 << 4].map(BranchStacks::of), [BranchStacks::Taken; 5]);
        // ANY_CALL, USER and ANY_RETURN.
        assert_eq!([1 << 4, 1 | 1 << 5].map(BranchStacks::of), [BranchStacks::OfKinds; 2]);
        // ANY and IN_TX; ANY and NO_TX; both filters exclude nothing.
        assert_eq!([1 << 3 | 1 << 9, 1 << 3 | 1 << 8].map(BranchStacks::of), [BranchStacks::OfKinds; 2]);
        assert_eq!(BranchStacks::of(1 << 3 | 1 << 8 | 1 << 9), BranchStacks::Taken);
        // CALL_STACK.
        assert_eq!([1 << 11, 1 | 1 << 11 | 1 << 17].map(BranchStacks::of), [BranchStacks::Calls; 2]);
    }
}
