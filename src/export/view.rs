//! Prints samples in the order of their times as `perf script` does, with chosen fields.
//!
//! The layout of a block is that of perf 7.3 (tools/perf/builtin-script.c, `process_event`): a line with the fields,
//! then a line for each frame of a call chain, and an empty line.

use std::collections::HashMap;
use std::collections::hash_map::Entry;
use std::io::Write;
use std::sync::Arc;

use clap::ValueEnum;
use foldhash::fast::RandomState;
use perfx_format::features::{formats_by_id, trace_formats};
use perfx_format::read::Recording;
use perfx_format::record::cpumode::{KERNEL, USER};
use perfx_format::record::deferred::CallchainDeferred;
use perfx_format::sample::{Branch, BranchFlags, Sample, Weight, cookie_of, frames};
use perfx_format::tracepoint::TraceFormat;
use perfx_format::{Endian, Event, Feature, Kinds, Layouts, Record, RecordType, named_pid, sample_type};
use perfx_look::render::readable;
use perfx_look::trace::TracePrinter;
use perfx_model::address_space::moment;
use perfx_passes::{FilterOptions, SelectedSamples};
use perfx_pipeline::{LISTED, Level, Report, Result, bail, counted};
use perfx_resolve::{
    Facts, Frame, IdOptions, Named, NamedPlace, Names, Search, dwarf_files, frame_at, with_deep_stack,
};
use symbols::DwarfFiles;

use crate::counters::{Reading, event_of, period, readings};
use crate::losses::{Losses, say_faults};

/// A field of a sample, by perf's name.
#[derive(Clone, Copy, PartialEq, Eq, Debug, ValueEnum)]
#[value(rename_all = "snake_case")]
#[allow(missing_docs, reason = "the names are those of perf script -F")]
pub enum Field {
    Comm,
    Pid,
    Tid,
    Cpu,
    Time,
    Period,
    Event,
    Trace,
    Addr,
    Weight,
    Cgroup,
    Ip,
    Sym,
    Symoff,
    Dso,
    Srcline,
    Brstack,
    PhysAddr,
    DataPageSize,
    CodePageSize,
}

impl Field {
    /// The bits of `attr.sample_type` of which one is needed, and the option of perf record that sets it; `None` if
    /// every sample has the field.
    fn needs(self) -> Option<(u64, &'static str)> {
        Some(match self {
            Field::Pid | Field::Tid => (sample_type::TID, "the process"),
            Field::Cpu => (sample_type::CPU, "the CPU (perf record --sample-cpu)"),
            Field::Time => (sample_type::TIME, "the time (perf record --timestamp)"),
            Field::Trace => (sample_type::RAW, "raw data (perf record -R, and tracepoints always)"),
            Field::Addr => (sample_type::ADDR, "the address (perf record --data)"),
            Field::Weight => {
                (sample_type::WEIGHT | sample_type::WEIGHT_STRUCT, "the weight (perf record --weight)")
            }
            Field::Cgroup => (sample_type::CGROUP, "the cgroup (perf record --all-cgroups)"),
            Field::Ip => (sample_type::IP, "the instruction pointer"),
            Field::Sym | Field::Symoff | Field::Dso => (sample_type::IP | sample_type::ADDR, "an address"),
            Field::Srcline => (sample_type::IP, "the instruction pointer"),
            Field::Brstack => (sample_type::BRANCH_STACK, "branches (perf record -b)"),
            Field::PhysAddr => (sample_type::PHYS_ADDR, "physical addresses (perf record --phys-data)"),
            Field::DataPageSize => (sample_type::DATA_PAGE_SIZE, "page sizes (perf record --data-page-size)"),
            Field::CodePageSize => (sample_type::CODE_PAGE_SIZE, "page sizes (perf record --code-page-size)"),
            Field::Comm | Field::Period | Field::Event => return None,
        })
    }

    fn is_of(self, event: &Event) -> bool {
        self.needs().is_none_or(|(bits, _)| event.attr().sample_type & bits != 0)
    }
}

