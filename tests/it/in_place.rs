//! A change in place never loses the file, neither by an interruption nor by a failing write, and never
//! changes its owner.

use std::fs;
use std::os::unix::fs::{FileExt as _, MetadataExt as _, PermissionsExt as _, chown};
use std::os::unix::process::CommandExt as _;
use std::path::Path;
use std::process::Command;

use rustix::fs::{FlockOperation, flock};

use crate::args;
use crate::cli::everything;
use crate::parse::{Contents, Order};
use crate::support::{Fixture, Ran, Stdin, perfs, perfx, perfx_command, run, temp};

/// The recording after a power cut in the middle of a change in place: the header points to a journal, and
/// shows no features yet.
fn interrupted(name: &str) -> Vec<u8> {
    let order = Order { big: false };
    let mut file = Fixture::new(name).bytes();
    let contents = Contents::file(&file);
    let table = contents.data.end..contents.data.end + contents.features.len() * 16;
    let mut journal = [b"PERFXJNL", &file[72..104], &file[table.clone()]].concat();
    let sum = |sum: u64, &byte: &u8| (sum ^ u64::from(byte)).wrapping_mul(0x100_0000_01b3);
    let sum = journal.iter().fold(0xcbf2_9ce4_8422_2325, sum);
    journal.extend(sum.to_le_bytes());
    let end = file.len() as u64;
    order.set_u64(&mut file, 56, end);
    order.set_u64(&mut file, 64, journal.len() as u64);
    file[72..104].fill(0);
    file[table].fill(0xee);
    file.extend(journal);
    file
}

fn doctor(path: &Path) -> Ran {
    perfx(args!["doctor", path])
}

#[test]
fn every_command_that_writes_in_place_finishes_an_interrupted_change() {
    let name = "recorded/plain.p61.data";
    let features = Contents::file(&Fixture::new(name).bytes()).features;
    let perfs = perfs(&["perf", "perf-new"]);
    for line in [
        "reindex --in-place",
        "repair --in-place",
        "repair --in-place --backup",
        "inject -b --foreign --in-place",
        "copy --in-place",
        "recover --in-place",
    ] {
        let folder = temp();
        let path = folder.path().join("there.data");
        fs::write(&path, interrupted(name)).unwrap();
        let found = doctor(&path);
        assert!(found.text().contains("in-place-interrupted"), "{found:?}");
        assert!(found.text().contains("perfx repair --in-place repairs it"), "{found:?}");
        let mut words: Vec<_> = line.split(' ').map(std::ffi::OsString::from).collect();
        words.push(path.clone().into());
        let ran = perfx(words);
        assert!(matches!(ran.code, Some(0 | 3)), "{line}: {}", ran.stderr);
        let found = doctor(&path);
        assert!(!found.text().contains("in-place-interrupted"), "{line}: {found:?}");
        let bytes = fs::read(&path).unwrap();
        assert_eq!(Contents::file(&bytes).features, features, "{line}");
        let is_finished = Fixture::new(name).bytes()[72..104] == bytes[72..104];
        assert!(is_finished && bytes[56..72] == [0; 16], "{line}");
        for perf in &perfs {
            let header = |path: &Path| {
                let text = perf.run(Stdin::Null, args!["script", "-f", "--header-only", "-i", path]).text();
                text.lines()
                    .filter(|line| line.starts_with("# "))
                    .skip(3)
                    .map(str::to_owned)
                    .collect::<Vec<_>>()
            };
            let lines = header(&Fixture::new(name).path);
            assert!(lines.len() > 10);
            let now = header(&path);
            assert!(now.iter().any(|line| line.starts_with("# hostname")), "{line}: {now:?}");
            assert_eq!(now.len(), lines.len(), "{line}: {now:?}");
        }
    }
}

#[test]
fn what_is_written_elsewhere_leaves_an_interrupted_change_to_be_finished() {
    let folder = temp();
    let (path, out) = (folder.path().join("there.data"), folder.path().join("out.data"));
    let before = interrupted("recorded/plain.p61.data");
    fs::write(&path, &before).unwrap();
    let dry = perfx(args!["repair", "--in-place", "-n", path]);
    assert!(dry.stderr.contains("would finish the interrupted change"), "{}", dry.stderr);
    let ran = perfx(args!["repair", "-o", out, path]);
    assert_eq!(ran.code, Some(3), "{}", ran.stderr);
    assert!(ran.stderr.contains("perfx repair --in-place finishes it"), "{}", ran.stderr);
    assert!(fs::read(&path).unwrap() == before);
    assert_eq!(doctor(&out).code, Some(0));
}

#[test]
fn a_limit_of_the_file_size_is_an_error_and_leaves_the_file_as_it_was() {
    let folder = temp();
    let path = folder.path().join("there.data");
    let before = Fixture::new("crafted/dir-format-in-file.data").bytes();
    fs::write(&path, &before).unwrap();
    for line in ["repair --in-place", "copy --in-place"] {
        let mut shell = Command::new("sh");
        shell.env("TMPDIR", folder.path()).current_dir(folder.path());
        let limited = format!("ulimit -f 1; exec \"$0\" {line} there.data");
        let ran = run(shell.args(["-c", &limited]).arg(env!("CARGO_BIN_EXE_perfx")), Stdin::Null);
        assert_eq!(ran.code, Some(1), "{line}: {ran:?}");
        assert!(ran.stderr.contains("File too large"), "{line}: {}", ran.stderr);
        assert!(fs::read(&path).unwrap() == before, "{line}");
        assert_eq!(fs::read_dir(folder.path()).unwrap().count(), 1, "{line}");
    }
}

