//! `perfx export html`: the page contains the counts of `export folded` and `stats`, the same bytes on any
//! number of threads, and no name of a recording as markup. `browser.rs` opens it.

use std::collections::{BTreeMap, HashMap};
use std::fs;
use std::io::{Read as _, Write as _};
use std::path::Path;
use std::process::Command;

use build_id::BuildId;
use perfx_export::html::{Head, RecordingHead};
use perfx_format::record::cpumode;
use serde_json::Value as Json;
use symbols::ElfFile;

use crate::folded::INLINED;
use crate::support::{
    Fixture, Ran, Stdin, Tier, clean, each_export, is_installed, perf, perfx, perfx_command, perfx_with, run,
    skipped, temp, workloads,
};
use crate::symbols::record_kernel;
use crate::{args, support, tiers};

fn export(inputs: &[&Path], more: &[&str]) -> Ran {
    support::export("html", inputs, more)
}

pub(crate) struct Data {
    pub(crate) head: Head,
    columns: Vec<Vec<u64>>,
}

/// A row: time (none in the last ones), label, event, node + 1, samples, period.
type Row = (u64, usize, usize, usize, u64, u64);

impl Data {
    pub(crate) fn of(page: &[u8]) -> Data {
        let text = str::from_utf8(page).unwrap();
        let (_, data) = text.split_once("<script id=\"data\" type=\"application/octet-stream\">").unwrap();
        let packed = from_base64(data.split_once('<').unwrap().0);
        let mut bytes = Vec::new();
        flate2::read::GzDecoder::new(&*packed).read_to_end(&mut bytes).unwrap();
        let (length, rest) = bytes.split_first_chunk().unwrap();
        let (head, mut rest) = rest.split_at(u32::from_le_bytes(*length) as usize);
        let head: Head = serde_json::from_slice(head).unwrap();
        let mut columns = Vec::new();
        for &size in &head.columns {
            let (column, later) = rest.split_at(size);
            rest = later;
            let ends = column.split_inclusive(|byte| byte & 0x80 == 0);
            let number =
                |digits: &[u8]| digits.iter().rev().fold(0, |sum, &digit| sum << 7 | u64::from(digit & 0x7f));
            columns.push(ends.map(number).collect());
        }
        assert!(rest.is_empty());
        Data { head, columns }
    }

    fn rows(&self, recording: usize) -> Vec<Row> {
        let columns = &self.columns[4 + recording * 7..][..7];
        let RecordingHead { first_time, step, rows, .. } = &self.head.recordings[recording];
        assert!(columns.iter().all(|column| column.len() == *rows));
        let mut time = first_time.parse::<u64>().unwrap();
        let row = |at: usize| {
            time += columns[0][at] * step;
            let [label, event, node] = [1, 2, 3].map(|column| columns[column][at] as usize);
            (time, label, event, node, columns[4][at], columns[5][at])
        };
        (0..*rows).map(row).collect()
    }

    /// The instruction of each row, with its weight in the event shown first: of all functions, or none.
    fn instructions(&self) -> impl Iterator<Item = (Option<usize>, u64)> {
        let spots = &self.columns[4 + 6];
        let first = self.head.recordings[0].first_event;
        let shown = self.rows(0).into_iter().zip(spots).filter(move |(row, _)| Some(row.2 as u32) == first);
        shown.map(|(row, &spot)| ((spot as usize).checked_sub(1), row.5))
    }

    /// The names of each node's stack, joined with `;`.
    fn stacks(&self) -> Vec<String> {
        let mut stacks: Vec<String> = Vec::new();
        for (&distance, &function) in self.columns[2].iter().zip(&self.columns[3]) {
            let before = match distance as usize {
                0 => String::new(),
                distance => format!("{};", stacks[stacks.len() - distance]),
            };
            stacks.push(before + &self.head.functions[function as usize]);
        }
        stacks
    }

