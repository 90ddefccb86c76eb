//! Missing and damaged parts of a recording are reported by each command that shows its samples.

use std::fs;
use std::path::{Path, PathBuf};

use perfx_format::record::builder::build;
use perfx_format::record::cpumode::USER;
use perfx_format::write::RecordingWriter;
use perfx_format::{Attr, Endian, Event, MappedFile, Mmap2, RecordType, sample_type as st};

use crate::args;
use crate::snapshots::same;
use crate::support::{Fixture, Stdin, perfx, perfx_command, run, temp};

const ENDIAN: Endian = Endian::Little;

/// Writes samples, each a list of its parts, of 8 bytes each.
fn write(path: &Path, sample_type: u64, read_format: u64, samples: &[&[u64]]) {
    write_behind(&[], path, sample_type, read_format, samples);
}

/// Writes them after another record.
fn write_behind(first: &[u8], path: &Path, sample_type: u64, read_format: u64, samples: &[&[u64]]) {
    let mut attr = Attr::default();
    (attr.sample_type, attr.read_format, attr.sample_period) = (sample_type, read_format, 1000);
    // sample_id_all
    attr.flags = 1 << 18;
    // Of a single event are all samples, whatever their id.
    let events = [1, 2].map(|id| Event::made(&attr, vec![id], ENDIAN));
    let mut writer = RecordingWriter::create(path, &events, ENDIAN).unwrap();
    if !first.is_empty() {
        writer.write(first).unwrap();
    }
    for words in samples {
        let body: Vec<u8> = words.iter().flat_map(|&word| ENDIAN.bytes_u64(word)).collect();
        writer.write(&build(RecordType::SAMPLE, USER, &[&body], ENDIAN).unwrap()).unwrap();
    }
    writer.finish().unwrap();
}

/// A command line and its report, without its output.
fn say(folder: &Path, line: &str) -> String {
    let ran = run(perfx_command().current_dir(folder).args(line.split(' ')), Stdin::Null);
    // The names of files of tables are hashes.
    let lines = ran.stderr.lines().filter(|line| !line.contains("wrote"));
    let said: String = lines.map(|line| format!("{line}\n")).collect();
    format!("$ perfx {line}\n{said}(exit code {})\n", ran.code.unwrap())
}

const TASK: u64 = 7 << 32 | 7;

/// The fields of a sample after its header, up to its call chain.
fn front(id: u64, time: u64, period: u64) -> [u64; 5] {
    [id, 0x40_0000, TASK, time, period]
}

#[test]
fn damaged_samples_are_reported_wherever_they_are_read() {
    let folder = temp();
    let sample_type = st::IDENTIFIER | st::IP | st::TID | st::TIME | st::PERIOD | st::CALLCHAIN | st::CGROUP;
    let sample = |id, time, chain: u64| [&front(id, time, 100)[..], &[chain, 0x40_0000, 5]].concat();
    let samples = [
        sample(1, 1, 1),
        // The chain is longer than its record.
        sample(1, 2, 1000),
        // No event has this id.
        sample(9, 3, 1),
        sample(9, 4, 1),
    ];
    write(&folder.path().join("damaged.data"), sample_type, 0, &samples.each_ref().map(|sample| &sample[..]));
    let lines = [
        "view damaged.data -F ip",
        "view damaged.data --count",
        "list events damaged.data",
        "list cgroups damaged.data",
        "export folded damaged.data",
        "export folded --by cgroup damaged.data",
        "export pprof damaged.data -o damaged.pb.gz",
        "export otlp damaged.data -o damaged.otlp",
        "export firefox damaged.data -o damaged.json.gz",
        "export html damaged.data -o damaged.html",
        "export csv damaged.data --dir csv",
        "export parquet damaged.data --dir parquet",
    ];
    same("export", "losses-samples", &lines.map(|line| say(folder.path(), line)).join("\n"));
    // Regression: beside lines about losses, the overview reported that nothing was lost.
    let ran = perfx(args!["overview", folder.path().join("damaged.data")]);
    let said = "lost           nothing while recording; standard error says what is missing here\n";
    assert!(ran.text().contains(said) && ran.stderr.contains("lost: 2 samples"), "{}", ran.text());
}

