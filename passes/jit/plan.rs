//! Plans the work of `jit`: the images of the jitdumps, their mappings, and the records to replace.

use std::collections::{BTreeMap, HashMap, HashSet};
use std::fs::File;
use std::ops::Range;
use std::os::unix::ffi::OsStrExt as _;
use std::path::PathBuf;
use std::sync::Arc;

use perfx_format::jitdump::{ARCH_TIMESTAMP, Dump, Header};
use perfx_format::record::cpumode::USER;
use perfx_format::record::time_conv::TimeConv;
use perfx_format::{Attr, Endian, MappedFile, Mmap2, OrderKey, Origin, hex, sample_type as st};
use perfx_jit::{Arena, Function, Functions, Image, Member, Target, arenas};
use perfx_pipeline::{Cached, Context as _, LISTED, Level, Report, Result, Session, SideFile, bail, counted};
use perfx_resolve::{Places, recorded_on};

use super::options::{JitLayout, JitOptions};
use super::recorded::{Lineage, Map, Marker, Recorded, Span};

#[derive(Debug, Default)]
pub(super) struct Plan {
    /// Records to insert before the record with this origin.
    pub(super) at: Vec<(Origin, Vec<u8>)>,
    /// Records to insert before the first record that is not earlier.
    pub(super) timed: Vec<(OrderKey, Vec<u8>)>,
    /// Records to insert after the record with this origin.
    pub(super) after: Vec<(Origin, Vec<u8>)>,
    pub(super) dropped: Vec<Origin>,
    pub(super) files: Vec<SideFile>,
    pub(super) report: Report,
}

#[derive(Clone, Copy)]
enum Clock {
    Same,
    Counter(TimeConv),
    Unknown,
}

struct Process<'m> {
    /// The mapping of the dump, by this process or by one with the same memory.
    marker: &'m Marker,
    span: Span,
    clock: Clock,
    target: Target,
}

const PROT: u32 = 5;

const FLAGS: u32 = 2;

/// Functions that are less than this far apart go into one mapping, bytes.
const GAP: u64 = 64;

/// The alignment of images in the temporary file, bytes.
const PAGE: u64 = perfx_format::PAGE as u64;

/// Limits the bytes without code in all images: this many, and more for each byte of the dumps. Distant code,
/// or code missing from the dump, could otherwise turn 64 bytes of a dump into an image of 16 MiB.
const GAPS_MAX: u64 = 256 << 20;
const GAPS_OF_BYTE: u64 = 64;

/// The maximum length of the images' folder, bytes: perf's path buffer has 4096.
const PATH_MAX: usize = 4000;

pub(super) struct Planner<'r> {
    pub(super) recorded: &'r Recorded,
    pub(super) options: &'r JitOptions,
    folder: PathBuf,
    name: Arc<str>,
    pub(super) endian: Endian,
    is_monotonic: bool,
    is_default_clock: bool,
    pub(super) places: Places,
    pub(super) arch: Option<String>,
    spool: Option<Arc<File>>,
    spooled: u64,
    pub(super) mapped: BTreeMap<u32, Vec<Map>>,
    /// The remaining bytes without code in images.
    gaps_left: u64,
    /// The functions left out because images had no room for more gaps.
    apart: u64,
    numbers: HashMap<u32, u32>,
    /// The number of images by pid and index: functions of a dump may share an index.
    copies: HashMap<(u32, u64), u32>,
    pub(super) functions: u64,
    dumps: u64,
    pub(super) perf_maps: u64,
    /// Why processes with memory without a file have no perf map.
    pub(super) without_map: Vec<String>,
    missing: Vec<String>,
    damaged: Vec<String>,
    unclocked: u64,
    pub(super) plan: Plan,
}

