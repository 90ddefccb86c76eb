//! `repair` repairs faults of programs and kernels, by the codes of `perfx doctor`; nothing else changes.
//!
//! | code | written by | repair |
//! |---|---|---|
//! | `auxtrace-index` | programs that move records | every AUXTRACE record is listed once |
//! | `compressed-size` | perf 6.16 to 7.1 with `--aio` | `data_size` is set to what zstd reads; empty records are left out |
//! | `dir-format` | perf inject before 7 from a directory | the feature is removed |
//! | `id-unknown` | manual joins | entries of ID_INDEX and records about such an event are left out, a trailer gets the id 0; samples are left out, unless there is only one event |
//! | `mmap-build-id-bit` | kernels (seen with 6.18) | bit 14 of `misc` is cleared |
//! | `mmap-len` | every perf stat record | the feature is removed if nothing is compressed, else set to the next multiple of 4096 |
//! | `section-empty` | perf 6.17 without BPF programs; perf 3.14 on ARM | the feature is removed |
//! | `size-unaligned` | perf inject 6.1 and before | zeros before the trailer, or at the end |
//! | `string-unterminated` | | zeros after it |
//!
//! Bit 14 is right if the event's attr requests build-ids, if the bytes cannot be device and inode, or if
//! feature BUILD_ID has that id for that file. Otherwise (an id of 8 bytes with small numbers in it, added by
//! perf inject, in no feature) the bytes are interpreted as device and inode.
//!
//! The contents of COMPRESSED records are not checked: a change would require compressing them again.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use clap::Args;
use perfx_format::decode::{decode, issues};
use perfx_format::features::{
    self, AuxtraceEntry, Compressed, FeatureContext, NamedIds, NrCpus, Repaired, decode_feature, lacks_count,
    read_auxtrace_index, read_unterminated_str, write_str,
};
use perfx_format::read::{Form, Pieces, Recording};
use perfx_format::record::builder::{pad, set_misc};
use perfx_format::record::compressed::{claim_length, claimed_length, compressed_part};
use perfx_format::record::id_index::{IdEntry, IdIndex, one_id_index};
use perfx_format::{
    FaultCode, Feature, Issue, Kinds, Layouts, MMAP_BUILD_ID, Origin, PAGE, Record, RecordType, named,
};
use perfx_pipeline::{
    Begin, Emit, Error, Fork, Level, Needs, OutputForm, Pass, Result, Rewrite, Session, Stage, Survey,
    counted,
};

use crate::support::options::PassOptions;

named! {
    /// A fault that can be repaired.
    #[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug)]
    #[allow(missing_docs, reason = "the names are the codes of the table above")]
    pub enum Fault {
        AuxtraceIndex = "auxtrace-index",
        CompressedSize = "compressed-size",
        DirFormat = "dir-format",
        IdUnknown = "id-unknown",
        MmapBuildIdBit = "mmap-build-id-bit",
        MmapLen = "mmap-len",
        SectionEmpty = "section-empty",
        SizeUnaligned = "size-unaligned",
        StringUnterminated = "string-unterminated",
    }
    /// Its code in `perfx doctor`.
    fn code
}

impl Fault {
    /// The fault with this code.
    ///
    /// # Errors
    ///
    /// No fault that can be repaired has this code; the error lists all.
    pub fn parse(code: &str) -> Result<Fault> {
        let known = Fault::ALL.into_iter().find(|fault| fault.code() == code);
        known.ok_or_else(|| {
            let codes = Fault::ALL.map(Fault::code).join(", ");
            Error::new(format!("unknown fault `{code}`; those that can be repaired are {codes}"))
        })
    }
}

/// The options.
#[derive(Args, Clone, Debug, Default)]
pub struct RepairOptions {
    /// Repair only this fault; repeatable
    #[arg(long, value_name = "CODE", value_parser = Fault::parse)]
    pub fault: Vec<Fault>,
}

impl PassOptions for RepairOptions {
    const NAME: &'static str = "repair";
    const ABOUT: &'static str = "repair faults that programs and kernels are known to write";

    fn pass(self) -> Result<Box<dyn Pass>> {
        Ok(Box::new(Repair::new(&self.fault)))
    }
}