#[test]
fn counters_of_no_event_and_missing_counters_are_reported() {
    let folder = temp();
    let sample_type = st::IDENTIFIER | st::IP | st::TID | st::TIME | st::PERIOD | st::READ;
    // PERF_FORMAT_ID and PERF_FORMAT_GROUP.
    let sample = |time, count: u64, id| [&front(1, time, 100)[..], &[count, 10 * time, id]].concat();
    let samples = [sample(1, 1, 1), sample(2, 1, 9), sample(3, 1000, 1)];
    write(
        &folder.path().join("read.data"),
        sample_type,
        1 << 2 | 1 << 3,
        &samples.each_ref().map(|sample| &sample[..]),
    );
    let lines = [
        "view read.data -F ip",
        "list events read.data",
        "export folded read.data",
        "export csv read.data --dir csv",
    ];
    same("export", "losses-counters", &lines.map(|line| say(folder.path(), line)).join("\n"));
}

#[test]
fn truncated_sums_are_reported() {
    let folder = temp();
    let sample_type = st::IDENTIFIER | st::IP | st::TID | st::TIME | st::PERIOD;
    let samples = [1, 2, 3].map(|time| front(1, time, u64::MAX / 2));
    write(&folder.path().join("large.data"), sample_type, 0, &samples.each_ref().map(|sample| &sample[..]));
    let lines = [
        "list processes large.data",
        "export folded large.data",
        "export folded large.data large.data",
        "export pprof large.data -o large.pb.gz",
        "export otlp large.data -o large.otlp",
        "export html large.data -o large.html",
        "export csv large.data --dir csv",
        "export parquet large.data --dir parquet",
    ];
    same("export", "losses-sums", &lines.map(|line| say(folder.path(), line)).join("\n"));
}

#[test]
fn view_reports_faults_of_the_header() {
    let fixture = Fixture::new("crafted/dir-gaps.data");
    let folder = fixture.path.parent().unwrap();
    let lines = ["view dir-gaps.data", "list events dir-gaps.data"].map(|line| say(folder, line));
    let said = |text: &str| {
        text.lines().filter(|line| line.contains("are missing")).map(str::to_owned).collect::<Vec<_>>()
    };
    assert_eq!(said(&lines[0]).len(), 1, "{}", lines[0]);
    assert_eq!(said(&lines[0]), said(&lines[1]));
}

#[test]
fn branches_that_cannot_be_read_are_reported_and_a_recording_without_any_is_left_out() {
    let folder = temp();
    let path = |name: &str| folder.path().join(name);
    let sample_type = st::IDENTIFIER | st::IP | st::TID | st::TIME | st::PERIOD | st::BRANCH_STACK;
    let sample = |id, count: u64| [&front(id, 1, 100)[..], &[count, 0x40_0000, 0x40_0010, 0]].concat();
    let samples = [sample(1, 1), sample(9, 1), sample(1, 1000)];
    write(&path("branches.data"), sample_type, 0, &samples.each_ref().map(|sample| &sample[..]));
    let without: PathBuf = Fixture::new("recorded/plain.p61.data").path;
    fs::copy(&without, path("without.data")).unwrap();
    // Any file with a build-id.
    fs::copy(env!("CARGO_BIN_EXE_perfx"), path("program")).unwrap();
    let lines = [
        "export bolt branches.data --binary program -o out.preagg",
        "export profgen branches.data --binary program -o out.script",
        "export bolt branches.data without.data --dir profiles",
        "export bolt without.data branches.data --binary program -o both.preagg",
        "export bolt without.data without.data --binary program -o none.preagg",
    ];
    same("export", "losses-branches", &lines.map(|line| say(folder.path(), line)).join("\n"));
    assert_eq!(fs::read(path("both.preagg")).unwrap(), fs::read(path("out.preagg")).unwrap());
    assert!(!path("none.preagg").exists());
}

