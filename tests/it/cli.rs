//! The program behaves like other Unix tools: sources of input and destinations of output, files that are
//! never overwritten, and nothing left after a failure.

use std::collections::BTreeMap;
use std::fs::{self, File};
use std::io::{self, Read as _, Write as _};
use std::os::fd::OwnedFd;
use std::os::unix::fs::{FileTypeExt as _, MetadataExt as _, PermissionsExt as _, symlink};
use std::os::unix::net::UnixStream;
use std::os::unix::process::ExitStatusExt as _;
use std::path::Path;
use std::process::{Child, Command, Stdio};
use std::thread;

use rustix::fs::{CWD, FileType, Mode, mknodat};
use tempfile::TempDir;

use crate::snapshots::words;
use crate::support::{
    Fixture, Ran, Stdin, Tier, clean, crafted, each, each_fixture, holds, is_ignored, perfx_command, run,
    temp,
};
use crate::{args, tiers};

const PLAIN: &str = "recorded/plain.p61.data";
pub(crate) const PIPE: &str = "recorded/pipe.p61.data";

/// A working folder with a recording called `perf.data`.
pub(crate) fn place() -> TempDir {
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
    run(perfx_command().current_dir(folder).args(words(line)), stdin)
}

/// The path of a fixture for a command line.
fn quoted(fixture: &str) -> String {
    format!("'{}'", Fixture::new(fixture).path.display())
}

/// Runs a command line in a folder.
pub(crate) fn perfx(folder: &TempDir, line: &str) -> Ran {
    perfx_in(folder.path(), Stdin::Null, line)
}

fn fifo(path: &Path) {
    mknodat(CWD, path, FileType::Fifo, Mode::RWXU, 0).unwrap();
}

