//! Decides whether every perf can read a feature section, and rewrites one that stops some perf if its text
//! can be saved.

use super::{FeatureContext, decode_feature, put_str, read_str, write_str};
use crate::{Endian, FaultCode, Feature, until_nul};

/// Whether every perf can read a section.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum Repaired {
    /// Every perf reads it as it is.
    Sound,
    /// These bytes hold the same, and every perf reads them.
    Rewritten(Vec<u8>),
    /// Some perf stops here, and the section cannot be rewritten. One sentence says why.
    Unreadable(String),
}

/// The oddities of [`decode_feature`] at which some perf stops reading features. Measured with 6.1, 6.12, 7.2
/// and 7.3, as a file and as pipe data. Bytes after the known fields of a section stop no perf.
const STOPPED_BY: [FaultCode; 2] = [FaultCode::SectionShort, FaultCode::VersionUnknown];

/// perf skips the contents of these sections, or has records of its own for them in pipe data.
const PASSED_OVER: [Feature; 4] =
    [Feature::TRACING_DATA, Feature::BUILD_ID, Feature::EVENT_DESC, Feature::AUXTRACE];

/// Checks this section, and rewrites it if necessary. perf skips features that it has no name for, such as those of
/// simpleperf.
pub fn repair(feature: Feature, section: &[u8], endian: Endian, context: FeatureContext) -> Repaired {
    if feature.name().is_none() {
        return Repaired::Sound;
    }
    let mut odd = decode_feature(feature, section, endian, context).issues.into_iter();
    let Some(odd) = odd.find(|odd| STOPPED_BY.contains(&odd.code) && !PASSED_OVER.contains(&feature)) else {
        return Repaired::Sound;
    };
    let rewritten = match feature {
        // hiperf of OpenHarmony writes it as a single string.
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
    rewritten.map_or(Repaired::Unreadable(why), Repaired::Rewritten)
}
