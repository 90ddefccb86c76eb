//! The rules of `redact` for each kind of record and feature.

use std::borrow::Cow;
use std::collections::HashMap;
use std::sync::Arc;

use perfx_format::decode::{MmapBuildId, mmap_build_id};
use perfx_format::features::{NrCpus, TracingData, trace_formats, trimmed_id};
use perfx_format::names::{Name, NameKind, change_build_ids, rename_record};
use perfx_format::record::bpf_event::{bpf_tag, set_bpf_tag};
use perfx_format::record::build_id::{BuildIdEntry, set_build_id};
use perfx_format::record::namespaces::change_namespaces;
use perfx_format::record::off_cpu::changed_off_cpu;
use perfx_format::record::stat_config::without_unknown_tags;
use perfx_format::sample::{raw_range, without_parts as sample_without};
use perfx_format::tracepoint::TraceFormat;
use perfx_format::{
    Decoded, Endian, Feature, Inode, Kinds, Layout, Layouts, Mmap, Record, RecordType, clear, hex,
    sample_type as st, set_mmap2_build_id, set_mmap2_inode, without_parts,
};
use perfx_pipeline::{Emit, OutputForm, Result, Session, Stage, bail};

use super::done::Done;
use super::known::{self, is_count_of_cpus, is_ftrace, is_ftrace_text, is_header, is_known, is_unit};
use super::names::{self, CommandLine, is_public};
use super::options::{Category, Redact};
use super::plan::{Mapped, Plan};
use super::raw::{Stays, made_by_users, redacted};
use crate::scrub::{Key, LeftOut, OF_TRACES, Scrub, Scrubber};
use crate::support::features::{Fate, renamed};

pub(super) struct Remove {
    plan: Arc<Plan>,
    done: Done,
    /// Cached, because some tracepoints have tasks' names in every sample.
    comms: HashMap<Vec<u8>, Vec<u8>>,
}

/// The key is derived from these records.
pub(super) const KEYED: Kinds = Kinds::MAPPINGS.and(RecordType::COMM).and(RecordType::CGROUP);

/// Kinds with a rule for their texts and bytes; those of other kinds become zeros.
const WITH_TEXTS: Kinds = KEYED.union(OF_TRACES).union(Kinds::of(&[
    RecordType::KSYMBOL,
    RecordType::BPF_EVENT,
    RecordType::BPF_METADATA,
    RecordType::THREAD_MAP,
    RecordType::HEADER_ATTR,
    RecordType::HEADER_BUILD_ID,
    RecordType::HEADER_EVENT_TYPE,
]));

// A new kind with texts does not compile without a rule; samples, features and EVENT_UPDATE have other ones.
const _: () = assert!(
    WITH_TEXTS
        .union(Kinds::of(&[RecordType::SAMPLE, RecordType::HEADER_FEATURE, RecordType::EVENT_UPDATE]))
        .covers(Kinds::TEXTS)
);

impl Remove {
    pub(super) fn stage(redact: Redact, key: Key, mapped: Mapped) -> Stage {
        Stage::begin(move |begin| {
            if begin.form == OutputForm::DirectoryData && !redact.args.keeps(Category::Kcore) {
                bail!(
                    "{}: the output would have the files beside the records, such as the kernel's memory: use perfx \
                     redact, or keep category kcore",
                    begin.name
                );
            }
            let plan = Arc::new(Plan::new(redact, key, mapped, begin));
            let remove = Remove { plan, done: Done::default(), comms: HashMap::new() };
            Ok(Scrubber::stage(remove, begin))
        })
    }

