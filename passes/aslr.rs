//! `aslr` moves all addresses, to hide the memory layout: mappings, instruction pointers, call chains and
//! branches move together, region by region, so everything still resolves.
//!
//! A region is mapped memory without a gap, in any process, so a child keeps its parent's regions. A key
//! decides the new order of regions, and the new addresses outside them, which move in blocks of 2 MiB. Data
//! that may contain more addresses is left out: registers, stacks, physical addresses, AUX data, changed
//! kernel text, and data unknown to this version of perfx.

use std::borrow::Cow;
use std::collections::BTreeSet;
use std::ops::Range;
use std::sync::Arc;

use clap::Args;
use perfx_format::features::{TracingData, is_probe_pmu, pmu_names};
use perfx_format::names::{Name, rename_record};
use perfx_format::read::Recording;
use perfx_format::record::cpumode::{KERNEL_START, is_kernel};
use perfx_format::record::frames::{change_branches, change_frames};
use perfx_format::record::ksymbol::{Ksymbol, set_ksymbol_address};
use perfx_format::sample::{raw_range, without_parts as sample_without};
use perfx_format::tracepoint::{NamedField, TraceField, TraceFieldKind};
use perfx_format::{
    Attr, ByTracepoint, Endian, Feature, Kinds, Layout, Layouts, Mmap, Record, RecordType, clear_address,
    sample_type as st, set_mmap_place, without_parts,
};
use perfx_pipeline::{
    Begin, Emit, Fork, Level, Needs, OutputForm, Pass, Result, Session, Stage, Survey, bail, counted,
};
use perfx_resolve::pid_in;
use perfx_unwind::has_callers_in_registers;

use crate::scrub::{CALLERS_LOST, Key, LeftOut, OF_TRACES, Scrub, Scrubber, needs};
use crate::support::features::{Fate, renamed};
use crate::support::options::PassOptions;

/// The pass and its options.
#[derive(Args, Clone, Debug, Default)]
pub struct Aslr {
    /// Secret key that decides the new addresses; recordings of one run with the same key can be compared
    /// [default: made from the old addresses]
    #[arg(long, alias = "seed", value_name = "TEXT")]
    key: Option<String>,
}

impl Aslr {
    /// The pass with this key; by default, the key is derived from the old addresses.
    pub fn new(key: Option<String>) -> Aslr {
        Aslr { key }
    }
}

impl PassOptions for Aslr {
    const NAME: &'static str = "aslr";
    const ABOUT: &'static str = "move all addresses, so that the layout of memory stays secret";

    fn pass(self) -> Result<Box<dyn Pass>> {
        Ok(Box::new(self))
    }
}

/// The lower bits of an address do not change.
const PAGE: u64 = perfx_format::PAGE as u64;

/// The unit in which addresses outside all regions move.
const BLOCK: u64 = 1 << 21;

/// The parts of samples that may contain any address.
const PARTS: u64 = st::REGS_USER | st::STACK_USER | st::REGS_INTR | st::PHYS_ADDR | st::AUX | st::UNNAMED;

/// Larger mappings are not real: perf once mapped all addresses above the kernel's start.
const LARGEST: u64 = 1 << 44;

/// The new places for regions of one kind, and for blocks of other addresses.
#[derive(Clone, Copy, Debug)]
struct AddressRoom {
    /// The first new address, as perf inject --aslr chooses it, and the limit.
    regions: (u64, u64),
    blocks: (u64, u64),
}

const USER: AddressRoom = AddressRoom { regions: (1 << 21, 1 << 46), blocks: (1 << 46, 1 << 25) };
const KERNEL: AddressRoom = AddressRoom {
    regions: (0xffff_8000_1000_0000, 0xffff_a000_0000_0000),
    blocks: (0xffff_c000_0000_0000, 1 << 24),
};
const KERNEL_32: AddressRoom =
    AddressRoom { regions: (0x8000_0000, 0xc000_0000), blocks: (0xc000_0000, 1 << 8) };

#[derive(Clone, Copy, PartialEq, Eq, Debug)]
struct Region {
    start: u64,
    end: u64,
    new: u64,
}

#[derive(Clone, Debug)]
struct Regions {
    sorted: Vec<Region>,
    room: AddressRoom,
    key: Key,
}

