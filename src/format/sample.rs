//! Reads every part of a SAMPLE record by its event's attr, without copies, allocations or trusted lengths.

mod bits;
mod call_stack;
mod flow;
mod made;
pub mod memory;
pub mod registers;
mod stencil;
pub mod synth;
#[cfg(test)]
mod tests;

use std::fmt;
use std::iter;
use std::ops::Range;

pub use bits::{BranchFlags, DataSrc, branch_kind};
pub use call_stack::CallStack;
pub use flow::FlowFlags;
pub use made::{BRANCH_HW_INDEX, NewSample};
pub use stencil::{Stencil, TemplateFields};

use crate::record::builder::build;
use crate::sample_type as st;
use crate::value::bytes_of;
use crate::{Cursor, Endian, FaultCode, HEADER_SIZE, Layout, Record, RecordType, Result};

/// An array of u64 in the recording's byte order.
#[derive(Clone, Copy, PartialEq, Eq)]
pub struct U64s<'a> {
    bytes: &'a [u8],
    endian: Endian,
}

impl<'a> U64s<'a> {
    /// The u64 in these bytes; an incomplete last one is ignored.
    pub fn new(bytes: &'a [u8], endian: Endian) -> U64s<'a> {
        U64s { bytes: &bytes[..bytes.len() / 8 * 8], endian }
    }

    /// The bytes as recorded.
    pub fn bytes(&self) -> &'a [u8] {
        self.bytes
    }

    /// The number of u64.
    pub fn len(&self) -> usize {
        self.bytes.len() / 8
    }

    /// True if the array is empty.
    pub fn is_empty(&self) -> bool {
        self.bytes.is_empty()
    }

    /// The u64 at this index.
    pub fn get(&self, index: usize) -> Option<u64> {
        self.endian.u64(self.bytes, index.checked_mul(8)?)
    }

    /// The first `count` u64, or all if there are fewer.
    pub fn first(&self, count: usize) -> U64s<'a> {
        let end = count.saturating_mul(8).min(self.bytes.len());
        U64s { bytes: &self.bytes[..end], endian: self.endian }
    }

    /// All u64, in order.
    pub fn iter(&self) -> impl DoubleEndedIterator<Item = u64> + ExactSizeIterator + Clone + use<'a> {
        let endian = self.endian;
        self.bytes.chunks_exact(8).map(move |word| endian.u64(word, 0).unwrap_or_default())
    }
}

/// `[0x1, 0x2]`
impl fmt::Debug for U64s<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_list().entries(self.iter().map(|word| format!("{word:#x}"))).finish()
    }
}

/// An entry of a call chain that is not an address but gives the kind of the following addresses (`enum
/// perf_callchain_context`; all values from -4095 on).
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Marker(pub u64);

impl Marker {
    /// Hypervisor addresses follow.
    pub const HV: Marker = Marker(-32_i64 as u64);
    /// Kernel addresses follow.
    pub const KERNEL: Marker = Marker(-128_i64 as u64);
    /// User addresses follow.
    pub const USER: Marker = Marker(-512_i64 as u64);
    /// The user part is in a later CALLCHAIN_DEFERRED record, whose cookie is the last entry of the chain.
    pub const USER_DEFERRED: Marker = Marker(-640_i64 as u64);
    /// Addresses of a guest follow.
    pub const GUEST: Marker = Marker(-2048_i64 as u64);
    /// Addresses of a guest's kernel follow.
    pub const GUEST_KERNEL: Marker = Marker(-2176_i64 as u64);
    /// User addresses of a guest follow.
    pub const GUEST_USER: Marker = Marker(-2560_i64 as u64);

    /// Marker, name, cpumode of the addresses after it.
    const TABLE: &[(Marker, &str, u16)] = &[
        (Marker::HV, "HV", 3),
        (Marker::KERNEL, "KERNEL", 1),
        (Marker::USER, "USER", 2),
        (Marker::USER_DEFERRED, "USER_DEFERRED", 2),
        (Marker::GUEST, "GUEST", 0),
        (Marker::GUEST_KERNEL, "GUEST_KERNEL", 4),
        (Marker::GUEST_USER, "GUEST_USER", 5),
    ];

    /// The entry as a marker, known or unknown; `None` for an address.
    #[inline]
    pub fn of(entry: u64) -> Option<Marker> {
        (entry >= -4095_i64 as u64).then_some(Marker(entry))
    }

    fn row(self) -> Option<&'static (Marker, &'static str, u16)> {
        Self::TABLE.iter().find(|(marker, ..)| *marker == self)
    }

    /// The name without its `PERF_CONTEXT_` prefix.
    pub fn name(self) -> Option<&'static str> {
        self.row().map(|(_, name, _)| *name)
    }

    /// The cpumode (bits 0-2 of `misc`) of the addresses after it; 0 for an unknown marker and for GUEST.
    pub fn cpumode(self) -> u16 {
        self.row().map_or(0, |(_, _, cpumode)| *cpumode)
    }
}

/// The addresses of a call chain, innermost first, each with its cpumode; markers and the cookie of a
/// deferred chain are left out. `cpumode` is the record's, for addresses before the first marker.
pub fn frames<'a>(chain: U64s<'a>, cpumode: u16) -> impl Iterator<Item = (u16, u64)> + use<'a> {
    frames_of(chain.iter(), cpumode)
}

