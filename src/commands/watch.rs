//! `perfx watch` shows the figures of a recording while perf record writes it, without changing it.

mod display;
mod follow;
mod seen;

use std::io::{self, IsTerminal as _, Read, Write as _};
use std::os::unix::process::ExitStatusExt as _;
use std::process::{Command, ExitStatus};
use std::sync::mpsc::{Receiver, SyncSender, sync_channel};
use std::thread;

use anyhow::{Context as _, Result, bail};
use clap::Args;
use perfx_format::read::Recording;
use perfx_pipeline::{Level, Report, counted};

use self::display::Display;
use self::seen::{Figures, Seen};
use crate::args::Usage;
use crate::io::output::stdout;
use crate::io::signals::{start, survive_interrupt};
use crate::io::source::temp_files;
use crate::term::report::{VerbosityArgs, message};
use crate::term::units::size;

/// Show samples, bytes and losses per second while a recording is made
///
/// Between two programs, it passes the stream on unchanged. With a command, it runs perf record and follows
/// the file or directory that perf writes; the exit code is then that of the command, or 128 and the number
/// of the signal that ended it. Signals to perfx, such as SIGTERM, are passed to the command.
///
/// The figures are shown once a second if standard error is a terminal, and the totals at the end.
/// The kernel reports losses late, so they may show up only at the end.
///
/// Examples:
///   perf record -o - ./program | perfx watch > perf.pipe
///   perf record -o - ./program | perfx watch | perfx compress -o perf.data
///   perfx watch -- perf record -a -o perf.data -- sleep 60
#[derive(Args, Debug)]
#[command(verbatim_doc_comment, after_help = EXIT_CODES)]
pub(crate) struct Watch {
    /// The command to run: perf record with its options, which writes a file or a directory
    #[arg(help_heading = "Input", last = true, value_name = "COMMAND")]
    command: Vec<std::ffi::OsString>,
    #[command(flatten)]
    verbosity: VerbosityArgs,
}

const EXIT_CODES: &str = "\
Exit codes:
  0  the stream was passed on to its end, and nothing was lost
  1  failed
  2  invalid command line
  3  the stream was passed on, but it is damaged or the kernel lost something; standard error says what
  otherwise, with COMMAND: its own";

impl Watch {
    pub(crate) fn run(&self) -> Result<u8> {
        let seen = Seen::default();
        let (report, code) = match &self.command[..] {
            [] => {
                // Ctrl-C also ends perf record, whose last output must still arrive.
                survive_interrupt();
                (self.pass_on(&seen)?, None)
            }
            [program, options @ ..] => {
                let (report, status) = self.follow(&seen, Command::new(program).args(options))?;
                (report, Some(exit_code(status)))
            }
        };
        let printed = self.verbosity.print(&report);
        Ok(code.unwrap_or(printed))
    }

    fn display(&self, seen: &Seen) -> Option<Display> {
        self.verbosity.shows_progress().then(|| Display::start(seen.clone()))
    }

    fn pass_on(&self, seen: &Seen) -> Result<Report> {
        if io::stdin().is_terminal() {
            bail!(Usage(
                "there is nothing to watch: give a command, or pipe perf record -o - into it".into()
            ));
        }
        if io::stdout().is_terminal() {
            bail!(Usage("refusing to write binary data to a terminal: give a pipe or a file".into()));
        }
        let display = self.display(seen);
        let (sender, receiver) = sync_channel(CHUNKS);
        let passing = thread::Builder::new().spawn({
            let seen = seen.clone();
            move || pass(&sender, &seen)
        });
        let passing = passing.context("can't start a thread")?;
        let arrived = Arrived { receiver, chunk: Vec::new(), at: 0 };
        let counted = Recording::from_reader(Box::new(arrived), "<stdin>".into(), temp_files())
            .map_err(anyhow::Error::from)
            .and_then(|recording| seen.count(recording));
        let passed =
            passing.join().map_err(|_| anyhow::anyhow!("the thread that passes data on has died"))?;
        drop(display);
        passed?;
        counted.context("the data was passed on unchanged, but could not be counted")?;
        let mut report = Report::default();
        totals(&seen.now(), &mut report);
        Ok(report)
    }