/// The fields that perf prints by default.
const DEFAULT: [Field; 11] = [
    Field::Comm,
    Field::Tid,
    Field::Cpu,
    Field::Time,
    Field::Period,
    Field::Event,
    Field::Trace,
    Field::Ip,
    Field::Sym,
    Field::Symoff,
    Field::Dso,
];

/// The fields to print.
#[derive(Clone, PartialEq, Eq, Default, Debug)]
pub struct FieldChoice {
    /// Only these, in perf's order; `None`: those that perf prints by default.
    pub only: Option<Vec<Field>>,
    /// In addition.
    pub with: Vec<Field>,
    /// But not these.
    pub without: Vec<Field>,
}

impl FieldChoice {
    /// The fields of an event.
    ///
    /// perf shows the CPU of tracepoints by default, and of other events only their other fields; it shows no period of
    /// tracepoints, and where they were only with their call chain.
    fn of(&self, event: &Event) -> Vec<Field> {
        let attr = event.attr();
        let (trace, chain) = (attr.is_tracepoint(), attr.sample_type & sample_type::CALLCHAIN != 0);
        let by_default = |field: &&Field| match field {
            Field::Period => !trace,
            Field::Trace => trace,
            Field::Ip | Field::Sym | Field::Symoff | Field::Dso => !trace || chain,
            _ => true,
        };
        let mut fields = match &self.only {
            Some(only) => only.clone(),
            None => DEFAULT.iter().filter(by_default).copied().collect(),
        };
        fields.extend(&self.with);
        fields.retain(|field| !self.without.contains(field) && field.is_of(event));
        fields
    }

    /// True if the user named the field.
    fn names(&self, field: Field) -> bool {
        self.only.iter().flatten().chain(&self.with).any(|named| *named == field)
    }

    /// Fails if a field that the user named is in no sample.
    fn check(&self, events: &[Event]) -> Result<()> {
        if self.only.is_some() && self.names(Field::Srcline) && !self.names(Field::Ip) {
            bail!("srcline is the line of an address; -F needs ip, too");
        }
        for field in self.only.iter().flatten().chain(&self.with) {
            if let Some((_, what)) = field.needs()
                && !events.is_empty()
                && !events.iter().any(|event| field.is_of(event))
            {
                bail!("no event of this recording records {what}, so it can't be shown");
            }
        }
        Ok(())
    }
}

/// What is printed.
#[derive(Clone, PartialEq, Eq, Default, Debug)]
pub struct ViewOptions {
    /// The fields.
    pub fields: FieldChoice,
    /// Times with nine digits after the point in place of six.
    pub nanoseconds: bool,
    /// Calls that the compiler inlined, too.
    pub inlined: bool,
    /// At most so many samples.
    pub head: Option<u64>,
    /// Nothing; the samples are counted.
    pub count_only: bool,
}

/// What was printed.
#[derive(Clone, Default, Debug)]
pub struct Viewed {
    /// The number of samples.
    pub samples: u64,
}

/// Prints the samples that `filter` selects; if that is empty, all.
///
/// # Errors
///
/// The recording cannot be read or decompressed, its samples lack what is to be printed or what they are selected by,
/// or `out` fails.
pub fn view(
    mut recording: Recording,
    ids: &IdOptions,
    filter: &Arc<FilterOptions>,
    options: &ViewOptions,
    threads: usize,
    report: &mut Report,
    out: &mut (dyn Write + Send),
) -> Result<Viewed> {
    let facts = Facts::survey(&mut recording, threads, true)?;
    let events = recording.all_events();
    options.fields.check(&events).map_err(|error| error.in_file(&recording.name))?;
    let selected = SelectedSamples::if_any(&mut recording, filter, threads, report)?;
    if let Some(selected) = &selected {
        selected.narrow(&mut recording, Kinds::of(&[RecordType::CALLCHAIN_DEFERRED]));
    }
    say_faults(&recording, report);
    let name = recording.name.clone();
    let (features, endian) = (recording.features.clone(), recording.endian);
    let viewed = with_deep_stack(|| {
        // Source lines are in the same DWARF.
        let inlined = options.inlined || options.fields.names(Field::Srcline);
        let search = Search { facts: &facts, features: &features, endian, ids, inlined };
        let files = dwarf_files();
        let section = features.get(&Feature::TRACING_DATA);
        let formats = section.map(|section| trace_formats(section, endian)).unwrap_or_default();
        let formats = (&formats_by_id(&formats), endian);
        Printer::new(&facts, &events, (Names::new(search), &files), formats, options, out).print(
            recording,
            selected.as_ref(),
            report,
        )
    })??;
    if let Some(selected) = selected.filter(|_| viewed.samples == 0) {
        selected.say_none(&name, report);
    }
    Ok(viewed)
}

