//! perfx inject passes the checks of perf's own shell tests for `perf inject`: between perf record and perf
//! report, through pipes and files, in every build-id mode and without one.

use std::fs;
use std::path::{Path, PathBuf};

use crate::support::{Perf, Stdin, Tier, each, perfs, perfx_with, same_lines, temp, workloads};
use crate::{args, tiers};

/// The common prefix of the functions in which the workload spends its time.
const FUNCTION: &str = "leaf_";

/// perf's recording of the workload with these options, as pipe data or into a file. `None` if this perf
/// cannot record here, which is reported.
fn record(perf: &Perf, options: &[&str], file: Option<&Path>) -> Option<Vec<u8>> {
    let program = workloads()?.join("tmp/perfx-data/work/burn");
    let output = file.map_or(PathBuf::from("-"), Path::to_path_buf);
    let options = options.iter().map(Into::into);
    let line =
        args!["record", "-q"].into_iter().chain(options).chain(args!["-o", output, "--", program, "100"]);
    let ran = perf.run(Stdin::Null, line);
    if ran.code != Some(0) {
        let _ = std::io::Write::write_all(
            &mut std::io::stderr(),
            format!("SKIPPED: {} can't record here: {}\n", perf.name, ran.stderr).as_bytes(),
        );
        return None;
    }
    Some(ran.stdout)
}

/// As run by a shim for `perf inject`, which overwrites existing files as perf does.
fn inject(stdin: Stdin<'_>, options: &[&str], files: Vec<std::ffi::OsString>) -> Result<Vec<u8>, String> {
    let line = args!["inject", "-f"].into_iter().chain(options.iter().map(Into::into)).chain(files);
    let ran = perfx_with(stdin, line);
    for word in ["decompress", "corrupt", "failed to process type"] {
        if ran.stderr.contains(word) {
            return Err(ran.stderr);
        }
    }
    Ok(ran.done()?.stdout)
}

/// Checks that the output of perf report names one of these functions.
fn reports_the_function(what: &str, perf: &Perf, stdin: Stdin<'_>, file: &Path) -> Result<(), String> {
    let ran = perf.run(stdin, args!["report", "--symfs", "/", "--stdio", "-f", "-i", file]);
    if ran.text().contains(FUNCTION) {
        return Ok(());
    }
    Err(format!("{what}: no {FUNCTION} in {}{}", ran.text(), ran.stderr))
}

tiers!(perf_reports_what_went_through_inject_in_pipes_and_files);
fn perf_reports_what_went_through_inject_in_pipes_and_files(tier: Tier) {
    let perfs = perfs(&["perf", "perf-new"]);
    let options = ["-B", "-b", "--buildid-all", "--mmap2-buildid-all"];
    let cases: Vec<_> = perfs
        .iter()
        .flat_map(|perf| tier.first(1, &options).iter().map(move |option| (perf, *option)))
        .collect();
    if cases.is_empty() {
        return;
    }
    each(
        &cases,
        |(perf, option)| format!("{} {option}", perf.name),
        |(perf, option)| {
            let folder = temp();
            let (one, two) = (folder.path().join("one.data"), folder.path().join("two.data"));
            let stdin = Path::new("-");
            let task_clock = ["-e", "task-clock:u"];
            let Some(plain) = record(perf, &task_clock, None) else { return Ok(()) };
            for recorded in [Some(plain.clone()), record(perf, &["-e", "task-clock:u", "-g"], None)] {
                let recorded = recorded.unwrap_or_default();
                let out = inject(Stdin::Pipe(&recorded), &[option], Vec::new())?;
                reports_the_function("pipe to pipe", perf, Stdin::Pipe(&out), stdin)?;
            }
            inject(Stdin::Pipe(&plain), &[option], args!["-o", one].to_vec())?;
            reports_the_function("pipe to file", perf, Stdin::Null, &one)?;
            record(perf, &task_clock, Some(&one));
            let out = inject(Stdin::Null, &[option], args!["-i", one].to_vec())?;
            reports_the_function("file to pipe", perf, Stdin::Pipe(&out), stdin)?;
            fs::write(&one, &plain).unwrap();
            let out = inject(Stdin::Null, &[option], args!["-i", one].to_vec())?;
            reports_the_function("pipe data in a file to pipe", perf, Stdin::Pipe(&out), stdin)?;
            inject(Stdin::Null, &[option], args!["-i", one, "-o", two].to_vec())?;
            reports_the_function("pipe data in a file to file", perf, Stdin::Null, &two)
        },
    );
}

#[test]
fn perf_reports_the_same_of_a_compressed_recording_after_inject() {
    for perf in perfs(&["perf", "perf-new"]) {
        let folder = temp();
        let (input, output) = (folder.path().join("z.data"), folder.path().join("z.data.decomp"));
        let clock = ["-e", "task-clock:u", "-z"];
        for options in [&["-F", "5000"][..], &["-g", "-F", "max", "-m", "2M", "--per-thread"]] {
            let options = [&clock, options].concat();
            if record(&perf, &options, Some(&input)).is_none() {
                return;
            }
            inject(Stdin::Null, &[], args!["-i", input, "-o", output].to_vec()).unwrap();
            let report = |path: &Path| -> Vec<String> {
                let fields =
                    args!["report", "--symfs", "/", "-f", "--stdio", "-F", "comm,dso,sym", "-i", path];
                let ran = perf.run(Stdin::Null, fields);
                assert_eq!(ran.code, Some(0), "{}: {}", perf.name, ran.stderr);
                // The header names the file, and a random tip follows.
                let text = ran.text();
                text.lines().filter(|line| !line.starts_with('#')).map(ToOwned::to_owned).collect()
            };
            let before = report(&input);
            assert!(before.iter().any(|line| line.contains(FUNCTION)), "{}: {before:?}", perf.name);
            same_lines(perf.name, &before, &report(&output)).unwrap();
        }
    }
}
