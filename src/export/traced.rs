//! Counts every branch in a recording's hardware trace (Intel PT, CoreSight), by file, on all threads.
//! Samples would only stand for the branches between them, so none are synthesized.

use std::collections::{BTreeMap, HashMap};
use std::path::Path;
use std::sync::Arc;

use build_id::Object;
use foldhash::fast::RandomState;
use perfx_auxtrace::{
    Atoms, Part, Places, Recorded, Split, Survey, Tracer, UNIT, Work, say_faults, say_missing,
    say_unknown_units, say_used, traced_code,
};
use perfx_filter::FilterOptions;
use perfx_format::read::Recording;
use perfx_model::address_space::Dso;
use perfx_pipeline::{Context as _, Report, Result, ensure};
use perfx_resolve::{IdOptions, RecordedIds, object_of};
use perfx_samples::each_batch;
use perfx_trace::{
    Blocks, Counter, Ends, Event, Joint, PathId, Place, Point, Reason, Run, Sink, Step, Sums as _,
};

type Runs = HashMap<Run, u64, RandomState>;

pub(crate) struct Traced {
    tracer: Tracer,
    recorded: Recorded,
}

impl Traced {
    /// Finds the trace of a recording; `None` if it has none of Intel PT or CoreSight.
    ///
    /// # Errors
    ///
    /// The recording cannot be read, the options select samples, which a trace does not have, or the trace is
    /// of a kind that is not decoded.
    pub(crate) fn read(
        recording: &mut Recording,
        filter: &Arc<FilterOptions>,
        threads: usize,
        report: &mut Report,
    ) -> Result<Option<Traced>> {
        let mut survey = Survey::of(recording);
        let kinds = survey.kinds();
        report.read.bytes += each_batch(
            recording,
            threads,
            report,
            |_| Ok(()),
            |batch, ()| {
                batch.each(kinds, |record| {
                    survey.add(record, &batch.layouts);
                    Ok(())
                })
            },
        )?;
        if !survey.follows_code() {
            return Ok(None);
        }
        let name = &recording.name;
        ensure!(
            filter.is_empty(),
            "{name}: options that select samples do not select parts of its hardware trace"
        );
        let traced = survey.done(&recording.stored_bytes(), &recording.all_events());
        let (tracer, recorded) = traced.with_context(|| name.to_string())?;
        Ok(Some(Traced { tracer, recorded }))
    }

    /// The DSOs of the recording with their flags, and the first process that mapped each.
    pub(crate) fn dsos(&self) -> impl ExactSizeIterator<Item = (&Dso, u32, Option<u32>)> {
        self.recorded.dsos()
    }

    /// Decodes the trace. `known` are the build-ids of the recording. Code is searched for in the places of
    /// `ids`, except that of the DSOs `own`, which is in a given file.
    ///
    /// # Errors
    ///
    /// A thread cannot be started.
    pub(crate) fn decode(
        self,
        recording: &Recording,
        (known, ids): (&RecordedIds, &IdOptions),
        own: Option<(&Path, &[bool])>,
        threads: usize,
        report: &mut Report,
    ) -> Result<Ran> {
        let about = (&recording.features, recording.endian, &*recording.name);
        let own_kernel =
            own.filter(|(_, own)| self.dsos().zip(*own).any(|((dso, ..), own)| *own && is_kernel(dso)));
        let with_kernel = own_kernel.map(|(path, _)| ids.clone().with_vmlinux(path.to_owned()));
        let ids = with_kernel.as_ref().unwrap_or(ids);
        // One thread decodes a trace as a whole, which avoids reading it to cut it.
        let size = if threads > 1 { UNIT } else { u64::MAX };
        let mut joints: HashMap<usize, Joint> = HashMap::new();
        let mut runs = Runs::default();
        let joined = |part: Part, ends: Ends| {
            if let Some(run) = joints.entry(part.trace).or_default().join(&ends) {
                runs.add(run, 1);
            }
            Ok(())
        };
        let Traced { tracer, mut recorded } = self;
        let code = traced_code(ids, &mut recorded, tracer.clock(), known, about);
        own.inspect(|(path, own)| code.take_from(path, own));
        let atoms = tracer.atoms();
        let work = Count { of_every_branch: atoms.is_some() };
        let (sinks, unknown) = tracer.decode(&code, Split { threads, size }, &work, joined)?;
        let end = if atoms.is_some() { Joint::end_told } else { Joint::end };
        joints.into_values().filter_map(end).for_each(|run| runs.add(run, 1));
        let mut faults: BTreeMap<Reason, u64> = BTreeMap::new();
        for Counting { counter, faults: of_thread } in sinks {
            counter.into_inner().into_iter().for_each(|(run, count)| runs.add(run, count));
            of_thread.into_iter().for_each(|(reason, count)| *faults.entry(reason).or_default() += count);
        }
        say_unknown_units(unknown, report);
        say_used(&code, report);
        say_faults(&faults, report);
        say_missing(&recorded, report);
        Ok(Ran { runs, atoms, places: code.places() })
    }
}

pub(crate) fn is_kernel(dso: &Dso) -> bool {
    object_of(dso, None) == Object::Kernel
}

pub(crate) struct Ran {
    pub(crate) runs: Runs,
    pub(crate) atoms: Option<Atoms>,
    places: Places,
}

impl Ran {
    /// The number of the DSO, and the offset in its file.
    pub(crate) fn in_file(&self, place: Place) -> Option<(u32, u64)> {
        self.places.find(place.mapping?, place.ip)
    }
}

struct Count {
    /// The trace also has branches that are not taken.
    of_every_branch: bool,
}

struct Counting {
    counter: Counter<Runs>,
    faults: BTreeMap<Reason, u64>,
}

impl Work for Count {
    type Sink = Counting;
    type Done = Ends;

    fn sink(&self) -> Counting {
        let counter = if self.of_every_branch { Counter::of_every_branch } else { Counter::new };
        Counting { counter: counter(Runs::default()), faults: BTreeMap::new() }
    }

    fn begin(&self, _sink: &mut Counting, _part: &Part) {}

    fn end(&self, sink: &mut Counting, blocks: &Blocks, _part: &Part) -> Ends {
        sink.counter.end_unit(blocks)
    }

    fn finish(&self, sink: &mut Counting, blocks: &Blocks) {
        sink.counter.forget(blocks);
    }
}

impl Sink for Counting {
    #[inline(always)]
    fn step(&mut self, blocks: &Blocks, point: &Point, step: Step) {
        self.counter.step(blocks, point, step);
    }

    #[inline(always)]
    fn path(&mut self, blocks: &Blocks, point: &Point, id: PathId) {
        self.counter.path(blocks, point, id);
    }

    fn event(&mut self, blocks: &Blocks, point: &Point, event: Event) {
        if let Event::Fault(fault) = event {
            *self.faults.entry(fault.reason).or_default() += 1;
        }
        self.counter.event(blocks, point, event);
    }

    fn forget(&mut self, blocks: &Blocks) {
        self.counter.forget(blocks);
    }
}
