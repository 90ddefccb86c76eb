//! The core of a run: batches go through the passes and become plans, which the writer takes in file order.

use std::ops::Range;
use std::slice;

use perfx_format::read::{Batch, Form, Recording};
use perfx_format::{Error, Kinds, Layouts, Origin, Record};

use crate::damage::Damage;
use crate::each_batch::{Reading, each_batch};
use crate::emit::{Emit, Rewriting};
use crate::ensure;
use crate::error::{Context as _, Result};
use crate::hidden::Hidden;
use crate::needs::Interest;
use crate::ordered::mapped;
use crate::output::OutputForm;
use crate::plan::{OutputNeeds, Plan, Planner};
use crate::report::Level;
use crate::session::{Place, Session};
use crate::writer::Writer;

pub(crate) fn write_records(
    recording: &mut Recording,
    chain: &mut [Rewriting],
    reading: Reading,
    needs: OutputNeeds,
    session: &mut Session,
    writer: &mut Writer<'_>,
) -> Result<()> {
    let damage = reading.damage;
    let done_before = session.report.read.bytes;
    let pipe = recording.form == Form::Pipe;
    // If header records have a meaning in the input or the output, all must be seen.
    let to_pipe = session.form == OutputForm::Pipe;
    let mut hidden = Hidden::new(recording, !reading.open && (pipe || to_pipe));
    let mut nested = Nested::default();
    // Nothing after damage is read.
    let mut whole = damage != Damage::Salvage;
    let wanted = Wanted::new(chain, needs);
    let touched = |chain: &[Rewriting], batch: &Batch| wanted.touches(chain, batch);
    let work = |chain: &mut [Rewriting], batch: &Batch| plan_batch(chain, batch, &wanted, needs);
    let done = |batch: &Batch, plan: Plan| {
        judge_damage(batch, pipe, damage, session)?;
        whole &= batch.fragment.is_none();
        session.report.read.add(batch);
        hidden.look(batch)?;
        nested.look(batch)?;
        writer.kinds = writer.kinds.union(batch.kinds);
        writer.plan(&plan, Some(batch), session)?;
        plan.absorbed.into_iter().for_each(|header| session.absorb(header));
        Ok(())
    };
    each_batch(recording, chain, reading, touched, work, done)?;
    // An early stop must not look like the end of the recording. Expanded data has another size.
    let done = session.report.read.bytes - done_before;
    let expected = recording.data_size().filter(|_| whole && !reading.open);
    ensure!(
        expected.is_none_or(|expected| done == expected),
        "{}: only {done} of {} bytes of records were processed; please report this",
        session.name,
        expected.unwrap_or_default()
    );
    nested.report(session);
    match hidden.found()? {
        Some(error) if pipe && to_pipe => {
            let what = "it was copied unchanged; perfx recover restores the readable part";
            session.report.say(Level::Warning, format!("{error}: {what}"));
            Ok(())
        }
        Some(error) => Err(error.into()),
        None => Ok(()),
    }
}

/// Header records that were inside compressed ones; only a pass that salvages accepts these.
#[derive(Default)]
struct Nested {
    count: u64,
    first: Option<Error>,
}

impl Nested {
    fn look(&mut self, batch: &Batch) -> Result<()> {
        let kinds = Kinds::HEADER_FRONT;
        if !batch.kinds.intersects(kinds) {
            return Ok(());
        }
        let mut walker = batch.walk();
        while let Some(record) = walker.next_wanted(kinds, usize::MAX)? {
            if matches!(record.origin(), Origin::Chunk { .. }) {
                self.count += 1;
                let what =
                    "it was inside a compressed record, where it is not allowed, and is now among the others";
                self.first.get_or_insert_with(|| record.error(what).file(&batch.name));
            }
        }
        Ok(())
    }

    fn report(self, session: &mut Session) {
        let Some(first) = self.first else { return };
        let more = if self.count > 1 { format!("; so were {} more", self.count - 1) } else { String::new() };
        session.report.say(Level::Warning, format!("{first}{more}"));
    }
}

