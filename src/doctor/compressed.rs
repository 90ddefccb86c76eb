//! Checks perf's requirements for a COMPRESSED record besides valid zstd data.

use perfx_format::features::Compressed;
use perfx_format::read::Opened;
use perfx_format::{FaultCode, RecordType, bytes_of, bytes_that};

use crate::finding::{Findings, Location};

/// Checks an expanded piece of a zstd stream. `feature` is feature COMPRESSED, if it could be read.
pub(crate) fn check(opened: &Opened, feature: Option<&Option<Compressed>>, findings: &mut Findings) {
    let Opened { origin, kind, expanded, .. } = *opened;
    let mut add = |code, what: String| {
        findings.add(code, Location { origin: Some(origin), kind: Some(kind), what });
    };
    for odd in &opened.issues {
        add(odd.code.as_str(), odd.what.clone());
    }
    if kind == RecordType::COMPRESSED2 {
        add("kind-newer", "perf 6.1 does not know it".to_owned());
    }
    if expanded == 0 && opened.issues.iter().all(|odd| odd.code != FaultCode::CompressedSize) {
        add("compressed-empty", bytes_that(opened.size, " that expands", " that expand") + " to nothing");
    }
    if opened.frame_inside {
        add("compressed-frames", "a zstd frame ends inside the record and another follows".to_owned());
    }
    match feature {
        Some(None) => add("compressed-feature", "there is no feature COMPRESSED before it".to_owned()),
        // A value of 0 is reported as a fault of the feature.
        Some(Some(feature)) if feature.mmap_len > 0 && expanded > feature.mmap_len.into() => {
            let what =
                format!("expands to {}, more than the {} of mmap_len", bytes_of(expanded), feature.mmap_len);
            add("compressed-large", what);
        }
        _ => {}
    }
}
