//! Determines how the samples of each event are shown.

use perfx_format::sample::{Sample, synth};
use perfx_format::{ByTracepoint, Event};
use perfx_look::clock::Clock;
use perfx_look::render::readable;
use perfx_look::trace::TracePrinter;
use perfx_resolve::{EventFacts, Facts};

use super::fields::{Field, Groups, HARDWARE, ViewOptions, bits};

const FRONT: u64 = {
    use Field::{Comm, Cpu, Event, MachinePid, Misc, Period, Pid, Tid, Time, Tod, Vcpu};
    bits(&[MachinePid, Vcpu, Comm, Pid, Tid, Cpu, Misc, Tod, Time, Period, Event])
};

/// For a code address and a branch target.
const CODE: u64 = {
    use Field::{Dso, Dsoff, Ip, Srcline, Sym, Symoff};
    bits(&[Ip, Sym, Symoff, Dso, Dsoff, Srcline])
};
const BRANCH: u64 = bits(&[Field::Addr]);

pub(super) struct Form<'t> {
    pub(super) event: Vec<u8>,
    /// Padded to the longest name of all events.
    pub(super) name: String,
    pub(super) trace: Option<&'t TracePrinter<'t>>,
    fields: u64,
    pub(super) has_chain: bool,
    /// The address is in code or data, so that perf also shows its symbol.
    pub(super) names_address: bool,
    /// Samples are branches, which perf shows in a special form.
    pub(super) is_branch: bool,
    /// In a decoded trace, only the ends of a branch, or the address of a sample without a chain, are shown.
    pub(super) shows_only_code: bool,
    /// The raw data consists of flags.
    pub(super) has_flow: bool,
    pub(super) shows_targets: bool,
    /// The recorded machine, which determines the names of registers.
    pub(super) machine: &'t str,
    /// Added to a time for ns since 1970; `None` if the time of day is not shown.
    wall_offset: Option<i128>,
    /// `attr.config` of an event that perf synthesizes when it decodes a trace.
    pub(super) synthesized: Option<u64>,
}

impl<'t> Form<'t> {
    pub(super) fn has(&self, field: Field) -> bool {
        self.fields & bits(&[field]) != 0
    }

    /// ns since 1970, if shown.
    pub(super) fn time_of_day(&self, parts: &Sample<'_>) -> Option<u64> {
        u64::try_from(self.wall_offset? + i128::from(parts.time?)).ok()
    }

    pub(super) fn frame(&self) -> FrameForm {
        let has = |field| self.has(field);
        FrameForm {
            sym: has(Field::Sym),
            symoff: has(Field::Symoff),
            // In perf, too, the offset implies the DSO.
            dso: has(Field::Dso) || has(Field::Dsoff),
            dsoff: has(Field::Dsoff),
            srcline: has(Field::Srcline),
        }
    }

    /// The forms of all events of a `machine` with this `clock`; `traces` shows the samples of tracepoints.
    pub(super) fn all(
        facts: &Facts,
        (machine, clock, events): (&'t str, Clock, &[Event]),
        options: &ViewOptions,
        traces: &'t ByTracepoint<TracePrinter<'t>>,
    ) -> Vec<Form<'t>> {
        let groups = Groups::new(events);
        let form = |(number, (facts, event)): (usize, (&EventFacts, &Event))| {
            let attr = event.attr();
            // PERF_TYPE_HARDWARE: branch-instructions of period 1, which is BTS.
            let is_branch = attr.type_ == 0 && attr.config == 4 && attr.sample_period == 1;
            // PERF_TYPE_SOFTWARE: page-faults, minor-faults, major-faults.
            let names_address = is_branch || attr.type_ == 1 && matches!(attr.config, 2 | 5 | 6);
            let mut form = Form {
                event: facts.name.to_vec(),
                name: readable(&facts.name),
                trace: traces.get(number),
                fields: options.fields.of(event, &groups, options),
                has_chain: facts.has_chains && !options.hides_chains,
                names_address,
                is_branch,
                shows_only_code: false,
                has_flow: options.decoded && attr.type_ == HARDWARE,
                machine,
                shows_targets: is_branch && options.fields.shows_targets(),
                wall_offset: None,
                synthesized: (attr.type_ == synth::TYPE).then_some(attr.config),
            };
            let code = if is_branch { BRANCH | CODE } else { CODE };
            form.shows_only_code = options.decoded && form.fields & !(FRONT | code) == 0;
            form.wall_offset = clock.wall_offset().filter(|_| form.has(Field::Tod));
            form
        };
        let mut forms: Vec<Form<'_>> = facts.events.iter().zip(events).enumerate().map(form).collect();
        // In bytes, as in perf.
        let width = forms.iter().map(|form| form.name.len()).max().unwrap_or(0);
        for Form { name, .. } in &mut forms {
            *name = format!("{}{name}: ", " ".repeat(width - name.len()));
        }
        forms
    }
}

#[derive(Clone, Copy, PartialEq, Eq, Default, Debug)]
pub(super) struct FrameForm {
    pub(super) sym: bool,
    pub(super) symoff: bool,
    pub(super) dso: bool,
    pub(super) dsoff: bool,
    pub(super) srcline: bool,
}

impl FrameForm {
    pub(super) const COUNT: usize = 32;

    pub(super) fn number(self) -> usize {
        let FrameForm { sym, symoff, dso, dsoff, srcline } = self;
        [sym, symoff, dso, dsoff, srcline].into_iter().fold(0, |number, part| number * 2 + usize::from(part))
    }
}
