//! Promises 1 and 3: without a pass the data section is byte by byte the input's, a file in perf's own layout is so as a whole, and the same
//! input and options give the same bytes whatever the number of threads.

use std::ffi::OsString;
use std::fs;
use std::path::Path;

use crate::args;
use crate::parse::{Contents, Order};
use crate::support::{Fixture, Form, all, each, each_fixture, perfx, recorded, same_bytes, temp};

/// perf was stopped before these were whole, or they were cut: `validation.rs` has what becomes of them.
fn is_whole(fixture: &Fixture) -> bool {
    !["cut-", "killed", "pipe-cut"].iter().any(|part| fixture.name.contains(&format!("recorded/{part}")))
}

/// A copy in the form the recording has, and the exit code; `None` when it is refused.
fn copied(fixture: &Fixture) -> Result<Option<(Vec<u8>, i32)>, String> {
    let folder = temp();
    let out = folder.path().join("out.data");
    let form = if fixture.form == Form::Pipe { "pipe" } else { "file" };
    let ran = perfx(args!["copy", "--to", form, "-o", out, fixture.path]);
    match ran.code {
        Some(1) => Ok(None),
        Some(code @ (0 | 3)) => Ok(Some((fs::read(&out).unwrap(), code))),
        _ => Err(format!("{ran:?}")),
    }
}

#[test]
fn what_perf_recorded_is_copied_byte_by_byte() {
    let fixtures: Vec<_> = recorded()
        .into_iter()
        .filter(|fixture| fixture.form != Form::Directory && is_whole(fixture))
        .collect();
    each_fixture(&fixtures, |fixture| {
        let (copy, code) = copied(fixture)?.ok_or("was refused")?;
        if code != 0 {
            return Err(format!("exit code {code}"));
        }
        same_bytes("the copy", &fixture.bytes(), &copy)
    });
}

#[test]
fn every_file_keeps_its_data_and_perfs_own_layout_is_kept_as_a_whole() {
    let data = |file: &[u8]| file[Order::of(file).section(file, 40)].to_vec();
    let fixtures: Vec<_> = all().into_iter().filter(|fixture| fixture.form == Form::File).collect();
    each_fixture(&fixtures, |fixture| {
        let Some((copy, code)) = copied(fixture)? else { return Ok(()) };
        let file = fixture.bytes();
        same_bytes("the data section", &data(&file), &data(&copy))?;
        // With 3, parts of the input are not where it says, which is told.
        let why = if code == 0 { Contents::file(&file).not_canonical(&file) } else { Some("it is damaged") };
        match why {
            None => same_bytes("a canonical file", &file, &copy)?,
            Some(why) if code == 0 && file == copy => return Err(format!("{why}, yet it stayed so")),
            Some(_) => {}
        }
        match Contents::file(&copy).not_canonical(&copy) {
            Some(why) => Err(format!("what was written is not canonical: {why}")),
            None => Ok(()),
        }
    });
}

#[test]
fn a_pipe_is_copied_byte_by_byte_up_to_where_it_is_cut() {
    let fixtures: Vec<_> = all().into_iter().filter(|fixture| fixture.form == Form::Pipe).collect();
    each_fixture(&fixtures, |fixture| {
        let Some((copy, code)) = copied(fixture)? else { return Ok(()) };
        let mut pipe = fixture.bytes();
        let mut whole = 16;
        if let Some(last) = crate::parse::records(&pipe[16..], Order::of(&pipe)).last() {
            whole += last.at + last.bytes.len();
        }
        if (code == 3) != (whole < pipe.len()) {
            return Err(format!("exit code {code}, though {whole} of {} bytes are whole", pipe.len()));
        }
        pipe.truncate(whole);
        // The one thing that is written anew: the magic of perf 3.2 and before.
        if &pipe[..8] == b"PERFFILE" {
            let magic = if pipe[15] == 0 { b"PERFILE2" } else { b"2ELIFREP" };
            pipe[..8].copy_from_slice(magic);
        }
        same_bytes("the copy", &pipe, &copy)
    });
}

/// Commands that write recordings. Together they look, survey, patch, drop and put, in both forms.
const WRITERS: [&[&str]; 4] = [
    &["copy"],
    &["copy", "--to", "pipe"],
    &["inject", "--no-files", "--buildids"],
    &["inject", "--no-files", "--mmap2-buildids", "--buildid-all"],
];

/// Ids for `inject`, so that it finds some whatever files this machine has.
const KNOWN: &str =
    "00112233445566778899 /tmp/perfx-data/work/burn,0011 /tmp/perfx-data/work/forks,001122 /usr/bin/dash";

/// What a command does with so many threads: exit code, words, bytes.
fn with_threads(threads: &str, command: &[&str], input: &Path) -> (Option<i32>, String, Vec<u8>) {
    let folder = temp();
    let out = folder.path().join("out.data");
    let mut args: Vec<OsString> = command.iter().map(Into::into).collect();
    args.extend(args!["-@", threads, "-o", out, input]);
    if command[0] == "inject" {
        args.extend(args!["--known-build-ids", KNOWN]);
    }
    let ran = perfx(args);
    let written = if out.is_dir() { out.join("data") } else { out.clone() };
    (ran.code, ran.stderr.replace(out.to_str().unwrap(), "OUT"), fs::read(written).unwrap_or_default())
}

fn same_with_one_and_four(command: &[&str], input: &Path) -> Result<(), String> {
    let one = with_threads("1", command, input);
    let four = with_threads("4", command, input);
    if (one.0, &one.1) != (four.0, &four.1) {
        return Err(format!("{command:?} says:\n{}but with four threads:\n{}", one.1, four.1));
    }
    same_bytes(&format!("{command:?} with one thread and four"), &one.2, &four.2)
}

#[test]
fn every_command_writes_the_same_bytes_with_one_thread_and_four() {
    let fixtures = all();
    let cases: Vec<_> =
        fixtures.iter().flat_map(|fixture| WRITERS.iter().map(move |command| (fixture, command))).collect();
    each(
        &cases,
        |(fixture, _)| fixture.name.clone(),
        |(fixture, command)| same_with_one_and_four(command, &fixture.path),
    );
}

/// The recordings of `tests/data` are smaller than a batch, so threads have nothing to share there.
#[test]
fn so_does_every_command_on_a_recording_of_many_batches() {
    let folder = temp();
    let mut cases = Vec::new();
    for name in [
        "recorded/forkexec.p61.data",
        "crafted/be-forkexec.p61.data",
        "crafted/z-frame-each-le.data",
        "recorded/pipe-tracepoint.p73.data",
    ] {
        let path = folder.path().join(name.replace('/', "-"));
        fs::write(&path, Fixture::new(name).repeated(9 << 20)).unwrap();
        cases.extend(WRITERS.iter().map(|command| (name, path.clone(), command)));
    }
    each(
        &cases,
        |(name, _, _)| (*name).to_owned(),
        |(_, path, command)| same_with_one_and_four(command, path),
    );
}

#[test]
fn what_is_dumped_does_not_depend_on_the_run() {
    let fixtures: Vec<_> = all().into_iter().filter(|fixture| fixture.recorded_by() == Some("p61")).collect();
    each_fixture(&fixtures, |fixture| {
        let [one, two] = [(); 2].map(|()| perfx(args!["dump", "--raw", fixture.path]));
        same_bytes("a second dump", &one.stdout, &two.stdout)
    });
}
