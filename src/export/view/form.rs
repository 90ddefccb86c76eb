//! Decides how the samples of each event are shown.

use perfx_format::Event;
use perfx_format::sample::synth;
use perfx_look::render::readable;
use perfx_look::trace::TracePrinter;
use perfx_resolve::{EventFacts, Facts};

use super::fields::{Field, ViewOptions};

/// How the samples of an event are shown.
pub(super) struct Form<'t> {
    /// The event's name.
    pub(super) event: Vec<u8>,
    /// The same, as wide as the longest of all events.
    pub(super) name: String,
    /// Prints the raw data of a tracepoint.
    pub(super) trace: Option<TracePrinter<'t>>,
    /// Bits, by the number of the field.
    fields: u32,
    pub(super) has_chain: bool,
    /// perf also shows which symbol the address is in, for events whose address is one of code or data that they
    /// touched.
    pub(super) names_address: bool,
    /// Its samples are branches, which perf shows in a form of their own.
    pub(super) is_branch: bool,
    /// With their targets.
    pub(super) shows_targets: bool,
    /// The name of the recorded machine, which says what its registers are called.
    pub(super) machine: &'t str,
    /// `attr.config` of an event that perf makes up when it decodes a trace.
    pub(super) synthesized: Option<u64>,
}

impl<'t> Form<'t> {
    pub(super) fn has(&self, field: Field) -> bool {
        self.fields & 1 << field as u32 != 0
    }

    /// Which parts of a frame are shown.
    pub(super) fn frame(&self) -> FrameForm {
        let [sym, symoff, dso] = [Field::Sym, Field::Symoff, Field::Dso].map(|field| self.has(field));
        FrameForm { sym, symoff, dso, srcline: self.has(Field::Srcline) }
    }

    /// The forms of all events of a `machine`; `traces` shows the samples of tracepoints.
    pub(super) fn all(
        facts: &Facts,
        (machine, events): (&'t str, &[Event]),
        options: &ViewOptions,
        traces: Vec<Option<TracePrinter<'t>>>,
    ) -> Vec<Form<'t>> {
        let form = |((facts, event), trace): ((&EventFacts, &Event), Option<TracePrinter<'t>>)| {
            let attr = event.attr();
            // PERF_TYPE_HARDWARE: branch-instructions of period 1, which is BTS.
            let is_branch = attr.type_ == 0 && attr.config == 4 && attr.sample_period == 1;
            // PERF_TYPE_SOFTWARE: page-faults, minor-faults, major-faults.
            let names_address = is_branch || attr.type_ == 1 && matches!(attr.config, 2 | 5 | 6);
            Form {
                event: facts.name.to_vec(),
                name: readable(&facts.name),
                trace,
                fields: options
                    .fields
                    .of(event, options.decoded)
                    .into_iter()
                    .fold(0, |bits, field| bits | 1 << field as u32),
                has_chain: facts.has_chains,
                names_address,
                is_branch,
                machine,
                shows_targets: is_branch && options.fields.shows_targets(),
                synthesized: (attr.type_ == synth::TYPE).then_some(attr.config),
            }
        };
        let mut forms: Vec<Form<'_>> = facts.events.iter().zip(events).zip(traces).map(form).collect();
        // In bytes, as in perf.
        let width = forms.iter().map(|form| form.name.len()).max().unwrap_or(0);
        for Form { name, .. } in &mut forms {
            *name = format!("{}{name}: ", " ".repeat(width - name.len()));
        }
        forms
    }
}

/// Which parts of a frame are shown.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) struct FrameForm {
    pub(super) sym: bool,
    pub(super) symoff: bool,
    pub(super) dso: bool,
    pub(super) srcline: bool,
}

impl FrameForm {
    /// The number of forms.
    pub(super) const COUNT: usize = 16;

    /// Its number.
    pub(super) fn number(self) -> usize {
        let FrameForm { sym, symoff, dso, srcline } = self;
        [sym, symoff, dso, srcline].into_iter().fold(0, |number, part| number * 2 + usize::from(part))
    }
}
