//! Changes the feature sections of a recording's own file, while its records stay in place.

use std::fs::File;
use std::io;
use std::path::Path;

use anyhow::{Context as _, Result, bail};
use perfx_format::FaultCode;
use perfx_format::write::{Changes, replace_sections};
use perfx_pipeline::{Job, Level, Output, OutputForm, Pass};
use rustix::fs::{FlockOperation, flock};

use crate::io::output::recording::WriteArgs;
use crate::io::signals::undisturbed;
use crate::io::source::{Source, Version, identity, temp_files};
use crate::term::report::tell;

impl WriteArgs {
    /// Like [`WriteArgs::transform`], but if possible, `--in-place` changes only the file's features.
    pub(crate) fn transform_features(
        &self,
        command: &str,
        passes: impl Fn() -> Vec<Box<dyn Pass>>,
    ) -> Result<u8> {
        let code = if self.in_place { self.rewrite_features_in_place(passes())? } else { None };
        code.map_or_else(|| self.transform(command, passes()), Ok)
    }

    /// For `--in-place` and passes that change no record: leaves the data in place, and writes new sections
    /// if any differ. Returns `None` if the whole file must be rewritten.
    pub(crate) fn rewrite_features_in_place(&self, passes: Vec<Box<dyn Pass>>) -> Result<Option<u8>> {
        let Source::Path(path) = self.source()? else { return Ok(None) };
        let mut recording = Source::Path(path.clone()).open()?;
        let seen = recording.opened().map(Version::of);
        let header = recording.file.take();
        // The interrupted change is finished below, so it is no fault of the result.
        let faults = recording.faults.len();
        recording.faults.retain(|fault| fault.code != FaultCode::InPlaceInterrupted);
        let interrupted = recording.faults.len() < faults;
        let form = if header.is_some() { OutputForm::InPlace } else { OutputForm::Pipe };
        let path = if path.is_dir() { path.join("data") } else { path };
        let (name, before) = (recording.name.clone(), recording.features.clone());
        let threads = self.threads.count(&recording);
        let job = Job { recording, passes, threads, temp_files: temp_files() };
        let mut outcome = job.run(Output::Nowhere(form))?;
        if outcome.moved {
            return Ok(None);
        }
        let report = &mut outcome.report;
        let changed = before.keys().chain(outcome.features.keys()).copied();
        let changed = changed.filter(|feature| before.get(feature) != outcome.features.get(feature));
        let changes: Changes =
            changed.map(|feature| (feature, outcome.features.get(&feature).cloned())).collect();
        let names: Vec<_> = changes.keys().map(ToString::to_string).collect();
        let what = if names.len() == 1 { "feature" } else { "features" };
        let names = names.join(", ");
        let done = if changes.is_empty() && !interrupted {
            format!("{} is unchanged", path.display())
        } else {
            // Pipe data has no sections. A backup is the old file itself, so a new one must be written.
            let Some(header) = header.filter(|_| !self.backup) else { return Ok(None) };
            if self.dry_run && changes.is_empty() {
                format!("would finish the interrupted change of {}", path.display())
            } else if self.dry_run {
                format!("would change {what} {names} of {}", path.display())
            } else {
                let file = locked(&path)?;
                let now = file.metadata()?;
                seen.map_or(Ok(()), |seen| seen.check(&now)).with_context(|| path.display().to_string())?;
                let replaced = undisturbed(|| replace_sections(&file, &header, &changes));
                if !replaced.map_err(|e| e.file(&name))? {
                    return Ok(None);
                }
                if !path.metadata().is_ok_and(|there| identity(&there) == identity(&now)) {
                    let what = "another program has replaced it; only the old file was changed: run the command again";
                    bail!("{}: {what}", path.display());
                }
                if changes.is_empty() {
                    format!("finished the interrupted change of {}", path.display())
                } else {
                    format!("changed {what} {names} of {}; its records are unchanged", path.display())
                }
            }
        };
        report.say(Level::Info, done);
        self.make_index(&path, report);
        Ok(Some(self.verbosity.print(report)))
    }
}

/// Opens a file to change it. Programs take turns; the second finds that it has changed since it was read.
fn locked(path: &Path) -> Result<File> {
    let file = File::options().read(true).write(true).open(path);
    let file = file.with_context(|| path.display().to_string())?;
    if flock(&file, FlockOperation::NonBlockingLockExclusive).is_err() {
        let what = "another program has locked it: waiting until it is done";
        tell(&format!("{}: {what}", path.display()));
        flock(&file, FlockOperation::LockExclusive).map_err(io::Error::from)?;
    }
    Ok(file)
}