/// Only root can create files of another owner, and a program run by another user must be in a folder that
/// this user can reach.
#[test]
fn a_change_in_place_keeps_the_owner_of_a_file() {
    const OWNER: u32 = 65_533;
    const WRITER: u32 = 65_534;
    let folder = temp();
    let everyone = |mode| fs::Permissions::from_mode(mode);
    fs::set_permissions(folder.path(), everyone(0o777)).unwrap();
    let (program, path) = (folder.path().join("perfx"), folder.path().join("there.data"));
    let before = Fixture::new("crafted/val-mmap2-build-id-0.data").bytes();
    fs::write(&path, &before).unwrap();
    if chown(&path, Some(OWNER), Some(OWNER)).is_err() {
        eprintln!("SKIPPED: what needs root, to make a file of another owner");
        return;
    }
    fs::copy(perfx_command().get_program(), &program).unwrap();
    fs::set_permissions(&program, everyone(0o755)).unwrap();
    for (mode, line) in [(0o666, "repair"), (0o666, "copy"), (0o444, "repair"), (0o444, "copy")] {
        fs::set_permissions(&path, everyone(mode)).unwrap();
        for more in [&[][..], &["-n"]] {
            let mut command = Command::new(&program);
            command.uid(WRITER).gid(WRITER).current_dir(folder.path());
            let ran = run(command.args([line, "--in-place", "there.data"]).args(more), Stdin::Null);
            assert_eq!(ran.code, Some(1), "{line} {mode:o}: {}", ran.stderr);
            assert!(ran.stderr.contains("belongs to another user"), "{line} {mode:o}: {}", ran.stderr);
            assert!(fs::read(&path).unwrap() == before);
            assert_eq!(fs::metadata(&path).unwrap().uid(), OWNER);
        }
    }
    // Root may restore the owner.
    let ran = perfx(args!["copy", "--in-place", path]);
    assert_eq!((ran.code, fs::metadata(&path).unwrap().uid()), (Some(0), OWNER), "{}", ran.stderr);
}

/// Merges a guest into a host, and changes the host's file after perfx has opened it: the guest's recording
/// comes through a FIFO.
fn merge_meanwhile(way: &[&str], meanwhile: impl FnOnce(&Path)) -> (tempfile::TempDir, Ran) {
    let folder = temp();
    let packed = |name: &str| {
        let packed = crate::support::root().join(format!("tests/data/guests/{name}.data.zst"));
        zstd::decode_all(fs::File::open(packed).unwrap()).unwrap()
    };
    let (host, guest) = (folder.path().join("host.data"), folder.path().join("guest.fifo"));
    fs::write(&host, packed("host")).unwrap();
    assert!(Command::new("mkfifo").arg(&guest).status().unwrap().success());
    let mut merge = perfx_command();
    merge.arg("merge").args([&host, &guest]).args(way).current_dir(folder.path());
    let ran = std::thread::scope(|scope| {
        let ran = scope.spawn(|| run(&mut merge, Stdin::Null));
        // Blocks until perfx opens it, which is after it opened the host.
        let mut writer = fs::OpenOptions::new().write(true).open(&guest).unwrap();
        meanwhile(&host);
        let _ = std::io::Write::write_all(&mut writer, &packed("guest"));
        drop(writer);
        ran.join().unwrap()
    });
    (folder, ran)
}

#[test]
fn a_file_that_another_program_replaced_meanwhile_is_not_changed_in_place() {
    let other = Fixture::new("recorded/plain.p61.data").bytes();
    let (folder, ran) = merge_meanwhile(&["--in-place"], |host| {
        let new = host.with_extension("new");
        fs::write(&new, &other).unwrap();
        fs::rename(new, host).unwrap();
    });
    assert_eq!(ran.code, Some(1), "{}", ran.stderr);
    assert!(ran.stderr.contains("another program has changed or replaced it"), "{}", ran.stderr);
    assert!(fs::read(folder.path().join("host.data")).unwrap() == other);
}

#[test]
fn a_file_that_another_program_changed_meanwhile_is_not_changed_in_place() {
    for (way, at_end) in [(&["--in-place"][..], true), (&["--in-place", "--backup"], false)] {
        let (folder, ran) = merge_meanwhile(way, |host| {
            let file = fs::OpenOptions::new().write(true).open(host).unwrap();
            let len = file.metadata().unwrap().len();
            file.write_at(b"more", if at_end { len } else { len - 4 }).unwrap();
        });
        assert_eq!(ran.code, Some(1), "{}", ran.stderr);
        assert!(ran.stderr.contains("host.data: another program has changed"), "{}", ran.stderr);
        assert!(fs::read(folder.path().join("host.data")).unwrap().ends_with(b"more"));
        let mut left: Vec<_> = everything(folder.path()).into_keys().collect();
        left.retain(|name| name != "guest.fifo");
        assert_eq!(left, ["host.data"], "{way:?}");
    }
}

