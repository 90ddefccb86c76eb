//! Tells whether every perf gets past a feature section, and rewrites a section at which some perf stops where its text can be saved.

use super::{FeatureContext, decode_feature, put_str, read_str, write_str};
use crate::{Endian, Feature, until_nul};

/// What becomes of a section that has to be read by every perf.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum Mended {
    /// Every perf gets past it as it is.
    Sound,
    /// These bytes hold the same, and every perf gets past them.
    Rewritten(Vec<u8>),
    /// Some perf stops there, and the section can't be rewritten. In one sentence, why.
    Unreadable(String),
}

/// Some perf stops reading features at a section of which [`decode_feature`] finds this. Measured with 6.1, 6.12, 7.2 and 7.3, as a file and as
/// pipe data; bytes behind what is known of a section stop none.
const STOPPED_BY: [&str; 2] = ["section-short", "version-unknown"];

/// perf reads on behind these whatever they hold, or has records of their own for them in pipe data.
const PASSED_OVER: [Feature; 4] =
    [Feature::TRACING_DATA, Feature::BUILD_ID, Feature::EVENT_DESC, Feature::AUXTRACE];

/// What becomes of this section.
pub fn mend(feature: Feature, section: &[u8], endian: Endian, context: FeatureContext) -> Mended {
    let mut odd = decode_feature(feature, section, endian, context).odd.into_iter();
    let Some(odd) = odd.find(|odd| STOPPED_BY.contains(&odd.code) && !PASSED_OVER.contains(&feature)) else {
        return Mended::Sound;
    };
    let rewritten = match feature {
        // hiperf of OpenHarmony writes it as one string.
        Feature::CMDLINE => read_str(section, endian).filter(|text| !text.is_empty()).map(|text| {
            let mut list = endian.bytes_u32(1).to_vec();
            put_str(text, endian, &mut list);
            list
        }),
        Feature::HOSTNAME
        | Feature::OSRELEASE
        | Feature::VERSION
        | Feature::ARCH
        | Feature::CPUDESC
        | Feature::CPUID => {
            let text = section.get(4..).map(until_nul).filter(|text| !text.is_empty());
            text.map(|text| write_str(text, endian))
        }
        _ => None,
    };
    let why = if section.is_empty() { "it is empty".to_owned() } else { odd.what };
    rewritten.map_or(Mended::Unreadable(why), Mended::Rewritten)
}