    /// The lines of `export folded` for the event shown first.
    fn folded(&self, by_samples: bool) -> BTreeMap<String, u64> {
        let (stacks, recording) = (self.stacks(), &self.head.recordings[0]);
        let mut sums: BTreeMap<(usize, usize), [u64; 2]> = BTreeMap::new();
        for (_, label, event, node, samples, period) in self.rows(0) {
            if Some(event as u32) == recording.first_event {
                let sum = sums.entry((label, node)).or_default();
                *sum = [sum[0] + samples, sum[1].saturating_add(period)];
            }
        }
        let mut lines = BTreeMap::new();
        for ((label, node), [samples, period]) in sums {
            let comm = recording.labels[label].0.replace(char::is_control, "?").replace(';', ":");
            let comm = comm.replace(' ', "_");
            let stack = if node == 0 { comm } else { format!("{comm};{}", stacks[node - 1]) };
            let weight = if by_samples || period == 0 { samples } else { period };
            *lines.entry(stack).or_default() += weight;
        }
        lines
    }
}

fn from_base64(text: &str) -> Vec<u8> {
    let digit = |byte: u8| match byte {
        b'A'..=b'Z' => byte - b'A',
        b'a'..=b'z' => byte - b'a' + 26,
        b'0'..=b'9' => byte - b'0' + 52,
        b'+' => 62,
        b'/' => 63,
        _ => panic!("{byte}"),
    };
    let mut bytes = Vec::new();
    for four in text.trim_end_matches('=').as_bytes().chunks(4) {
        let word =
            four.iter().fold(0, |sum, &byte| sum << 6 | u32::from(digit(byte))) << (6 * (4 - four.len()));
        bytes.extend(&word.to_be_bytes()[1..four.len()]);
    }
    bytes
}

fn to_base64(bytes: &[u8]) -> String {
    let digits = ('A'..='Z').chain('a'..='z').chain('0'..='9').chain(['+', '/']).collect::<Vec<_>>();
    let bit = |at: usize| bytes.get(at / 8).map_or(0, |byte| usize::from(byte >> (7 - at % 8) & 1));
    let digit = |at: usize| digits[(0..6).fold(0, |sum, place| sum << 1 | bit(at * 6 + place))];
    let text: String = (0..(bytes.len() * 8).div_ceil(6)).map(digit).collect();
    let padding = text.len().next_multiple_of(4) - text.len();
    text + &"=".repeat(padding)
}

/// The page with a suffix on each of its texts, except numbers.
pub(crate) fn with_names(page: &[u8], more: &str) -> Vec<u8> {
    fn rename(value: &mut Json, more: &str) {
        match value {
            Json::String(text) if text.parse::<f64>().is_err() => text.push_str(more),
            Json::Array(values) => values.iter_mut().for_each(|value| rename(value, more)),
            Json::Object(fields) => fields.values_mut().for_each(|value| rename(value, more)),
            _ => {}
        }
    }
    let text = str::from_utf8(page).unwrap();
    let (before, data) = text.split_once("<script id=\"data\" type=\"application/octet-stream\">").unwrap();
    let (data, after) = data.split_once('<').unwrap();
    let mut bytes = Vec::new();
    flate2::read::GzDecoder::new(&*from_base64(data)).read_to_end(&mut bytes).unwrap();
    let (length, rest) = bytes.split_first_chunk().unwrap();
    let (head, columns) = rest.split_at(u32::from_le_bytes(*length) as usize);
    let mut head: Json = serde_json::from_slice(head).unwrap();
    // One of all kinds is so long; more would only be slow.
    let short = &more[..more.len().min(150)];
    rename(&mut head, short);
    rename(&mut head["functions"][0], more);
    let head = serde_json::to_vec(&head).unwrap();
    let mut packed = flate2::write::GzEncoder::new(Vec::new(), flate2::Compression::fast());
    for part in [&(head.len() as u32).to_le_bytes(), &*head, columns] {
        packed.write_all(part).unwrap();
    }
    let data = to_base64(&packed.finish().unwrap());
    format!("{before}<script id=\"data\" type=\"application/octet-stream\">{data}<{after}").into_bytes()
}

