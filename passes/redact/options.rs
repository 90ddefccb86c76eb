//! The options of `redact`: the categories to keep, and their wording in reports.

use std::sync::Arc;

use clap::{Args, ValueEnum};

/// A category of what can be redacted, or kept.
#[derive(ValueEnum, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
pub enum Category {
    /// The command line that made the recording
    Cmdline,
    /// The name of the machine
    Host,
    /// Paths of files outside the system's folders
    Paths,
    /// Build-ids of these files
    BuildIds,
    /// Devices and inodes of files
    Inodes,
    /// Names of threads
    Comms,
    /// Paths of cgroups
    Cgroups,
    /// Inodes of namespaces
    Namespaces,
    /// Names of events that a user chose, and of probes
    Events,
    /// Raw data of samples
    Raw,
    /// User stacks and registers
    Stacks,
    /// BPF programs
    Bpf,
    /// AUX data
    Aux,
    /// Wall-clock time
    Clock,
    /// Copies of the kernel's memory and symbols beside the records
    Kcore,
    /// Records and features that this version of perfx does not know
    Unknown,
}

impl Category {
    pub(super) fn wording(self) -> Wording {
        let (name, one, many, done) = match self {
            Category::Cmdline => ("cmdline", "word", "words", "replaced"),
            Category::Host => ("host", "name", "names", "replaced"),
            Category::Paths => ("paths", "path", "paths", "replaced"),
            Category::BuildIds => ("build-ids", "id", "ids", "replaced"),
            Category::Inodes => ("inodes", "file", "files", "renumbered"),
            Category::Comms => ("comms", "name", "names", "replaced"),
            Category::Cgroups => ("cgroups", "path", "paths", "replaced"),
            Category::Namespaces => ("namespaces", "namespace", "namespaces", "renumbered"),
            Category::Events => ("events", "name", "names", "replaced"),
            Category::Raw => ("raw", "sample", "samples", "zeroed except for known fields"),
            Category::Stacks => ("stacks", "sample", "samples", "cut"),
            Category::Bpf => ("bpf", "name", "names", "replaced"),
            Category::Aux => ("aux", "sample", "samples", "cut"),
            Category::Clock => ("clock", "feature", "features", "left out"),
            Category::Kcore => ("kcore", "file", "files", "left out"),
            Category::Unknown => ("unknown", "sample", "samples", "cut"),
        };
        Wording { name, one, many, done }
    }
}

pub(super) struct Wording {
    pub(super) name: &'static str,
    pub(super) one: &'static str,
    pub(super) many: &'static str,
    pub(super) done: &'static str,
}

/// The options of `redact`.
#[derive(Args, Clone, Debug, Default)]
pub struct RedactArgs {
    /// Keep these unchanged
    #[arg(long, value_name = "CATEGORY,…", value_delimiter = ',')]
    keep: Vec<Category>,
    /// Secret key of the pseudonyms; with the same key, equal names have equal pseudonyms in several
    /// recordings [default: made from everything that is removed]
    #[arg(long, alias = "seed", value_name = "TEXT")]
    pub(super) key: Option<String>,
}

impl RedactArgs {
    /// True if the user keeps this category.
    pub fn keeps(&self, category: Category) -> bool {
        self.keep.contains(&category)
    }
}

/// The pass.
#[derive(Clone, Debug)]
pub struct Redact {
    pub(super) args: Arc<RedactArgs>,
    pub(super) checks: bool,
    /// Names of files beside the records that the caller omits.
    pub(super) beside: Vec<String>,
}

impl Redact {
    /// The pass with these options.
    pub fn new(args: RedactArgs) -> Redact {
        Redact { args: Arc::new(args), checks: false, beside: Vec::new() }
    }

    /// Reports the revealing data as warnings, instead of the changes.
    #[must_use]
    pub fn checking(self) -> Redact {
        Redact { checks: true, ..self }
    }

    /// Also reports that these files beside the records are omitted.
    #[must_use]
    pub fn leaving_out(self, beside: Vec<String>) -> Redact {
        Redact { beside, ..self }
    }
}