/// How the samples of an event are printed.
struct Form<'t> {
    name: String,
    /// Prints the raw data of a tracepoint.
    trace: Option<TracePrinter<'t>>,
    /// True if a sample was printed.
    printed: bool,
    fields: Vec<Field>,
    has_chain: bool,
    /// perf also shows which symbol the address is in, for events whose address is one of code or data that they
    /// touched.
    names_address: bool,
}

impl<'t> Form<'t> {
    fn has(&self, field: Field) -> bool {
        self.fields.contains(&field)
    }

    /// The forms of all events.
    fn all(
        facts: &Facts,
        events: &[Event],
        choice: &FieldChoice,
        (formats, endian): (&HashMap<u64, TraceFormat<'t>>, Endian),
    ) -> Vec<Form<'t>> {
        let form = |(facts, event): (&crate::EventFacts, &Event)| {
            let attr = event.attr();
            // PERF_TYPE_SOFTWARE: page-faults, minor-faults, major-faults; PERF_TYPE_HARDWARE: branch-instructions of
            // period 1, which is BTS.
            let names_address = match attr.type_ {
                1 => matches!(attr.config, 2 | 5 | 6),
                0 => attr.config == 4 && attr.sample_period == 1,
                _ => false,
            };
            let format = formats.get(&attr.config).filter(|_| attr.is_tracepoint());
            Form {
                name: readable(&facts.name),
                trace: format.map(|format| TracePrinter::new(format, endian)),
                printed: false,
                fields: choice.of(event),
                has_chain: facts.has_chains,
                names_address,
            }
        };
        let mut forms: Vec<Form<'_>> = facts.events.iter().zip(events).map(form).collect();
        let width = forms.iter().map(|form| form.name.len()).max().unwrap_or(0);
        forms
            .iter_mut()
            .for_each(|form| form.name = format!("{}{}: ", padding(&form.name, width), form.name));
        forms
    }
}

/// The text of a frame behind its address: the inlined calls, then the function.
type Texts = Arc<[String]>;

/// Which source lines the text of a frame has.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
enum Lines {
    None,
    /// That of each function.
    Each,
    /// Only that of the code.
    Innermost,
}

/// A frame, whether its symbol, offset and DSO are shown, and its lines. The address is 0 if it is not shown.
type TextKey = (Frame, [bool; 3], Lines, u64);

/// A sample whose chain waits for its user part.
struct Waiting {
    /// Its place among these samples.
    number: u64,
    cookie: u64,
    blocks: Vec<Block>,
}

/// The text of a sample before and after the user part of its chain.
struct Block {
    event: usize,
    before: Vec<u8>,
    after: Vec<u8>,
}

struct Printer<'f, 'o> {
    facts: &'f Facts,
    forms: Vec<Form<'f>>,
    names: Names<'f>,
    files: &'f DwarfFiles,
    options: &'o ViewOptions,
    out: &'o mut (dyn Write + Send),
    /// The DSOs, and the memory of processes, that were needed.
    places: HashMap<(Option<u32>, u32), NamedPlace<'f>>,
    /// The texts of frames.
    texts: HashMap<TextKey, Texts, RandomState>,
    /// The last value of each counter that samples read.
    counters: HashMap<(u64, u32), u64>,
    /// By thread.
    waiting: HashMap<u32, Vec<Waiting>>,
    /// The number of samples that have waited or wait.
    deferred: u64,
    viewed: Viewed,
    losses: Losses,
}

