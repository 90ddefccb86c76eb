//! The standard streams of a run: those of the process or, for a run inside another program, given ones.

use std::cell::RefCell;
use std::io::{self, IsTerminal as _, LineWriter, Write};
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::sync::Arc;

use anstream::StripStream;

/// The standard streams of a run in the caller's process.
#[derive(Debug)]
pub struct Streams {
    /// The input `-`.
    pub stdin: OwnedFd,
    /// Results, without colours.
    pub stdout: OwnedFd,
    /// Reports and errors, without colours.
    pub stderr: OwnedFd,
}

thread_local! {
    static GIVEN: RefCell<Option<Arc<Streams>>> = const { RefCell::new(None) };
}

/// Removes the streams when dropped, even by a panic that the caller survives.
struct TakesAway;

impl Drop for TakesAway {
    fn drop(&mut self) {
        GIVEN.set(None);
    }
}

pub(crate) fn with<R>(streams: Streams, run: impl FnOnce() -> R) -> R {
    GIVEN.set(Some(Arc::new(streams)));
    let _guard = TakesAway;
    run()
}

fn given() -> Option<Arc<Streams>> {
    GIVEN.with_borrow(Clone::clone)
}

pub(crate) fn are_given() -> bool {
    given().is_some()
}

pub(crate) fn stdin() -> io::Result<OwnedFd> {
    match given() {
        Some(given) => given.stdin.try_clone(),
        None => io::stdin().as_fd().try_clone_to_owned(),
    }
}

#[derive(Debug)]
pub(crate) struct Given {
    streams: Arc<Streams>,
    stream: fn(&Streams) -> &OwnedFd,
}

impl Write for Given {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        Ok(rustix::io::write((self.stream)(&self.streams), bytes)?)
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}

#[derive(Debug)]
pub(crate) enum Stdout {
    OfProcess(io::Stdout),
    Given(LineWriter<Given>),
}

pub(crate) fn stdout() -> Stdout {
    match given() {
        Some(streams) => Stdout::Given(LineWriter::new(Given { streams, stream: |streams| &streams.stdout })),
        None => Stdout::OfProcess(io::stdout()),
    }
}

impl Stdout {
    pub(crate) fn is_terminal(&self) -> bool {
        self.as_fd().is_terminal()
    }
}

impl AsFd for Stdout {
    fn as_fd(&self) -> BorrowedFd<'_> {
        match self {
            Stdout::OfProcess(stdout) => stdout.as_fd(),
            Stdout::Given(given) => given.get_ref().streams.stdout.as_fd(),
        }
    }
}

impl Write for Stdout {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        match self {
            Stdout::OfProcess(stdout) => stdout.write(bytes),
            Stdout::Given(given) => given.write(bytes),
        }
    }

    fn flush(&mut self) -> io::Result<()> {
        match self {
            Stdout::OfProcess(stdout) => stdout.flush(),
            Stdout::Given(given) => given.flush(),
        }
    }
}

/// Standard output for coloured text; only a terminal gets the colours.
pub(crate) fn coloured_stdout() -> Box<dyn Write> {
    match given() {
        Some(_) => Box::new(StripStream::new(Box::new(stdout()) as Box<dyn Write>)),
        None => Box::new(anstream::stdout()),
    }
}

/// Standard error for coloured text; only a terminal gets the colours.
pub(crate) fn stderr() -> Box<dyn Write> {
    match given() {
        Some(streams) => {
            let given = Given { streams, stream: |streams| &streams.stderr };
            Box::new(StripStream::new(Box::new(given) as Box<dyn Write>))
        }
        None => Box::new(anstream::stderr()),
    }
}

pub(crate) fn stderr_is_terminal() -> bool {
    given().map_or_else(|| io::stderr().is_terminal(), |given| given.stderr.is_terminal())
}

#[cfg(test)]
mod tests {
    use std::fs::File;
    use std::panic::{AssertUnwindSafe, catch_unwind};

    use super::*;

    #[test]
    fn a_panic_in_a_run_gives_the_thread_its_own_streams_back() {
        let null = || OwnedFd::from(File::open("/dev/null").unwrap());
        let streams = Streams { stdin: null(), stdout: null(), stderr: null() };
        let run = || with(streams, || std::panic::resume_unwind(Box::new("a bug")));
        assert!(catch_unwind(AssertUnwindSafe(run)).is_err());
        assert!(!are_given());
    }
}
