//! Computes once per event the positions of time, ids, tid and CPU in its records: from the front of a
//! sample, from the back of other records. Different positions of the id are an error.

use crate::record::build_id::BuildIdEntry;
use crate::record::task::named_pid;
use crate::{
    Attr, BranchStacks, Endian, Error, Event, HEADER_SIZE, OrderKey, Record, RecordType, Result, Time,
};

use crate::sample_type as st;

/// The names of the `sample_type` bits.
pub const SAMPLE_TYPE_NAMES: &[(u32, &str)] = &[
    (0, "IP"),
    (1, "TID"),
    (2, "TIME"),
    (3, "ADDR"),
    (4, "READ"),
    (5, "CALLCHAIN"),
    (6, "ID"),
    (7, "CPU"),
    (8, "PERIOD"),
    (9, "STREAM_ID"),
    (10, "RAW"),
    (11, "BRANCH_STACK"),
    (12, "REGS_USER"),
    (13, "STACK_USER"),
    (14, "WEIGHT"),
    (15, "DATA_SRC"),
    (16, "IDENTIFIER"),
    (17, "TRANSACTION"),
    (18, "REGS_INTR"),
    (19, "PHYS_ADDR"),
    (20, "AUX"),
    (21, "CGROUP"),
    (22, "DATA_PAGE_SIZE"),
    (23, "CODE_PAGE_SIZE"),
    (24, "WEIGHT_STRUCT"),
];

/// The names of the `read_format` bits.
pub const READ_FORMAT_NAMES: &[(u32, &str)] =
    &[(0, "TOTAL_TIME_ENABLED"), (1, "TOTAL_TIME_RUNNING"), (2, "ID"), (3, "GROUP"), (4, "LOST")];

/// The positions of fixed fields in an event's records, bytes: from the start of a sample, the end of others.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
#[non_exhaustive]
pub struct Fields {
    /// u64 instruction pointer (samples only).
    pub ip: Option<u16>,
    /// u32 pid, u32 tid.
    pub tid: Option<u16>,
    /// u64 time, ns.
    pub time: Option<u16>,
    /// u64 address (samples only).
    pub addr: Option<u16>,
    /// u64 event id: IDENTIFIER if present, else ID.
    pub id: Option<u16>,
    /// u32 CPU, u32 reserved.
    pub cpu: Option<u16>,
    /// u64 period (samples only).
    pub period: Option<u16>,
    /// Length of all fixed fields: the start of a sample's variable part, or the size of the trailer.
    pub size: u16,
}

/// The fixed fields of a sample, 8 bytes each, in order (kernel/events/core.c, perf_output_sample).
const SAMPLE_ORDER: [u64; 9] =
    [st::IDENTIFIER, st::IP, st::TID, st::TIME, st::ADDR, st::ID, st::STREAM_ID, st::CPU, st::PERIOD];

/// The fields of the sample_id trailer, 8 bytes each, in order (perf_event__output_id_sample).
const TRAILER_ORDER: [u64; 6] = [st::TID, st::TIME, st::ID, st::STREAM_ID, st::CPU, st::IDENTIFIER];

/// The fixed fields of a sample after its header, as bits of this `sample_type`, 8 bytes each.
pub(crate) fn sample_fields(sample_type: u64) -> impl Iterator<Item = u64> {
    SAMPLE_ORDER.into_iter().filter(move |bit| sample_type & bit != 0)
}

/// The fields of the sample_id trailer for this `sample_type`, as bits of it, 8 bytes each, in their order.
pub(crate) fn trailer_fields(sample_type: u64) -> impl Iterator<Item = u64> {
    TRAILER_ORDER.into_iter().filter(move |bit| sample_type & bit != 0)
}

/// The number of bytes before the field `bit`; `None` if the field is absent.
fn position(order: &[u64], sample_type: u64, bit: u64) -> Option<usize> {
    let before = order.iter().take_while(|&&other| other != bit).filter(|&&other| sample_type & other != 0);
    (sample_type & bit != 0).then(|| before.count() * 8)
}