impl<'f, 'o> Printer<'f, 'o> {
    fn new(
        facts: &'f Facts,
        events: &[Event],
        (names, files): (Names<'f>, &'f DwarfFiles),
        formats: (&HashMap<u64, TraceFormat<'f>>, Endian),
        options: &'o ViewOptions,
        out: &'o mut (dyn Write + Send),
    ) -> Printer<'f, 'o> {
        Printer {
            facts,
            forms: Form::all(facts, events, &options.fields, formats),
            names,
            files,
            options,
            out,
            places: HashMap::new(),
            texts: HashMap::default(),
            counters: HashMap::new(),
            waiting: HashMap::new(),
            deferred: 0,
            viewed: Viewed::default(),
            losses: Losses::default(),
        }
    }

    fn is_full(&self) -> bool {
        self.options.head.is_some_and(|head| self.viewed.samples >= head)
    }

    fn print(
        mut self,
        recording: Recording,
        selected: Option<&SelectedSamples>,
        report: &mut Report,
    ) -> Result<Viewed> {
        let mut chooser = selected.map(SelectedSamples::chooser);
        let mut records = recording.records_by_time()?;
        while !self.is_full() {
            let record = match records.next_record() {
                Ok(Some(record)) => record,
                Ok(None) => break,
                // What follows the damage can be read.
                Err(error) => {
                    report.say(Level::Loss, error.to_string());
                    continue;
                }
            };
            let layouts = record.layouts();
            if let Some(user) = CallchainDeferred::of(&record) {
                self.user_part(&record, user, layouts)?;
            } else if record.kind() == RecordType::SAMPLE
                && chooser.as_mut().is_none_or(|chooser| chooser.takes(&record, layouts))
            {
                self.sample(&record, layouts)?;
            }
        }
        let mut rest: Vec<Waiting> = self.waiting.drain().flat_map(|(_, waiting)| waiting).collect();
        rest.sort_unstable_by_key(|waiting| waiting.number);
        for waiting in rest {
            self.complete(waiting.blocks, None)?;
        }
        self.out.flush()?;
        self.losses.say("not shown", report);
        self.say_by_field(report);
        let mut named = Named::default();
        let mut places: Vec<_> = self.places.iter().collect();
        places.sort_unstable_by_key(|(key, _)| **key);
        places.iter().for_each(|(_, place)| named.count(place));
        named.say_reasons(report);
        Ok(self.viewed)
    }

    /// Reports the printed tracepoints whose kernel's format for printing is not used.
    fn say_by_field(&self, report: &mut Report) {
        let printed = self.forms.iter().filter(|form| form.has(Field::Trace) && form.printed);
        let why = |form: &Form<'f>| {
            Some((form.name.trim().to_owned(), form.trace.as_ref()?.why_by_field()?.to_owned()))
        };
        let all: Vec<(String, String)> = printed.filter_map(why).collect();
        if !all.is_empty() {
            let events = counted(all.len() as u64, "tracepoint", "tracepoints");
            let what = "are shown one by one: perfx does not print as the kernel's format for printing says";
            report.say(Level::Info, format!("the fields of {events} {what}{LISTED}"));
            all.iter().for_each(|(name, why)| report.say(Level::Detail, format!("{name} {why}")));
        }
    }

    /// Prints a sample, or each counter that it read and that has gained.
    fn sample(&mut self, sample: &Record<'_>, layouts: &Layouts) -> Result<()> {
        let Some((event, layout)) = event_of(sample, layouts, self.facts) else {
            self.losses.astray += 1;
            return Ok(());
        };
        let Ok(parts) = Sample::parse(sample, layout) else {
            self.losses.short += 1;
            return Ok(());
        };
        let mut shown: Vec<(usize, u64)> = Vec::new();
        if layout.sample_type & sample_type::READ == 0 {
            shown.push((event, period(sample, layout, &self.facts.events[event])));
        } else {
            for Reading { event, key, value } in
                readings((sample, event, layout), layouts, self.facts, &mut self.losses)
            {
                let last = self.counters.insert(key, value).unwrap_or(0);
                if value != last {
                    shown.push((event, value.wrapping_sub(last)));
                }
            }
        }
        let mut blocks = Vec::new();
        for (event, period) in shown {
            blocks.push(self.block(sample, layouts, &parts, event, period)?);
        }
        match parts.callchain.and_then(cookie_of) {
            Some(cookie) => {
                let tid = parts.pid_tid.map_or(0, |(_, tid)| tid);
                let waiting = Waiting { number: self.deferred, cookie, blocks };
                self.waiting.entry(tid).or_default().push(waiting);
                self.deferred += 1;
                Ok(())
            }
            None => self.complete(blocks, Some(&[])),
        }
    }

