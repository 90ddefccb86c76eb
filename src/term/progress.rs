//! Shows a progress bar on a terminal after two seconds. Readers count the bytes anyway.

use std::sync::mpsc::{self, RecvTimeoutError, Sender};
use std::thread::{self, JoinHandle};
use std::time::{Duration, Instant};

use indicatif::{ProgressBar, ProgressDrawTarget, ProgressStyle};
use perfx_format::read::Recording;
use perfx_passes::TraceProgress;

const PATIENCE: Duration = Duration::from_secs(2);
const TICK: Duration = Duration::from_millis(100);

pub(crate) struct Bar {
    running: Option<(Sender<()>, JoinHandle<()>)>,
}

impl Bar {
    pub(crate) fn none() -> Bar {
        Bar { running: None }
    }

    pub(crate) fn of(recording: &Recording) -> Bar {
        let (progress, size) = (recording.progress().clone(), recording.data_size());
        Bar::showing(move || (progress.read(), size.map(|size| size.saturating_mul(progress.readings()))))
    }

    /// Shows how many bytes of a trace have been decoded.
    pub(crate) fn of_trace(progress: TraceProgress) -> Bar {
        Bar::showing(move || (progress.done(), Some(progress.total())))
    }

    /// Shows a number of bytes, and the total if known.
    fn showing(bytes: impl Fn() -> (u64, Option<u64>) + Send + 'static) -> Bar {
        let (ended, end) = mpsc::channel();
        let thread = thread::Builder::new().spawn(move || {
            let begin = Instant::now();
            // Hidden at first, so that rate and time left cover the whole time.
            let bar = ProgressBar::with_draw_target(None, ProgressDrawTarget::hidden());
            while let Err(RecvTimeoutError::Timeout) = end.recv_timeout(TICK) {
                update(&bar, bytes());
                if bar.is_hidden() && begin.elapsed() >= PATIENCE {
                    bar.set_draw_target(ProgressDrawTarget::stderr());
                    bar.tick();
                }
            }
            bar.finish_and_clear();
        });
        // If the thread cannot start, run without a progress bar.
        Bar { running: thread.ok().map(|thread| (ended, thread)) }
    }
}

fn update(bar: &ProgressBar, (done, total): (u64, Option<u64>)) {
    if bar.length() != total || bar.position() == 0 {
        let form = match total {
            Some(total) => {
                bar.set_length(total);
                "{percent:>3}% {bar:30} {decimal_bytes} of {decimal_total_bytes}, {decimal_bytes_per_sec}, {eta} left"
            }
            None => "{spinner} {decimal_bytes}, {decimal_bytes_per_sec}",
        };
        if let Ok(style) = ProgressStyle::with_template(form) {
            bar.set_style(style);
        }
    }
    bar.set_position(done);
}

impl Drop for Bar {
    fn drop(&mut self) {
        if let Some((ended, thread)) = self.running.take() {
            drop(ended);
            // A failing display does not fail the command.
            thread.join().ok();
        }
    }
}
