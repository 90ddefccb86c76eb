//! Promises 1 and 2: in every form, and after every change of form, a recording keeps its records, events and
//! features, including unknown ones, and the source of the input makes no difference.

use std::collections::BTreeMap;
use std::fs;
use std::path::Path;
use std::process::Command;
use std::thread;

use crate::parse::{
    AUXTRACE, BUILD_ID, Contents, EVENT_TYPE, HEADER_ATTR, Order, Rec, TRACING_DATA, feature, records,
};
use crate::support::{
    Fixture, Form, Ran, Stdin, Tier, all, each, each_fixture, named, perfs, perfx, perfx_with, same_bytes,
    temp,
};
use crate::{args, tiers};

/// Copies `bytes` into a form. `None` for exit codes 1 and 3, whose cases are in `validation.rs`.
fn copy(bytes: &[u8], form: &str) -> Result<Option<Vec<u8>>, String> {
    let folder = temp();
    let (input, out) = (folder.path().join("in.data"), folder.path().join("out.data"));
    fs::write(&input, bytes).unwrap();
    let ran = perfx(args!["copy", "--to", form, "-o", out, input]);
    match ran.code {
        Some(0) => Ok(Some(fs::read(&out).unwrap())),
        Some(1 | 3) => Ok(None),
        _ => Err(format!("{ran:?}")),
    }
}

fn copy_on(bytes: &[u8], form: &str) -> Result<Vec<u8>, String> {
    copy(bytes, form)?.ok_or_else(|| format!("perfx can't make a {form} of what it wrote itself"))
}

/// Features whose bytes may change when a recording goes through a pipe, each with the reason.
fn changes_in_a_pipe(feature: u64) -> bool {
    [
        feature::TRACING_DATA, // padded to 8 bytes, as perf does
        feature::BUILD_ID,     // names padded to 8 bytes; perf before 6.12 padded them to 64
        feature::AUXTRACE,     // an index of file offsets, made anew
        feature::DIR_FORMAT,   // holds for a directory only
    ]
    .contains(&feature)
}

/// The events are the same, and so are the features that may not change.
fn same_front(what: &str, before: &Contents, after: &Contents) -> Result<(), String> {
    if before.events != after.events {
        return Err(format!("{what}: the events became other ones"));
    }
    let kept = |contents: &Contents| -> BTreeMap<u64, Vec<u8>> {
        contents.features.clone().into_iter().filter(|(feature, _)| !changes_in_a_pipe(*feature)).collect()
    };
    let (kept_before, kept_after) = (kept(before), kept(after));
    for (feature, section) in &kept_before {
        let Some(other) = kept_after.get(feature) else {
            return Err(format!("{what}: feature {feature} is gone"));
        };
        same_bytes(&format!("{what}: feature {feature}"), section, other)?;
    }
    if kept_after.len() != kept_before.len() {
        return Err(format!("{what}: there are new features"));
    }
    let tracing = |contents: &Contents| {
        let mut section = contents.features.get(&feature::TRACING_DATA).cloned().unwrap_or_default();
        section.resize(section.len().next_multiple_of(8), 0);
        section
    };
    same_bytes(&format!("{what}: tracing data"), &tracing(before), &tracing(after))
}

/// The index lists every AUXTRACE record, in order.
fn same_index(what: &str, file: &[u8]) -> Result<(), String> {
    let contents = Contents::file(file);
    let records = contents.records(file);
    let at = |record: &Rec| [(contents.data.start + record.at) as u64, record.size as u64];
    let aux: Vec<u64> = records.iter().filter(|record| record.kind == AUXTRACE).flat_map(at).collect();
    let index = contents.features.get(&feature::AUXTRACE).cloned().unwrap_or_default();
    let words: Vec<u64> = index.chunks_exact(8).map(|word| contents.order.u64(word, 0)).collect();
    let said = words.split_first().map(|(&count, entries)| (count as usize, entries));
    match said {
        None if aux.is_empty() => Ok(()),
        Some((count, entries)) if count == aux.len() / 2 && entries == aux => Ok(()),
        _ => Err(format!("{what}: the index says {words:?}, but AUXTRACE records are at {aux:?}")),
    }
}

tiers!(a_file_comes_back_from_a_pipe);
fn a_file_comes_back_from_a_pipe(tier: Tier) {
    let fixtures: Vec<_> = tier.of(all()).into_iter().filter(|fixture| fixture.form == Form::File).collect();
    each_fixture(&fixtures, |fixture| {
        // `identity.rs` tests the layout; here it would only obscure the comparison.
        let Some(file) = copy(&fixture.bytes(), "file")? else { return Ok(()) };
        let Some(pipe) = copy(&file, "pipe")? else { return Ok(()) };
        // perf refuses such a file, which is reported only if it was a pipe: see below.
        if ["two-no-id", "two-positions-differ", "two-trailers-differ"]
            .iter()
            .any(|name| fixture.name.contains(name))
        {
            return Ok(());
        }
        let back = copy_on(&pipe, "file")?;
        let (before, between, after) = (Contents::file(&file), Contents::pipe(&pipe), Contents::file(&back));
        same_front("in the pipe", &before, &between)?;
        same_front("back in a file", &before, &after)?;
        same_bytes("the data section", &file[before.data.clone()], &back[after.data.clone()])?;
        let ids = before.build_ids(&file);
        // Except for the recording with entries of perf 2.6.33, without a pid, which this test's reader
        // cannot parse.
        let same = ids == between.build_ids(&pipe) && ids == after.build_ids(&back);
        if !same && !fixture.name.contains("buildid-no-pid") {
            return Err("build-ids became other ones".to_owned());
        }
        same_index("back in a file", &back)?;
        // Nothing else differs: if these features are unchanged, too, and perf left no empty slots in the
        // feature table, the whole file is the same. (Without any feature, the header of a big-endian file
        // becomes as short as perf requires.)
        let short = before.order.big && before.features.is_empty();
        if before.spare.is_empty() && before.features == after.features && !short {
            same_bytes("the whole file", &file, &back)?;
        }
        Ok(())
    });
}