impl Fields {
    fn new(order: &[u64], sample_type: u64, from: impl Fn(usize) -> usize) -> Fields {
        let at = |bit| position(order, sample_type, bit).map(|at| from(at) as u16);
        Fields {
            ip: at(st::IP),
            tid: at(st::TID),
            time: at(st::TIME),
            addr: at(st::ADDR),
            id: at(st::IDENTIFIER).or_else(|| at(st::ID)),
            cpu: at(st::CPU),
            period: at(st::PERIOD),
            size: order.iter().filter(|&&bit| sample_type & bit != 0).count() as u16 * 8,
        }
    }

    fn sample(sample_type: u64) -> Fields {
        let fields = Fields::new(&SAMPLE_ORDER, sample_type, |at| at + 8);
        Fields { size: fields.size + 8, ..fields }
    }

    fn trailer(sample_type: u64) -> Fields {
        // A trailer has no IP, ADDR or PERIOD; its positions count from the end.
        let held = TRAILER_ORDER.iter().fold(0, |all, bit| all | bit) & sample_type;
        let size = held.count_ones() as usize * 8;
        Fields::new(&TRAILER_ORDER, held, |at| size - at)
    }
}

/// The layout of one event's records, from its attr.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
#[non_exhaustive]
pub struct Layout {
    /// `attr.sample_type`.
    pub sample_type: u64,
    /// `attr.read_format`.
    pub read_format: u64,
    /// `attr.branch_sample_type`.
    pub branch_sample_type: u64,
    /// `attr.sample_regs_user`.
    pub regs_user: u64,
    /// `attr.sample_regs_intr`.
    pub regs_intr: u64,
    /// `attr.sample_id_all`: true if kernel records other than samples end in a trailer.
    pub sample_id_all: bool,
    /// Fixed fields of a sample, from its start.
    pub sample: Fields,
    /// Fields of the trailer, from the end of the record. All are `None` without `sample_id_all`.
    pub trailer: Fields,
}

/// The start of every tracepoint's data: u16 type, u8 flags, u8 preempt_count, s32 pid. A field follows.
pub(crate) const TRACEPOINT_MIN: u64 = 8;

impl Layout {
    /// The layout for this attr.
    pub fn new(attr: &Attr) -> Layout {
        Layout {
            sample_type: attr.sample_type,
            read_format: attr.read_format,
            branch_sample_type: attr.branch_sample_type,
            regs_user: attr.sample_regs_user,
            regs_intr: attr.sample_regs_intr,
            sample_id_all: attr.sample_id_all(),
            sample: Fields::sample(attr.sample_type),
            trailer: if attr.sample_id_all() { Fields::trailer(attr.sample_type) } else { Fields::default() },
        }
    }

    /// The contents of the branch stacks of samples.
    #[inline]
    pub fn branch_stacks(&self) -> BranchStacks {
        match self.sample_type & st::BRANCH_STACK {
            0 => BranchStacks::None,
            _ => BranchStacks::of(self.branch_sample_type),
        }
    }

    /// True if a sample consists of its fixed fields and at most a call chain or enough raw data for a
    /// tracepoint, with exactly their length.
    #[inline]
    pub(crate) fn is_all_of(&self, sample: &Record<'_>) -> bool {
        let (bytes, fixed) = (sample.bytes(), usize::from(self.sample.size));
        let rest = match self.sample_type & !SAMPLE_ORDER.iter().fold(0, |all, bit| all | bit) {
            0 => Some(0),
            st::CALLCHAIN => {
                sample.endian().u64(bytes, fixed).and_then(|count| count.checked_mul(8)?.checked_add(8))
            }
            st::RAW => {
                let size = sample.endian().u32(bytes, fixed).map(u64::from);
                size.filter(|&size| size >= TRACEPOINT_MIN).map(|size| size + 4)
            }
            _ => None,
        };
        rest.is_some_and(|rest| bytes.len().checked_sub(fixed).is_some_and(|len| len as u64 == rest))
    }