/// Like [`frames`], for a call chain that is not the recorded one.
pub fn frames_of<E: Iterator<Item = u64>>(
    entries: E,
    mut cpumode: u16,
) -> impl Iterator<Item = (u16, u64)> + use<E> {
    let mut cookie = false;
    entries.filter_map(move |entry| {
        if std::mem::take(&mut cookie) {
            return None;
        }
        let Some(marker) = Marker::of(entry) else { return Some((cpumode, entry)) };
        cpumode = marker.cpumode();
        cookie = marker == Marker::USER_DEFERRED;
        None
    })
}

/// The cpumode of the address that would follow these entries of a call chain; `None` if a cookie follows, or
/// may be among them. `cpumode` is the record's.
pub fn cpumode_after(chain: U64s<'_>, cpumode: u16) -> Option<u16> {
    let mut markers = chain.iter().filter_map(Marker::of);
    markers.try_fold(cpumode, |_, marker| (marker != Marker::USER_DEFERRED).then(|| marker.cpumode()))
}

/// The value of one counter.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Count {
    /// The counter's value.
    pub value: u64,
    /// The event's id, if FORMAT_ID is set.
    pub id: Option<u64>,
    /// The number of lost samples, if FORMAT_LOST is set.
    pub lost: Option<u64>,
}

/// The result of reading a counter, laid out by `attr.read_format`, u64 each. Bit 0 `enabled`, 1 `running`, 2
/// `id`, 4 `lost`, 3 GROUP:
///
/// - without GROUP: value, \[enabled\], \[running\], \[id\], \[lost\];
/// - with GROUP: count, \[enabled\], \[running\], then `count` times value, \[id\], \[lost\].
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Read<'a> {
    /// Time for which the event was enabled, ns.
    pub enabled: Option<u64>,
    /// Time for which the event was counting, ns.
    pub running: Option<u64>,
    /// True if it contains the counters of a whole group instead of one counter.
    pub group: bool,
    read_format: u64,
    counts: U64s<'a>,
    /// Without GROUP the value is not adjacent to its id.
    value: u64,
}

impl<'a> Read<'a> {
    const ENABLED: u64 = 1 << 0;
    const RUNNING: u64 = 1 << 1;
    const ID: u64 = 1 << 2;
    const GROUP: u64 = 1 << 3;
    pub(crate) const LOST: u64 = 1 << 4;

    /// Takes the result from the front of `cursor`; returns `None` and takes nothing if it does not fit.
    pub fn take(cursor: &mut Cursor<'a>, read_format: u64) -> Option<Read<'a>> {
        let group = read_format & Self::GROUP != 0;
        let mut ahead = *cursor;
        // In a group this is the number of counters.
        let value = ahead.u64()?;
        let mut time = |bit| if read_format & bit != 0 { ahead.u64().map(Some) } else { Some(None) };
        let (enabled, running) = (time(Self::ENABLED)?, time(Self::RUNNING)?);
        let words = (read_format & (Self::ID | Self::LOST)).count_ones() as usize + usize::from(group);
        let count = if group { usize::try_from(value).ok()? } else { 1 };
        let counts = U64s::new(ahead.bytes(count.checked_mul(words * 8)?)?, ahead.endian());
        *cursor = ahead;
        Some(Read { enabled, running, group, read_format, counts, value })
    }

    /// Reads only the counters of a sample; `None` if it has none, or if they do not fit in it.
    pub fn of_sample(sample: &Record<'a>, layout: &Layout) -> Option<Read<'a>> {
        let after = sample.bytes().get(layout.sample.size.into()..)?;
        let has_read = layout.sample_type & st::READ != 0 && sample.kind() == RecordType::SAMPLE;
        has_read.then(|| Read::take(&mut Cursor::new(after, sample.endian()), layout.read_format))?
    }

    /// Its size, bytes.
    pub fn size(&self) -> usize {
        let times = (self.read_format & (Self::ENABLED | Self::RUNNING)).count_ones() as usize;
        8 + 8 * times + self.counts.bytes().len()
    }

    /// The words of a result without counts: for the event with this id, or for an empty group.
    pub(crate) fn empty(read_format: u64, id: u64) -> Vec<u64> {
        let has = |bit: u64| read_format & bit != 0;
        let (group, with_id, with_lost) = (has(Self::GROUP), has(Self::ID), has(Self::LOST));
        let times = usize::from(has(Self::ENABLED)) + usize::from(has(Self::RUNNING));
        let mut words = vec![0; 1 + times];
        words.extend((with_id && !group).then_some(id));
        words.extend((with_lost && !group).then_some(0));
        words
    }

    /// The result without the numbers of lost samples: the bytes for a `read_format` without bit LOST.
    pub fn without_lost(&self, endian: Endian) -> Vec<u8> {
        let mut out = endian.bytes_u64(self.value).to_vec();
        let mut put = |word: Option<u64>| out.extend(word.iter().flat_map(|&word| endian.bytes_u64(word)));
        put(self.enabled);
        put(self.running);
        for count in self.counts() {
            put(self.group.then_some(count.value));
            put(count.id);
        }
        out
    }

    /// The counters; exactly one without GROUP.
    pub fn counts(&self) -> impl Iterator<Item = Count> + use<'a> {
        let Read { group, read_format, counts, value, .. } = *self;
        let (with_id, with_lost) = (read_format & Self::ID != 0, read_format & Self::LOST != 0);
        let words = usize::from(group) + usize::from(with_id) + usize::from(with_lost);
        (0..if group { value } else { 1 }).map(move |index| {
            let at = index as usize * words;
            // `take` has checked that they are all there.
            let word = |after| counts.get(at + after).unwrap_or_default();
            let id = usize::from(group);
            Count {
                value: if group { word(0) } else { value },
                id: with_id.then(|| word(id)),
                lost: with_lost.then(|| word(id + usize::from(with_id))),
            }
        })
    }
}

/// A branch: its source, its target, and details from the CPU.
#[derive(Clone, Copy, PartialEq, Eq, Default, Debug)]
pub struct Branch {
    /// Address of the branch.
    pub from: u64,
    /// Address of the branch's target.
    pub to: u64,
    /// Details from the CPU.
    pub flags: BranchFlags,
}

/// The last branches, newest first.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Branches<'a> {
    /// Index of the newest branch in the hardware's buffer; -1 if the CPU does not report it.
    pub hw_idx: Option<u64>,
    /// u64 from, u64 to, u64 flags for each.
    entries: U64s<'a>,
    /// Counter values, a u64 for each branch; the CPU's PMU capabilities give the bits of each counter.
    pub counters: Option<U64s<'a>>,
}

