//! `recover` turns a damaged or incomplete recording into one that perf can read: unreadable data is left
//! out, odd but complete records stay, both are reported, and features that `perf record` writes only at its
//! end are rebuilt from the records where possible.

mod like;

use std::collections::{BTreeMap, BTreeSet, HashMap};
use std::path::PathBuf;

use clap::Args;
use perfx_format::decode::issues;
use perfx_format::event_name::names_of;
use perfx_format::features::{NrCpus, meaningless};
use perfx_format::read::{Batch, Form, Recording};
use perfx_format::record::event_update::name_update;
use perfx_format::record::header_records::HeaderRecord;
use perfx_format::{BranchStacks, Feature, Kinds, Layout, Layouts, Record, RecordType};
use perfx_pipeline::{
    Damage, Emit, Fork, Level, Needs, Pass, Result, Rewrite, Session, Stage, Survey, counted, list,
};

use crate::support::features::event_desc;
use crate::support::options::PassOptions;
use like::{Marks, take_features};

/// The pass. `reindex-aux`, `reindex-times` and `reindex-build-ids` do the rest.
#[derive(Clone, Debug)]
pub struct Recover {
    options: RecoverOptions,
}

/// The options, checked.
#[derive(Args, Clone, Debug, Default)]
pub struct RecoverOptions {
    /// Also guess the number of CPUs, which can't be recovered: the highest CPU with a sample plus 1
    #[arg(long)]
    pub guess: bool,
    /// Take the formats of tracepoints, event names and facts about the machine from this recording of the
    /// same command on the same kernel, which is checked
    #[arg(long, value_name = "OTHER")]
    pub like: Option<PathBuf>,
}

impl PassOptions for RecoverOptions {
    const NAME: &'static str = "recover";
    const ABOUT: &'static str = "leave out what can't be read, and rebuild EVENT_DESC and the flags that only a \
        finished recording has";

    fn pass(self) -> Result<Box<dyn Pass>> {
        Ok(Box::new(Recover::new(self)))
    }
}

#[derive(Debug, Default)]
struct Proof {
    options: RecoverOptions,
    marks: Marks,
    /// The batch is known to have no odd record.
    sound: bool,
    names: HashMap<u64, Vec<u8>>,
    cpu: Option<u32>,
    /// The number of odd records, and of those for each code of `perfx doctor`.
    odd: u64,
    /// The number of records of kinds unknown to every perf.
    impossible: u64,
    odd_codes: BTreeMap<&'static str, u64>,
}

/// Drops unreadable records of pipe data that belong in a file's header.
#[derive(Debug, Default)]
struct DropUnreadable {
    dropped: u64,
}

/// The attr flag of `perf record --buildid-mmap`: mappings contain build-ids.
const BUILD_ID_FLAG: u32 = 34;

/// Features of a file's header about the machine and about perf.
const OF_THE_MACHINE: [Feature; 6] = [
    Feature::HOSTNAME,
    Feature::OSRELEASE,
    Feature::VERSION,
    Feature::ARCH,
    Feature::NRCPUS,
    Feature::CMDLINE,
];

impl Recover {
    /// The pass with these options.
    pub fn new(options: RecoverOptions) -> Recover {
        Recover { options }
    }
}

impl Proof {
    fn without_formats(&self, session: &Session) -> String {
        let names = names_of(&session.events, session.features(), &[], session.endian, &self.names);
        let (traced, others): (Vec<_>, Vec<_>) =
            session.events.iter().zip(names).partition(|(event, _)| event.attr().is_tracepoint());
        let what = "it has tracepoints, but not their formats (TRACING_DATA), so no perf can read it";
        if others.is_empty() {
            return format!("{what}, and no other events");
        }
        let names: BTreeSet<String> =
            traced.iter().map(|(_, name)| regex::escape(&String::from_utf8_lossy(&name.name))).collect();
        let names = names.into_iter().collect::<Vec<_>>().join(",");
        format!(
            "{what}; `perfx filter --exclude-event '{names}' --drop-unused` on the output leaves them out, and perfx recover \
             --like OTHER takes the formats from another recording of the same command"
        )
    }

    /// Omits features with invalid sections, at which perf stops.
    fn leave_out_meaningless(session: &mut Session) {
        let left_out = meaningless(session.features(), session.endian);
        left_out.iter().for_each(|&feature| session.clear_feature(feature));
        if !left_out.is_empty() {
            let features = counted(left_out.len() as u64, "feature", "features");
            let names = list(left_out.iter().map(ToString::to_string));
            let what = format!("{features} with a section that can't be read: {names}");
            session.report.say(Level::Loss, what);
        }
    }

