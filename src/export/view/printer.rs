//! Prints the output of all batches in time order.

use std::collections::HashMap;
use std::io::{self, Read as _, Write};

use perfx_format::{Endian, Layouts};
use perfx_pipeline::{LISTED, Level, Report, Result, counted};
use perfx_resolve::Frame;
use perfx_samples::{Before, Losses};

use super::fields::{Field, ViewOptions};
use super::part::{OpenSample, Part, Piece};
use super::sample::{Indent, SampleWriter};

struct Waiting {
    /// Among waiting samples.
    number: u64,
    cookie: u64,
    sample: OpenSample,
    counted: Vec<(usize, u64)>,
}

pub(super) struct Printer<'v, 'o> {
    /// For samples that need more than their batch.
    writer: SampleWriter<'v>,
    known: (&'v Layouts, Endian),
    options: &'o ViewOptions,
    out: &'o mut (dyn Write + Send),
    before: Before,
    waiting: HashMap<u32, Vec<Waiting>>,
    deferred: u64,
    printed: Vec<bool>,
    pub(super) samples: u64,
    /// Of indented calls, bytes.
    width: usize,
    losses: Losses,
}

/// The width shrinks if calls are more than this many bytes narrower.
const NARROWER: usize = 52;

impl<'v, 'o> Printer<'v, 'o> {
    pub(super) fn new(
        (writer, known): (SampleWriter<'v>, (&'v Layouts, Endian)),
        options: &'o ViewOptions,
        out: &'o mut (dyn Write + Send),
    ) -> Printer<'v, 'o> {
        Printer {
            printed: vec![false; writer.forms.len()],
            writer,
            known,
            options,
            out,
            before: Before::default(),
            waiting: HashMap::new(),
            deferred: 0,
            samples: 0,
            width: 0,
            losses: Losses::default(),
        }
    }

    pub(super) fn left(&self) -> u64 {
        self.options.head.map_or(u64::MAX, |head| head.saturating_sub(self.samples))
    }

    pub(super) fn print(&mut self, part: Part) -> Result<()> {
        self.losses += part.losses;
        for piece in part.pieces {
            match piece {
                Piece::Written { text, samples, indents } => self.written(&text, &samples, &indents)?,
                Piece::Open(sample) => self.open(sample)?,
                Piece::Other(text) if self.left() > 0 => self.out.write_all(&text)?,
                Piece::Other(_) => {}
                Piece::User { tid, cookie, frames } => {
                    // perf prints all waiting samples of the thread, even if their cookie differs.
                    for waiting in self.waiting.remove(&tid).unwrap_or_default() {
                        let is_its = waiting.cookie == cookie;
                        self.complete(&waiting.sample, &waiting.counted, is_its.then_some(&frames))?;
                    }
                }
            }
        }
        self.before.add(part.counters);
        Ok(())
    }

    fn written(&mut self, text: &[u8], samples: &[(usize, usize)], indents: &[Indent]) -> Result<()> {
        let count = usize::try_from(self.left()).unwrap_or(usize::MAX).min(samples.len());
        let samples = &samples[..count];
        if let Some(&(end, _)) = samples.last() {
            let mut from = 0;
            for indent in indents.iter().take_while(|indent| indent.end <= end) {
                self.out.write_all(&text[from..indent.end])?;
                let blanks = self.blanks_behind(indent.width);
                // `format!` limits the width, and a name can be long.
                io::copy(&mut io::repeat(b' ').take(blanks as u64), &mut self.out)?;
                from = indent.end;
            }
            self.out.write_all(&text[from..end])?;
        }
        if !self.options.count_only {
            samples.iter().for_each(|&(_, event)| self.printed[event] = true);
        }
        self.samples += samples.len() as u64;
        Ok(())
    }

    /// The number of blanks that perf writes after this many bytes of calls; the width seldom changes.
    fn blanks_behind(&mut self, width: usize) -> usize {
        if width > self.width || (width > 0 && width + NARROWER < self.width) {
            self.width = (width + 4).next_multiple_of(32);
        }
        self.width.saturating_sub(width)
    }

    fn open(&mut self, mut sample: OpenSample) -> Result<()> {
        let mut periods = std::mem::take(&mut sample.counted);
        self.before.count(std::mem::take(&mut sample.late), |event, period| periods.push((event, period)));
        let Some((tid, cookie)) = sample.waits_for else {
            return self.complete(&sample, &periods, Some(&[]));
        };
        let waiting = Waiting { number: self.deferred, cookie, sample, counted: periods };
        self.waiting.entry(tid).or_default().push(waiting);
        self.deferred += 1;
        Ok(())
    }

    /// Prints a sample with the user part of its chain, unless the recording lacks it.
    fn complete(
        &mut self,
        sample: &OpenSample,
        counted: &[(usize, u64)],
        user: Option<&[(u64, Frame)]>,
    ) -> Result<()> {
        self.losses.incomplete += u64::from(user.is_none() && self.left() > 0);
        for &counted in counted {
            if self.left() == 0 {
                break;
            }
            let mut text = Vec::new();
            if !self.options.count_only {
                let (layouts, endian) = self.known;
                let writer = (&mut self.writer, layouts, endian);
                sample.write(&mut text, writer, counted, user.unwrap_or_default())?;
            }
            let indent = self.writer.indent.take();
            self.written(&text, &[(text.len(), counted.0)], indent.as_slice())?;
        }
        Ok(())
    }

    pub(super) fn finish(mut self, report: &mut Report) -> Result<u64> {
        let mut rest: Vec<Waiting> = self.waiting.drain().flat_map(|(_, waiting)| waiting).collect();
        rest.sort_unstable_by_key(|waiting| waiting.number);
        for waiting in rest {
            self.complete(&waiting.sample, &waiting.counted, None)?;
        }
        self.out.flush()?;
        self.losses.say("not shown", report);
        self.say_by_field(report);
        Ok(self.samples)
    }

    /// Reports printed tracepoints whose print format is not, or not completely, used.
    fn say_by_field(&self, report: &mut Report) {
        let forms = self.writer.forms.iter().zip(&self.printed);
        let printed = forms.filter(|(form, printed)| form.has(Field::Trace) && **printed);
        let traces: Vec<_> = printed.filter_map(|(form, _)| Some((form.name.trim(), form.trace?))).collect();
        let by_field =
            traces.iter().filter_map(|(name, trace)| Some((*name, trace.why_by_field()?.to_owned())));
        let unknown = traces.iter().filter(|(_, trace)| !trace.unknown_names().is_empty());
        let unknown = unknown.map(|(name, trace)| (*name, trace.unknown_names().join(", ")));
        for (all, before, what) in [
            (
                by_field.collect::<Vec<_>>(),
                "the fields of ",
                "are shown one by one, because the kernel's format for printing needs more than is recorded",
            ),
            (
                unknown.collect(),
                "the texts of ",
                "need variables or constants of the kernel that are not recorded: variables count as 0, as in perf",
            ),
        ] {
            if !all.is_empty() {
                let events = counted(all.len() as u64, "tracepoint", "tracepoints");
                report.say(Level::Info, format!("{before}{events} {what}{LISTED}"));
                all.iter().for_each(|(name, why)| report.say(Level::Detail, format!("{name} {why}")));
            }
        }
    }
}
