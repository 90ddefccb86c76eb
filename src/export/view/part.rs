//! Writes the samples of one batch, except what depends on other batches.

use perfx_format::record::aux_error::AuxtraceError;
use perfx_format::record::cpumode::USER;
use perfx_format::record::deferred::CallchainDeferred;
use perfx_format::sample::{cookie_of, frames};
use perfx_format::{Endian, Kinds, Layouts, OrderKey, Origin, Record, RecordType, sample_type};
use perfx_pipeline::Result;
use perfx_resolve::{Frame, frame_at};
use perfx_samples::{Alike, CounterEnds, Counters, IsSelected, Late, Losses, Rows, SampleView, Sampled};

use super::sample::{Indent, SampleWriter, Shown};

/// Kinds that are shown, complete others or are counted.
pub(super) const WANTED: Kinds = Kinds::SAMPLES.union(Kinds::LOST).and(RecordType::AUXTRACE_ERROR);

pub(super) struct Part {
    pub(super) pieces: Vec<Piece>,
    pub(super) counters: CounterEnds,
    pub(super) losses: Losses,
}

pub(super) enum Piece {
    /// Samples: the end of each text, and its event. Those with indented calls are also in `indents`.
    Written {
        text: Vec<u8>,
        samples: Vec<(usize, usize)>,
        indents: Vec<Indent>,
    },
    Open(OpenSample),
    User {
        tid: u32,
        cookie: u64,
        frames: Vec<(u64, Frame)>,
    },
    Other(Vec<u8>),
}

pub(super) struct OpenSample {
    record: Box<[u8]>,
    origin: Origin,
    /// The events that it is a sample of, with their periods.
    pub(super) counted: Vec<(usize, u64)>,
    /// Events of counters that were first read in this batch.
    pub(super) late: Late<usize>,
    /// The thread and cookie of its chain's missing user part.
    pub(super) waits_for: Option<(u32, u64)>,
}

impl OpenSample {
    fn new(
        record: &Record<'_>,
        (counted, late): (Vec<(usize, u64)>, Late<usize>),
        waits_for: Option<(u32, u64)>,
    ) -> Self {
        let origin = record.origin();
        OpenSample { record: record.bytes().into(), origin, counted, late, waits_for }
    }

    pub(super) fn write(
        &self,
        out: &mut Vec<u8>,
        (writer, layouts, endian): (&mut SampleWriter<'_>, &Layouts, Endian),
        (event, period): (usize, u64),
        user: &[(u64, Frame)],
    ) -> Result<()> {
        let record = Record::new(&self.record, &[], self.origin, endian)?;
        let Some(sample) = SampleView::of(&record, layouts) else { return Ok(()) };
        let Ok(parts) = sample.parts() else { return Ok(()) };
        writer.write(out, Shown { sample, key: sample.key(), parts: &parts, event, period, user })
    }
}

pub(super) struct Reader<'v> {
    pub(super) writer: SampleWriter<'v>,
    pub(super) layouts: &'v Layouts,
    pub(super) endian: Endian,
    pub(super) is_selected: Option<IsSelected<'v>>,
    pub(super) wanted: &'v [bool],
    pub(super) counts_only: bool,
    pub(super) shows_errors: bool,
    pub(super) longest: usize,
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
    pub(super) fn read(&mut self, rows: &Rows, most: u64) -> Result<Part> {
        let (facts, layouts, endian) = (self.writer.facts, self.layouts, self.endian);
        let (mut pieces, mut counters) = (Vec::new(), Counters::new(facts));
        let mut alike = rows.alike(layouts, facts);
        // The stencil of the last written sample.
        let (mut last, mut written, mut bytes) = (None, 0, Vec::new());
        for number in 0..rows.count() {
            if written >= most {
                break;
            }
            let (stencil, fields) = match rows.get(number) {
                Some(Sampled::Alike(stencil, fields)) => (stencil, fields),
                Some(Sampled::Record(bytes)) => {
                    last = None;
                    let record = rows.record(number, bytes, endian)?;
                    written += self.record((&mut pieces, &mut counters), &record)?;
                    continue;
                }
                None => break,
            };
            if let Some(is_selected) = &mut self.is_selected {
                let record = rows.record_in(number, &mut bytes, endian)?;
                if !SampleView::of(&record, layouts).is_some_and(is_selected) {
                    continue;
                }
            }
            let Some(Alike { record, parts: Some(parts), layout, event }) = &mut alike[stencil] else {
                counters.losses.astray += 1;
                continue;
            };
            written += 1;
            fields.set_in(parts);
            let period = parts.period.unwrap_or(facts.events[*event].period);
            if last == Some(stencil)
                && let Some(Piece::Written { text, samples, .. }) = pieces.last_mut()
                && self.writer.write_known(text, parts, period)
            {
                samples.push((text.len(), *event));
                continue;
            }
            last = Some(stencil);
            let sample = SampleView { record, layout, layouts };
            let key = parts.time.map_or(OrderKey::LAST, OrderKey::at);
            self.written(&mut pieces, Shown { sample, key, parts, event: *event, period, user: &[] })?;
        }
        if let Some(Piece::Written { text, .. }) = pieces.first() {
            self.longest = self.longest.max(text.len());
        }
        let (counters, losses) = counters.end();
        Ok(Part { pieces, counters, losses })
    }