impl<'a> Branches<'a> {
    /// The number of branches.
    pub fn len(&self) -> usize {
        self.entries.len() / 3
    }

    /// True if it has no branches.
    pub fn is_empty(&self) -> bool {
        self.entries.is_empty()
    }

    pub(crate) fn words(&self) -> U64s<'a> {
        self.entries
    }

    /// All branches, newest first.
    pub fn iter(&self) -> impl ExactSizeIterator<Item = Branch> + Clone + use<'a> {
        let entries = self.entries;
        (0..self.len()).map(move |index| {
            let word = |at| entries.get(index * 3 + at).unwrap_or_default();
            Branch { from: word(0), to: word(1), flags: BranchFlags::new(word(2), entries.endian) }
        })
    }
}

#[derive(Clone, Copy, PartialEq, Eq, Debug)]
struct BranchForm {
    hw_idx: bool,
    counters: bool,
}

/// The registers at one moment.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Regs<'a> {
    /// 0 none, 1 a 32-bit task, 2 a 64-bit task: see [`registers`].
    pub abi: u64,
    /// The recorded registers, as bits by their number on the recording machine.
    pub mask: u64,
    /// Their values, in ascending order of the numbers; empty if `abi` is 0.
    pub values: U64s<'a>,
}

impl<'a> Regs<'a> {
    /// Their size in a sample, with that of `abi`.
    fn size(&self) -> usize {
        8 + self.values.bytes().len()
    }

    /// The value of the register with this number, if recorded.
    pub fn get(&self, number: u32) -> Option<u64> {
        let bit = 1u64.checked_shl(number).filter(|bit| self.mask & bit != 0)?;
        self.values.get((self.mask & (bit - 1)).count_ones() as usize)
    }

    /// Number and value of each recorded register.
    pub fn iter(&self) -> impl Iterator<Item = (u32, u64)> + use<'a> {
        let mut left = self.mask;
        let numbers = std::iter::from_fn(move || {
            let number = left.trailing_zeros();
            left &= left.checked_sub(1)?;
            Some(number)
        });
        numbers.zip(self.values.iter())
    }
}

/// A copy of the top of the user stack.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Stack<'a> {
    /// From the stack pointer upwards, in the size that the event requested.
    pub bytes: &'a [u8],
    /// The number of bytes that were copied; later ones are undefined. `None` if there was no stack.
    pub dyn_size: Option<u64>,
}

impl<'a> Stack<'a> {
    /// The bytes that were copied.
    pub fn used(&self) -> &'a [u8] {
        let used = usize::try_from(self.dyn_size.unwrap_or(0)).unwrap_or(usize::MAX);
        &self.bytes[..used.min(self.bytes.len())]
    }
}

/// The cost of the sampled operation.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Weight {
    /// If bit WEIGHT is set.
    Full(u64),
    /// With WEIGHT_STRUCT: bits 0-31, 32-47, 48-63 of a u64. On x86 weight, instruction and retire latency.
    Parts {
        /// Bits 0-31.
        var1_dw: u32,
        /// Bits 32-47.
        var2_w: u16,
        /// Bits 48-63.
        var3_w: u16,
    },
}