tiers!(a_page_counts_what_folded_lines_and_stats_count);
fn a_page_counts_what_folded_lines_and_stats_count(tier: Tier) {
    each_export(tier, "html", |fixture, ran, root| {
        let data = Data::of(&ran.stdout);
        for by_samples in [true, false] {
            let weight = if by_samples { "samples" } else { "period" };
            let line =
                args!["export", "folded", "--foreign", "--root", root, "--weight", weight, fixture.path];
            let text = perfx(line).text();
            let theirs: BTreeMap<String, u64> = text
                .lines()
                .filter_map(|line| line.rsplit_once(' '))
                .map(|(stack, count)| (stack.to_owned(), count.parse().unwrap()))
                .collect();
            let ours = data.folded(by_samples);
            if ours != theirs {
                return Err(format!("by {weight}: {ours:?}\nfolded {theirs:?}"));
            }
        }
        if fixture.has_siblings() {
            return Ok(());
        }
        let stats: Json =
            serde_json::from_slice(&perfx(args!["stats", "--json", fixture.path]).stdout).unwrap();
        let mut samples = HashMap::<usize, u64>::new();
        for row in data.rows(0) {
            *samples.entry(row.2).or_default() += row.4;
        }
        for (event, theirs) in stats["events"].as_array().unwrap().iter().enumerate() {
            let number = |value: &Json| value.as_u64().unwrap_or_default();
            let [by_id, by_thread] = ["by_id", "by_thread"].map(|by| number(&theirs["new_values"][by]));
            let ours = samples.get(&event).copied().unwrap_or_default();
            let theirs = number(&theirs["samples"]);
            // A sample with READ counts once for each counter that gained something.
            let reads = by_id + by_thread > 0;
            if if reads { ours != by_id && ours != by_thread } else { ours != theirs } {
                return Err(format!(
                    "event {event}: {ours} samples, stats has {theirs}, {by_id}, {by_thread}"
                ));
            }
        }
        Ok(())
    });
}

/// objdump is the reference for instructions, and `folded` for weights.
#[test]
fn listed_code_has_the_instructions_of_the_file_and_the_weight_of_the_samples() {
    let Some(root) = workloads() else { return };
    if !is_installed("objdump", "apt-get install binutils") {
        return;
    }
    let input = Fixture::new("recorded/fp.p61.data").path;
    let more = ["--root", root.to_str().unwrap(), "--annotate", "3"];
    let data = Data::of(&export(&[&input], &more).stdout);
    let (mut first, mut names) = (0, Vec::new());
    let lines = perfx(args!["export", "folded", "--foreign", "--root", root, input]).text();
    for code in &data.head.code {
        // Its functions are unknown.
        if code.name == "[kernel.kallsyms]" {
            assert!(code.instructions.is_empty() && code.lack.is_some());
            names.push(code.name.as_str());
            continue;
        }
        let program = root.join(code.file.trim_start_matches('/'));
        let mut dump = clean("objdump");
        let dump = run(dump.arg(format!("--disassemble={}", code.name)).arg(program), Stdin::Null).text();
        let words = |line: &str| {
            let (address, rest) = line.trim_start().split_once(":\t")?;
            Some((address.to_owned(), rest.split_once('\t')?.1.split_whitespace().next()?.to_owned()))
        };
        let theirs: Vec<(String, String)> = dump.lines().filter_map(words).collect();
        let ours = code.instructions.iter();
        let word = |text: &str| text.split(' ').next().unwrap_or_default().to_owned();
        let ours: Vec<_> = ours.map(|(at, text, _)| (at.clone(), word(text))).collect();
        assert_eq!(ours, theirs, "{}", code.name);
        let inside = first..first + code.instructions.len();
        let weight: u64 = data
            .instructions()
            .filter(|(spot, _)| spot.is_some_and(|spot| inside.contains(&spot)))
            .map(|(_, weight)| weight)
            .sum();
        let own = lines.lines().filter_map(|line| line.rsplit_once(' '));
        let own = own.filter(|(stack, _)| stack.rsplit(';').next() == Some(&code.name));
        assert_eq!(weight, own.map(|(_, count)| count.parse::<u64>().unwrap()).sum::<u64>(), "{}", code.name);
        (first, names) = (inside.end, [names, vec![code.name.as_str()]].concat());
    }
    assert_eq!(names, ["leaf_xor", "leaf_mul", "down", "[kernel.kallsyms]"]);
    let both = export(&[&input, &input], &more);
    assert_eq!(both.code, Some(2), "{}", both.stderr);
}