    fn record(
        &mut self,
        (pieces, counters): (&mut Vec<Piece>, &mut Counters<'_>),
        record: &Record<'_>,
    ) -> Result<u64> {
        let layouts = self.layouts;
        // With an index, batches without selected samples are not read.
        if self.is_selected.is_none() {
            counters.losses.recording.add(record, layouts);
        }
        if record.kind() == RecordType::SAMPLE {
            let Some(is_selected) = &mut self.is_selected else {
                return self.sample((pieces, counters), record);
            };
            if let Some(sample) = SampleView::of(record, layouts) {
                if is_selected(sample) {
                    return self.sample((pieces, counters), record);
                }
                if let Some(event) = sample.event_in(self.writer.facts) {
                    counters.pass_over(sample, event);
                }
            }
        } else if self.writer.options.shown_kinds().contains(record.kind()) {
            let mut text = Vec::new();
            self.writer.write_other(&mut text, record, layouts);
            pieces.push(Piece::Other(text));
        } else if let Some(user) = CallchainDeferred::of(record) {
            pieces.extend(self.user_part(record, user, layouts));
        } else if let Some(error) = AuxtraceError::of(record).filter(|_| self.shows_errors) {
            pieces.push(Piece::Other(error_line(&error).into_bytes()));
        }
        Ok(0)
    }

    /// Writes a sample, or each counter in it that has gained; returns the number of samples written.
    fn sample(
        &mut self,
        (pieces, counters): (&mut Vec<Piece>, &mut Counters<'_>),
        record: &Record<'_>,
    ) -> Result<u64> {
        let (facts, layouts) = (self.writer.facts, self.layouts);
        let losses = &mut counters.losses;
        let known = SampleView::of(record, layouts).and_then(|view| Some((view, view.event_in(facts)?)));
        let Some((sample, event)) = known else {
            losses.astray += 1;
            return Ok(0);
        };
        let Ok(parts) = sample.parts() else {
            losses.short += 1;
            return Ok(0);
        };
        losses.cut += u64::from(parts.is_cut);
        let is_lost = || facts.stacks.chain_of(&parts, record.endian(), &mut Vec::new()).is_none();
        losses.torn += u64::from(parts.callchain.is_some() && is_lost());
        let cookie = parts.callchain.and_then(cookie_of);
        let waits_for = cookie.map(|cookie| (parts.pid_tid.map_or(0, |(_, tid)| tid), cookie));
        let shown =
            |(event, period)| Shown { sample, key: sample.key(), parts: &parts, event, period, user: &[] };
        let (mut counted, mut late) = (Vec::new(), Late::new());
        if sample.has(sample_type::READ) {
            let target = |event: usize| self.wanted[event].then_some(event);
            counters.count(sample, event, &mut late, target, |event, period| counted.push((event, period)));
        } else {
            let period = parts.period.unwrap_or(facts.events[event].period);
            if waits_for.is_none() {
                self.written(pieces, shown((event, period)))?;
                return Ok(1);
            }
            counted.push((event, period));
        }
        if waits_for.is_some() || !late.is_empty() {
            pieces.push(Piece::Open(OpenSample::new(record, (counted, late), waits_for)));
            return Ok(0);
        }
        let written = counted.len() as u64;
        counted.into_iter().try_for_each(|counted| self.written(pieces, shown(counted)))?;
        Ok(written)
    }

    // Inlined, because its arguments are expensive to move.
    #[inline(always)]
    fn written(&mut self, pieces: &mut Vec<Piece>, shown: Shown<'_>) -> Result<()> {
        if !matches!(pieces.last(), Some(Piece::Written { .. })) {
            // Most batches have one text, and growing it is slow.
            let text = Vec::with_capacity(if pieces.is_empty() { self.longest } else { 0 });
            let (samples, indents) = Default::default();
            pieces.push(Piece::Written { text, samples, indents });
        }
        if let Some(Piece::Written { text, samples, indents }) = pieces.last_mut() {
            if !self.counts_only {
                self.writer.write(text, shown)?;
                indents.extend(self.writer.indent.take());
            }
            samples.push((text.len(), shown.event));
        }
        Ok(())
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
