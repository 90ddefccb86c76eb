//! Writes the samples of one batch, as far as they do not depend on other batches.

use std::sync::{Mutex, PoisonError};

use perfx_format::read::Batch;
use perfx_format::record::aux_error::AuxtraceError;
use perfx_format::record::cpumode::USER;
use perfx_format::record::deferred::CallchainDeferred;
use perfx_format::sample::{Sample, Stencil, cookie_of, frames};
use perfx_format::{Kinds, Layout, Layouts, OrderKey, Record, RecordType, sample_type};
use perfx_pipeline::Result;
use perfx_resolve::{Frame, frame_at};
use perfx_samples::{CounterEnds, Counters, IsSelected, Late, Losses, SampleView};

use super::sample::{Indent, SampleWriter, Shown};

/// The kinds of records that are shown or complete others.
pub(super) const WANTED: Kinds = Kinds::SAMPLES.and(RecordType::AUXTRACE_ERROR);

/// The output of a batch.
pub(super) struct Part {
    pub(super) pieces: Vec<Piece>,
    pub(super) counters: CounterEnds,
    pub(super) losses: Losses,
}

/// A piece of output, in order of time.
pub(super) enum Piece {
    /// Samples: the end of each text, and its event. Those with indented calls are also in `indents`.
    Written { text: Vec<u8>, samples: Vec<(usize, usize)>, indents: Vec<Indent> },
    /// A sample that needs another batch.
    Open(OpenSample),
    /// The user part of the chains of a thread.
    User { tid: u32, cookie: u64, frames: Vec<(u64, Frame)> },
    /// Another record, or a place where decoding a trace failed.
    Other(Vec<u8>),
}

/// A sample that cannot be written yet.
pub(super) struct OpenSample {
    /// The record in a batch of its own.
    record: Box<Batch>,
    /// The events that it is a sample of, with their periods.
    pub(super) counted: Vec<(usize, u64)>,
    /// Events of counters that were first read in this batch.
    pub(super) late: Late<usize>,
    /// The thread and cookie of the missing user part of its chain.
    pub(super) waits_for: Option<(u32, u64)>,
}

impl OpenSample {
    fn new(
        batch: &Batch,
        record: &Record<'_>,
        (counted, late): (Vec<(usize, u64)>, Late<usize>),
        waits_for: Option<(u32, u64)>,
    ) -> Self {
        OpenSample { record: Box::new(batch.with_only(record)), counted, late, waits_for }
    }

    pub(super) fn write(
        &self,
        out: &mut Vec<u8>,
        writer: &mut SampleWriter<'_>,
        (event, period): (usize, u64),
        user: &[(u64, Frame)],
    ) -> Result<()> {
        let layouts = &*self.record.layouts;
        let Some(record) = self.record.walk().next_record()? else { return Ok(()) };
        let Some(layout) = layouts.layout_of(&record) else { return Ok(()) };
        let Ok(parts) = Sample::parse_known(&record, layout) else { return Ok(()) };
        writer.write(out, Shown { record: &record, layouts, layout, parts: &parts, event, period, user })
    }
}

/// Buffers of printed texts for reuse: the system takes a while to hand out new memory.
pub(super) struct Texts {
    free: Mutex<Vec<Vec<u8>>>,
    most: usize,
}

impl Texts {
    pub(super) fn new(most: usize) -> Texts {
        Texts { free: Mutex::default(), most }
    }

    fn take(&self) -> Vec<u8> {
        self.free.lock().unwrap_or_else(PoisonError::into_inner).pop().unwrap_or_default()
    }

    pub(super) fn give(&self, mut text: Vec<u8>) {
        let mut free = self.free.lock().unwrap_or_else(PoisonError::into_inner);
        if free.len() < self.most {
            text.clear();
            free.push(text);
        }
    }
}

/// The last sample of a trace that was shown. Most samples after it differ in few parts, and are not parsed.
struct Last<'b> {
    stencil: Stencil,
    layout: &'b Layout,
    parts: Sample<'b>,
    event: usize,
}

/// Reads batches on one thread.
pub(super) struct Reader<'v> {
    pub(super) writer: SampleWriter<'v>,
    pub(super) is_selected: Option<IsSelected<'v>>,
    /// For each event, true if its counters are shown.
    pub(super) wanted: &'v [bool],
    pub(super) counts_only: bool,
    /// True to show where decoding a trace failed.
    pub(super) shows_errors: bool,
    pub(super) texts: &'v Texts,
}

/// perf's line for a place where decoding a trace failed.
fn error_line(error: &AuxtraceError<'_>) -> String {
    let &AuxtraceError { code, cpu, pid, tid, ip, time, message, guest } = error;
    let guest = guest.map_or_else(String::new, |(pid, vcpu)| format!(" machine_pid {pid} vcpu {vcpu}"));
    let [cpu, pid, tid] = [cpu, pid, tid].map(u32::cast_signed);
    let time = match time {
        0 => "0".to_owned(),
        time => format!("{}.{:09}", time / NS_IN_S, time % NS_IN_S),
    };
    let ip = if ip == 0 { "0".to_owned() } else { format!("{ip:#x}") };
    format!(
        " instruction trace error type 1 time {time}{guest} cpu {cpu} pid {pid} tid {tid} ip {ip} code {code}: {message}\n"
    )
}

const NS_IN_S: u64 = 1_000_000_000;

