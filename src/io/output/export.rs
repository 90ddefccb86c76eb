//! Writes files that are not recordings: one, at a path or on standard output, or several together.

use std::cell::RefCell;
use std::collections::BTreeMap;
use std::io::{self, BufWriter, Write};
use std::path::{Path, PathBuf};

use anyhow::{Context as _, Result};
use clap::Args;
use perfx_format::write::{NewFile, folder, plain};

use crate::io::output::names::{OutputPath, Outputs};
use crate::io::output::place::{Existing, Rules, Target, writable_above};
use crate::io::signals::Unfinished;
use crate::io::source::Source;
use crate::io::streams::{self, Stdout};
use crate::term::escape::Escaping;

/// The output of an export.
#[derive(Args, Debug, Clone)]
pub(crate) struct OutputArgs {
    /// Write to this file; - is standard output [default: standard output]
    #[arg(help_heading = "Output", short, long, value_name = "FILE")]
    output: Option<PathBuf>,
    /// Overwrite an existing output
    #[arg(help_heading = "Output", short, long)]
    pub(crate) force: bool,
}

pub(crate) struct Output {
    target: Target,
    new: Option<(OutputPath, Unfinished<NewFile>)>,
}

impl OutputArgs {
    pub(crate) fn at(&self, path: PathBuf) -> OutputArgs {
        OutputArgs { output: Some(path), force: self.force }
    }

    /// Checks the output before any input is read. Only text goes to a terminal.
    pub(crate) fn open(&self, inputs: &[Source], is_text: bool) -> Result<Output> {
        let (target, existing) = (Target::of(self.output.as_deref(), is_text)?, Existing::forced(self.force));
        let Some(path) = target.path() else { return Ok(Output { target, new: None }) };
        Rules { inputs, existing, folders: false, in_place: false }.check(&target)?;
        let new = Unfinished::file(folder(path)).map_err(plain).with_context(|| target.to_string())?;
        let place = OutputPath::new(path, existing);
        Ok(Output { target, new: Some((place, new)) })
    }
}

impl Output {
    pub(crate) fn write<E: Into<anyhow::Error>>(
        self,
        body: impl FnOnce(&mut dyn Write) -> Result<(), E>,
    ) -> Result<()> {
        let name = self.target.to_string();
        let write = |to: &mut dyn Write| -> Result<()> {
            let mut out = BufWriter::with_capacity(1 << 16, Named::new(name, to));
            body(&mut out).map_err(Into::into)?;
            Ok(out.flush()?)
        };
        match (self.new, self.target) {
            (Some((place, new)), _) => {
                write(&mut new.get().file())?;
                place.commit(new)
            }
            (None, Target::Stdout) if streams::stdout().is_terminal() => {
                write(&mut Escaping::new(streams::stdout()))
            }
            (None, Target::Stdout) => write(&mut streams::stdout()),
            (None, target) => write(&mut target.stream()?),
        }
    }
}

/// Files that are written at the same time and appear together.
pub(crate) struct NewFiles {
    /// An existing folder that contains them or their folders.
    above: PathBuf,
    files: RefCell<Vec<(PathBuf, Unfinished<NewFile>)>>,
}

impl NewFiles {
    pub(crate) fn below(folder: &Path) -> Result<NewFiles> {
        Ok(NewFiles { above: writable_above(folder)?.to_owned(), files: RefCell::default() })
    }

    /// Creates a file for this path, readable by its owner only.
    pub(crate) fn create(&self, path: PathBuf) -> Result<Box<dyn Write + Send>> {
        let name = path.display().to_string();
        let new =
            Unfinished::file(&self.above).map_err(plain).with_context(|| format!("can't create {name}"))?;
        let file = new.get().file().try_clone().with_context(|| name.clone())?;
        self.files.borrow_mut().push((path, new));
        Ok(Box::new(BufWriter::with_capacity(1 << 16, Named::new(name, file))))
    }

    pub(crate) fn name_last(&mut self, path: &Path) {
        self.files.get_mut().sort_by_key(|(other, _)| other == path);
    }

    pub(crate) fn commit(self, existing: Existing, named: impl Fn(&Path) -> PathBuf) -> Result<()> {
        let files = self.files.into_inner();
        if files.is_empty() {
            return Ok(());
        }
        let places = files.iter().map(|(path, _)| OutputPath::new(named(path), existing)).collect();
        let outputs = Outputs::new(&self.above, places)?;
        for (number, (_, new)) in files.into_iter().enumerate() {
            outputs.put(number, new)?;
        }
        outputs.commit()
    }
}

pub(crate) fn write_files(path: &Path, texts: &BTreeMap<String, Vec<u8>>, existing: Existing) -> Result<()> {
    if texts.is_empty() {
        return Ok(());
    }
    let places = texts.keys().map(|name| OutputPath::new(path.join(name), existing)).collect();
    let outputs = Outputs::new(path, places)?;
    for (number, (name, text)) in texts.iter().enumerate() {
        let file = outputs.create(number)?;
        Named::new(path.join(name).display().to_string(), file.get().file()).write_all(text)?;
        outputs.put(number, file)?;
    }
    outputs.commit()
}

#[derive(Debug)]
pub(crate) struct Named<W> {
    name: String,
    inner: W,
}

pub(crate) fn stdout() -> Named<Stdout> {
    Named::new(Target::Stdout.to_string(), streams::stdout())
}

impl<W> Named<W> {
    pub(crate) fn new(name: String, inner: W) -> Named<W> {
        Named { name, inner }
    }

    fn about(&self, error: io::Error) -> io::Error {
        io::Error::new(error.kind(), format!("{}: {error}", self.name))
    }
}

impl<W: io::Write> io::Write for Named<W> {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        self.inner.write(bytes).map_err(|error| self.about(error))
    }

    fn flush(&mut self) -> io::Result<()> {
        self.inner.flush().map_err(|error| self.about(error))
    }
}
