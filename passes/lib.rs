//! The transformations of perfx: one file each, and this registry, one line each.

mod build_ids;
mod compress;
mod decompress;
mod filter;
mod join;
mod merge;
mod mmap2_build_ids;
mod recover;
mod reindex;
mod repair;
mod support;

use anyhow::{Context as _, Result, bail};
use perfx_pipeline::{Pass, did_you_mean};

pub use build_ids::{BuildIds, BuildIdsOptions};
pub use compress::{Compress, CompressOptions};
pub use decompress::{Decompress, DecompressOptions};
pub use filter::{Filter, FilterOptions, Part, PartName, Split, SplitBy};
pub use join::{IN_ORDER, InputSpec, Join, JoinOptions, Joined, in_time_order};
pub use merge::{GuestSpec, KCORE_DIR, Merge, MergeOptions};
pub use mmap2_build_ids::{Mmap2BuildIds, Mmap2BuildIdsOptions};
pub use recover::Recover;
pub use reindex::{ReindexAux, ReindexBuildIds, ReindexIds, ReindexTimes};
pub use repair::{Mend, Repair};
pub use support::hits::Guests;
pub use support::ids::{IdOptions, RecordedIds, can_have_id, dso_name, object_of, recorded_on};
pub use support::options::{Choice, Options};

/// A pass that can be asked for by name.
#[derive(Debug)]
pub struct Entry {
    /// The name.
    pub name: &'static str,
    /// What it does, in one sentence.
    pub about: &'static str,
    /// Its options.
    pub options: &'static [Choice],
    /// Options it is tested with, as `perfx run -p` writes them; `recorded/NAME` is a recording of tests/data.
    pub examples: &'static [&'static str],
    /// Makes one. An error is a mistake in the options.
    pub make: fn(&Options) -> Result<Box<dyn Pass>>,
}

/// Every pass there is.
pub const REGISTRY: &[Entry] = &[
    Entry {
        name: "build-ids",
        about: BuildIds::ABOUT,
        options: BuildIds::OPTIONS,
        examples: &[
            "no-files",
            r"all:no-files:known=b0 /tmp/perfx-data/work/burn\,ab [kernel.kallsyms]\,fe /usr/bin/init",
            r"all:feature-only:no-files:known=0123456789abcdef [vdso]\,77 /bin/a",
        ],
        make: BuildIds::make,
    },
    Entry {
        name: "compress",
        about: Compress::ABOUT,
        options: Compress::OPTIONS,
        examples: &["", "level=19:compressed2", "solid:rounds:ratio"],
        make: Compress::make,
    },
    Entry {
        name: "decompress",
        about: Decompress::ABOUT,
        options: Decompress::OPTIONS,
        examples: &["", "salvage"],
        make: Decompress::make,
    },
    Entry {
        name: "filter",
        about: Filter::ABOUT,
        options: Filter::OPTIONS,
        examples: &[
            "time=20%-60%",
            r"time=+1ms\,",
            "pid=100:keep-all-sideband",
            "exclude-comm=a.*:drop-unused",
            "dso=.*lib.*:exclude-cpu=1",
            "event=.*clock.*:drop-unused",
            "machine=host:exclude-cgroup=/.*",
            "kind=SAMPLE:exclude-kind=EXIT:drop-unused",
        ],
        make: Filter::make,
    },
    Entry {
        name: "join",
        about: Join::ABOUT,
        options: Join::OPTIONS,
        examples: &[
            "with=recorded/switch.p61.data:mix",
            r"with=recorded/switch.p61.data\,offset=-5:offset=7:mix",
        ],
        make: Join::make,
    },
    Entry {
        name: "merge",
        about: Merge::ABOUT,
        options: Merge::OPTIONS,
        examples: &[
            r"guest=recorded/switch.p61.data\,pid=77\,offset=-1000000\,scale=1\,vcpu=0\:31314\,vcpu=1\:31315\,vcpu=2\:31316\,vcpu=3\:31317\,vcpu=4\:31318\,vcpu=5\:31319\,vcpu=6\:31320\,vcpu=7\:31321:samples:all",
        ],
        make: Merge::make,
    },
    Entry {
        name: "mmap2-build-ids",
        about: Mmap2BuildIds::ABOUT,
        options: Mmap2BuildIds::OPTIONS,
        examples: &[
            "no-files",
            r"hit:no-files:known=b0 /tmp/perfx-data/work/burn\,ab [kernel.kallsyms]\,fe /usr/bin/init",
        ],
        make: Mmap2BuildIds::make,
    },
    Entry {
        name: "recover",
        about: Recover::ABOUT,
        options: Recover::OPTIONS,
        examples: &["", "guess"],
        make: Recover::make,
    },
    Entry {
        name: "reindex-aux",
        about: ReindexAux::ABOUT,
        options: ReindexAux::OPTIONS,
        examples: &["", "add"],
        make: ReindexAux::make,
    },
    Entry {
        name: "reindex-build-ids",
        about: ReindexBuildIds::ABOUT,
        options: ReindexBuildIds::OPTIONS,
        examples: &["", "add"],
        make: ReindexBuildIds::make,
    },
    Entry {
        name: "reindex-ids",
        about: ReindexIds::ABOUT,
        options: &[],
        examples: &[""],
        make: ReindexIds::make,
    },
    Entry {
        name: "reindex-times",
        about: ReindexTimes::ABOUT,
        options: ReindexTimes::OPTIONS,
        examples: &["", "add"],
        make: ReindexTimes::make,
    },
    Entry {
        name: "repair",
        about: Repair::ABOUT,
        options: Repair::OPTIONS,
        examples: &["", "size-unaligned:string-unterminated"],
        make: Repair::make,
    },
    Entry { name: "sort", about: Join::SORT_ABOUT, options: &[], examples: &[""], make: Join::make_sort },
];

/// The passes of a chain: `NAME[:OPTION[=VALUE]]…[,NAME…]`. In a value, `\` keeps the next character (`,`, `:` or `\`) from ending it.
pub fn parse_chain(text: &str) -> Result<Vec<Box<dyn Pass>>> {
    let mut passes = Vec::new();
    for link in support::options::split(text, ',') {
        let mut parts = support::options::split(&link, ':').into_iter();
        let name = parts.next().unwrap_or_default();
        let Some(entry) = REGISTRY.iter().find(|entry| entry.name == name) else {
            let names: Vec<_> = REGISTRY.iter().map(|entry| entry.name).collect();
            let meant = did_you_mean(&name, &names);
            bail!("unknown pass `{name}`; available: {}{meant}", names.join(", "));
        };
        let options = Options::parse(parts, entry.options).with_context(|| format!("pass {name}"))?;
        passes.push((entry.make)(&options).with_context(|| format!("pass {name}"))?);
    }
    Ok(passes)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_pass_can_be_made_without_options_and_knows_its_name() {
        for entry in REGISTRY {
            let passes = parse_chain(entry.name).unwrap();
            assert_eq!(passes[0].name(), entry.name);
        }
    }

    #[test]
    fn an_unknown_pass_or_option_is_named() {
        let error = parse_chain("build-idz").err().unwrap().to_string();
        assert!(error.contains("`build-idz`") && error.contains("did you mean `build-ids`?"), "{error}");
        let error = format!("{:#}", parse_chain("build-ids:al").err().unwrap());
        assert!(error.contains("`al`") && error.contains("all"), "{error}");
    }
}