    fn user_part(
        &mut self,
        record: &Record<'_>,
        user: CallchainDeferred<'_>,
        layouts: &Layouts,
    ) -> Result<()> {
        let layout = layouts.layout_of(record);
        let Some((pid, tid)) = layout.and_then(|layout| layout.pid_tid(record)) else { return Ok(()) };
        let time = moment(record, layout, layouts);
        let entries: Vec<(u64, Frame)> = frames(user.ips, USER)
            .map(|entry| (entry.1, frame_at(self.facts, (record, layouts), Some(pid), time, entry)))
            .collect();
        // perf prints all samples of the thread that wait, also those with another cookie.
        for sample in self.waiting.remove(&tid).unwrap_or_default() {
            let is_its = sample.cookie == user.cookie;
            self.complete(sample.blocks, is_its.then_some(&entries))?;
        }
        Ok(())
    }

    /// Prints a sample with the user part of its chain, unless the recording lacks that.
    fn complete(&mut self, blocks: Vec<Block>, user: Option<&[(u64, Frame)]>) -> Result<()> {
        self.losses.incomplete += u64::from(user.is_none() && !self.is_full());
        for Block { event, mut before, after } in blocks {
            if self.is_full() {
                break;
            }
            self.viewed.samples += 1;
            if self.options.count_only {
                continue;
            }
            if self.forms[event].has_chain && self.forms[event].has(Field::Ip) {
                for &(address, frame) in user.into_iter().flatten() {
                    self.frame_lines(&mut before, event, address, frame)?;
                }
            }
            self.forms[event].printed = true;
            self.out.write_all(&before)?;
            self.out.write_all(&after)?;
        }
        Ok(())
    }

