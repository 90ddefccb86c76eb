//! The program behaves as Unix tools do: where input comes from and output goes, what is never overwritten, and that a failure leaves nothing.

use std::collections::BTreeMap;
use std::fs::{self, File};
use std::io::{self, Read as _, Write as _};
use std::os::unix::fs::{FileTypeExt as _, MetadataExt as _, PermissionsExt as _, symlink};
use std::path::Path;
use std::process::Stdio;
use std::thread;

use rustix::fs::{CWD, FileType, Mode, mknodat};
use rustix::pty::{OpenptFlags, grantpt, openpt, ptsname, unlockpt};
use tempfile::TempDir;

use crate::args;
use crate::support::{Fixture, Ran, Stdin, crafted, each, each_fixture, perfx_command, run, temp};

const PLAIN: &str = "recorded/plain.p61.data";
const PIPE: &str = "recorded/pipe.p61.data";

/// A folder to work in, with a recording called `perf.data`.
fn place() -> TempDir {
    place_with(&[("perf.data", PLAIN)])
}

fn place_with(files: &[(&str, &str)]) -> TempDir {
    let folder = temp();
    for (name, fixture) in files {
        fs::copy(Fixture::new(fixture).path, folder.path().join(name)).unwrap();
    }
    folder
}

fn perfx_in(folder: &Path, stdin: Stdin<'_>, line: &str) -> Ran {
    run(perfx_command().current_dir(folder).args(line.split_whitespace()), stdin)
}

/// Runs a command line in a folder.
fn perfx(folder: &TempDir, line: &str) -> Ran {
    perfx_in(folder.path(), Stdin::Null, line)
}

fn fifo(path: &Path) {
    mknodat(CWD, path, FileType::Fifo, Mode::RWXU, 0).unwrap();
}

/// Every file below a folder, hidden ones too, with its bytes.
fn everything(folder: &Path) -> BTreeMap<String, Vec<u8>> {
    let mut found = BTreeMap::new();
    for entry in fs::read_dir(folder).unwrap() {
        let path = entry.unwrap().path();
        if path.is_dir() {
            let name = path.file_name().unwrap().to_string_lossy().into_owned();
            let inside = everything(&path);
            found.extend(inside.into_iter().map(|(inner, bytes)| (format!("{name}/{inner}"), bytes)));
        } else {
            let bytes =
                if path.metadata().unwrap().is_file() { fs::read(&path).unwrap() } else { Vec::new() };
            found.insert(path.file_name().unwrap().to_string_lossy().into_owned(), bytes);
        }
    }
    found
}

fn read(folder: &TempDir, name: &str) -> Vec<u8> {
    fs::read(folder.path().join(name)).unwrap()
}

#[test]
fn the_input_is_positional_or_minus_i_or_perf_data() {
    let folder = place_with(&[("perf.data", PLAIN), ("other.data", "recorded/fp.p61.data")]);
    for (line, input) in [
        ("copy other.data", "other.data"),
        ("copy -i other.data", "other.data"),
        ("copy --input other.data", "other.data"),
        ("copy", "perf.data"),
    ] {
        let ran = perfx(&folder, &format!("{line} -f -o out.data"));
        assert_eq!(ran.code, Some(0), "{line}: {}", ran.stderr);
        assert!(read(&folder, "out.data") == read(&folder, input), "{line} reads {input}");
    }
}

#[test]
fn standard_input_is_read_when_asked_for_or_when_it_is_a_pipe() {
    let folder = place();
    let pipe = Fixture::new(PIPE).bytes();
    let dump = perfx_in(folder.path(), Stdin::Pipe(&pipe), "dump");
    assert!(dump.text().starts_with("header\n  form: pipe\n"), "{}", dump.stderr);
    for (stdin, line, form) in [
        (Stdin::Pipe(&pipe), "dump -", "pipe"),
        (Stdin::Pipe(&pipe), "dump -i -", "pipe"),
        (Stdin::File(&folder.path().join("perf.data")), "dump -", "file"),
        // A file on standard input is not what perf takes for asking.
        (Stdin::File(&Fixture::new(PIPE).path), "dump", "file"),
        (Stdin::Pipe(&pipe), "dump perf.data", "file"),
        // A file through a pipe can't be mapped, so it is spooled.
        (Stdin::Pipe(&read(&folder, "perf.data")), "dump", "file"),
    ] {
        let ran = perfx_in(folder.path(), stdin, line);
        assert_eq!(ran.code, Some(0), "{line}: {}", ran.stderr);
        assert!(ran.text().starts_with(&format!("header\n  form: {form}\n")), "{line}: {}", ran.text());
    }
}

