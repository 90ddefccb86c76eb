//! With the index of `perfx index`, every command has the same result as without; an index that does not
//! belong to the recording is not used.

use std::ffi::OsString;
use std::fs::{self, File};
use std::io::Write as _;
use std::os::unix::fs::{FileExt as _, MetadataExt as _, chown, symlink};
use std::path::{Path, PathBuf};
use std::time::{Duration, SystemTime};

use perfx_format::write::RecordingWriter;
use perfx_format::{Attr, Endian, Event, RecordType, sample_type as st};
use rustix::fs::{CWD, FileType, Mode, mknodat};

use crate::support::{Fixture, Ran, Stdin, Tier, each, perfx, perfx_with, recorded, temp};
use crate::{args, tiers};

fn index_of(recording: &Path) -> PathBuf {
    let mut path = OsString::from(recording);
    path.push(".pfi");
    path.into()
}

/// The output, the report and the files of a command.
fn outcome(folder: &Path, recording: &Path, command: &[&str]) -> (Ran, Vec<(PathBuf, Vec<u8>)>) {
    let out = folder.join("out");
    fs::create_dir(&out).unwrap();
    let args = command.iter().map(|arg| OsString::from(arg.replace("OUT", out.to_str().unwrap())));
    let ran = perfx(args.chain([recording.into()]));
    let mut written: Vec<PathBuf> = fs::read_dir(&out).unwrap().map(|entry| entry.unwrap().path()).collect();
    written.sort();
    let written = written.into_iter().map(|path| (path.clone(), fs::read(path).unwrap())).collect();
    fs::remove_dir_all(&out).unwrap();
    (ran, written)
}

/// Fails if the command has another result with an index.
fn is_same(recording: &Path, command: &[&str]) -> Result<(), String> {
    let folder = temp();
    let index = index_of(recording);
    assert!(index.exists());
    let with = outcome(folder.path(), recording, command);
    let away = folder.path().join("away.pfi");
    fs::rename(&index, &away).unwrap();
    let without = outcome(folder.path(), recording, command);
    fs::rename(&away, &index).unwrap();
    let what = |(ran, _): &(Ran, _)| format!("{:?} {}", ran.code, ran.stderr);
    if what(&with) != what(&without) {
        return Err(format!("{command:?} says {} with an index, {} without", what(&with), what(&without)));
    }
    match with.0.stdout == without.0.stdout && with.1 == without.1 {
        true => Ok(()),
        false => Err(format!("{command:?} writes something else with an index")),
    }
}

const COMMANDS: [&[&str]; 17] = [
    &["filter", "-o", "OUT/out.data", "--time", "30%-40%"],
    &["filter", "-o", "OUT/out.data", "--time", "0%-10%,95%-100%"],
    &["view", "--foreign", "--pid", "103", "--count"],
    &["filter", "-o", "OUT/out.data", "--pid", "102,1337"],
    &["filter", "-o", "OUT/out.data", "--exclude-pid", "101", "--drop-unused"],
    &["filter", "-o", "OUT/out.data", "--time", "+1ms,", "--dso", ".*lib.*"],
    &["split", "-o", "OUT/", "--time", "50ms"],
    &["split", "-o", "OUT/", "--by", "pid"],
    &["stats"],
    &["stats", "--time", "30%-40%"],
    &["stats", "--pid", "102,1337", "--json"],
    &["stats", "--time", "+1ms,", "--exclude-dso", ".*lib.*"],
    &["view", "--foreign", "--time", "30%-31%"],
    &["export", "folded", "--foreign", "--time", "30%-40%"],
    &["export", "folded", "--foreign", "--pid", "101", "--all"],
    &["inject", "--foreign", "-b", "-o", "OUT/out.data"],
    &["sort", "-o", "OUT/out.data"],
];

