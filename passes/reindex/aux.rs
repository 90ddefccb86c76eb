//! `reindex-aux` makes feature AUXTRACE list every AUXTRACE record once, in file order; perf crashes at an entry that points elsewhere, or leaves
//! the trace out without a word. The records themselves, their `offset` in the AUX stream included, are not touched.

use std::collections::HashMap;

use anyhow::Result;
use perfx_format::features::{AuxtraceEntry, read_auxtrace_index};
use perfx_format::input::Recording;
use perfx_format::{Feature, Kinds, Layouts, Origin, Record, RecordType};
use perfx_pipeline::{Needs, OutputForm, Pass, Session, worker_as};

use super::{ADD, counts, tell};
use crate::support::options::{Choice, Options};

/// The pass.
#[derive(Debug, Default)]
pub struct ReindexAux {
    add: bool,
    /// The AUXTRACE records of the main file, in file order.
    there: Vec<AuxtraceEntry>,
    /// Those of a directory's other files, which no index can list until all is one file.
    elsewhere: u64,
}

impl ReindexAux {
    pub(crate) const ABOUT: &'static str = "make feature AUXTRACE list the AUXTRACE records that are there";
    pub(crate) const OPTIONS: &'static [Choice] = &[ADD];

    pub(crate) fn make(options: &Options) -> Box<dyn Pass> {
        Box::new(ReindexAux::new(options.has(ADD.name)))
    }

    /// With `add`, also where there is no such feature: readers then find the records by themselves.
    pub fn new(add: bool) -> ReindexAux {
        ReindexAux { add, ..ReindexAux::default() }
    }
}

impl Pass for ReindexAux {
    fn name(&self) -> &'static str {
        "reindex-aux"
    }

    fn needs(&self, _input: &Recording) -> Needs {
        Needs { looks: vec![Kinds::of(&[RecordType::AUXTRACE])], ..Needs::default() }
    }

    fn survey(&mut self, _look: usize, record: &Record<'_>, _layouts: &Layouts) -> Result<()> {
        match record.origin() {
            Origin::Input { stream: 0, offset } => {
                self.there.push(AuxtraceEntry { offset, size: record.bytes().len() as u64 });
            }
            _ => self.elsewhere += 1,
        }
        Ok(())
    }

    fn begin(&mut self, session: &mut Session) -> Result<()> {
        let index = "feature AUXTRACE";
        let count = self.there.len() as u64 + self.elsewhere;
        // Pipe data has no such feature, so whatever writes one anew.
        if session.form == OutputForm::Pipe {
            return Ok(());
        }
        let Some(section) = session.feature(Feature::AUXTRACE) else {
            let made = if self.add { count } else { 0 };
            if made > 0 {
                session.list_aux();
            }
            let record = "AUXTRACE record listed for the first time";
            let records = "AUXTRACE records listed for the first time";
            tell(session, index, &counts(&[(made, record, records)]));
            return Ok(());
        };
        let old = read_auxtrace_index(section, session.endian);
        if count == 0 {
            session.list_aux();
            tell(session, index, &["taken away, for there is no AUXTRACE record".to_owned()]);
            return Ok(());
        }
        if self.elsewhere == 0 && old.as_ref() == Some(&self.there) {
            tell(session, index, &[]);
            return Ok(());
        }
        session.list_aux();
        let Some(old) = old else {
            tell(session, index, &["made anew, for it could not be read".to_owned()]);
            return Ok(());
        };
        let mut listed: HashMap<u64, (u64, u64)> =
            self.there.iter().map(|entry| (entry.offset, (entry.size, 0))).collect();
        let (mut astray, mut sizes) = (0, 0);
        for entry in &old {
            match listed.get_mut(&entry.offset) {
                Some((size, times)) => {
                    sizes += u64::from(*size != entry.size);
                    *times += 1;
                }
                None => astray += 1,
            }
        }
        let missing = self.elsewhere + listed.values().filter(|(_, times)| *times == 0).count() as u64;
        let twice = listed.values().map(|(_, times)| times.saturating_sub(1)).sum();
        let disordered = old.windows(2).filter(|pair| pair[0].offset > pair[1].offset).count() as u64;
        let mended = [
            (
                astray,
                "entry that pointed at no AUXTRACE record replaced",
                "entries that pointed at no AUXTRACE record replaced",
            ),
            (sizes, "entry with a wrong size", "entries with a wrong size"),
            (twice, "entry listed again", "entries listed again"),
            (disordered, "entry out of order", "entries out of order"),
            (missing, "AUXTRACE record added", "AUXTRACE records added"),
        ];
        tell(session, index, &counts(&mended));
        Ok(())
    }

    fn fork(&self) -> Option<Box<dyn Pass>> {
        Some(Box::new(ReindexAux::new(self.add)))
    }

    fn join(&mut self, worker: Box<dyn Pass>) -> Result<()> {
        if let Some(ReindexAux { there, elsewhere, .. }) = worker_as(worker) {
            self.there.extend(there);
            self.elsewhere += elsewhere;
        }
        Ok(())
    }
}