tiers!(a_pipe_comes_back_from_a_file);
fn a_pipe_comes_back_from_a_file(tier: Tier) {
    // No perf can read HOSTNAME here, so it is rewritten on the way back.
    let is_fit =
        |fixture: &Fixture| fixture.form == Form::Pipe && !fixture.name.contains("pipe-feature-short");
    let fixtures: Vec<_> = tier.of(all()).into_iter().filter(is_fit).collect();
    each_fixture(&fixtures, |fixture| {
        let Some(pipe) = copy(&fixture.bytes(), "pipe")? else { return Ok(()) };
        let Some(file) = copy(&pipe, "file")? else { return Ok(()) };
        let back = copy_on(&file, "pipe")?;
        let (before, between, after) = (Contents::pipe(&pipe), Contents::file(&file), Contents::pipe(&back));
        // A file of perf stat needs feature STAT, and then its pipe has it, too.
        let of_stat = fixture.name.contains("pipe-stat");
        let but_stat = |mut contents: Contents| {
            contents.features.retain(|feature, _| !of_stat || *feature != feature::STAT);
            contents
        };
        let (between, after) = (but_stat(between), but_stat(after));
        same_front("in the file", &before, &between)?;
        same_front("back in a pipe", &before, &after)?;
        let ids = before.build_ids(&pipe);
        if ids != between.build_ids(&file) || ids != after.build_ids(&back) {
            return Err("build-ids became other ones".to_owned());
        }
        same_index("in the file", &file)?;
        let ordinary_of = |contents: &Contents, bytes: &[u8]| -> Vec<Vec<u8>> {
            let ordinary = |record: &Rec| !record.is_front && record.kind != BUILD_ID;
            contents.records(bytes).into_iter().filter(ordinary).map(|record| record.bytes).collect()
        };
        let event_types = |contents: &Contents, bytes: &[u8]| -> Vec<Vec<u8>> {
            let records = contents.records(bytes).into_iter().filter(|record| record.kind == EVENT_TYPE);
            // perf before 3.3 pads the name to 8 bytes, everything else to 64.
            let padded = |record: Rec| [&record.bytes[8..], &[0; 72]].concat()[..72].to_vec();
            records.map(padded).collect()
        };
        if event_types(&before, &pipe) != event_types(&after, &back) {
            return Err("event types became other ones".to_owned());
        }
        let ordinary = ordinary_of(&before, &pipe);
        if ordinary != ordinary_of(&between, &file) || ordinary != ordinary_of(&after, &back) {
            return Err("the records became other ones".to_owned());
        }
        Ok(())
    });
}

/// The contents of a recording without offsets: every line of the dump is a record. Without feature STAT,
/// perf refuses a file whose events have no ids, like those of perf stat.
#[test]
fn a_pipe_of_perf_stat_becomes_a_file_that_perf_stat_reports() {
    for (name, perf) in [("recorded/pipe-stat.p61.data", "perf"), ("recorded/pipe-stat.p73.data", "perf-new")]
    {
        let fixture = Fixture::new(name);
        let folder = temp();
        let out = folder.path().join("out.data");
        let ran = perfx(args!["copy", fixture.path, "-o", out]);
        assert_eq!(ran.code, Some(0), "{}", ran.stderr);
        assert!(ran.stderr.contains("feature STAT was set"), "{}", ran.stderr);
        for perf in perfs(&[perf]) {
            let of_pipe = perf.run(Stdin::File(&fixture.path), ["stat", "report", "-i", "-"]);
            let of_file = perf.run(Stdin::Null, args!["stat", "report", "-i", out]);
            assert_eq!(of_file.code, Some(0), "{}", of_file.stderr);
            // The output reports that pipe data cannot be checked.
            let counts = |ran: &Ran| -> Vec<String> {
                let said = format!("{}{}", ran.text(), ran.stderr);
                said.lines().filter(|line| line.starts_with(' ')).map(str::to_owned).collect()
            };
            assert_eq!(counts(&of_pipe), counts(&of_file));
            assert!(counts(&of_file).iter().any(|line| line.contains("page-faults")));
        }
    }
}

/// Its events have no ids, and all possible records have the same layout.
#[test]
fn a_pipe_of_perf_stat_whose_events_have_no_id_goes_through_passes() {
    let fixtures = ["recorded/pipe-stat.p61.data", "recorded/pipe-stat.p73.data"].map(Fixture::new);
    each_fixture(&fixtures, |fixture| {
        let folder = temp();
        let out = folder.path().join("out.data");
        for command in
            [&["inject", "-b", "-i"] as &[&str], &["inject", "-B", "-i"], &["filter", "--event", "cs"]]
        {
            let args = command.iter().map(Into::into).chain(args![fixture.path, "-f", "-o", out]);
            let ran = perfx(args.collect::<Vec<std::ffi::OsString>>());
            if ran.code != Some(0) {
                return Err(format!("{command:?}: {}", ran.stderr));
            }
            let stats = |path: &Path| perfx(args!["stats", path]).text();
            let stat = |path: &Path| stats(path).lines().filter(|line| line.starts_with("STAT")).count();
            if stat(&out) != stat(&fixture.path) || stat(&out) == 0 {
                return Err(format!("{command:?}: {}", stats(&out)));
            }
        }
        Ok(())
    });
}

