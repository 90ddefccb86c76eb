//! `perfx redact` removes data about the user and the machine, and reports what remains.

use std::mem::take;

use anyhow::Result;
use clap::Args;
use perfx_passes::{Category, Redact as Pass, RedactArgs};
use perfx_pipeline::{Job, Level, Output, OutputForm, counted};

use crate::io::output::WriteArgs;
use crate::io::source::temp_files;

/// Remove data about the user and the machine, so that a recording can be published
///
/// Names become pseudonyms: those of the machine, of threads, cgroups, probes and BPF programs, and paths
/// outside the system's folders (/usr/bin, /usr/lib, /lib, …), folder by folder. They keep ends like .so, and
/// equal names stay equal. User stacks, registers, AUX data, BPF programs, copies of the kernel's memory,
/// wall-clock time, and everything that this version of perfx does not know are left out. Raw data keeps
/// numbers of the kernel's own tracepoints, and names of tasks. All samples stay, with addresses, pids, times
/// since boot, kernel release and CPU. Build-ids of the system's files stay, too, so their symbols can be
/// found. The output is not compressed.
///
/// Pseudonyms come from a keyed hash. Without --key, the key is made from everything that is removed, so a
/// guess of one name can't be checked. With a secret --key, equal names have equal pseudonyms in several
/// recordings.
///
/// Examples:
///   perfx redact perf.data -o public.data
///   perfx redact -n -v perf.data
///   perfx redact --keep comms,events --key 'our secret' perf.data -o public.data
///   perfx redact --check public.data
#[derive(Args, Debug)]
#[command(verbatim_doc_comment)]
pub(crate) struct Redact {
    #[command(flatten)]
    options: RedactArgs,
    /// Only report data about the user and the machine that is still in the recording; if there is any, the
    /// exit code is 3
    #[arg(long, conflicts_with_all = ["output", "to", "force", "backup", "in_place", "dry_run"])]
    check: bool,
    #[command(flatten)]
    write: WriteArgs,
}

impl Redact {
    pub(crate) fn run(&self) -> Result<u8> {
        let source = self.write.source()?;
        let mut recording = source.open()?;
        let mut beside = Vec::new();
        if !self.options.keeps(Category::Kcore) {
            let names = take(&mut recording.extras);
            let names = names.iter().filter_map(|path| path.file_name());
            beside.extend(names.map(|name| name.to_string_lossy().into_owned()));
        }
        let pass = Pass::new(self.options.clone()).leaving_out(beside);
        if !self.check {
            return self.write.write_recording("redact", &source, recording, vec![Box::new(pass)], false);
        }
        let threads = self.write.threads.count(&recording);
        let passes: Vec<Box<dyn perfx_pipeline::Pass>> = vec![Box::new(pass.checking())];
        let job = Job { recording, passes, threads, temp_files: temp_files() };
        let mut report = job.run(Output::Nowhere(OutputForm::File))?.report;
        for (kind, count) in &report.dropped.clone() {
            // The pass has reported unknown kinds.
            let Some(kind) = kind.name() else { continue };
            let records = counted(*count, &format!("{kind} record is"), &format!("{kind} records are"));
            report.say(Level::Warning, format!("{records} there"));
        }
        Ok(self.write.verbosity.print(&report))
    }
}