/// The source lines of a program built here, with inlined calls. `view` has perf's lines.
#[test]
fn source_lines_have_the_samples_of_their_code() {
    let Some(perf) = perf("perf") else { return };
    let folder = temp();
    let at = |name: &str| folder.path().join(name);
    fs::write(at("inlined.c"), INLINED).unwrap();
    let mut gcc = clean("gcc");
    let gcc = gcc.current_dir(folder.path()).args(["-O2", "-g", "-o", "inlined", "inlined.c"]);
    let built = run(gcc, Stdin::Null);
    assert_eq!(built.code, Some(0), "{}", built.stderr);
    let line = args!["record", "-q", "-e", "cpu-clock:u", "-F", "999", "-o", at("in.data"), at("inlined")];
    if perf.run(Stdin::Null, line).code != Some(0) {
        return skipped("what perf records here");
    }
    let mut command = perfx_command();
    command.args(["export", "html", "--annotate", "2", "-o", "-"]).arg(at("in.data"));
    let data = Data::of(&run(&mut command, Stdin::Null).stdout);
    let code = &data.head.code[0];
    let mut ours = BTreeMap::<String, u64>::new();
    for (spot, _) in data.instructions() {
        let line =
            spot.and_then(|spot| code.instructions.get(spot)?.2).map(|line| &code.lines[line as usize]);
        if let Some(line) = line {
            assert_eq!(line.text.as_deref(), INLINED.lines().nth(line.number as usize - 1));
            *ours.entry(format!("inlined.c:{}", line.number)).or_default() += 1;
        }
    }
    let text = perfx(args!["view", "-F", "ip,sym,srcline", "--no-inline", at("in.data")]).text();
    let mut theirs = BTreeMap::<String, u64>::new();
    let lines: Vec<&str> = text.lines().map(str::trim).collect();
    for pair in lines.windows(2).filter(|pair| pair[0].ends_with(&format!(" {}", code.name))) {
        *theirs.entry(pair[1].to_owned()).or_default() += 1;
    }
    assert!(!ours.is_empty());
    assert_eq!(ours, theirs, "{text}");
}