/// All parts of a SAMPLE record, in the order of the record (kernel/events/core.c, `perf_output_sample`).
/// Parts that `attr.sample_type` does not include are `None`.
///
/// | bit | part | bytes |
/// |---|---|---|
/// | 16 0 | identifier, ip | u64 each |
/// | 1 | pid, tid | u32 each |
/// | 2 3 6 9 | time (ns), addr, id, stream_id | u64 each |
/// | 7 | cpu | u32, u32 reserved |
/// | 8 | period | u64 |
/// | 4 | read | [`Read`] |
/// | 5 | callchain | u64 count, u64 each |
/// | 10 | raw | u32 size, bytes; 4 + size is a multiple of 8 |
/// | 11 | branches | u64 count, \[u64 hw_idx\], 24 bytes each, \[u64 counters each\] |
/// | 12 | regs_user | u64 abi, unless it is 0: u64 for each bit of `attr.sample_regs_user` |
/// | 13 | stack_user | u64 size, unless it is 0: bytes, u64 dyn_size |
/// | 14 24 | weight | u64 |
/// | 15 17 | data_src, transaction | u64 each |
/// | 18 | regs_intr | as regs_user |
/// | 19 21 22 23 | phys_addr, cgroup, data_page_size, code_page_size (bytes) | u64 each |
/// | 20 | aux | u64 size, bytes |
#[allow(missing_docs, reason = "the names are those of the table above")]
#[derive(Clone, Copy, PartialEq, Eq, Default, Debug)]
#[non_exhaustive]
pub struct Sample<'a> {
    pub identifier: Option<u64>,
    pub ip: Option<u64>,
    pub pid_tid: Option<(u32, u32)>,
    pub time: Option<u64>,
    pub addr: Option<u64>,
    pub id: Option<u64>,
    pub stream_id: Option<u64>,
    pub cpu: Option<u32>,
    pub period: Option<u64>,
    pub read: Option<Read<'a>>,
    pub callchain: Option<U64s<'a>>,
    pub raw: Option<&'a [u8]>,
    pub branches: Option<Branches<'a>>,
    pub regs_user: Option<Regs<'a>>,
    pub stack_user: Option<Stack<'a>>,
    pub weight: Option<Weight>,
    pub data_src: Option<DataSrc>,
    pub transaction: Option<u64>,
    pub regs_intr: Option<Regs<'a>>,
    pub phys_addr: Option<u64>,
    pub cgroup: Option<u64>,
    pub data_page_size: Option<u64>,
    pub code_page_size: Option<u64>,
    pub aux: Option<&'a [u8]>,
    /// Bytes after all parts; empty unless the sample does not match its attr or `is_cut`.
    pub rest: &'a [u8],
    /// The parts from sampled registers of an unknown ABI on are not known: [`Sample::parse_known`].
    pub is_cut: bool,
    /// The number of bytes of the record from `regs_user` on, and after `stack_user`.
    after_user: [usize; 2],
}

#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) struct Stop {
    part: &'static str,
    why: StopReason,
}

#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum StopReason {
    /// A field does not fit in the bytes left.
    Short(usize),
    /// Its stated number of bytes or items (first) does not fit in the bytes left (second).
    Count(u64, usize),
    /// The registers have this unknown ABI, so their size is unknown.
    Abi(u64),
}

impl Stop {
    pub(crate) fn code(&self) -> FaultCode {
        match self.why {
            StopReason::Short(_) => FaultCode::TooSmall,
            StopReason::Count(..) => FaultCode::CountTooLarge,
            StopReason::Abi(_) => FaultCode::RegsAbi,
        }
    }
}

impl fmt::Display for Stop {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let part = self.part;
        match self.why {
            StopReason::Short(left) => write!(f, "`{part}` does not fit in the {} left", bytes_of(left)),
            StopReason::Count(says, left) => {
                write!(f, "`{part}` says {says}, which does not fit in the {} left", bytes_of(left))
            }
            StopReason::Abi(abi) => {
                write!(f, "`{part}` has abi {abi}, which is not known, so the parts from it on can't be read")
            }
        }
    }
}

struct PartReader<'a> {
    cursor: Cursor<'a>,
}

impl<'a> PartReader<'a> {
    fn need<T>(&self, part: &'static str, says: Option<u64>, got: Option<T>) -> Result<T, Stop> {
        let left = self.cursor.rest().len();
        let why = says.map_or(StopReason::Short(left), |says| StopReason::Count(says, left));
        got.ok_or(Stop { part, why })
    }

    #[inline]
    fn u64(&mut self, part: &'static str) -> Result<u64, Stop> {
        let got = self.cursor.u64();
        self.need(part, None, got)
    }

    #[inline]
    fn word(&mut self, asked: bool, part: &'static str) -> Result<Option<u64>, Stop> {
        if asked { self.u64(part).map(Some) } else { Ok(None) }
    }

    #[inline]
    fn u32s(&mut self, part: &'static str) -> Result<(u32, u32), Stop> {
        let mut ahead = self.cursor;
        let got = ahead.u32().zip(ahead.u32());
        let got = self.need(part, None, got)?;
        self.cursor = ahead;
        Ok(got)
    }