impl Regions {
    fn new(ranges: &BTreeSet<(u64, u64)>, room: AddressRoom, key: Key) -> (Regions, u64) {
        let mut sorted: Vec<Region> = Vec::new();
        for &(start, end) in ranges {
            match sorted.last_mut() {
                Some(last) if start <= last.end => last.end = last.end.max(end),
                _ => sorted.push(Region { start, end, new: 0 }),
            }
        }
        let (count, mut next) = (sorted.len(), room.regions.0);
        // The sort is stable, so regions with the same number keep their order.
        sorted.sort_by_cached_key(|region| key.number("region", &region.start.to_le_bytes()));
        sorted.retain_mut(|region| {
            let end = next.checked_add(region.end - region.start).filter(|&end| end <= room.regions.1);
            region.new = next;
            next = end.map_or(next, |end| end + PAGE);
            end.is_some()
        });
        sorted.sort_by_key(|region| region.start);
        let without = (count - sorted.len()) as u64;
        (Regions { sorted, room, key }, without)
    }

    fn region(&self, address: u64) -> Option<&Region> {
        let next = self.sorted.partition_point(|region| region.start <= address);
        // The end is included, for return addresses and symbols there.
        self.sorted.get(next.checked_sub(1)?).filter(|region| address <= region.end)
    }

    fn known(&self, address: u64) -> Option<u64> {
        self.region(address).map(|region| region.new + (address - region.start))
    }

    fn other(&self, address: u64) -> u64 {
        let (first, count) = self.room.blocks;
        let block = self.key.number("block", &(address / BLOCK).to_le_bytes()) % count;
        first + block * BLOCK + address % BLOCK
    }
}

#[derive(Clone, Debug)]
struct Moves {
    user: Regions,
    kernel: Regions,
}

impl Moves {
    /// The new address; 0 stays, because it is not an address.
    fn address(&self, address: u64, of_kernel: bool) -> u64 {
        if address == 0 {
            return 0;
        }
        let (first, second) = if of_kernel { (&self.kernel, &self.user) } else { (&self.user, &self.kernel) };
        let known = first.known(address).or_else(|| second.known(address));
        known.unwrap_or_else(|| {
            if of_kernel || address >= KERNEL_START {
                self.kernel.other(address)
            } else {
                self.user.other(address)
            }
        })
    }

    fn may_be(&self, number: u64) -> bool {
        let known = || self.user.region(number).is_some() || self.kernel.region(number).is_some();
        // Small numbers below 0 are errors. Memory of programs is far above 1 TiB.
        let high = (KERNEL_START..-4096_i64 as u64).contains(&number);
        high || (1 << 40..1 << 52).contains(&number) || number >= 1 << 32 && known()
    }
}

/// The capacity of [`Recent`] in addresses, as a power of two: 64 KiB each for users and kernels.
const RECENT_BITS: u32 = 12;

/// A cache of moved addresses, one slot each: samples of a thread share most of their call chains.
struct Recent(Box<[[(u64, u64); 1 << RECENT_BITS]; 2]>);

impl Default for Recent {
    fn default() -> Recent {
        // Address 0 must stay 0 in the cache, too.
        Recent(Box::new([[(0, 0); 1 << RECENT_BITS]; 2]))
    }
}

impl Recent {
    fn address(&mut self, moves: &Moves, address: u64, of_kernel: bool) -> u64 {
        // Fibonacci hashing: the upper bits of the product depend on all bits of the address.
        let place = address.wrapping_mul(0x9e37_79b9_7f4a_7c15) >> (u64::BITS - RECENT_BITS);
        let (old, new) = &mut self.0[usize::from(of_kernel)][place as usize];
        if *old != address {
            (*old, *new) = (address, moves.address(address, of_kernel));
        }
        *new
    }
}

#[derive(Default)]
struct Gather {
    pass: Aslr,
    user: BTreeSet<(u64, u64)>,
    kernel: BTreeSet<(u64, u64)>,
    too_large: u64,
    /// True if a process wrote a jitdump, or ran code in memory without a file.
    has_jit: bool,
}

struct Plan {
    moves: Moves,
    /// For each tracepoint, the fields of its raw data; raw data of other events is unknown.
    raw: ByTracepoint<RawFields>,
    probes: BTreeSet<u32>,
    cuts_callers: bool,
}

struct RawFields {
    pointers: Vec<TraceField>,
    /// The offsets of 8-byte numbers that touch no harmless field. A number may span two adjacent fields.
    suspect: Vec<Range<usize>>,
}

