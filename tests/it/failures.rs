//! A thread that can't start, a file that can't be created, a write that fails: in each case a command writes
//! its whole output, or fails and leaves the old one.

use std::collections::BTreeMap;
use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::sync::OnceLock;

use tempfile::TempDir;

use crate::cli::everything;
use crate::every_pass::{command_of, commands, takes_threads};
use crate::support::{Fixture, Ran, Stdin, Tier, each, perfx_command, root, run, temp};
use crate::tiers;

/// The library that makes a call fail, compiled with the linker's compiler, which every build needs.
fn library() -> &'static Path {
    static LIBRARY: OnceLock<(TempDir, PathBuf)> = OnceLock::new();
    let (_, path) = LIBRARY.get_or_init(|| {
        let folder = temp();
        let path = folder.path().join("fail.so");
        let mut compiler = Command::new("cc");
        compiler.args(["-shared", "-fPIC", "-O1", "-Wall", "-Werror", "-o"]).arg(&path);
        let made = run(compiler.arg(root().join("tests/it/failures/fail.c")), Stdin::Null);
        assert_eq!(made.code, Some(0), "{}", made.stderr);
        (folder, path)
    });
    path
}

/// Runs a command with four threads in a folder with `perf.data` and `other.data`; returns the folder's
/// contents.
fn runs(args: &[String], fail: Option<(&str, usize)>) -> (Ran, BTreeMap<String, Vec<u8>>, bool) {
    let (folder, mark) = (temp(), temp());
    for (fixture, name) in [("lost.p73", "perf.data"), ("switch.p61", "other.data")] {
        let fixture = Fixture::new(&format!("recorded/{fixture}.data"));
        fs::copy(fixture.path, folder.path().join(name)).unwrap();
    }
    let mut command = perfx_command();
    command.current_dir(folder.path()).args(args);
    let mark = mark.path().join("failed");
    if let Some((call, at)) = fail {
        command.env("LD_PRELOAD", library()).env("FAIL_CALL", call).env("FAIL_AT", at.to_string());
        command.env("FAIL_MARK", &mark);
    }
    let ran = run(&mut command, Stdin::Null);
    (ran, everything(folder.path()), mark.exists())
}

/// The commands that write files, as the table of `every_pass.rs` has them, and two that change their input.
fn writers() -> Vec<Vec<String>> {
    let of_table = commands().into_iter().filter(|(_, args)| args.iter().any(|arg| arg == "OUT"));
    let mut writers: Vec<Vec<String>> = Vec::new();
    for (name, args) in of_table.filter(|(name, args)| takes_threads(&command_of(name, args))) {
        let args = args.iter().map(|arg| match arg.as_str() {
            "OUT" => "out",
            "OTHER" => "other.data",
            arg => arg,
        });
        let mut all = vec![name.as_str()];
        all.extend(args);
        all.extend(["-@", "4", "perf.data"]);
        all.extend((name == "merge").then_some("other.data"));
        writers.push(all.into_iter().map(str::to_owned).collect());
    }
    for line in ["sort --in-place -@ 4 perf.data", "reindex --in-place -@ 4 perf.data"] {
        writers.push(line.split(' ').map(str::to_owned).collect());
    }
    writers
}

/// Makes the first `call` fail, then the second, and so on until there is none left.
fn fails_one_after_the_other(tier: Tier, call: &str) {
    let before = runs(&["--version".to_owned()], None).1;
    let check = |args: &Vec<String>| {
        let (whole, after, _) = runs(args, None);
        for at in 1.. {
            let (ran, left, failed) = runs(args, Some((call, at)));
            let done = ran.code == whole.code && left == after && ran.stdout == whole.stdout;
            let failed_whole = ran.code == Some(1) && left == before;
            if !done && !failed_whole {
                let sizes: Vec<_> = left.iter().map(|(name, bytes)| (name, bytes.len())).collect();
                return Err(format!("{call} {at}: {:?}, {sizes:?}, {}", ran.code, ran.stderr));
            }
            if !failed {
                break;
            }
        }
        Ok(())
    };
    // Every seventh: some of each kind.
    let writers: Vec<_> = writers().into_iter().step_by(tier.pick(7, 1)).collect();
    each(&writers, |args| args.join(" "), check);
}

tiers!(a_thread_that_can_not_be_started_loses_nothing);
/// Regression: `reindex` wrote a recording without records, exit code 0, and `sort --in-place` replaced 33.5
/// MB by 456 bytes.
fn a_thread_that_can_not_be_started_loses_nothing(tier: Tier) {
    fails_one_after_the_other(tier, "thread");
}

tiers!(a_file_that_can_not_be_made_loses_nothing);
fn a_file_that_can_not_be_made_loses_nothing(tier: Tier) {
    fails_one_after_the_other(tier, "open");
}

tiers!(a_folder_that_can_not_be_made_loses_nothing);
fn a_folder_that_can_not_be_made_loses_nothing(tier: Tier) {
    fails_one_after_the_other(tier, "folder");
}

tiers!(a_write_that_fails_loses_nothing);
fn a_write_that_fails_loses_nothing(tier: Tier) {
    fails_one_after_the_other(tier, "write");
}