    /// Byte position of a field in this record, counted from either end; `None` if it is too short.
    #[inline]
    fn position(&self, record: &Record<'_>, field: impl Fn(&Fields) -> Option<u16>) -> Option<usize> {
        self.place(record.kind(), record.bytes().len(), field)
    }

    #[inline]
    fn place(&self, kind: RecordType, len: usize, field: impl Fn(&Fields) -> Option<u16>) -> Option<usize> {
        if kind == RecordType::SAMPLE {
            let at = field(&self.sample)? as usize;
            (at + 8 <= len).then_some(at)
        } else if kind.is_kernel() {
            len.checked_sub(field(&self.trailer)? as usize).filter(|&at| at >= 8)
        } else {
            None
        }
    }

    fn place_in(
        &self,
        record: &[u8],
        endian: Endian,
        field: impl Fn(&Fields) -> Option<u16>,
    ) -> Option<usize> {
        self.place(RecordType(endian.u32(record, 0)?), record.len(), field)
    }

    #[inline]
    pub(crate) fn time_at(&self, record: &Record<'_>) -> Option<usize> {
        self.position(record, |f| f.time)
    }

    /// The time of a record; `None` also for values that mean no time.
    #[inline]
    pub fn time(&self, record: &Record<'_>) -> Option<Time> {
        self.recorded_time(record).and_then(Time::recorded)
    }

    /// The recorded time, ns: 0 and the largest number mean none.
    #[inline]
    pub fn recorded_time(&self, record: &Record<'_>) -> Option<u64> {
        record.u64(self.time_at(record)?)
    }

    /// The time of a record whose event records it, ns.
    ///
    /// # Errors
    ///
    /// The record is too short for its sample_id.
    #[inline]
    pub fn required_time(&self, record: &Record<'_>) -> Result<u64> {
        let size = usize::from(self.trailer.size);
        let has_room = record.kind() == RecordType::SAMPLE || record.bytes().len() >= HEADER_SIZE + size;
        let time = self.recorded_time(record).filter(|_| has_room);
        time.ok_or_else(|| record.error(format!("no room for a sample_id of {size} bytes")).damaged())
    }

    /// Sets the time, ns, in the bytes of a record. Like the other setters, it returns `None` and changes
    /// nothing if the record has no such field.
    pub fn set_time(&self, record: &mut [u8], time: u64, endian: Endian) -> Option<()> {
        let at = self.place_in(record, endian, |f| f.time)?;
        endian.set_u64(record, at, time)
    }

    /// Sets the time in the bytes of a record from a key: keys are times where records have times.
    pub fn set_key(&self, record: &mut [u8], key: OrderKey, endian: Endian) -> Option<()> {
        self.set_time(record, key.written(), endian)
    }

    /// The pid and tid of a record.
    #[inline]
    pub fn pid_tid(&self, record: &Record<'_>) -> Option<(u32, u32)> {
        let at = self.position(record, |f| f.tid)?;
        Some((record.u32(at)?, record.u32(at + 4)?))
    }

    /// Sets process and thread in the bytes of a record.
    pub fn set_pid_tid(&self, record: &mut [u8], pid: u32, tid: u32, endian: Endian) -> Option<()> {
        let at = self.place_in(record, endian, |f| f.tid)?;
        endian.set_u32(record, at, pid)?;
        endian.set_u32(record, at + 4, tid)
    }

    /// The period of a sample.
    #[inline]
    pub fn period(&self, sample: &Record<'_>) -> Option<u64> {
        sample.u64(self.position(sample, |f| f.period)?)
    }

    /// Sets the period in the bytes of a sample.
    pub fn set_period(&self, sample: &mut [u8], period: u64, endian: Endian) -> Option<()> {
        let at = self.place_in(sample, endian, |f| f.period)?;
        endian.set_u64(sample, at, period)
    }

    /// The CPU of a record.
    #[inline]
    pub fn cpu(&self, record: &Record<'_>) -> Option<u32> {
        record.u32(self.position(record, |f| f.cpu)?)
    }

    /// The event id of a record.
    #[inline]
    pub fn id(&self, record: &Record<'_>) -> Option<u64> {
        record.u64(self.position(record, |f| f.id)?)
    }

