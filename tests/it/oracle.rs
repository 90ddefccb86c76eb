//! Promise 6: perf reads the output of perfx, and shows the same as for the input.
//!
//! A perf that refuses the input is not run on the output.

use std::ffi::OsString;
use std::fs;
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicUsize, Ordering};

use crate::args;
use crate::support::{Fixture, Perf, Stdin, each, perfs, perfx, same_lines, temp};

/// A command of perf, and a filter for the lines of its output about the contents; others are about the form,
/// the name or the time.
pub(crate) struct Question {
    pub(crate) args: &'static [&'static str],
    pub(crate) line: fn(&str) -> Option<String>,
}

/// Samples with event, symbols and call chains.
pub(crate) const SCRIPT: Question =
    Question { args: &["script", "-f", "--no-inline", "--no-demangle"], line: |line| Some(line.to_owned()) };

/// Like [`SCRIPT`], without symbols: with a build-id, perf rightly uses none from a file with a different
/// one.
pub(crate) const SAMPLES: Question = Question {
    args: &["script", "-f", "--no-inline", "-F", "comm,pid,tid,time,event,ip,dso"],
    line: |line| Some(line.to_owned()),
};

/// The number of records of each kind.
pub(crate) const STATS: Question = Question { args: &["report", "-f", "--stats"], line: count };

/// Like [`STATS`], if MMAP records became MMAP2 records or were dropped.
pub(crate) const STATS_BUT_MAPPINGS: Question = Question {
    args: &["report", "-f", "--stats"],
    line: |line| count(line).filter(|line| !line.starts_with("MMAP")),
};

fn count(line: &str) -> Option<String> {
    // A percentage is of the total, which includes the records removed below.
    let line = line.split(" (").next().unwrap_or_default().trim().to_owned();
    // perf does not learn the names of the events from a pipe.
    let line = if line.ends_with(" stats:") { "stats:".to_owned() } else { line };
    // Records that only pipe data has, those that contain others, and those added by inject.
    let of_form = ["TOTAL", "ATTR", "FEATURE", "TRACING_DATA", "BUILD_ID", "EVENT_UPDATE", "COMPRESSED"];
    let kind = line.split(' ').next().unwrap_or_default();
    (!line.is_empty() && !of_form.contains(&kind.trim_end_matches('2'))).then_some(line)
}

pub(crate) const HEADER: Question = Question {
    args: &["report", "-f", "--header-only"],
    line: |line| {
        let of_form = [
            "# captured on",      // the time of the file
            "# header version",   // 1 for PERFILE2, 0 for PERFFILE
            "# data offset",      // 0 in a pipe
            "# data size",        // the same
            "# feat offset",      // the same
            "# missing features", // what no pipe has, a file says it has not
            "# ========",         // where a pipe's features begin
            "# directory data version",
            "# compressed :", // several streams of a directory are decompressed
            "# contains AUX", // an index, which no pipe has
        ];
        (line != "#" && !of_form.iter().any(|start| line.starts_with(start))).then(|| line.to_owned())
    },
};

/// Every field of the attrs.
const EVENTS: Question = Question {
    args: &["evlist", "-f", "-v"],
    line: |line| {
        // For a pipe, perf stops before the names of the events.
        line.split_once(": type: ").map(|(_, attr)| attr.to_owned())
    },
};

/// DSOs that samples hit; without -H perf lists the feature's in a file, but the hit ones in a pipe.
pub(crate) const BUILD_IDS: Question = Question {
    args: &["buildid-list", "-f", "-H"],
    // perf gives its copy of the vdso a different name every time.
    line: |line| Some(line.split("/tmp/perf-vdso.so-").next().unwrap_or_default().to_owned()),
};

/// The output of `report` without its header.
pub(crate) const REPORT: Question = Question {
    args: &["report", "-f", "--stdio", "--no-inline", "--no-demangle", "-g", "none"],
    line: |line| (!line.starts_with('#')).then(|| line.to_owned()),
};