#[test]
fn input_and_output_may_be_fifos() {
    let folder = temp();
    let (from, to) = (folder.path().join("from"), folder.path().join("to"));
    fifo(&from);
    fifo(&to);
    let pipe = Fixture::new(PIPE).bytes();
    let got = thread::scope(|scope| {
        scope.spawn(|| fs::write(&from, &pipe).unwrap());
        let reader = scope.spawn(|| fs::read(&to).unwrap());
        let ran = perfx(&folder, "copy from -o to");
        assert_eq!(ran.code, Some(0), "{}", ran.stderr);
        reader.join().unwrap()
    });
    assert!(got == pipe);
    assert!(to.metadata().unwrap().file_type().is_fifo(), "the FIFO is written to, not replaced");
}

#[test]
fn without_a_file_the_output_is_pipe_data_on_standard_output() {
    let folder = place();
    let file = read(&folder, "perf.data");
    perfx(&folder, "copy --to pipe -o expected");
    for line in ["copy", "copy -o -", "copy --output=-", "copy --to pipe"] {
        let ran = perfx(&folder, line);
        assert_eq!(ran.code, Some(0), "{line}: {}", ran.stderr);
        assert!(ran.stdout == read(&folder, "expected"), "{line}");
        assert!(ran.stderr.contains("wrote standard output: "), "{}", ran.stderr);
    }
    // And back: nothing has got lost on the way.
    let back = perfx_in(folder.path(), Stdin::Pipe(&read(&folder, "expected")), "copy -o back.data");
    assert_eq!(back.code, Some(0), "{}", back.stderr);
    assert!(
        perfx(&folder, "dump --only 0,9,10 back.data").text()
            == perfx(&folder, "dump --only 0,9,10 perf.data").text()
    );
    assert!(read(&folder, "perf.data") == file);
}

#[test]
fn an_existing_output_is_left_alone_without_minus_f() {
    let folder = place();
    fs::write(folder.path().join("out.data"), "mine").unwrap();
    for line in ["copy -o out.data", "inject -b -o out.data", "run -p build-ids -o out.data"] {
        let ran = perfx(&folder, line);
        assert_eq!(ran.code, Some(1), "{line}");
        assert!(ran.stderr.contains("out.data exists; -f overwrites it"), "{}", ran.stderr);
        assert_eq!(read(&folder, "out.data"), b"mine");
    }
    for line in ["copy -f -o out.data", "copy --force -o out.data"] {
        assert_eq!(perfx(&folder, line).code, Some(0), "{line}");
        assert!(read(&folder, "out.data") == read(&folder, "perf.data"));
    }
    // Through a link the file it points to is replaced, and the link stays.
    symlink("out.data", folder.path().join("link")).unwrap();
    fs::write(folder.path().join("out.data"), "mine").unwrap();
    assert_eq!(perfx(&folder, "copy -f -o link").code, Some(0));
    assert!(folder.path().join("link").is_symlink());
    assert!(read(&folder, "out.data") == read(&folder, "perf.data"));
}

