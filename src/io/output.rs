//! Where an exported file goes: standard output, a device, or a file that appears when it is complete.

use std::fs::{self, OpenOptions};
use std::io::{BufWriter, Write};
use std::path::{Path, PathBuf};

use anyhow::{Context as _, Result, bail, ensure};
use clap::Args;

use crate::args::Usage;
use crate::io::commit::{Existing, NewFile, OutputPath, folder, is_empty, plain};
use crate::io::signals::Unfinished;
use crate::io::source::{Source, identity};
use crate::io::streams::stdout;
use crate::io::target::{Named, Target};
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

/// An output that can be written.
pub(crate) enum Output {
    Stdout,
    Device(PathBuf),
    File { path: PathBuf, existing: Existing, new: Unfinished<NewFile> },
}

impl OutputArgs {
    /// The same for another file.
    pub(crate) fn at(&self, path: PathBuf) -> OutputArgs {
        OutputArgs { output: Some(path), force: self.force }
    }

    /// Checks the output before any input is read. Only text goes to a terminal.
    pub(crate) fn open(&self, sources: &[Source], is_text: bool) -> Result<Output> {
        let Some(path) = self.output.as_deref().filter(|path| *path != Path::new("-")) else {
            if !is_text && stdout().is_terminal() {
                bail!(Usage("refusing to write binary data to a terminal: give -o FILE or a pipe".into()));
            }
            return Ok(Output::Stdout);
        };
        let at = match Target::named(path)? {
            Target::Path { at, .. } => at,
            Target::Device(path) => return Ok(Output::Device(path)),
            Target::Stdout => return Ok(Output::Stdout),
        };
        if let Ok(metadata) = fs::metadata(&at) {
            ensure!(!metadata.is_dir(), "{} is a directory", path.display());
            for source in sources {
                let Source::Path(input) = source else { continue };
                let same = fs::metadata(input).is_ok_and(|input| identity(&input) == identity(&metadata));
                ensure!(!same, "{} is the input itself", path.display());
            }
            let kept = !self.force && !is_empty(path);
            ensure!(!kept, "{} exists; -f overwrites it", path.display());
        }
        let new = Unfinished::file(folder(&at)).map_err(plain).with_context(|| path.display().to_string())?;
        let existing = if self.force { Existing::Replace } else { Existing::Keep };
        Ok(Output::File { path: at, existing, new })
    }
}

impl Output {
    /// Writes the output, and gives the file its name.
    pub(crate) fn write<E: Into<anyhow::Error>>(
        self,
        body: impl FnOnce(&mut dyn Write) -> Result<(), E>,
    ) -> Result<()> {
        let write = |name: String, to: &mut dyn Write| -> Result<()> {
            let mut out = BufWriter::with_capacity(1 << 16, Named::new(name, to));
            body(&mut out).map_err(Into::into)?;
            Ok(out.flush()?)
        };
        match self {
            Output::Stdout if stdout().is_terminal() => {
                write("standard output".to_owned(), &mut Escaping::new(stdout()))
            }
            Output::Stdout => write("standard output".to_owned(), &mut stdout()),
            Output::Device(path) => {
                let name = path.display().to_string();
                let mut file = OpenOptions::new().write(true).open(&path).context(name.clone())?;
                write(name, &mut file)
            }
            Output::File { path, existing, new } => {
                write(path.display().to_string(), &mut new.get().file())?;
                new.get().sync_to_replace(&path).with_context(|| path.display().to_string())?;
                OutputPath::new(&path, existing).commit(new)
            }
        }
    }
}