tiers!(commands_do_the_same_with_an_index);
fn commands_do_the_same_with_an_index(tier: Tier) {
    let fixtures: Vec<_> = tier.of(recorded()).into_iter().filter(|fixture| fixture.path.is_file()).collect();
    let fixtures: Vec<&Fixture> = fixtures.iter().collect();
    each(
        &fixtures,
        |fixture| fixture.name.clone(),
        |fixture| {
            let folder = temp();
            let copy = folder.path().join("in.data");
            fs::copy(&fixture.path, &copy).unwrap();
            let ran = perfx(args!["index", copy]);
            if ran.code != Some(0) {
                // It is damaged or compressed.
                let why =
                    ["perfx recover", "perfx decompress", "copy the file again", "header", "not a perf.data"];
                return if why.iter().any(|why| ran.stderr.contains(why)) { Ok(()) } else { Err(ran.stderr) };
            }
            let number = fixture.name.bytes().fold(0, |sum, byte| sum + usize::from(byte));
            let mut some = COMMANDS.iter().skip(number % 7).step_by(7);
            some.try_for_each(|command| is_same(&copy, command))
        },
    );
}

/// A recording of several batches with samples of other processes at other times, and other records among
/// them.
pub(crate) fn several_batches(path: &Path) {
    let endian = Endian::Little;
    let mut attr = Attr::default();
    (attr.type_, attr.sample_period, attr.sample_type) = (1, 1, st::IP | st::TID | st::TIME | st::PERIOD);
    // sample_id_all
    attr.flags = 1 << 18;
    let event = Event::made(&attr, Vec::new(), endian);
    let mut writer = RecordingWriter::create(path, std::slice::from_ref(&event), endian).unwrap();
    let words = |words: &[u32]| words.iter().flat_map(|&word| endian.bytes_u32(word)).collect::<Vec<u8>>();
    for number in 0..300_000_u32 {
        let (pid, time) = (100 + number / 40_000, u64::from(number) * 1000 + 5_000_000);
        let time = endian.bytes_u64(time);
        let trailer = [&words(&[pid, pid])[..], &time].concat();
        let mut write = |kind: RecordType, fields: &[&[u8]]| {
            writer.write_parts(kind, 0, &[&fields.concat(), &trailer]).unwrap();
        };
        if number % 40_000 == 0 {
            write(RecordType::FORK, &[&words(&[pid, pid - 1, pid, pid - 1]), &time]);
            write(RecordType::COMM, &[&words(&[pid, pid]), format!("task-{}", pid % 10).as_bytes(), &[0; 2]]);
        }
        match number % 50_000 {
            10 => {
                write(RecordType::MMAP, &[&words(&[pid, pid, 0x40_0000, 0, 0x1000, 0, 0, 0]), b"/bin/a\0\0"])
            }
            20 => write(RecordType::MMAP, &[&words(&[u32::MAX, 0, 0, 9, 0x1000, 0, 0, 0]), b"[kern]\0\0"]),
            30 => write(RecordType::CGROUP, &[&words(&[number, 0]), b"/group\0\0"]),
            40 => write(RecordType::LOST, &[&words(&[0, 0, 1, 0])]),
            50 => write(RecordType(4000), &[b"unknown!"]),
            // Batches without any are walked in leaps.
            60 if number < 100_000 => write(RecordType::SWITCH, &[]),
            // Of a process without samples.
            70 => write(RecordType::EXIT, &[&words(&[9, 1, 9, 1]), &time]),
            80 => write(RecordType::FINISHED_ROUND, &[]),
            _ => {}
        }
        let ip = endian.bytes_u64(0x40_0000 + u64::from(number % 64));
        let parts = [&ip[..], &words(&[pid, pid]), &time, &endian.bytes_u64(1)];
        writer.write_parts(RecordType::SAMPLE, 2, &parts).unwrap();
    }
    writer.finish().unwrap();
}