#[derive(Clone, Default, Debug)]
struct RepairCounts {
    repaired: BTreeMap<Fault, u64>,
    lost_samples: u64,
    unaligned_samples: u64,
    too_large: u64,
    /// Why compressed records could not be measured after some place.
    broken: Option<String>,
}

impl RepairCounts {
    fn count(&mut self, fault: Fault) {
        *self.repaired.entry(fault).or_default() += 1;
    }

    fn add(&mut self, other: RepairCounts) {
        for (fault, count) in other.repaired {
            *self.repaired.entry(fault).or_default() += count;
        }
        self.lost_samples += other.lost_samples;
        self.unaligned_samples += other.unaligned_samples;
        self.too_large += other.too_large;
    }
}

/// The pass.
#[derive(Debug, Default)]
pub struct Repair {
    faults: Arc<[Fault]>,
    /// Offset and size of the AUXTRACE records.
    aux: BTreeMap<u64, u64>,
    named: Arc<NamedIds>,
    pieces: Option<Pieces>,
    /// There were compressed records.
    closed: bool,
    largest: u64,
    done: RepairCounts,
}

/// The default of perf record.
const PERF_MMAP_LEN: u64 = 528_384;

impl Repair {
    /// Repairs these faults; all of them if none is given.
    pub fn new(faults: &[Fault]) -> Repair {
        let mut faults = if faults.is_empty() { Fault::ALL.to_vec() } else { faults.to_vec() };
        faults.sort_unstable();
        Repair { faults: faults.into(), ..Repair::default() }
    }

    fn has(&self, fault: Fault) -> bool {
        self.faults.contains(&fault)
    }

    fn begin(mut self, session: &mut Begin<'_>) -> Stage {
        if let Some(section) = session.feature(Feature::BUILD_ID) {
            self.named = Arc::new(NamedIds::new(section, session.endian));
        }
        self.features(session);
        self.say_unreadable(session);
        self.index(session);
        if let Some(feature) = self.compressed(session) {
            if session.form == OutputForm::Pipe {
                // In pipe data features come first, before the pieces are known.
                self.mmap_len(session, feature, PERF_MMAP_LEN);
            } else {
                self.pieces = Some(Pieces::default());
            }
        }
        if self.has(Fault::CompressedSize) && session.feature(Feature::COMPRESSED).is_some() {
            self.pieces = Some(Pieces::default());
        }
        // A zstd stream runs through all batches.
        if self.pieces.is_some() { Stage::rewrite_in_order(self) } else { Stage::rewrite(self) }
    }

    fn checks_index(&self, input: &Recording) -> bool {
        self.has(Fault::AuxtraceIndex) && input.features.contains_key(&Feature::AUXTRACE)
    }

    fn fault_of(&self, odd: &Issue) -> Option<Fault> {
        self.faults.iter().copied().find(|fault| fault.code() == odd.code.as_str())
    }

    fn features(&mut self, session: &mut Session) {
        let is_file = !matches!(session.input, Form::Directory { .. }) && session.form != OutputForm::Pipe;
        if self.has(Fault::DirFormat) && is_file && session.feature(Feature::DIR_FORMAT).is_some() {
            session.clear_feature(Feature::DIR_FORMAT);
            self.done.count(Fault::DirFormat);
        }
        if self.has(Fault::SectionEmpty) {
            let is_missing = |feature| {
                let nothing = decode_feature(feature, &[], session.endian, FeatureContext::default());
                nothing.issues.iter().any(|odd| odd.code == FaultCode::SectionEmpty)
            };
            // A truncated count of programs or types means none.
            let counts = |feature, section: &[u8]| match feature {
                Feature::BPF_PROG_INFO | Feature::BPF_BTF => section.len() < 4,
                _ => section.is_empty(),
            };
            let empty = session.features().iter().filter(|(feature, section)| counts(**feature, section));
            let empty = empty.map(|(feature, _)| *feature).filter(|&feature| is_missing(feature));
            for feature in empty.collect::<Vec<_>>() {
                session.clear_feature(feature);
                session.report.say(Level::Info, format!("feature {feature} removed: it is empty"));
                self.done.count(Fault::SectionEmpty);
            }
        }
        if self.has(Fault::StringUnterminated) {
            let texts = [
                Feature::HOSTNAME,
                Feature::OSRELEASE,
                Feature::VERSION,
                Feature::ARCH,
                Feature::CPUDESC,
                Feature::CPUID,
            ];
            for feature in texts {
                let Some(section) = session.feature(feature) else { continue };
                let Some(text) = read_unterminated_str(section, session.endian) else { continue };
                let section = write_str(text, session.endian);
                session.set_feature(feature, section);
                self.done.count(Fault::StringUnterminated);
            }
        }
    }

