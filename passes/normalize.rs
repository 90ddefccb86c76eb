//! `normalize` removes the parts of a recording that an older reader refuses or misreads, or rewrites them in
//! an older form. Every loss is reported.
//!
//! Rejected: merging deferred call chains into their samples. A sample can't grow in place, so all such
//! samples would have to wait for their chains, in an order that the rounds forbid.

use std::collections::BTreeMap;
use std::sync::Arc;

use clap::Args;
use clap::builder::{PossibleValuesParser, TypedValueParser as _};
use perfx_format::features::{initial_maps, lacks_count};
use perfx_format::read::Recording;
use perfx_format::readers::{READERS, Reader};
use perfx_format::record::header_records::{feature_section, is_feature, with_attr};
use perfx_format::record::spe_info::spe_info_v1;
use perfx_format::sample::{
    LeftOut, Sample, UserParts, callchain, deferred_cookie, read_record_without_lost, with_callchain, without,
};
use perfx_format::write::feature_record;
use perfx_format::{
    Attr, Feature, Inode, Kinds, Layout, Layouts, MMAP_BUILD_ID, Record, RecordType, mmap2_as_mmap,
    sample_type as st, set_mmap2_inode,
};
use perfx_model::address_space::{Machine, Mapping};
use perfx_model::guests::Guests;
use perfx_model::hits::FirstUse;
use perfx_pipeline::{
    Begin, Emit, Fork, Level, Needs, OutputForm, Pass, Result, Rewrite, Session, Stage, Survey, bail,
    change_attrs, changed_event_desc, counted,
};
use perfx_resolve::MappedIds;

use crate::support::options::{PassCommand, PassOptions};

/// Make a recording readable for an older perf, hotspot or quipper
///
/// Attrs become as small as the reader knows them, and lose the bits that it does not know; samples lose
/// the parts that these bits stand for. Compressed records are decompressed. Records of kinds that the
/// reader refuses are left out. For perf 5.10 and hotspot, build-ids move from MMAP2 records to feature
/// BUILD_ID. For perf before 6.13, the description of Arm SPE becomes version 1. The user part of
/// deferred call chains (perf record --call-graph fp,defer) is lost.
///
/// Losses are reported, and the exit code is 3. perfx doctor --for READER lists the contents that a reader
/// refuses.
///
/// Examples:
///   perfx normalize --for perf-5.10 perf.data -o old.data
///   perf record -o - ./program | perfx normalize --for perf-6.1 > old.pipe
#[derive(Args, Clone, Debug, Default)]
#[command(verbatim_doc_comment)]
pub struct NormalizeArgs {
    /// Program that will read the recording
    #[arg(long = "for", value_name = "READER", value_parser = names().try_map(|name| Reader::named(&name).ok_or("unknown")))]
    reader: Option<&'static Reader>,
}

fn names() -> PossibleValuesParser {
    PossibleValuesParser::new(READERS.each_ref().map(|reader| reader.name))
}

impl PassOptions for NormalizeArgs {
    const NAME: &'static str = "normalize";
    const ABOUT: &'static str =
        "leave out contents that an older reader refuses, or write them in an older form";
    const COMMAND: Option<PassCommand> = Some(PassCommand { group: "Share", one_of: &["reader"] });

    fn pass(self) -> Result<Box<dyn Pass>> {
        Ok(Box::new(Normalize { reader: self.reader }))
    }
}

#[derive(Clone, Copy, Debug)]
struct Normalize {
    reader: Option<&'static Reader>,
}

struct FindIds {
    reader: &'static Reader,
    guests: Guests,
    ids: MappedIds,
}

struct Narrow {
    reader: &'static Reader,
    of_events: Arc<Vec<LeftOut>>,
    to_pipe: bool,
    /// Records from simpleperf's feature INIT_MAP, which no other reader knows.
    initial: Vec<u8>,
    lost: Lost,
}

/// The number of records with each kind of loss.
#[derive(Clone, Default, Debug)]
struct Lost {
    parts: u64,
    deferred: u64,
    kinds: BTreeMap<RecordType, u64>,
    spe: u64,
}