const ALL: [&Question; 5] = [&SCRIPT, &STATS, &HEADER, &EVENTS, &BUILD_IDS];

/// A recording and the way perf reads it: perf reads pipe data, especially tracing data, only from a real
/// pipe.
struct Place(PathBuf);

impl Place {
    fn is_pipe(&self) -> bool {
        self.0.is_file()
            && fs::read(&self.0).unwrap().get(8..16).is_some_and(|size| size[0] == 16 || size[7] == 16)
    }

    /// perf's answer; `None` if it refuses.
    fn ask(&self, perf: &Perf, question: &Question) -> Option<Vec<String>> {
        let mut args: Vec<OsString> = question.args.iter().map(Into::into).collect();
        let ran = if self.is_pipe() {
            args.extend(args!["-i", "-"]);
            perf.run(Stdin::Pipe(&fs::read(&self.0).unwrap()), args)
        } else {
            args.extend(args!["-i", self.0]);
            perf.run(Stdin::Null, args)
        };
        let mut lines: Vec<_> = ran.text().lines().filter_map(question.line).collect();
        if question.args[0] == "buildid-list" {
            lines.sort();
        }
        // perf 6 exits with 0 when it fails at `report --header-only`.
        (ran.code == Some(0) && !ran.stderr.contains("failed")).then_some(lines)
    }
}

/// Converts a recording with perfx and compares each perf's answers before and after. Returns the number of
/// compared answers.
fn perf_agrees(
    perfs: &[Perf],
    input: &Path,
    command: &[&str],
    questions: &[&Question],
) -> Result<usize, String> {
    let folder = temp();
    let out = folder.path().join("out.data");
    let mut args: Vec<OsString> = command.iter().map(Into::into).collect();
    args.extend(args!["-o", out, input]);
    let ran = perfx(args).done()?;
    let (before, after) = (Place(input.to_owned()), Place(out));
    let mut answers = 0;
    for perf in perfs {
        for question in questions {
            let what = format!("{} {}", perf.name, question.args.join(" "));
            let Some(expected) = before.ask(perf, question) else { continue };
            let Some(answer) = after.ask(perf, question) else {
                return Err(format!("{what}: refuses what {command:?} made: {}", ran.stderr));
            };
            same_lines(&what, &expected, &answer)?;
            answers += usize::from(!expected.is_empty());
        }
    }
    Ok(answers)
}

/// A recording, the command, and the questions.
pub(crate) type Case<'a> = (&'a str, &'a [&'a str], &'a [&'a Question]);

