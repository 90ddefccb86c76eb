//! Finds files by build-id in the cache of debuginfod's clients, and can download them (`debuginfod-find`).
//!
//! Rejected: an HTTP client of our own, which would bring TLS and would not know the settings of
//! debuginfod-client-config(7) that the program knows.

use std::env;
use std::ffi::OsString;
use std::fs;
use std::io;
use std::os::unix::ffi::{OsStrExt as _, OsStringExt as _};
use std::path::PathBuf;
use std::process::{Command, Stdio};

use build_id::BuildId;

#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Artifact {
    Executable,
    DebugInfo,
}

impl Artifact {
    fn name(self) -> &'static str {
        match self {
            Artifact::Executable => "executable",
            Artifact::DebugInfo => "debuginfo",
        }
    }
}

/// The cache of debuginfod's clients, and the program that fills it.
#[derive(Clone, Debug)]
pub struct Debuginfod {
    cache: Option<PathBuf>,
    client: Option<Client>,
}

#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum Client {
    Elfutils,
    Llvm,
}

impl Client {
    fn program(self) -> &'static str {
        match self {
            Client::Elfutils => "debuginfod-find",
            Client::Llvm => "llvm-debuginfod-find",
        }
    }

    fn is_installed(self) -> bool {
        let path = env::var_os("PATH").unwrap_or_default();
        env::split_paths(&path).any(|folder| folder.join(self.program()).is_file())
    }

    fn download(self, hex: &str, artifact: Artifact) -> Option<PathBuf> {
        let mut command = Command::new(self.program());
        match self {
            Client::Elfutils => command.args([artifact.name(), hex]),
            Client::Llvm => command.args([&format!("--{}", artifact.name()), hex]),
        };
        let output = command.stdin(Stdio::null()).stderr(Stdio::null()).output().ok()?;
        let path = output.stdout.trim_ascii_end();
        (output.status.success() && !path.is_empty()).then(|| OsString::from_vec(path.to_vec()).into())
    }
}

impl Debuginfod {
    /// The cache that the environment names (debuginfod-client-config(7)): `DEBUGINFOD_CACHE_PATH`, else
    /// `~/.debuginfod_client_cache` if it exists, else `debuginfod_client` in `XDG_CACHE_HOME` or `~/.cache`.
    pub fn cache() -> Debuginfod {
        let set = |name| env::var_os(name).filter(|value| !value.is_empty()).map(PathBuf::from);
        let home = build_id::home();
        let old =
            || home.as_ref().map(|home| home.join(".debuginfod_client_cache")).filter(|old| old.is_dir());
        let caches = || set("XDG_CACHE_HOME").or(home.as_ref().map(|home| home.join(".cache")));
        let cache = set("DEBUGINFOD_CACHE_PATH").or_else(old);
        let cache = cache.or_else(|| Some(caches()?.join("debuginfod_client")));
        Debuginfod { cache, client: None }
    }

    /// Like [`Debuginfod::cache`]; missing files are downloaded from the servers in `DEBUGINFOD_URLS`.
    ///
    /// # Errors
    ///
    /// The variable is not set, or no client is installed.
    pub fn download() -> io::Result<Debuginfod> {
        if env::var_os("DEBUGINFOD_URLS").is_none_or(|urls| urls.as_bytes().trim_ascii().is_empty()) {
            return Err(io::Error::other("DEBUGINFOD_URLS is not set, so there is no server to ask"));
        }
        let client = [Client::Elfutils, Client::Llvm].into_iter().find(|client| client.is_installed());
        let missing =
            || io::Error::other("debuginfod-find is not installed (package debuginfod or elfutils)");
        Ok(Debuginfod { client: Some(client.ok_or_else(missing)?), ..Debuginfod::cache() })
    }

    pub(crate) fn find(&self, id: BuildId, artifact: Artifact) -> Option<PathBuf> {
        let in_cache = |cache: &PathBuf| {
            let mut files = id.spellings().map(|hex| cache.join(hex).join(artifact.name()));
            // An empty file means that no server had it.
            files.find(|file| fs::metadata(file).is_ok_and(|file| file.is_file() && file.len() > 0))
        };
        let cached = self.cache.as_ref().and_then(in_cache);
        cached.or_else(|| self.client?.download(&id.spellings().next()?, artifact))
    }
}