/// The front of a file must leave room for it, so that another copy has nothing to move.
#[test]
fn a_late_event_of_a_pipe_is_in_the_header_of_the_file() {
    for name in ["recorded/pipe.p61.data", "crafted/aux-pipe-le.data"] {
        let pipe = Fixture::new(name).bytes();
        let all = records(&pipe[16..], Order::of(&pipe));
        let mut late = all.iter().find(|record| record.kind == HEADER_ATTR).unwrap().bytes.clone();
        // A different id, so that no record belongs to it.
        let id = late.len() - 8;
        late[id..].copy_from_slice(&4_000_000_u64.to_le_bytes());
        let at = 16 + all[all.len() - 3].at;
        let late = [&pipe[..at], &late, &pipe[at..]].concat();
        let file = copy(&late, "file").unwrap().unwrap();
        let contents = Contents::file(&file);
        assert_eq!(contents.not_canonical(&file), None);
        assert_eq!(contents.events.len(), Contents::pipe(&pipe).events.len() + 1, "{name}");
        same_index(name, &file).unwrap();
        same_bytes(name, &file, &copy_on(&file, "file").unwrap()).unwrap();
        // A pipe read as a stream gives the same file.
        let folder = temp();
        let out = folder.path().join("out.data");
        perfx_with(Stdin::Pipe(&late), args!["copy", "-", "-o", out]).done().unwrap();
        same_bytes(name, &file, &fs::read(&out).unwrap()).unwrap();
    }
}

#[test]
fn a_header_of_72_bytes_with_nothing_behind_it_is_copied_as_it_is() {
    for big in [true, false] {
        let word = |word: u64| if big { word.to_be_bytes() } else { word.to_le_bytes() };
        let mut header = if big { b"2ELIFREP" } else { b"PERFILE2" }.to_vec();
        for field in [72, 144, 72, 0, 72, 0, 0, 0] {
            header.extend(word(field));
        }
        let folder = temp();
        let [input, once, twice] = ["in", "once", "twice"].map(|name| folder.path().join(name));
        fs::write(&input, &header).unwrap();
        perfx(args!["copy", input, "-o", once]).done().unwrap();
        perfx(args!["copy", once, "-o", twice]).done().unwrap();
        same_bytes("copied again", &fs::read(&once).unwrap(), &fs::read(&twice).unwrap()).unwrap();
    }
}

fn records_of(path: &Path) -> Result<Vec<String>, String> {
    let ran = perfx(args!["dump", "--raw", path]).done()?;
    let record = |line: &str| Some(line.split_once(" ")?.1.to_owned()).filter(|_| line.contains("raw="));
    Ok(ran.text().lines().filter_map(record).collect())
}

#[test]
fn a_directory_becomes_one_file_or_pipe() {
    let fixtures: Vec<_> = all().into_iter().filter(|fixture| fixture.form == Form::Directory).collect();
    each_fixture(&fixtures, |fixture| {
        for form in ["file", "pipe"] {
            let folder = temp();
            let out = folder.path().join("out.data");
            let ran = perfx(args!["copy", "--to", form, "-o", out, fixture.path]);
            if ran.code == Some(1) {
                continue;
            }
            let bytes = fs::read(&out).unwrap();
            let mut before = Contents::file(&fixture.bytes());
            let after = if form == "file" { Contents::file(&bytes) } else { Contents::pipe(&bytes) };
            let streams = before.features.get(&feature::DIR_FORMAT).is_some_and(|format| format[0] == 1);
            // Several zstd streams cannot be merged into one.
            if streams {
                before.features.remove(&feature::COMPRESSED);
            }
            same_front(form, &before, &after)?;
            if after.features.contains_key(&feature::DIR_FORMAT) {
                return Err("it still says that it is a directory".to_owned());
            }
            let data = |records: Vec<String>| -> Vec<String> {
                let front = [
                    "HEADER_ATTR", "HEADER_FEATURE", "HEADER_TRACING_DATA", "EVENT_UPDATE", "HEADER_BUILD_ID",
                ];
                records.into_iter().filter(|line| !front.iter().any(|kind| line.starts_with(kind))).collect()
            };
            let (left, right) = (data(records_of(&fixture.path)?), data(records_of(&out)?));
            if left != right || left.is_empty() {
                return Err(format!("{form}: {} records became {}", left.len(), right.len()));
            }
            // Only a directory can contain entries next to the data.
            let beside = fs::read_dir(&fixture.path).unwrap().map(|entry| entry.unwrap().file_name());
            let beside: Vec<_> = beside
                .map(|name| name.into_string().unwrap())
                .filter(|name| name != "data" && !(streams && name.starts_with("data.")))
                .collect();
            let said = beside.iter().all(|name| ran.stderr.contains(name.as_str()));
            if (ran.code == Some(3)) == beside.is_empty() || !said {
                return Err(format!(
                    "{beside:?} is beside the data, but it says ({:?}): {}",
                    ran.code, ran.stderr
                ));
            }
        }
        Ok(())
    });
}

fn tree(path: &Path, below: &Path, into: &mut BTreeMap<String, Vec<u8>>) {
    for entry in fs::read_dir(path).unwrap() {
        let entry = entry.unwrap().path();
        if entry.is_dir() {
            tree(&entry, below, into);
        } else {
            let name = entry.strip_prefix(below).unwrap().to_string_lossy().into_owned();
            into.insert(name, fs::read(&entry).unwrap());
        }
    }
}