    fn build_id<'i>(&mut self, path: &[u8], id: &'i [u8]) -> Cow<'i, [u8]> {
        let id = trimmed_id(id);
        if id.is_empty() || !path.is_empty() && is_public(path) || self.plan.keeps(Category::BuildIds) {
            return id.into();
        }
        let new = names::build_id(&self.plan.key, id);
        if new[..] != *id {
            let old = hex(id).into_bytes();
            self.done.note(Category::BuildIds, &old, hex(&new).into_bytes());
        }
        new.to_vec().into()
    }

    fn build_ids(&mut self, section: &[u8], endian: Endian) -> Option<Vec<u8>> {
        let changed = change_build_ids(section, endian, |entry| {
            let name = Name { kind: NameKind::Path, text: entry.filename, build_id: None };
            let id = self.build_id(entry.filename, entry.id);
            let id = if *id == *trimmed_id(entry.id) { entry.id.to_vec() } else { id.into_owned() };
            Some((self.plan.name(&mut self.done, name), id))
        });
        changed.whole.then_some(changed.section)
    }

    /// TRACING_DATA with pseudonyms for users' tracepoints, without machine data; `None` if damaged.
    fn tracing_data(&mut self, section: &[u8], endian: Endian) -> Option<Vec<u8>> {
        let data = TracingData::read(section)?.without_texts();
        let head = data.head_without(|text| !is_header(text))?;
        let formats = trace_formats(section, endian);
        let by_users = made_by_users(&formats, Some(&data));
        let mut systems = Vec::new();
        for (system, texts) in &data.systems {
            let is_by_users = by_users.contains(system);
            let name: &[u8] = if is_by_users { b"probe" } else { system };
            let formats = texts.iter().filter_map(|text| TraceFormat::parse(system, text));
            let new: Vec<Cow<'_, [u8]>> = formats
                .map(|format| {
                    if !is_by_users {
                        return format.text.into();
                    }
                    let new = self.plan.probe(format.name);
                    self.done.note(Category::Events, &format.full_name(), [b"probe:", &new[..]].concat());
                    format.with_name(&String::from_utf8_lossy(&new)).into()
                })
                .collect();
            if new.is_empty() {
                self.done.note(Category::Events, system, name.to_vec());
            }
            self.done.formats += (texts.len() - new.len()) as u64;
            systems.push((name, new));
        }
        let systems =
            systems.iter().map(|(name, texts)| (*name, texts.iter().map(|text| &text[..]).collect()));
        let of_ftrace = formats.iter().filter(|format| format.system == b"ftrace");
        let of_ftrace: HashMap<&[u8], &[u8]> = of_ftrace.map(|format| (format.text, format.name)).collect();
        let mut ftrace = Vec::new();
        for text in data.ftrace.iter().copied() {
            let name = of_ftrace.get(text).copied().unwrap_or_default();
            if is_ftrace(name) && is_ftrace_text(text) {
                ftrace.push(text);
            } else {
                self.done.note(Category::Events, &[b"ftrace:", name].concat(), Vec::new());
            }
        }
        let mut new = data.clone();
        (new.head, new.ftrace, new.systems) = (&head, ftrace, systems.collect());
        new.write()
    }

    /// A record without revealing names and numbers; `None` if it stays.
    fn renamed(&mut self, record: &Record<'_>, layouts: &Layouts) -> Result<Option<Vec<u8>>> {
        let endian = record.endian();
        let mut new = rename_record(record, layouts, |name| Some(self.plan.name(&mut self.done, name)))?;
        let mut bytes = || new.take().unwrap_or_else(|| record.bytes().to_vec());
        let changed = match record.kind() {
            RecordType::MMAP2 => {
                let path =
                    Mmap::of(record).map(|mmap| mmap.name(layouts.trailer_size(record))).unwrap_or_default();
                let mut bytes = bytes();
                match mmap_build_id(record, layouts) {
                    Some(MmapBuildId::BuildId(id)) => {
                        let new = self.build_id(path, id);
                        if *new != *trimmed_id(id) {
                            set_mmap2_build_id(&mut bytes, &new, endian);
                        }
                    }
                    _ => {
                        if let Some(inode) = Mmap::of(record).and_then(|mmap| mmap.file()) {
                            set_mmap2_inode(&mut bytes, self.inode(inode), endian);
                        }
                    }
                }
                bytes
            }
            RecordType::HEADER_BUILD_ID => {
                let mut bytes = bytes();
                if let Some(entry) = BuildIdEntry::read(record.bytes(), endian) {
                    let new = self.build_id(entry.filename, entry.id);
                    if *new != *trimmed_id(entry.id) {
                        set_build_id(&mut bytes, &new, endian);
                    }
                }
                bytes
            }
            RecordType::NAMESPACES if !self.plan.keeps(Category::Namespaces) => {
                let (mut bytes, key, numbers) = (bytes(), self.plan.key, &mut self.done.numbers);
                change_namespaces(&mut bytes, endian, |device, inode| {
                    let new = namespace(&key, device, inode);
                    if new != (device, inode) {
                        let words = [device, inode].map(u64::to_le_bytes);
                        numbers.insert((Category::Namespaces, words.concat()));
                    }
                    new
                });
                bytes
            }
            RecordType::BPF_EVENT if !self.plan.keeps(Category::Bpf) => {
                let mut bytes = bytes();
                if let Some(tag) = bpf_tag(record) {
                    let new = names::tag(&self.plan.key, tag);
                    self.done.note(Category::Bpf, hex(&tag).as_bytes(), hex(&new).into_bytes());
                    set_bpf_tag(&mut bytes, new, endian);
                }
                bytes
            }
            _ => return Ok(new),
        };
        Ok((changed != record.bytes()).then_some(changed))
    }

    /// The pseudonym of a file's device and inode: device 0, which no file has, and a number.
    fn inode(&mut self, file: Inode) -> Inode {
        let Inode { major, minor, inode, generation } = file;
        let is_done = major == 0 && minor == 0 && generation == 0;
        if self.plan.keeps(Category::Inodes) || inode == 0 || is_done {
            return file;
        }
        let words = [u64::from(major) << 32 | u64::from(minor), inode, generation].map(u64::to_le_bytes);
        let number = self.plan.key.number("inode", words.as_flattened());
        self.done.numbers.insert((Category::Inodes, words.concat()));
        Inode { major: 0, minor: 0, inode: number >> 24 | 1 << 40, generation: 0 }
    }
}