#[test]
fn the_input_is_never_overwritten_under_any_name() {
    let folder = place();
    let at = |name: &str| folder.path().join(name);
    symlink("perf.data", at("link")).unwrap();
    fs::hard_link(at("perf.data"), at("hard")).unwrap();
    fs::create_dir(at("dir")).unwrap();
    fs::copy(at("perf.data"), at("dir/data")).unwrap();
    fs::create_dir(at("dir/kcore_dir")).unwrap();
    symlink("dir", at("dirlink")).unwrap();
    let before = everything(folder.path());
    for line in [
        "copy -f perf.data -o perf.data",
        "copy -f perf.data -o ./dir/../perf.data",
        "copy -f perf.data -o link",
        "copy -f link -o perf.data",
        "copy -f perf.data -o hard",
        "inject -b -f hard -o link",
        "run -p build-ids -f -o perf.data",
        "copy -f dir -o dir",
        "copy -f dir -o dir/data",
        "copy -f dir -o dirlink",
        "copy -f dir/data -o dir/data",
    ] {
        let ran = perfx(&folder, line);
        assert_eq!(ran.code, Some(1), "{line}: {}", ran.stderr);
        assert!(ran.stderr.contains("is the input itself; --in-place changes it"), "{line}: {}", ran.stderr);
        assert!(everything(folder.path()) == before, "{line}");
    }
    let ran = perfx_in(folder.path(), Stdin::File(&at("perf.data")), "copy - -f -o perf.data");
    assert_eq!(ran.code, Some(1), "{}", ran.stderr);
    assert!(everything(folder.path()) == before);
}

#[test]
fn in_place_changes_the_input_itself_and_nothing_else() {
    for line in
        ["inject -B --no-files --in-place", "inject --buildid-all --no-files --in-place", "copy --in-place"]
    {
        let folder = place();
        let path = folder.path().join("perf.data");
        symlink("perf.data", folder.path().join("link")).unwrap();
        let known = "ab /usr/lib/x86_64-linux-gnu/libc.so.6";
        let mut command = perfx_command();
        command.current_dir(folder.path()).args(line.split(' ')).arg("link");
        if line.starts_with("inject") {
            command.args(["--known-build-ids", known]);
        }
        let before = fs::read(&path).unwrap();
        let ran = run(&mut command, Stdin::Null);
        assert_eq!(ran.code, Some(0), "{line}: {}", ran.stderr);
        assert!(folder.path().join("link").is_symlink(), "{line}");
        assert_eq!(everything(folder.path()).keys().collect::<Vec<_>>(), ["link", "perf.data"], "{line}");
        assert_eq!(fs::read(&path).unwrap() != before, line.starts_with("inject"), "{line}");
        assert_eq!(perfx(&folder, "dump perf.data").code, Some(0), "{line}");
    }
    let folder = place();
    fs::rename(folder.path().join("perf.data"), folder.path().join("data")).unwrap();
    let before = everything(folder.path());
    for line in
        ["copy --in-place -o x", "copy --in-place --to pipe", "copy --in-place -", "copy --in-place ."]
    {
        let ran = perfx_in(folder.path(), Stdin::Pipe(&Fixture::new(PIPE).bytes()), line);
        assert_eq!(ran.code, Some(2), "{line}: {}", ran.stderr);
        assert!(everything(folder.path()) == before, "{line}");
    }
}

#[test]
fn a_failure_leaves_nothing_behind_and_an_old_output_as_it_was() {
    // Damaged at the front, in the middle, at the end; in what is compressed; and a directory.
    let damaged = [
        "crafted/val-bad-magic.data",
        "crafted/val-size-4.data",
        "crafted/val-cut-in-data.data",
        "crafted/val-data-size-0.data",
        "crafted/z-corrupt-block-le.data",
        "crafted/dir-cut.data",
        "crafted/dir-version-2.data",
    ];
    each(
        &damaged,
        |name| (*name).to_owned(),
        |name| {
            let input = Fixture::new(name).path;
            for (command, old) in
                [(&["copy"][..], None), (&["copy"], Some("old")), (&["inject", "-b"], Some("old"))]
            {
                if command[0] == "copy" && name.contains("z-corrupt") {
                    // Nobody has asked to look inside.
                    continue;
                }
                let folder = temp();
                let output = folder.path().join("out.data");
                if let Some(old) = old {
                    fs::write(&output, old).unwrap();
                }
                let before = everything(folder.path());
                let ran =
                    run(perfx_command().args(command).args(args![&input, "-f", "-o", &output]), Stdin::Null);
                if ran.code != Some(1) {
                    return Err(format!("{command:?}: exit code {:?}: {}", ran.code, ran.stderr));
                }
                if everything(folder.path()) != before {
                    return Err(format!("{command:?} leaves something behind: {}", ran.stderr));
                }
            }
            Ok(())
        },
    );
}