    /// Sets the event id in the bytes of a record.
    pub fn set_id(&self, record: &mut [u8], id: u64, endian: Endian) -> Option<()> {
        let at = self.place_in(record, endian, |f| f.id)?;
        endian.set_u64(record, at, id)
    }

    /// The sample_id trailer of a record that is not a sample. `None` if the record is too short for it.
    pub fn trailer_of<'a>(&self, record: &Record<'a>) -> Option<&'a [u8]> {
        let bytes = record.bytes();
        bytes.get(bytes.len().checked_sub(self.trailer.size.into())?..)
    }

    /// The sample_id trailer for another record of the same time: the shared fields of the sample, in the
    /// trailer's order. Empty without `sample_id_all`.
    pub fn trailer_of_sample(&self, sample: &Record<'_>) -> Vec<u8> {
        let fields = TRAILER_ORDER.iter().filter(|_| self.sample_id_all);
        let places = fields.filter_map(|&bit| position(&SAMPLE_ORDER, self.sample_type, bit));
        places.filter_map(|at| sample.body().get(at..at + 8)).flatten().copied().collect()
    }

    /// The address of a sample.
    #[inline]
    pub fn addr(&self, sample: &Record<'_>) -> Option<u64> {
        sample.u64(self.sample.addr? as usize)
    }

    /// Sets the instruction pointer in the bytes of a sample.
    pub fn set_ip(&self, sample: &mut [u8], ip: u64, endian: Endian) -> Option<()> {
        endian.set_u64(sample, self.sample.ip?.into(), ip)
    }

    /// Sets the address in the bytes of a sample.
    pub fn set_addr(&self, sample: &mut [u8], addr: u64, endian: Endian) -> Option<()> {
        endian.set_u64(sample, self.sample.addr?.into(), addr)
    }

    /// The instruction pointer of a sample.
    #[inline]
    pub fn ip(&self, record: &Record<'_>) -> Option<u64> {
        record.u64(self.sample.ip? as usize)
    }
}

#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum IdPosition {
    One,
    /// All events have the id at the same position: from the start of a sample, from the end of others.
    Same {
        sample: u16,
        trailer: Option<u16>,
    },
    /// Events `a` and `b` have it at different positions, or one of them has none.
    Disagree {
        a: usize,
        b: usize,
    },
}

/// The layouts of all events, and the lookup from a record to its event.
///
/// ```
/// use perfx_format::{Attr, Endian, Event, Layouts, Origin, Record, RecordType, Time, sample_type};
/// use perfx_format::record::builder::build;
///
/// let endian = Endian::Little;
/// let mut attr = Attr::default();
/// attr.sample_type = sample_type::IP | sample_type::TIME;
/// let layouts = Layouts::new(&[Event::made(&attr, vec![1], endian)]);
///
/// let parts = [&endian.bytes_u64(0x40_0000)[..], &endian.bytes_u64(1_000)];
/// let bytes = build(RecordType::SAMPLE, 0, &parts, endian).expect("it is small");
/// let sample = Record::new(&bytes, &[], Origin::Synthetic, endian)?;
/// assert_eq!((layouts.event_of(&sample), layouts.time(&sample)), (Some(0), Time::recorded(1_000)));
/// # Ok::<(), perfx_format::Error>(())
/// ```
#[derive(Clone, Debug)]
pub struct Layouts {
    layouts: Vec<Layout>,
    /// (id, event), ascending by id.
    ids: Vec<(u64, u32)>,
    id_position: IdPosition,
    /// True if all events have the same layout, so that most lookups need no id.
    uniform: bool,
    has_time: bool,
    sample_types: u64,
    /// The `attr.build_id` of each event: in the layouts, it would seldom let them be uniform.
    build_ids: Vec<bool>,
    tracepoints: Vec<bool>,
}