/// The pseudonym of a namespace's. The kernel's first namespaces are the same everywhere.
fn namespace(key: &Key, device: u64, inode: u64) -> (u64, u64) {
    const INITIAL: std::ops::RangeInclusive<u64> = 0xefff_fff0..=0xefff_ffff;
    let number = || {
        let words = [device, inode].map(u64::to_le_bytes);
        key.number("namespace", words.as_flattened()) >> 24 | 1 << 40
    };
    let is_done = device == 0 && inode >> 40 == 1;
    (0, if inode == 0 || INITIAL.contains(&inode) || is_done { inode } else { number() })
}

impl Scrub for Remove {
    fn keeps_unknown(&self) -> bool {
        self.plan.keeps(Category::Unknown)
    }

    fn drops(&self, kind: RecordType) -> bool {
        OF_TRACES.contains(kind) && !self.plan.keeps(Category::Aux)
            || kind == RecordType::BPF_METADATA && !self.plan.keeps(Category::Bpf)
    }

    fn name(&mut self, name: Name<'_>) -> Option<Vec<u8>> {
        Some(self.plan.name(&mut self.done, name))
    }

    fn attr(&mut self, raw: &mut [u8], endian: Endian) {
        let old = raw.to_vec();
        without_parts(raw, self.plan.parts, endian);
        self.done.asked |= *raw != old;
    }

    fn fate(&mut self, feature: Feature) -> Option<Fate> {
        let category = match feature {
            Feature::BPF_PROG_INFO | Feature::BPF_BTF => Category::Bpf,
            Feature::AUXTRACE => Category::Aux,
            Feature::CLOCK_DATA => Category::Clock,
            _ => return None,
        };
        if self.plan.keeps(category) {
            return Some(Fate::Stays);
        }
        self.done.features.insert((category, feature));
        Some(Fate::Goes)
    }

