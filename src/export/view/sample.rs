//! Writes samples, as text or JSON.

use std::collections::HashMap;
use std::ops::Range;
use std::sync::atomic::{AtomicU64, Ordering};

use foldhash::fast::RandomState;
use perfx_format::record::cpumode::{KERNEL, USER, is_kernel};
use perfx_format::sample::{Branch, Branches, CallStack, DataSrc, FlowFlags, Sample};
use perfx_format::{HexNumber, Layout, Layouts, OrderKey, Record, RecordType, Task, named_pid, named_task};
use perfx_look::clock::rfc3339;
use perfx_look::json::Decimal;
use perfx_look::render::{push_number, readable};
use perfx_model::address_space::{Machine, Space};
use perfx_pipeline::Result;
use perfx_resolve::{Facts, Frame, FrameCache, LastChain, frame_at};
use perfx_samples::SampleView;
use perfx_trace::listing;

use super::branches::{self, WrittenBranches};
use super::data_src;
use super::fields::{Field, Times, ViewOptions, latencies, weight};
use super::form::{Form, FrameForm};
use super::json::{self, Counted, SampleLine};
use super::names::{Called, Found, Lines, SharedNames};
use super::other;
use super::synth;
use super::text::{
    mode_letters, page_size, push_address, push_call, push_cpu, push_registers, push_time, push_wide,
    shown_flags, time_of_day,
};
use crate::chains::At;

#[derive(Clone, Copy)]
pub(super) struct Shown<'s> {
    /// The sample, or the one that represents its stencil.
    pub(super) sample: SampleView<'s>,
    pub(super) key: OrderKey,
    pub(super) parts: &'s Sample<'s>,
    pub(super) event: usize,
    pub(super) period: u64,
    /// The addresses of the user part of its chain, if recorded later.
    pub(super) user: &'s [(u64, Frame)],
}

pub(super) struct SampleWriter<'v> {
    pub(super) facts: &'v Facts,
    pub(super) forms: &'v [Form<'v>],
    pub(super) options: &'v ViewOptions,
    names: &'v SharedNames,
    /// The start of relative times, ns; 0 before the first sample.
    before: &'v AtomicU64,
    /// The names of threads, and the keys for which they are valid.
    comms: HashMap<(Machine, u32), Comm, RandomState>,
    /// By the number of the frame form: frames in chains, of samples without a chain, and other symbols.
    written: Vec<Option<WrittenFrames>>,
    chains: Vec<WrittenChain>,
    front: Option<Front>,
    branches: WrittenBranches,
    last: Option<branches::Branch>,
    /// Of the last line.
    pub(super) indent: Option<Indent>,
}

/// A function's name, indented by call depth. Its width depends on earlier lines, as in perf: see `Printer`.
#[derive(Clone, Copy, Debug)]
pub(super) struct Indent {
    pub(super) end: usize,
    pub(super) width: usize,
}

/// In calls: more would fill the memory.
const MOST_INDENTED: u32 = 1 << 12;

/// Determines the text of a line's front, which is the same for thousands of samples of a trace.
struct Front {
    id: Option<u64>,
    event: usize,
    cpumode: u16,
    pid_tid: Option<(u32, u32)>,
    cpu: Option<u32>,
    time: Option<u64>,
    period: u64,
    written: WrittenFront,
}

struct WrittenFront {
    text: Vec<u8>,
    /// The place of the time in it, and the keys for which the rest is valid.
    time: Range<usize>,
    during: Range<OrderKey>,
}

impl Front {
    /// Appends the front with another time. Returns false if more than the time differs at this key.
    #[inline]
    fn push_at(&mut self, out: &mut Vec<u8>, time: Option<u64>, key: OrderKey, nanoseconds: bool) -> bool {
        let WrittenFront { text, time: place, during } = &mut self.written;
        if !during.contains(&key) {
            return false;
        }
        if time != self.time && place.start < place.end {
            let begin = out.len();
            out.extend_from_slice(&text[..place.start]);
            push_time(out, time.unwrap_or(0), nanoseconds);
            let end = out.len() - begin;
            out.extend_from_slice(&text[place.end..]);
            text.clear();
            text.extend_from_slice(&out[begin..]);
            (place.end, self.time) = (end, time);
            return true;
        }
        out.extend_from_slice(text);
        true
    }
}

struct Comm {
    during: Range<OrderKey>,
    name: Vec<u8>,
    readable: String,
}

/// Limits of caches per thread: names of threads, and bytes of frames.
const COMMS: usize = 1 << 12;
const WRITTEN: usize = 1 << 22;

/// The number of threads whose last chains are cached, and the maximum text of a cached chain.
const CHAINS: usize = 1 << 6;
const LONGEST: usize = 1 << 16;

/// Cached frames: most samples repeat frames of those before them.
#[derive(Default)]
struct WrittenFrames {
    known: FrameCache<(u32, u32)>,
    bytes: Vec<u8>,
}

/// A sample's chain as written: the next one of its thread mostly differs in a few innermost frames.
#[derive(Clone, Default)]
struct WrittenChain {
    form: usize,
    last: LastChain,
    text: Vec<u8>,
    /// For each frame, outermost first, the length of the text from it to the end.
    ends: Vec<usize>,
}

