//! The transformations of perfx, one file for each, and their registry, one line for each.

mod aslr;
mod build_ids;
mod combine;
mod compress;
mod convert_callchain;
mod decompress;
mod filter;
mod itrace;
mod jit;
mod join;
mod merge;
mod mmap2_build_ids;
mod normalize;
mod off_cpu;
mod recover;
mod redact;
mod reindex;
mod remap;
mod repair;
mod retime;
mod sched_stat;
mod scrub;
mod sort;
mod strip;
mod support;
mod thin;

use perfx_filter::FilterArgs;
use perfx_pipeline::{Context as _, Pass, Result, bail, did_you_mean};

pub use aslr::Aslr;
pub use build_ids::{BuildIds, BuildIdsArgs, BuildIdsOptions};
pub use combine::spec::InputSpec;
pub use combine::{Combine, CombineOptions, IN_ORDER, Joined, in_time_order};
pub use compress::{Compress, CompressOptions};
pub use convert_callchain::{ConvertCallchain, ConvertCallchainArgs};
pub use decompress::{Decompress, DecompressOptions};
pub use itrace::{Apart, DecodedTrace, Extras, Itrace, ItraceArgs, TraceProgress};
pub use jit::{Jit, JitArgs, JitLayout, JitOptions};
pub use join::{JoinArgs, join};
pub use merge::{GuestSpec, Merge, MergeArgs, MergeOptions, MoreKinds};
pub use mmap2_build_ids::{Mmap2BuildIds, Mmap2BuildIdsArgs, Mmap2BuildIdsOptions};
pub use normalize::NormalizeArgs;
pub use off_cpu::OffCpu;
pub use perfx_resolve::{IdArgs, IdOptions, SymbolArgs};
pub use perfx_unwind::{Kept, StacksNeeded};
pub use recover::{Recover, RecoverOptions};
pub use redact::{Category, Redact, RedactArgs};
pub use reindex::{ReindexAux, ReindexBuildIds, ReindexIds, ReindexTimes};
pub use remap::RemapArgs;
pub use repair::{Fault, Repair, RepairOptions};
pub use retime::Retime;
pub use sched_stat::{SchedStatArgs, sched_stat};
pub use sort::{SortArgs, sort};
pub use strip::{Strip, StripArgs};
pub use support::options::{PassCommand, PassOptions, PassSpec};
pub use thin::ThinArgs;

/// All passes.
///
/// ```
/// use perfx_passes::{REGISTRY, parse_chain};
///
/// assert!(REGISTRY.iter().any(|spec| spec.name == "filter"));
/// let passes = parse_chain("decompress,filter:pid=42")?;
/// assert_eq!(passes[1].name(), "filter");
/// # Ok::<(), perfx_pipeline::Error>(())
/// ```
pub const REGISTRY: &[PassSpec] = &[
    PassSpec::of::<Aslr>(),
    PassSpec::of::<BuildIdsArgs>(),
    PassSpec::of::<CompressOptions>(),
    PassSpec::of::<ConvertCallchainArgs>(),
    PassSpec::of::<DecompressOptions>(),
    PassSpec::of::<FilterArgs>(),
    PassSpec::of::<ItraceArgs>(),
    PassSpec::of::<JitArgs>(),
    PassSpec::of::<JoinArgs>(),
    PassSpec::of::<MergeArgs>(),
    PassSpec::of::<Mmap2BuildIdsArgs>(),
    PassSpec::of::<NormalizeArgs>(),
    PassSpec::of::<OffCpu>(),
    PassSpec::of::<RecoverOptions>(),
    PassSpec::of::<RedactArgs>(),
    PassSpec::of::<ReindexAux>(),
    PassSpec::of::<ReindexBuildIds>(),
    PassSpec::of::<ReindexIds>(),
    PassSpec::of::<ReindexTimes>(),
    PassSpec::of::<RemapArgs>(),
    PassSpec::of::<RepairOptions>(),
    PassSpec::of::<Retime>(),
    PassSpec::of::<SchedStatArgs>(),
    PassSpec::of::<SortArgs>(),
    PassSpec::of::<StripArgs>(),
    PassSpec::of::<ThinArgs>(),
];

/// Parses a chain of passes: `NAME[:OPTION[=VALUE]]…[,NAME…]`. In a value, `\` escapes the next character
/// (`,`, `:` or `\`).
///
/// # Errors
///
/// There is no pass of that name, or an option or value is wrong.
pub fn parse_chain(text: &str) -> Result<Vec<Box<dyn Pass>>> {
    parse_chain_of(REGISTRY, text)
}

/// Parses a chain of passes that may come from other packages, as [`parse_chain`] does.
///
/// # Errors
///
/// There is no pass of that name, or an option or value is wrong.
pub fn parse_chain_of(registry: &[PassSpec], text: &str) -> Result<Vec<Box<dyn Pass>>> {
    let mut passes = Vec::new();
    for link in support::options::split(text, ',') {
        let mut parts = support::options::split(&link, ':').into_iter();
        let name = parts.next().unwrap_or_default();
        let Some(spec) = registry.iter().find(|spec| spec.name == name) else {
            let names: Vec<_> = registry.iter().map(|spec| spec.name).collect();
            let meant = did_you_mean(&name, &names);
            bail!("unknown pass `{name}`; available: {}{meant}", names.join(", "));
        };
        passes.push(spec.parse(parts).with_context(|| format!("pass {name}"))?);
    }
    Ok(passes)
}

/// Compiles the examples of the README.
#[cfg(doctest)]
#[doc = include_str!("README.md")]
pub struct Readme;

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_pass_can_be_made_without_options_and_knows_its_name() {
        for spec in REGISTRY {
            let passes = parse_chain(spec.name).unwrap();
            assert_eq!(passes[0].name(), spec.name);
            spec.options().debug_assert();
        }
    }

    #[test]
    fn an_unknown_pass_or_option_is_named() {
        let error = parse_chain("build-idz").err().unwrap().to_string();
        assert!(error.contains("`build-idz`") && error.contains("did you mean `build-ids`?"), "{error}");
        let error = parse_chain("build-ids:al").err().unwrap().to_string();
        assert!(error.contains("`al`") && error.contains("all"), "{error}");
    }
}