#[test]
fn an_input_cut_inside_a_record_while_being_read_from_a_pipe_leaves_no_output() {
    let folder = temp();
    let pipe = Fixture::new(PIPE).bytes();
    let mut broken = pipe.clone();
    let middle = pipe.len() / 2 / 8 * 8;
    broken[middle..].fill(0);
    let ran = perfx_in(folder.path(), Stdin::Pipe(&broken), "inject -b -o out.data");
    assert_eq!(ran.code, Some(1), "{}", ran.stderr);
    assert!(everything(folder.path()).is_empty());
}

#[test]
fn outputs_are_for_their_owner_only() {
    let folder = place();
    let mode = |name: &str| folder.path().join(name).metadata().unwrap().permissions().mode() & 0o7777;
    for to in ["file", "pipe"] {
        assert_eq!(perfx(&folder, &format!("copy --to {to} -o {to}")).code, Some(0));
        assert_eq!(mode(to), 0o600, "{to}");
    }
    fs::write(folder.path().join("old"), "").unwrap();
    fs::set_permissions(folder.path().join("old"), fs::Permissions::from_mode(0o644)).unwrap();
    assert_eq!(perfx(&folder, "copy -f -o old").code, Some(0));
    assert_eq!(mode("old"), 0o600);
    let kcore = Fixture::new("crafted/dir-kcore.data").path;
    let ran =
        run(perfx_command().current_dir(folder.path()).args(args!["copy", &kcore, "-o", "dir"]), Stdin::Null);
    assert_eq!(ran.code, Some(0), "{}", ran.stderr);
    assert_eq!((mode("dir"), mode("dir/data")), (0o700, 0o600));
}

#[test]
fn a_device_is_written_to_and_not_replaced() {
    let folder = place();
    let before = Path::new("/dev/null").metadata().unwrap();
    for line in ["copy -o /dev/null", "inject -b -f -o /dev/null"] {
        let ran = perfx(&folder, line);
        assert_eq!(ran.code, Some(0), "{line}: {}", ran.stderr);
    }
    let after = Path::new("/dev/null").metadata().unwrap();
    assert!(after.file_type().is_char_device());
    assert_eq!(before.ino(), after.ino());
    let ran = perfx(&folder, "copy --to file -o /dev/null");
    assert_eq!(ran.code, Some(2), "{}", ran.stderr);
}

/// A pipe nobody reads from any more.
fn closed_pipe() -> io::PipeWriter {
    io::pipe().unwrap().1
}

#[test]
fn a_closed_pipe_ends_it_quietly() {
    let folder = place();
    for line in [
        "copy",
        "dump",
        "dump --format ndjson",
        "passes",
        "--help",
        "copy --help",
        "run -p build-ids --explain",
    ] {
        let mut command = perfx_command();
        command.current_dir(folder.path()).args(line.split(' '));
        let output = command.stdin(Stdio::null()).stdout(closed_pipe()).output().unwrap();
        assert_eq!(output.status.code(), Some(0), "{line}");
        assert_eq!(String::from_utf8_lossy(&output.stderr), "", "{line}");
    }
}

#[test]
fn standard_error_may_be_closed() {
    let folder = place();
    for (line, code) in
        [("copy -o out.data", 0), ("copy missing.data", 1), ("inject", 2), ("copy --nonsense", 2)]
    {
        let mut command = perfx_command();
        command.current_dir(folder.path()).args(line.split(' '));
        let output = command.stdin(Stdio::null()).stderr(closed_pipe()).output().unwrap();
        assert_eq!(output.status.code(), Some(code), "{line}");
    }
}