impl Layouts {
    /// The layouts of these events.
    pub fn new(events: &[Event]) -> Layouts {
        let layouts: Vec<Layout> = events.iter().map(|event| Layout::new(event.attr())).collect();
        let mut ids: Vec<(u64, u32)> = events
            .iter()
            .enumerate()
            .flat_map(|(index, event)| event.ids.iter().map(move |&id| (id, index as u32)))
            .filter(|&(id, _)| id != 0)
            .collect();
        // If several events list the same id, perf uses the last.
        ids.sort_unstable_by_key(|&(id, event)| (id, std::cmp::Reverse(event)));
        ids.dedup_by_key(|(id, _)| *id);
        let uniform = layouts.windows(2).all(|pair| pair[0] == pair[1]);
        let id_position = match layouts.split_first() {
            None | Some((_, [])) => IdPosition::One,
            Some((first, others)) => {
                let place = |layout: &Layout| (layout.sample.id, Fields::trailer(layout.sample_type).id);
                let differs = |other: &Layout| {
                    place(other) != place(first) || other.sample_id_all != first.sample_id_all
                };
                match (others.iter().position(differs), first.sample.id) {
                    (Some(other), _) => IdPosition::Disagree { a: 0, b: other + 1 },
                    (None, None) => IdPosition::Disagree { a: 0, b: 1 },
                    (None, Some(sample)) => IdPosition::Same { sample, trailer: first.trailer.id },
                }
            }
        };
        let build_ids = events.iter().map(|event| event.attr().build_id()).collect();
        let tracepoints = events.iter().map(|event| event.attr().is_tracepoint()).collect();
        let has_time = layouts.iter().any(|layout| layout.sample.time.is_some());
        let sample_types = layouts.iter().fold(0, |types, layout| types | layout.sample_type);
        Layouts { layouts, ids, id_position, uniform, has_time, sample_types, build_ids, tracepoints }
    }

    /// The layout of each event, in the order of the attrs.
    pub fn all(&self) -> &[Layout] {
        &self.layouts
    }

    /// The event with this id.
    #[inline]
    pub fn event_of_id(&self, id: u64) -> Option<usize> {
        // Ids are consecutive, so this position is nearly always right.
        let first = self.ids.first()?.0;
        let guess = usize::try_from(id.checked_sub(first)?).ok()?;
        match self.ids.get(guess) {
            Some(&(found, event)) if found == id => Some(event as usize),
            _ => self.ids.binary_search_by_key(&id, |&(id, _)| id).ok().map(|at| self.ids[at].1 as usize),
        }
    }

    /// True if an event has this id; also for 0, which means none, and if no event has ids.
    pub fn knows(&self, id: u64) -> bool {
        id == 0 || self.ids.is_empty() || self.event_of_id(id).is_some()
    }

    /// True if MMAP2 records like this one may contain a build-id: its event has `attr.build_id`; if the
    /// record names no event, any event has it.
    pub fn may_map_build_ids(&self, record: &Record<'_>) -> bool {
        let id = self.layout_of(record).and_then(|layout| layout.id(record));
        match id.and_then(|id| self.event_of_id(id)) {
            Some(event) => self.build_ids.get(event).copied().unwrap_or(false),
            None => self.build_ids.contains(&true),
        }
    }

    /// True if the record's event is a tracepoint.
    pub fn is_tracepoint(&self, record: &Record<'_>) -> bool {
        self.event_of(record).is_some_and(|event| self.tracepoints[event])
    }

    /// Checks that all events have their id at one position, so that every record finds its event.
    ///
    /// # Errors
    ///
    /// Two events have their id at different positions, or have none. The error names them.
    pub fn check_ids(&self) -> Result<()> {
        match self.id_position {
            IdPosition::One | IdPosition::Same { .. } => Ok(()),
            IdPosition::Disagree { a, b } => Err(Error::new(format!(
                "events {a} and {b} {} (sample_type {:#x} and {:#x}, sample_id_all {} and {}), so their records can't be distinguished",
                match [a, b].map(|event| self.layouts[event].sample.id) {
                    [None, None] => "have no event id",
                    _ => "have the event id at different places",
                },
                self.layouts[a].sample_type,
                self.layouts[b].sample_type,
                u8::from(self.layouts[a].sample_id_all),
                u8::from(self.layouts[b].sample_id_all),
            ))
            .hint("record with --sample-identifier")),
        }
    }