/// Its end then reads as zeros, without a signal.
#[test]
fn an_input_that_is_cut_short_by_less_than_a_page_is_noticed() {
    let (folder, ran) = merge_meanwhile(&["-o", "out"], |host| {
        let file = fs::OpenOptions::new().write(true).open(host).unwrap();
        let len = file.metadata().unwrap().len();
        file.set_len(len - (len % 4096).clamp(1, 100)).unwrap();
    });
    assert_eq!(ran.code, Some(1), "{}", ran.stderr);
    assert!(ran.stderr.contains("host.data: another program truncated the file"), "{}", ran.stderr);
    assert!(!folder.path().join("out").exists());
}

/// perfx writes a new file, like sed -i; other links keep the old contents.
#[test]
fn other_names_of_a_file_that_is_written_again_in_place_are_counted() {
    let folder = temp();
    let (path, other) = (folder.path().join("a.data"), folder.path().join("b.data"));
    let bytes = Fixture::new("recorded/plain.p61.data").bytes();
    fs::write(&path, &bytes).unwrap();
    fs::hard_link(&path, &other).unwrap();
    let ran = perfx(args!["compress", "--in-place", path]);
    assert_eq!(ran.code, Some(3), "{}", ran.stderr);
    let expected = "a.data had 1 other name (hard links), which keeps the old content";
    assert!(ran.stderr.contains(expected), "{}", ran.stderr);
    assert!(fs::read(&path).unwrap() != bytes && fs::read(&other).unwrap() == bytes);
    // Now it has a single name.
    let ran = perfx(args!["decompress", "--in-place", path]);
    assert_eq!(ran.code, Some(0), "{}", ran.stderr);
}

/// A recording that can't be changed is left unchanged and named, and does not stop the others.
#[test]
fn several_recordings_are_changed_in_place_each_by_itself() {
    let folder = temp();
    let path = |name: &str| folder.path().join(name);
    let input = Fixture::new("recorded/no-buildid.p61.data");
    let known = "--known-build-ids=ab /tmp/perfx-data/work/burn";
    let alone = path("alone.data");
    for command in [&["inject", "--buildid-all", "--foreign", known][..], &["compress"]] {
        fs::copy(&input.path, &alone).unwrap();
        let change = |files: &[&std::ffi::OsStr]| {
            let mut line: Vec<std::ffi::OsString> = command.iter().map(Into::into).collect();
            line.push("--in-place".into());
            line.extend(files.iter().map(Into::into));
            perfx(line)
        };
        assert_eq!(change(&[alone.as_os_str()]).code, Some(0));
        let names = ["a.data", "bad.data", "b.data"].map(path);
        for name in &names {
            fs::copy(&input.path, name).unwrap();
        }
        fs::write(&names[1], "not a recording").unwrap();
        fs::write(path("list"), names.each_ref().map(|name| name.to_str().unwrap()).join("\n")).unwrap();
        let ran = change(&[format!("@{}", path("list").display()).as_ref()]);
        assert_eq!(ran.code, Some(1), "{}", ran.stderr);
        assert!(ran.stderr.contains("bad.data"), "{}", ran.stderr);
        assert!(ran.stderr.contains("1 of 3 recordings failed and are unchanged"), "{}", ran.stderr);
        assert_eq!(fs::read(&names[1]).unwrap(), b"not a recording");
        for name in [&names[0], &names[2]] {
            assert!(fs::read(name).unwrap() == fs::read(&alone).unwrap(), "{command:?} {}", name.display());
        }
        // Without --in-place there is one output, so there is one input.
        let mut line: Vec<std::ffi::OsString> = command.iter().map(Into::into).collect();
        line.extend([names[0].as_os_str().into(), names[2].as_os_str().into()]);
        let ran = perfx(line);
        assert_eq!(ran.code, Some(2));
        assert!(ran.stderr.contains("give -o"), "{}", ran.stderr);
    }
}

/// It waited in silence.
#[test]
fn a_change_in_place_reports_that_it_waits_for_another_program() {
    let folder = temp();
    let path = folder.path().join("there.data");
    fs::write(&path, interrupted("recorded/plain.p61.data")).unwrap();
    let locked = fs::File::open(&path).unwrap();
    flock(&locked, FlockOperation::LockExclusive).unwrap();
    let ran = std::thread::scope(|scope| {
        let other = scope.spawn(|| {
            std::thread::sleep(std::time::Duration::from_millis(300));
            flock(&locked, FlockOperation::Unlock).unwrap();
        });
        let ran = perfx(args!["reindex", "--in-place", path]);
        other.join().unwrap();
        ran
    });
    assert!(ran.stderr.contains("another program has locked it: waiting until it is done"), "{}", ran.stderr);
    assert!(ran.stderr.contains("finished the interrupted change"), "{}", ran.stderr);
}
