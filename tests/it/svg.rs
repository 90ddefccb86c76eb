//! `perfx export svg`: its frames have the weights of folded lines, and hostile names stay text.

use std::collections::BTreeMap;
use std::fs;
use std::path::Path;

use crate::args;
use crate::html::hostile;
use crate::snapshots::same;
use crate::support::{Fixture, perfx, temp, workloads};

/// The frames of a picture: name and per cent.
fn frames(picture: &str) -> Vec<(String, f64)> {
    let frame = |line: &str| {
        let (_, text) = line.strip_prefix("<svg x=")?.split_once("<title>")?;
        let (name, share) = text.split_once("%)</title>")?.0.rsplit_once(" (")?;
        assert!(line.ends_with("</text></svg>"), "{line}");
        Some((name.to_owned(), share.parse().unwrap()))
    };
    picture.lines().filter_map(frame).collect()
}

fn draw(input: &Path, root: &Path) -> String {
    perfx(args!["export", "svg", "--foreign", "--root", root, input]).done().unwrap().text()
}

#[test]
fn frames_have_the_weights_of_folded_lines() {
    let Some(root) = workloads() else { return };
    for name in ["fp.p61", "fp-deep.p61", "several.p61", "tracepoint.p61"] {
        let input = Fixture::new(&format!("recorded/{name}.data")).path;
        let folded = perfx(args!["export", "folded", "--foreign", "--root", root, input]).done().unwrap();
        let mut sums = BTreeMap::<String, f64>::new();
        let mut all = 0.0;
        for line in folded.text().lines() {
            let (stack, count) = line.rsplit_once(' ').unwrap();
            let count: f64 = count.parse().unwrap();
            all += count;
            for frame in stack.split(';') {
                *sums.entry(frame.to_owned()).or_default() += count;
            }
        }
        let mut shown = BTreeMap::<String, f64>::new();
        for (frame, share) in frames(&draw(&input, root)) {
            *shown.entry(frame).or_default() += share;
        }
        assert_eq!(shown.remove("all"), Some(100.0));
        assert!(!shown.is_empty());
        for (frame, share) in shown {
            let near = 100.0 * sums[&frame] / all;
            assert!((share - near).abs() < 0.5, "{name}: {frame} {share} {near}");
        }
    }
}

#[test]
fn a_picture() {
    let Some(root) = workloads() else { return };
    same("export", "svg", &draw(&Fixture::new("recorded/fp.p61.data").path, root));
}

#[test]
fn hostile_names_are_text_in_a_picture() {
    let folder = temp();
    let input = folder.path().join("<script>x.data");
    fs::write(&input, hostile()).unwrap();
    let picture = draw(&input, folder.path());
    assert!(!picture.contains("<script") && !picture.contains("<img"), "{picture}");
    let plain = |c: char| c == '\n' || !c.is_control();
    assert!(picture.chars().all(plain) && !picture.contains('\u{202e}'), "{picture}");
    // As many tags are closed as opened.
    let opened = |tag: &str| picture.matches(&format!("<{tag}")).count();
    let closed = |tag: &str| picture.matches(&format!("</{tag}>")).count();
    for tag in ["svg", "title", "text"] {
        assert_eq!(opened(tag), closed(tag), "{tag}");
    }
}
