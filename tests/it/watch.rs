//! `watch` passes any stream on unchanged, and has the counts of `stats`.

use std::fs;
use std::io::{Read as _, Write as _};
use std::path::Path;
use std::process::Stdio;
use std::thread;
use std::time::{Duration, Instant};

use perfx_format::RecordType;
use rustix::process::{Pid, Signal, kill_process};
use serde_json::Value as Json;

use crate::args;
use crate::maker::{Maker, PLAIN, event};
use crate::support::{
    Fixture, Form, Stdin, all, each_fixture, is_ignored, perf, perfx, perfx_command, perfx_with, run,
    same_bytes, temp, workloads,
};

fn samples(stats: &Json) -> u64 {
    let kinds = stats["kinds"].as_array().unwrap().iter();
    kinds.filter(|kind| kind["kind"] == "SAMPLE").map(|kind| kind["records"].as_u64().unwrap()).sum()
}

#[test]
fn streams_pass_unchanged_and_are_counted() {
    let pipes: Vec<Fixture> = all().into_iter().filter(|fixture| fixture.form == Form::Pipe).collect();
    each_fixture(&pipes, |fixture| {
        let bytes = fixture.bytes();
        let ran = perfx_with(Stdin::Pipe(&bytes), ["watch"]);
        same_bytes("what was passed on", &ran.stdout, &bytes)?;
        let stats = perfx(args!["stats", "--json", fixture.path]);
        if ran.code == Some(1) {
            return Ok(());
        }
        let count = samples(&serde_json::from_str(&stats.text()).map_err(|error| error.to_string())?);
        let digits: String = ran.stderr.lines().next().unwrap_or_default().chars().collect();
        let count =
            if count == 1 { "with 1 sample".into() } else { format!("with {} samples", with_commas(count)) };
        if digits.ends_with(&count) { Ok(()) } else { Err(format!("{count}: {}", ran.stderr)) }
    });
}

fn with_commas(number: u64) -> String {
    let digits = number.to_string();
    let groups = digits.as_bytes().rchunks(3).rev().map(|group| str::from_utf8(group).unwrap());
    groups.collect::<Vec<_>>().join(",")
}

#[test]
fn other_data_than_recordings_passes_unchanged() {
    let damaged = {
        let mut bytes = Fixture::new("recorded/pipe.p61.data").repeated(9_000_000);
        let middle = bytes.len() / 2;
        bytes[middle..middle + 64].fill(0xff);
        bytes
    };
    for bytes in [&b"hello"[..], b"", &[0; 300_000], &damaged] {
        let ran = perfx_with(Stdin::Pipe(bytes), ["watch"]);
        assert!(ran.stdout == bytes);
        assert_ne!(ran.code, Some(0), "{}", ran.stderr);
    }
    let ran = perfx_with(Stdin::Pipe(b"hello"), ["watch"]);
    assert_eq!(ran.code, Some(1));
    assert!(
        ran.stderr.contains("the data was passed on unchanged, but could not be counted"),
        "{}",
        ran.stderr
    );
}

/// The next program must not wait until a block is full.
#[test]
fn a_slow_stream_is_passed_on_at_once() {
    let bytes = Fixture::new("recorded/pipe.p61.data").bytes();
    let mut command = perfx_command();
    command.arg("watch").stdin(Stdio::piped()).stdout(Stdio::piped()).stderr(Stdio::null());
    let mut child = command.spawn().unwrap();
    let (mut to, mut from) = (child.stdin.take().unwrap(), child.stdout.take().unwrap());
    for part in bytes.chunks(1000) {
        to.write_all(part).unwrap();
        let mut passed = vec![0; part.len()];
        from.read_exact(&mut passed).unwrap();
        assert_eq!(passed, part);
    }
    drop(to);
    assert!(child.wait().unwrap().success());
}

#[test]
fn losses_are_said_at_the_end() {
    let mut bytes = Fixture::new("recorded/pipe.p61.data").bytes();
    // LOST: id 0, 5 records.
    bytes.extend([&[2, 0, 0, 0, 0, 0, 24, 0][..], &[0; 8], &[5, 0, 0, 0, 0, 0, 0, 0]].concat());
    let ran = perfx_with(Stdin::Pipe(&bytes), ["watch"]);
    assert_eq!(ran.code, Some(3), "{}", ran.stderr);
    assert!(ran.stderr.contains("the kernel lost 5 records: perf record -m"), "{}", ran.stderr);
}

/// The file grows while it is followed; its size is written at the end, and then its features.
#[test]
fn a_file_is_followed_while_a_command_writes_it() {
    let folder = temp();
    let fixture = Fixture::new("recorded/fp.p61.data");
    let script = "exec 3>out.data; head -c 4000 \"$0\" >&3; sleep 0.4; tail -c +4001 \"$0\" >&3; mv out.data named; exit 5";
    let mut command = perfx_command();
    command.args(["watch", "--", "sh", "-c", script]).arg(&fixture.path).current_dir(folder.path());
    let ran = crate::support::run(&mut command, Stdin::Null);
    assert_eq!(ran.code, Some(5), "{}", ran.stderr);
    assert!(ran.stderr.contains(" with 33 samples\n"), "{}", ran.stderr);
    assert_eq!(fs::read(folder.path().join("named")).unwrap(), fixture.bytes());
}