/// Reports the unreadable part of a batch, or makes it an error.
fn judge_damage(batch: &Batch, pipe: bool, damage: Damage, session: &mut Session) -> Result<()> {
    if let Some(fragment) = &batch.fragment {
        let error = fragment.to_error().file(&batch.name);
        if !damage.tolerates(fragment, pipe) {
            return Err(error.into());
        }
        session.report.say(Level::Loss, error.to_string());
    }
    if let Some(lost) = &batch.lost {
        if damage == Damage::Refuse {
            return Err(lost.to_error().into());
        }
        session.report.say(Level::Loss, lost.to_string());
    }
    Ok(())
}

/// The records that the passes and the form of the output need to see.
struct Wanted {
    kinds: Kinds,
    /// The kinds that the form, or any pass but the first, needs.
    after_first: Kinds,
    places: Vec<Place>,
}

impl Wanted {
    fn new(chain: &[Rewriting], needs: OutputNeeds) -> Wanted {
        let union =
            |chain: &[Rewriting]| chain.iter().fold(needs.kinds(), |all, stage| all.union(stage.kinds));
        let mut places: Vec<Place> = chain.iter().flat_map(|stage| stage.places.iter().copied()).collect();
        places.sort_unstable();
        places.dedup();
        Wanted { kinds: union(chain), after_first: union(chain.get(1..).unwrap_or_default()), places }
    }

    fn touches(&self, chain: &[Rewriting], batch: &Batch) -> bool {
        batch.kinds.intersects(self.kinds) || !self.stops(chain, batch).is_empty()
    }

    /// The positions in the batch of the records at these places and at those of prescans, ascending.
    fn stops(&self, chain: &[Rewriting], batch: &Batch) -> Vec<usize> {
        let mut places: Vec<Place> = chain.iter().flat_map(|stage| &stage.found).copied().collect();
        if !self.places.is_empty()
            && let Some((stream, span)) = batch.origins.span(batch.bytes.len())
        {
            let from = self.places.partition_point(|place| place.stored() < (stream, *span.start()));
            let until = self.places.partition_point(|place| place.stored() <= (stream, *span.end()));
            places.extend(self.places.get(from..until).unwrap_or_default());
        }
        let position = |place: Place| batch.origins.position_of(place.origin());
        let mut stops: Vec<usize> = places.into_iter().filter_map(position).collect();
        stops.retain(|&stop| stop < batch.bytes.len());
        stops.sort_unstable();
        stops
    }
}

fn plan_batch(chain: &mut [Rewriting], batch: &Batch, wanted: &Wanted, needs: OutputNeeds) -> Result<Plan> {
    if !wanted.touches(chain, batch) {
        return Ok(plan_all(batch, needs));
    }
    match chain.first_mut().map(|stage| stage.rewrite.begin_batch(batch)) {
        Some(Interest::DropRest(kinds)) => plan_only(chain, batch, &[], kinds, needs),
        Some(Interest::DropOutside(ranges, kinds)) => plan_only(chain, batch, &ranges, kinds, needs),
        Some(Interest::KeepRest(kinds)) => {
            let (wanted, stops) = (kinds.union(wanted.after_first), wanted.stops(chain, batch));
            if !batch.kinds.intersects(wanted) && stops.is_empty() {
                return Ok(plan_all(batch, needs));
            }
            plan(chain, batch, wanted, &stops, needs)
        }
        Some(Interest::AsDeclared) | None => {
            let stops = wanted.stops(chain, batch);
            plan(chain, batch, wanted.kinds, &stops, needs)
        }
    }
}