    /// Reports features at which perf stops nevertheless, if all faults are to be repaired.
    fn say_unreadable(&self, session: &mut Session) {
        if self.faults.len() < Fault::ALL.len() {
            return;
        }
        let cpus = session.feature(Feature::NRCPUS).and_then(|section| NrCpus::read(section, session.endian));
        let context = FeatureContext { cpus };
        let why = |(&feature, section): (&Feature, &perfx_format::Bytes)| match features::repair(
            feature, section, session.endian, context,
        ) {
            Repaired::Unreadable(why) => {
                Some(format!("some versions of perf stop at feature {feature}: {why}"))
            }
            Repaired::Sound | Repaired::Rewritten(_) => None,
        };
        for why in session.features().iter().filter_map(why).collect::<Vec<_>>() {
            session.report.say(Level::Warning, format!("{why}; perfx recover leaves it out"));
        }
    }

    /// Rebuilds an index that does not list each AUXTRACE record once; readers without one search for them.
    fn index(&mut self, session: &mut Begin<'_>) {
        let section = session.feature(Feature::AUXTRACE).filter(|_| self.has(Fault::AuxtraceIndex));
        let index = section.and_then(|section| read_auxtrace_index(section, session.endian));
        let Some(index) = index.filter(|index| !index.is_empty() && session.form != OutputForm::Pipe) else {
            return;
        };
        let mut listed = BTreeSet::new();
        let wrong = |entry: &&AuxtraceEntry| {
            self.aux.get(&entry.offset) != Some(&entry.size) || !listed.insert(entry.offset)
        };
        let wrong =
            index.iter().filter(wrong).count() + self.aux.keys().filter(|at| !listed.contains(at)).count();
        let wrong = wrong.max(section.is_some_and(|section| lacks_count(section, session.endian)).into());
        if wrong > 0 {
            session.rebuild_aux_index();
            self.done.repaired.insert(Fault::AuxtraceIndex, wrong as u64);
        }
    }

    fn compressed(&self, session: &Session) -> Option<Compressed> {
        let section = session.feature(Feature::COMPRESSED)?;
        let feature = Compressed::read(section, session.endian)?;
        let wrong = feature.mmap_len == 0 || !feature.mmap_len.is_multiple_of(PAGE);
        (self.has(Fault::MmapLen) && wrong).then_some(feature)
    }

    fn mmap_len(&mut self, session: &mut Session, feature: Compressed, largest: u64) {
        let needed = u64::from(feature.mmap_len).max(largest).next_multiple_of(PAGE.into());
        match u32::try_from(needed) {
            Ok(0) => session.clear_feature(Feature::COMPRESSED),
            Ok(mmap_len) => {
                let section = Compressed { mmap_len, ..feature }.write(session.endian);
                session.set_feature(Feature::COMPRESSED, section);
            }
            Err(_) => return,
        }
        self.done.count(Fault::MmapLen);
    }

    fn sample(&mut self, record: Record<'_>, out: &mut Emit<'_>) -> Result<()> {
        let layouts = out.layouts();
        let id = layouts.layout_of(&record).and_then(|layout| layout.id(&record));
        let nobodys = id.map_or(layouts.event_of(&record).is_none(), |id| !layouts.knows(id));
        if self.has(Fault::IdUnknown) && nobodys && layouts.check_ids().is_ok() {
            match layouts.all() {
                [] => return out.keep(record),
                // Only one event is possible.
                [only] if only.sample.id.is_some() => {
                    self.done.count(Fault::IdUnknown);
                    let endian = record.endian();
                    return out.patch(record, |bytes| {
                        only.set_id(bytes, 0, endian);
                    });
                }
                _ => {
                    self.done.lost_samples += 1;
                    out.drop_record(record);
                    return Ok(());
                }
            }
        }
        if self.has(Fault::SizeUnaligned) && !record.bytes().len().is_multiple_of(8) {
            self.done.unaligned_samples += 1;
        }
        out.keep(record)
    }