tiers!(parts_of_several_batches_are_the_same_with_an_index);
fn parts_of_several_batches_are_the_same_with_an_index(tier: Tier) {
    let folder = temp();
    let recording = folder.path().join("in.data");
    several_batches(&recording);
    let ran = perfx(args!["index", recording]);
    assert!(ran.stderr.contains("in.data.pfi: 3 batches, 300,000 samples"), "{}", ran.stderr);
    for command in tier.first(3, &COMMANDS) {
        is_same(&recording, command).unwrap();
    }
    // The batches outside of the window are not even read.
    let file = File::options().write(true).open(&recording).unwrap();
    let size = file.metadata().unwrap().len();
    file.write_all_at(&[0xff; 1 << 16], size - (2 << 20)).unwrap();
    let index = File::options().write(true).open(index_of(&recording)).unwrap();
    let metadata = file.metadata().unwrap();
    let changed = Duration::new(metadata.ctime() as u64, metadata.ctime_nsec() as u32);
    index.set_modified(SystemTime::UNIX_EPOCH + changed).unwrap();
    let read = |command: &[&str]| perfx(command.iter().map(OsString::from).chain([recording.clone().into()]));
    let view = |option: &[&str]| read(&[&["view", "--count", "--foreign"], option].concat());
    assert_eq!(view(&["--time", "0.01,0.02"]).text().trim(), "10000");
    assert_eq!(view(&["--pid", "101"]).text().trim(), "40000");
    assert_ne!(view(&[]).code, Some(0));
    let stats = read(&["stats", "--time", "0.01,0.02"]);
    assert!(stats.text().contains("cpu-clock   10,000  100.00%"), "{} {}", stats.text(), stats.stderr);
    assert_ne!(read(&["stats"]).code, Some(0));
    let (part, all) = (folder.path().join("part.data"), folder.path().join("all.data"));
    let filter = |window: &str, out: &Path| perfx(args!["filter", "--time", window, "-o", out, recording]);
    assert_eq!(filter("0.01,0.02", &part).code, Some(0));
    assert_ne!(filter("0,", &all).code, Some(0));
}

/// A copy of a recording with its index.
fn indexed(folder: &Path, name: &str) -> PathBuf {
    let copy = folder.join("in.data");
    fs::copy(Fixture::new(name).path, &copy).unwrap();
    let ran = perfx(args!["index", copy]);
    assert_eq!(ran.code, Some(0), "{}", ran.stderr);
    copy
}

const NOT_USED: &str = "in.data.pfi is not used: ";

#[test]
fn a_stale_index_is_not_used() {
    let folder = temp();
    let recording = indexed(folder.path(), "recorded/fp.p61.data");
    let says = || perfx(args!["view", "--count", "--foreign", recording]).stderr;
    assert_eq!(says(), "");
    // A byte of the last sample changes, and the time of the change is hidden as well as a user can.
    let file = File::options().read(true).write(true).open(&recording).unwrap();
    let (modified, mut byte) = (file.metadata().unwrap().modified().unwrap(), [0]);
    file.read_exact_at(&mut byte, 3000).unwrap();
    file.write_all_at(&[byte[0] ^ 1], 3000).unwrap();
    file.set_modified(modified).unwrap();
    assert!(says().contains(NOT_USED), "{}", says());
    assert!(says().contains("the recording has changed since"), "{}", says());
    assert!(says().contains("perfx index"), "{}", says());
    // The index of a copy is newer than the changed recording, too.
    let copy = folder.path().join("copy");
    fs::create_dir(&copy).unwrap();
    fs::copy(&recording, copy.join("in.data")).unwrap();
    fs::copy(index_of(&recording), copy.join("in.data.pfi")).unwrap();
    let ran = perfx(args!["view", "--count", "--foreign", copy.join("in.data")]);
    assert!(ran.stderr.contains(NOT_USED), "{}", ran.stderr);
    file.write_all_at(&byte, 3000).unwrap();
    // The content is the indexed one.
    assert_eq!(says(), "");
    file.set_len(file.metadata().unwrap().len() + 8).unwrap();
    assert!(says().contains(NOT_USED), "{}", says());
    // Another recording takes its name.
    fs::copy(Fixture::new("recorded/several.p61.data").path, &recording).unwrap();
    assert!(says().contains(NOT_USED), "{}", says());
    assert_eq!(perfx(args!["index", recording]).code, Some(0));
    assert_eq!(says(), "");
    for damage in [&b""[..], b"PERFXIDX", b"PERFXIDX\x02\0\0\0", b"something else"] {
        fs::write(index_of(&recording), damage).unwrap();
        assert!(says().contains(NOT_USED), "{}", says());
    }
    assert!(!says().contains("renews it"), "{}", says());
    File::create(index_of(&recording)).unwrap().set_len(1 << 40).unwrap();
    assert!(says().contains("larger than the recording"), "{}", says());
}

