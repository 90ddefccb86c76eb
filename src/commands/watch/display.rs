//! Draws the figures of a recording on the terminal once a second.

use std::sync::mpsc::{self, RecvTimeoutError, Sender};
use std::thread::{self, JoinHandle};
use std::time::{Duration, Instant};

use indicatif::{ProgressBar, ProgressDrawTarget, ProgressStyle};
use perfx_look::render::printable;
use perfx_pipeline::count;

use super::seen::{Figures, Seen};
use crate::term::units::{size, table};

const TICK: Duration = Duration::from_secs(1);

const ROWS: usize = 10;

/// Draws until it is dropped, then clears its lines.
pub(super) struct Display {
    ended: Option<Sender<()>>,
    thread: Option<JoinHandle<()>>,
}

impl Display {
    pub(super) fn start(seen: Seen) -> Display {
        let (ended, end) = mpsc::channel();
        let draw = move || {
            let bar = ProgressBar::with_draw_target(None, ProgressDrawTarget::stderr());
            if let Ok(style) = ProgressStyle::with_template("{msg}") {
                bar.set_style(style);
            }
            let (begin, mut before, mut last) = (Instant::now(), Figures::default(), Instant::now());
            while let Err(RecvTimeoutError::Timeout) = end.recv_timeout(TICK) {
                let (now, figures) = (Instant::now(), seen.now());
                let seconds = (now - last).as_secs_f64();
                bar.set_message(drawn(&figures, &before, seconds, begin.elapsed()));
                (before, last) = (figures, now);
            }
            bar.finish_and_clear();
        };
        // The recording continues even without the thread.
        Display { ended: Some(ended), thread: thread::Builder::new().spawn(draw).ok() }
    }
}

impl Drop for Display {
    fn drop(&mut self) {
        self.ended = None;
        let _ = self.thread.take().map(JoinHandle::join);
    }
}

fn drawn(figures: &Figures, before: &Figures, seconds: f64, elapsed: Duration) -> String {
    let rate = |now: u64, before: u64| (now.saturating_sub(before) as f64 / seconds).round() as u64;
    let row = |name: &str, now: u64, before: u64| {
        vec![name.to_owned(), count(now), format!("{}/s", count(rate(now, before)))]
    };
    let bytes = format!("{}/s", size(rate(figures.bytes, before.bytes)));
    let mut rows = vec![
        vec![format!("{} s", elapsed.as_secs()), size(figures.bytes), bytes],
        row("samples", figures.count.total(), before.count.total()),
    ];
    let samples = |figures: &Figures, event: usize| figures.count.samples.get(event).copied().unwrap_or(0);
    let mut events: Vec<usize> =
        (0..figures.names.len()).filter(|&event| samples(figures, event) > 0).collect();
    events.sort_by_key(|&event| std::cmp::Reverse(samples(figures, event)));
    for &event in events.iter().take(ROWS) {
        let name = format!("  {}", printable(&figures.names[event]));
        rows.push(row(&name, samples(figures, event), samples(before, event)));
    }
    let lost = |figures: &Figures| u64::try_from(figures.count.lost.total()).unwrap_or(u64::MAX);
    rows.push(row("lost", lost(figures), lost(before)));
    table(&rows).trim_end().to_owned()
}

#[cfg(test)]
mod tests {
    use perfx_look::LiveCount;

    use super::*;

    #[test]
    fn figures_and_rates_stand_below_each_other() {
        let figures = |bytes, cycles| Figures {
            bytes,
            count: LiveCount { samples: vec![cycles, 0], ..LiveCount::default() },
            names: vec!["cycles".into(), "dummy".into()],
        };
        let text = drawn(&figures(3_000_000, 5000), &figures(1_000_000, 1000), 2.0, Duration::from_secs(3));
        let lines: Vec<&str> = text.lines().map(str::trim_end).collect();
        assert_eq!(
            lines,
            [
                "3 s       3.0 MB  1.0 MB/s",
                "samples    5,000   2,000/s",
                "  cycles   5,000   2,000/s",
                "lost           0       0/s"
            ]
        );
    }
}