    fn bytes(&mut self, part: &'static str, count: u64, size: usize) -> Result<&'a [u8], Stop> {
        let length = usize::try_from(count).ok().and_then(|count| count.checked_mul(size));
        let got = length.and_then(|length| self.cursor.bytes(length));
        self.need(part, Some(count), got)
    }

    #[inline]
    fn u64s(&mut self, part: &'static str, count: u64) -> Result<U64s<'a>, Stop> {
        Ok(U64s::new(self.bytes(part, count, 8)?, self.cursor.endian()))
    }

    fn branches(&mut self, form: BranchForm) -> Result<Branches<'a>, Stop> {
        let count = self.u64("branch_stack")?;
        let hw_idx = if form.hw_idx { Some(self.u64("hw_idx")?) } else { None };
        let entries = U64s::new(self.bytes("branch_stack", count, 24)?, self.cursor.endian());
        let counters = if form.counters { Some(self.u64s("branch_counters", count)?) } else { None };
        Ok(Branches { hw_idx, entries, counters })
    }

    fn regs(&mut self, part: &'static str, mask: u64) -> Result<Regs<'a>, Stop> {
        let start = self.cursor;
        let abi = self.u64(part)?;
        let count = match abi {
            registers::ABI_NONE => 0,
            registers::ABI_32 | registers::ABI_64 => u64::from(mask.count_ones()),
            // Registers with vectors (SIMD) take more than the mask shows.
            _ => {
                self.cursor = start;
                return Err(Stop { part, why: StopReason::Abi(abi) });
            }
        };
        Ok(Regs { abi, mask, values: self.u64s(part, count)? })
    }

    fn stack(&mut self) -> Result<Stack<'a>, Stop> {
        let size = self.u64("stack_user")?;
        let bytes = self.bytes("stack_user", size, 1)?;
        let dyn_size = if size == 0 { None } else { Some(self.u64("dyn_size")?) };
        Ok(Stack { bytes, dyn_size })
    }
}

impl<'a> Sample<'a> {
    /// Reads the whole sample.
    ///
    /// # Errors
    ///
    /// The record is not a sample, is shorter than its parts, or has registers of an unknown ABI. If it is
    /// longer, `rest` is not empty.
    pub fn parse(record: &Record<'a>, layout: &Layout) -> Result<Sample<'a>> {
        Sample::parse_until(record, layout, |_| false)
    }

    /// False if the ABI of its user registers is unknown: then its user stack can't be used, either.
    pub fn has_known_user_parts(&self) -> bool {
        !self.is_cut || self.regs_user.is_some()
    }

    /// Like [`Sample::parse`], up to registers of an unknown ABI: then it [is cut](Sample::is_cut), and
    /// `rest` begins with them.
    ///
    /// # Errors
    ///
    /// The record is not a sample, or is shorter than its parts.
    pub fn parse_known(record: &Record<'a>, layout: &Layout) -> Result<Sample<'a>> {
        Sample::parse_until(record, layout, |stop| matches!(stop.why, StopReason::Abi(_)))
    }

    #[inline(always)]
    fn parse_until(
        record: &Record<'a>,
        layout: &Layout,
        may_stop: impl Fn(Stop) -> bool,
    ) -> Result<Sample<'a>> {
        if record.kind() != RecordType::SAMPLE {
            return Err(record.error("this is not a sample"));
        }
        match Sample::read(record, layout) {
            (sample, None) => Ok(sample),
            (sample, Some(stop)) if may_stop(stop) => Ok(Sample { is_cut: true, ..sample }),
            (_, Some(stop)) => Err(record.error(stop.to_string()).damaged()),
        }
    }

    /// Reads the parts up to the first unreadable one, and returns that; `rest` begins where reading ended.
    /// Inlined, because a sample is expensive to move.
    #[inline(always)]
    pub(crate) fn read(record: &Record<'a>, layout: &Layout) -> (Sample<'a>, Option<Stop>) {
        let mut sample = Sample::default();
        let mut parts = PartReader { cursor: record.cursor() };
        let fixed = sample.fixed(&mut parts, layout);
        let done = fixed.and_then(|()| sample.variable(&mut parts, layout));
        sample.rest = parts.cursor.rest();
        (sample, done.err())
    }

    fn fixed(&mut self, parts: &mut PartReader<'a>, layout: &Layout) -> Result<(), Stop> {
        let has = |bit| layout.sample_type & bit != 0;
        self.identifier = parts.word(has(st::IDENTIFIER), "identifier")?;
        self.ip = parts.word(has(st::IP), "ip")?;
        self.pid_tid = if has(st::TID) { Some(parts.u32s("tid")?) } else { None };
        self.time = parts.word(has(st::TIME), "time")?;
        self.addr = parts.word(has(st::ADDR), "addr")?;
        self.id = parts.word(has(st::ID), "id")?;
        self.stream_id = parts.word(has(st::STREAM_ID), "stream_id")?;
        self.cpu = if has(st::CPU) { Some(parts.u32s("cpu")?.0) } else { None };
        self.period = parts.word(has(st::PERIOD), "period")?;
        Ok(())
    }

    fn variable(&mut self, parts: &mut PartReader<'a>, layout: &Layout) -> Result<(), Stop> {
        let has = |bit| layout.sample_type & bit != 0;
        if has(st::READ) {
            let read = Read::take(&mut parts.cursor, layout.read_format);
            self.read = Some(parts.need("read", None, read)?);
        }
        if has(st::CALLCHAIN) {
            let count = parts.u64("callchain")?;
            self.callchain = Some(parts.u64s("callchain", count)?);
        }
        if has(st::RAW) {
            let size = parts.cursor.u32();
            let size = parts.need("raw", None, size)?;
            self.raw = Some(parts.bytes("raw", size.into(), 1)?);
        }
        if has(st::BRANCH_STACK) {
            self.branches_and_rest(parts, layout)
        } else {
            self.after_branches(parts, layout)
        }
    }

    /// The attr does not determine the layout of a branch stack: the kernel omits `hw_idx` if there are no
    /// branches, and writes counters if any event of the group requests them; perf always writes `hw_idx` in
    /// samples of its own. So the right form is the one that fills the record exactly; the attr's own form is
    /// tried first, and used if none fits.
    fn branches_and_rest(&mut self, parts: &mut PartReader<'a>, layout: &Layout) -> Result<(), Stop> {
        let literal = BranchForm {
            hw_idx: layout.branch_sample_type & BRANCH_HW_INDEX != 0,
            counters: layout.branch_sample_type & 1 << 19 != 0,
        };
        let forms = [
            literal,
            BranchForm { counters: !literal.counters, ..literal },
            BranchForm { hw_idx: !literal.hw_idx, ..literal },
            BranchForm { hw_idx: !literal.hw_idx, counters: !literal.counters },
        ];
        let (before, start) = (*self, parts.cursor);
        let mut attempt = |sample: &mut Self, form| {
            (*sample, parts.cursor) = (before, start);
            sample.branches = Some(parts.branches(form)?);
            sample.after_branches(parts, layout)?;
            Ok(parts.cursor.rest().is_empty())
        };
        for form in forms {
            if attempt(self, form) == Ok(true) {
                return Ok(());
            }
        }
        attempt(self, literal).map(drop)
    }

    fn after_branches(&mut self, parts: &mut PartReader<'a>, layout: &Layout) -> Result<(), Stop> {
        let has = |bit| layout.sample_type & bit != 0;
        self.after_user[0] = parts.cursor.rest().len();
        if has(st::REGS_USER) {
            self.regs_user = Some(parts.regs("regs_user", layout.regs_user)?);
        }
        if has(st::STACK_USER) {
            self.stack_user = Some(parts.stack()?);
        }
        self.after_user[1] = parts.cursor.rest().len();
        if has(st::WEIGHT_STRUCT) {
            let word = parts.u64("weight")?;
            let (var1_dw, var2_w, var3_w) = (word as u32, (word >> 32) as u16, (word >> 48) as u16);
            self.weight = Some(Weight::Parts { var1_dw, var2_w, var3_w });
        } else if has(st::WEIGHT) {
            self.weight = Some(Weight::Full(parts.u64("weight")?));
        }
        self.data_src = parts.word(has(st::DATA_SRC), "data_src")?.map(DataSrc);
        self.transaction = parts.word(has(st::TRANSACTION), "transaction")?;
        if has(st::REGS_INTR) {
            self.regs_intr = Some(parts.regs("regs_intr", layout.regs_intr)?);
        }
        self.phys_addr = parts.word(has(st::PHYS_ADDR), "phys_addr")?;
        self.cgroup = parts.word(has(st::CGROUP), "cgroup")?;
        self.data_page_size = parts.word(has(st::DATA_PAGE_SIZE), "data_page_size")?;
        self.code_page_size = parts.word(has(st::CODE_PAGE_SIZE), "code_page_size")?;
        if has(st::AUX) {
            let size = parts.u64("aux")?;
            self.aux = Some(parts.bytes("aux", size, 1)?);
        }
        Ok(())
    }
}

/// The sample that its event would record without these bits of `sample_type`: see [`LeftOut::parts`].
///
/// # Errors
///
/// The record is not a sample, or is shorter than its parts say.
pub fn without_parts(record: &Record<'_>, layout: &Layout, parts: u64) -> Result<Vec<u8>> {
    without(record, layout, LeftOut { parts, ..LeftOut::default() })
}

/// The parts that [`without`] removes.
#[derive(Clone, Copy, PartialEq, Eq, Default, Debug)]
pub struct LeftOut {
    /// Bits of `sample_type` out of REGS_USER, STACK_USER, WEIGHT_STRUCT, REGS_INTR, PHYS_ADDR, CGROUP,
    /// DATA_PAGE_SIZE, CODE_PAGE_SIZE, AUX, and unknown bits, whose parts are the last.
    pub parts: u64,
    /// The number of lost samples of each counter: bit LOST of `read_format`.
    pub lost: bool,
    /// The counters of branches: bit COUNTERS of `branch_sample_type`.
    pub branch_counters: bool,
}

/// The sample that its event would record without these parts.
///
/// # Errors
///
/// The record is not a sample, or is shorter than its parts say.
pub fn without(record: &Record<'_>, layout: &Layout, left_out: LeftOut) -> Result<Vec<u8>> {
    let sample = Sample::parse(record, layout)?;
    let (body, endian) = (record.body(), record.endian());
    let mut changes: Vec<(Range<usize>, Vec<u8>)> = Vec::new();
    if let Some(read) = sample.read.filter(|_| left_out.lost) {
        let start = usize::from(layout.sample.size).saturating_sub(HEADER_SIZE);
        changes.push((start..start + read.size(), read.without_lost(endian)));
    }
    let [user, after_user] = sample.after_user.map(|after| body.len().saturating_sub(after));
    let counters = sample.branches.and_then(|branches| branches.counters);
    if let Some(counters) = counters.filter(|_| left_out.branch_counters) {
        changes.push((user.saturating_sub(counters.bytes().len())..user, Vec::new()));
    }
    let mut at = user;
    let mut part = |bits: u64, size: usize| {
        let part = at..at + size;
        at = part.end;
        if left_out.parts & layout.sample_type & bits != 0 {
            changes.push((part, Vec::new()));
        }
    };
    let regs = |regs: Option<Regs<'_>>| regs.map_or(0, |regs| regs.size());
    let word = |present: bool| if present { 8 } else { 0 };
    let user_regs = regs(sample.regs_user);
    part(st::REGS_USER, user_regs);
    part(st::STACK_USER, after_user.saturating_sub(user + user_regs));
    part(st::WEIGHT_STRUCT, word(sample.weight.is_some()));
    part(0, word(sample.data_src.is_some()) + word(sample.transaction.is_some()));
    part(st::REGS_INTR, regs(sample.regs_intr));
    part(st::PHYS_ADDR, word(sample.phys_addr.is_some()));
    part(st::CGROUP, word(sample.cgroup.is_some()));
    part(st::DATA_PAGE_SIZE, word(sample.data_page_size.is_some()));
    part(st::CODE_PAGE_SIZE, word(sample.code_page_size.is_some()));
    part(st::AUX, sample.aux.map_or(0, |aux| 8 + aux.len()));
    part(st::UNNAMED, sample.rest.len());
    let mut kept = Vec::with_capacity(body.len());
    let mut done = 0;
    for (range, with) in changes {
        kept.extend_from_slice(body.get(done..range.start).unwrap_or_default());
        kept.extend(with);
        done = range.end;
    }
    kept.extend_from_slice(body.get(done..).unwrap_or_default());
    let without = build(RecordType::SAMPLE, record.misc(), &[&kept], endian);
    without.ok_or_else(|| record.error("it is larger than a record can be"))
}

/// A READ record without the number of lost samples: as its event would record it without bit LOST of
/// `read_format`. `None` if it is not one, or is too short.
///
/// | byte | |
/// |---|---|
/// | 8 | u32 pid, u32 tid |
/// | 16 | [`Read`], then the trailer |
pub fn read_record_without_lost(record: &Record<'_>, layout: &Layout) -> Option<Vec<u8>> {
    let (endian, body) = (record.endian(), record.body());
    let mut cursor = Cursor::new(body.get(8..)?, endian);
    let read = Read::take(&mut cursor, layout.read_format)?;
    let parts = [&body[..8], &read.without_lost(endian), cursor.rest()];
    (record.kind() == RecordType::READ).then(|| build(RecordType::READ, record.misc(), &parts, endian))?
}

/// The range of the raw data of a sample in the record's bytes, without its size. `None` if none fits.
pub fn raw_range(record: &Record<'_>, layout: &Layout) -> Option<Range<usize>> {
    if layout.sample_type & st::RAW == 0 || record.kind() != RecordType::SAMPLE {
        return None;
    }
    let start = match layout.sample_type & st::CALLCHAIN {
        0 => after_read(record, layout)?,
        _ => callchain_range(record, layout)?.end,
    };
    let mut cursor = Cursor::new(record.body().get(start..)?, record.endian());
    let size = usize::try_from(cursor.u32()?).ok()?;
    cursor.bytes(size)?;
    let start = HEADER_SIZE + start + 4;
    Some(start..start + size)
}

/// The range of the branches in the bytes of a sample, without the fields around them; `None` if it has none.
pub(crate) fn branches_range(record: &Record<'_>, layout: &Layout) -> Result<Option<Range<usize>>> {
    let sample = Sample::parse(record, layout)?;
    let Some(branches) = sample.branches else { return Ok(None) };
    let counters = branches.counters.map_or(0, |counters| counters.bytes().len());
    let end = record.bytes().len().saturating_sub(sample.after_user[0] + counters);
    Ok(Some(end.saturating_sub(branches.words().bytes().len())..end))
}

const BEHIND_USER: u64 = st::WEIGHT
    | st::WEIGHT_STRUCT
    | st::DATA_SRC
    | st::TRANSACTION
    | st::REGS_INTR
    | st::PHYS_ADDR
    | st::CGROUP
    | st::DATA_PAGE_SIZE
    | st::CODE_PAGE_SIZE
    | st::AUX
    | st::UNNAMED;

/// The change of the user registers and the user stack of a sample.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum UserParts {
    /// As its event records it without the bits REGS_USER and STACK_USER.
    LeftOut,
    /// Both parts are there, and empty. Its event records both.
    Empty,
    /// As without the bit STACK_USER. Registers of an unknown ABI stay, with everything after them.
    Registers,
    /// As they were.
    Kept,
}

/// The sample with another call chain.
///
/// # Errors
///
/// The sample has no call chain, or would be larger than a record can be. `sample` is the record's.
pub fn with_callchain(
    record: &Record<'_>,
    layout: &Layout,
    sample: &Sample<'_>,
    chain: &[u64],
    user: UserParts,
) -> Result<Vec<u8>> {
    let endian = record.endian();
    let body = record.body();
    let leaves_out_registers = matches!(user, UserParts::LeftOut | UserParts::Empty);
    if leaves_out_registers && !sample.has_known_user_parts() && layout.sample_type & BEHIND_USER != 0 {
        return Err(record.error("its registers are of an unknown ABI, so they can't be left out"));
    }
    let [start, end] = sample.after_user.map(|after| body.len().saturating_sub(after));
    let old = callchain_range(record, layout).ok_or_else(|| record.error("it has no call chain"))?;
    let mut new = Vec::with_capacity(8 * (chain.len() + 1));
    new.extend(endian.bytes_u64(chain.len() as u64));
    chain.iter().for_each(|&entry| new.extend(endian.bytes_u64(entry)));
    let user = match user {
        UserParts::LeftOut => &[],
        // abi 0: no registers; size 0: no stack.
        UserParts::Empty => &[0; 16][..],
        UserParts::Registers => &body[start..sample.regs_user.map_or(end, |regs| start + regs.size())],
        UserParts::Kept => &body[start..end],
    };
    let between = body.get(old.end..start).unwrap_or_default();
    let parts = [&body[..old.start], &new, between, user, &body[end..]];
    let made = build(RecordType::SAMPLE, record.misc(), &parts, endian);
    let made = made.filter(|made| made.len().is_multiple_of(8));
    made.ok_or_else(|| record.error("with its call chain it would not have the size of a record"))
}

/// The sample with a call chain, with the last branches (newest first), or with both. Its event must not
/// record these yet; afterwards its attr must be that of [`with_history_parts`](crate::with_history_parts).
///
/// # Errors
///
/// The record is not a sample, or would be larger than one can be. `sample` is the record's.
pub fn with_history(
    record: &Record<'_>,
    layout: &Layout,
    sample: &Sample<'_>,
    chain: Option<&[u64]>,
    branches: Option<&[Branch]>,
) -> Result<Vec<u8>> {
    let (endian, body) = (record.endian(), record.body());
    let whole = || record.error("it is shorter than its parts say");
    let read = after_read(record, layout).ok_or_else(whole)?;
    let raw = match sample.raw {
        Some(_) => raw_range(record, layout).ok_or_else(whole)?.end - HEADER_SIZE,
        None => callchain_range(record, layout).map_or(read, |chain| chain.end),
    };
    let words = |words: &mut dyn Iterator<Item = u64>| -> Vec<u8> {
        words.flat_map(|word| endian.bytes_u64(word)).collect()
    };
    let chain = chain.map(|chain| words(&mut iter::once(chain.len() as u64).chain(chain.iter().copied())));
    let branches = branches.map(|branches| {
        let each = branches.iter().flat_map(|branch| [branch.from, branch.to, branch.flags.to_word(endian)]);
        words(&mut [branches.len() as u64, 0].into_iter().chain(each))
    });
    let (chain, branches) = (chain.unwrap_or_default(), branches.unwrap_or_default());
    let parts = [&body[..read], &chain, body.get(read..raw).unwrap_or_default(), &branches];
    let rest = body.get(raw..).unwrap_or_default();
    let made = build(RecordType::SAMPLE, record.misc(), &[&parts[..], &[rest]].concat(), endian);
    made.ok_or_else(|| {
        record.error("together with the earlier data, it would be larger than a record can be")
    })
}

/// The call chain of a sample, without parsing the rest; `None` if there is none or it does not fit.
/// [`frames`] yields its addresses.
#[inline]
pub fn callchain<'a>(record: &Record<'a>, layout: &Layout) -> Option<U64s<'a>> {
    let range = callchain_range(record, layout)?;
    Some(U64s::new(record.body().get(range.start + 8..range.end)?, record.endian()))
}