#[test]
fn a_directory_with_a_kcore_stays_one_and_keeps_it() {
    let fixtures = named("kcore");
    each_fixture(&fixtures, |fixture| {
        let folder = temp();
        let out = folder.path().join("out.data");
        let ran = perfx(args!["copy", "-o", out, fixture.path]);
        if ran.code != Some(0) {
            return Err(format!("{ran:?}"));
        }
        let (mut before, mut after) = (BTreeMap::new(), BTreeMap::new());
        tree(&fixture.path, &fixture.path, &mut before);
        tree(&out, &out, &mut after);
        if before != after {
            return Err("it is not file by file the same".to_owned());
        }
        Ok(())
    });
}

/// A command's results for a recording, for every way of passing it.
fn answers(command: &[&str], fixture: &Fixture) -> Vec<(&'static str, Ran)> {
    let folder = temp();
    let fifo = folder.path().join("fifo");
    assert!(Command::new("mkfifo").arg(&fifo).status().unwrap().success());
    let bytes = fixture.bytes();
    let with = |path: &Path| -> Vec<std::ffi::OsString> {
        let mut args: Vec<std::ffi::OsString> = command.iter().map(Into::into).collect();
        args.push(path.into());
        args
    };
    let stdin = Path::new("-");
    let from_fifo = thread::scope(|scope| {
        scope.spawn(|| fs::write(&fifo, &bytes));
        perfx(with(&fifo))
    });
    vec![
        ("a file", perfx(with(&fixture.path))),
        ("standard input, a file", perfx_with(Stdin::File(&fixture.path), with(stdin))),
        ("standard input, a pipe", perfx_with(Stdin::Pipe(&bytes), with(stdin))),
        ("standard input, a pipe, unnamed", perfx_with(Stdin::Pipe(&bytes), command)),
        ("a FIFO", from_fifo),
    ]
}

tiers!(it_makes_no_difference_where_a_recording_is_read_from);
fn it_makes_no_difference_where_a_recording_is_read_from(tier: Tier) {
    let names = [
        "recorded/pipe.p73.data",
        "recorded/pipe-tracepoint.p61.data",
        "recorded/pipe-z.p73.data",
        "recorded/pipe-cut.p61.data",
        "crafted/be-pipe-named.p73.data",
        "crafted/aux-pipe-le.data",
        "crafted/features-pipe-late.data",
        "crafted/val-pipe-tracing-cut.data",
        "crafted/val-pipe-cut-header.data",
        "crafted/val-pipe-empty.data",
        "recorded/plain.p73.data",
        "recorded/z.p61.data",
        "crafted/be-tracepoint.p61.data",
        "crafted/v1-72-attr64-be.data",
        "crafted/attrs-last.data",
        "crafted/val-cut-in-table.data",
        "crafted/val-size-beyond.data",
    ];
    let commands: [&[&str]; 4] = [
        &["dump", "-q"],
        &["copy", "-q"],
        &["inject", "-q", "--buildids", "--foreign"],
        &["inject", "-q", "--mmap2-buildid-all", "--foreign"],
    ];
    let cases: Vec<_> = names
        .iter()
        .step_by(tier.pick(4, 1))
        .flat_map(|name| commands.iter().map(move |command| (Fixture::new(name), command)))
        .collect();
    each(
        &cases,
        |(fixture, command)| format!("{} {command:?}", fixture.name),
        |(fixture, command)| {
            let answers = answers(command, fixture);
            let (_, expected) = &answers[0];
            for (source, ran) in &answers {
                if ran.code != expected.code {
                    return Err(format!("exit code {:?} from {source}, not {:?}", ran.code, expected.code));
                }
                same_bytes(source, &expected.stdout, &ran.stdout)?;
                // It also prints the same, except for the name.
                let name = fixture.path.to_str().unwrap();
                let said =
                    ran.stderr.lines().map(|line| line.split_once(": at ").map_or(line, |(_, what)| what));
                let expected = expected
                    .stderr
                    .lines()
                    .map(|line| line.split_once(": at ").map_or(line, |(_, what)| what));
                if !said.eq(expected) {
                    return Err(format!("from {source} ({name}) it says: {}", ran.stderr));
                }
            }
            Ok(())
        },
    );
}

#[test]
fn unknown_data_survives_every_change_of_form_and_every_pass() {
    /// Writes another recording from this one.
    fn changed(bytes: &[u8], args: &[&str]) -> Vec<u8> {
        let folder = temp();
        let (input, out) = (folder.path().join("in.data"), folder.path().join("out.data"));
        fs::write(&input, bytes).unwrap();
        let mut all = args!["-q", "-o", out, input].to_vec();
        all.splice(0..0, args.iter().map(Into::into));
        let ran = perfx(all);
        // 3: a feature without content, as in the next test.
        assert!(matches!(ran.code, Some(0 | 3)), "{args:?}: {}", ran.stderr);
        fs::read(&out).unwrap()
    }
    let unknown = |bytes: &[u8], is_pipe: bool| {
        let contents = if is_pipe { Contents::pipe(bytes) } else { Contents::file(bytes) };
        let features: Vec<_> = [35, 200, 255].iter().map(|bit| contents.features.get(bit).cloned()).collect();
        let tails: Vec<_> =
            contents.events.iter().map(|(attr, _)| attr.get(144..).unwrap_or_default().to_vec()).collect();
        let kinds = contents
            .records(bytes)
            .into_iter()
            .filter(|record| !(1..87).contains(&record.kind) || (23..64).contains(&record.kind));
        let kinds: Vec<_> = kinds.map(|record| record.bytes).collect();
        let machine = [3, 11].map(|bit| contents.features.get(&bit).cloned());
        (features, tails, kinds, machine)
    };
    let mut seen = (0, 0, 0);
    for name in [
        "features-all-unknown-le", "features-all-unknown-be", "features-unknown-be", "attr-152-le",
        "attr-152-be", "kind-many", "val-kind-4000", "val-kind-63",
    ] {
        for fixture in named(name).into_iter().filter(|fixture| fixture.form == Form::File) {
            let bytes = fixture.bytes();
            let expected = unknown(&bytes, false);
            seen.0 += expected.0.iter().flatten().count();
            seen.1 += expected.1.iter().filter(|tail| tail.iter().any(|&byte| byte != 0)).count();
            seen.2 += expected.2.len();
            for args in [
                &["copy"][..],
                &["copy", "--to", "pipe"],
                &["inject", "--buildids", "--foreign"],
                &["inject", "--buildid-all", "--foreign", "--to", "pipe"],
                &["inject", "--mmap2-buildids", "--foreign"],
                &["inject", "--mmap2-buildid-all", "--foreign"],
            ] {
                let out = changed(&bytes, args);
                let is_pipe = args.contains(&"pipe");
                assert_eq!(unknown(&out, is_pipe), expected, "{} {args:?}", fixture.name);
                let back = changed(&out, &["copy", "--to", "file"]);
                assert_eq!(unknown(&back, false), expected, "{} {args:?}, then a file again", fixture.name);
            }
        }
    }
    assert!(
        seen.0 >= 8 && seen.1 >= 2 && seen.2 >= 3,
        "these recordings hold less that is unknown than thought: {seen:?}"
    );
}