/// Whoever could write into the folder of a recording decided which samples `view --pid` shows.
#[test]
fn the_index_of_another_user_is_not_used() {
    let folder = temp();
    let recording = indexed(folder.path(), "recorded/fp.p61.data");
    if chown(index_of(&recording), Some(12345), None).is_err() {
        return eprintln!("skipped: only root can give a file to another user");
    }
    let ran = perfx(args!["view", "--count", "--foreign", recording]);
    assert!(ran.stderr.contains(NOT_USED) && ran.stderr.contains("belongs to user 12345"), "{}", ran.stderr);
    chown(&recording, Some(12345), None).unwrap();
    assert_eq!(perfx(args!["view", "--count", "--foreign", recording]).stderr, "");
}

/// Otherwise, whoever can put a file beside a recording could decide the output of `redact`.
#[test]
fn commands_that_change_or_judge_all_records_use_no_index() {
    let folder = temp();
    let recording = indexed(folder.path(), "recorded/fp.p61.data");
    fs::write(index_of(&recording), "something else").unwrap();
    let out = folder.path().join("out.data");
    for command in
        ["redact", "copy", "sort", "doctor", "stats", "du", "pack", "remap --path /a=/b", "inject --aslr"]
    {
        let mut args: Vec<OsString> = command.split(' ').map(OsString::from).collect();
        args.push(recording.clone().into());
        if !["doctor", "stats", "du"].contains(&command) {
            args.extend(args!["-f", "-o", out]);
        }
        let ran = perfx(args);
        assert!(!ran.stderr.contains("pfi") && ran.code != Some(2), "{command}: {}", ran.stderr);
    }
}

#[test]
fn a_fifo_in_the_place_of_an_index_is_not_opened() {
    let folder = temp();
    let recording = indexed(folder.path(), "recorded/fp.p61.data");
    fs::remove_file(index_of(&recording)).unwrap();
    mknodat(CWD, index_of(&recording), FileType::Fifo, Mode::RUSR | Mode::WUSR, 0).unwrap();
    let ran = perfx(args!["index", recording]);
    assert_eq!(ran.code, Some(1));
    assert!(ran.stderr.contains("is not an index and is not overwritten"), "{}", ran.stderr);
    assert_eq!(perfx(args!["view", "--count", "--foreign", recording]).stderr, "");
}

#[test]
fn the_others_of_several_recordings_get_their_index() {
    let folder = temp();
    let recording = indexed(folder.path(), "recorded/fp.p61.data");
    fs::remove_file(index_of(&recording)).unwrap();
    let ran = perfx(args!["index", folder.path().join("nope.data"), recording]);
    assert_eq!(ran.code, Some(1));
    assert!(ran.stderr.contains("nope.data: ") && ran.stderr.contains("wrote "), "{}", ran.stderr);
    assert!(index_of(&recording).is_file());
}

#[test]
fn an_index_goes_with_copies_of_its_recording() {
    let folder = temp();
    let recording = indexed(folder.path(), "recorded/fp.p61.data");
    let copy = folder.path().join("copy.data");
    fs::copy(index_of(&recording), index_of(&copy)).unwrap();
    fs::copy(&recording, &copy).unwrap();
    assert_eq!(perfx(args!["view", "--count", "--foreign", copy]).stderr, "");
    // A recording opened through a link has no index, and needs none.
    symlink(&recording, folder.path().join("link.data")).unwrap();
    assert_eq!(perfx(args!["view", "--count", "--foreign", folder.path().join("link.data")]).stderr, "");
}

#[test]
fn an_index_is_deterministic_and_replaces_only_an_index() {
    let folder = temp();
    let recording = indexed(folder.path(), "recorded/several.p61.data");
    let first = fs::read(index_of(&recording)).unwrap();
    assert_eq!(perfx(args!["index", recording, "-@", "1"]).code, Some(0));
    assert_eq!(fs::read(index_of(&recording)).unwrap(), first);
    fs::write(index_of(&recording), "notes").unwrap();
    let ran = perfx(args!["index", recording]);
    assert_eq!(ran.code, Some(1));
    assert!(ran.stderr.contains("is not an index and is not overwritten"), "{}", ran.stderr);
    assert_eq!(fs::read(index_of(&recording)).unwrap(), b"notes");
}