/// The cookie of the CALLCHAIN_DEFERRED record that completes the call chain of a sample.
pub fn deferred_cookie(record: &Record<'_>, layout: &Layout) -> Option<u64> {
    cookie_of(callchain(record, layout)?)
}

/// The cookie of the CALLCHAIN_DEFERRED record that completes this call chain.
pub fn cookie_of(chain: U64s<'_>) -> Option<u64> {
    let last = chain.len().checked_sub(1)?;
    let marker = chain.get(last.checked_sub(1)?)?;
    if marker == Marker::USER_DEFERRED.0 { chain.get(last) } else { None }
}

/// The range of the call chain and its length in the body of a sample.
#[inline]
pub(crate) fn callchain_range(record: &Record<'_>, layout: &Layout) -> Option<Range<usize>> {
    if layout.sample_type & st::CALLCHAIN == 0 || record.kind() != RecordType::SAMPLE {
        return None;
    }
    let start = after_read(record, layout)?;
    let body = record.body();
    let mut cursor = Cursor::new(body.get(start..)?, record.endian());
    let length = usize::try_from(cursor.u64()?).ok()?.checked_mul(8)?;
    cursor.bytes(length)?;
    Some(start..body.len() - cursor.rest().len())
}

#[inline]
fn after_read(record: &Record<'_>, layout: &Layout) -> Option<usize> {
    let body = record.body();
    let start = usize::from(layout.sample.size).checked_sub(HEADER_SIZE)?;
    let mut cursor = Cursor::new(body.get(start..)?, record.endian());
    if layout.sample_type & st::READ != 0 {
        Read::take(&mut cursor, layout.read_format)?;
    }
    Some(body.len() - cursor.rest().len())
}