impl Reader<'_> {
    /// Reads until at least `most` samples are written, or the batch ends.
    pub(super) fn read(&mut self, batch: &Batch, most: u64) -> Result<Part> {
        let (mut pieces, mut counters) = (Vec::new(), Counters::new(self.writer.facts));
        let mut walker = batch.walk();
        let mut written = 0;
        let mut last = None;
        let shown = self.writer.options.shown_kinds();
        while written < most
            && let Some(record) = walker.next_wanted(WANTED.union(shown), usize::MAX)?
        {
            if record.kind() == RecordType::SAMPLE {
                let view = || SampleView::of(&record, &batch.layouts);
                let is_selected = |is_selected: &mut IsSelected<'_>| view().is_some_and(is_selected);
                if self.is_selected.as_mut().is_none_or(is_selected) {
                    written += self.sample((&mut pieces, &mut counters), batch, &record, &mut last)?;
                }
            } else if shown.contains(record.kind()) {
                let mut text = Vec::new();
                self.writer.write_other(&mut text, &record, &batch.layouts);
                pieces.push(Piece::Other(text));
            } else if let Some(user) = CallchainDeferred::of(&record) {
                pieces.extend(self.user_part(&record, user, &batch.layouts));
            } else if let Some(error) = AuxtraceError::of(&record).filter(|_| self.shows_errors) {
                pieces.push(Piece::Other(error_line(&error).into_bytes()));
            }
        }
        let (counters, losses) = counters.end();
        Ok(Part { pieces, counters, losses })
    }

    /// Writes a sample, or each counter in it that gained; returns the number of samples written.
    fn sample<'b>(
        &mut self,
        (pieces, counters): (&mut Vec<Piece>, &mut Counters<'_>),
        batch: &'b Batch,
        sample: &Record<'b>,
        last: &mut Option<Last<'b>>,
    ) -> Result<u64> {
        let (facts, layouts) = (self.writer.facts, &*batch.layouts);
        let losses = &mut counters.losses;
        if let Some(Last { stencil, layout, parts, event }) = last
            && let Some(varied) = stencil.read(sample.bytes())
        {
            varied.set_in(parts);
            let period = parts.period.unwrap_or(facts.events[*event].period);
            if let Some(Piece::Written { text, samples, .. }) = pieces.last_mut()
                && self.writer.write_known(text, parts, period)
            {
                samples.push((text.len(), *event));
                return Ok(1);
            }
            return self.written(pieces, (sample, layouts, layout, parts), *event, period);
        }
        // The writer's last text is not of this sample any more.
        *last = None;
        let known = layouts.layout_of(sample).and_then(|layout| {
            let view = SampleView { record: sample, layout, layouts };
            Some((view, layout, view.event_in(facts)?))
        });
        let Some((view, layout, event)) = known else {
            losses.astray += 1;
            return Ok(0);
        };
        let Ok(parts) = Sample::parse_known(sample, layout) else {
            losses.short += 1;
            return Ok(0);
        };
        losses.cut += u64::from(parts.is_cut);
        let is_lost = || facts.stacks.chain_of(&parts, sample.endian(), &mut Vec::new()).is_none();
        losses.torn += u64::from(parts.callchain.is_some() && is_lost());
        let cookie = parts.callchain.and_then(cookie_of);
        let waits_for = cookie.map(|cookie| (parts.pid_tid.map_or(0, |(_, tid)| tid), cookie));
        if layout.sample_type & sample_type::READ == 0 {
            let period = parts.period.unwrap_or(facts.events[event].period);
            if waits_for.is_none() {
                if self.writer.options.decoded {
                    let stencil = Stencil::of(sample.bytes(), layout, sample.endian());
                    *last = stencil.map(|stencil| Last { stencil, layout, parts, event });
                }
                return self.written(pieces, (sample, layouts, layout, &parts), event, period);
            }
            let counted = (vec![(event, period)], Late::new());
            pieces.push(Piece::Open(OpenSample::new(batch, sample, counted, waits_for)));
            return Ok(0);
        }
        let (mut counted, mut late) = (Vec::new(), Late::new());
        let target = |event: usize| self.wanted[event].then_some(event);
        counters.count(view, event, &mut late, target, |event, period| counted.push((event, period)));
        if waits_for.is_some() || !late.is_empty() {
            pieces.push(Piece::Open(OpenSample::new(batch, sample, (counted, late), waits_for)));
            return Ok(0);
        }
        let mut written = 0;
        for (event, period) in counted {
            written += self.written(pieces, (sample, layouts, layout, &parts), event, period)?;
        }
        Ok(written)
    }

    // Inlined, because its arguments are expensive to move.
    #[inline(always)]
    fn written(
        &mut self,
        pieces: &mut Vec<Piece>,
        (record, layouts, layout, parts): (&Record<'_>, &Layouts, &Layout, &Sample<'_>),
        event: usize,
        period: u64,
    ) -> Result<u64> {
        if !matches!(pieces.last(), Some(Piece::Written { .. })) {
            let (text, samples, indents) = (self.texts.take(), Vec::new(), Vec::new());
            pieces.push(Piece::Written { text, samples, indents });
        }
        if let Some(Piece::Written { text, samples, indents }) = pieces.last_mut() {
            if !self.counts_only {
                let shown = Shown { record, layouts, layout, parts, event, period, user: &[] };
                self.writer.write(text, shown)?;
                indents.extend(self.writer.indent.take());
            }
            samples.push((text.len(), event));
        }
        Ok(1)
    }

    fn user_part(
        &self,
        record: &Record<'_>,
        user: CallchainDeferred<'_>,
        layouts: &Layouts,
    ) -> Option<Piece> {
        let layout = layouts.layout_of(record);
        let (pid, tid) = layout.and_then(|layout| layout.pid_tid(record))?;
        let key = OrderKey::of(record, layout, layouts);
        let frame = |entry| frame_at(self.writer.facts, (record, layouts), Some(pid), key, entry);
        let frames = frames(user.ips, USER).map(|entry| (entry.1, frame(entry))).collect();
        Some(Piece::User { tid, cookie: user.cookie, frames })
    }
}