/// The ascending offsets of 8-byte numbers that do not touch these fields.
fn between(mut fields: Vec<TraceField>) -> Vec<Range<usize>> {
    fields.sort_unstable_by_key(|field| field.offset);
    let mut start = 0;
    let mut ranges = Vec::with_capacity(fields.len() + 1);
    for TraceField { offset, size } in fields {
        ranges.push(start..offset.saturating_sub(7));
        // Numbers are checked at multiples of 4.
        start = start.max(offset.saturating_add(size).div_ceil(4).saturating_mul(4));
    }
    ranges.push(start..usize::MAX);
    ranges.retain(|range| !range.is_empty());
    ranges
}

#[derive(Clone, Default, Debug)]
struct AslrCounts {
    features: BTreeSet<Feature>,
    cut: u64,
    raw: u64,
}

struct Move {
    plan: Arc<Plan>,
    recent: Recent,
    buffer: Vec<u8>,
    done: AslrCounts,
}

impl Pass for Aslr {
    fn name(&self) -> &'static str {
        Aslr::NAME
    }

    fn needs(&self, _input: &Recording) -> Needs {
        needs(vec![Kinds::CODE])
    }

    fn start(self: Box<Self>, _input: &Recording) -> Stage {
        Stage::survey(Gather { pass: *self, ..Gather::default() })
    }
}

impl Gather {
    fn add(&mut self, start: u64, len: u64, of_kernel: bool) {
        let first = start & !(PAGE - 1);
        let end = start.checked_add(len).and_then(|end| end.checked_next_multiple_of(PAGE));
        let range = end.map(|end| (first, end)).filter(|(start, end)| len > 0 && end - start <= LARGEST);
        match range {
            Some(range) if of_kernel => drop(self.kernel.insert(range)),
            Some(range) => drop(self.user.insert(range)),
            None => self.too_large += u64::from(len > 0),
        }
    }
}

impl Survey for Gather {
    fn record(&mut self, record: &Record<'_>, layouts: &Layouts) -> Result<()> {
        if let Some(mmap) = Mmap::of(record) {
            let name = mmap.name(layouts.trailer_size(record));
            self.has_jit |= pid_in(name).is_some() || mmap.is_code() && name.starts_with(b"//anon");
            self.add(mmap.start(), mmap.len(), mmap.is_of_kernel());
        } else if let Some(symbol) = Ksymbol::of(record) {
            self.add(symbol.address, symbol.length.into(), true);
        }
        Ok(())
    }

    fn end(self, _session: &mut Session) -> Result<Stage> {
        Ok(Stage::begin(move |begin| {
            if begin.form == OutputForm::DirectoryData {
                bail!(
                    "{}: the output would have the files beside the records, such as the kernel's symbols with their \
                     addresses: give --to file",
                    begin.name
                );
            }
            Ok(Scrubber::stage(self.begin(begin), begin))
        }))
    }
}

impl Fork for Gather {
    fn fork(&self) -> Gather {
        Gather { pass: self.pass.clone(), ..Gather::default() }
    }

    fn absorb(&mut self, later: Gather) {
        self.user.extend(later.user);
        self.kernel.extend(later.kernel);
        self.too_large += later.too_large;
        self.has_jit |= later.has_jit;
    }
}

impl Gather {
    fn begin(self, session: &mut Begin<'_>) -> Move {
        let key = self.pass.key.as_deref().map_or_else(|| self.own_key(), Key::of_text);
        let room = if self.kernel.iter().all(|(_, end)| *end <= 1 << 32) && !self.kernel.is_empty() {
            KERNEL_32
        } else {
            KERNEL
        };
        let (user, no_room) = Regions::new(&self.user, USER, key);
        let (kernel, none_either) = Regions::new(&self.kernel, room, key);
        let too_large = self.too_large + no_room + none_either;
        if too_large > 0 {
            let mappings = counted(too_large, "mapping is", "mappings are");
            session.report.say(Level::Warning, format!("{mappings} too large to move as a whole"));
        }
        if self.has_jit {
            let what = "a process ran code without a file: jitdumps and perf maps have its old addresses, so its names are \
                        found only if perfx inject --jit has run before";
            session.report.say(Level::Warning, what);
        }
        let regions = counted(user.sorted.len() as u64, "region", "regions");
        let what = format!("moved {regions} of programs and {} of kernels", kernel.sorted.len());
        session.report.say(Level::Info, what);
        let plan = Arc::new(Plan::new(Moves { user, kernel }, session));
        Move { plan, recent: Recent::default(), buffer: Vec::new(), done: AslrCounts::default() }
    }