impl Pass for Normalize {
    fn name(&self) -> &'static str {
        NormalizeArgs::NAME
    }

    fn needs(&self, _input: &Recording) -> Needs {
        let surveys = match self.reader {
            Some(reader) if !reader.mmap_build_ids => {
                vec![Kinds::of(&[RecordType::MMAP2, RecordType::ID_INDEX])]
            }
            _ => Vec::new(),
        };
        Needs { records: Kinds::ALL, surveys, decompressed: true, ids: true, ..Needs::default() }
    }

    fn start(self: Box<Self>, _input: &Recording) -> Stage {
        let Some(reader) = self.reader else {
            return Stage::begin(|_| bail!("give --for READER, the program that will read the recording"));
        };
        if reader.mmap_build_ids {
            return Stage::begin(|begin| Ok(Narrow::stage(reader, begin)));
        }
        Stage::survey_in_order(FindIds { reader, guests: Guests::default(), ids: MappedIds::default() })
    }
}

impl Survey for FindIds {
    fn record(&mut self, record: &Record<'_>, layouts: &Layouts) -> Result<()> {
        self.guests.learn(record);
        if let Some(mapping) = Mapping::read(record, layouts) {
            let machine = self.guests.machine(record, layouts, Some(mapping.pid));
            self.ids.learn(&mapping.dso(machine));
        }
        Ok(())
    }

    fn end(self, _session: &mut Session) -> Result<Stage> {
        Ok(Stage::begin(move |begin| {
            let entries = self.ids.entries(Machine::Host, begin.endian);
            begin.add_build_ids(&entries);
            Ok(Narrow::stage(self.reader, begin))
        }))
    }
}

impl Narrow {
    fn stage(reader: &'static Reader, begin: &mut Begin<'_>) -> Stage {
        let of_event = |attr: &Attr| left_out(reader, attr);
        let of_events = begin.events.iter().map(|event| of_event(event.attr())).collect();
        let (endian, known) = (begin.endian, reader.attr);
        let cuts =
            begin.events.iter().filter(|event| known.narrow(&mut event.raw().to_vec(), endian)).count();
        change_attrs(begin, |raw, endian| {
            known.narrow(raw, endian);
        });
        let unknown = |feature: &Feature| u32::from(feature.0) >= reader.first_unknown_feature;
        let unknown: Vec<Feature> = begin.features().keys().copied().filter(unknown).collect();
        let to_pipe = begin.form == OutputForm::Pipe;
        for feature in unknown.into_iter().filter(|_| to_pipe) {
            begin.clear_feature(feature);
            let what = format!("feature {feature}: {} refuses it in pipe data", reader.name);
            begin.report.say(Level::Loss, what);
        }
        let index = begin.feature(Feature::AUXTRACE);
        if index.is_some_and(|section| lacks_count(section, begin.endian)) {
            begin.rebuild_aux_index();
            let what = format!("feature AUXTRACE got the number of its entries, which {} needs", reader.name);
            begin.report.say(Level::Info, what);
        }
        let maps = initial_maps(begin.features(), begin.endian);
        let initial: Vec<u8> = maps.records().flat_map(|record| record.bytes().to_vec()).collect();
        let (records, is_damaged) = (maps.records().count() as u64, maps.is_damaged());
        if begin.feature(Feature::INIT_MAP).is_some() {
            let records = counted(records, "record", "records");
            let what = format!(
                "{records} of feature INIT_MAP, which {} does not know, follow all others",
                reader.name
            );
            begin.report.say(Level::Info, what);
            if is_damaged {
                let what =
                    "feature INIT_MAP is damaged: the records after the damage are left out".to_owned();
                begin.report.say(Level::Loss, what);
            }
            begin.clear_feature(Feature::INIT_MAP);
        }
        if cuts > 0 {
            let events = counted(cuts as u64, "event", "events");
            let what = format!(
                "fields of the attrs of {events} that {} does not know (config3 and later)",
                reader.name
            );
            begin.report.say(Level::Loss, what);
        }
        let (of_events, lost) = (Arc::new(of_events), Lost::default());
        Stage::rewrite(Narrow { reader, of_events, to_pipe, initial, lost })
    }

