//! The output of perf report for a recording, to compare with that for a copy with changed names or
//! addresses.

use std::path::Path;

use crate::args;
use crate::support::{Fixture, Perf, Stdin, recorded};

/// The recordings of perf 6.1 and 7.3 whose names begin with one of these parts.
pub(crate) fn of_two_perfs(parts: &[&str]) -> Vec<Fixture> {
    let mut fixtures = recorded();
    fixtures.retain(|fixture| {
        let name = fixture.name.trim_start_matches("recorded/");
        parts.iter().any(|part| name.starts_with(part))
            && matches!(fixture.recorded_by(), Some("p61" | "p73"))
    });
    assert!(fixtures.len() > 40);
    fixtures
}

/// The perfs that read a recording and the output made from it.
pub(crate) fn readers<'a>(perfs: &'a [Perf], fixture: &'a Fixture) -> impl Iterator<Item = &'a Perf> {
    // perf 6.1 refuses attrs of later versions in a file.
    let old = fixture.recorded_by() == Some("p61");
    let perfs = perfs.iter().filter(move |perf| old || perf.name == "perf-new");
    perfs.filter(|perf| perf.can_read(&fixture.path))
}

/// The lines of perf report with these options, such as `--sort`, sorted. `cell` changes the contents of a
/// column.
pub(crate) fn shares(
    perf: &Perf,
    recording: &Path,
    options: &[&str],
    cell: impl Fn(&str) -> String,
) -> Result<Vec<String>, String> {
    let line = args!["report", "-f", "--stdio", "-n", "--no-children", "-g", "none", "-t", "\t"];
    let line = line.into_iter().chain(options.iter().map(Into::into)).chain(args!["-i", recording]);
    let ran = perf.run(Stdin::Null, line).done()?;
    let cell = |text: &str| match text.trim() {
        // perf copies the vdso to a file with a random name.
        text if text.starts_with("/tmp/perf-vdso") => "[vdso]".to_owned(),
        text => cell(text),
    };
    let text = ran.text();
    let lines = text.lines().filter(|line| line.contains('%') && !line.starts_with('#'));
    let mut lines: Vec<_> =
        lines.map(|line| line.split('\t').map(cell).collect::<Vec<_>>().join(" ")).collect();
    // perf sorts lines of one share by name.
    lines.sort();
    assert!(!lines.is_empty(), "{} shows nothing", perf.name);
    Ok(lines)
}