    fn rule(&mut self, feature: Feature, section: &[u8], endian: Endian) -> Option<Option<Vec<u8>>> {
        let plan = self.plan.clone();
        let new = match feature {
            Feature::BUILD_ID => self.build_ids(section, endian),
            Feature::TRACING_DATA if plan.keeps(Category::Events) => Some(section.to_vec()),
            Feature::TRACING_DATA => self.tracing_data(section, endian),
            Feature::CMDLINE if plan.keeps(Category::Cmdline) => Some(section.to_vec()),
            Feature::CMDLINE => {
                let (mut line, done) = (CommandLine::default(), &mut self.done);
                let is_event = |word: &[u8]| {
                    word.split(|&byte| byte == b',')
                        .all(|event| !event.is_empty() && plan.is_known_event(event))
                };
                renamed(feature, section, endian, |name| {
                    Some(done.note(Category::Cmdline, name.text, line.word(&plan.key, name.text, is_event)))
                })
            }
            Feature::HOSTNAME => renamed(feature, section, endian, |name| self.name(name)),
            Feature::NRCPUS if !NrCpus::read(section, endian).is_some_and(is_count_of_cpus) => None,
            _ => return None,
        };
        Some(new)
    }

    fn texts(&mut self, feature: Feature, decoded: &Decoded<'_>, old: &[u8], section: &mut [u8]) {
        for (field, place) in decoded.texts(old).into_iter().filter(|_| !self.plan.keeps(Category::Host)) {
            let text = &old[place.clone()];
            if is_known(feature, field, text) {
                continue;
            }
            let gap = decoded.gaps.binary_search_by_key(&place.end, |gap| gap.start);
            let end = gap.map_or(place.end, |gap| decoded.gaps[gap].end);
            let mut pseudonym = known::replaced(&self.plan.key, feature, text);
            // A truncated pseudonym could equal another one.
            pseudonym.truncate(if pseudonym.len() < end - place.start { pseudonym.len() } else { 0 });
            section[place.start..end].fill(0);
            section[place.start..place.start + pseudonym.len()].copy_from_slice(&pseudonym);
            self.done.note(Category::Host, text, pseudonym);
        }
    }

    fn sample(
        &mut self,
        record: &Record<'_>,
        layout: &Layout,
        mut bytes: Cow<'_, [u8]>,
        out: &mut Emit<'_>,
    ) -> Result<bool> {
        let Remove { plan, done, comms } = self;
        let (endian, event) = (record.endian(), out.layouts().event_of(record));
        let stays = event.and_then(|event| plan.raw.get(event));
        if layout.sample_type & st::RAW != 0 && stays != Some(&Stays::All) {
            let Some(range) = raw_range(record, layout) else { return Ok(false) };
            let old = &record.bytes()[range.clone()];
            let new = match stays {
                Some(Stays::OffCpu) => {
                    let changed = changed_off_cpu(old, endian, plan.clearing());
                    let (new, entries) = changed.unwrap_or_else(|| (vec![0; old.len()], 0));
                    done.clears(entries, plan.has_mappings(record, Some(layout)));
                    new
                }
                Some(Stays::Fields(kept)) => redacted(old, kept, endian, |name| {
                    if let Some(known) = comms.get(name) {
                        return known.clone();
                    }
                    let new = plan.name(done, Name { kind: NameKind::Comm, text: name, build_id: None });
                    comms.entry(name.to_vec()).or_insert(new).clone()
                }),
                _ => vec![0; old.len()],
            };
            if new != old {
                *done.samples.entry(Category::Raw).or_default() += 1;
                bytes.to_mut()[range].copy_from_slice(&new);
            }
        }
        plan.clear_memory(done, record, Some(layout), &mut bytes);
        if plan.clear_ip(record, layout, &mut bytes) {
            *(if plan.has_mappings(record, Some(layout)) { &mut done.ips } else { &mut done.unmapped }) += 1;
        }
        let whole = Record::new(&bytes, &[], record.origin(), endian)?;
        let parts = layout.sample_type & plan.parts;
        if parts == 0 {
            return out.keep(whole).map(|()| true);
        }
        let Ok(cut) = sample_without(&whole, layout, parts) else { return Ok(false) };
        let categories = [
            (parts & !(st::AUX | st::UNNAMED) != 0, Category::Stacks),
            (parts & st::AUX != 0, Category::Aux),
            (parts & st::UNNAMED != 0, Category::Unknown),
        ];
        for (_, category) in categories.iter().filter(|(is_cut, _)| *is_cut) {
            *done.samples.entry(*category).or_default() += 1;
        }
        out.replace(record, &cut).map(|()| true)
    }