    /// Checks that each record finds its layout: by its event, unless all have the same layout.
    ///
    /// # Errors
    ///
    /// See [`Layouts::check_ids`], if the events have different layouts.
    pub fn check_layouts(&self) -> Result<()> {
        if self.uniform { Ok(()) } else { self.check_ids() }
    }

    /// The event of a kernel record, by perf's rules: the only event; else the event with the record's id;
    /// the first event if the id is 0 or the record has no trailer. `None`: there is no event, the id is
    /// unknown, or events disagree on the position of the id.
    #[inline]
    pub fn event_of(&self, record: &Record<'_>) -> Option<usize> {
        match self.id_position {
            IdPosition::One => (!self.layouts.is_empty()).then_some(0),
            IdPosition::Same { sample, trailer } => {
                let id = if record.kind() == RecordType::SAMPLE {
                    record.u64(sample as usize)?
                } else {
                    let Some(trailer) = trailer else { return Some(0) };
                    match record.bytes().len().checked_sub(trailer as usize) {
                        Some(at) if at >= 8 => record.u64(at)?,
                        _ => return Some(0),
                    }
                };
                if id == 0 { Some(0) } else { self.event_of_id(id) }
            }
            IdPosition::Disagree { .. } => None,
        }
    }

    /// The layout of a kernel record. Needs no id if all events have the same layout.
    #[inline]
    pub fn layout_of(&self, record: &Record<'_>) -> Option<&Layout> {
        if self.uniform { self.layouts.first() } else { self.layouts.get(self.event_of(record)?) }
    }

    /// The size of the trailer of a kernel record other than a sample, bytes; 0 if its event is unknown.
    pub fn trailer_size(&self, record: &Record<'_>) -> usize {
        self.layout_of(record).map_or(0, |layout| layout.trailer.size.into())
    }

    /// The layout of a sample or trailer in a record of any kind; `None` without one or a known event.
    pub fn layout_of_any(&self, record: &Record<'_>) -> Option<&Layout> {
        match record.kind() {
            RecordType::HEADER_BUILD_ID => self.layout_of_build_id(record),
            kind if kind.is_kernel() => self.layout_of(record),
            _ => None,
        }
    }

    /// The layout of the sample_id at the end of a HEADER_BUILD_ID that perf inject wrote for a sample.
    pub fn layout_of_build_id(&self, record: &Record<'_>) -> Option<&Layout> {
        let entry = BuildIdEntry::read(record.bytes(), record.endian());
        let entry = entry.filter(|_| record.kind() == RecordType::HEADER_BUILD_ID)?;
        Some(self.trailer_after(record.bytes().get(entry.size()..)?)?.0)
    }

    /// A sample_id at the end of `rest`, with only zeros before it, and its layout.
    pub(crate) fn trailer_after<'a>(&self, rest: &'a [u8]) -> Option<(&Layout, &'a [u8])> {
        self.layouts.iter().find_map(|layout| {
            let padding = rest.len().checked_sub(layout.trailer.size.into())?;
            let (padding, trailer) = rest.split_at(padding);
            let fits = padding.iter().all(|&b| b == 0) && trailer.iter().any(|&b| b != 0);
            fits.then_some((layout, trailer))
        })
    }

    /// The process of a kernel record: the one in its body, else the one in its TID field.
    #[inline]
    pub fn process(&self, record: &Record<'_>) -> Option<u32> {
        match named_pid(record) {
            None => Some(self.layout_of(record)?.pid_tid(record)?.0),
            pid => pid,
        }
    }

    /// True if some event's `sample_type` has one of these bits.
    pub fn any_samples(&self, bits: u64) -> bool {
        self.sample_types & bits != 0
    }

    /// True if some event records the time.
    pub fn has_time(&self) -> bool {
        self.has_time
    }

    /// The time; `None` for user records and for records without a time.
    #[inline]
    pub fn time(&self, record: &Record<'_>) -> Option<Time> {
        self.layout_of(record)?.time(record)
    }

    /// The recorded time, ns; see [`Layout::recorded_time`].
    #[inline]
    pub fn recorded_time(&self, record: &Record<'_>) -> Option<u64> {
        self.layout_of(record)?.recorded_time(record)
    }
}