    fn own_key(&self) -> Key {
        let mut key = Key::default();
        for (start, end) in self.user.iter().chain(&self.kernel) {
            key.add([*start, *end].map(u64::to_le_bytes).as_flattened());
        }
        key
    }
}

/// A name, or list of names, without the addresses of breakpoints.
fn without_address(name: Name<'_>) -> Option<Vec<u8>> {
    const BEFORE: &[u8] = b"mem:0x";
    let (mut new, mut rest) = (Vec::new(), name.text);
    while let Some(at) = rest.windows(BEFORE.len()).position(|window| window == BEFORE) {
        let (before, address) = rest.split_at(at + BEFORE.len());
        let digits = address.iter().take_while(|byte| byte.is_ascii_hexdigit()).count();
        new.extend([before, b"0"].concat());
        rest = &address[digits..];
    }
    (!new.is_empty()).then(|| [&new, rest].concat())
}

/// Replaces possible addresses in a word of a command line by 0: after `0x`, numbers of more than four
/// digits, as in the filters of hardware traces; elsewhere, numbers of a suspicious size.
fn without_addresses(word: &[u8], moves: &Moves) -> Vec<u8> {
    let mut new = Vec::with_capacity(word.len());
    for part in word.chunk_by(|one, other| one.is_ascii_alphanumeric() == other.is_ascii_alphanumeric()) {
        let text = str::from_utf8(part).unwrap_or_default();
        let behind_0x = text.strip_prefix("0x").or(text.strip_prefix("0X"));
        let hex = u64::from_str_radix(behind_0x.unwrap_or(text), 16);
        let may_be = |number: Result<u64, _>| number.is_ok_and(|number| moves.may_be(number));
        match behind_0x {
            Some(digits) if digits.len() > 4 && hex.is_ok() => new.extend(b"0x0"),
            None if may_be(hex) || may_be(text.parse()) => new.extend(b"0"),
            _ => new.extend(part),
        }
    }
    new
}