/// Writes the records that a pass puts after all records of the input.
pub(crate) fn write_drained(
    stage: &mut Rewriting,
    after: &mut [Rewriting],
    threads: usize,
    needs: OutputNeeds,
    layouts: &Layouts,
    session: &mut Session,
    writer: &mut Writer<'_>,
) -> Result<()> {
    let mut draining = (true, stage, after);
    let next = |(there_is_more, stage, after): &mut (bool, &mut Rewriting, &mut [Rewriting])| {
        there_is_more.then(|| {
            let mut planner = Planner::new(None, needs);
            let more = stage.rewrite.drain(&mut Emit::new(after, &mut planner, layouts));
            *there_is_more = *more.as_ref().unwrap_or(&false);
            more.with_context(|| format!("pass {}", stage.name)).map(|_| planner.done())
        })
    };
    let mut write = |plan: Result<Plan>| writer.plan(&plan?, None, session);
    if threads <= 1 {
        return std::iter::from_fn(|| next(&mut draining)).try_for_each(write);
    }
    let work = |draining: &mut _, ()| next(draining);
    mapped(std::iter::repeat(()), slice::from_mut(&mut draining), work, |plans| {
        plans.map_while(|plan| plan).try_for_each(&mut write)
    })
}

fn plan_all(batch: &Batch, needs: OutputNeeds) -> Plan {
    let mut planner = Planner::new(Some(batch), needs);
    planner.stored(0..batch.bytes.len());
    planner.done()
}

/// Sends the records in the ranges, and elsewhere those of these kinds, through the chain; drops others.
fn plan_only(
    chain: &mut [Rewriting],
    batch: &Batch,
    ranges: &[Range<usize>],
    kinds: Kinds,
    needs: OutputNeeds,
) -> Result<Plan> {
    let mut planner = Planner::new(Some(batch), needs);
    let (mut inside, mut outside) = (batch.walk(), batch.walk());
    let wanted = batch.kinds.intersects(kinds);
    let mut next = |from: usize| -> Result<Option<(usize, Record<'_>)>> {
        outside.seek(outside.position().max(from));
        let record = if wanted { outside.next_wanted(kinds, usize::MAX)? } else { None };
        Ok(record.map(|record| (outside.position() - record.whole_size() as usize, record)))
    };
    // It is kept until its place is reached: searching again from each range on would take quadratic time.
    let mut rare = next(0)?;
    let end = batch.bytes.len();
    for range in ranges.iter().cloned().chain(std::iter::once(end..end)) {
        while let Some((_, record)) = rare.filter(|(start, _)| *start < range.start) {
            Emit::new(chain, &mut planner, &batch.layouts).keep(record)?;
            rare = next(0)?;
        }
        inside.seek(range.start);
        while inside.position() < range.end
            && let Some(record) = inside.next_record()?
        {
            Emit::new(chain, &mut planner, &batch.layouts).keep(record)?;
        }
        if rare.is_some_and(|(start, _)| start < range.end) {
            rare = next(range.end)?;
        }
    }
    end_batch(chain, batch, &mut planner)?;
    Ok(planner.done())
}

fn end_batch(chain: &mut [Rewriting], batch: &Batch, planner: &mut Planner) -> Result<()> {
    for at in 0..chain.len() {
        if let Some((stage, rest)) = chain[at..].split_first_mut() {
            let ended = stage.rewrite.end_batch(&mut Emit::new(rest, planner, &batch.layouts));
            ended.with_context(|| format!("pass {}", stage.name))?;
        }
    }
    Ok(())
}

/// Sends the needed records, and those that begin at `stops`, through the chain.
fn plan(
    chain: &mut [Rewriting],
    batch: &Batch,
    wanted: Kinds,
    stops: &[usize],
    needs: OutputNeeds,
) -> Result<Plan> {
    let mut planner = Planner::new(Some(batch), needs);
    let mut walker = batch.walk();
    let mut stops = stops.iter().copied().peekable();
    let mut done = 0;
    while let Some(record) = walker.next_wanted(wanted, stops.peek().copied().unwrap_or(usize::MAX))? {
        let end = walker.position();
        let start = end - record.bytes().len() - record.payload().len();
        while stops.next_if(|&stop| stop <= start).is_some() {}
        planner.stored(done..start);
        Emit::new(chain, &mut planner, &batch.layouts).keep(record)?;
        done = end;
    }
    planner.stored(done..batch.bytes.len());
    end_batch(chain, batch, &mut planner)?;
    Ok(planner.done())
}