#[test]
fn an_empty_feature_that_a_pipe_can_not_contain_is_reported() {
    for (name, lost) in [("features-unknown-le", "unknown (60)"), ("features-empty-slots-le", "CPUID (9)")] {
        let folder = temp();
        let out = folder.path().join("out.data");
        let input = &named(name)[0].path;
        assert_eq!(perfx(args!["copy", "-o", out, input]).code, Some(0), "a file holds it");
        let ran = perfx(args!["copy", "-f", "--to", "pipe", "-o", out, input]);
        assert_eq!(ran.code, Some(3), "{}", ran.stderr);
        let line = ran.stderr.lines().find(|line| line.starts_with("perfx: lost: ") && line.contains(lost));
        assert!(line.is_some(), "{}", ran.stderr);
    }
}

#[test]
fn the_auxtrace_index_follows_its_records() {
    for name in ["crafted/aux-le.data", "crafted/aux-be.data"] {
        let file = Fixture::new(name).bytes();
        let contents = Contents::file(&file);
        same_index(name, &file).unwrap();
        assert!(contents.features[&feature::AUXTRACE].len() > 100, "{name}");
        // The same recording with a hole before its data.
        let hole = 4096;
        let order = contents.order;
        let mut moved = file.clone();
        order.set_u64(&mut moved, 40, (contents.data.start + hole) as u64);
        for (slot, bit) in contents.features.keys().enumerate() {
            let slot = contents.data.end + slot * 16;
            let section = order.section(&file, slot);
            order.set_u64(&mut moved, slot, (section.start + hole) as u64);
            if *bit == feature::AUXTRACE {
                for entry in (section.start + 8..section.end).step_by(16) {
                    let to = order.u64(&file, entry) + hole as u64;
                    order.set_u64(&mut moved, entry, to);
                }
            }
        }
        moved.splice(contents.data.start..contents.data.start, vec![0; hole]);
        let back = copy(&moved, "file").unwrap().unwrap();
        same_bytes(name, &file, &back).unwrap();
    }
}

#[test]
fn a_pipe_may_end_with_its_front() {
    let pipe = Fixture::new("recorded/pipe.p73.data").bytes();
    let contents = Contents::pipe(&pipe);
    let end = 16 + contents.records(&pipe).iter().find(|record| !record.is_front).unwrap().at;
    let front = &pipe[..end];
    same_bytes("as a pipe", front, &copy(front, "pipe").unwrap().unwrap()).unwrap();
    let file = copy(front, "file").unwrap().unwrap();
    let file_contents = Contents::file(&file);
    same_front("as a file", &contents, &file_contents).unwrap();
    assert_eq!(file_contents.data.len(), 0);
}

/// Payloads are limited neither by the 64 KiB of a record nor by perfx's batch size.
#[test]
fn a_payload_may_be_larger_than_what_is_read_at_once() {
    const LONG: usize = 5 << 20;
    for (name, kind, size_at) in
        [("recorded/pipe-tracepoint.p73.data", TRACING_DATA, 8), ("crafted/aux-pipe-le.data", AUXTRACE, 8)]
    {
        let mut pipe = Fixture::new(name).bytes();
        let records = records(&pipe[16..], Order { big: false });
        let record = records.iter().find(|record| record.kind == kind).unwrap();
        let (at, end) = (16 + record.at, 16 + record.at + record.bytes.len());
        let size = (LONG + record.bytes.len() - record.size) as u32;
        pipe[at + size_at..at + size_at + 4].copy_from_slice(&size.to_le_bytes());
        pipe.splice(end..end, vec![0xa5; LONG]);
        let folder = temp();
        let (input, out) = (folder.path().join("in.data"), folder.path().join("out.data"));
        fs::write(&input, &pipe).unwrap();
        let from_pipe = perfx_with(Stdin::Pipe(&pipe), args!["copy", "-", "--to", "file", "-o", out]);
        assert_eq!(from_pipe.code, Some(0), "{name}: {}", from_pipe.stderr);
        let file = fs::read(&out).unwrap();
        assert!(file.len() > LONG, "{name}");
        assert_eq!(
            copy(&pipe, "file").unwrap().as_ref(),
            Some(&file),
            "{name}: read from a pipe and from a file"
        );
        let back = perfx_with(Stdin::Pipe(&pipe), args!["copy", "-"]);
        same_bytes(name, &pipe, &back.stdout).unwrap();
        let (before, after) = (Contents::pipe(&pipe), Contents::file(&file));
        same_front(name, &before, &after).unwrap();
        same_index(name, &file).unwrap();
    }
}