impl Plan {
    fn new(moves: Moves, session: &Session) -> Plan {
        let endian = session.endian;
        let section = |feature| session.feature(feature).map(|section| &section[..]).unwrap_or_default();
        let is_pointer = |field: &NamedField<'_>| {
            let named = [
                "ip", "addr", "address", "caller", "parent_ip", "function", "call_site", "__probe_ip",
                "__probe_func",
            ];
            field.kind == TraceFieldKind::Pointer || named.contains(&field.name)
        };
        // Too short for an address, common to all tracepoints, or the name of a task.
        let is_harmless = |named @ NamedField { name, field, kind, .. }: &NamedField<'_>| match kind {
            _ if named.is_common() => true,
            TraceFieldKind::Numbers => field.size < 8,
            TraceFieldKind::Bytes => name.ends_with("comm"),
            TraceFieldKind::Pointer | TraceFieldKind::Located { .. } => false,
        };
        let raw = ByTracepoint::new(&session.events, session.features(), endian, |format| {
            let pointers = format.fields().filter(is_pointer).map(|field| field.field).collect();
            let harmless = format.fields().filter(|field| !is_pointer(field) && is_harmless(field));
            RawFields { pointers, suspect: between(harmless.map(|field| field.field).collect()) }
        });
        let pmus = pmu_names(section(Feature::PMU_MAPPINGS), endian).unwrap_or_default().into_iter();
        let probes = pmus.filter(|(_, pmu)| is_probe_pmu(pmu)).map(|(number, _)| number).collect();
        Plan {
            raw,
            moves,
            probes,
            cuts_callers: has_callers_in_registers(&session.events, session.features(), session.endian),
        }
    }

    /// Removes the dropped parts of samples from an attr, and the address of a breakpoint or probe.
    fn change_attr(&self, raw: &mut [u8], endian: Endian) {
        let attr = Attr::decode(raw, endian);
        // Unknown bits are cleared and counted later, with the other bytes in no field.
        without_parts(raw, PARTS & !st::UNNAMED, endian);
        if attr.is_breakpoint() || self.probes.contains(&attr.type_) {
            clear_address(raw, endian);
        }
    }

    fn clear_raw(&self, raw: &mut [u8], event: Option<usize>, endian: Endian) {
        let Some(fields) = event.and_then(|event| self.raw.get(event)) else {
            return raw.fill(0);
        };
        for TraceField { offset, size } in &fields.pointers {
            let end = offset.saturating_add(*size);
            raw.get_mut(*offset..end).unwrap_or_default().fill(0);
        }
        for range in &fields.suspect {
            for at in (range.start..range.end.min(raw.len())).step_by(4) {
                if endian.u64(raw, at).is_some_and(|number| self.moves.may_be(number)) {
                    raw[at..at + 8].fill(0);
                }
            }
        }
    }

    fn record(&self, record: Record<'_>, out: &mut Emit<'_>) -> Result<()> {
        let (moves, endian, layouts) = (&self.moves, record.endian(), out.layouts());
        match record.kind() {
            RecordType::CALLCHAIN_DEFERRED => {
                let mut bytes = Cow::Borrowed(record.bytes());
                change_frames(&record, None, &mut bytes, |_, address| Some(moves.address(address, false)));
                out.replace(&record, &bytes)
            }
            RecordType::MMAP | RecordType::MMAP2 => {
                let Some(mmap) = Mmap::of(&record) else { return out.keep(record) };
                let of_kernel = mmap.is_of_kernel();
                let name = mmap.name(layouts.trailer_size(&record));
                let is_file = name.starts_with(b"/") && !name.starts_with(b"//");
                let pgoff = match mmap.pgoff() {
                    // For a file or shared memory, pgoff is an offset in it. For a kernel's file, it is an address.
                    pgoff if is_file && !(of_kernel && pgoff >= KERNEL_START) => pgoff,
                    pgoff => moves.address(pgoff, of_kernel),
                };
                let start = moves.address(mmap.start(), of_kernel);
                out.patch(record, |bytes| {
                    set_mmap_place(bytes, start, pgoff, endian);
                })
            }
            RecordType::KSYMBOL => {
                let Some(symbol) = Ksymbol::of(&record) else { return out.keep(record) };
                let address = moves.address(symbol.address, true);
                out.patch(record, |bytes| {
                    set_ksymbol_address(bytes, address, endian);
                })
            }
            RecordType::EVENT_UPDATE | RecordType::HEADER_EVENT_TYPE => {
                out.replace_if(record, rename_record(&record, layouts, without_address)?)
            }
            _ => out.keep(record),
        }
    }
}

impl Scrub for Move {
    fn keeps_unknown(&self) -> bool {
        false
    }

    fn drops(&self, kind: RecordType) -> bool {
        OF_TRACES.contains(kind)
    }

    fn name(&mut self, name: Name<'_>) -> Option<Vec<u8>> {
        without_address(name)
    }

    fn attr(&mut self, raw: &mut [u8], endian: Endian) {
        self.plan.change_attr(raw, endian);
    }

    fn fate(&mut self, feature: Feature) -> Option<Fate> {
        [Feature::BPF_PROG_INFO, Feature::BPF_BTF, Feature::AUXTRACE].contains(&feature).then(|| {
            self.done.features.insert(feature);
            Fate::Goes
        })
    }

    fn rule(&mut self, feature: Feature, section: &[u8], endian: Endian) -> Option<Option<Vec<u8>>> {
        match feature {
            Feature::TRACING_DATA => {
                Some(TracingData::read(section).and_then(|data| data.without_texts().write()))
            }
            Feature::CMDLINE => {
                let moves = &self.plan.moves;
                Some(renamed(feature, section, endian, |word| Some(without_addresses(word.text, moves))))
            }
            _ => None,
        }
    }

    fn sample(
        &mut self,
        record: &Record<'_>,
        layout: &Layout,
        bytes: Cow<'_, [u8]>,
        out: &mut Emit<'_>,
    ) -> Result<bool> {
        let mut buffer = std::mem::take(&mut self.buffer);
        buffer.clear();
        buffer.extend_from_slice(&bytes);
        let event = out.layouts().event_of(record);
        let Ok(moved) = self.moved(record, layout, event, buffer) else { return Ok(false) };
        out.replace(record, &moved)?;
        self.buffer = moved;
        Ok(true)
    }

    fn record(&mut self, record: Record<'_>, out: &mut Emit<'_>) -> Result<()> {
        self.plan.record(record, out)
    }

