//! Checks the options of `jit` before the pass starts.

use std::path::PathBuf;

use clap::ValueEnum;
use perfx_pipeline::{Context as _, Result, ensure};

use perfx_resolve::Places;

/// The options of the pass, checked.
#[derive(Clone, Debug)]
pub struct JitOptions {
    pub(super) output: PathBuf,
    pub(super) layout: JitLayout,
    pub(super) places: Places,
    pub(super) perf_maps: bool,
    pub(super) cache: Option<PathBuf>,
}

/// Which functions go into one image.
#[derive(ValueEnum, Clone, Copy, PartialEq, Eq, Default, Debug)]
pub enum JitLayout {
    /// All functions that are close together in memory
    #[default]
    Arena,
    /// One function, as in perf inject
    Function,
}

impl JitOptions {
    /// Checks the options. Images go into the folder `output`. Dumps are searched for in `folders`, by their
    /// name alone, then below `roots`, which replace the recorded machine's `/`, and then at their recorded
    /// paths, if the recording is provably of this machine and `foreign` is not set.
    ///
    /// # Errors
    ///
    /// One of the `folders` or `roots` does not exist or is not a directory.
    pub fn new(
        output: PathBuf,
        layout: JitLayout,
        folders: Vec<PathBuf>,
        roots: Vec<PathBuf>,
        foreign: bool,
    ) -> Result<JitOptions> {
        for folder in folders.iter().chain(&roots) {
            let there = std::fs::metadata(folder).with_context(|| folder.display().to_string())?;
            ensure!(there.is_dir(), "{} is not a directory", folder.display());
        }
        let places = Places::new(folders, roots, foreign);
        Ok(JitOptions { output, layout, places, perf_maps: false, cache: None })
    }

    /// Also names code of processes without a jitdump by perf maps (`perf-PID.map`), searched for like dumps.
    #[must_use]
    pub fn with_perf_maps(self, perf_maps: bool) -> JitOptions {
        JitOptions { perf_maps, ..self }
    }

    /// Also puts the images into this build-id cache of perf.
    #[must_use]
    pub fn with_cache(self, cache: Option<PathBuf>) -> JitOptions {
        JitOptions { cache, ..self }
    }
}
