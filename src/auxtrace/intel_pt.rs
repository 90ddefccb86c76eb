//! Intel PT as a tracer: its description in the recording, and its decoder.

use perfx_format::Event;
use perfx_format::record::pt_info::PtInfo;
use perfx_format::record::time_conv::TimeConv;
use perfx_pipeline::{Result, bail};
use perfx_trace::{Blocks, Image, Sink, Trace, intel_pt};

use crate::clock::Clock;
use crate::decode::Tracer;

/// What must be known of the processor and of the event.
#[derive(Clone, Copy, Debug)]
pub struct IntelPt {
    /// What the recording says.
    pub info: PtInfo,
    /// What the decoder needs of it.
    pub config: intel_pt::Config,
    /// `attr.config` of the event.
    pub event_config: u64,
}

impl IntelPt {
    /// With the event that made the data; `near` is a time of the recording at about the traces', ns.
    ///
    /// # Errors
    ///
    /// There is no such event, or the traces are of a kind that is not decoded.
    pub(crate) fn new(info: PtInfo, events: &[Event], near: u64) -> Result<IntelPt> {
        let event = events.iter().find(|event| u64::from(event.attr().type_) == info.pmu_type);
        let Some(event) = event else {
            bail!("AUXTRACE_INFO says that PMU {} made the AUX data, but no event is of it", info.pmu_type)
        };
        let event_config = event.attr().config;
        let config = intel_pt::Config {
            mtc_period: info.mtc_period(event_config),
            tsc_per_ctc: info.tsc_per_ctc,
            tsc_ratio: ratio(&info),
            compressed_returns: event_config & info.no_return_compression_bit == 0,
            branches: PtInfo::traces_branches(event_config),
            near: Clock { conv: info.conv }.ticks(near),
            counts_cycles: false,
            walk: intel_pt::Walk::Code,
            errata: intel_pt::Errata::default(),
        };
        Ok(IntelPt { info, config, event_config })
    }
}

/// The errata of a processor, by feature CPUID: vendor, family, model and stepping.
pub(crate) fn errata(cpuid: &[u8]) -> Option<intel_pt::Errata> {
    let mut words = str::from_utf8(cpuid).ok()?.split(',');
    words.next().filter(|vendor| *vendor == "GenuineIntel")?;
    let mut number = || words.next()?.trim().parse().ok();
    Some(intel_pt::Errata::of(number()?, number()?))
}

/// The frequency of the time-stamp counter in units of 100 MHz.
fn ratio(info: &PtInfo) -> u32 {
    if info.max_non_turbo_ratio > 0 {
        return info.max_non_turbo_ratio;
    }
    u32::try_from((frequency(info) + 50_000_000) / 100_000_000).unwrap_or(0)
}

/// The frequency of the time-stamp counter, Hz; 0 if it is not known.
fn frequency(info: &PtInfo) -> u64 {
    Clock { conv: info.conv.map(|conv| TimeConv { zero: 0, ..conv }) }.ticks(1_000_000_000)
}

impl IntelPt {
    /// The frequency of the core at a ratio to the bus clock, kHz; 0 if it is not known.
    pub fn core_khz(&self, ratio: u8) -> u32 {
        let unit =
            frequency(&self.info).checked_div(self.info.max_non_turbo_ratio.into()).unwrap_or(0) / 1000;
        (u64::from(ratio) * unit) as u32
    }
}

impl Tracer for IntelPt {
    type Unit = intel_pt::Unit;
    type Decoder<I: Image + Send> = intel_pt::Decoder<I>;

    fn units<'a>(&'a self, trace: &'a Trace<'_>, size: u64) -> impl Iterator<Item = Self::Unit> + Send + 'a {
        intel_pt::units(trace, &self.config, size)
    }

    fn time(unit: &Self::Unit) -> u64 {
        unit.time()
    }

    fn decoder<I: Image + Send>(&self, image: I) -> Self::Decoder<I> {
        intel_pt::Decoder::new(image, self.config)
    }

    fn decode<I: Image + Send>(
        decoder: &mut Self::Decoder<I>,
        trace: &Trace<'_>,
        unit: &Self::Unit,
        sink: &mut impl Sink,
    ) {
        decoder.decode(trace, unit, sink);
    }

    fn blocks<I: Image + Send>(decoder: &Self::Decoder<I>) -> &Blocks {
        decoder.blocks()
    }
}