    fn sample(&mut self, record: Record<'_>, out: &mut Emit<'_>) -> Result<()> {
        let layouts = out.layouts();
        let Some(layout) = layouts.layout_of(&record) else { return out.keep(record) };
        let shortened = self.without_deferred(&record, layout)?;
        let record = match &shortened {
            Some(bytes) => Record::new(bytes, record.payload(), record.origin(), record.endian())?,
            None => record,
        };
        let left_out = layouts.event_of(&record).and_then(|event| self.of_events.get(event)).copied();
        match left_out.filter(|left_out| *left_out != LeftOut::default()) {
            Some(left_out) => {
                self.lost.parts += 1;
                out.replace(&record, &without(&record, layout, left_out)?)
            }
            None if shortened.is_some() => out.replace(&record, record.bytes()),
            None => out.keep(record),
        }
    }

    /// The sample without the mark of a deferred chain.
    fn without_deferred(&mut self, record: &Record<'_>, layout: &Layout) -> Result<Option<Vec<u8>>> {
        if self.reader.deferred_chains || deferred_cookie(record, layout).is_none() {
            return Ok(None);
        }
        self.lost.deferred += 1;
        let chain = callchain(record, layout).into_iter().flat_map(|chain| chain.iter().collect::<Vec<_>>());
        let mut chain: Vec<u64> = chain.collect();
        chain.truncate(chain.len().saturating_sub(2));
        let sample = Sample::parse_known(record, layout)?;
        Ok(Some(with_callchain(record, layout, &sample, &chain, UserParts::Kept)?))
    }
}

/// True for a HEADER_FEATURE record of a feature unknown to the reader.
fn out_of_reach(record: &Record<'_>, reader: &Reader) -> bool {
    feature_section(record).is_some_and(|(number, _)| number >= reader.first_unknown_feature.into())
}

/// The HEADER_FEATURE record of EVENT_DESC with narrow attrs; `None` for other records.
fn narrowed_event_desc(record: &Record<'_>, reader: &Reader) -> Option<Vec<u8>> {
    let section = feature_section(record).filter(|_| is_feature(record, Feature::EVENT_DESC))?.1;
    let narrow = |_, raw: &mut Vec<u8>, endian| {
        reader.attr.narrow(raw, endian);
    };
    let section = changed_event_desc(section, record.endian(), narrow)?;
    feature_record(Feature::EVENT_DESC, &section, record.endian())
}

fn left_out(reader: &Reader, attr: &Attr) -> LeftOut {
    LeftOut {
        parts: attr.sample_type & !reader.attr.sample_type,
        lost: reader.loses_lost(attr.read_format) && attr.sample_type & st::READ != 0,
        branch_counters: reader.loses_branch_counters(attr.branch_sample_type)
            && attr.sample_type & st::BRANCH_STACK != 0,
    }
}

impl Rewrite for Narrow {
    fn record(&mut self, record: Record<'_>, out: &mut Emit<'_>) -> Result<()> {
        let (reader, kind) = (self.reader, record.kind());
        if !reader.deferred_chains && kind == RecordType::CALLCHAIN_DEFERRED {
            // Each sample that loses its chain is counted instead.
            out.drop_record(record);
            return Ok(());
        }
        if (reader.refused)(kind) {
            // FINISHED_INIT only marks the end of the first records.
            if kind != RecordType::FINISHED_INIT {
                *self.lost.kinds.entry(kind).or_default() += 1;
            }
            out.drop_record(record);
            return Ok(());
        }
        match kind {
            RecordType::SAMPLE => self.sample(record, out),
            RecordType::READ => {
                let layout = out.layouts().layout_of(&record);
                let shorter = layout.filter(|layout| reader.loses_lost(layout.read_format));
                out.replace_if(record, shorter.and_then(|layout| read_record_without_lost(&record, layout)))
            }
            RecordType::HEADER_ATTR => {
                let endian = record.endian();
                let narrow = |raw: &mut Vec<u8>| {
                    reader.attr.narrow(raw, endian);
                };
                out.replace_if(record, with_attr(&record, narrow))
            }
            RecordType::HEADER_FEATURE if self.to_pipe && out_of_reach(&record, reader) => {
                *self.lost.kinds.entry(kind).or_default() += 1;
                out.drop_record(record);
                Ok(())
            }
            RecordType::HEADER_FEATURE => out.replace_if(record, narrowed_event_desc(&record, reader)),
            RecordType::MMAP2 if !reader.kernel_mmap2 && record.is_of_kernel() => {
                let trailer = FirstUse::of_mapping(&record, out.layouts()).trailer;
                out.replace_if(record, mmap2_as_mmap(&record, &trailer))
            }
            RecordType::MMAP2 if !reader.mmap_build_ids && record.misc() & MMAP_BUILD_ID != 0 => {
                let none = Inode { major: 0, minor: 0, inode: 0, generation: 0 };
                let endian = record.endian();
                out.patch(record, |bytes| {
                    set_mmap2_inode(bytes, none, endian);
                })
            }
            RecordType::AUXTRACE_INFO if !reader.spe_v2 => match spe_info_v1(&record) {
                Some(bytes) => {
                    self.lost.spe += 1;
                    out.replace(&record, &bytes)
                }
                None => out.keep(record),
            },
            _ => out.keep(record),
        }
    }