    fn block(
        &mut self,
        sample: &Record<'_>,
        layouts: &Layouts,
        parts: &Sample<'_>,
        event: usize,
        period: u64,
    ) -> Result<Block> {
        let (mut before, mut after) = (Vec::new(), Vec::new());
        if self.options.count_only {
            return Ok(Block { event, before, after });
        }
        let form = &self.forms[event];
        let layout = layouts.layout_of(sample);
        let time = moment(sample, layout, layouts);
        let pid = parts.pid_tid.map(|(pid, _)| pid);
        let out = &mut before;
        if form.has(Field::Comm) {
            let tid = parts.pid_tid.map_or(u32::MAX, |(_, tid)| tid);
            let machine = self.facts.guests.machine(sample, layouts, named_pid(sample));
            let comm = readable(&self.facts.tasks.name(machine, tid, time));
            match form.has_chain && form.has(Field::Ip) {
                true => write!(out, "{comm} ")?,
                false => write!(out, "{}{comm} ", padding(&comm, 16))?,
            }
        }
        let (shown_pid, tid) = parts.pid_tid.map_or((-1, -1), |(pid, tid)| (pid as i32, tid as i32));
        match (form.has(Field::Pid), form.has(Field::Tid)) {
            (true, true) => write!(out, "{shown_pid:>7}/{tid:<7} ")?,
            (true, false) => write!(out, "{shown_pid:>7} ")?,
            (false, true) => write!(out, "{tid:>7} ")?,
            (false, false) => {}
        }
        if let Some(cpu) = parts.cpu.filter(|_| form.has(Field::Cpu)) {
            write!(out, "[{:03}] ", cpu as i32)?;
        }
        if form.has(Field::Time) {
            let time = parts.time.unwrap_or(0);
            let (seconds, rest) = (time / 1_000_000_000, time % 1_000_000_000);
            match self.options.nanoseconds {
                true => write!(out, "{seconds:5}.{rest:09}: ")?,
                false => write!(out, "{:>12}: ", format!("{seconds}.{:06}", rest / 1000))?,
            }
        }
        if form.has(Field::Period) {
            write!(out, "{period:10} ")?;
        }
        if form.has(Field::Event) {
            out.extend(form.name.as_bytes());
        }
        if let Some((trace, raw)) = form.trace.as_ref().zip(parts.raw).filter(|_| form.has(Field::Trace)) {
            out.extend(trace.text(raw).as_bytes());
        }
        if let Some(address) = parts.addr.filter(|_| form.has(Field::Addr)) {
            write!(out, "{address:16x}")?;
            if form.names_address {
                // perf searches the other side, too, if nothing is mapped there on the side of the sample.
                let own = sample.cpumode();
                let other = if own == KERNEL { USER } else { KERNEL };
                let at = |mode| frame_at(self.facts, (sample, layouts), pid, time, (mode, address));
                let mut frame =
                    Some(at(own)).filter(|frame| frame.dso.is_some()).unwrap_or_else(|| at(other));
                // Memory that is not executed keeps its name.
                frame.process = 0;
                let text = self.text(event, frame, address, Lines::None);
                out.extend(text.last().map_or("", |text| text).as_bytes());
            }
        }
        let form = &self.forms[event];
        if form.has(Field::Weight) {
            let weight = match parts.weight {
                Some(Weight::Full(weight)) => weight,
                Some(Weight::Parts { var1_dw, .. }) => var1_dw.into(),
                None => 0,
            };
            write!(out, "{weight:16}")?;
        }
        if form.has(Field::Cgroup) {
            let path = parts.cgroup.and_then(|id| self.facts.cgroups.get(&id));
            write!(out, " {}", path.map_or_else(|| "unknown".to_owned(), |path| readable(path)))?;
        }
        if let Some(branches) = parts.branches.filter(|_| form.has(Field::Brstack)) {
            for Branch { from, to, flags } in branches.iter() {
                write!(after, " {from:#x}/{to:#x}/{} ", shown_flags(flags))?;
            }
        }
        if form.has(Field::PhysAddr) {
            write!(after, "{:16x}", parts.phys_addr.unwrap_or(0))?;
        }
        if form.has(Field::DataPageSize) {
            write!(after, " {}", page_size(parts.data_page_size.unwrap_or(0)))?;
        }
        if form.has(Field::CodePageSize) {
            write!(after, " {}", page_size(parts.code_page_size.unwrap_or(0)))?;
        }
        after.push(b'\n');
        if form.has(Field::Ip) {
            let ip = parts.ip.unwrap_or(0);
            match parts.callchain {
                Some(chain) => {
                    out.push(b'\n');
                    for entry in frames(chain, USER) {
                        let frame = frame_at(self.facts, (sample, layouts), pid, time, entry);
                        self.frame_lines(&mut before, event, entry.1, frame)?;
                    }
                }
                None => {
                    let frame = frame_at(self.facts, (sample, layouts), pid, time, (sample.cpumode(), ip));
                    let text = self.text(event, frame, ip, self.lines(event, Lines::Innermost));
                    write!(before, " {ip:16x}{}", text.last().map_or("", |text| text))?;
                }
            }
        }
        Ok(Block { event, before, after })
    }

    /// Prints the lines of a frame: those of inlined calls, the innermost first, then that of the function.
    fn frame_lines(&mut self, out: &mut Vec<u8>, event: usize, address: u64, frame: Frame) -> Result<()> {
        for text in self.text(event, frame, address, self.lines(event, Lines::Each)).iter() {
            writeln!(out, "\t{address:16x}{text}")?;
        }
        Ok(())
    }

    /// The lines that are shown of an event, if any are.
    fn lines(&self, event: usize, lines: Lines) -> Lines {
        match (self.forms[event].has(Field::Srcline), self.options.inlined) {
            (false, _) => Lines::None,
            (true, false) => Lines::Innermost,
            (true, true) => lines,
        }
    }