#[test]
fn exit_codes_are_done_failed_misunderstood_lossy() {
    let folder = place();
    let kcore = Fixture::new("crafted/dir-kcore.data").path.display().to_string();
    let cut = Fixture::new("recorded/pipe-cut.p61.data").path.display().to_string();
    for (line, code) in [
        ("copy -o a", 0),
        ("dump", 0),
        ("passes", 0),
        ("--version", 0),
        ("--help", 0),
        ("copy missing.data -o b", 1),
        ("dump missing.data", 1),
        ("copy -o missing/b", 1),
        ("", 2),
        ("frobnicate", 2),
        ("copy --frobnicate", 2),
        ("inject perf.data -o b", 2),
        // kcore_dir has no place in pipe data, and a record that is cut is not there.
        (&format!("copy {kcore} --to pipe -o c"), 3),
        (&format!("copy {cut} -o d"), 3),
        (&format!("dump {cut}"), 3),
    ] {
        let ran = perfx(&folder, line);
        assert_eq!(ran.code, Some(code), "{line}: {}", ran.stderr);
        assert!(!ran.stderr.contains("panicked"), "{line}: {}", ran.stderr);
        assert_eq!(
            code == 3,
            ran.stderr.contains("perfx: lost: ") || ran.stderr.contains("perfx: warning: "),
            "{line}"
        );
    }
    assert_eq!(everything(folder.path()).keys().collect::<Vec<_>>(), ["a", "c", "d", "perf.data"]);
}

#[test]
fn quiet_says_only_what_is_lost() {
    let folder = place();
    let cut = Fixture::new("recorded/pipe-cut.p61.data").path.display().to_string();
    assert_eq!(perfx(&folder, "copy -q -o a").stderr, "");
    let ran = perfx(&folder, &format!("copy --quiet {cut} -o b"));
    assert_eq!(ran.code, Some(3));
    assert!(ran.stderr.lines().count() == 1 && ran.stderr.starts_with("perfx: lost: "), "{}", ran.stderr);
}

#[test]
fn a_dry_run_says_what_would_be_done_and_does_nothing() {
    let folder = place();
    let before = everything(folder.path());
    for line in [
        "copy -n -o out.data",
        "copy --dry-run -o perf2.data",
        "inject -b -n --no-files",
        "inject -b -n --in-place --no-files",
    ] {
        let ran = perfx(&folder, line);
        assert_eq!((ran.code, ran.text().as_str()), (Some(0), ""), "{line}: {}", ran.stderr);
        assert!(everything(folder.path()) == before, "{line}");
        assert!(
            ran.stderr.contains("would") || ran.stderr.contains("stays as it is"),
            "{line}: {}",
            ran.stderr
        );
    }
}

/// Runs a command line with a terminal for standard output; what it did, and what the terminal showed.
fn on_a_terminal(folder: &TempDir, stdin: Stdin<'_>, line: &str) -> Ran {
    let terminal = openpt(OpenptFlags::RDWR | OpenptFlags::NOCTTY).unwrap();
    grantpt(&terminal).unwrap();
    unlockpt(&terminal).unwrap();
    let name = ptsname(&terminal, Vec::new()).unwrap().into_string().unwrap();
    let inner = File::options().read(true).write(true).open(name).unwrap();
    let mut command = perfx_command();
    command.current_dir(folder.path()).args(line.split(' ')).stdout(inner).stderr(Stdio::piped());
    command.stdin(if matches!(stdin, Stdin::Null) { Stdio::null() } else { Stdio::piped() });
    let mut child = command.spawn().unwrap();
    // The command holds the other end, and as long as anybody does, reading goes on.
    drop(command);
    if let (Some(mut pipe), Stdin::Pipe(bytes)) = (child.stdin.take(), stdin) {
        pipe.write_all(bytes).unwrap();
    }
    let mut shown = Vec::new();
    // Linux tells the end of a terminal by an error.
    let _ = File::from(terminal).read_to_end(&mut shown);
    let output = child.wait_with_output().unwrap();
    Ran {
        code: output.status.code(),
        stdout: shown,
        stderr: String::from_utf8_lossy(&output.stderr).into_owned(),
    }
}

