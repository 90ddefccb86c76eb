//! The events of Intel PT that are neither branches nor instructions, and the raw data of their samples.

use perfx_format::sample::synth;
use perfx_format::{Attr, sample_type as st};
use perfx_trace::intel_pt::Power;

use crate::itrace::code_events::add_history;
use crate::itrace::events::{Decoded, EventIds, INSTRUCTIONS};
use crate::itrace::flow::with_word;
use crate::itrace::options::ItraceOptions;

/// The selected events.
#[derive(Clone, Default, Debug)]
pub(super) struct NonFlowEvents {
    pub(super) transactions: Option<Decoded>,
    pub(super) ptwrite: Option<Decoded>,
    pub(super) cbr: Option<Decoded>,
    pub(super) psb: Option<Decoded>,
    mwait: Option<Decoded>,
    enter: Option<Decoded>,
    stop: Option<Decoded>,
    exit: Option<Decoded>,
    /// Events such as interrupts, and changes of the interrupt flag.
    pub(super) control: Option<Decoded>,
    pub(super) flag: Option<Decoded>,
}

impl NonFlowEvents {
    /// How many ids they need at most.
    pub(super) const IDS: usize = 10;

    /// Makes the events from what their attrs have in common, with the next ids. Those of power states and of
    /// interrupts only if they were recorded, and of the interrupt flag if the processor can do it.
    pub(super) fn of(
        options: &ItraceOptions,
        common: Attr,
        (has_power, has_control, has_flag): (bool, bool, bool),
        ids: &mut impl Iterator<Item = EventIds>,
    ) -> NonFlowEvents {
        let mut event = |is_selected: bool, name: &str, config: Option<u64>| {
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
        };
        let power = options.power && has_power;
        NonFlowEvents {
            transactions: event(options.transactions, "transactions", None),
            ptwrite: event(options.ptwrites, "ptwrite", Some(synth::PTWRITE)),
            cbr: event(options.power, "cbr", Some(synth::CBR)),
            psb: event(options.power, "psb", Some(synth::PSB)),
            mwait: event(power, "mwait", Some(synth::MWAIT)),
            enter: event(power, "pwre", Some(synth::POWER_ENTER)),
            stop: event(power, "exstop", Some(synth::STOP)),
            exit: event(power, "pwrx", Some(synth::POWER_EXIT)),
            control: event(options.interrupts && has_control, "evt", Some(synth::CONTROL)),
            flag: event(options.interrupts && has_flag, "iflag", Some(synth::INTERRUPT_FLAG)),
        }
    }

    /// All of them, in the order of their ids.
    pub(super) fn decoded(&self) -> impl Iterator<Item = &Decoded> {
        let NonFlowEvents { transactions, ptwrite, cbr, psb, mwait, enter, stop, exit, control, flag } = self;
        [transactions, ptwrite, cbr, psb, mwait, enter, stop, exit, control, flag].into_iter().flatten()
    }

    /// The event of a change of the power state, if it is selected, and the raw data of its sample.
    pub(super) fn power(&self, what: Power, exact: bool) -> Option<(&Decoded, Vec<u32>)> {
        Some(match what {
            Power::Mwait(payload) => (self.mwait.as_ref()?, with_word(0, payload).to_vec()),
            Power::Enter(payload) => (self.enter.as_ref()?, with_word(0, payload).to_vec()),
            Power::Stop => (self.stop.as_ref()?, vec![exact.into()]),
            Power::Exit(payload) => (self.exit.as_ref()?, with_word(0, payload).to_vec()),
            _ => return None,
        })
    }
}