impl<'r> Planner<'r> {
    pub(super) fn new(
        recorded: &'r Recorded,
        options: &'r JitOptions,
        session: &Session,
    ) -> Result<Planner<'r>> {
        let folder = std::path::absolute(&options.output)
            .with_context(|| format!("the folder for images {}", options.output.display()))?;
        if folder.as_os_str().len() > PATH_MAX {
            bail!("the path of the folder for images is too long for perf: {}", folder.display());
        }
        let recorded_on = recorded_on(session.features(), session.endian);
        let has_time = |attr: &Attr| attr.sample_type & st::TIME != 0;
        let attrs = || session.events.iter().map(|event| event.attr());
        Ok(Planner {
            recorded,
            options,
            folder,
            name: session.name.clone(),
            endian: session.endian,
            is_monotonic: attrs().all(|attr| attr.use_clockid() && attr.clockid == 1 && has_time(attr)),
            is_default_clock: attrs().all(|attr| !attr.use_clockid() && has_time(attr)),
            places: options.places.of_recording(&recorded_on),
            arch: recorded_on.arch,
            spool: None,
            spooled: 0,
            mapped: BTreeMap::new(),
            gaps_left: GAPS_MAX,
            apart: 0,
            numbers: HashMap::new(),
            copies: HashMap::new(),
            functions: 0,
            dumps: 0,
            perf_maps: 0,
            without_map: Vec::new(),
            missing: Vec::new(),
            damaged: Vec::new(),
            unclocked: 0,
            plan: Plan::default(),
        })
    }

    pub(super) fn dumps(&mut self, session: &Session) -> Result<()> {
        let mut by_path: Vec<(&[u8], Vec<&Marker>)> = Vec::new();
        let mut number = HashMap::new();
        for marker in &self.recorded.markers {
            let at = *number.entry(&*marker.path).or_insert(by_path.len());
            match by_path.get_mut(at) {
                Some((_, markers)) => markers.push(marker),
                None => by_path.push((&marker.path, vec![marker])),
            }
        }
        for (path, markers) in by_path {
            let inode = markers.iter().find_map(|marker| marker.inode);
            match self.places.open(path, inode, markers[0].pid) {
                Ok((bytes, place)) => match Dump::new(&bytes) {
                    Ok(dump) => {
                        self.allow_gaps(bytes.len());
                        self.dump(&dump, &markers, &place.display().to_string(), session)?;
                    }
                    Err(error) => {
                        self.missing.push(error.file(&place.display().to_string().into()).to_string())
                    }
                },
                Err(why) => self.missing.push(why),
            }
        }
        Ok(())
    }

    pub(super) fn finish(mut self) -> Plan {
        self.drop_memory();
        self.report();
        self.plan
    }

    fn dump(&mut self, dump: &Dump<'_>, markers: &[&Marker], shown: &str, session: &Session) -> Result<()> {
        let header = dump.header;
        // In a container, the dump's name and header have the pid of the container's namespace.
        let is_own = |marker: &&&Marker| marker.pid == marker.named || header.pid == marker.named;
        let markers: Vec<&Marker> = markers.iter().filter(is_own).copied().collect();
        let Some(&first) = markers.iter().find(|marker| marker.pid == marker.named).or(markers.first())
        else {
            return Ok(());
        };
        let mut functions = Functions::of(dump);
        self.note_damage(&functions, shown);
        let clock = self.clock(header);
        if let Clock::Counter(conversion) = clock {
            for function in &mut functions.list {
                function.time = nanoseconds(&conversion, function.time);
            }
        }
        let spans: Vec<Span> =
            markers.iter().map(|marker| self.recorded.span(marker.pid, marker.key)).collect();
        let marked: HashSet<u32> = markers.iter().map(|marker| marker.pid).collect();
        // The last span of each process, and the first one.
        let last_spans: HashMap<u32, Span> = spans.iter().map(|span| (span.pid, *span)).collect();
        let owners: HashMap<Span, &Marker> =
            spans.iter().copied().zip(markers.iter().copied()).rev().collect();
        let (mut groups, mut strangers, mut stale) = (BTreeMap::<Span, Vec<Function<'_>>>::new(), 0, 0);
        for function in functions.list {
            let is_first = function.pid == header.pid || function.pid == first.named;
            let pid = if is_first { first.pid } else { function.pid };
            let is_marked = marked.contains(&pid);
            if !is_marked && !self.recorded.knows(pid) {
                strangers += 1;
                continue;
            }
            let span = match clock {
                // Code loaded before the recording began belongs to the first span.
                Clock::Same | Clock::Counter(_) => self.recorded.span(pid, OrderKey::at(function.time)),
                Clock::Unknown => {
                    last_spans.get(&pid).copied().unwrap_or_else(|| self.recorded.span(pid, OrderKey::END))
                }
            };
            if is_marked && !owners.contains_key(&span) {
                stale += 1;
                continue;
            }
            groups.entry(span).or_default().push(function);
        }
        let count = groups.values().map(Vec::len).sum::<usize>();
        if count == 0 {
            self.missing.push(format!("{shown}: it contains no code"));
            return Ok(());
        }
        self.dumps += 1;
        self.functions += count as u64;
        let mut line = format!("{shown}: {}", counted(count as u64, "function", "functions"));
        if strangers > 0 {
            let functions = counted(strangers, "function", "functions");
            line += &format!("; left out {functions} of processes that are not in the recording");
        }
        if stale > 0 {
            let functions = counted(stale, "function", "functions");
            line += &format!("; left out {functions} of an earlier program with this pid");
        }
        self.plan.report.say(Level::Detail, line);
        if matches!(clock, Clock::Unknown) {
            self.unclocked += 1;
            if owners.len() > 1 || groups.keys().any(|span| !owners.contains_key(span)) {
                return self.refuse(shown, "several processes wrote into it");
            }
        }
        let target = Target::of(header, self.arch.as_deref());
        // A child comes after its parent, whose memory it inherits.
        let mut groups: Vec<_> = groups.into_iter().collect();
        groups.sort_by_key(|(span, _)| (span.pid != first.pid, span.start));
        for (span, list) in groups {
            let marker = owners.get(&span).copied().unwrap_or(first);
            let process = Process { marker, span, clock, target };
            let functions = Functions { header, list, damage: Default::default(), impossible: 0 };
            self.process(&process, &functions, shown, session)?;
        }
        // Without the markers, a second run finds no dump to inject.
        self.plan.dropped.extend(markers.iter().map(|marker| marker.origin));
        Ok(())
    }

    fn note_damage(&mut self, functions: &Functions<'_>, shown: &str) {
        let damage = functions.damage;
        if damage.broken > 0 {
            let records = counted(damage.broken, "broken record", "broken records");
            self.damaged
                .push(format!("{shown}: skipped {records} ({})", counted(damage.skipped, "byte", "bytes")));
        }
        if functions.impossible > 0 {
            let records = counted(functions.impossible, "impossible record", "impossible records");
            self.damaged.push(format!("{shown}: skipped {records}, so their code is missing"));
        }
        if damage.unfinished > 0 {
            let line = format!(
                "{shown}: its last record is incomplete ({}), so functions may be missing",
                counted(damage.unfinished, "byte", "bytes")
            );
            self.plan.report.say(Level::Info, line);
        }
        if damage.unknown > 0 {
            let records = counted(damage.unknown, "record", "records");
            self.plan.report.say(Level::Info, format!("{shown}: skipped {records} of an unknown kind"));
        }
    }

    fn clock(&self, header: Header) -> Clock {
        if header.flags & ARCH_TIMESTAMP == 0 {
            return if self.is_monotonic { Clock::Same } else { Clock::Unknown };
        }
        let converts = |conversion: &TimeConv| conversion.can_convert && conversion.mult != 0;
        match self.recorded.conversion.filter(converts).filter(|_| self.is_default_clock) {
            Some(conversion) => Clock::Counter(conversion),
            None => Clock::Unknown,
        }
    }

    fn refuse(&self, shown: &str, why: &str) -> Result<()> {
        bail!(
            "{}: {why}, and the clocks of the recording and of the jitdump {shown} differ, so it is unknown which \
             code a sample hit: record again with `perf record -k 1`",
            self.name
        )
    }

    fn process(
        &mut self,
        process: &Process<'_>,
        functions: &Functions<'_>,
        shown: &str,
        session: &Session,
    ) -> Result<()> {
        let arenas = arenas(&functions.list);
        let is_clocked = !matches!(process.clock, Clock::Unknown);
        if !is_clocked && arenas.iter().any(|arena| arena.members.iter().any(|member| member.reuses)) {
            return self.refuse(shown, "code was loaded over older code");
        }
        let (lineage, pid) = (self.recorded.lineage(process.span), process.span.pid);
        let is_moved = |member: &&Member| member.is_moved;
        let moved =
            |arena: &Arena| arena.members.iter().filter(is_moved).map(|member| member.function).collect();
        let moved: Vec<Vec<u32>> = arenas.iter().map(moved).collect();
        let mut origins = HashMap::new();
        origins.extend(moved.iter().flatten().map(|&number| (functions.list[number as usize].load, None)));
        for arena in arenas.into_iter().filter(|arena| !arena.is_moved()) {
            match self.options.layout {
                JitLayout::Arena => {
                    let image = self.image(pid, process.target, functions, &arena, session)?;
                    let Some(image) = image else { continue };
                    image.note_origins(&mut origins);
                    self.map_arena(process, functions, &arena, &image, &lineage, shown)?;
                }
                JitLayout::Function => {
                    for arena in arena.into_functions().filter(|arena| !arena.is_moved()) {
                        let image = self.image(pid, process.target, functions, &arena, session)?;
                        let Some(image) = image else { continue };
                        image.note_origins(&mut origins);
                        self.map_functions(process, &image, |_| true)?;
                    }
                }
            }
        }
        for number in moved.into_iter().flatten() {
            let function = &functions.list[number as usize];
            match origins.get(&function.load) {
                Some(Some((file, place))) => {
                    let key = self.key(process, function.time);
                    self.map_at(process, file, function.address..function.end(), *place, key)?;
                }
                _ => self.apart += 1,
            }
        }
        Ok(())
    }

    pub(super) fn allow_gaps(&mut self, len: usize) {
        self.gaps_left = self.gaps_left.saturating_add((len as u64).saturating_mul(GAPS_OF_BYTE));
    }

    /// Writes the image of an arena into the temporary file. `None` if it has more gaps than are left.
    pub(super) fn image<'f, 'a>(
        &mut self,
        pid: u32,
        target: Target,
        functions: &'f Functions<'a>,
        arena: &Arena,
        session: &Session,
    ) -> Result<Option<Written<'f, 'a>>> {
        let image = Image::new(functions, arena, target);
        let Some(left) = self.gaps_left.checked_sub(image.gaps()) else {
            self.apart += image.functions().len() as u64;
            return Ok(None);
        };
        self.gaps_left = left;
        let name = match (self.options.layout, image.functions()) {
            (JitLayout::Function, [(_, function), ..]) => {
                let copies = self.copies.entry((pid, function.index)).or_default();
                *copies += 1;
                let copy = if *copies > 1 { format!("-{}", *copies - 1) } else { String::new() };
                format!("jitted-{pid}-{}{copy}.so", function.index)
            }
            _ => {
                let number = self.numbers.entry(pid).or_default();
                *number += 1;
                format!("jit-{pid}-{}.so", *number - 1)
            }
        };
        let path = self.folder.join(name);
        let in_file = || path.display().to_string();
        let spool = match &self.spool {
            Some(spool) => spool.clone(),
            None => {
                let made = session.temp_files()().context("can't create a temporary file")?;
                self.spool.insert(Arc::new(made)).clone()
            }
        };
        let written = image.write(&spool, self.spooled).with_context(in_file)?;
        let range = self.spooled..self.spooled + written.len;
        self.spooled = range.end.next_multiple_of(PAGE);
        let cached = self
            .options
            .cache
            .as_ref()
            .map(|cache| Cached { cache: cache.clone(), build_id: hex(&written.build_id) });
        self.plan.files.push(SideFile { path: path.clone(), from: spool, range, cached });
        let file = Arc::new(ImageFile { build_id: written.build_id, path });
        Ok(Some(Written { image, file }))
    }

    /// Maps the image of an arena: as a whole if no file is mapped there, else in parts.
    fn map_arena(
        &mut self,
        process: &Process<'_>,
        functions: &Functions<'_>,
        arena: &Arena,
        image: &Written<'_, '_>,
        lineage: &Lineage,
        shown: &str,
    ) -> Result<()> {
        let Process { marker, clock, .. } = process;
        let mirrored = arena.members.iter().filter(|member| !member.reuses && !member.is_moved);
        let mut mirrored: Vec<&Function<'_>> =
            mirrored.map(|member| &functions.list[member.function as usize]).collect();
        mirrored.sort_by_key(|function| function.address);
        let code = mirrored.first().map_or(0, |first| first.address)
            ..mirrored.iter().map(|f| f.end()).max().unwrap_or(0);
        let whole = image.image.mapped().map(|(start, len)| start..start + len);
        let is_free = |range: &Range<u64>| self.files(lineage, range).is_empty();
        let range = whole.filter(is_free).or_else(|| Some(code.clone()).filter(is_free));
        if let Some(range) = range {
            let key = self.key(process, 0);
            self.map(process, image, range, key)?;
        } else {
            let files = self.files(lineage, &code);
            if matches!(clock, Clock::Unknown) && files.iter().any(|map| map.key > marker.key) {
                return self.refuse(shown, "a file was mapped over code");
            }
            for (range, time) in runs(&mirrored, files) {
                let key = self.key(process, time);
                self.map(process, image, range, key)?;
            }
        }
        // In the image, functions that were loaded over older ones come after the mirrored code.
        let mirror_end = image.image.place_of(code.end);
        self.map_functions(process, image, |place| place >= mirror_end)
    }

    /// Maps the image's functions at `wanted` file offsets, each when it was loaded.
    fn map_functions(
        &mut self,
        process: &Process<'_>,
        image: &Written<'_, '_>,
        wanted: impl Fn(u64) -> bool,
    ) -> Result<()> {
        for (place, function) in image.image.functions().iter().filter(|(place, _)| wanted(*place)) {
            let key = self.key(process, function.time);
            self.map_at(process, &image.file, function.address..function.end(), *place, key)?;
        }
        Ok(())
    }

    fn key(&self, process: &Process<'_>, time: u64) -> OrderKey {
        let key = OrderKey::at(time);
        let Process { marker, span, clock, .. } = process;
        match clock {
            Clock::Unknown => marker.key,
            // A child without a marker continues the dump of its parent, after its FORK.
            _ if marker.pid != span.pid => key.max(span.start.next()),
            _ => key.max(marker.key),
        }
    }

    /// Mappings in a range: of files, and of images of the process's ancestors.
    fn files(&self, lineage: &Lineage, range: &Range<u64>) -> Vec<Map> {
        let mut files = self.recorded.files(lineage, range);
        let parents = lineage.spans.iter().skip(1).filter_map(|span| self.mapped.get(&span.pid));
        files.extend(parents.flatten().filter(|map| map.meets(range)));
        files
    }

    fn map(
        &mut self,
        process: &Process<'_>,
        image: &Written<'_, '_>,
        range: Range<u64>,
        key: OrderKey,
    ) -> Result<()> {
        let place = image.image.place_of(range.start);
        self.map_at(process, &image.file, range, place, key)
    }

    fn map_at(
        &mut self,
        process: &Process<'_>,
        image: &ImageFile,
        range: Range<u64>,
        place: u64,
        key: OrderKey,
    ) -> Result<()> {
        let Process { marker, span, .. } = process;
        let is_own = marker.pid == span.pid;
        let task = (span.pid, if is_own { marker.tid } else { span.pid });
        let (start, end, origin) = (range.start, range.end, marker.origin);
        let mut bytes = image.mmap2(task, range, place, &marker.trailer, self.endian)?;
        let map = Map { pid: span.pid, key, start, end, origin, is_memory: false };
        self.mapped.entry(span.pid).or_default().push(map);
        if !is_own {
            marker.layout.set_pid_tid(&mut bytes, span.pid, span.pid, self.endian);
        }
        if is_own && key == marker.key {
            self.plan.at.push((marker.origin, bytes));
        } else {
            marker.layout.set_key(&mut bytes, key, self.endian);
            self.plan.timed.push((key, bytes));
        }
        Ok(())
    }

    /// Drops anonymous mappings that a process made after its dump and that would hide an image.
    fn drop_memory(&mut self) {
        let Planner { mapped, recorded, plan, .. } = self;
        for maps in mapped.values_mut() {
            maps.sort_by_key(|map| map.start);
            // Each `end` becomes the maximum so far: one look-up finds earlier mappings that reach further.
            let mut end = 0;
            for map in maps {
                end = map.end.max(end);
                map.end = end;
            }
        }
        let mut marked = HashMap::<u32, OrderKey>::new();
        for marker in &recorded.markers {
            let first = marked.entry(marker.pid).or_insert(marker.key);
            *first = marker.key.min(*first);
        }
        for memory in recorded.maps.iter().filter(|map| map.is_memory) {
            let Some(images) = mapped.get(&memory.pid) else { continue };
            let before = images.partition_point(|map| map.start < memory.end);
            let is_hidden = before.checked_sub(1).is_some_and(|last| images[last].end > memory.start);
            if is_hidden && marked.get(&memory.pid).is_some_and(|&first| first <= memory.key) {
                plan.dropped.push(memory.origin);
            }
        }
    }

    fn report(&mut self) {
        let Planner { plan, without_map, missing, damaged, apart, .. } = self;
        let report = &mut plan.report;
        if *apart > 0 {
            let functions = counted(*apart, "function", "functions");
            let line = format!(
                "{functions} of JIT compilers, so far apart that their images would have more than {} MiB of gaps, and \
                 more than {GAPS_OF_BYTE} times the size of the dumps",
                GAPS_MAX >> 20
            );
            report.say(Level::Loss, line);
        }
        if !plan.files.is_empty() {
            let images = counted(plan.files.len() as u64, "image", "images");
            let functions = counted(self.functions - self.apart, "function", "functions");
            let sources = [
                (self.dumps, counted(self.dumps, "jitdump", "jitdumps")),
                (self.perf_maps, counted(self.perf_maps, "perf map", "perf maps")),
            ];
            let sources: Vec<_> =
                sources.into_iter().filter(|(count, _)| *count > 0).map(|(_, shown)| shown).collect();
            let sources = sources.join(" and ");
            let maps = (plan.at.len() + plan.timed.len() + plan.after.len()) as u64;
            let maps = counted(maps, "mapping", "mappings");
            let folder = self.options.output.display();
            let mut line = format!("{functions} of {sources} in {images} in {folder}, {maps} added");
            if !plan.dropped.is_empty() {
                line += &format!(" in place of {}", plan.dropped.len());
            }
            report.say(Level::Info, line);
        } else if missing.is_empty() {
            let hint = if self.options.perf_maps { "" } else { " (perf maps are read with --jit-map)" };
            report.say(Level::Info, format!("nothing to inject: no process mapped a jitdump{hint}"));
        }
        if self.perf_maps > 0 {
            // Programs without a JIT compiler have such memory, too.
            without_map.drain(..).for_each(|why| report.say(Level::Detail, format!("no perf map: {why}")));
            let what = "perf maps do not contain the times when code was loaded, so samples of code that was replaced later have the \
                name of the code that replaced it";
            report.say(Level::Info, what);
        }
        if self.unclocked > 0 {
            let what = "recorded without -k 1, so the clocks of the recording and of its jitdumps differ; no code was \
                loaded over older code, so the times do not matter";
            report.say(Level::Info, what);
        }
        let mut warn = |lines: &mut Vec<String>, one: &str, several: &str| match &lines[..] {
            [] => {}
            [line] => report.say(Level::Warning, format!("{one}: {line}")),
            lines => {
                report.say(Level::Warning, format!("{} {several}{LISTED}", lines.len()));
                lines.iter().for_each(|line| report.say(Level::Detail, line.clone()));
            }
        };
        warn(
            missing,
            "a jitdump could not be used, so its code has no names",
            "jitdumps could not be used, so their code has no names",
        );
        warn(
            without_map,
            "no perf map was found, so code in memory without a file has no names",
            "processes have no perf map, so code in their memory without a file has no names",
        );
        warn(damaged, "a jitdump is damaged", "jitdumps are damaged");
    }
}

