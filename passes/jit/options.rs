//! What the user of `jit` can choose.

use std::path::PathBuf;

use anyhow::{Context as _, Result, ensure};
use clap::ValueEnum;

use super::dumps::Places;

/// What the user chose.
#[derive(Clone, Debug)]
pub struct JitOptions {
    pub(super) output: PathBuf,
    pub(super) layout: JitLayout,
    pub(super) places: Places,
}

/// Which functions go into one image.
#[derive(ValueEnum, Clone, Copy, PartialEq, Eq, Default, Debug)]
pub enum JitLayout {
    /// All that lie near together in memory
    #[default]
    Arena,
    /// One function, as perf inject has it
    Function,
}

impl JitOptions {
    /// Images go into the folder `output`. Dumps are looked for in `folders`, by their name alone, then below `roots`, each of which stands for `/` of the
    /// recorded machine, and unless `no_files` where they were recorded. Errors on folders that do not exist.
    pub fn new(
        output: PathBuf,
        layout: JitLayout,
        folders: Vec<PathBuf>,
        roots: Vec<PathBuf>,
        no_files: bool,
    ) -> Result<JitOptions> {
        for folder in folders.iter().chain(&roots) {
            let there = std::fs::metadata(folder).with_context(|| folder.display().to_string())?;
            ensure!(there.is_dir(), "{} is not a directory", folder.display());
        }
        Ok(JitOptions { output, layout, places: Places { folders, roots, no_files } })
    }
}