/// simpleperf writes HEADER_TRACING_DATA that way; perf expects the payload after the record.
#[test]
fn tracing_data_is_found_inside_its_record_as_simpleperf_writes_it() {
    each_fixture(&named("kinds-tracing-inside"), |fixture| {
        let bytes = fixture.bytes();
        let samples = |path: &Path| {
            let text = perfx(args!["dump", path]).text();
            text.lines().filter(|line| line.contains(" SAMPLE size=")).count()
        };
        if samples(&fixture.path) != 9 {
            return Err(format!("{} samples", samples(&fixture.path)));
        }
        let form = if fixture.form == Form::Pipe { "pipe" } else { "file" };
        same_bytes("the copy", &bytes, &copy_on(&bytes, form)?)?;
        let folder = temp();
        let out = folder.path().join("out.data");
        let ran = perfx(args!["recover", "-o", out, fixture.path]).done()?;
        if samples(&out) != 9 || ran.stderr.contains("lost") {
            return Err(format!("recover: {} samples: {}", samples(&out), ran.stderr));
        }
        // In perf's form the payload follows the record, and perf reads the samples.
        let pipe = folder.path().join("pipe.data");
        let ran = perfx(args!["copy", "--to", "file", "-f", "-o", out, fixture.path]).done()?;
        perfx(args!["copy", "--to", "pipe", "-o", pipe, out]).done()?;
        if fixture.form == Form::Pipe && ran.code == Some(0) {
            for perf in perfs(&["perf", "perf-new"]) {
                let script = perf.run(Stdin::File(&pipe), ["script", "-F", "ip", "-i", "-"]);
                if script.text().lines().filter(|line| !line.is_empty()).count() != 9
                    && !fixture.name.contains("-be")
                {
                    return Err(format!("{}: {script:?}", perf.name));
                }
            }
        }
        Ok(())
    });
}

/// The number of samples that each perf shows.
fn shown(path: &Path) -> Vec<usize> {
    let is_pipe = fs::read(path).unwrap()[8..16].contains(&16);
    let count = |perf: crate::support::Perf| {
        let ran = match is_pipe {
            true => perf.run(Stdin::File(path), ["script", "-F", "ip", "-i", "-"]),
            false => perf.run(Stdin::Null, args!["script", "-f", "-F", "ip", "-i", path]),
        };
        ran.text().lines().filter(|line| !line.trim().is_empty()).count()
    };
    perfs(&["perf", "perf-trixie", "perf-sid", "perf-new"]).into_iter().map(count).collect()
}

/// perf 6.1 and 6.12 stop at a feature that they cannot read, 7.3 refuses such a file, and all of them fail
/// at such pipe data.
#[test]
fn features_that_stop_perf_are_rewritten_or_dropped_with_a_report() {
    for (name, command, options, said) in [
        ("cpudesc-none", "compress", "file", "CPUDESC (8) was left out"),
        ("cpudesc-none", "compress", "pipe", "CPUDESC (8) was left out"),
        ("cpudesc-none", "copy", "pipe", "CPUDESC (8) was left out"),
        (
            "cmdline-text",
            "compress",
            "file",
            "CMDLINE (11) was damaged and was rewritten so that every perf can read it",
        ),
        (
            "cmdline-text",
            "compress",
            "pipe",
            "CMDLINE (11) was damaged and was rewritten so that every perf can read it",
        ),
        (
            "cmdline-text",
            "copy",
            "pipe",
            "CMDLINE (11) was damaged and was rewritten so that every perf can read it",
        ),
        ("numa-count", "compress", "file", "NUMA_TOPOLOGY (14) was left out"),
        ("cache-version", "copy", "pipe", "CACHE (20) was left out"),
    ] {
        let fixture = Fixture::new(&format!("crafted/val-feature-{name}.data"));
        let folder = temp();
        let out = folder.path().join("out.data");
        let ran = perfx(args![command, "--to", options, "-o", out, fixture.path]);
        assert_eq!(ran.code, Some(3), "{name}: {}", ran.stderr);
        assert!(ran.stderr.contains(said), "{name}: {}", ran.stderr);
        assert!(
            shown(&out).iter().all(|&samples| samples == 5),
            "{name} {command} {options}: {:?}",
            shown(&out)
        );
        if name == "cmdline-text" {
            let info = perfx(args!["info", out]).text();
            assert!(info.contains("hiperf record -a"), "{info}");
        }
    }
}