pub(super) struct Written<'f, 'a> {
    pub(super) image: Image<'f, 'a>,
    pub(super) file: Arc<ImageFile>,
}

#[derive(Debug)]
pub(super) struct ImageFile {
    build_id: [u8; 20],
    path: PathBuf,
}

impl Written<'_, '_> {
    fn note_origins(&self, origins: &mut HashMap<u32, Option<(Arc<ImageFile>, u64)>>) {
        for (place, function) in self.image.functions() {
            if let Some(origin) = origins.get_mut(&function.load) {
                *origin = Some((self.file.clone(), *place));
            }
        }
    }
}

impl ImageFile {
    pub(super) fn mmap2(
        &self,
        (pid, tid): (u32, u32),
        range: Range<u64>,
        place: u64,
        trailer: &[u8],
        endian: Endian,
    ) -> Result<Vec<u8>> {
        let mmap2 = Mmap2 {
            misc: USER,
            pid,
            tid,
            start: range.start,
            len: range.end - range.start,
            pgoff: place,
            file: MappedFile::BuildId(&self.build_id),
            prot: PROT,
            flags: FLAGS,
            name: self.path.as_os_str().as_bytes(),
            trailer,
        };
        mmap2.write(endian).context("the path of an image is too long")
    }
}

/// Converts a value of the processor's counter into a time of the recording, ns: see [`TimeConv`].
fn nanoseconds(conversion: &TimeConv, counter: u64) -> u64 {
    let TimeConv { shift, mult, zero, short, .. } = *conversion;
    let counter = match short {
        Some((cycles, mask)) => cycles.wrapping_add(counter.wrapping_sub(cycles) & mask),
        None => counter,
    };
    let time = (u128::from(counter) * u128::from(mult)) >> shift.min(127);
    zero.wrapping_add(time as u64)
}