/// Regression: a link in place of a source file put the text of any file on the page, such as /etc/shadow for
/// root.
#[test]
fn source_is_read_in_the_folder_of_the_compiler_and_through_no_link() {
    let Some(perf) = perf("perf") else { return };
    let folder = temp();
    let at = |name: &str| folder.path().join(name);
    for name in ["build/src", "elsewhere"] {
        fs::create_dir_all(at(name)).unwrap();
    }
    fs::write(at("build/src/inlined.c"), INLINED).unwrap();
    let secret = "root:SECRET:\n".repeat(99);
    fs::write(at("elsewhere/inlined.c"), &secret).unwrap();
    fs::write(at("elsewhere/shadow"), &secret).unwrap();
    let build = || {
        let mut gcc = clean("gcc");
        run(gcc.current_dir(at("build")).args(["-O2", "-g", "-o", "inlined", "src/inlined.c"]), Stdin::Null)
    };
    assert_eq!(build().code, Some(0));
    let program = at("build/inlined");
    let line = args!["record", "-q", "-e", "cpu-clock:u", "-F", "999", "-o", at("in.data"), program];
    if perf.run(Stdin::Null, line).code != Some(0) {
        return skipped("what perf records here");
    }
    let exported = |more: &[&str]| {
        let mut command = perfx_command();
        command.args(["export", "html", "--annotate", "2", "-o", "-"]).args(more).arg(at("in.data"));
        let ran = run(&mut command, Stdin::Null);
        let head = Data::of(&ran.stdout).head;
        let texts = head.code.iter().flat_map(|code| &code.lines).filter_map(|line| line.text.clone());
        (texts.collect::<Vec<String>>().join("\n"), ran.stderr)
    };
    let (text, said) = exported(&["-v"]);
    assert!(text.contains("for (") && said.contains("the page holds the text of 1 source file\n"), "{said}");
    assert!(said.contains("/build/src/inlined.c\n"), "{said}");
    let source = at("build/src/inlined.c");
    let replaced = |by: &str| {
        fs::remove_file(&source).unwrap();
        std::os::unix::fs::symlink(at(by), &source).unwrap();
    };
    for (by, more) in [("elsewhere/shadow", &[][..]), ("elsewhere/inlined.c", &["--root", "/"])] {
        replaced(by);
        let (text, said) = exported(more);
        assert_eq!(text, "");
        assert!(said.contains("left out 1 source file: symbolic links are not followed"), "{said}");
    }
    fs::remove_dir_all(at("build/src")).unwrap();
    std::os::unix::fs::symlink(at("elsewhere"), at("build/src")).unwrap();
    let (text, said) = exported(&[]);
    assert_eq!(text, "");
    assert!(said.contains("left out 1 source file outside the folder of the compiler: --root /"), "{said}");
    assert!(exported(&["--root", "/"]).0.contains("SECRET"));
    // A folder that is `.` was the one in which perfx runs, and `/` has every file.
    fs::remove_file(at("build/src")).unwrap();
    fs::create_dir(at("build/src")).unwrap();
    fs::write(&source, INLINED).unwrap();
    for folder in [".", "/"] {
        let source = source.to_str().unwrap();
        let map = format!("-fdebug-prefix-map={}={folder}", at("build").display());
        let mut gcc = clean("gcc");
        let built =
            run(gcc.current_dir(at("build")).args(["-O2", "-g", "-o", "inlined", &map, source]), Stdin::Null);
        assert_eq!(built.code, Some(0));
        let line = args!["record", "-q", "-e", "cpu-clock:u", "-F", "999", "-o", at("in.data"), program];
        assert_eq!(perf.run(Stdin::Null, line).code, Some(0));
        let mut command = perfx_command();
        command.current_dir(at("build"));
        command.args(["export", "html", "--annotate", "2", "-o", "-"]).arg(at("in.data"));
        let head = Data::of(&run(&mut command, Stdin::Null).stdout).head;
        let mut texts = head.code.iter().flat_map(|code| &code.lines).filter_map(|line| line.text.clone());
        assert_eq!(texts.next(), None, "{folder}");
    }
}

#[test]
fn labels_have_the_cgroup_of_the_samples() {
    let path = Fixture::new("recorded/cgroups.p61.data").path;
    let data = Data::of(&export(&[&path], &[]).stdout);
    let mut sums = BTreeMap::<&str, u64>::new();
    for (_, label, _, _, samples, _) in data.rows(0) {
        let cgroup = data.head.recordings[0].labels[label].2.as_deref();
        *sums.entry(cgroup.expect("each sample has a cgroup")).or_default() += samples;
    }
    for (cgroup, samples) in sums {
        let cgroup = format!("^{cgroup}$");
        let theirs = Data::of(&export(&[&path], &["--cgroup", &cgroup]).stdout);
        assert_eq!(theirs.rows(0).iter().map(|row| row.4).sum::<u64>(), samples, "{cgroup}");
    }
}