    fn follow(&self, seen: &Seen, command: &mut Command) -> Result<(Report, ExitStatus)> {
        let name = command.get_program().to_string_lossy().into_owned();
        let mut child = start(command).with_context(|| format!("can't run {name}"))?;
        let display = self.display(seen);
        let (status, found) = follow::until_exit(&mut child, seen)?;
        drop(display);
        let mut report = Report::default();
        if found.is_empty() {
            report.say(Level::Warning, format!("{name} wrote no recording that could be followed"));
            return Ok((report, status));
        }
        let exact = Seen::default();
        for found in found {
            let counted = found.open().and_then(|recording| {
                exact.add_bytes(recording.files().filter_map(|file| Some(file.metadata().ok()?.len())).sum());
                exact.count(recording.lenient())
            });
            if let Err(error) = counted {
                report.say(Level::Warning, format!("not all of it can be counted: {}", message(&error)));
            }
        }
        totals(&exact.now(), &mut report);
        Ok((report, status))
    }
}

fn totals(figures: &Figures, report: &mut Report) {
    let Figures { bytes, count, names } = figures;
    let samples = counted(count.total(), "sample", "samples");
    report.say(Level::Info, format!("read {} with {samples}", size(*bytes)));
    for (name, &samples) in names.iter().zip(&count.samples).filter(|(_, samples)| **samples > 0) {
        report.say(Level::Info, format!("{name}: {}", counted(samples, "sample", "samples")));
    }
    if count.torn {
        report.say(Level::Warning, "it is damaged, or ends inside a record: perfx doctor says where");
    }
    let lost = u64::try_from(count.lost.total()).unwrap_or(u64::MAX);
    if lost > 0 {
        let what = "perf record -m makes its buffer larger, -F or -c takes fewer samples";
        report.say(Level::Warning, format!("the kernel lost {}: {what}", counted(lost, "record", "records")));
    }
    if count.lost.aux > 0 {
        let what = "perf record -m ,SIZE makes its AUX buffer larger";
        let times = counted(count.lost.aux, "time", "times");
        report.say(Level::Warning, format!("AUX data was lost {times}: {what}"));
    }
}

/// As a shell returns it.
fn exit_code(status: ExitStatus) -> u8 {
    let code = status.code().or_else(|| Some(128 + status.signal()?));
    code.and_then(|code| code.try_into().ok()).unwrap_or(1)
}

/// The stream waits while this many chunks are to be counted.
const CHUNKS: usize = 64;

/// The capacity of a pipe.
const CHUNK: usize = 1 << 16;

/// Copies standard input to standard output, and sends it to be counted. Continues if counting has stopped.
fn pass(sender: &SyncSender<Vec<u8>>, seen: &Seen) -> Result<()> {
    let (mut from, mut to) = (io::stdin().lock(), stdout());
    loop {
        let mut chunk = vec![0; CHUNK];
        let count = match from.read(&mut chunk) {
            Err(error) if error.kind() == io::ErrorKind::Interrupted => continue,
            read => read.context("standard input can't be read")?,
        };
        if count == 0 {
            return Ok(to.flush()?);
        }
        chunk.truncate(count);
        to.write_all(&chunk)?;
        // The next program must not wait for the rest of a slow stream.
        to.flush()?;
        seen.add_bytes(count as u64);
        sender.send(chunk).ok();
    }
}

struct Arrived {
    receiver: Receiver<Vec<u8>>,
    chunk: Vec<u8>,
    at: usize,
}

impl Read for Arrived {
    fn read(&mut self, into: &mut [u8]) -> io::Result<usize> {
        if self.at == self.chunk.len() {
            let Ok(chunk) = self.receiver.recv() else { return Ok(0) };
            (self.chunk, self.at) = (chunk, 0);
        }
        let count = into.len().min(self.chunk.len() - self.at);
        into[..count].copy_from_slice(&self.chunk[self.at..self.at + count]);
        self.at += count;
        Ok(count)
    }
}