    fn clear_texts(&mut self, record: &Record<'_>, decoded: &Decoded<'_>, bytes: &mut Cow<'_, [u8]>) -> u64 {
        if WITH_TEXTS.contains(record.kind()) {
            return 0;
        }
        let is_update = record.kind() == RecordType::EVENT_UPDATE;
        let mut all = 0;
        for (field, place) in decoded.texts(record.bytes()) {
            let text = &record.bytes()[place.clone()];
            let has_rule =
                is_update && (field == "name" || is_unit(text) || self.plan.keeps(Category::Events));
            if has_rule || text.iter().all(|&byte| byte == 0) {
                continue;
            }
            let cleared = clear(bytes.to_mut(), place);
            match is_update {
                true => drop(self.done.note(Category::Events, text, Vec::new())),
                false => all += cleared,
            }
        }
        all
    }

    fn record(&mut self, record: Record<'_>, out: &mut Emit<'_>) -> Result<()> {
        match record.kind() {
            RecordType::CALLCHAIN_DEFERRED => {
                let mut bytes = Cow::Borrowed(record.bytes());
                let layout = out.layouts().layout_of(&record);
                self.plan.clear_memory(&mut self.done, &record, layout, &mut bytes);
                out.keep(Record::new(&bytes, record.payload(), record.origin(), record.endian())?)
            }
            RecordType::STAT_CONFIG if !self.plan.keeps(Category::Unknown) => {
                let known = without_unknown_tags(&record).map(|(bytes, tags)| {
                    self.done.tags += tags;
                    bytes
                });
                out.replace_if(record, known)
            }
            _ => {
                let renamed = self.renamed(&record, out.layouts())?;
                out.replace_if(record, renamed)
            }
        }
    }

    fn report(&self, left_out: &LeftOut, session: &mut Session) {
        let Plan { redact, has_stacks, cuts_callers, .. } = &*self.plan;
        self.done.report(redact, *has_stacks, *cuts_callers, left_out, session);
    }

    fn fork(&self) -> Remove {
        Remove { plan: self.plan.clone(), done: Done::default(), comms: HashMap::new() }
    }

    fn absorb(&mut self, later: Remove) {
        self.done.join(later.done);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    use crate::support::tiny::{FIELDS, file, ran, record, sample};

    fn string(text: &str) -> Vec<u8> {
        let mut section = (text.len() as u32 + 1).to_le_bytes().to_vec();
        section.extend(text.as_bytes());
        section.push(0);
        section
    }

    #[test]
    fn names_of_hosts_and_programs_are_replaced_and_other_features_stay() {
        let cpus = [8u32, 8].map(u32::to_le_bytes).concat();
        let features = [
            (Feature::HOSTNAME, string("secret-host")),
            (Feature::OSRELEASE, string("6.1.0-secret")),
            (Feature::ARCH, string("x86_64")),
            (Feature::NRCPUS, cpus.clone()),
            (Feature::CMDLINE, [&1u32.to_le_bytes()[..], &string("secret")].concat()),
        ];
        let name = u64::from_le_bytes(*b"secret\0\0");
        let records = [record(3, 0, &[7 << 32 | 7, name]), sample(7, 5, 1)];
        let redacted = |options: &str| {
            let mut ran = ran(&format!("redact{options}"), file(FIELDS, 0, &records, &features)).unwrap();
            let kept = |feature, old: &[u8]| ran.feature(feature).is_some_and(|section| section[..] == *old);
            let stays = [0, 1, 2, 3, 4].map(|number| kept(features[number].0, &features[number].1));
            let has_secret = |bytes: &[u8]| bytes.windows(6).any(|window| window == b"secret");
            let says = ran.recording.features.values().filter(|section| has_secret(section)).count();
            (stays, says, ran.each(|record| has_secret(record.bytes())))
        };
        assert_eq!(redacted(""), ([false, false, true, true, false], 0, vec![false, false]));
        assert_eq!(redacted(":keep=comms"), ([false, false, true, true, false], 0, vec![true, false]));
        let (stays, says, _) = redacted(":keep=cmdline");
        assert_eq!((stays, says), ([false, false, true, true, true], 1));
    }
}
