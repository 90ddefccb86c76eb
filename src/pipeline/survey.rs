//! Walks through the recording once, read-only, for all passes that survey it.

use perfx_format::Kinds;
use perfx_format::read::{Batch, Recording};

use crate::each_batch::{Reading, each_batch};
use crate::error::Result;
use crate::stage::Surveying;

pub(crate) fn survey(recording: &mut Recording, surveys: &mut [Surveying], reading: Reading) -> Result<()> {
    let wanted = surveys.iter().fold(Kinds::NONE, |all, survey| all.union(survey.kinds));
    let touched = |_: &[Surveying], batch: &Batch| batch.kinds.intersects(wanted);
    let read = |surveys: &mut [Surveying], batch: &Batch| read_batch(batch, surveys);
    each_batch(recording, surveys, reading, touched, read, |_, ()| Ok(()))
}

fn read_batch(batch: &Batch, surveys: &mut [Surveying]) -> Result<()> {
    let begin =
        |stage: &mut Surveying| stage.survey.begin_batch(batch, stage.kinds).intersection(stage.kinds);
    let kinds: Vec<Kinds> = surveys.iter_mut().map(begin).collect();
    if let ([stage], [kinds]) = (&mut *surveys, &*kinds) {
        // Without a call through a pointer for each record.
        return stage.survey.batch(batch, *kinds);
    }
    let wanted = kinds.iter().fold(Kinds::NONE, |all, kinds| all.union(*kinds));
    batch.each(wanted, |record| {
        let mut wanting = surveys.iter_mut().zip(&kinds).filter(|(_, kinds)| kinds.contains(record.kind()));
        wanting.try_for_each(|(stage, _)| stage.survey.record(record, &batch.layouts))
    })
}