#[test]
fn a_terminal_never_gets_a_recording_but_a_file_beside_the_input() {
    let folder = place();
    fs::create_dir(folder.path().join("sub")).unwrap();
    fs::copy(folder.path().join("perf.data"), folder.path().join("sub/my.rec.data")).unwrap();
    fs::copy(folder.path().join("perf.data"), folder.path().join("bare")).unwrap();
    for (line, output) in [
        ("copy", "perf.copy.data"),
        ("inject -b --no-files", "perf.inject.data"),
        ("run -p build-ids:no-files", "perf.run.data"),
        ("copy sub/my.rec.data", "sub/my.rec.copy.data"),
        ("copy bare", "bare.copy"),
    ] {
        let ran = on_a_terminal(&folder, Stdin::Null, line);
        assert_eq!((ran.code, ran.text().as_str()), (Some(0), ""), "{line}: {}", ran.stderr);
        assert!(ran.stderr.contains(&format!("wrote {output}: ")), "{line}: {}", ran.stderr);
        assert!(ran.stderr.contains("because standard output is a terminal"), "{line}: {}", ran.stderr);
        assert_eq!(perfx(&folder, &format!("dump {output}")).code, Some(0), "{line}");
        // A second time it is in the way.
        let again = on_a_terminal(&folder, Stdin::Null, line);
        assert_eq!(again.code, Some(1), "{line}: {}", again.stderr);
        assert!(again.stderr.contains("exists; -f overwrites it"), "{line}: {}", again.stderr);
    }
    let before = everything(folder.path());
    let refused = on_a_terminal(&folder, Stdin::Null, "copy -o -");
    assert_eq!((refused.code, refused.text().as_str()), (Some(2), ""), "{}", refused.stderr);
    assert!(everything(folder.path()) == before);
    let piped = on_a_terminal(&folder, Stdin::Pipe(&Fixture::new(PIPE).bytes()), "copy -f");
    assert_eq!((piped.code, piped.text().as_str()), (Some(0), ""), "{}", piped.stderr);
    assert!(
        piped.stderr.contains("wrote perf.copy.data: ") || piped.stderr.contains("/perf.copy.data: "),
        "{}",
        piped.stderr
    );
    // Text may go there.
    assert!(on_a_terminal(&folder, Stdin::Null, "dump").text().starts_with("header"));
}

#[test]
fn nothing_of_this_machine_gets_into_an_output() {
    let kernel =
        |name: &str| fs::read_to_string(format!("/proc/sys/kernel/{name}")).unwrap().trim().to_owned();
    let secrets =
        [kernel("hostname"), kernel("osrelease"), std::env::current_dir().unwrap().display().to_string()];
    let holds = |bytes: &[u8], text: &str| bytes.windows(text.len()).any(|window| window == text.as_bytes());
    let made: Vec<_> =
        crafted().into_iter().filter(|f| f.path.is_file() && f.bytes().len() < 16 << 10).collect();
    each_fixture(&made, |fixture| {
        let input = fixture.bytes();
        for command in [
            &["copy", "--to", "pipe"][..],
            &["copy", "--to", "file"],
            &["inject", "-b"],
            &["inject", "--mmap2-buildid-all"],
        ] {
            let folder = temp();
            let output = folder.path().join("out");
            let ran =
                run(perfx_command().args(command).args(args![&fixture.path, "-o", &output]), Stdin::Null);
            let Ok(output) = fs::read(&output) else {
                // What can't be read is refused, and other tests tell why.
                if ran.code == Some(1) { continue } else { return Err(ran.stderr) }
            };
            for secret in secrets.iter().filter(|secret| !holds(&input, secret)) {
                if holds(&output, secret) {
                    return Err(format!("{command:?} wrote {secret}"));
                }
            }
        }
        Ok(())
    });
}