tiers!(a_page_does_not_depend_on_threads_form_or_folder);
fn a_page_does_not_depend_on_threads_form_or_folder(tier: Tier) {
    let folder = temp();
    let large = folder.path().join("fp.p61.data");
    fs::write(&large, Fixture::new("recorded/fp.p61.data").repeated(tier.pick(5 << 20, 9 << 20))).unwrap();
    let one = export(&[&large], &["-@1"]);
    assert_eq!(one.code, Some(0), "{}", one.stderr);
    assert!(export(&[&large], &["-@4"]).stdout == one.stdout);
    let inside = folder.path().join("inside");
    fs::create_dir(&inside).unwrap();
    fs::rename(&large, inside.join("fp.p61.data")).unwrap();
    assert!(export(&[&inside.join("fp.p61.data")], &[]).stdout == one.stdout);
    let small = Fixture::new("recorded/fp.p61.data");
    let piped = perfx(args!["copy", small.path, "--to", "pipe"]).stdout;
    let piped = perfx_with(Stdin::Pipe(&piped), ["export", "html", "--foreign", "-", "-o", "-"]);
    let (piped, filed) = (Data::of(&piped.stdout), Data::of(&export(&[&small.path], &[]).stdout));
    assert_eq!((piped.rows(0), piped.stacks()), (filed.rows(0), filed.stacks()));
    assert_eq!(piped.head.recordings[0].about["name"], "<stdin>");
}

/// The names of a recording as chosen by an attacker; each replaces one of the same length.
pub(crate) fn hostile() -> Vec<u8> {
    let mut bytes = Fixture::new("recorded/fp.p61.data").bytes();
    let names = [("/tmp/perfx-data/work/burn\0", "/</script><img src=x o=1>\0"), ("burn\0\0\0", "<b>&;\0\0")];
    for (old, new) in names {
        assert_eq!(old.len(), new.len());
        let places: Vec<_> =
            bytes.windows(old.len()).enumerate().filter(|(_, at)| *at == old.as_bytes()).collect();
        let places: Vec<usize> = places.into_iter().map(|(at, _)| at).collect();
        assert!(!places.is_empty(), "{old}");
        for at in places {
            bytes[at..at + new.len()].copy_from_slice(new.as_bytes());
        }
    }
    bytes
}

#[test]
fn names_are_no_markup() {
    let folder = temp();
    let path = folder.path().join("<img src=x onerror=alert(1)>.data");
    fs::write(&path, hostile()).unwrap();
    let ran = export(&[&path], &[]);
    assert_eq!(ran.code, Some(0), "{}", ran.stderr);
    let page = String::from_utf8(ran.stdout.clone()).unwrap();
    assert!(!page.contains("<img") && !page.contains("onerror"));
    assert_eq!(page.matches("</script>").count(), 2);
    let data = Data::of(&ran.stdout);
    assert!(data.head.files.iter().any(|file| file.path == "/</script><img src=x o=1>"));
    assert!(data.head.recordings[0].labels.iter().any(|label| label.0 == "<b>&;"));
}

/// The page says which script and style a browser may use; after a change, the constants in
/// src/export/html.rs must be these.
#[test]
fn the_page_permits_its_own_script_and_style_only() {
    let ran = export(&[&Fixture::new("recorded/plain.p61.data").path], &[]);
    let page = ran.text();
    assert!(page.contains("default-src 'none'"));
    for (open, close, source) in
        [("<script>", "</script>", "script-src"), ("<style>", "</style>", "style-src")]
    {
        let text = page.split_once(open).unwrap().1.split_once(close).unwrap().0;
        let folder = temp();
        fs::write(folder.path().join("text"), text).unwrap();
        let mut sum = clean("sha256sum");
        let digits = run(sum.arg(folder.path().join("text")), Stdin::Null).text();
        let bytes: Vec<u8> =
            (0..32).map(|at| u8::from_str_radix(&digits[at * 2..][..2], 16).unwrap()).collect();
        let named = page.split_once(&format!("{source} 'sha256-")).unwrap().1.split_once('\'').unwrap().0;
        assert_eq!(named, to_base64(&bytes), "the constant for {source} in src/export/html.rs");
    }
    assert!(!page.contains("://"), "the page names an address");
}