#[test]
fn header_records_among_the_data_of_a_file_stay_out_of_pipe_data() {
    for name in
        ["attr-record-in-file", "feature-record-in-file", "tracing-data-in-file", "small-67", "small-80"]
    {
        let fixture = Fixture::new(&format!("crafted/val-{name}.data"));
        let folder = temp();
        let out = folder.path().join("out.data");
        let ran = perfx(args!["copy", "--to", "pipe", "-o", out, fixture.path]);
        assert_eq!(ran.code, Some(3), "{name}: {}", ran.stderr);
        assert!(ran.stderr.contains("lost: left out 1 record of HEADER_"), "{name}: {}", ran.stderr);
        let (before, after) = (Contents::file(&fixture.bytes()), Contents::pipe(&fs::read(&out).unwrap()));
        same_front(name, &before, &after).unwrap();
        assert!(shown(&out).iter().all(|&samples| samples == 4), "{name}: {:?}", shown(&out));
        // A file keeps them unchanged.
        let file = folder.path().join("file.data");
        perfx(args!["copy", "-o", file, fixture.path]).done().unwrap();
        same_bytes(name, &fixture.bytes(), &fs::read(&file).unwrap()).unwrap();
    }
    // HEADER_EVENT_TYPE as perf 2.6.36 wrote it.
    let mut event_type = vec![0; 80];
    event_type[..8].copy_from_slice(&[65, 0, 0, 0, 0, 0, 80, 0]);
    event_type[16..22].copy_from_slice(b"cycles");
    let file = Fixture::new("recorded/plain.p61.data").with_data(|data| [&event_type, data].concat());
    let folder = temp();
    let [input, out] = ["in.data", "out.data"].map(|name| folder.path().join(name));
    fs::write(&input, &file).unwrap();
    let ran = perfx(args!["copy", "--to", "pipe", "-o", out, input]);
    assert_eq!(ran.code, Some(3), "{}", ran.stderr);
    assert!(ran.stderr.contains("lost: left out 1 record of HEADER_EVENT_TYPE"), "{}", ran.stderr);
    let pipe = fs::read(&out).unwrap();
    let types =
        records(&pipe[16..], Order::of(&pipe)).iter().filter(|record| record.kind == EVENT_TYPE).count();
    assert_eq!(types, 0);
    let found = perfx(args!["doctor", input]).text();
    assert!(found.contains("header-record"), "{found}");
}

/// Copied without expansion, they would have another meaning in the other form; expanded, they would be
/// treated as header records.
#[test]
fn header_records_inside_compressed_ones_are_refused() {
    for (name, other) in
        [("z-feature-inside-le", "pipe"), ("z-pipe-feature-inside", "file"), ("z-pipe-attr-inside", "file")]
    {
        let fixture = Fixture::new(&format!("crafted/{name}.data"));
        let folder = temp();
        let out = folder.path().join("out.data");
        for command in [&["copy", "--to", other] as &[&str], &["decompress"], &["compress"]] {
            let mut args = args!["-o", out, fixture.path].to_vec();
            args.splice(0..0, command.iter().map(Into::into));
            let ran = perfx(args);
            assert_eq!(ran.code, Some(1), "{name} {command:?}: {}", ran.stderr);
            assert!(ran.stderr.contains("can't be inside a compressed record"), "{name}: {}", ran.stderr);
            assert!(!out.exists(), "{name} {command:?}");
        }
        let ran = perfx(args!["recover", "--to", "pipe", "-o", out, fixture.path]);
        assert_eq!(ran.code, Some(3), "{name}: {}", ran.stderr);
        perfx(args!["dump", out]).done().unwrap();
    }
}

/// The recording can be copied without expansion in its own form, but stays as hard to read.
#[test]
fn header_records_inside_compressed_ones_are_said_when_they_are_copied_and_taken_out_by_recover() {
    for name in ["z-pipe-feature-inside", "z-pipe-attr-inside"] {
        let fixture = Fixture::new(&format!("crafted/{name}.data"));
        let folder = temp();
        let [once, twice] = ["once", "twice"].map(|name| folder.path().join(name));
        for command in ["copy", "repair"] {
            let again =
                |input: &Path, out: &Path| perfx(args![command, "-f", "--to", "pipe", input, "-o", out]);
            for ran in [again(&fixture.path, &once), again(&once, &twice)] {
                assert_eq!(ran.code, Some(3), "{name} {command}: {}", ran.stderr);
                assert!(ran.stderr.contains("can't be inside a compressed record"), "{}", ran.stderr);
            }
            same_bytes(command, &fs::read(&once).unwrap(), &fs::read(&twice).unwrap()).unwrap();
        }
        // The same samples, and nothing else.
        let samples = shown(&Fixture::new("crafted/z-pipe.data").path);
        for to in ["file", "pipe"] {
            let ran = perfx(args!["recover", "-f", "--to", to, fixture.path, "-o", once]);
            assert_eq!(ran.code, Some(3), "{name}: {}", ran.stderr);
            assert!(!ran.stderr.contains("lost:"), "{name}: {}", ran.stderr);
            assert_eq!(shown(&once), samples, "{name} to {to}");
            let ran = perfx(args!["recover", "-f", "--to", to, once, "-o", twice]);
            assert_eq!(ran.code, Some(0), "{name} to {to}: {}", ran.stderr);
        }
    }
}

#[test]
fn bytes_outside_sections_are_kept_or_reported_as_lost() {
    let copied = |input: &Path, to: &str| {
        let folder = temp();
        let out = folder.path().join("out.data");
        let ran = perfx(args!["copy", "--to", to, "-o", out, input]);
        (ran.code, ran.stderr, fs::read(&out).unwrap_or_default())
    };
    for (name, said) in [
        (
            "crafted/val-tail.data",
            "left out 1,000 bytes after the last section, for which pipe data has no place",
        ),
        (
            "crafted/val-spare-slots.data",
            "left out 32 bytes after the feature table, for which pipe data has no place",
        ),
    ] {
        let fixture = Fixture::new(name);
        let (code, stderr, file) = copied(&fixture.path, "file");
        assert_eq!(code, Some(0), "{stderr}");
        same_bytes(name, &fixture.bytes(), &file).unwrap();
        let (code, stderr, _) = copied(&fixture.path, "pipe");
        assert_eq!(code, Some(3), "{stderr}");
        assert!(stderr.contains(said), "{stderr}");
    }
    let hole = Fixture::new("crafted/data-hole.data");
    for to in ["file", "pipe"] {
        let (code, stderr, _) = copied(&hole.path, to);
        assert_eq!(code, Some(3), "{stderr}");
        assert!(stderr.contains("at offset 0x100: left out 1,744 bytes outside all sections"), "{stderr}");
    }
    // In place, too; the remains of such a change are obsolete.
    let folder = temp();
    let path = folder.path().join("in.data");
    let tail = Fixture::new("crafted/val-tail.data");
    fs::write(&path, tail.bytes()).unwrap();
    perfx(args!["copy", "--in-place", path]).done().unwrap();
    same_bytes("in place", &tail.bytes(), &fs::read(&path).unwrap()).unwrap();
    fs::write(&path, Fixture::new("crafted/features-all-le.data").bytes()).unwrap();
    perfx(args!["reindex", "--in-place", path]).done().unwrap();
    let changed = fs::read(&path).unwrap();
    assert!(changed.windows(8).any(|bytes| bytes == b"PERFXJNL"), "it was changed in place");
    let (code, stderr, file) = copied(&path, "file");
    assert_eq!(code, Some(0), "{stderr}");
    assert!(!file.windows(8).any(|bytes| bytes == b"PERFXJNL"), "what is out of date was copied");
}