    fn finish(&mut self, session: &mut Session, out: &mut Emit<'_>) -> Result<()> {
        // Readers process records without a time at once.
        out.put_all(&self.initial)?;
        let Lost { parts, deferred, kinds, spe } = &self.lost;
        let name = self.reader.name;
        let mut say = |count: u64, one: &str, several: &str, what: &str| {
            if count > 0 {
                session.report.say(Level::Loss, format!("{what}{}", counted(count, one, several)));
            }
        };
        say(*parts, "sample", "samples", &format!("parts that {name} does not know of "));
        say(*deferred, "sample", "samples", "the deferred user call chains of ");
        say(*spe, "record", "records", "what perf 6.13 added to the description of Arm SPE in ");
        for (kind, &count) in kinds {
            let kind = kind.name().map_or_else(|| kind.to_string(), str::to_owned);
            say(count, &format!("{kind} record"), &format!("{kind} records"), "");
        }
        Ok(())
    }
}

impl Fork for Narrow {
    fn fork(&self) -> Narrow {
        let (of_events, initial, lost) = (self.of_events.clone(), Vec::new(), Lost::default());
        Narrow { of_events, initial, lost, ..*self }
    }

    fn absorb(&mut self, later: Narrow) {
        let Lost { parts, deferred, kinds, spe } = later.lost;
        self.lost.parts += parts;
        self.lost.deferred += deferred;
        self.lost.spe += spe;
        kinds.into_iter().for_each(|(kind, count)| *self.lost.kinds.entry(kind).or_default() += count);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_reader_loses_the_parts_and_fields_that_it_does_not_know() {
        let reader = |name: &str| READERS.iter().find(|reader| reader.name == name).unwrap();
        let lost = |name, sample_type, read_format, branch_sample_type| {
            let mut attr = Attr::default();
            (attr.sample_type, attr.read_format, attr.branch_sample_type) =
                (sample_type, read_format, branch_sample_type);
            let LeftOut { parts, lost, branch_counters } = left_out(reader(name), &attr);
            (parts, lost, branch_counters)
        };
        let newest = st::CODE_PAGE_SIZE | st::IP;
        assert_eq!(lost("perf-6.1", newest, 0, 0), (0, false, false));
        assert_eq!(lost("perf-5.10", newest, 0, 0), (st::CODE_PAGE_SIZE, false, false));
        // Lost samples are counted only in READ values, and sampled counters only in branch stacks.
        let (counts, counters) = (1 << 4, 1 << 19);
        assert_eq!(lost("perf-5.10", st::READ, counts, counters), (0, true, false));
        assert_eq!(lost("perf-5.10", st::IP, counts, counters), (0, false, false));
        assert_eq!(lost("perf-6.1", st::BRANCH_STACK | st::READ, counts, counters), (0, false, true));
        assert_eq!(lost("perf-6.12", st::BRANCH_STACK | st::READ, counts, counters), (0, false, false));
    }
}