    /// The repaired record; `None` to drop it. Repeats until nothing is left to repair, because a record of
    /// another size may parse differently.
    fn repaired(&mut self, record: &Record<'_>, layouts: &Layouts) -> Result<Option<Vec<u8>>> {
        let mut done = BTreeSet::new();
        let mut bytes = record.bytes().to_vec();
        for _ in Fault::ALL {
            let now = Record::new(&bytes, record.payload(), record.origin(), record.endian())?;
            let mut odd = issues(&now, layouts);
            odd.retain(|odd| odd.code != FaultCode::MmapBuildIdBit || !self.named.prove(&now));
            let next = self.repaired_once(&now, &odd, layouts, &mut done);
            match next {
                Some(next) if next == bytes => break,
                Some(next) => bytes = next,
                None => {
                    done.into_iter().for_each(|fault| self.done.count(fault));
                    return Ok(None);
                }
            }
        }
        if bytes != record.bytes() {
            done.into_iter().for_each(|fault| self.done.count(fault));
        }
        Ok(Some(bytes))
    }

    fn repaired_once(
        &mut self,
        record: &Record<'_>,
        odd: &[Issue],
        layouts: &Layouts,
        done: &mut BTreeSet<Fault>,
    ) -> Option<Vec<u8>> {
        let endian = record.endian();
        let mut bytes = record.bytes().to_vec();
        let mut short = 0;
        for fault in odd.iter().filter_map(|odd| self.fault_of(odd)) {
            match fault {
                Fault::MmapBuildIdBit => {
                    set_misc(&mut bytes, record.misc() & !MMAP_BUILD_ID, endian);
                }
                Fault::IdUnknown => match record.kind() {
                    RecordType::ID_INDEX => {
                        let index = IdIndex::of(record)?;
                        let known = |entry: &IdEntry| layouts.event_of_id(entry.id).is_some();
                        let kept: Vec<IdEntry> = index.entries().filter(known).collect();
                        if kept.is_empty() {
                            done.insert(fault);
                            return None;
                        }
                        bytes = one_id_index(&kept, index.has_machines(), endian);
                    }
                    kind if kind.is_kernel() => {
                        layouts.all().first().and_then(|layout| layout.set_id(&mut bytes, 0, endian));
                    }
                    _ => {
                        done.insert(fault);
                        return None;
                    }
                },
                Fault::StringUnterminated => short = 8 - bytes.len() % 8,
                Fault::SizeUnaligned if short == 0 => short = (8 - bytes.len() % 8) % 8,
                _ => {}
            }
            done.insert(fault);
        }
        if short > 0 {
            let trailer = decode(record, layouts).get("sample_id").and(layouts.all().first());
            let after = trailer.map_or(0, |layout| usize::from(layout.trailer.size));
            if pad(&mut bytes, after, short, endian).is_none() {
                self.done.too_large += 1;
                return Some(record.bytes().to_vec());
            }
        }
        Some(bytes)
    }

    fn piece(&mut self, record: Record<'_>, out: &mut Emit<'_>) -> Result<()> {
        self.closed = true;
        // A record that is too short for its fields is another fault.
        if record.bytes().len() < record.kind().min_size() {
            return out.keep(record);
        }
        if self.has(Fault::CompressedSize) && compressed_part(&record).0.is_empty() {
            self.done.count(Fault::CompressedSize);
            out.drop_record(record);
            return Ok(());
        }
        let measured = self.pieces.as_mut().map(|pieces| pieces.next(&record));
        let (length, expanded) = match measured {
            Some(Ok(measured)) => measured,
            // Data that zstd cannot read stays, and so does all that follows.
            Some(Err(error)) => {
                self.pieces = None;
                self.done.broken = Some(error.to_string());
                return out.keep(record);
            }
            None => return out.keep(record),
        };
        self.largest = self.largest.max(expanded);
        let length = length as u64;
        let wrong = claimed_length(&record).is_some_and(|claimed| claimed != length);
        if !wrong || !self.has(Fault::CompressedSize) {
            return out.keep(record);
        }
        self.done.count(Fault::CompressedSize);
        let endian = record.endian();
        out.patch(record, |bytes| claim_length(bytes, length, endian))
    }