/// Runs these perfs, if installed. Some of the cases may be too new for each of them, but not all.
pub(crate) fn all_agree(perfs: &[Perf], cases: &[Case<'_>]) {
    if perfs.is_empty() {
        return;
    }
    let answers = AtomicUsize::new(0);
    each(
        cases,
        |(name, command, _)| format!("{name} {}", command.join(" ")),
        |(name, command, questions)| {
            let compared = perf_agrees(perfs, &Fixture::new(name).path, command, questions)?;
            answers.fetch_add(compared, Ordering::Relaxed);
            Ok(())
        },
    );
    assert!(answers.into_inner() * 2 >= cases.len(), "{perfs:?} answer next to nothing");
}

/// Runs the most common perf and the newest.
pub(crate) fn main_perfs_agree(cases: &[Case<'_>]) {
    all_agree(&perfs(&["perf", "perf-new"]), cases);
}

const TO_PIPE: &[&str] = &["copy", "--to", "pipe"];
const TO_FILE: &[&str] = &["copy", "--to", "file"];
/// The arguments for a directory that stays one.
const AS_IT_IS: &[&str] = &["copy"];

/// `report --stats` and `buildid-list` of a pipe with tracing data or compressed records see only the first
/// records.
const NOT_ALL: &[&Question] = &[&SCRIPT, &HEADER, &EVENTS];
const SHORT: &[&Question] = &[&SCRIPT, &HEADER];
/// `buildid-list` loads the symbols of this machine's kernel.
const MOST: &[&Question] = &[&SCRIPT, &STATS, &HEADER, &EVENTS];

#[test]
fn perf_says_the_same_of_a_pipe_made_from_a_file() {
    main_perfs_agree(&[
        ("recorded/several.p61.data", TO_PIPE, &ALL),
        ("recorded/group.p61.data", TO_PIPE, SHORT),
        ("recorded/allbits.p73.data", TO_PIPE, &ALL),
        ("recorded/tracepoint.p61.data", TO_PIPE, NOT_ALL),
        ("recorded/z.p61.data", TO_PIPE, SHORT),
        ("recorded/z-straddle.p73.data", TO_PIPE, SHORT),
        ("recorded/threads-z.p61.data", TO_PIPE, MOST),
        // perf 6.1 reads the number of a feature in a pipe in its own byte order, and shows none.
        ("crafted/be-forkexec.p61.data", TO_PIPE, &[&SCRIPT, &STATS, &EVENTS, &BUILD_IDS]),
        ("crafted/guest-le.data", TO_PIPE, SHORT),
    ]);
}

#[test]
fn perf_says_the_same_of_a_file_made_from_a_pipe() {
    main_perfs_agree(&[
        ("recorded/pipe-group.p61.data", TO_FILE, &ALL),
        ("recorded/pipe-buildid-all.p61.data", TO_FILE, &[&SCRIPT, &BUILD_IDS]),
        ("recorded/pipe-tracepoint.p61.data", TO_FILE, NOT_ALL),
        ("recorded/pipe-z.p61.data", TO_FILE, SHORT),
        ("crafted/aux-pipe-le.data", TO_FILE, MOST),
        ("crafted/be-pipe.p61.data", TO_FILE, MOST),
        ("crafted/v1-pipe-le.data", TO_FILE, SHORT),
    ]);
}

#[test]
fn perf_says_the_same_of_a_file_made_from_a_directory() {
    main_perfs_agree(&[
        ("recorded/threads.p61.data", TO_FILE, SHORT),
        ("recorded/threads.p73.data", TO_FILE, MOST),
        ("recorded/threads-z.p61.data", TO_FILE, &ALL),
        ("crafted/dir-z.data", TO_FILE, SHORT),
        ("recorded/kcore.p61.data", AS_IT_IS, MOST),
    ]);
}

#[test]
fn perf_says_the_same_of_a_file_in_another_layout() {
    main_perfs_agree(&[
        ("crafted/attrs-last-be.data", TO_FILE, MOST),
        ("crafted/data-4096.data", TO_FILE, SHORT),
        ("crafted/features-first.data", TO_FILE, SHORT),
        ("crafted/event-types.data", TO_FILE, SHORT),
        ("crafted/attr-mixed-sizes.data", TO_FILE, SHORT),
        ("crafted/v1-104-attr64-be.data", TO_FILE, &ALL),
        ("crafted/v1-72-attr104-le.data", TO_FILE, SHORT),
        ("crafted/v2-72-be.data", TO_FILE, SHORT),
        ("crafted/aux-index-size.data", TO_FILE, SHORT),
    ]);
}

#[test]
fn every_perf_agrees_about_its_own_recordings() {
    let script: &[&Question] = &[&SCRIPT];
    all_agree(
        &perfs(&["perf-bullseye", "perf-trixie", "perf-sid"]),
        &[
            ("recorded/fp.p510.data", TO_PIPE, script),
            ("recorded/pipe.p510.data", TO_FILE, script),
            ("recorded/z.p612.data", TO_PIPE, script),
            ("recorded/pipe-tracepoint.p612.data", TO_FILE, script),
            ("recorded/tracepoint.p73.data", TO_PIPE, script),
        ],
    );
}