impl OrderKey {
    /// The key of a record whose time is in `layout`. A sample without a time sorts last, so that every
    /// mapping is visible to it. Other records without one sort first.
    #[inline]
    pub fn of(record: &Record<'_>, layout: Option<&Layout>, layouts: &Layouts) -> OrderKey {
        if !layouts.has_time() {
            return OrderKey::at(record.origin().stored_at().map_or(0, |(_, offset)| offset));
        }
        let without = if record.kind() == RecordType::SAMPLE { OrderKey::LAST } else { OrderKey::FIRST };
        layout.and_then(|layout| layout.recorded_time(record)).map_or(without, OrderKey::at)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::Origin;
    use crate::record::builder::build;

    const SAMPLE_ID_ALL: u32 = 18;

    #[test]
    fn setters_change_only_their_field() {
        let all = st::TID | st::TIME | st::ID | st::CPU | st::PERIOD | st::IP;
        for (endian, sample_type) in [Endian::Little, Endian::Big]
            .into_iter()
            .flat_map(|e| [all, all | st::IDENTIFIER].map(|t| (e, t)))
        {
            let mut attr = Attr { sample_type, ..Attr::default() };
            attr.flags |= 1 << SAMPLE_ID_ALL;
            let layout = Layout::new(&attr);
            for kind in [RecordType::SAMPLE, RecordType::COMM] {
                let old = build(kind, 0, &[&[0x55; 96]], endian).unwrap();
                let mut new = old.clone();
                layout.set_time(&mut new, 1, endian).unwrap();
                layout.set_pid_tid(&mut new, 2, 3, endian).unwrap();
                layout.set_id(&mut new, 4, endian).unwrap();
                let period = layout.set_period(&mut new, 5, endian);
                assert_eq!(period.is_some(), kind == RecordType::SAMPLE);
                let record = Record::new(&new, &[], Origin::Synthetic, endian).unwrap();
                let read = (layout.recorded_time(&record), layout.pid_tid(&record), layout.id(&record));
                assert_eq!(read, (Some(1), Some((2, 3)), Some(4)));
                assert_eq!(layout.required_time(&record).unwrap(), 1);
                assert_eq!(layout.period(&record), period.map(|()| 5));
                let words = old.chunks(8).zip(new.chunks(8)).filter(|(old, new)| old != new);
                assert_eq!(words.count(), if period.is_some() { 4 } else { 3 });
            }
        }
    }

    #[test]
    fn a_record_without_room_for_a_field_stays_as_it_is() {
        let endian = Endian::Little;
        let mut attr = Attr { sample_type: st::TID | st::TIME | st::ID, ..Attr::default() };
        attr.flags |= 1 << SAMPLE_ID_ALL;
        let layout = Layout::new(&attr);
        for kind in [RecordType::SAMPLE, RecordType::COMM, RecordType::FINISHED_ROUND] {
            let old = build(kind, 0, &[], endian).unwrap();
            let mut new = old.clone();
            assert_eq!(layout.set_time(&mut new, 1, endian), None);
            assert_eq!(layout.set_pid_tid(&mut new, 1, 1, endian), None);
            assert_eq!(layout.set_id(&mut new, 1, endian), None);
            assert_eq!(layout.set_period(&mut new, 1, endian), None);
            assert_eq!(new, old);
            let record = Record::new(&old, &[], Origin::Synthetic, endian).unwrap();
            let error = layout.required_time(&record).unwrap_err();
            assert_eq!(error.what(), "no room for a sample_id of 24 bytes");
            assert_eq!(layout.trailer_of(&record), None);
        }
        assert_eq!(layout.set_time(&mut [1, 2], 1, endian), None);
    }
}