    fn report(&mut self, session: &mut Session) {
        let mut say = |level, line: String| session.report.say(level, line);
        let done = &self.done;
        for (fault, count) in &done.repaired {
            say(Level::Info, format!("repaired {}: {}", fault.code(), counted(*count, "place", "places")));
        }
        if done.repaired.is_empty() && done.lost_samples == 0 {
            say(Level::Info, "nothing to repair".to_owned());
        }
        if self.closed {
            let what = "the contents of COMPRESSED records were not checked: run perfx decompress first";
            say(Level::Info, what.to_owned());
        }
        if let Some(why) = &done.broken {
            say(Level::Warning, format!("compressed records are not repaired from here on: {why}"));
        }
        let lost = counted(done.lost_samples, "sample", "samples");
        if done.lost_samples > 0 {
            say(Level::Loss, format!("{lost} with an id that no event has"));
        }
        for (count, what) in [
            (done.unaligned_samples, "in the size of a sample, because its parts determine its size"),
            (done.too_large, "in a record of the largest possible size"),
        ] {
            if count > 0 {
                say(Level::Warning, format!("{} not repaired {what}", counted(count, "fault", "faults")));
            }
        }
    }
}

impl Pass for Repair {
    fn name(&self) -> &'static str {
        RepairOptions::NAME
    }

    fn needs(&self, input: &Recording) -> Needs {
        let surveys = match self.checks_index(input) {
            true => vec![Kinds::of(&[RecordType::AUXTRACE])],
            false => Vec::new(),
        };
        Needs { records: Kinds::ALL, surveys, ..Needs::default() }
    }

    fn start(self: Box<Self>, input: &Recording) -> Stage {
        if self.checks_index(input) {
            Stage::survey(AuxSurvey(*self))
        } else {
            Stage::begin(|begin| Ok(self.begin(begin)))
        }
    }
}

struct AuxSurvey(Repair);

impl Survey for AuxSurvey {
    fn record(&mut self, record: &Record<'_>, _layouts: &Layouts) -> Result<()> {
        if let Origin::Input { stream: 0, offset } = record.origin() {
            self.0.aux.insert(offset, record.bytes().len() as u64);
        }
        Ok(())
    }

    fn end(self, _session: &mut Session) -> Result<Stage> {
        Ok(Stage::begin(|begin| Ok(self.0.begin(begin))))
    }
}

impl Fork for AuxSurvey {
    fn fork(&self) -> AuxSurvey {
        AuxSurvey(self.0.fork())
    }

    fn absorb(&mut self, later: AuxSurvey) {
        self.0.aux.extend(later.0.aux);
    }
}

impl Rewrite for Repair {
    fn record(&mut self, record: Record<'_>, out: &mut Emit<'_>) -> Result<()> {
        match record.kind() {
            RecordType::SAMPLE => return self.sample(record, out),
            kind if kind.is_compressed() => return self.piece(record, out),
            _ => {}
        }
        let layouts = out.layouts();
        // The size itself may be wrong, and perf locates a payload by it.
        if !record.payload().is_empty()
            || issues(&record, layouts).iter().all(|odd| self.fault_of(odd).is_none())
        {
            return out.keep(record);
        }
        match self.repaired(&record, layouts)? {
            Some(bytes) if bytes == record.bytes() => out.keep(record),
            Some(bytes) => out.replace(&record, &bytes),
            None => {
                out.drop_record(record);
                Ok(())
            }
        }
    }

    fn finish(&mut self, session: &mut Session, _out: &mut Emit<'_>) -> Result<()> {
        if session.form != OutputForm::Pipe
            && let Some(feature) = self.compressed(session)
        {
            self.mmap_len(session, feature, self.largest);
        }
        // Pipe data may have features among its records.
        self.features(session);
        self.report(session);
        Ok(())
    }
}

impl Fork for Repair {
    fn fork(&self) -> Repair {
        Repair { faults: self.faults.clone(), named: self.named.clone(), ..Repair::default() }
    }

    fn absorb(&mut self, later: Repair) {
        self.closed |= later.closed;
        self.done.add(later.done);
    }
}