#[test]
fn two_recordings_are_compared_and_three_are_too_many() {
    let Some(root) = workloads() else { return };
    let more = ["--root", root.to_str().unwrap()];
    let paths = ["fp.p61", "fp.p73"].map(|name| Fixture::new(&format!("recorded/{name}.data")).path);
    let both = Data::of(&export(&[&paths[0], &paths[1]], &more).stdout);
    let sum = |data: &Data, at: usize| data.rows(at).iter().map(|row| row.4).sum::<u64>();
    for (at, path) in paths.iter().enumerate() {
        let one = Data::of(&export(&[path], &more).stdout);
        assert_eq!(sum(&both, at), sum(&one, 0));
    }
    // Functions of both have the same number.
    assert_eq!(both.head.functions.iter().filter(|name| *name == "leaf_mul").count(), 1);
    let ran = export(&[&paths[0], &paths[1], &paths[0]], &[]);
    assert_eq!((ran.code, ran.stdout.len()), (Some(2), 0), "{}", ran.stderr);
}

#[test]
fn losses_are_on_the_page_and_exit_with_3() {
    let ran = export(&[&Fixture::new("crafted/unknown-id-sample.data").path], &[]);
    assert_eq!(ran.code, Some(3), "{}", ran.stderr);
    let about = &Data::of(&ran.stdout).head.recordings[0].about;
    let warnings = about["warnings"].as_array().unwrap();
    assert!(
        warnings.iter().any(|line| line.as_str().unwrap().contains("1 sample belongs to no event")),
        "{about}"
    );
    assert_eq!(about["doctor"]["verdict"], "suspect");
    let lost = Fixture::new("recorded/lost.p61.data");
    let about = &Data::of(&export(&[&lost.path], &[]).stdout).head.recordings[0].about;
    let stats: Json = serde_json::from_slice(&perfx(args!["stats", "--json", lost.path]).stdout).unwrap();
    assert_eq!(about["lost"], stats["lost"]);
    let du: Json = serde_json::from_slice(&perfx(args!["du", "--json", lost.path]).stdout).unwrap();
    assert_eq!(about["bytes"][0]["rows"].as_array().unwrap().last().unwrap()["bytes"], du["bytes"]);
}

const KERNEL: &str = "
int _text(int x) { return x + 1; }
int first(int x) { return x * 3 + 1; }
int second(int x) { return x * 5 + 2; }
";

