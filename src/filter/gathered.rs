//! Collects the results of the first survey: tasks, names, times, and the number of samples in each batch.

use std::collections::{BTreeMap, HashMap};
use std::sync::Arc;

use perfx_format::read::{Batch, SampleSpan};
use perfx_format::record::cgroup::Cgroup;
use perfx_format::record::event_update::name_update;
use perfx_format::{Kinds, Layouts, Record, RecordType, named_pid};
use perfx_model::address_space::Changes;
use perfx_model::guests::Guests;
use perfx_model::tasks::TaskChanges;
use perfx_pipeline::Place;

use crate::aux::Chunks;
use crate::choice::FilterOptions;
use crate::unused::Unused;

#[derive(Debug, Default)]
pub(crate) struct Gathered {
    pub(crate) guests: Guests,
    pub(crate) tasks: TaskChanges,
    /// Only with `--dso`.
    pub(crate) changes: Option<Changes>,
    /// By id.
    pub(crate) cgroups: BTreeMap<u64, Box<[u8]>>,
    /// Names from EVENT_UPDATE records, by event id.
    pub(crate) names: HashMap<u64, Vec<u8>>,
    pub(crate) chunks: Chunks,
    pub(crate) has_windows: bool,
    pub(crate) unused: Unused,
    pub(crate) samples: u64,
    pub(crate) batches: BTreeMap<Place, Arc<SampleSpan>>,
}

impl Gathered {
    pub(crate) fn new(options: &FilterOptions) -> Gathered {
        let changes = options.dso.is_set().then(Changes::default);
        // If a pid or tid matches nothing, the report lists the existing ones.
        let named = options.needs_task() || options.names_threads;
        let has_windows = !options.windows.is_empty();
        let tasks = TaskChanges::new(named);
        let tasks = if options.namespaces.is_empty() { tasks } else { tasks.with_namespaces() };
        Gathered { changes, has_windows, tasks, ..Gathered::default() }
    }

    pub(crate) fn kinds(options: &FilterOptions) -> Kinds {
        if options.drops_events() {
            return Kinds::ALL;
        }
        let kinds = Kinds::of(&[
            RecordType::SAMPLE,
            RecordType::ID_INDEX,
            RecordType::CGROUP,
            RecordType::AUX,
            RecordType::AUXTRACE,
            RecordType::AUXTRACE_INFO,
            RecordType::TIME_CONV,
        ]);
        let mut kinds = kinds.union(TaskChanges::kinds());
        if !options.namespaces.is_empty() {
            kinds.insert(RecordType::NAMESPACES);
        }
        if options.dso.is_set() { kinds.union(Changes::kinds()) } else { kinds }
    }

    pub(crate) fn look_at(&mut self, record: &Record<'_>, layouts: &Layouts, options: &FilterOptions) {
        let kind = record.kind();
        if options.drops_events() {
            self.unused.look_at(record, layouts);
        }
        match kind {
            RecordType::ID_INDEX => self.guests.learn(record),
            kind if TaskChanges::kinds().and(RecordType::NAMESPACES).contains(kind) => {
                self.tasks.add(record, layouts);
            }
            RecordType::CGROUP => {
                self.cgroups.extend(Cgroup::of(record).map(|cgroup| (cgroup.id, cgroup.path.into())));
            }
            RecordType::AUX | RecordType::AUXTRACE | RecordType::AUXTRACE_INFO | RecordType::TIME_CONV => {
                self.chunks.learn(record, layouts, self.has_windows);
            }
            RecordType::EVENT_UPDATE => {
                self.names.extend(name_update(record).map(|(id, name)| (id, name.to_vec())));
            }
            _ => {}
        }
        if Changes::kinds().contains(kind) {
            self.learn_mapping(record, layouts);
        }
    }

    /// Reads a change of an address space; calls must be in file order.
    pub(crate) fn learn_mapping(&mut self, record: &Record<'_>, layouts: &Layouts) {
        if let Some(changes) = &mut self.changes {
            let machine = self.guests.machine(record, layouts, named_pid(record));
            changes.add(record, layouts, machine);
        }
    }

    /// Counts all samples of a batch at once, because little of each is needed.
    pub(crate) fn count_samples(&mut self, batch: &Batch) {
        let span = batch.sample_span();
        self.samples += span.count;
        self.batches.extend(Place::of_batch(batch).zip((span.count > 0).then_some(span)));
    }

    pub(crate) fn join(&mut self, later: Gathered) {
        self.guests.absorb(later.guests);
        self.tasks.absorb(later.tasks);
        self.cgroups.extend(later.cgroups);
        self.names.extend(later.names);
        self.chunks.join(later.chunks);
        self.unused.join(later.unused);
        self.samples += later.samples;
        self.batches.extend(later.batches);
    }

    pub(crate) fn range(&self) -> Option<(u64, u64)> {
        let batches = || self.batches.values();
        let range =
            (batches().map(|samples| samples.first).min()?, batches().map(|samples| samples.last).max()?);
        (range.0 <= range.1).then_some(range)
    }
}
