//! `perfx dump` shows every record once and in the order of the file, on any number of threads; the text of
//! its lines is in `snapshots/dump` and `src/look/render.rs`.

use std::fs;
use std::io::{BufRead as _, BufReader, Write as _};
use std::path::Path;
use std::process::{Command, Stdio};

use crate::cli::PIPE;
use crate::support::{Fixture, Ran, Tier, perfx, temp};
use crate::{args, tiers};

/// Writes a recording with `count` FINISHED_ROUND records at its end, of 8 bytes each; their text is much
/// longer.
fn write_rounds(path: &Path, count: usize) {
    let mut bytes = Fixture::new(PIPE).bytes();
    let round = [&68_u32.to_le_bytes()[..], &0_u16.to_le_bytes(), &8_u16.to_le_bytes()].concat();
    bytes.extend(round.repeat(count));
    fs::write(path, bytes).unwrap();
}

fn dump(path: &Path, format: &str, threads: &str) -> Ran {
    perfx(args!["dump", "--format", format, "-@", threads, path])
}

tiers!(json_records_are_the_same_in_a_document_and_in_lines);
fn json_records_are_the_same_in_a_document_and_in_lines(tier: Tier) {
    let folder = temp();
    let path = folder.path().join("perf.data");
    // More text than is buffered for a batch.
    write_rounds(&path, tier.pick(60_000, 200_000));
    let [document, lines] = ["json", "ndjson"].map(|format| dump(&path, format, "1"));
    assert_eq!(dump(&path, "json", "3").stdout, document.stdout);
    assert_eq!(dump(&path, "ndjson", "3").stdout, lines.stdout);
    let (document, lines) = (document.text(), lines.text());
    let records = document.strip_suffix("\n]}\n").unwrap().split_once("\n\"records\": [\n").unwrap().1;
    let mut lines = lines.lines().filter_map(|line| line.strip_prefix("{\"schema\":1,\"what\":\"record\","));
    for record in records.split(",\n") {
        assert_eq!(record.strip_prefix('{'), lines.next());
    }
    assert_eq!(lines.next(), None);
}

#[test]
fn records_before_an_error_are_shown() {
    let folder = temp();
    let path = folder.path().join("perf.data");
    // Several batches.
    write_rounds(&path, 600_000);
    let whole = dump(&path, "text", "1");
    assert_eq!(whole.code, Some(0), "{}", whole.stderr);
    let mut bytes = fs::read(&path).unwrap();
    bytes.extend([68, 0, 0, 0, 0, 0, 4, 0]);
    fs::write(&path, bytes).unwrap();
    for threads in ["1", "3"] {
        let ran = dump(&path, "text", threads);
        assert_eq!(ran.code, Some(1));
        assert!(ran.stderr.contains("FINISHED_ROUND (68): size 4 is below"), "{}", ran.stderr);
        assert!(ran.stdout == whole.stdout);
    }
}

#[test]
fn records_of_a_pipe_are_shown_before_it_ends() {
    let mut dump = Command::new(env!("CARGO_BIN_EXE_perfx"));
    let mut dump = dump.arg("dump").stdin(Stdio::piped()).stdout(Stdio::piped()).spawn().unwrap();
    let mut pipe = dump.stdin.take().unwrap();
    pipe.write_all(&Fixture::new(PIPE).bytes()).unwrap();
    let shown = BufReader::new(dump.stdout.take().unwrap());
    // The pipe is still open: if dump waited for its end, the test would never end.
    assert!(shown.lines().any(|line| line.unwrap().contains(" SAMPLE ")));
    drop(pipe);
    dump.wait().unwrap();
}

/// Regression: the features of the JSON document contained control characters that a terminal obeys.
#[test]
fn json_of_features_has_no_control_characters() {
    let folder = temp();
    let path = folder.path().join("named.data");
    let mut bytes = Fixture::new("recorded/plain.p61.data").bytes();
    let name = b"perfx-host";
    let at = bytes.windows(name.len()).position(|window| window == name).unwrap();
    bytes[at] = 0x7f;
    fs::write(&path, &bytes).unwrap();
    for format in ["json", "ndjson"] {
        let text = dump(&path, format, "1").text();
        assert!(text.contains(r"\u007ferfx-host"), "{format}");
        assert!(!text.chars().any(|char| char.is_control() && char != '\n'), "{format}");
    }
}
