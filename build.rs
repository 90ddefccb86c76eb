//! Puts the commit into `perfx --version` for release builds made in the repository, and links the debug build so that it
//! starts fast.

use std::path::Path;
use std::process::Command;
use std::{env, fs};

fn main() {
    println!("cargo::rerun-if-changed=build.rs");
    // The tests start the debug build some 100,000 times. At a fixed address, the dynamic linker has nothing to relocate:
    // 1 ms less of 5. A static program relocates itself: with `-no-pie`, it would crash before `main`.
    let is_static =
        env::var("CARGO_CFG_TARGET_FEATURE").is_ok_and(|features| features.contains("crt-static"));
    if env::var("PROFILE").is_ok_and(|profile| profile == "debug")
        && env::var("CARGO_CFG_TARGET_ENV").is_ok_and(|env| env == "gnu")
        && !is_static
    {
        println!("cargo::rustc-link-arg-bins=-no-pie");
    }
    let mut version = env::var("CARGO_PKG_VERSION").unwrap_or_default();
    // Debug builds are frequent, and each new commit would trigger a rebuild.
    if env::var("PROFILE").is_ok_and(|profile| profile == "release")
        && let Some(commit) = commit()
    {
        version += &format!(" ({commit})");
    }
    println!("cargo::rustc-env=PERFX_VERSION={version}");
}

/// The commit checked out in this folder; `None` if the folder is only inside another repository.
fn commit() -> Option<String> {
    let top = git(&["rev-parse", "--show-toplevel"])?;
    let here = env::var_os("CARGO_MANIFEST_DIR")?;
    if fs::canonicalize(top).ok()? != fs::canonicalize(here).ok()? {
        return None;
    }
    // These files change with every commit and checkout.
    for changing in ["HEAD", "logs/HEAD"] {
        let path = git(&["rev-parse", "--git-path", changing])?;
        if Path::new(&path).exists() {
            println!("cargo::rerun-if-changed={path}");
        }
    }
    git(&["rev-parse", "--short=12", "HEAD"])
}

fn git(args: &[&str]) -> Option<String> {
    let out = Command::new("git").args(args).output().ok().filter(|out| out.status.success())?;
    Some(String::from_utf8(out.stdout).ok()?.trim().to_owned())
}
