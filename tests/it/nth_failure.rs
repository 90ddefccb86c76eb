//! Whichever thread or write fails, the output is complete, or there is none and an old file stays as it was.

use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;

use crate::support::{Fixture, Ran, Stdin, perfx_command, run, temp};

/// Commands that write. IN and OUT are replaced.
const LINES: &[&str] = &[
    "copy -@ 4 IN -o OUT",
    "copy -@ 4 --to pipe IN -o OUT",
    "sort -@ 4 IN -o OUT",
    "sort -@ 4 --in-place OUT",
    "reindex -@ 4 IN -o OUT",
    "reindex -@ 4 --in-place OUT",
    "inject -b --no-files -@ 4 IN -o OUT",
    "inject --buildid-all --no-files -@ 4 IN -o OUT",
    "compress -@ 4 IN -o OUT",
    "compress -@ 4 --in-place OUT",
    "recover -@ 4 IN -o OUT",
    "filter --time 10%-90% -@ 4 IN -o OUT",
    "retime --offset 1000 -@ 4 IN -o OUT",
    "redact -@ 4 --seed 1 IN -o OUT",
    "join -@ 4 IN IN2 -o OUT",
    "run -p sort -p decompress -@ 4 IN -o OUT",
    "export folded -@ 4 IN -o OUT",
    "export csv -@ 4 IN -o OUT",
];

/// The library that lets calls fail; `None` without a C compiler.
fn library(folder: &Path) -> Option<PathBuf> {
    let library = folder.join("fail_nth.so");
    let source = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/it/fail_nth.c");
    let mut cc = Command::new("cc");
    cc.args(["-shared", "-fPIC", "-O1", "-o"]).arg(&library).arg(source).arg("-ldl");
    match cc.status() {
        Ok(status) => assert!(status.success(), "fail_nth.c does not compile"),
        Err(_) => eprintln!("skipped: there is no cc"),
    }
    library.exists().then_some(library)
}

/// A call that fails.
#[derive(Clone, Copy, Debug)]
struct Failure {
    call: &'static str,
    nth: usize,
    onwards: bool,
}

/// A folder in which a command runs again and again.
struct Place {
    folder: tempfile::TempDir,
    library: PathBuf,
    line: &'static str,
}

impl Place {
    /// The output, or all of its files.
    fn output(&self) -> Vec<(PathBuf, Vec<u8>)> {
        let out = self.folder.path().join("OUT");
        let mut files: Vec<_> = match fs::read_dir(&out) {
            Ok(entries) => entries.map(|entry| entry.unwrap().path()).collect(),
            Err(_) => Vec::from([out]),
        };
        files.sort();
        files.into_iter().filter_map(|path| Some((path.clone(), fs::read(path).ok()?))).collect()
    }

    /// Runs the command; returns whether a call failed.
    fn run(&self, failure: Option<Failure>, old: &[u8]) -> (Ran, bool) {
        let folder = self.folder.path();
        let out = folder.join("OUT");
        let _ = fs::remove_file(&out).or_else(|_| fs::remove_dir_all(&out));
        if self.line.contains("--in-place") {
            fs::write(&out, old).unwrap();
        }
        let mark = folder.join("MARK");
        let mut command = perfx_command();
        command.current_dir(folder).args(self.line.split(' ')).env("TMPDIR", folder.join("tmp"));
        if let Some(Failure { call, nth, onwards }) = failure {
            command.env("LD_PRELOAD", &self.library).env("FAIL_CALL", call).env("FAIL_MARK", &mark);
            command.env("FAIL_NTH", nth.to_string());
            if onwards {
                command.env("FAIL_ONWARDS", "1");
            }
        }
        (run(&mut command, Stdin::Null), fs::remove_file(mark).is_ok())
    }

    /// Lets each call fail, alone or with all later ones. Returns the number of calls that can fail.
    fn fail_each(
        &self,
        old: &[u8],
        (call, onwards): (&'static str, bool),
        (sound, new): &(Ran, Vec<(PathBuf, Vec<u8>)>),
    ) -> usize {
        let before: &[(PathBuf, Vec<u8>)] = match self.line.contains("--in-place") {
            true => &[(self.folder.path().join("OUT"), old.to_vec())],
            false => &[],
        };
        for nth in 1..200 {
            let failure = Failure { call, nth, onwards };
            let (ran, failed) = self.run(Some(failure), old);
            let what = format!("{}, {failure:?}: {ran:?}", self.line);
            let output = self.output();
            match ran.code {
                Some(1) => assert!(failed && output == before, "{what}: {} files", output.len()),
                code => {
                    assert!(code == sound.code && output == *new, "{what}: less than all, or nothing said")
                }
            }
            let left: Vec<_> = fs::read_dir(self.folder.path().join("tmp")).unwrap().collect();
            assert!(left.is_empty(), "{what}: left {left:?}");
            if !failed {
                return nth - 1;
            }
        }
        panic!("{}: {call} has no end", self.line);
    }
}

/// A pids limit made `reindex` read no record and write 10 of 77 kB, and `sort --in-place` replace 33 MB by 456 bytes,
/// with exit code 0.
#[test]
fn a_thread_or_write_that_fails_loses_no_record() {
    let input = Fixture::new("recorded/lost.p73.data").bytes();
    let mut writes = 0;
    for line in LINES {
        let folder = temp();
        let Some(library) = library(folder.path()) else { return };
        let place = Place { folder, library, line };
        for name in ["IN", "IN2"] {
            fs::write(place.folder.path().join(name), &input).unwrap();
        }
        fs::create_dir(place.folder.path().join("tmp")).unwrap();
        let sound = place.run(None, &input).0;
        assert!(matches!(sound.code, Some(0 | 3)), "{line}: {sound:?}");
        let expected = (sound, place.output());
        let threads = place.fail_each(&input, ("pthread_create", true), &expected);
        place.fail_each(&input, ("pthread_create", false), &expected);
        writes += place.fail_each(&input, ("write", false), &expected);
        assert!(threads > 2, "{line}: {threads} threads");
    }
    assert!(writes > LINES.len(), "{writes} writes");
}