    fn complete(&self, session: &mut Session) {
        let mut made = Vec::new();
        if session.feature(Feature::EVENT_DESC).is_none()
            && let Some(section) = event_desc(
                session,
                &names_of(&session.events, session.features(), &[], session.endian, &self.names),
            )
        {
            session.set_feature(Feature::EVENT_DESC, section);
            made.push("EVENT_DESC from the attrs");
        }
        // perf report counts branches in place of samples if this flag is set.
        let branches = |event: &perfx_format::Event| {
            let stacks = Layout::new(event.attr()).branch_stacks();
            !matches!(stacks, BranchStacks::None | BranchStacks::Calls)
        };
        if session.feature(Feature::BRANCH_STACK).is_none() && session.events.iter().any(branches) {
            session.set_feature(Feature::BRANCH_STACK, Vec::new());
            made.push("BRANCH_STACK from the attrs");
        }
        if let (None, Some(cpu)) = (session.feature(Feature::NRCPUS), self.cpu) {
            let count = cpu.saturating_add(1);
            let section = NrCpus { available: count, online: count }.write(session.endian);
            session.set_feature(Feature::NRCPUS, section);
            made.push("NRCPUS from the samples");
        }
        if !made.is_empty() {
            session.report.say(Level::Info, format!("rebuilt {}", made.join(", ")));
        }
        let missing: Vec<_> = OF_THE_MACHINE
            .into_iter()
            .filter(|&feature| session.feature(feature).is_none())
            .map(|feature| feature.to_string())
            .collect();
        if !missing.is_empty() {
            let what = format!(
                "the recording lacks features {}, which can't be rebuilt from its records",
                missing.join(", ")
            );
            let guess = if self.options.guess || session.feature(Feature::NRCPUS).is_some() {
                ""
            } else {
                " (--guess takes NRCPUS from the samples)"
            };
            session.report.say(Level::Info, what + guess);
        }
        let named = session.events.iter().any(|event| event.attr().flag(BUILD_ID_FLAG));
        if session.feature(Feature::BUILD_ID).is_none() && !named {
            let what = "perf record adds build-ids when it ends; perfx inject -b adds them to the recovered recording";
            session.report.say(Level::Info, what);
        }
        if self.odd > 0 {
            let codes = self.odd_codes.iter().map(|(code, count)| format!("{code}: {count}"));
            let what = format!(
                "{} kept although {} the format ({}); perfx doctor lists {}",
                counted(self.odd, "record is", "records are"),
                if self.odd == 1 { "it violates" } else { "they violate" },
                codes.collect::<Vec<_>>().join(", "),
                if self.odd == 1 { "it" } else { "them" }
            );
            session.report.say(Level::Warning, what);
        }
        if self.impossible > 0 {
            let records = counted(self.impossible, "record has a kind", "records have kinds");
            let what = format!("{records} that no perf writes: kept, but their original kind is lost");
            session.report.say(Level::Loss, what);
        }
        let traced = session.events.iter().any(|event| event.attr().is_tracepoint());
        if traced && session.feature(Feature::TRACING_DATA).is_none() {
            session.report.say(Level::Warning, self.without_formats(session));
        }
    }
}

impl Pass for Recover {
    fn name(&self) -> &'static str {
        RecoverOptions::NAME
    }

    fn needs(&self, input: &Recording) -> Needs {
        let headers = if input.form == Form::Pipe { Kinds::HEADER } else { Kinds::NONE };
        // A broken zstd stream cannot be continued, so its remaining contents are written uncompressed.
        Needs {
            surveys: vec![Kinds::ALL],
            records: headers,
            decompressed: true,
            damage: Damage::Salvage,
            ..Needs::default()
        }
    }

    fn start(self: Box<Self>, _input: &Recording) -> Stage {
        Stage::survey(Proof { options: self.options, ..Proof::default() })
    }
}

impl Survey for Proof {
    fn begin_batch(&mut self, batch: &Batch, declared: Kinds) -> Kinds {
        self.sound = batch.is_sound();
        let mut wanted = Kinds::of(&[RecordType::EVENT_UPDATE]);
        if self.options.guess {
            wanted.insert(RecordType::SAMPLE);
        }
        if self.options.like.is_some() {
            wanted = wanted.union(Marks::KINDS);
        }
        if self.sound { wanted } else { declared }
    }

    fn record(&mut self, record: &Record<'_>, layouts: &Layouts) -> Result<()> {
        if !self.sound {
            let odd = issues(record, layouts);
            self.odd += u64::from(!odd.is_empty());
            self.impossible += u64::from(!record.kind().may_exist());
            for odd in odd {
                *self.odd_codes.entry(odd.code.as_str()).or_default() += 1;
            }
        }
        if self.options.like.is_some() && Marks::KINDS.contains(record.kind()) {
            self.marks.look_at(record, layouts);
        }
        if record.kind() == RecordType::SAMPLE && self.options.guess {
            let cpu = layouts.layout_of(record).and_then(|layout| layout.cpu(record));
            self.cpu = self.cpu.max(cpu);
        } else if let Some((id, name)) = name_update(record) {
            self.names.insert(id, name.to_vec());
        }
        Ok(())
    }

    fn end(self, session: &mut Session) -> Result<Stage> {
        if let Some(path) = &self.options.like {
            take_features(path, &self.marks, session)?;
        }
        Ok(Stage::begin(move |begin| {
            Proof::leave_out_meaningless(begin);
            self.complete(begin);
            Ok(Stage::rewrite(DropUnreadable::default()))
        }))
    }
}

impl Fork for Proof {
    fn fork(&self) -> Proof {
        Proof { options: self.options.clone(), ..Proof::default() }
    }

    fn absorb(&mut self, later: Proof) {
        self.marks.join(later.marks);
        self.names.extend(later.names);
        self.cpu = self.cpu.max(later.cpu);
        self.odd += later.odd;
        self.impossible += later.impossible;
        for (code, count) in later.odd_codes {
            *self.odd_codes.entry(code).or_default() += count;
        }
    }
}

impl Rewrite for DropUnreadable {
    fn record(&mut self, record: Record<'_>, out: &mut Emit<'_>) -> Result<()> {
        if HeaderRecord::read(&record).is_ok() {
            return out.keep(record);
        }
        self.dropped += 1;
        out.drop_record(record);
        Ok(())
    }

    fn finish(&mut self, session: &mut Session, _out: &mut Emit<'_>) -> Result<()> {
        if self.dropped > 0 {
            let records = counted(self.dropped, "header record", "header records");
            session.report.say(Level::Loss, format!("{records} among the others can't be read"));
        }
        Ok(())
    }
}

impl Fork for DropUnreadable {
    fn fork(&self) -> DropUnreadable {
        DropUnreadable::default()
    }

    fn absorb(&mut self, later: DropUnreadable) {
        self.dropped += later.dropped;
    }
}
