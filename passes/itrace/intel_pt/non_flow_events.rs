//! The events of Intel PT that are neither branches nor instructions, and the raw data of their samples.

use perfx_format::sample::synth;
use perfx_format::{Attr, sample_type as st};
use perfx_trace::intel_pt::Power;

use crate::itrace::code_events::add_history;
use crate::itrace::events::{Decoded, EventIds, INSTRUCTIONS};
use crate::itrace::flow::with_word;
use crate::itrace::options::ItraceOptions;

/// An event, in the order of the ids.
#[derive(Clone, Copy, Debug)]
pub(super) enum NonFlow {
    Transactions,
    Ptwrite,
    Cbr,
    Psb,
    Mwait,
    PowerEnter,
    Stop,
    PowerExit,
    /// Events such as interrupts.
    Control,
    /// Changes of the interrupt flag.
    Flag,
}

#[derive(Clone, Default, Debug)]
pub(super) struct NonFlowEvents([Option<Decoded>; NonFlowEvents::IDS]);

impl NonFlowEvents {
    /// The maximum number of ids.
    pub(super) const IDS: usize = 10;

    /// Builds the events from the common attr, with the next ids: those of power states and interrupts only
    /// if they were recorded, that of the interrupt flag if the processor supports it.
    pub(super) fn of(
        options: &ItraceOptions,
        common: Attr,
        (has_power, has_control, has_flag): (bool, bool, bool),
        ids: &mut impl Iterator<Item = EventIds>,
    ) -> NonFlowEvents {
        let power = options.power && has_power;
        let events = [
            (options.transactions, "transactions", None),
            (options.ptwrites, "ptwrite", Some(synth::PTWRITE)),
            (options.power, "cbr", Some(synth::CBR)),
            (options.power, "psb", Some(synth::PSB)),
            (power, "mwait", Some(synth::MWAIT)),
            (power, "pwre", Some(synth::POWER_ENTER)),
            (power, "exstop", Some(synth::STOP)),
            (power, "pwrx", Some(synth::POWER_EXIT)),
            (options.interrupts && has_control, "evt", Some(synth::CONTROL)),
            (options.interrupts && has_flag, "iflag", Some(synth::INTERRUPT_FLAG)),
        ];
        NonFlowEvents(events.map(|(is_selected, name, config)| {
            let mut attr = common;
            attr.sample_type &= !(st::PERIOD | st::ADDR);
            attr.sample_period = 1;
            add_history(options, &mut attr);
            attr.config = config.unwrap_or(INSTRUCTIONS);
            if config.is_some() {
                attr.type_ = synth::TYPE;
                attr.sample_type |= st::RAW;
            }
            is_selected.then(|| Some(Decoded { name: name.to_owned(), ids: ids.next()?, attr })).flatten()
        }))
    }

    /// An event, if it is selected.
    pub(super) fn get(&self, event: NonFlow) -> Option<&Decoded> {
        self.0[event as usize].as_ref()
    }

    pub(super) fn decoded(&self) -> impl Iterator<Item = &Decoded> {
        self.0.iter().flatten()
    }
}

/// The event of a change of the power state, and the raw data of its sample.
pub(super) fn power(what: Power, exact: bool) -> Option<(NonFlow, Vec<u32>)> {
    Some(match what {
        Power::Mwait(payload) => (NonFlow::Mwait, with_word(0, payload).to_vec()),
        Power::Enter(payload) => (NonFlow::PowerEnter, with_word(0, payload).to_vec()),
        Power::Stop => (NonFlow::Stop, vec![exact.into()]),
        Power::Exit(payload) => (NonFlow::PowerExit, with_word(0, payload).to_vec()),
        _ => return None,
    })
}