/// Every file below a folder, hidden ones included, with its bytes.
pub(crate) fn everything(folder: &Path) -> BTreeMap<String, Vec<u8>> {
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

/// Regression: `--no-files` did not name the machine, nor `--seed` that it is a secret.
#[test]
fn old_names_of_options_still_work() {
    let folder = place();
    for (new, old) in [
        ("list functions --foreign", "list functions --no-files"),
        ("inject -b --foreign", "inject -b --no-files"),
        ("run -p build-ids:foreign", "run -p build-ids:no-files"),
        ("run -p jit:foreign:output=images", "run -p jit:no-files:output=images"),
        ("redact --key a", "redact --seed a"),
        ("inject --aslr --key a", "inject --aslr --seed a"),
        ("run -p redact:key=a,aslr:key=a", "run -p redact:seed=a,aslr:seed=a"),
    ] {
        let [new, old] = [new, old].map(|line| perfx(&folder, line));
        assert!(matches!(new.code, Some(0 | 3)), "{}", new.stderr);
        assert_eq!((old.code, old.stdout, old.stderr), (new.code, new.stdout, new.stderr));
    }
}

#[test]
fn standard_input_is_read_when_asked_for_or_when_something_can_be_read_there() {
    let folder = place();
    let pipe = Fixture::new(PIPE).bytes();
    let dump = perfx_in(folder.path(), Stdin::Pipe(&pipe), "dump");
    assert!(dump.text().starts_with("header\n  form: pipe\n"), "{}", dump.stderr);
    for (stdin, line, form) in [
        (Stdin::Pipe(&pipe), "dump -", "pipe"),
        (Stdin::Pipe(&pipe), "dump -i -", "pipe"),
        (Stdin::File(&folder.path().join("perf.data")), "dump -", "file"),
        // `perfx dump < other.data` reads other.data, although perf would read ./perf.data.
        (Stdin::File(&Fixture::new(PIPE).path), "dump", "pipe"),
        (Stdin::File(&Fixture::new(PIPE).path), "dump perf.data", "file"),
        // As under cron or in CI.
        (Stdin::Null, "dump", "file"),
        (Stdin::Pipe(&pipe), "dump perf.data", "file"),
        // A file that comes through a pipe cannot be mapped, so it is spooled.
        (Stdin::Pipe(&read(&folder, "perf.data")), "dump", "file"),
    ] {
        let ran = perfx_in(folder.path(), stdin, line);
        assert_eq!(ran.code, Some(0), "{line}: {}", ran.stderr);
        assert!(ran.text().starts_with(&format!("header\n  form: {form}\n")), "{line}: {}", ran.text());
    }
}

/// Node's spawn and Python's socketpair give a program a socket as standard input; a shell's `<&-` gives it
/// none.
#[test]
fn a_socket_is_read_and_a_closed_standard_input_is_not() {
    let folder = place();
    let pipe = Fixture::new(PIPE).bytes();
    let (mut ours, theirs) = UnixStream::pair().unwrap();
    let mut command = perfx_command();
    command.current_dir(folder.path()).arg("dump").stdin(OwnedFd::from(theirs)).stdout(Stdio::piped());
    let child = command.spawn().unwrap();
    // The command holds the other end.
    drop(command);
    ours.write_all(&pipe).unwrap();
    drop(ours);
    let output = child.wait_with_output().unwrap();
    assert!(
        output.stdout.starts_with(b"header\n  form: pipe\n"),
        "{}",
        String::from_utf8_lossy(&output.stdout)
    );
    let mut command = Command::new("sh");
    command.args(["-c", "exec \"$0\" dump <&-"]).arg(perfx_command().get_program());
    let ran = run(command.current_dir(folder.path()), Stdin::Null);
    assert!(ran.text().starts_with("header\n  form: file\n"), "{}", ran.stderr);
}

/// `while read name; do perfx dump "$name"; done < list`: the list belongs to the loop.
#[test]
fn standard_input_is_not_touched_where_an_input_is_given() {
    let folder = place();
    fs::write(folder.path().join("list"), "perf.data\nperf.data\nperf.data\n").unwrap();
    let mut command = Command::new("sh");
    let lines = "while read name; do \"$0\" copy -q \"$name\" -f -o out && echo done; done < list";
    command.args(["-c", lines]).arg(perfx_command().get_program());
    let ran = run(command.current_dir(folder.path()), Stdin::Null);
    assert_eq!((ran.text().as_str(), ran.stderr.as_str()), ("done\ndone\ndone\n", ""));
}

#[test]
fn a_fifo_that_is_given_twice_is_refused() {
    let folder = place();
    fifo(&folder.path().join("from"));
    symlink("from", folder.path().join("link")).unwrap();
    for line in [
        "join from from -o out",
        "join from link,offset=5 -o out",
        "diff from from",
        "doctor from perf.data link",
        "merge from from,1 -o out",
    ] {
        let ran = perfx(&folder, line);
        assert_eq!(ran.code, Some(2), "{line}: {}", ran.stderr);
        assert!(
            ran.stderr.contains("is given twice, but it can be read only once"),
            "{line}: {}",
            ran.stderr
        );
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
        assert!(ran.stderr.contains(" to standard output\n"), "{}", ran.stderr);
    }
    // And back: nothing was lost on the way.
    let back = perfx_in(folder.path(), Stdin::Pipe(&read(&folder, "expected")), "copy -o back.data");
    assert_eq!(back.code, Some(0), "{}", back.stderr);
    assert!(
        perfx(&folder, "dump --only 0,9,10 back.data").text()
            == perfx(&folder, "dump --only 0,9,10 perf.data").text()
    );
    assert!(read(&folder, "perf.data") == file);
}

#[test]
fn an_existing_output_is_not_overwritten_without_minus_f() {
    let folder = place();
    fs::write(folder.path().join("out.data"), "mine").unwrap();
    for line in ["copy -o out.data", "inject -b -o out.data", "run -p build-ids -o out.data"] {
        let ran = perfx(&folder, line);
        assert_eq!(ran.code, Some(1), "{line}");
        assert!(
            ran.stderr.contains("out.data exists; -f overwrites it, --backup keeps it as out.data.old"),
            "{}",
            ran.stderr
        );
        assert_eq!(read(&folder, "out.data"), b"mine");
    }
    for line in ["copy -f -o out.data", "copy --force -o out.data"] {
        assert_eq!(perfx(&folder, line).code, Some(0), "{line}");
        assert!(read(&folder, "out.data") == read(&folder, "perf.data"));
    }
    // For a link, the file it points to is replaced, and the link stays.
    symlink("out.data", folder.path().join("link")).unwrap();
    fs::write(folder.path().join("out.data"), "mine").unwrap();
    assert_eq!(perfx(&folder, "copy -f -o link").code, Some(0));
    assert!(folder.path().join("link").is_symlink());
    assert!(read(&folder, "out.data") == read(&folder, "perf.data"));
}

/// Regression: it was replaced without a report, although `-f` was not given.
#[test]
fn an_output_created_meanwhile_is_not_overwritten() {
    for line in ["copy from -o new", "export csv from -o tables"] {
        let mut waiting = Waiting::new("", line);
        let at = |name: &str| waiting.folder.path().join(name);
        fs::write(at("new"), "theirs").unwrap();
        fs::create_dir(at("tables")).unwrap();
        fs::write(at("tables/results.csv"), "theirs").unwrap();
        let before = everything(waiting.folder.path());
        waiting.fifo.write_all(&waiting.rest).unwrap();
        drop(waiting.fifo);
        let output = waiting.child.wait_with_output().unwrap();
        let said = String::from_utf8_lossy(&output.stderr);
        assert_eq!(output.status.code(), Some(1), "{line}: {said}");
        assert!(said.contains("another program has created it, so it was not overwritten"), "{line}: {said}");
        assert!(everything(waiting.folder.path()) == before, "{line}");
    }
}

#[test]
fn of_several_writers_of_one_name_one_wins_and_the_others_say_so() {
    let folder = temp();
    let names: Vec<String> = (0..4).map(|number| format!("from{number}")).collect();
    for before in [None, Some("")] {
        let out = folder.path().join("out");
        names.iter().for_each(|name| drop(fs::remove_file(folder.path().join(name))));
        names.iter().for_each(|name| fifo(&folder.path().join(name)));
        let _ = fs::remove_file(&out);
        if let Some(before) = before {
            fs::write(&out, before).unwrap();
        }
        let codes = thread::scope(|scope| {
            let writer = |name: &String| {
                let line = format!("copy -q {name} -o out");
                let folder = folder.path();
                scope.spawn(move || perfx_in(folder, Stdin::Null, &line).code)
            };
            let writers: Vec<_> = names.iter().map(writer).collect();
            let pipe = Fixture::new(PIPE).bytes();
            let open = |name| File::options().write(true).open(folder.path().join(name)).unwrap();
            // All of them wait when the first one gets its input.
            let mut fifos: Vec<_> = names.iter().map(open).collect();
            fifos.iter_mut().for_each(|fifo| fifo.write_all(&pipe).unwrap());
            drop(fifos);
            let mut codes: Vec<_> = writers.into_iter().map(|writer| writer.join().unwrap()).collect();
            codes.sort();
            codes
        });
        assert_eq!(codes, [Some(0), Some(1), Some(1), Some(1)], "{before:?}");
        assert_eq!(perfx(&folder, "dump out").code, Some(0));
        assert_eq!(everything(folder.path()).len(), 5);
    }
}

/// Like cp; perfx used to replace the link.
#[test]
fn a_dangling_link_is_not_an_output() {
    let folder = place();
    let at = |name: &str| folder.path().join(name);
    symlink("nowhere", at("link")).unwrap();
    symlink("nowhere", at("g.0001.data")).unwrap();
    fs::create_dir(at("tables")).unwrap();
    symlink("nowhere", at("tables/stat.csv")).unwrap();
    for line in [
        "copy -o link",
        "copy -f -o link",
        "copy -n -o link",
        "split --samples 1000 perf.data -f -o g",
        "export csv perf.data -f -o tables",
    ] {
        let ran = perfx(&folder, line);
        assert_eq!(ran.code, Some(1), "{line}: {}", ran.stderr);
        assert!(ran.stderr.contains("is a symbolic link to nowhere"), "{line}: {}", ran.stderr);
        assert!(at("link").is_symlink() && !at("nowhere").exists(), "{line}");
    }
}

/// `out=$(mktemp)` creates an empty file, which perf inject fills.
#[test]
fn an_empty_output_is_no_obstacle() {
    let folder = place();
    let at = |name: &str| folder.path().join(name);
    let empty = ["out", "g.0001.data", "tables/stat.csv"];
    fs::create_dir(at("tables")).unwrap();
    empty.iter().for_each(|name| fs::write(at(name), "").unwrap());
    for line in
        ["copy -o out", "split --samples 1000000 perf.data -o g", "export csv perf.data --foreign -o tables"]
    {
        let ran = perfx(&folder, line);
        assert_eq!(ran.code, Some(0), "{line}: {}", ran.stderr);
    }
    assert!(empty.iter().all(|name| at(name).metadata().unwrap().len() > 0));
    let kcore = quoted("crafted/dir-kcore.data");
    fs::write(at("empty"), "").unwrap();
    fs::create_dir(at("emptydir")).unwrap();
    for name in ["empty", "emptydir"] {
        let ran = perfx(&folder, &format!("copy {kcore} -o {name}"));
        assert_eq!(ran.code, Some(0), "{name}: {}", ran.stderr);
        assert!(at(name).join("data").is_file());
    }
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
        "copy perf.data -o perf.data",
        "copy perf.data -o hard",
        "copy link -o hard",
        "copy dir -o dir",
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
        ["inject -B --foreign --in-place", "inject --buildid-all --foreign --in-place", "copy --in-place"]
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
    // Damaged at the front, in the middle, at the end; in compressed data; and a directory.
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
                    // The contents were not to be checked.
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
    // A changed file keeps its permissions.
    for line in ["compress", "inject -b", "copy"] {
        fs::set_permissions(folder.path().join("pipe"), fs::Permissions::from_mode(0o640)).unwrap();
        assert_eq!(perfx(&folder, &format!("{line} --in-place pipe")).code, Some(0), "{line}");
        assert_eq!(mode("pipe"), 0o640, "{line}");
    }
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

const SIGPIPE: i32 = 13;

/// A pipe whose reader has closed it.
fn closed_pipe() -> io::PipeWriter {
    io::pipe().unwrap().1
}

#[test]
fn a_closed_pipe_ends_it_quietly() {
    let folder = place();
    for (line, signal) in [
        ("dump", None),
        ("dump --format ndjson", None),
        ("dump --json", None),
        ("passes", None),
        ("--help", None),
        ("copy --help", None),
        ("completion bash", None),
        ("run -p build-ids --explain", None),
        // The front of a recording is not a whole recording.
        ("copy", Some(SIGPIPE)),
        ("inject -b --foreign", Some(SIGPIPE)),
    ] {
        let mut command = perfx_command();
        command.current_dir(folder.path()).args(line.split(' '));
        let output = command.stdin(Stdio::null()).stdout(closed_pipe()).output().unwrap();
        assert_eq!(output.status.signal(), signal, "{line}");
        assert_eq!(output.status.code(), if signal.is_none() { Some(0) } else { None }, "{line}");
        assert_eq!(String::from_utf8_lossy(&output.stderr), "", "{line}");
    }
}

#[test]
fn a_backup_keeps_the_old_output_like_perf() {
    let folder = place_with(&[("perf.data", PLAIN), ("other.data", "recorded/fp.p61.data")]);
    let names = || everything(folder.path()).into_keys().collect::<Vec<_>>();
    // There is no file to keep.
    assert_eq!(perfx(&folder, "copy --backup -o out").code, Some(0));
    assert_eq!(names(), ["other.data", "out", "perf.data"]);
    fs::write(folder.path().join("out"), "first").unwrap();
    fs::set_permissions(folder.path().join("out"), fs::Permissions::from_mode(0o640)).unwrap();
    for (line, old) in [
        ("copy --backup -o out", b"first".to_vec()),
        // The older backup is replaced.
        ("copy other.data --backup -o out", read(&folder, "perf.data")),
        ("copy --backup -f --to pipe -o out", read(&folder, "other.data")),
    ] {
        let ran = perfx(&folder, line);
        assert_eq!(ran.code, Some(0), "{line}: {}", ran.stderr);
        assert!(ran.stderr.ends_with("/out.old\n"), "{line}: {}", ran.stderr);
        assert!(read(&folder, "out.old") == old, "{line}");
        assert_eq!(names(), ["other.data", "out", "out.old", "perf.data"], "{line}");
    }
    // In place, also if only a feature would be set.
    let before = read(&folder, "perf.data");
    let ids = ["--known-build-ids", "ab /usr/lib/x86_64-linux-gnu/libc.so.6"];
    let mut command = perfx_command();
    command.current_dir(folder.path()).args(["inject", "--buildid-all", "--in-place", "--backup"]).args(ids);
    let ran = run(&mut command, Stdin::Null);
    assert_eq!(ran.code, Some(0), "{}", ran.stderr);
    assert!(read(&folder, "perf.data.old") == before && read(&folder, "perf.data") != before);
    // The file that a backup would replace may be the input.
    let before = everything(folder.path());
    let ran = perfx(&folder, "copy perf.data.old --backup -o perf.data");
    assert_eq!(ran.code, Some(1), "{}", ran.stderr);
    assert!(everything(folder.path()) == before);
    // After a failure everything is as before, including the older backup.
    let damaged = Fixture::new("crafted/val-size-4.data").path;
    let args = args!["copy", &damaged, "--backup", "-o", "out"];
    assert_eq!(run(perfx_command().current_dir(folder.path()).args(args), Stdin::Null).code, Some(1));
    assert!(everything(folder.path()) == before);
    // If the backup cannot be made, the command fails.
    fs::create_dir(folder.path().join("other.data.old")).unwrap();
    let ran = perfx(&folder, "copy --backup -o other.data");
    assert_eq!(ran.code, Some(1), "{}", ran.stderr);
    assert!(!ran.stderr.contains(".perfx-"), "{}", ran.stderr);
    assert!(everything(folder.path()) == before);
}

#[test]
fn a_directory_is_kept_and_replaced_like_a_file() {
    let folder = temp();
    let kcore = Fixture::new("crafted/dir-kcore.data").path;
    let copy = |options: &[&str]| {
        let args = args!["copy", &kcore, "-o", "dir"];
        let ran = run(perfx_command().current_dir(folder.path()).args(args).args(options), Stdin::Null);
        assert_eq!(ran.code, Some(0), "{}", ran.stderr);
    };
    let at = |name: &str| folder.path().join(name);
    copy(&[]);
    fs::write(at("dir/mine"), "1").unwrap();
    copy(&["--backup"]);
    assert!(at("dir.old/mine").exists() && at("dir/data").exists() && !at("dir/mine").exists());
    fs::write(at("dir/mine"), "22").unwrap();
    copy(&["--backup"]);
    assert_eq!(fs::read(at("dir.old/mine")).unwrap(), b"22");
    copy(&["-f"]);
    // A directory replaces a file.
    fs::remove_dir_all(at("dir")).unwrap();
    fs::write(at("dir"), "a file").unwrap();
    copy(&["--backup"]);
    assert_eq!(fs::read(at("dir.old")).unwrap(), b"a file");
    fs::remove_dir_all(at("dir")).unwrap();
    fs::write(at("dir"), "a file").unwrap();
    copy(&["-f"]);
    let names: Vec<_> = fs::read_dir(folder.path()).unwrap().map(|e| e.unwrap().file_name()).collect();
    assert_eq!(names.len(), 2, "{names:?}");
}

const COPY: &str = "copy from -f -o out";

/// A command that has read the front of a recording from a FIFO and waits for the rest.
struct Waiting {
    folder: TempDir,
    child: Child,
    fifo: File,
    rest: Vec<u8>,
}

impl Waiting {
    /// Starts a command that reads `from`; `prefix` is executed by a shell before it becomes perfx.
    fn new(prefix: &str, line: &str) -> Waiting {
        let folder = temp();
        fifo(&folder.path().join("from"));
        fs::write(folder.path().join("out"), "old").unwrap();
        let mut command = clean("sh");
        command.args(["-c", &format!("{prefix} exec \"$0\" \"$@\"")]);
        command.arg(perfx_command().get_program()).args(line.split(' '));
        command.current_dir(folder.path()).stderr(Stdio::piped());
        let child = command.spawn().unwrap();
        let mut fifo = File::options().write(true).open(folder.path().join("from")).unwrap();
        // The front of a pipe is read in one piece of 4 MiB, and the output is created before that.
        let mut front = Fixture::new(PIPE).repeated(12 << 20);
        let rest = front.split_off(front.len() / 2);
        fifo.write_all(&front).unwrap();
        Waiting { folder, child, fifo, rest }
    }

    fn kill(&self, signal: &str) {
        let killed = Command::new("kill").args([signal, &self.child.id().to_string()]).status().unwrap();
        assert!(killed.success());
    }
}

#[test]
fn a_signal_takes_the_temporary_file_with_it() {
    assert!(!is_ignored(15), "SIGTERM is ignored, so nothing can be tested");
    // The kernel sends SIGKILL if it runs out of memory.
    let signals =
        [("-INT", 2), ("-TERM", 15), ("-HUP", 1), ("-KILL", 9)].into_iter().filter(|s| !is_ignored(s.1));
    let lines = [COPY, "export csv from -o tables"];
    for ((name, signal), line) in signals.flat_map(|signal| lines.map(|line| (signal, line))) {
        let waiting = Waiting::new("", line);
        waiting.kill(name);
        let Waiting { folder, child, .. } = waiting;
        let output = child.wait_with_output().unwrap();
        assert_eq!(output.status.signal(), Some(signal), "{name}");
        assert_eq!(output.stderr, b"", "{name}");
        let names: Vec<_> = fs::read_dir(folder.path()).unwrap().map(|e| e.unwrap().file_name()).collect();
        assert_eq!(names.len(), 2, "{names:?}");
        assert_eq!(fs::read(folder.path().join("out")).unwrap(), b"old");
    }
}

#[test]
fn a_signal_that_was_ignored_stays_ignored() {
    let mut waiting = Waiting::new("trap '' HUP;", COPY);
    waiting.kill("-HUP");
    waiting.fifo.write_all(&waiting.rest).unwrap();
    drop(waiting.fifo);
    let output = waiting.child.wait_with_output().unwrap();
    assert_eq!(output.status.code(), Some(0), "{}", String::from_utf8_lossy(&output.stderr));
    assert_ne!(fs::read(waiting.folder.path().join("out")).unwrap(), b"old");
}

#[test]
fn standard_error_may_be_closed() {
    let folder = place();
    for (line, code) in
        [("copy -o out.data", 0), ("copy missing.data", 1), ("copy --to tape", 2), ("copy --nonsense", 2)]
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
    let kcore = quoted("crafted/dir-kcore.data");
    let cut = quoted("recorded/pipe-cut.p61.data");
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
        ("run -p nonsense perf.data -o b", 2),
        // Pipe data cannot hold a kcore_dir, and a truncated record is dropped.
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
fn quiet_reports_only_losses() {
    let folder = place();
    let cut = quoted("recorded/pipe-cut.p61.data");
    assert_eq!(perfx(&folder, "copy -q -o a").stderr, "");
    let ran = perfx(&folder, &format!("copy --quiet {cut} -o b"));
    assert_eq!(ran.code, Some(3));
    assert!(ran.stderr.lines().count() == 1 && ran.stderr.starts_with("perfx: lost: "), "{}", ran.stderr);
}

#[test]
fn a_dry_run_says_what_would_be_done_and_does_nothing() {
    let kcore = quoted("crafted/dir-kcore.data");
    let cut = quoted("recorded/pipe-cut.p61.data");
    let damaged = quoted("crafted/val-size-4.data");
    for line in [
        "copy -o out.data",
        "copy",
        "copy -o -",
        "copy --to pipe -o out.data",
        "copy -o missing/out",
        "copy -o there",
        "copy -f -o there",
        "copy --backup -o there",
        "copy -f -o perf.data",
        "copy -f -o folder",
        "copy --to file",
        "copy --in-place",
        "copy --in-place --backup",
        "inject -b --foreign",
        "inject -b --foreign --in-place",
        "inject -B --foreign --in-place",
        "inject --mmap2-buildid-all --foreign -o out.data",
        &format!("copy {kcore} -o out"),
        &format!("copy {kcore} --to pipe -o out"),
        &format!("copy {cut} -o out"),
        &format!("copy {damaged} -o out"),
    ] {
        let folder = place();
        fs::write(folder.path().join("there"), "").unwrap();
        fs::create_dir(folder.path().join("folder")).unwrap();
        fs::write(folder.path().join("folder/mine"), "").unwrap();
        let before = everything(folder.path());
        let dry = perfx(&folder, &format!("{line} -n"));
        assert_eq!(dry.text(), "", "{line}");
        assert!(everything(folder.path()) == before, "{line}");
        let real = perfx(&folder, line);
        let told = real
            .stderr
            .replace("perfx: wrote", "perfx: would write")
            .replace("perfx: kept", "perfx: would keep");
        let told =
            told.replace("perfx: changed", "perfx: would change").replace("; its records are unchanged", "");
        assert_eq!((dry.code, dry.stderr), (real.code, told), "{line}");
    }
}

tiers!(nothing_of_this_machine_gets_into_an_output);
fn nothing_of_this_machine_gets_into_an_output(tier: Tier) {
    let kernel =
        |name: &str| fs::read_to_string(format!("/proc/sys/kernel/{name}")).unwrap().trim().to_owned();
    let secrets =
        [kernel("hostname"), kernel("osrelease"), std::env::current_dir().unwrap().display().to_string()];
    let made: Vec<_> =
        tier.of(crafted()).into_iter().filter(|f| f.path.is_file() && f.bytes().len() < 16 << 10).collect();
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
                // An unreadable recording is refused; other tests check the reason.
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

/// `perfx sort <(…) -o out`: the input was searched under a name that no folder has.
#[test]
fn files_without_a_name_can_be_read() {
    let folder = place();
    let bytes = read(&folder, "perf.data");
    for line in ["copy /dev/stdin -o a", "sort /dev/stdin -o b", "join perf.data /dev/stdin -o c"] {
        let ran = perfx_in(folder.path(), Stdin::Pipe(&bytes), line);
        assert!(matches!(ran.code, Some(0 | 3)), "{line}: {}", ran.stderr);
    }
    assert!(read(&folder, "a") == bytes);
}

/// Regression: SIGXFSZ ended it and left its temporary file.
#[test]
fn a_limit_on_the_size_of_files_is_an_error() {
    let folder = place();
    let perfx = perfx_command().get_program().to_owned();
    let mut command = clean("bash");
    command.args(["-c", "ulimit -f 1; exec \"$0\" copy perf.data -o out"]).arg(perfx);
    let output = command.current_dir(folder.path()).output().unwrap();
    assert_eq!(output.status.code(), Some(1), "{output:?}");
    assert_eq!(everything(folder.path()).into_keys().collect::<Vec<_>>(), ["perf.data"]);
}

/// With several files, or a stream opened by the shell, the message must name the one that failed.
#[test]
fn an_output_that_can_not_be_written_is_named() {
    let folder = place();
    let program = perfx_command().get_program().to_owned();
    for (line, name) in [
        ("ulimit -f 1; exec \"$0\" export csv perf.data --foreign -o tables", "/tmp (TMPDIR)"),
        ("ulimit -f 1; exec \"$0\" copy perf.data > out", "standard output"),
        ("ulimit -f 1; exec \"$0\" dump perf.data > out", "standard output"),
        ("exec \"$0\" dump perf.data > /dev/full", "standard output"),
        ("exec \"$0\" info perf.data > /dev/full", "standard output"),
    ] {
        let mut command = Command::new("bash");
        let ran = run(
            command.env("TMPDIR", "/tmp").args(["-c", line]).arg(&program).current_dir(folder.path()),
            Stdin::Null,
        );
        assert_eq!(ran.code, Some(1), "{line}: {}", ran.stderr);
        assert!(ran.stderr.starts_with(&format!("perfx: {name}: ")), "{line}: {}", ran.stderr);
        assert!(!folder.path().join("tables").exists());
    }
}

/// As if `ulimit -u` or lack of memory prevented a thread.
#[test]
fn a_thread_that_can_not_be_started_is_an_error_and_no_panic() {
    let folder = place();
    let perfx = |line: &str| {
        let mut command = perfx_command();
        // No stack is that large.
        command.env("RUST_MIN_STACK", (1u64 << 60).to_string());
        run(command.current_dir(folder.path()).args(line.split_whitespace()), Stdin::Null)
    };
    for line in ["copy -@ 2 -o out.data", "sort -@ 2 -o out.data", "inject -b -@ 2 -o out.data", "stats -@ 2"]
    {
        let ran = perfx(line);
        assert_eq!(ran.code, Some(1), "{line}: {}", ran.stderr);
        assert!(ran.stderr.contains("can't start a thread"), "{line}: {}", ran.stderr);
        assert_eq!(fs::read_dir(folder.path()).unwrap().count(), 1, "{line} leaves a file");
    }
    let ran = perfx("copy -@ 1 -o out.data");
    assert_eq!(ran.code, Some(0), "{}", ran.stderr);
}

/// Regression: the message was "invalid digit found in string".
#[test]
fn a_wrong_number_of_threads_is_answered_with_the_limits() {
    let folder = place();
    for number in ["x", "-1", "1025", "1.5"] {
        let ran = perfx(&folder, &format!("stats -@ {number}"));
        assert_eq!(ran.code, Some(2), "{number}: {}", ran.stderr);
        let allowed = "give a number from 1 to 1024, or 0 for one thread per processor";
        assert!(ran.stderr.contains(allowed), "{number}: {}", ran.stderr);
    }
}

#[test]
fn a_second_argument_is_the_output_unless_recordings_are_changed_in_place() {
    let folder = place();
    for line in ["compress perf.data small.data", "inject -b perf.data small.data"] {
        let ran = perfx(&folder, line);
        assert_eq!(ran.code, Some(2), "{line}: {}", ran.stderr);
        assert!(ran.stderr.contains("to write to small.data, give -o small.data"), "{line}: {}", ran.stderr);
        assert!(!ran.stderr.contains("in-place"), "{line}: {}", ran.stderr);
    }
}

/// Regression: tips were dangerous for beginners: `--in-place` was suggested for `--itrace`, `-- -k` for
/// `-k`.
#[test]
fn a_tip_never_leads_to_an_option_of_another_meaning() {
    let folder = place();
    for (line, tip) in [
        ("inject --vm-time-correlation -b", Some("perf 5.13 to 6.11 do that; later versions crash")),
        ("filter --drop-unusd", Some("'--drop-unused'")),
        ("copy a.data b.data", Some("to write to b.data, give -o b.data")),
        ("copy -k", None),
        ("copy --sort", None),
        ("info a.data b.data", None),
    ] {
        let ran = perfx(&folder, line);
        assert_eq!(ran.code, Some(2), "{line}: {}", ran.stderr);
        assert!(
            !ran.stderr.contains("in-place") && !ran.stderr.contains("guest-data"),
            "{line}: {}",
            ran.stderr
        );
        assert!(!ran.stderr.contains("'-- "), "{line}: {}", ran.stderr);
        let tips: Vec<_> = ran.stderr.lines().filter(|line| line.trim_start().starts_with("tip:")).collect();
        assert_eq!(tips.len(), usize::from(tip.is_some()), "{line}: {}", ran.stderr);
        assert!(tip.is_none_or(|tip| tips[0].contains(tip)), "{line}: {}", ran.stderr);
    }
}

/// perf accepts repeated options (the last one counts), and some options before the command.
#[test]
fn options_may_be_repeated_and_shared_ones_stand_anywhere() {
    let folder = place_with(&[("perf.data", PLAIN), ("other.data", "recorded/fp.p61.data")]);
    for line in [
        "copy -f -f -i perf.data -i other.data -o x -o out.data",
        "-v copy -f other.data -o out.data",
        "-@ 2 -q copy -f other.data -o out.data -@ 1",
        "copy -@ 1 -@ 2 -n -n --in-place -f --in-place other.data",
    ] {
        let ran = perfx(&folder, line);
        assert_eq!(ran.code, Some(0), "{line}: {}", ran.stderr);
        assert!(
            !line.contains("out.data") || read(&folder, "out.data") == read(&folder, "other.data"),
            "{line}"
        );
    }
    assert!(
        perfx(&folder, "-vv copy -n").stderr.lines().count()
            > perfx(&folder, "copy -n").stderr.lines().count()
    );
    assert_eq!(perfx(&folder, "-q copy -n").stderr, "");
    for line in ["info", "dump", "passes", "stats", "du", "doctor", "diff perf.data perf.data", "copy -n"] {
        let ran = perfx(&folder, &format!("{line} -@ 4"));
        assert_eq!(ran.code, Some(0), "{line}: {}", ran.stderr);
    }
}

/// Reads the front of perfx's standard output, truncates the input, and reads the rest.
fn cut_short_while_writing(line: &str) -> (Option<i32>, String) {
    let folder = temp();
    // The input is the last word.
    let words: Vec<_> = line.split(' ').collect();
    let input = folder.path().join(words[words.len() - 1]);
    fs::write(&input, Fixture::new(PIPE).repeated(24 << 20)).unwrap();
    let mut command = perfx_command();
    command.args(&words).current_dir(folder.path());
    let mut child = command.stdout(Stdio::piped()).stderr(Stdio::piped()).spawn().unwrap();
    let mut out = child.stdout.take().unwrap();
    out.read_exact(&mut [0; 100]).unwrap();
    File::options().write(true).open(&input).unwrap().set_len(4096).unwrap();
    io::copy(&mut out, &mut io::sink()).unwrap();
    let output = child.wait_with_output().unwrap();
    (output.status.code(), String::from_utf8(output.stderr).unwrap())
}

#[test]
fn an_input_that_is_cut_short_while_it_is_read_is_named() {
    for line in ["dump big.data", "copy big.data", "copy -@ 1 big.data"] {
        let (code, stderr) = cut_short_while_writing(line);
        let expected = "big.data: another program truncated the file while it was being read\n";
        assert!(stderr.ends_with(expected), "{line}: {stderr}");
        assert_eq!(code, Some(1), "{line}");
    }
}

/// proc(5) shows the name of a mapped file with `\012` for a newline.
#[test]
fn an_input_with_a_newline_in_its_name_that_is_cut_short_is_named() {
    let (code, stderr) = cut_short_while_writing("dump big\nname.data");
    let expected = "big\\nname.data: another program truncated the file while it was being read\n";
    assert!(stderr.ends_with(expected), "{stderr}");
    assert_eq!(code, Some(1));
}

#[test]
fn a_command_of_perf_gets_no_tip_to_an_unrelated_one() {
    let folder = place();
    for (given, tip) in [
        (
            "annotate",
            Some(
                "perfx export html --annotate N shows source lines and instructions; perf annotate reads every \
                 recording, too",
            ),
        ),
        ("mem", Some("use perf mem: it reads every recording that perfx writes")),
        ("archive", Some("perfx pack puts a recording and the files that name its functions into one file")),
        ("evlist", Some("perfx list events shows the events, and perfx info their attributes")),
        ("buildid-list", Some("perfx list build-ids shows them")),
        ("record", Some("use perf record: perfx only works on existing recordings")),
        ("injekt", Some("a similar subcommand exists: 'inject'")),
        ("recor", Some("a similar subcommand exists: 'recover'")),
        ("export speedscope", Some("speedscope reads the output of perfx export pprof")),
        ("nosuch", None),
    ] {
        let ran = perfx(&folder, given);
        assert_eq!(ran.code, Some(2), "{given}: {}", ran.stderr);
        let tips: Vec<_> = ran.stderr.lines().filter_map(|line| line.trim().strip_prefix("tip: ")).collect();
        assert_eq!(tips, Vec::from_iter(tip), "{given}");
    }
}

#[test]
fn text_that_cannot_be_written_to_standard_output_is_an_error_that_names_it() {
    let folder = place();
    for line in [
        "doctor", "doctor --json", "doctor --list", "du --json", "info", "info --json", "stats",
        "stats --json", "dump", "passes", "passes --json", "completion bash", "list events",
        "list events --json", "view", "perf.data", "--help", "-h", "--version", "help", "help inject",
        "inject --help", "inject -h",
    ] {
        let full = File::options().write(true).open("/dev/full").unwrap();
        let mut command = perfx_command();
        command.current_dir(folder.path()).args(line.split(' ')).stdin(Stdio::null());
        let output = command.stdout(full).output().unwrap();
        let stderr = String::from_utf8_lossy(&output.stderr);
        assert!(stderr.contains("perfx: standard output: No space left on device"), "{line}: {stderr}");
        assert_eq!(output.status.code(), Some(1), "{line}");
    }
}

#[test]
fn a_directory_on_standard_input_is_read() {
    let folder = temp();
    let recording = Fixture::new("recorded/threads.p61.data");
    let ran = perfx_in(folder.path(), Stdin::File(&recording.path), "info");
    assert_eq!(ran.code, Some(0), "{}", ran.stderr);
    assert!(ran.text().contains("directory"), "{}", ran.text());
}

#[test]
fn a_fifo_that_is_to_be_changed_in_place_is_refused_before_it_is_opened() {
    let folder = temp();
    fifo(&folder.path().join("fifo"));
    for command in ["copy", "recover", "sort", "inject -b", "repair", "compress", "filter --pid 1"] {
        let ran = perfx(&folder, &format!("{command} --in-place fifo"));
        assert_eq!(ran.code, Some(2), "{command}: {}", ran.stderr);
        assert!(ran.stderr.contains("fifo is not a file, so it can't be changed in place"), "{}", ran.stderr);
    }
}

#[test]
fn a_time_window_that_ends_before_it_begins_is_a_wrong_command_line() {
    let folder = place();
    for window in ["40%-30%", "5,4", "10%-20%,9%-8%"] {
        let ran = perfx(&folder, &format!("filter --time {window} -o out"));
        assert_eq!(ran.code, Some(2), "{window}: {}", ran.stderr);
        assert!(ran.stderr.contains("ends before it begins"), "{window}: {}", ran.stderr);
    }
}

#[test]
fn an_input_that_is_cut_short_while_it_is_read_leaves_no_temporary_file() {
    let folder = place();
    let other = read(&folder, "perf.data");
    fifo(&folder.path().join("other"));
    let mut command = perfx_command();
    command.args(["join", "perf.data", "other", "-o", "out"]).current_dir(folder.path());
    let child = command.stderr(Stdio::piped()).spawn().unwrap();
    // It has opened the first one when it opens the other, and reads it later.
    let mut pipe = File::options().write(true).open(folder.path().join("other")).unwrap();
    File::options().write(true).open(folder.path().join("perf.data")).unwrap().set_len(4096).unwrap();
    pipe.write_all(&other).unwrap();
    drop(pipe);
    let output = child.wait_with_output().unwrap();
    let stderr = String::from_utf8(output.stderr).unwrap();
    assert!(
        stderr.contains("perf.data: another program truncated the file while it was being read\n"),
        "{stderr}"
    );
    assert_eq!(output.status.code(), Some(1));
    let names: Vec<String> = everything(folder.path()).into_keys().collect();
    assert_eq!(names, ["other", "perf.data"]);
}

/// Regression: a file was made beside the link, in a folder of the kernel.
#[test]
fn every_output_can_be_an_open_file() {
    let folder = place();
    let path = |name: &str| folder.path().join(name);
    let commands = [
        "copy", "export folded", "export html", "export svg", "export pprof", "export otlp",
        "export firefox", "pack",
    ];
    for (number, command) in commands.into_iter().enumerate() {
        let program = perfx_command().get_program().to_owned();
        let line = format!("exec \"$0\" {command} perf.data -o /dev/fd/5 5>{number}");
        let mut shell = clean("sh");
        let ran = run(shell.current_dir(folder.path()).args(args!["-c", line, program]), Stdin::Null);
        assert!(matches!(ran.code, Some(0 | 3)), "{command}: {}", ran.stderr);
        assert_eq!(perfx(&folder, &format!("{command} -f perf.data -o given")).code, ran.code);
        assert!(
            fs::read(path(&number.to_string())).unwrap() == fs::read(path("given")).unwrap(),
            "{command}"
        );
    }
}

/// "Bad magic" for a recording that only has to be decompressed.
#[test]
fn a_file_compressed_as_a_whole_is_recognised() {
    let folder = temp();
    let path = folder.path().join("perf.data.z");
    for (magic, what) in [
        (&b"\x1f\x8b\x08"[..], "compressed by gzip: decompress it first (gunzip)"),
        (b"\xfd7zXZ\0", "compressed by xz: decompress it first (unxz)"),
        (b"\x28\xb5\x2f\xfd", "compressed by zstd: decompress it first (unzstd; perfx unpack"),
        (b"BZh9", "compressed by bzip2: decompress it first (bunzip2)"),
    ] {
        fs::write(&path, [magic, &[7; 200]].concat()).unwrap();
        let ran = perfx(&folder, "info perf.data.z");
        assert!(ran.code == Some(1) && ran.stderr.contains(what), "{}", ran.stderr);
    }
}

#[test]
fn an_unknown_field_is_answered_by_a_list_of_all() {
    let ran = perfx(&place(), "view -F foo perf.data");
    assert_eq!(ran.code, Some(2), "{}", ran.stderr);
    assert!(ran.stderr.contains("unknown field `foo`; available: comm, pid, tid, cpu"), "{}", ran.stderr);
}

/// Regression: the message was only "No such file or directory (os error 2)".
#[test]
fn an_error_of_dir_names_the_folder() {
    let folder = temp();
    symlink(Fixture::new("recorded/plain.p61.data").path, folder.path().join("in")).unwrap();
    fs::write(folder.path().join("file"), "").unwrap();
    for command in ["man", "export csv in", "export parquet in"] {
        for place in ["/proc/nope", "file"] {
            let ran = perfx(&folder, &format!("{command} --dir {place}"));
            assert!(ran.code == Some(1) && ran.stderr.contains(place), "{command}: {}", ran.stderr);
        }
    }
}

/// It was listed, and refused.
#[test]
fn join_does_not_offer_to_change_its_input() {
    let folder = temp();
    assert!(!perfx(&folder, "join --help").text().contains("--in-place"));
    let ran = perfx(&folder, "join --in-place a b");
    assert!(ran.code == Some(2) && ran.stderr.contains("give -o FILE"), "{}", ran.stderr);
}

#[test]
fn a_profile_is_not_compared_with_nothing() {
    let [empty, full] = ["empty", "fp"].map(|name| Fixture::new(&format!("recorded/{name}.p61.data")).path);
    for pair in [[&empty, &full], [&full, &empty]] {
        let ran = crate::support::perfx(args!["diff", "--profile", "--foreign", pair[0], pair[1]]);
        assert!(ran.code == Some(1) && ran.text().is_empty(), "{}", ran.stderr);
        let what =
            format!("{}: there is nothing to compare, because no samples are selected", empty.display());
        assert!(ran.stderr.contains(&what), "{}", ran.stderr);
    }
}

/// It gave `copy --to pipe` here and `normalize` there.
#[test]
fn doctor_has_one_way_out_of_a_newer_attr() {
    let path = Fixture::new("recorded/plain.p73.data").path;
    for line in [args!["doctor", "-v", "-@1", path], args!["doctor", "--for", "perf-6.1", path]] {
        let ran = crate::support::perfx(line);
        assert!(ran.text().contains("perfx normalize --for perf-6.1 "), "{}", ran.text());
    }
}

/// Regression: the message was only "unrecognized subcommand".
#[test]
fn a_missing_recording_is_not_reported_as_an_unknown_command_only() {
    let folder = place_with(&[("perf.data", "recorded/fp.p61.data")]);
    for missing in ["perf.daat", "elsewhere/perf"] {
        let ran = perfx(&folder, missing);
        assert!(
            ran.code == Some(2) && ran.stderr.contains(&format!("there is no file {missing};")),
            "{}",
            ran.stderr
        );
    }
    assert!(!perfx(&folder, "statz").stderr.contains("there is no file"));
}

#[test]
fn the_first_page_fits_a_terminal_and_its_commands_work() {
    let folder = place_with(&[("perf.data", "recorded/fp.p61.data")]);
    let page = perfx(&folder, "-h").done().unwrap().text();
    assert!(page.lines().count() <= 20 && page.lines().all(|line| line.chars().count() <= 80), "{page}");
    let without_arguments = perfx(&folder, "");
    assert_eq!((without_arguments.code, &without_arguments.stderr), (Some(2), &page));
    for (command, _) in perfx::FIRST_COMMANDS {
        assert!(page.contains(command));
        let ran = perfx(&folder, command.strip_prefix("perfx ").unwrap());
        assert!(matches!(ran.code, Some(0 | 3)), "{command}: {}", ran.stderr);
    }
    let all = perfx(&folder, "help all").done().unwrap().text();
    assert_eq!(all, perfx(&folder, "--help").done().unwrap().text());
    assert!(all.contains("Cut and join:"));
}

/// Regression: these were refused without advice, or with wrong advice.
#[test]
fn a_wrong_command_line_is_answered_with_the_right_one() {
    let folder = place_with(&[("in.data", "recorded/fp.p61.data")]);
    let pipe = Fixture::new(PIPE).bytes();
    let mut wrong = Vec::new();
    for (stdin, line, code, said) in [
        (
            Stdin::Null,
            "export in.data html",
            2,
            "the format comes before the recording: perfx export html in.data",
        ),
        (
            Stdin::Null,
            "export in.data",
            2,
            "the format comes before the recording: perfx export FORMAT in.data",
        ),
        (
            Stdin::Null,
            "view --time 2s,3s in.data",
            2,
            "`2s` is not a time: give +2s for 2s after the first sample",
        ),
        (Stdin::Null, "list threads --head 3 in.data", 2, "else use `| head -n 4`"),
        (Stdin::Pipe(&pipe), "", 2, "for the recording on standard input, type `perfx overview`"),
        (Stdin::Pipe(&pipe), "-", 2, "for the recording on standard input, type perfx overview -"),
        (
            Stdin::Null,
            "list in.data functions",
            2,
            "what to list comes before the recording: perfx list functions in.data",
        ),
        (Stdin::Null, "inject in.data -o out.data", 0, "nothing to inject: give --buildids, --buildid-all"),
        (Stdin::Null, "", 2, "4 a diff changed"),
        (Stdin::Null, "inject", 1, "there is no input: type perfx inject -b FILE -o OUTPUT, or pipe"),
    ] {
        let ran = perfx_in(folder.path(), stdin, line);
        if ran.code != Some(code) || !ran.stderr.contains(said) {
            wrong.push((line, ran.code, ran.stderr));
        }
    }
    assert!(wrong.is_empty(), "{wrong:#?}");
}

#[test]
fn inject_says_that_it_copies_only_if_it_can_open_the_input() {
    let folder = place();
    for (line, is_said) in [("inject none.data -o out.data", false), ("inject perf.data -o out.data", true)] {
        let ran = perfx(&folder, line);
        assert_eq!(ran.stderr.contains("the recording is copied unchanged"), is_said, "{}", ran.stderr);
    }
}

#[test]
fn the_list_of_all_commands_has_all_exit_codes() {
    let ran = perfx(&place(), "help all");
    for code in 0..=4 {
        assert!(ran.text().contains(&format!("\n  {code}  ")), "{code}: {}", ran.text());
    }
}

/// `--color` before a recording, before `help all`, and after `help COMMAND` was an error.
#[test]
fn color_always_colours_a_pipe_wherever_it_is_given() {
    let folder = place();
    let plain = |line: &str| perfx(&folder, line).text();
    let uncoloured = |text: &str| {
        let parts = text.split('\x1b').enumerate().map(|(at, part)| match at {
            0 => part,
            _ => part.split_once('m').map_or("", |(_, rest)| rest),
        });
        parts.collect::<String>()
    };
    let mut wrong = Vec::new();
    for (line, same_as) in [
        ("--color always -h", "-h"),
        ("-h --color always", "-h"),
        ("--color=always help all", "help all"),
        ("help all --color always", "help all"),
        ("help view --color always", "help view"),
        ("view --help --color always", "view --help"),
        ("--color always passes", "passes"),
        ("dump perf.data --color always", "dump perf.data"),
    ] {
        let coloured = plain(line);
        if !coloured.contains('\x1b') || uncoloured(&coloured) != plain(same_as) {
            wrong.push(line);
        }
    }
    assert!(wrong.is_empty(), "{wrong:?}");
    assert_eq!(plain("--color always perf.data"), plain("perf.data"));
    for line in ["--color always none.data", "view none.data --color always", "--color always"] {
        let ran = perfx(&folder, line);
        assert!(ran.stderr.contains('\x1b'), "{line}: {}", ran.stderr);
    }
    assert!(perfx(&folder, "--color sometimes perf.data").stderr.contains("invalid value 'sometimes'"));
}
