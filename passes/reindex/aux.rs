//! `reindex-aux` makes feature AUXTRACE list every AUXTRACE record once, in file order: at a wrong entry,
//! perf crashes or silently ignores the trace. The records, including their `offset` in the AUX stream, stay.

use std::collections::HashMap;

use clap::Args;
use perfx_format::features::{AuxtraceEntry, lacks_count, read_auxtrace_index};
use perfx_format::read::Recording;
use perfx_format::{Feature, Kinds, Layouts, Origin, Record, RecordType};
use perfx_pipeline::{Begin, Fork, Needs, OutputForm, Pass, Result, Session, Stage, Survey};

use super::{counts, report_repaired};
use crate::support::options::PassOptions;

/// The pass and its options.
#[derive(Args, Clone, Copy, Debug, Default)]
pub struct ReindexAux {
    /// Also make the feature if it is missing, although readers then find the records by themselves
    #[arg(long)]
    pub add: bool,
}

impl PassOptions for ReindexAux {
    const NAME: &'static str = "reindex-aux";
    const ABOUT: &'static str = "make feature AUXTRACE list every AUXTRACE record once";

    fn pass(self) -> Result<Box<dyn Pass>> {
        Ok(Box::new(self))
    }
}

struct AuxRecords {
    add: bool,
    /// The AUXTRACE records of the main file, in file order.
    there: Vec<AuxtraceEntry>,
    /// The number in the other files of a directory; an index cannot list them until all are in one file.
    elsewhere: u64,
}

impl AuxRecords {
    fn new(add: bool) -> AuxRecords {
        AuxRecords { add, there: Vec::new(), elsewhere: 0 }
    }

    fn correct(self, session: &mut Begin<'_>) {
        let index = "feature AUXTRACE";
        let count = self.there.len() as u64 + self.elsewhere;
        // Pipe data has no such feature: the index is rebuilt whenever a file is written from it.
        if session.form == OutputForm::Pipe {
            return;
        }
        let Some(section) = session.feature(Feature::AUXTRACE) else {
            let made = if self.add { count } else { 0 };
            if made > 0 {
                session.rebuild_aux_index();
            }
            let record = "AUXTRACE record listed for the first time";
            let records = "AUXTRACE records listed for the first time";
            report_repaired(session, index, &counts(&[(made, record, records)]));
            return;
        };
        let old = read_auxtrace_index(section, session.endian);
        if count == 0 {
            session.rebuild_aux_index();
            report_repaired(session, index, &["removed, because there is no AUXTRACE record".to_owned()]);
            return;
        }
        let lacks_count = lacks_count(section, session.endian);
        if self.elsewhere == 0 && old.as_ref() == Some(&self.there) && !lacks_count {
            report_repaired(session, index, &[]);
            return;
        }
        session.rebuild_aux_index();
        let Some(old) = old else {
            report_repaired(session, index, &["rebuilt, because it could not be read".to_owned()]);
            return;
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
        let repaired = [
            (
                astray,
                "entry replaced that pointed at no AUXTRACE record",
                "entries replaced that pointed at no AUXTRACE record",
            ),
            (sizes, "entry with a wrong size", "entries with a wrong size"),
            (twice, "entry listed again", "entries listed again"),
            (disordered, "entry out of order", "entries out of order"),
            (missing, "AUXTRACE record added", "AUXTRACE records added"),
        ];
        let mut repaired = counts(&repaired);
        repaired.extend(
            lacks_count.then(|| "the number of its entries added, which simpleperf omits".to_owned()),
        );
        report_repaired(session, index, &repaired);
    }
}

impl Pass for ReindexAux {
    fn name(&self) -> &'static str {
        ReindexAux::NAME
    }

    fn needs(&self, _input: &Recording) -> Needs {
        Needs { surveys: vec![Kinds::of(&[RecordType::AUXTRACE])], barrier: false, ..Needs::default() }
    }

    fn start(self: Box<Self>, _input: &Recording) -> Stage {
        Stage::survey(AuxRecords::new(self.add))
    }
}

impl Survey for AuxRecords {
    fn record(&mut self, record: &Record<'_>, _layouts: &Layouts) -> Result<()> {
        match record.origin() {
            Origin::Input { stream: 0, offset } => {
                self.there.push(AuxtraceEntry { offset, size: record.bytes().len() as u64 });
            }
            _ => self.elsewhere += 1,
        }
        Ok(())
    }

    fn end(self, _session: &mut Session) -> Result<Stage> {
        Ok(Stage::begin(move |begin| {
            self.correct(begin);
            Ok(Stage::copy())
        }))
    }
}

impl Fork for AuxRecords {
    fn fork(&self) -> AuxRecords {
        AuxRecords::new(self.add)
    }

    fn absorb(&mut self, later: AuxRecords) {
        self.there.extend(later.there);
        self.elsewhere += later.elsewhere;
    }
}