    fn report(&self, left_out: &LeftOut, session: &mut Session) {
        let AslrCounts { features, cut, raw } = &self.done;
        let report = &mut session.report;
        for feature in features {
            report.say(Level::Loss, format!("feature {feature} left out: it may hold addresses"));
        }
        if let Some(records) = left_out.by_rule() {
            report.say(Level::Loss, format!("{records} left out: they may hold addresses"));
        }
        if *cut > 0 {
            let samples = counted(*cut, "sample", "samples");
            report.say(Level::Loss, format!("registers, stacks and similar data cut out of {samples}"));
        }
        if self.plan.cuts_callers {
            report.say(Level::Warning, CALLERS_LOST);
        }
        if *raw > 0 {
            let samples = counted(*raw, "sample", "samples");
            report.say(Level::Info, format!("zeroed addresses in the raw data of {samples}"));
        }
        left_out.report("", false, report);
    }

    fn fork(&self) -> Move {
        Move {
            plan: self.plan.clone(),
            recent: Recent::default(),
            buffer: Vec::new(),
            done: AslrCounts::default(),
        }
    }

    fn absorb(&mut self, later: Move) {
        self.done.features.extend(later.done.features);
        self.done.cut += later.done.cut;
        self.done.raw += later.done.raw;
    }
}

impl Move {
    /// The bytes of a sample, copied in `bytes`, with its addresses moved.
    fn moved(
        &mut self,
        record: &Record<'_>,
        layout: &Layout,
        event: Option<usize>,
        bytes: Vec<u8>,
    ) -> Result<Vec<u8>> {
        let Move { plan, recent, done, .. } = self;
        let (plan, endian) = (&**plan, record.endian());
        let mut moved = |address, of_kernel| recent.address(&plan.moves, address, of_kernel);
        let of_kernel = is_kernel(record.cpumode());
        let mut bytes: Cow<'_, [u8]> = Cow::Owned(bytes);
        if let Some(ip) = layout.ip(record) {
            layout.set_ip(bytes.to_mut(), moved(ip, of_kernel), endian);
        }
        if let Some(addr) = layout.addr(record) {
            layout.set_addr(bytes.to_mut(), moved(addr, addr >= KERNEL_START), endian);
        }
        change_frames(record, Some(layout), &mut bytes, |cpumode, address| {
            Some(moved(address, is_kernel(cpumode)))
        });
        if layout.sample_type & st::BRANCH_STACK != 0 {
            change_branches(record, layout, &mut bytes, |address| moved(address, address >= KERNEL_START))?;
        }
        if layout.sample_type & st::RAW != 0 {
            let range =
                raw_range(record, layout).ok_or_else(|| record.error("its raw data does not fit in it"))?;
            let raw = &mut bytes.to_mut()[range.clone()];
            plan.clear_raw(raw, event, endian);
            done.raw += u64::from(*raw != record.bytes()[range]);
        }
        let parts = layout.sample_type & PARTS;
        if parts != 0 {
            done.cut += 1;
            let whole = Record::new(&bytes, &[], record.origin(), endian)?;
            return Ok(sample_without(&whole, layout, parts)?);
        }
        Ok(bytes.into_owned())
    }
}

#[cfg(test)]
mod tests {
    use perfx_format::names::NameKind;

    use super::*;

    #[test]
    fn regions_move_as_a_whole_and_do_not_overlap() {
        let ranges: BTreeSet<_> = [
            (0x1000, 0x3000),
            (0x3000, 0x4000),
            (0x8000, 0x9000),
            (0x8000, 0xa000),
            (1 << 40, (1 << 40) + PAGE),
        ]
        .into();
        let (regions, without) = Regions::new(&ranges, USER, Key::of_text("a"));
        assert_eq!((regions.sorted.len(), without), (3, 0));
        let new = |address| regions.known(address);
        assert_eq!(new(0x3500).unwrap() - new(0x1000).unwrap(), 0x2500);
        assert_eq!((new(0x5000), new(0xfff)), (None, None));
        let mut places: Vec<_> =
            regions.sorted.iter().map(|region| (region.new, region.end - region.start)).collect();
        places.sort_unstable();
        assert!(places.windows(2).all(|pair| pair[0].0 + pair[0].1 < pair[1].0), "{places:x?}");
        let other = regions.other(0x7ffe_1234_5678);
        assert_eq!(other % BLOCK, 0x7ffe_1234_5678 % BLOCK);
        assert_eq!(regions.other(0x7ffe_1234_5000), other - 0x678);
        let (_, without) = Regions::new(&[(0, 1 << 46)].into(), USER, Key::default());
        assert_eq!(without, 1);
    }