#[test]
fn a_command_without_a_recording_keeps_its_exit_code() {
    let ran = perfx(["watch", "--", "sh", "-c", "exit 7"]);
    assert_eq!(ran.code, Some(7));
    assert!(ran.stderr.contains("sh wrote no recording that could be followed"), "{}", ran.stderr);
    let ran = perfx(["watch", "--", "sh", "-c", "kill -TERM $$"]);
    assert_eq!(ran.code, Some(128 + 15));
    let ran = perfx(["watch", "--", "/no/such/program"]);
    assert_eq!(ran.code, Some(1));
    assert!(ran.stderr.contains("can't run /no/such/program"), "{}", ran.stderr);
}

/// perf record itself, in each of the forms that it writes.
#[test]
fn new_recordings_of_perf_are_counted_as_by_stats() {
    let (Some(perf), Some(work)) = (perf("perf"), workloads()) else { return };
    let folder = temp();
    for (number, options) in [&[][..], &["-z"], &["--threads"]].into_iter().enumerate() {
        let out = folder.path().join(number.to_string());
        let mut record = args!["record", "-q", "-e", "cpu-clock", "-F", "2000", "-o", out].to_vec();
        record.extend(options.iter().map(std::ffi::OsString::from));
        record.extend(args![work.join("burn"), "200", "1"]);
        let begin = Instant::now();
        let ran = perfx([&args!["watch", "--", perf.path()][..], &record].concat());
        assert!(begin.elapsed() < Duration::from_secs(60));
        if ran.code != Some(0) {
            return crate::support::skipped(&format!("perf record, which fails here: {}", ran.stderr));
        }
        let stats: Json = serde_json::from_str(&perfx(args!["stats", "--json", out]).text()).unwrap();
        let count = format!("with {} samples\n", with_commas(samples(&stats)));
        assert!(samples(&stats) > 10 && ran.stderr.contains(&count), "{count}: {}", ran.stderr);
    }
}

#[test]
fn a_torn_stream_is_told() {
    let bytes = Fixture::new("recorded/pipe.p61.data").bytes();
    // An AUXTRACE record directly after the header, with 8 bytes of its 1000 of data.
    let auxtrace =
        [&bytes[..16], &[71, 0, 0, 0, 0, 0, 48, 0], &[0xe8, 3, 0, 0, 0, 0, 0, 0], &[0; 40]].concat();
    for torn in [&bytes[..bytes.len() - 5], &bytes[..100], &auxtrace] {
        let ran = perfx_with(Stdin::Pipe(torn), ["watch"]);
        assert_eq!(ran.code, Some(3), "{}", ran.stderr);
        assert!(ran.stderr.contains("ends inside a record"), "{}", ran.stderr);
    }
}

/// Regression: perfx ended alone, and the command continued.
#[test]
fn a_signal_ends_the_command_and_then_perfx() {
    for signal in [Signal::INT, Signal::TERM, Signal::HUP] {
        if is_ignored(signal.as_raw()) {
            continue;
        }
        let folder = temp();
        let mut command = perfx_command();
        command.args(["watch", "--", "sh", "-c", "echo $$ > new; mv new pid; exec sleep 60"]);
        let mut watch = command.current_dir(folder.path()).stderr(Stdio::null()).spawn().unwrap();
        let pid = loop {
            match fs::read_to_string(folder.path().join("pid")) {
                Ok(pid) => break pid,
                Err(_) => thread::sleep(Duration::from_millis(5)),
            }
        };
        kill_process(Pid::from_child(&watch), signal).unwrap();
        assert_eq!(watch.wait().unwrap().code(), Some(128 + signal.as_raw()));
        assert!(!Path::new("/proc").join(pid.trim()).exists());
    }
}

/// Regression: `stats` counted it, and the others reported that nothing was lost.
#[test]
fn lost_aux_data_is_a_loss_everywhere() {
    for (flag, name) in [(1, "truncated"), (4, "partial"), (8, "collisions"), (2, "")] {
        let folder = temp();
        let input = folder.path().join("in.data");
        let mut maker = Maker::new(&input, &[event(PLAIN, Vec::new())]);
        maker.sample(7, 0x40_1000);
        // offset, size and flags
        let words = [0, 4096, flag].map(u64::to_le_bytes);
        maker.put(RecordType::AUX, 0, 7, &[words.as_flattened()]);
        maker.writer.finish().unwrap();
        let is_lost = flag != 2;
        let overview = perfx(args!["overview", "--foreign", input]).text();
        let said = if is_lost { "AUX data 1 time" } else { "nothing, as far as the recording says" };
        assert!(overview.lines().any(|line| line.starts_with("lost ") && line.ends_with(said)), "{overview}");
        let stats = perfx(args!["stats", "--json", input]).text();
        let stats: serde_json::Value = serde_json::from_str(&stats).unwrap();
        assert_eq!(stats["lost"]["aux_records"], u64::from(is_lost));
        assert!(!is_lost || stats["aux"][name] == 1, "{stats}");
        let pipe = folder.path().join("pipe.data");
        perfx(args!["copy", input, "--to", "pipe", "-o", pipe]).done().unwrap();
        let ran = run(perfx_command().arg("watch"), Stdin::File(&pipe));
        assert_eq!(ran.code, Some(if is_lost { 3 } else { 0 }), "{}", ran.stderr);
        assert_eq!(ran.stderr.contains("AUX data was lost 1 time"), is_lost, "{}", ran.stderr);
    }
}