#[test]
fn code_that_cannot_have_run_between_two_branches_is_left_out_of_autofdo() {
    let folder = temp();
    let path = |name: &str| folder.path().join(name);
    fs::copy(env!("CARGO_BIN_EXE_perfx"), path("program")).unwrap();
    let elf = symbols::ElfFile::read(&path("program")).unwrap();
    let &(offset, size, address) = elf.code.first().unwrap();
    assert!(size > 0x20_0000, "the program has more than 2 MiB of code");
    let program = path("program").display().to_string();
    let trailer: Vec<u8> = [TASK, 1, 1].iter().flat_map(|&word| ENDIAN.bytes_u64(word)).collect();
    let mapping = Mmap2 {
        misc: USER,
        pid: 7,
        tid: 7,
        start: 0x4000_0000,
        len: 0x20_0000,
        pgoff: offset,
        file: MappedFile::BuildId(elf.build_id.as_ref().unwrap().as_bytes()),
        prot: 5,
        flags: 2,
        name: program.as_bytes(),
        trailer: &trailer,
    };
    let sample_type = st::IDENTIFIER | st::IP | st::TID | st::TIME | st::PERIOD | st::BRANCH_STACK;
    // Newest first: from 40 bytes after the target of the next one, from before it, and from 1.5 MiB after
    // it.
    let branches = [(0x18_0000, 0), (0x18_0028, 0x100), (0x18_0000, 0x18_0000), (0x18_0000, 0x18_0010)];
    let words = branches.iter().flat_map(|(from, to)| [0x4000_0000 + from, 0x4000_0000 + to, 0]);
    let sample: Vec<u64> = front(1, 2, 100).into_iter().chain([branches.len() as u64]).chain(words).collect();
    let mapping = mapping.write(ENDIAN).unwrap();
    write_behind(&mapping, &path("branches.data"), sample_type, 0, &[&sample]);
    let said = say(folder.path(), "export autofdo branches.data --binary program -o out");
    assert!(
        said.contains("lost: program: 2 ranges of code left out: ") && said.contains("(exit code 3)"),
        "{said}"
    );
    let text = fs::read_to_string(path("out")).unwrap();
    let at = |place: u64| format!("{:x}", address - elf.first_address() + place);
    assert!(text.starts_with(&format!("1\n{}-{}:1\n0\n4\n", at(0x18_0000), at(0x18_0028))), "{text}");
}

#[test]
fn branches_outside_of_the_segments_of_their_file_are_reported() {
    let folder = temp();
    let path = |name: &str| folder.path().join(name);
    fs::copy(env!("CARGO_BIN_EXE_perfx"), path("program")).unwrap();
    let id = symbols::ElfFile::read(&path("program")).unwrap().build_id.unwrap();
    let program = path("program").display().to_string();
    let trailer: Vec<u8> = [TASK, 1, 1].iter().flat_map(|&word| ENDIAN.bytes_u64(word)).collect();
    let mapping = Mmap2 {
        misc: USER,
        pid: 7,
        tid: 7,
        start: 0x40_0000,
        len: 0x1000,
        // Far after the end of the file.
        pgoff: 1 << 40,
        file: MappedFile::BuildId(id.as_bytes()),
        prot: 5,
        flags: 2,
        name: program.as_bytes(),
        trailer: &trailer,
    };
    let sample_type = st::IDENTIFIER | st::IP | st::TID | st::TIME | st::PERIOD | st::BRANCH_STACK;
    let sample = [&front(1, 2, 100)[..], &[1, 0x40_0000, 0x40_0010, 0]].concat();
    let mapping = mapping.write(ENDIAN).unwrap();
    write_behind(&mapping, &path("branches.data"), sample_type, 0, &[&sample]);
    let said = say(folder.path(), "export bolt branches.data --dir profiles");
    // The file may also be found in the build-id cache of the machine, if perf has recorded the program.
    let expected = ": 1 branch left out, outside of its segments";
    assert!(said.contains("lost: ") && said.contains(expected) && said.contains("(exit code 3)"), "{said}");
}

/// They are in no sum, but nothing that the recording contains is missing in the output.
#[test]
fn all_commands_that_count_samples_report_what_was_lost_while_recording() {
    let (folder, input) = (temp(), Fixture::new("recorded/lost.p61.data").path);
    let lines = "list functions|list stacks --by pid|list dsos|view --count|overview|export folded|\
                 export svg|export pprof|export otlp|export html|export firefox|export csv|export parquet";
    for line in lines.split('|') {
        let mut command = perfx_command();
        command.current_dir(folder.path()).args(line.split(' ')).arg(&input).arg("--foreign");
        if line.starts_with("export") {
            command.args(["-o", &line.replace(' ', "-")]);
        }
        let ran = run(&mut command, Stdin::Null);
        assert_eq!(ran.code, Some(0), "{line}: {}", ran.stderr);
        let said = ran.stderr.matches("91 records were lost while recording").count();
        assert_eq!(said, 1, "{line}: {}", ran.stderr);
    }
}