impl<'v> SampleWriter<'v> {
    pub(super) fn new(
        facts: &'v Facts,
        forms: &'v [Form<'v>],
        options: &'v ViewOptions,
        names: &'v SharedNames,
        before: &'v AtomicU64,
    ) -> SampleWriter<'v> {
        let written = (0..3 * FrameForm::COUNT).map(|_| None).collect();
        let chains = vec![WrittenChain::default(); CHAINS];
        let (comms, branches) = (HashMap::default(), WrittenBranches::default());
        let (front, last, indent) = (None, None, None);
        SampleWriter {
            facts,
            forms,
            options,
            names,
            before,
            comms,
            written,
            chains,
            front,
            branches,
            last,
            indent,
        }
    }

    pub(super) fn write(&mut self, out: &mut Vec<u8>, shown: Shown<'_>) -> Result<()> {
        let Shown { sample, key, parts, .. } = shown;
        let (mut buffer, mut stored): (Vec<u8>, Sample<'_>);
        let shown = match self.facts.stacks.is_there() {
            true => {
                (buffer, stored) = (Vec::new(), *parts);
                stored.callchain = self.facts.stacks.chain_of(parts, sample.record.endian(), &mut buffer);
                Shown { parts: &stored, ..shown }
            }
            false => shown,
        };
        self.last = None;
        let at = At { sample, pid: parts.pid_tid.map(|(pid, _)| pid), key };
        if self.options.json { self.write_json(out, shown, at) } else { self.write_text(out, shown, &at) }
    }

    /// Appends a sample that differs from the last one at most in addresses, time, period and raw data.
    /// Returns false if its line is not cached.
    #[inline]
    pub(super) fn write_known(&mut self, out: &mut Vec<u8>, parts: &Sample<'_>, period: u64) -> bool {
        if let Some(last) = &self.last
            && let (from, to) = (parts.ip.unwrap_or(0), last.to.and(parts.addr))
            && let branch = (branches::Branch { from, to, ..*last })
            && let key = parts.time.map_or(OrderKey::FIRST, OrderKey::at)
            && let Some(line) = self.branches.get(&branch, key)
            && let Some(front) = self.front.as_mut().filter(|front| front.period == period)
            && front.push_at(out, parts.time, key, self.options.nanoseconds)
        {
            out.extend_from_slice(line);
            out.push(b'\n');
            return true;
        }
        false
    }

    fn push_front(&mut self, out: &mut Vec<u8>, shown: Shown<'_>, at: &At<'_>) {
        let Shown { sample: SampleView { record, .. }, parts, event, period, .. } = shown;
        // Compared part by part, because building a `Front` takes longer.
        let like = self.front.as_mut().filter(|last| {
            (last.event, last.cpumode, last.period) == (event, record.cpumode(), period)
                && last.cpu == parts.cpu
                && last.pid_tid == parts.pid_tid
                && last.id == parts.identifier.or(parts.id)
        });
        if let Some(front) = like
            && front.push_at(out, parts.time, at.key, self.options.nanoseconds)
        {
            return;
        }
        let begin = out.len();
        let (time, during) = self.push_new_front(out, shown, *at);
        if self.options.decoded && self.options.times == Times::Recorded {
            let written = WrittenFront { text: out[begin..].to_vec(), time, during };
            let Sample { identifier, id, pid_tid, cpu, time, .. } = *parts;
            let (id, cpumode) = (identifier.or(id), record.cpumode());
            self.front = Some(Front { id, event, cpumode, pid_tid, cpu, time, period, written });
        }
    }

    /// `push_front` without a cache. Returns the place of the time, and the keys for which the rest is valid.
    fn push_new_front(
        &mut self,
        out: &mut Vec<u8>,
        shown: Shown<'_>,
        at: At<'_>,
    ) -> (Range<usize>, Range<OrderKey>) {
        let forms = self.forms;
        let form = &forms[shown.event];
        let tid = shown.parts.pid_tid.map_or(u32::MAX, |(_, tid)| tid);
        let written = self.push_thread_and_time(out, shown, at, tid);
        if form.has(Field::Period) {
            push_wide(out, 10, |out| push_number(out, shown.period));
            out.push(b' ');
        }
        if form.has(Field::Event) {
            out.extend_from_slice(form.name.as_bytes());
        }
        written
    }

    pub(super) fn write_other(&mut self, out: &mut Vec<u8>, record: &Record<'_>, layouts: &Layouts) {
        if let Some(sample) = SampleView::of(record, layouts) {
            let (time, cpu) = (sample.layout.recorded_time(record), sample.cpu());
            let mut parts = Sample::default();
            (parts.pid_tid, parts.time, parts.cpu, parts.id) = (sample.task(), time, cpu, sample.id());
            let event = sample.event_in(self.facts).unwrap_or(0);
            // A new thread gets its parent's name only at the time in the record, which is later.
            let parent = Task::of(record).filter(|_| record.kind() == RecordType::FORK).map(|task| task.ptid);
            let own = || named_task(record).or(parts.pid_tid).map(|(_, tid)| tid);
            let Some(named) = parent.or_else(own) else { return };
            // A name counts from its record on.
            let at = At { sample, pid: sample.pid(), key: sample.key().next() };
            let shown = Shown { sample, key: at.key, parts: &parts, event, period: 0, user: &[] };
            if event < self.forms.len() {
                self.push_thread_and_time(out, shown, at, named);
            }
        }
        out.extend_from_slice(other::text(record, layouts).as_bytes());
    }

    /// Appends the name of the thread `named`, then the record's thread, CPU and time. Returns the place of
    /// the time, and the keys for which the rest is valid.
    fn push_thread_and_time(
        &mut self,
        out: &mut Vec<u8>,
        shown: Shown<'_>,
        at: At<'_>,
        named: u32,
    ) -> (Range<usize>, Range<OrderKey>) {
        let Shown { sample: SampleView { record, layout, .. }, parts, event, .. } = shown;
        let begin = out.len();
        let mut during = OrderKey::ALL;
        let forms = self.forms;
        let form = &forms[event];
        let narrow = self.options.narrow;
        let (pid, vcpu) = self.guest(record, layout, form);
        let texts = [pid.map(|pid| format!("VM:{pid:>5} ")), vcpu.map(|vcpu| format!("VCPU:{vcpu:03} "))];
        texts.iter().flatten().for_each(|text| out.extend_from_slice(text.as_bytes()));
        if form.has(Field::Comm) {
            let Comm { readable: comm, during: so_named, .. } = self.comm(at, named);
            during = so_named.clone();
            match form.has_chain && form.has(Field::Ip) {
                _ if narrow => {
                    let end = comm.len().min(8);
                    push_wide(out, 8, |out| out.extend_from_slice(&comm.as_bytes()[..end]));
                }
                true => out.extend_from_slice(comm.as_bytes()),
                false => push_wide(out, 16, |out| out.extend_from_slice(comm.as_bytes())),
            }
            out.push(b' ');
        }
        let (pid, tid) = parts.pid_tid.map_or((-1, -1), |(pid, tid)| (pid as i32, tid as i32));
        match (form.has(Field::Pid), form.has(Field::Tid)) {
            (true, true) => {
                push_wide(out, 7, |out| push_number(out, pid));
                out.push(b'/');
                let from = out.len();
                push_number(out, tid);
                out.resize(out.len().max(from + 7) + 1, b' ');
            }
            (true, false) => push_wide(out, 7, |out| push_number(out, pid)),
            (false, true) => push_wide(out, 7, |out| push_number(out, tid)),
            (false, false) => {}
        }
        if form.has(Field::Pid) != form.has(Field::Tid) {
            out.push(b' ');
        }
        let cpu = parts.cpu.or(self.options.like_perf.then_some(u32::MAX));
        if let Some(cpu) = cpu.filter(|_| form.has(Field::Cpu)) {
            match narrow {
                true => out.extend_from_slice(format!("{:3} ", cpu as i32).as_bytes()),
                false => push_cpu(out, cpu as i32),
            }
        }
        if form.has(Field::Misc) {
            out.extend_from_slice(format!("{:<6}", mode_letters(record.cpumode())).as_bytes());
        }
        if let Some(time) = form.time_of_day(parts) {
            out.extend_from_slice(time_of_day(time, self.options.nanoseconds).as_bytes());
            out.push(b' ');
            during = at.key..at.key.next();
        }
        let time = out.len() - begin;
        if form.has(Field::Time) {
            push_time(out, self.related(parts.time.unwrap_or(0)), self.options.nanoseconds);
        }
        (time..out.len() - begin, during)
    }

    fn related(&self, time: u64) -> u64 {
        let before = self.before.load(Ordering::Relaxed);
        match self.options.times {
            Times::Recorded => return time,
            Times::First if before > 0 => {}
            Times::First | Times::Previous => self.before.store(time, Ordering::Relaxed),
        }
        if before > 0 { time.wrapping_sub(before) } else { 0 }
    }

    /// Appends a sample as text. `at` is a reference, because most lines need no copy of it.
    fn write_text(&mut self, out: &mut Vec<u8>, shown: Shown<'_>, at: &At<'_>) -> Result<()> {
        let Shown { sample: SampleView { record, layout, .. }, parts, event, user, .. } = shown;
        let forms = self.forms;
        let form = &forms[event];
        self.push_front(out, shown, at);
        let flags = flags(form, shown);
        if form.is_branch {
            if form.has(Field::Callindent) {
                push_flags(out, flags);
                self.push_indented(out, shown, at)?;
                self.push_branch(out, shown, at, None)?;
            } else {
                self.push_branch(out, shown, at, flags)?;
            }
            push_ipc(out, form, shown);
            push_instruction(out, form, parts);
            out.push(b'\n');
            return Ok(());
        }
        if form.shows_only_code && parts.callchain.is_none() {
            self.push_branch(out, shown, at, None)?;
            out.push(b'\n');
            return Ok(());
        }
        let at = *at;
        push_flags(out, flags);
        out.extend_from_slice(self.trace(shown, at)?.unwrap_or_default().as_bytes());
        if let Some((config, raw)) = form.synthesized.zip(parts.raw).filter(|_| form.has(Field::Synth)) {
            let text = synth::text(config, raw, record.endian()).unwrap_or_default();
            out.extend_from_slice(text.as_bytes());
        }
        let shows_zero = self.options.decoded || self.options.like_perf;
        let address = parts.addr.or(shows_zero.then_some(0));
        if let Some(address) = address.filter(|_| form.has(Field::Addr)) {
            push_address(out, address);
            if form.names_address {
                self.push_symbol(out, form.frame(), at, address)?;
            }
        }
        let source = parts.data_src.or(shows_zero.then_some(DataSrc(0)));
        if let Some(source) = source.filter(|_| form.has(Field::DataSrc)) {
            push_address(out, source.0);
            out.push(b' ');
            out.extend_from_slice(data_src::text(source).as_bytes());
        }
        if form.has(Field::Weight) {
            push_wide(out, 16, |out| push_number(out, weight(parts).unwrap_or(0)));
        }
        let [instruction, end] = latencies(parts).unwrap_or_default();
        for (field, cycles) in [(Field::InsLat, instruction), (Field::RetireLat, end)] {
            if form.has(field) {
                push_wide(out, 16, |out| push_number(out, cycles));
            }
        }
        if form.has(Field::Cgroup) {
            let path = parts.cgroup.and_then(|id| self.facts.cgroups.get(&id));
            out.push(b' ');
            out.extend_from_slice(
                path.map_or_else(|| "unknown".to_owned(), |path| readable(path)).as_bytes(),
            );
        }
        let has_ip = form.has(Field::Ip);
        let stack = CallStack::in_sample(parts, record, layout).filter(|_| !self.options.hides_chains);
        match stack.filter(|_| has_ip) {
            Some(stack) => {
                out.push(b'\n');
                let tid = parts.pid_tid.map_or(u32::MAX, |(_, tid)| tid);
                self.push_stack(out, event, at, (tid, stack))?;
                if form.has_chain {
                    for &(address, frame) in user {
                        push_lines(out, form.frame(), self.names, (frame, self.lines(event)), address)?;
                    }
                }
            }
            None if has_ip => {
                self.own_frame(out, event, at, (record.cpumode(), parts.ip.unwrap_or(0)))?;
            }
            None => {}
        }
        push_registers(out, parts.regs_intr.filter(|_| form.has(Field::Iregs)), form.machine);
        push_registers(out, parts.regs_user.filter(|_| form.has(Field::Uregs)), form.machine);
        if let Some(branches) = parts.branches.filter(|_| form.has(Field::Brstack)) {
            for Branch { from, to, flags } in branches.iter() {
                out.push(b' ');
                for address in [from, to] {
                    out.extend_from_slice(HexNumber::new(address).as_bytes());
                    self.branch_dso(out, form, at, address)?;
                    out.push(b'/');
                }
                out.extend_from_slice(format!("{} ", shown_flags(flags)).as_bytes());
            }
        }
        // As in perf, not both.
        let is_named = form.has(Field::Brstacksym) && !form.has(Field::Brstack);
        if let Some(branches) = parts.branches.filter(|_| is_named) {
            let named = FrameForm { sym: true, symoff: true, srcline: false, ..form.frame() };
            for Branch { from, to, flags } in branches.iter() {
                for address in [from, to] {
                    let begin = out.len();
                    self.push_symbol(out, named, at, address)?;
                    // perf puts no blank before it.
                    out.drain(begin..out.len().min(begin + 1));
                    out.push(b'/');
                }
                out.extend_from_slice(format!("{} ", shown_flags(flags)).as_bytes());
            }
        }
        push_instruction(out, form, parts);
        if form.has(Field::PhysAddr) {
            push_address(out, parts.phys_addr.unwrap_or(0));
        }
        for (field, size) in
            [(Field::DataPageSize, parts.data_page_size), (Field::CodePageSize, parts.code_page_size)]
        {
            if form.has(field) {
                out.push(b' ');
                out.extend_from_slice(page_size(size.unwrap_or(0)).as_bytes());
            }
        }
        push_ipc(out, form, shown);
        out.push(b'\n');
        Ok(())
    }

    fn trace(&self, Shown { parts, event, .. }: Shown<'_>, at: At<'_>) -> Result<Option<String>> {
        let form = &self.forms[event];
        let Some((trace, raw)) = form.trace.zip(parts.raw).filter(|_| form.has(Field::Trace)) else {
            return Ok(None);
        };
        let mut failed = None;
        let text = trace.text(raw, &mut |address| {
            let found = self.names.of(self.frame_in(at, (KERNEL, address)), Lines::None, address);
            let Found { calls, past } = found.map_err(|error| failed = Some(error)).ok()?;
            let Called { name, offset, .. } = calls.last()?;
            Some((name.as_ref()?.to_string(), offset + past))
        });
        failed.map_or(Ok(Some(text)), Err)
    }

    fn branch_dso(&mut self, out: &mut Vec<u8>, form: &Form<'_>, at: At<'_>, address: u64) -> Result<()> {
        let only = FrameForm { sym: false, symoff: false, srcline: false, ..form.frame() };
        if only.dso { self.push_symbol(out, only, at, address).map(drop) } else { Ok(()) }
    }

    /// Appends the symbol of an address outside of frames, and returns the keys for which it is valid, if
    /// known. As in perf, if nothing is mapped there on the sample's side, the other side is searched.
    fn push_symbol(
        &mut self,
        out: &mut Vec<u8>,
        form: FrameForm,
        at: At<'_>,
        address: u64,
    ) -> Result<Range<OrderKey>> {
        let (names, mode, before) = (self.names, at.sample.record.cpumode(), out.len());
        let push = |out: &mut Vec<u8>, frame: Frame| -> Result<()> {
            let Found { calls, past } = names.of(of_data(frame), Lines::None, address)?;
            calls.last().into_iter().for_each(|call| push_call(out, form, call, past));
            Ok(())
        };
        let place = (at.space(&self.facts.guests, mode), at.key);
        let written = 2 * FrameForm::COUNT + form.number();
        let during = self.frame(out, written, place, (mode, address), |out, frame| {
            if frame.dso.is_some() { push(out, frame) } else { Ok(()) }
        })?;
        if out.len() > before {
            return Ok(during);
        }
        push(out, self.on_other_side(at, address))?;
        Ok(at.key..at.key.next())
    }

    /// Appends the function that a branch calls or returns from, indented by call depth (see [`Indent`]).
    fn push_indented(&mut self, out: &mut Vec<u8>, shown: Shown<'_>, at: &At<'_>) -> Result<()> {
        let Shown { sample: SampleView { record, .. }, parts, event, .. } = shown;
        let forms = self.forms;
        let form = &forms[event];
        let depth = parts.raw.and_then(|raw| FlowFlags::depth(raw, record.endian())).unwrap_or(0);
        if form.has(Field::Dso) && !form.has(Field::Ip) && !form.has(Field::Addr) {
            let begin = out.len();
            self.push_symbol(
                out,
                FrameForm { dso: true, ..FrameForm::default() },
                *at,
                parts.ip.unwrap_or(0),
            )?;
            // perf fills the brackets, and puts no blank before them.
            out.drain(begin..begin + 1);
            out.pop();
            out.resize(out.len().max(begin + 1 + self.options.dso_width), b' ');
            out.extend_from_slice(b")\t");
        }
        let begin = out.len();
        if let Some(function) = function_of(shown) {
            out.resize(begin + 4 * depth.min(MOST_INDENTED) as usize, b' ');
            let name = out.len();
            self.push_symbol(out, FrameForm { sym: true, ..FrameForm::default() }, *at, function)?;
            match &out[name..] == b" [unknown]" {
                true => {
                    out.truncate(name);
                    push_address(out, function);
                }
                false => drop(out.drain(name..name + 1)),
            }
        }
        self.indent = Some(Indent { end: out.len(), width: out.len() - begin });
        Ok(())
    }

    fn push_branch(
        &mut self,
        out: &mut Vec<u8>,
        shown: Shown<'_>,
        at: &At<'_>,
        flags: Option<FlowFlags>,
    ) -> Result<()> {
        let Shown { sample: SampleView { record, .. }, parts, event, .. } = shown;
        let forms = self.forms;
        let form = &forms[event];
        let (from, to) = (parts.ip.unwrap_or(0), parts.addr.filter(|_| form.shows_targets));
        let space = at.space(&self.facts.guests, record.cpumode());
        let branch = space.filter(|_| self.options.decoded).map(|space| branches::Branch {
            event,
            space,
            from,
            to,
            flags: flags.map_or(0, |flags| flags.0),
        });
        let is_recorded = self.options.times == Times::Recorded;
        self.last = branch.filter(|_| form.shows_only_code && parts.time.is_some() && is_recorded);
        if let Some(branch) = &branch
            && let Some(text) = self.branches.get(branch, at.key)
        {
            out.extend_from_slice(text);
            return Ok(());
        }
        let begin = out.len();
        let mut during = OrderKey::ALL;
        let mut narrow = |keys: Range<OrderKey>| {
            during = during.start.max(keys.start)..during.end.min(keys.end);
        };
        push_flags(out, flags);
        if form.has(Field::Ip) {
            narrow(self.own_frame(out, event, *at, (record.cpumode(), from))?);
        }
        if let Some(address) = to {
            // As in perf, the source line comes after the target.
            let line = out[begin..].iter().position(|byte| *byte == b'\n');
            let line = line.map(|at| out.split_off(begin + at)).unwrap_or_default();
            out.extend_from_slice(b" => ");
            push_address(out, address);
            narrow(self.push_symbol(out, form.frame(), *at, address)?);
            out.extend(line);
        }
        if let Some(branch) = branch {
            self.branches.keep(branch, during, &out[begin..]);
        }
        Ok(())
    }

    fn guest(&self, record: &Record<'_>, layout: &Layout, form: &Form<'_>) -> (Option<u32>, Option<u32>) {
        let guest = match layout.id(record) {
            Some(id) if form.has(Field::MachinePid) || form.has(Field::Vcpu) => self.facts.guests.cpu_of(id),
            _ => None,
        };
        let (pid, vcpu) = guest.unzip();
        (pid.filter(|_| form.has(Field::MachinePid)), vcpu.flatten().filter(|_| form.has(Field::Vcpu)))
    }

    fn write_json(&mut self, out: &mut Vec<u8>, shown: Shown<'_>, at: At<'_>) -> Result<()> {
        let Shown { sample: SampleView { record, layout, .. }, parts, event, period, user, .. } = shown;
        let forms = self.forms;
        let form = &forms[event];
        let found = |address| -> Result<(u64, Found)> {
            Ok((address, self.names.of(self.data_frame(at, address), Lines::None, address)?))
        };
        let touched = parts.addr.filter(|_| form.has(Field::Addr) && form.names_address);
        let touched = touched.map(found).transpose()?;
        let called = function_of(shown).filter(|_| form.is_branch && form.has(Field::Callindent));
        let called = called.map(found).transpose()?;
        let branches = parts.branches.filter(|_| form.has(Field::Brstacksym));
        let ends = branches.iter().flat_map(Branches::iter).flat_map(|branch| [branch.from, branch.to]);
        let ends = ends.map(found).collect::<Result<Vec<_>>>()?;
        let cgroup = parts.cgroup.and_then(|id| self.facts.cgroups.get(&id));
        let guest = self.guest(record, layout, form);
        let trace = self.trace(shown, at)?;
        let comm = form
            .has(Field::Comm)
            .then(|| &self.comm(at, parts.pid_tid.map_or(u32::MAX, |(_, tid)| tid)).name[..]);
        let mut line = SampleLine::new(form, parts, period);
        line.comm = comm.map(json::text);
        line.trace = trace;
        (line.machine_pid, line.vcpu) = guest;
        line.misc = form.has(Field::Misc).then(|| mode_letters(record.cpumode()));
        line.tod = form.time_of_day(parts).map(rfc3339);
        if let Some(raw) = parts.raw {
            let endian = record.endian();
            line.flags = flags(form, shown).filter(|_| form.has_flow).map(FlowFlags::text);
            let bytes = FlowFlags::instruction(raw).filter(|_| form.has_flow).unwrap_or_default();
            line.insnlen = form.has(Field::Insnlen).then_some(bytes.len());
            let insn =
                form.has(Field::Insn).then(|| bytes.iter().map(|byte| format!("{byte:02x}")).collect());
            line.insn = insn.filter(|insn: &String| !insn.is_empty());
            let is_disassembled = form.has(Field::Disasm) && form.has_flow;
            line.disasm = parts.ip.filter(|_| is_disassembled).and_then(|ip| disassembled(raw, ip));
            line.callindent = FlowFlags::depth(raw, endian).filter(|_| form.has(Field::Callindent));
            let counted = counted(form, shown).map(|(instructions, cycles)| Counted {
                instructions: Decimal(instructions),
                cycles: Decimal(cycles),
            });
            line.ipc = counted;
            let synthesized = form.synthesized.filter(|_| form.has(Field::Synth));
            let text = synthesized.and_then(|config| synth::text(config, raw, endian));
            line.synth = text.map(|text| text.trim().to_owned());
        }
        line.cgroup = form.has(Field::Cgroup).then(|| cgroup.map(|path| json::text(path)));
        line.addr_frame = touched.as_ref().and_then(|found| json::outermost(form.frame(), found));
        let named = FrameForm { sym: true, symoff: true, dso: true, ..form.frame() };
        line.function = called.as_ref().and_then(|found| json::outermost(named, found));
        line.name_branches(form.frame(), &ends);
        json::begin(out, line)?;
        if form.has(Field::Ip) {
            let mut separated = json::Items::begin(out);
            match CallStack::in_sample(parts, record, layout) {
                Some(stack) => {
                    for entry in stack.frames() {
                        separated.next(out);
                        let space = at.space(&self.facts.guests, entry.0);
                        self.chain_frame(out, event, (space, at.key), entry)?;
                    }
                    for &(address, frame) in user.iter().filter(|_| form.has_chain) {
                        separated.next(out);
                        let Found { calls, past } = self.names.of(frame, self.lines(event), address)?;
                        json::push_frames(out, form.frame(), address, &calls, past)?;
                    }
                }
                None => {
                    self.own_frame(out, event, at, (record.cpumode(), parts.ip.unwrap_or(0)))?;
                }
            }
            json::Items::end(out);
        }
        out.push(b'\n');
        Ok(())
    }

    fn comm(&mut self, at: At<'_>, tid: u32) -> &Comm {
        let machine =
            self.facts.guests.machine(at.sample.record, at.sample.layouts, named_pid(at.sample.record));
        if self.comms.len() > COMMS {
            self.comms.clear();
        }
        let facts = self.facts;
        let new = || {
            let (name, during) = facts.tasks.name_during(machine, tid, at.key);
            Comm { during, readable: readable(&name), name: name.into_owned() }
        };
        let comm = self.comms.entry((machine, tid)).or_insert_with(new);
        if !comm.during.contains(&at.key) {
            *comm = new();
        }
        comm
    }

    fn data_frame(&self, at: At<'_>, address: u64) -> Frame {
        let own = self.frame_in(at, (at.sample.record.cpumode(), address));
        of_data(if own.dso.is_some() { own } else { self.on_other_side(at, address) })
    }

    fn on_other_side(&self, at: At<'_>, address: u64) -> Frame {
        let mode = if is_kernel(at.sample.record.cpumode()) { USER } else { KERNEL };
        self.frame_in(at, (mode, address))
    }

    fn frame_in(&self, at: At<'_>, entry: (u16, u64)) -> Frame {
        frame_at(self.facts, (at.sample.record, at.sample.layouts), at.pid, at.key, entry)
    }

    fn lines(&self, event: usize) -> Lines {
        match (self.forms[event].has(Field::Srcline), self.options.inlined) {
            (false, _) => Lines::None,
            (true, false) => Lines::Innermost,
            (true, true) => Lines::Each,
        }
    }

    fn push_stack(
        &mut self,
        out: &mut Vec<u8>,
        event: usize,
        at: At<'_>,
        (tid, stack): (u32, CallStack<'_>),
    ) -> Result<()> {
        let form = self.forms[event].frame().number();
        let slot = tid as usize % CHAINS;
        let mut kept = std::mem::take(&mut self.chains[slot]);
        if kept.form != form {
            kept = WrittenChain { form, ..WrittenChain::default() };
        }
        let WrittenChain { last, text, ends, .. } = &mut kept;
        let most = self.options.max_stack.unwrap_or(usize::MAX);
        let spaces = stack.frames().take(most).map(|entry| (at.space(&self.facts.guests, entry.0), entry));
        let shared = last.next(at.key, spaces);
        let (begin, new) = (out.len(), last.addresses().len() - shared);
        let mut starts = Vec::with_capacity(new);
        for number in 0..new {
            let (space, entry) = last.addresses()[number];
            starts.push(out.len());
            last.is_during(&self.chain_frame(out, event, (space, at.key), entry)?);
        }
        ends.truncate(shared);
        let known = text.len() - ends.last().copied().unwrap_or(0);
        out.extend_from_slice(&text[known..]);
        ends.extend(starts.iter().rev().map(|start| out.len() - start));
        text.clear();
        text.extend_from_slice(&out[begin..]);
        self.chains[slot] = if text.len() > LONGEST { WrittenChain::default() } else { kept };
        Ok(())
    }

    /// Appends a frame of a chain: inlined calls, innermost first, then the function. Returns its keys.
    fn chain_frame(
        &mut self,
        out: &mut Vec<u8>,
        event: usize,
        at: (Option<Space>, OrderKey),
        entry: (u16, u64),
    ) -> Result<Range<OrderKey>> {
        let (form, lines, json) = (self.forms[event].frame(), self.lines(event), self.options.json);
        let (names, address) = (self.names, entry.1);
        self.frame(out, form.number(), at, entry, |out, frame| match json {
            true => {
                let Found { calls, past } = names.of(frame, lines, address)?;
                json::push_frames(out, form, address, &calls, past)
            }
            false => push_lines(out, form, names, (frame, lines), address),
        })
    }

    /// Appends the address of a sample without a chain. Returns the keys for which it is valid.
    fn own_frame(
        &mut self,
        out: &mut Vec<u8>,
        event: usize,
        at: At<'_>,
        entry: (u16, u64),
    ) -> Result<Range<OrderKey>> {
        let (form, json) = (self.forms[event].frame(), self.options.json);
        let lines = if form.srcline { Lines::Innermost } else { Lines::None };
        let (names, address) = (self.names, entry.1);
        let space = at.space(&self.facts.guests, entry.0);
        self.frame(out, FrameForm::COUNT + form.number(), (space, at.key), entry, |out, frame| {
            let Found { calls, past } = names.of(frame, lines, address)?;
            let call = &calls[calls.len() - 1..];
            if json {
                return json::push_frames(out, form, address, call, past);
            }
            out.push(b' ');
            push_address(out, address);
            call.iter().for_each(|call| push_call(out, form, call, past));
            Ok(())
        })
    }

    /// Appends the cached text of an address in a space at a key, or else the output of `write`. Returns the
    /// keys for which it is valid.
    fn frame(
        &mut self,
        out: &mut Vec<u8>,
        written: usize,
        (space, key): (Option<Space>, OrderKey),
        entry: (u16, u64),
        write: impl FnOnce(&mut Vec<u8>, Frame) -> Result<()>,
    ) -> Result<Range<OrderKey>> {
        let WrittenFrames { known, bytes } = self.written[written].get_or_insert_default();
        if bytes.len() > WRITTEN {
            bytes.clear();
            *known = FrameCache::default();
        }
        let ((from, end), during) =
            known.get_during(self.facts, space, key, entry, |frame| -> Result<(u32, u32)> {
                let from = bytes.len();
                write(bytes, frame)?;
                Ok((from as u32, bytes.len() as u32))
            })?;
        out.extend_from_slice(&bytes[from as usize..end as usize]);
        Ok(during)
    }
}

/// Names data by its memory, not as JIT code.
fn of_data(frame: Frame) -> Frame {
    Frame { process: 0, ..frame }
}

/// The address in the function that a branch calls or returns from.
fn function_of(Shown { sample: SampleView { record, .. }, parts, .. }: Shown<'_>) -> Option<u64> {
    let function = match FlowFlags::of_raw(parts.raw?, record.endian())?.0 {
        flow if flow & (FlowFlags::CALL | FlowFlags::BEGIN) != 0 => parts.addr,
        flow if flow & (FlowFlags::RETURN | FlowFlags::END) != 0 => parts.ip,
        _ => None,
    };
    function.filter(|address| *address != 0)
}

fn flags(form: &Form<'_>, Shown { sample, parts, .. }: Shown<'_>) -> Option<FlowFlags> {
    let raw = parts.raw.filter(|_| form.has_flow);
    let flags = raw.and_then(|raw| FlowFlags::of_raw(raw, sample.record.endian()));
    form.has(Field::Flags).then(|| flags.unwrap_or_default())
}

fn push_flags(out: &mut Vec<u8>, flags: Option<FlowFlags>) {
    if let Some(flags) = flags {
        out.extend_from_slice(format!("  {:<21} ", flags.text()).as_bytes());
    }
}

fn counted(form: &Form<'_>, Shown { sample, parts, .. }: Shown<'_>) -> Option<(u64, u64)> {
    let raw = parts.raw.filter(|_| form.has(Field::Ipc))?;
    FlowFlags::counted(raw, sample.record.endian())
        .filter(|(instructions, cycles)| *instructions > 0 && *cycles > 0)
}

fn push_ipc(out: &mut Vec<u8>, form: &Form<'_>, shown: Shown<'_>) {
    if let Some((instructions, cycles)) = counted(form, shown) {
        let hundredths = u128::from(instructions) * 100 / u128::from(cycles);
        let (whole, rest) = (hundredths / 100, hundredths % 100);
        out.extend_from_slice(format!(" \t IPC: {whole}.{rest:02} ({instructions}/{cycles}) ").as_bytes());
    }
}

fn push_instruction(out: &mut Vec<u8>, form: &Form<'_>, parts: &Sample<'_>) {
    let bytes = parts.raw.and_then(FlowFlags::instruction).unwrap_or_default();
    if form.has(Field::Insnlen) {
        out.extend_from_slice(format!(" ilen: {}", bytes.len()).as_bytes());
    }
    if form.has(Field::Insn) && !bytes.is_empty() {
        out.extend_from_slice(b" insn:");
        bytes.iter().for_each(|byte| out.extend_from_slice(format!(" {byte:02x}").as_bytes()));
    }
    if let Some((raw, ip)) = parts.raw.zip(parts.ip).filter(|_| form.has(Field::Disasm))
        && let Some(text) = disassembled(raw, ip)
    {
        out.extend_from_slice(b"\t\t");
        out.extend_from_slice(text.as_bytes());
    }
}

/// The text of an x86 instruction, or the bytes of others: no library decodes all of A64.
fn disassembled(raw: &[u8], ip: u64) -> Option<String> {
    let bytes = FlowFlags::instruction(raw).filter(|bytes| !bytes.is_empty())?;
    match FlowFlags::instruction_bits(raw) {
        Some(bits) => listing(bits, bytes, ip).next().map(|(_, text)| text),
        None => Some(bytes.iter().map(|byte| format!("{byte:02x}")).collect::<Vec<_>>().join(" ")),
    }
}

fn push_lines(
    out: &mut Vec<u8>,
    form: FrameForm,
    names: &SharedNames,
    (frame, lines): (Frame, Lines),
    address: u64,
) -> Result<()> {
    let Found { calls, past } = names.of(frame, lines, address)?;
    for call in calls.iter() {
        out.push(b'\t');
        push_address(out, address);
        push_call(out, form, call, past);
        out.push(b'\n');
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_front_has_the_time_of_each_line_while_the_rest_of_it_is_the_same() {
        let written = WrittenFront {
            text: b"prog     1.000000: b:".to_vec(),
            time: 5..19,
            during: OrderKey::at(1)..OrderKey::at(9_000_000_000_000),
        };
        let mut front = Front {
            id: None,
            event: 0,
            cpumode: USER,
            pid_tid: None,
            cpu: None,
            time: Some(1_000_000_000),
            period: 1,
            written,
        };
        let mut at = |time: u64| {
            let mut out = b"before ".to_vec();
            let is_known = front.push_at(&mut out, Some(time), OrderKey::at(time), false);
            is_known.then(|| String::from_utf8(out).unwrap())
        };
        assert_eq!(at(1_000_000_000).unwrap(), "before prog     1.000000: b:");
        assert_eq!(at(1_000_002_000).unwrap(), "before prog     1.000002: b:");
        assert_eq!(at(1_000_002_999).unwrap(), "before prog     1.000002: b:");
        // More digits of seconds move the text after them.
        assert_eq!(at(8_123_456_000_000).unwrap(), "before prog  8123.456000: b:");
        assert_eq!(at(1_000_003_000).unwrap(), "before prog     1.000003: b:");
        assert_eq!(at(9_000_000_000_000), None);
        assert_eq!(at(1_000_004_000).unwrap(), "before prog     1.000004: b:");
    }
}
