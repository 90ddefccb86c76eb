//! Checks if every perf can read a feature section, and rewrites one that can be saved.

use super::{FeatureContext, NrCpus, decode_feature, put_str, read_str, read_unterminated_str, write_str};
use crate::header::Features;
use crate::{Endian, FaultCode, Feature, until_nul};

/// The result for a section.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum Repaired {
    /// Every perf reads it unchanged.
    Sound,
    /// These bytes have the same contents, and every perf reads them.
    Rewritten(Vec<u8>),
    /// Some perf stops here, and the section cannot be rewritten, for this reason.
    Unreadable(String),
}

/// The oddities of [`decode_feature`] at which some perf stops reading features. Measured with 6.1, 6.12, 7.2
/// and 7.3, as a file and as pipe data. Bytes after the known fields of a section stop no perf.
const STOPPED_BY: [FaultCode; 3] =
    [FaultCode::SectionEmpty, FaultCode::SectionShort, FaultCode::VersionUnknown];

/// perf skips the contents of these sections, or has records of its own for them in pipe data.
const PASSED_OVER: [Feature; 4] =
    [Feature::TRACING_DATA, Feature::BUILD_ID, Feature::EVENT_DESC, Feature::AUXTRACE];

/// Checks this section, and rewrites it if necessary. perf skips features without a name (of simpleperf).
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

/// True for oddities that the sections of a sound file can have: perf 6.17 writes empty ones, newer versions
/// of perf write longer ones and other versions of a section, and NRCPUS can be missing.
fn is_plausible(odd: FaultCode) -> bool {
    use FaultCode::{NrcpusMissing, SectionEmpty, SectionRest, VersionUnknown};
    matches!(odd, SectionEmpty | SectionRest | VersionUnknown | NrcpusMissing)
}

/// Features whose sections are implausible, or stop some perf. If one is implausible, as if the file had lost
/// or gained bytes, all odd sections and the unknown features are included, because they can't be verified.
/// AUXTRACE and BUILD_ID are not: their entries are judged one by one.
pub fn meaningless(features: &Features, endian: Endian) -> Vec<Feature> {
    let cpus = features.get(&Feature::NRCPUS).and_then(|section| NrCpus::read(section, endian));
    let (mut found, mut suspect, mut has_lost_bytes) = (Vec::new(), Vec::new(), false);
    for (&feature, section) in features {
        let decoded = decode_feature(feature, section, endian, FeatureContext { cpus });
        let is_readable = match feature {
            Feature::AUXTRACE | Feature::BUILD_ID => true,
            // hiperf of OpenHarmony writes it as a single string.
            Feature::CMDLINE if endian.u32(section, 0).map(|len| len as usize + 4) == Some(section.len()) => {
                true
            }
            // perf reads it unless it is empty.
            _ => read_unterminated_str(section, endian).is_some_and(|text| !text.is_empty()),
        };
        let codes = || decoded.issues.iter().map(|odd| odd.code).filter(|_| !is_readable);
        let is_implausible = codes().any(|code| !is_plausible(code));
        has_lost_bytes |= is_implausible;
        if is_implausible || codes().any(|code| STOPPED_BY.contains(&code)) {
            found.push(feature);
        } else if codes().next().is_some() || decoded.get("bytes").is_some() {
            suspect.push(feature);
        }
    }
    if has_lost_bytes {
        found.append(&mut suspect);
    }
    found
}