/// Event names in records padded to 8 bytes, and an attr record with uninitialised misc.
#[test]
fn a_pipe_of_perf_3_is_read_correctly() {
    let fixture = Fixture::new("crafted/pipe-3-0.data");
    let dump = perfx(args!["dump", fixture.path]);
    assert_eq!(dump.code, Some(0), "{}", dump.stderr);
    for name in [" name=page-fau", " name=cpu-clock"] {
        assert!(
            dump.text().lines().any(|line| line.contains("HEADER_EVENT_TYPE") && line.ends_with(name)),
            "{}",
            dump.text()
        );
    }
    let doctor = perfx(args!["doctor", "-v", fixture.path]);
    assert_eq!(doctor.code, Some(0), "{}", doctor.text());
    assert!(doctor.text().contains("note attr-misc"), "{}", doctor.text());
    let file = copy_on(&fixture.bytes(), "file").unwrap();
    assert_eq!(Order { big: false }.u64(&file, 64), 2 * 72, "both names are in the header of the file");
}

#[test]
fn a_feature_too_large_for_pipe_data_is_reported_with_its_size() {
    let fixture = Fixture::new("crafted/features-unknown-le.data");
    let mut file = fixture.bytes();
    let contents = Contents::file(&file);
    let slot = contents.data.end + (contents.features.len() - 1) * 16;
    let order = contents.order;
    let end = file.len() as u64;
    order.set_u64(&mut file, slot, end);
    order.set_u64(&mut file, slot + 8, 70_000);
    file.resize(file.len() + 70_000, 7);
    let folder = temp();
    let (input, out) = (folder.path().join("in.data"), folder.path().join("out.data"));
    fs::write(&input, file).unwrap();
    let ran = perfx(args!["copy", "--to", "pipe", "-o", out, input]);
    assert_eq!(ran.code, Some(3), "{}", ran.stderr);
    let said = "feature unknown (255) was left out: it has 70000 bytes, and a record of pipe data holds at most 65519";
    assert!(ran.stderr.contains(said), "{}", ran.stderr);
}

/// perf 6.12 and later order the records of a pipe before they know its events, and lose the names of
/// processes that exit.
#[test]
fn events_without_sample_id_all_are_reported_where_they_become_pipe_data() {
    let folder = temp();
    let (out, back) = (folder.path().join("out.data"), folder.path().join("back.data"));
    let input = &named("no-sample-id-all")[0].path;
    let ran = perfx(args!["copy", "--to", "pipe", "-o", out, input]);
    assert_eq!(ran.code, Some(3), "{}", ran.stderr);
    assert!(ran.stderr.contains("perfx: lost: events lack sample_id_all"), "{}", ran.stderr);
    for (form, from, to) in [("file", input, &back), ("pipe", &out, &back)] {
        let ran = perfx(args!["copy", "-f", "--to", form, "-o", to, from]);
        assert_eq!(ran.code, Some(0), "{form}: {}", ran.stderr);
    }
}

/// perf requires the ids of a file's events to be at one position, but not those of a pipe.
#[test]
fn events_whose_ids_are_at_different_places_are_reported_where_they_become_a_file() {
    let folder = temp();
    let (pipe, out) = (folder.path().join("pipe.data"), folder.path().join("out.data"));
    let input = &named("two-positions-differ")[0].path;
    perfx(args!["copy", "--to", "pipe", "-o", pipe, input]).done().unwrap();
    let ran = perfx(args!["copy", "--to", "file", "-o", out, pipe]);
    assert_eq!(ran.code, Some(3), "{}", ran.stderr);
    assert!(ran.stderr.contains("perf refuses such a file, but reads pipe data"), "{}", ran.stderr);
    // The output of perf stat has no ids, and perf reads it all the same.
    let ran = perfx(args!["copy", "-f", "--to", "file", "-o", out, named("pipe-stat.p61")[0].path]);
    assert_eq!(ran.code, Some(0), "{}", ran.stderr);
}

/// perf of x86 reads big-endian files, but not big-endian pipe data.
#[test]
fn big_endian_pipe_data_gets_a_warning_about_other_readers() {
    let folder = temp();
    let said = |name: &str, to: &str| {
        let input = Fixture::new(&format!("crafted/{name}.data")).path;
        let ran = perfx(args!["copy", input, "--to", to, "-f", "-o", folder.path().join("out")]);
        ran.stderr.contains("misreads big-endian pipe data")
    };
    assert!(said("attr-128-be", "pipe") && !said("attr-128-be", "file") && !said("attr-128-le", "pipe"));
}