/// The ranges in which to map functions without hiding `files` elsewhere, and their times. Adjacent functions
/// share a range if no file was mapped between their loading.
fn runs(functions: &[&Function<'_>], mut files: Vec<Map>) -> Vec<(Range<u64>, u64)> {
    files.sort_by_key(|map| map.start);
    // The union of the files' ranges, without overlaps.
    let mut taken: Vec<Range<u64>> = Vec::new();
    for map in &files {
        match taken.last_mut().filter(|last| last.end >= map.start) {
            Some(last) => last.end = last.end.max(map.end),
            None => taken.push(map.start..map.end),
        }
    }
    let mut keys: Vec<OrderKey> = files.iter().map(|map| map.key).collect();
    keys.sort_unstable();
    let before = |time: u64| keys.partition_point(|&key| key <= OrderKey::at(time));
    let mut runs: Vec<(Range<u64>, u64)> = Vec::new();
    for function in functions {
        let joins = |(range, time): &&mut (Range<u64>, u64)| {
            function.address.saturating_sub(range.end) < GAP && before(*time) == before(function.time)
        };
        match runs.last_mut().filter(joins) {
            Some((range, time)) => {
                range.end = range.end.max(function.end());
                *time = function.time.min(*time);
            }
            None => runs.push((function.address..function.end(), function.time)),
        }
    }
    for (range, time) in &mut runs {
        let after = taken.partition_point(|taken| taken.start < range.end);
        let is_taken = after.checked_sub(1).is_some_and(|last| taken[last].end > range.start);
        *time = if is_taken { *time } else { 0 };
    }
    runs
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn counters_convert_as_the_kernel_converts_them() {
        let conversion = |shift, mult, zero, short| TimeConv { shift, mult, zero, short, can_convert: true };
        assert_eq!(nanoseconds(&conversion(10, 512, 1000, None), 100), 1050);
        assert_eq!(nanoseconds(&conversion(0, u64::MAX, 1, None), u64::MAX), 2, "the upper half is cut off");
        assert_eq!(nanoseconds(&conversion(u64::MAX, 1, 7, None), u64::MAX), 7);
        // A counter of 8 bits that wraps once: 0x1f0 is the last value known in full.
        let short = conversion(0, 1, 0, Some((0x1f0, 0xff)));
        assert_eq!([0xf0, 0xff, 0x05].map(|counter| nanoseconds(&short, counter)), [0x1f0, 0x1ff, 0x205]);
    }

    #[test]
    fn functions_share_a_mapping_unless_a_file_was_mapped_between_them_in_place_or_time() {
        let map = b"1000 40 a\n1040 20 b\n1090 10 c\n2000 10 d\n";
        let (endian, machine, is_of_v8, pid, time, flags) = (Endian::Little, 0, false, 1, 0, 0);
        let header = Header { endian, machine, is_of_v8, pid, time, flags };
        let mut list = Functions::of_perf_map(map, header).list;
        list.iter_mut().zip([5, 9, 30, 40]).for_each(|(function, time)| function.time = time);
        let functions: Vec<&Function<'_>> = list.iter().collect();
        let file = |start, end, time| Map {
            pid: 1,
            key: OrderKey::at(time),
            start,
            end,
            origin: Origin::Synthetic,
            is_memory: false,
        };
        // Without a file in the range, all may be mapped from the beginning on.
        assert_eq!(runs(&functions, Vec::new()), [(0x1000..0x10a0, 0), (0x2000..0x2010, 0)]);
        // A file at the first functions, mapped between the second and the third.
        let files = vec![file(0x1000, 0x1050, 20)];
        assert_eq!(runs(&functions, files), [(0x1000..0x1060, 5), (0x1090..0x10a0, 0), (0x2000..0x2010, 0)]);
        // Overlapping files count as one range; the end of a file is free.
        let files = vec![file(0x2008, 0x3000, 1), file(0x1800, 0x2008, 2), file(0x900, 0x1000, 3)];
        assert_eq!(runs(&functions, files), [(0x1000..0x10a0, 0), (0x2000..0x2010, 40)]);
    }
}