    #[test]
    fn numbers_that_touch_no_harmless_field_are_suspect() {
        let lists: [&[(usize, usize)]; 6] = [
            &[],
            &[(0, 8)],
            &[(0, 2), (2, 1), (4, 4), (8, 16), (32, 4)],
            &[(40, 4), (16, 0), (9, 3)],
            &[(0, 60), (4, 4), (usize::MAX, 8)],
            &[(20, usize::MAX)],
        ];
        for list in lists {
            let fields: Vec<_> = list.iter().map(|&(offset, size)| TraceField { offset, size }).collect();
            let touches = |at: usize| {
                fields
                    .iter()
                    .any(|field| field.offset < at + 8 && at < field.offset.saturating_add(field.size))
            };
            let expected: Vec<_> = (0..80).step_by(4).filter(|&at| !touches(at)).collect();
            let ranges = between(fields.clone());
            let found = ranges.iter().flat_map(|range| (range.start..range.end.min(80)).step_by(4));
            assert_eq!(found.collect::<Vec<_>>(), expected, "{list:?}");
        }
    }

    #[test]
    fn the_address_of_a_breakpoint_is_not_in_its_name() {
        let new = |text: &[u8]| without_address(Name { kind: NameKind::Event, text, build_id: None });
        assert_eq!(new(b"mem:0x55d0aa:rw"), Some(b"mem:0x0:rw".to_vec()));
        assert_eq!(new(b"x,mem:0x5/8:w,mem:0x6"), Some(b"x,mem:0x0/8:w,mem:0x0".to_vec()));
        assert_eq!(new(b"cycles"), None);
    }

    #[test]
    fn an_address_moves_with_its_mapping_and_others_in_blocks() {
        use crate::support::tiny::{FIELDS, file, ran, record};
        let path = u64::from_le_bytes(*b"/a\0\0\0\0\0\0");
        let mmap = record(1, 2, &[7 << 32 | 7, 0x40_1000, 0x2000, 0x1000, path]);
        let sample = |ip: u64| record(9, 2, &[ip, 7 << 32 | 7, 5, 1]);
        let records =
            [mmap, sample(0x40_1150), sample(0x40_3000), sample(0), sample(0x7654_3210), sample(0x7654_3218)];
        let moved =
            |key: &str| ran(&format!("aslr:key={key}"), file(FIELDS, 0, &records, &[])).unwrap().bodies();
        let bodies = moved("a");
        let start = bodies[0][1];
        assert!(start != 0x40_1000 && start.is_multiple_of(0x1000), "{start:x}");
        assert_eq!((bodies[0][0], &bodies[0][2..]), (7 << 32 | 7, &[0x2000, 0x1000, path][..]));
        assert_eq!([1, 2, 3].map(|sample| bodies[sample][0]), [start + 0x150, start + 0x2000, 0]);
        // The block is another one, and the place in it the same.
        assert_eq!((bodies[4][0] % BLOCK, bodies[5][0]), (0x7654_3210 % BLOCK, bodies[4][0] + 8));
        assert!(bodies[4][0] != 0x7654_3210 && bodies[1][1..] == [7 << 32 | 7, 5, 1]);
        assert!(moved("a") == bodies && moved("b") != bodies);
    }

    #[test]
    fn pages_of_mappings_are_collected_unless_they_are_too_large() {
        let mut gather = Gather::default();
        gather.add(0x1234, 0x10, false);
        gather.add(0x1000, 0x1001, false);
        gather.add(0x5000, 0, false);
        gather.add(0x5000, LARGEST, true);
        gather.add(0x5000, LARGEST + 1, true);
        gather.add(u64::MAX - 5, 10, true);
        assert_eq!(gather.user, [(0x1000, 0x2000), (0x1000, 0x3000)].into());
        assert_eq!((gather.kernel.len(), gather.too_large), (1, 2));
        let mut later = gather.fork();
        later.add(0x9000, 1, false);
        (later.too_large, later.has_jit) = (5, true);
        gather.absorb(later);
        assert_eq!(
            (gather.user.len(), gather.kernel.len(), gather.too_large, gather.has_jit),
            (3, 1, 7, true)
        );
    }
}