    /// The texts of a frame, the innermost inlined call first.
    fn text(&mut self, event: usize, frame: Frame, address: u64, lines: Lines) -> Texts {
        let shown = [Field::Sym, Field::Symoff, Field::Dso].map(|field| self.forms[event].has(field));
        let key = (frame, shown, lines, if lines == Lines::None { 0 } else { address });
        if let Some(known) = self.texts.get(&key) {
            return known.clone();
        }
        let place = match self.places.entry((frame.dso, frame.process)) {
            Entry::Occupied(known) => known.into_mut(),
            Entry::Vacant(new) => new.insert(self.names.place(frame, self.files)),
        };
        let [sym, symoff, dso] = shown;
        let name = place.name(frame.at);
        let file = name.dso.as_ref().map_or_else(|| "[unknown]".to_owned(), |dso| readable(dso));
        let innermost = || place_line(place.line(frame.at), place, frame, address);
        let mut texts = Vec::new();
        let outer_only = lines == Lines::Innermost || !self.options.inlined;
        for function in name.functions.iter().take(if outer_only { 1 } else { usize::MAX }).rev() {
            let mut text = String::new();
            if sym {
                text += &format!(" {}", readable(function.name.as_bytes()));
                if symoff {
                    text += &format!("+{:#x}", name.offset);
                }
            }
            if !function.inlined && dso {
                text += &format!(" ({file})");
            }
            match lines {
                Lines::None => {}
                Lines::Innermost => text += &innermost(),
                Lines::Each => {
                    let line = function.file.clone().zip(function.line);
                    text += &place_line(line, place, frame, address);
                }
            }
            if function.inlined {
                text += " (inlined)";
            }
            texts.push(text);
        }
        if texts.is_empty() {
            let sym = if sym { " [unknown]" } else { "" };
            let mut text = if dso { format!("{sym} ({file})") } else { sym.to_owned() };
            if lines != Lines::None {
                text += &innermost();
            }
            texts.push(text);
        }
        let texts: Texts = texts.into();
        self.texts.insert(key, texts.clone());
        texts
    }
}

/// The source line of a frame; as in perf, without one the name of the DSO and the address.
fn place_line(line: Option<(String, u32)>, place: &NamedPlace<'_>, frame: Frame, address: u64) -> String {
    let base = |name: &str| name.rsplit('/').next().unwrap_or_default().to_owned();
    match (line, place.dso()) {
        (Some((file, line)), _) => format!("\n  {}:{line}", base(&readable(file.as_bytes()))),
        (None, Some(dso)) => {
            format!("\n  {}[{:x}]", base(&readable(dso)), place.address(frame.at).unwrap_or(address))
        }
        (None, None) => String::new(),
    }
}

/// The flags of a branch, as in perf.
fn shown_flags(flags: BranchFlags) -> String {
    let part = |name: &str| flags.parts().find(|(known, _)| *known == name).map(|(_, value)| value);
    let bit = |mask: u64, shown: &'static str| if flags.0 & mask != 0 { shown } else { "-" };
    let predicted = match (flags.predicted(), flags.mispred()) {
        (true, _) => "P",
        (_, true) => "M",
        _ => "-",
    };
    let not_taken = if flags.0 & BranchFlags::NOT_TAKEN != 0 { "N" } else { "" };
    let (in_tx, abort) = (bit(BranchFlags::IN_TX, "X"), bit(BranchFlags::ABORT, "A"));
    let kind = flags.kind_name().unwrap_or_default();
    let spec = part("spec").unwrap_or("-".into());
    format!("{predicted}{not_taken}/{in_tx}/{abort}/{}/{kind}/{spec}", flags.cycles())
}

/// What fills text up to a width, in bytes as in perf.
fn padding(text: &str, width: usize) -> String {
    " ".repeat(width.saturating_sub(text.len()))
}

/// A size in perf's form: a whole number of the largest unit of which there are at least two.
fn page_size(mut bytes: u64) -> String {
    if bytes == 0 {
        return "N/A".to_owned();
    }
    let mut units = "BKMG".chars();
    let mut unit = units.next();
    while bytes / 1024 > 1
        && let Some(next) = units.next()
    {
        bytes /= 1024;
        unit = Some(next);
    }
    format!("{bytes}{}", unit.unwrap_or('B'))
}