/// The code of a kernel at another address (KASLR), from its vmlinux or from the copy of its memory beside
/// the recording; without these, the page reports the missing code.
#[test]
fn code_of_the_kernel_is_that_of_its_vmlinux_or_kcore() {
    if !is_installed("ld", "apt-get install binutils") || !is_installed("gcc", "apt-get install gcc") {
        return;
    }
    let folder = temp();
    let path = |name: &str| folder.path().join(name);
    fs::write(path("kernel.c"), KERNEL).unwrap();
    let id = BuildId::new(&[7; 20]).unwrap();
    let done = |command: &mut Command| {
        let ran = run(command, Stdin::Null);
        assert_eq!(ran.code, Some(0), "{}", ran.stderr);
    };
    done(clean("gcc").args(["-O1", "-g", "-c", "-o"]).args([path("kernel.o"), path("kernel.c")]));
    // The copy of the memory has the same code at the address at which it ran.
    let (linked, recorded) = (0xffff_ffff_8100_0000_u64, 0xffff_ffff_9200_0000_u64);
    let build_id = format!("--build-id=0x{id}");
    fs::create_dir_all(path("kcore.data/kcore_dir")).unwrap();
    for (name, start) in [("vmlinux", linked), ("kcore.data/kcore_dir/kcore", recorded)] {
        let link = ["-e", "_text", &format!("-Ttext={start:#x}"), &build_id, "-o"];
        done(clean("ld").args(link).args([path(name), path("kernel.o")]));
    }
    let elf = ElfFile::read(&path("vmlinux")).unwrap();
    let at = |name: &str| {
        elf.symbols.iter().find(|symbol| &*symbol.name == name.as_bytes()).unwrap().start - linked
    };
    let symbols = ["_text", "first", "second"].map(|name| format!("{:x} T {name}\n", recorded + at(name)));
    fs::write(path("kallsyms"), symbols.concat()).unwrap();
    let samples = ["first", "second", "first"].map(|name| (recorded + at(name), cpumode::KERNEL));
    let mapping = (recorded, 0x10_0000, recorded, "[kernel.kallsyms]_text", Some(id));
    record_kernel(&path("plain.data"), &[mapping], &samples);
    fs::copy(path("plain.data"), path("kcore.data/data")).unwrap();

    let shown = |input: &str, option: &[&str]| {
        let (input, file) = (path(input), option.get(1).map(|name| path(name)));
        let mut command = perfx_command();
        command.args(["export", "html", "--foreign", "--annotate", "5", "-o", "-"]).arg(input);
        command.args(option.first()).args(file);
        Data::of(&run(&mut command, Stdin::Null).stdout)
    };
    for (input, option) in
        [("plain.data", "--vmlinux"), ("kcore.data", "--vmlinux"), ("kcore.data", "--kallsyms")]
    {
        let data = shown(input, &[option, option.trim_start_matches('-')]);
        let code = &data.head.code;
        let names: Vec<&str> = code.iter().map(|code| &*code.name).collect();
        assert_eq!((names[..] == ["first", "second"], &code[0].lack), (true, &None), "{input} {option}");
        let mut dump = clean("objdump");
        let dump = run(dump.arg("--disassemble=first").arg(path("vmlinux")), Stdin::Null).text();
        let theirs: Vec<String> = dump
            .lines()
            .filter_map(|line| line.trim_start().split_once(":\t"))
            .map(|(at, _)| u64::from_str_radix(at, 16).unwrap() - linked + recorded)
            .map(|at| format!("{at:x}"))
            .collect();
        let ours = code[0].instructions.iter();
        // In a list without sizes, a function ends where the next one begins.
        let ours: Vec<&str> = ours.map(|(at, ..)| &**at).take(theirs.len()).collect();
        assert_eq!(ours, theirs, "{input} {option}");
        let spots: Vec<_> = data.instructions().map(|(spot, _)| spot.unwrap()).collect();
        assert_eq!(spots, [0, code[0].instructions.len(), 0]);
        let lines: Vec<u32> = code.iter().flat_map(|code| &code.lines).map(|line| line.number).collect();
        assert_eq!(lines.contains(&3) && lines.contains(&4), option == "--vmlinux", "{lines:?}");
    }
    let lacks = |data: &Data| {
        let code = data.head.code.iter();
        code.map(|code| (code.name.clone(), code.lack.clone().unwrap())).collect::<Vec<_>>()
    };
    let missing = lacks(&shown("plain.data", &["--kallsyms", "kallsyms"]));
    assert_eq!(missing.iter().map(|(name, _)| &**name).collect::<Vec<_>>(), ["first", "second"]);
    let lack = format!("its code was not found, no file with build-id {id}: --vmlinux FILE");
    assert!(missing[0].1.starts_with(&lack), "{missing:?}");
    let nameless = lacks(&shown("kcore.data", &[]));
    assert_eq!((nameless.len(), &*nameless[0].0), (1, "[kernel.kallsyms]"));
    assert!(nameless[0].1.starts_with("functions of the kernel have no names"), "{nameless:?}");
}
