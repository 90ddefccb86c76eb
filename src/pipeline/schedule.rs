//! Decides the steps of a job before any byte is written: walks, temporary files, reasons to refuse.

use perfx_format::read::Recording;
use perfx_format::{Kinds, Layouts};

use crate::damage::Damage;
use crate::error::{Error, NotLast, Result};
use crate::needs::Needs;
use crate::output::OutputForm;
use crate::pass::Pass;

/// The steps of a job, decided before any byte is written.
#[derive(Debug)]
pub struct Schedule {
    pub(crate) needs: Vec<(&'static str, Needs)>,
    pub(crate) surveys: usize,
    /// True if COMPRESSED records are replaced with their contents.
    pub(crate) expand: bool,
    compressed: bool,
    pub(crate) spool: bool,
    pub(crate) threads: usize,
    pub(crate) damage: Damage,
}

impl Schedule {
    pub(crate) fn new(recording: &Recording, passes: &[Box<dyn Pass>], threads: usize) -> Result<Schedule> {
        let needs: Vec<_> = passes.iter().map(|pass| (pass.name(), pass.needs(recording))).collect();
        let surveys = needs.iter().map(|(_, needs)| needs.surveys.len()).max().unwrap_or(0);
        // Records of several zstd streams cannot be in one file, which has a single stream.
        let several = recording.stream_count() > 1 && recording.is_compressed();
        if let Some(at) = needs.iter().position(|(_, needs)| needs.last).filter(|at| at + 1 < needs.len()) {
            return Err(Error::NotLast(Box::new(NotLast { pass: needs[at].0 })));
        }
        if needs.iter().any(|(_, needs)| needs.ids) {
            Layouts::new(&recording.events).check_layouts().map_err(|e| e.file(&recording.name))?;
        }
        Ok(Schedule {
            surveys,
            expand: several || needs.iter().any(|(_, needs)| needs.decompressed),
            compressed: recording.is_compressed(),
            spool: surveys > 0 && !recording.is_rereadable(),
            threads,
            damage: needs.iter().map(|(_, needs)| needs.damage).max().unwrap_or_default(),
            needs,
        })
    }

    /// The needs of each pass, in the order in which records go through them.
    pub fn needs(&self) -> &[(&'static str, Needs)] {
        &self.needs
    }

    /// True if the input goes to a temporary file first, because it is read more than once.
    pub fn spools(&self) -> bool {
        self.spool
    }

    /// True if there are COMPRESSED records and they are replaced with their contents.
    pub fn decompresses(&self) -> bool {
        self.expand && self.compressed
    }

    /// The first pass that surveys the output of an earlier one.
    pub(crate) fn parts_at(&self, form: OutputForm) -> Option<usize> {
        let barrier = self.needs.iter().position(|(_, needs)| needs.barrier)?;
        let after = self.needs.iter().enumerate().skip(barrier + 1);
        let must_see = |needs: &Needs| form == OutputForm::Pipe || !needs.surveys_input;
        after.filter(|(_, (_, needs))| !needs.surveys.is_empty() && must_see(needs)).map(|(at, _)| at).next()
    }

    /// One line for each step towards an output of this form, as printed by `--explain`.
    pub fn explain(&self, form: OutputForm) -> Vec<String> {
        let mut lines = Vec::new();
        if self.spool {
            lines.push("copy the input to a temporary file, because it is read more than once".to_owned());
        }
        let (front, after) = self.needs.split_at(self.parts_at(form).unwrap_or(self.needs.len()));
        explain_surveys(front, &mut lines);
        if self.decompresses() {
            lines.push("decompress: COMPRESSED records are replaced with their contents".to_owned());
        }
        explain_passes(front, &mut lines);
        if let Some((name, _)) = after.first() {
            lines.push(format!("write the result to a temporary file, because {name} surveys it"));
            explain_surveys(after, &mut lines);
            explain_passes(after, &mut lines);
        }
        lines.push("write, in file order".to_owned());
        lines
    }
}

fn explain_surveys(needs: &[(&str, Needs)], lines: &mut Vec<String>) {
    let surveys = needs.iter().map(|(_, needs)| needs.surveys.len()).max().unwrap_or(0);
    for survey in 0..surveys {
        for (name, needs) in needs {
            if let Some(kinds) = needs.surveys.get(survey).filter(|&&kinds| kinds != Kinds::NONE) {
                lines.push(format!("survey {}: {name} reads {}", survey + 1, kinds_text(*kinds)));
            }
        }
    }
}

fn explain_passes(needs: &[(&str, Needs)], lines: &mut Vec<String>) {
    for (name, needs) in needs {
        let mut line = format!("pass {name}: changes {}", kinds_text(needs.records));
        if !needs.stale.is_empty() {
            let stale: Vec<_> = needs.stale.iter().map(ToString::to_string).collect();
            line += &format!(", rebuilds {}", stale.join(", "));
        }
        lines.push(line);
    }
}

fn kinds_text(kinds: Kinds) -> String {
    match kinds.names() {
        names if names.is_empty() => "no record in place".to_owned(),
        names if kinds == Kinds::ALL || names.len() == perfx_format::RecordType::NAMED.len() => {
            "every record".to_owned()
        }
        names => names.join(", "),
    }
}