#[test]
fn directories_and_pipe_data_have_indexes_and_streams_have_none() {
    let folder = temp();
    let copy = folder.path().join("dir");
    fs::create_dir(&copy).unwrap();
    for entry in fs::read_dir(Fixture::new("recorded/threads.p61.data").path).unwrap() {
        let entry = entry.unwrap();
        fs::copy(entry.path(), copy.join(entry.file_name())).unwrap();
    }
    let ran = perfx(args!["index", format!("{}/", copy.display())]);
    assert_eq!(ran.code, Some(0), "{}", ran.stderr);
    assert!(index_of(&copy).is_file());
    for command in COMMANDS {
        is_same(&copy, command).unwrap();
    }
    let part = File::options().append(true).open(copy.join("data.0")).unwrap();
    (&part).write_all(&[0; 8]).unwrap();
    assert!(perfx(args!["view", "--count", "--foreign", copy]).stderr.contains("is not used"));
    let folder = temp();
    let pipe = indexed(folder.path(), "recorded/pipe.p61.data");
    for command in COMMANDS {
        is_same(&pipe, command).unwrap();
    }
    let ran = perfx_with(Stdin::Null, args!["index", "-"]);
    assert_eq!(ran.code, Some(2), "{}", ran.stderr);
    let ran = perfx(args!["index", Fixture::new("recorded/z.p61.data").path]);
    assert_eq!(ran.code, Some(1));
    assert!(ran.stderr.contains("perfx decompress first"), "{}", ran.stderr);
}

/// /dev/stdin.pfi was written.
#[test]
fn a_file_without_a_path_gets_no_index() {
    let folder = temp();
    let (recording, link) = (folder.path().join("in.data"), folder.path().join("link.data"));
    fs::copy(Fixture::new("recorded/fp.p61.data").path, &recording).unwrap();
    symlink("/dev/stdin", &link).unwrap();
    for name in [Path::new("/dev/stdin"), Path::new("/dev/fd/0"), Path::new("/proc/self/fd/0"), &link] {
        let ran = perfx_with(Stdin::File(&recording), args!["index", name]);
        assert_eq!(ran.code, Some(1), "{}", ran.stderr);
        assert!(ran.stderr.contains("no place for an index: give the file's own name"), "{}", ran.stderr);
        assert!(!index_of(name).exists());
    }
    fs::remove_file(&link).unwrap();
    symlink("in.data", &link).unwrap();
    assert_eq!(perfx(args!["index", link]).code, Some(0));
}

#[test]
fn commands_write_an_index_of_their_output_on_request() {
    let folder = temp();
    let (input, out) = (Fixture::new("recorded/z.p61.data").path, folder.path().join("out.data"));
    let ran = perfx(args!["decompress", "--index", input, "-o", out]);
    assert_eq!(ran.code, Some(0), "{}", ran.stderr);
    let made = fs::read(index_of(&out)).unwrap();
    assert_eq!(perfx(args!["index", out]).code, Some(0));
    assert_eq!(fs::read(index_of(&out)).unwrap(), made);
    let ran = perfx(args!["compress", "--index", out, "-o", folder.path().join("z.data")]);
    assert_eq!(ran.code, Some(3), "{}", ran.stderr);
    assert!(ran.stderr.contains("no index was written: "), "{}", ran.stderr);
    let ran = perfx(args!["copy", "--index", out, "-o", "-"]);
    assert_eq!(ran.code, Some(2), "{}", ran.stderr);
    assert!(ran.stdout.is_empty());
    let ran = perfx(args!["split", "--index", "--by", "event", out, "-o", folder.path().join("parts/")]);
    assert_eq!(ran.code, Some(0), "{}", ran.stderr);
    let indexes = fs::read_dir(folder.path().join("parts")).unwrap();
    let indexes = indexes.filter(|entry| entry.as_ref().unwrap().path().extension() == Some("pfi".as_ref()));
    assert!(indexes.count() > 0);
}
