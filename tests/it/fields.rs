//! `perfx list lines`, `fields`, `syscalls`, `locks`, `sched`, `irqs`, `io` and `kmem`: their figures are those of `perf
//! trace -s`, `perf lock contention` and `perf sched latency`, or of the text of `perf script`.

use std::collections::BTreeMap;
use std::fs;

use serde_json::Value as Json;

use crate::args;
use crate::stats::conforms;
use crate::support::{Fixture, Ran, Stdin, clean, perf, perfs, perfx, root, run, skipped, temp};

fn list(words: &[&str], input: &str) -> Ran {
    let mut line = args!["list"].to_vec();
    line.extend(words.iter().map(std::ffi::OsString::from));
    let kallsyms = root().join("tests/data/locks.kallsyms");
    line.extend(args!["--foreign", "--head", "1000", Fixture::new(input).path]);
    if words[0] == "locks" {
        line.extend(args!["--kallsyms", kallsyms]);
    }
    perfx(line)
}

/// The tables of a list by title, with each row's values by its keys.
fn tables(words: &[&str], input: &str) -> BTreeMap<String, BTreeMap<String, Json>> {
    let ran = list(&[words, &["--json"]].concat(), input);
    let document: Json = serde_json::from_slice(&ran.stdout).unwrap_or_else(|_| panic!("{}", ran.stderr));
    conforms("list-fields", &document).unwrap();
    let tables = document["tables"].as_array().unwrap().iter();
    let row = |row: &Json| {
        let keys = row["keys"].as_array().unwrap().iter().map(|key| key.as_str().unwrap());
        (keys.collect::<Vec<_>>().join(" "), row.clone())
    };
    let rows = |table: &Json| table["rows"].as_array().unwrap().iter().map(row).collect();
    tables.map(|table| (table["title"].as_str().unwrap().to_owned(), rows(table))).collect()
}

fn number(value: &Json) -> f64 {
    value.as_f64().unwrap_or_else(|| value.as_str().unwrap().parse().unwrap())
}

/// The lines of perf's table, in words.
fn words(text: &str) -> impl Iterator<Item = Vec<&str>> {
    text.lines().map(|line| line.split_whitespace().collect())
}

/// perf counts an end without a beginning as a call that takes no time, such as that of execve after the start.
#[test]
fn system_calls_take_the_time_that_perf_trace_reports() {
    let ours = &tables(&["syscalls"], "recorded/trace.p61.data")["system calls"];
    assert_eq!((ours.len(), number(&ours["access"]["failed"])), (18, 1.0));
    let Some(perf) = perf("perf") else { return };
    let ran = perf.run(Stdin::Null, args!["trace", "-s", "-i", Fixture::new("recorded/trace.p61.data").path]);
    let text = format!("{}{}", ran.text(), ran.stderr);
    let mut compared = 0;
    for line in words(&text).filter(|line| line.len() == 8 && line[7].ends_with('%')) {
        let Some(row) = ours.get(line[0]) else {
            assert_eq!(line[3], "0.000", "{line:?}");
            continue;
        };
        let of = |name: &str| number(&row[name]);
        let ms = |ns: f64| format!("{:.3}", ns / 1e6);
        let shown = [of("count").to_string(), of("failed").to_string()];
        assert_eq!(
            [&shown[..], &[ms(of("sum")), ms(of("mean")), ms(of("max"))]].concat(),
            [line[1], line[2], line[3], line[5], line[6]]
        );
        compared += 1;
    }
    assert!(compared == 18 || compared == 0 && ran.code != Some(0), "{text}");
}

/// perf has a row for each call chain, perfx for each caller and kind of lock.
#[test]
fn waits_for_locks_are_those_of_perf_lock_contention() {
    let ours = tables(&["locks"], "recorded/locks.p61.data");
    let by_caller = &ours["waits for the kernel's locks, by caller"];
    assert_eq!(number(&by_caller["lock_mm_and_find_vma READ"]["count"]), 6.0);
    let mut callers: BTreeMap<&str, (f64, f64)> = BTreeMap::new();
    for (key, row) in by_caller {
        let sum = callers.entry(key.split(' ').next().unwrap()).or_default();
        sum.0 += number(&row["count"]);
        sum.1 += number(&row["sum"]) / 1e3;
    }
    let by_lock = &ours["waits for the kernel's locks, by lock"];
    let sum = |rows: &BTreeMap<String, Json>| rows.values().map(|row| number(&row["sum"])).sum::<f64>();
    assert_eq!(sum(by_caller), sum(by_lock));
    for perf in perfs(&["perf", "perf-new"]) {
        let kallsyms = root().join("tests/data/locks.kallsyms");
        let input = Fixture::new("recorded/locks.p61.data").path;
        let line = args!["lock", "contention", "--stack-skip", "0", "--kallsyms", kallsyms, "-i", input];
        let ran = perf.run(Stdin::Null, line);
        let text = format!("{}{}", ran.text(), ran.stderr);
        let mut theirs: BTreeMap<String, (f64, f64)> = BTreeMap::new();
        for line in words(&text).filter(|line| line.len() == 9 && line[8].contains('+')) {
            let unit = match line[2] {
                "ms" => 1e3,
                "us" => 1.0,
                _ => 1e-3,
            };
            let sum = theirs.entry(line[8].split('+').next().unwrap().to_owned()).or_default();
            sum.0 += line[0].parse::<f64>().unwrap();
            sum.1 += line[1].parse::<f64>().unwrap() * unit;
        }
        if theirs.is_empty() {
            assert!(ran.code != Some(0), "{text}");
            continue;
        }
        assert_eq!(theirs.keys().collect::<Vec<_>>(), callers.keys().collect::<Vec<_>>());
        for (caller, (count, sum)) in &callers {
            let (of_perf, sum_of_perf) = theirs[*caller];
            assert_eq!(*count, of_perf, "{caller}");
            // perf rounds each row to four digits or so.
            assert!((sum - sum_of_perf).abs() <= sum / 1000.0 + 0.02, "{caller}: {sum} {sum_of_perf}");
        }
    }
}

#[test]
fn waits_for_a_cpu_are_those_of_perf_sched_latency() {
    let ours = &tables(&["sched"], "recorded/waits.p61.data")["waiting for a CPU"];
    assert_eq!(ours.len(), 5);
    for perf in perfs(&["perf"]) {
        let input = Fixture::new("recorded/waits.p61.data").path;
        let text = perf.run(Stdin::Null, args!["sched", "latency", "-p", "-i", input]).text();
        let mut compared = 0;
        for (key, row) in ours.iter().filter(|(key, _)| key.starts_with("contend")) {
            let thread = key.replace(' ', ":");
            let line = words(&text).find(|line| line.first() == Some(&&*thread)).unwrap();
            let ms = |value: &str| format!("{:.3}", number(&row[value]) / 1e6);
            let shown = [&*row["count"].to_string(), "avg:", &ms("mean"), "max:", &ms("max")].join(" ");
            assert_eq!([line[5], line[7], line[8], line[11], line[12]].join(" "), shown, "{line:?}");
            compared += 1;
        }
        assert_eq!(compared, 4);
    }
}

/// The values that perf script shows for a field, with their counts.
#[test]
fn samples_by_a_field_are_those_that_perf_script_shows_with_it() {
    let input = Fixture::new("recorded/waits.p61.data").path;
    let text = perfx(args!["view", "-q", "--foreign", "-F", "event,trace", &input]).text();
    let after = |name: &str| {
        let mut counts: BTreeMap<String, u64> = BTreeMap::new();
        for (_, rest) in text.lines().filter_map(|line| line.split_once(&format!("{name}="))) {
            *counts.entry(rest.split_whitespace().next().unwrap().to_owned()).or_default() += 1;
        }
        counts
    };
    for (event, field) in [("sched:sched_switch", "prev_state"), ("sched_switch", "next_pid")] {
        let ours = &tables(&["fields", event, "--by", field], "recorded/waits.p61.data")[event];
        let counts: BTreeMap<String, u64> =
            ours.iter().map(|(key, row)| (key.clone(), number(&row["count"]) as u64)).collect();
        assert_eq!(counts, after(field), "{field}");
    }
    let bytes: u64 =
        after("bytes_alloc").iter().map(|(bytes, count)| bytes.parse::<u64>().unwrap() * count).sum();
    let ours = &tables(&["kmem"], "recorded/waits.p61.data")["bytes that the kernel allocated"];
    assert!(bytes > 0);
    assert_eq!(ours.values().map(|row| number(&row["sum"]) as u64).sum::<u64>(), bytes);
}

#[test]
fn the_time_between_two_events_is_that_of_the_list_with_a_name() {
    let named = tables(&["syscalls"], "recorded/trace.p61.data");
    let line = ["fields", "raw_syscalls:sys_enter", "--until", "sys_exit", "--by", "syscall"];
    let own = tables(&line, "recorded/trace.p61.data");
    assert_eq!(named.values().next(), own.values().next());
    let by_thread = tables(&["syscalls", "--by", "comm,cpu"], "recorded/trace.p61.data");
    let counts = |rows: &BTreeMap<String, Json>| rows.values().map(|row| number(&row["count"])).sum::<f64>();
    assert_eq!(counts(&by_thread["system calls"]), counts(&named["system calls"]));
}

#[test]
fn times_that_records_were_lost_in_are_counted_as_lost() {
    let ran = list(&["syscalls"], "recorded/lost.p61.data");
    assert_eq!(ran.code, Some(3));
    let is_loss =
        |line: &str| line.contains("lost: system calls") && line.contains(", 5 open when records were lost");
    assert!(ran.stderr.lines().any(is_loss), "{}", ran.stderr);
    assert!(ran.stderr.contains("91 records were lost while recording"), "{}", ran.stderr);
}

#[test]
fn a_sample_at_time_0_is_counted_but_belongs_to_no_pair() {
    let fixture = Fixture::new("recorded/trace.p61.data");
    let times = perfx(args!["view", "-F", "time", "--ns", "--foreign", &fixture.path]).text();
    let first: u64 =
        times.lines().next().unwrap().trim().trim_end_matches(':').replace('.', "").parse().unwrap();
    let mut bytes = fs::read(&fixture.path).unwrap();
    let at = bytes.windows(8).position(|window| window == first.to_le_bytes()).unwrap();
    bytes[at..at + 8].fill(0);
    let folder = temp();
    let input = folder.path().join("timeless.data");
    fs::write(&input, bytes).unwrap();
    let list = |words: &[&str]| {
        perfx(
            [
                &args!["list"][..],
                &words.iter().map(Into::into).collect::<Vec<_>>(),
                &args!["--foreign", &input],
            ]
            .concat(),
        )
    };
    let all = list(&["fields", "raw_syscalls:*"]);
    assert!(all.code == Some(0) && all.text().contains("  140 "), "{}", all.stderr);
    let pairs = list(&["syscalls"]);
    assert!(
        pairs.code == Some(3) && pairs.stderr.contains("1 sample has no time and belongs to no pair"),
        "{}",
        pairs.stderr
    );
}

#[test]
fn the_event_and_the_file_in_the_wrong_order_are_recognised() {
    let file = Fixture::new("recorded/trace.p61.data").path;
    for more in [&args!["sys_enter"][..], &[]] {
        let ran = perfx([&args!["list", "fields", &file][..], more].concat());
        let hint = "is a file; the event comes first: perfx list fields EVENT ";
        assert!(ran.code == Some(2) && ran.stderr.contains(hint), "{}", ran.stderr);
    }
}

#[test]
fn a_pair_counts_if_one_of_its_samples_is_selected() {
    let failed = tables(&["syscalls", "--where", "ret < 0"], "recorded/trace.p61.data");
    let rows = &failed["system calls"];
    assert_eq!(rows.keys().collect::<Vec<_>>(), ["access"]);
    assert_eq!((number(&rows["access"]["count"]), number(&rows["access"]["failed"])), (1.0, 1.0));
    let reads = tables(&["syscalls", "--where", "id == 0"], "recorded/trace.p61.data");
    assert_eq!(reads["system calls"].keys().collect::<Vec<_>>(), ["read"]);
}

#[test]
fn a_list_says_what_the_recording_lacks() {
    for (words, input, said) in [
        (&["locks"][..], "recorded/trace.p61.data", "perf record -g -e lock:contention_begin"),
        (
            &["fields", "sys_entr"],
            "recorded/trace.p61.data",
            "no event `sys_entr`; it has raw_syscalls:sys_enter",
        ),
        (&["fields", "sys_exit", "--by", "rett"], "recorded/trace.p61.data", "did you mean `ret`?"),
        (&["fields", "sys_exit", "--by", "caller"], "recorded/trace.p61.data", "perf record -g"),
        (&["fields", "cpu-clock"], "recorded/plain.p61.data", "`cpu-clock` is no tracepoint"),
        (
            &["fields", "sys_enter", "--until", "sys_ex"],
            "recorded/trace.p61.data",
            "no event `sys_ex`; it has",
        ),
    ] {
        let ran = list(words, input);
        assert!(ran.code == Some(1) && ran.stderr.contains(said), "{words:?}: {}", ran.stderr);
    }
    let ran = list(&["fields", "sys_enter", "--of", "comm"], "recorded/trace.p61.data");
    assert!(
        ran.code == Some(3) && ran.stderr.contains("`comm` is text or at least 2^63 in 7"),
        "{}",
        ran.stderr
    );
    let ran = list(&["sched"], "recorded/off-cpu.p61.data");
    assert!(ran.stderr.contains("wake-ups: not listed, because the recording lacks"), "{}", ran.stderr);
    // Of each recording, whatever the first one has.
    let both = ["recorded/waits.p61.data", "recorded/off-cpu.p61.data"].map(|name| Fixture::new(name).path);
    let ran = perfx(args!["list", "sched", "--foreign", both[0], both[1]]);
    assert!(ran.stderr.contains("wake-ups: not listed, because the recording lacks"), "{}", ran.stderr);
    let ran = list(&["sched", "--cpu", "0"], "recorded/waits.p61.data");
    assert!(ran.code == Some(2) && ran.stderr.contains("--tid and --cpu select samples"), "{}", ran.stderr);
    let ran = list(&["irqs"], "recorded/waits.p61.data");
    assert!(ran.code == Some(3) && ran.stderr.contains("has no samples"), "{}", ran.stderr);
    for words in [&["events", "--by", "x"][..], &["functions", "--until", "x"], &["syscalls", "--of", "ret"]]
    {
        let ran = list(words, "recorded/trace.p61.data");
        assert!(
            ran.code == Some(2) && ran.stderr.contains("is for `perfx list fields EVENT`"),
            "{}",
            ran.stderr
        );
    }
}

/// A program built here. perf report has the same share for each of its lines, and objdump the instructions.
#[test]
fn lines_have_the_shares_of_perf_report() {
    let Some(perf) = perf("perf") else { return };
    let folder = temp();
    let at = |name: &str| folder.path().join(name);
    let source = "static volatile long sum;\n\n__attribute__((noinline)) static void work(long n) {\n    \
        for (long i = 0; i < n; i++)\n        sum += i * i % 7;\n}\n\nint main(void) {\n    work(30000000);\n    return 0;\n}\n";
    fs::write(at("slow.c"), source).unwrap();
    let mut gcc = clean("gcc");
    let built = run(gcc.current_dir(folder.path()).args(["-O1", "-g", "-o", "slow", "slow.c"]), Stdin::Null);
    let line = args!["record", "-q", "-e", "cpu-clock:u", "-F", "999", "-o", at("in.data"), at("slow")];
    if built.code != Some(0) || perf.run(Stdin::Null, line).code != Some(0) {
        return skipped("what gcc and perf make here");
    }
    let shown = perfx(args!["list", "lines", "work", "--json", at("in.data")]);
    let document: Json = serde_json::from_slice(&shown.stdout).unwrap_or_else(|_| panic!("{}", shown.stderr));
    conforms("list-lines", &document).unwrap();
    let mut ours: BTreeMap<String, String> = BTreeMap::new();
    for row in document["rows"].as_array().unwrap() {
        let line = row["line"].as_u64().unwrap();
        assert_eq!(row["source"].as_str(), source.lines().nth(line as usize - 1));
        ours.insert(format!("slow.c:{line}"), format!("{:.2}%", row["percent"].as_f64().unwrap()));
    }
    assert!(ours.contains_key("slow.c:5"), "{ours:?}");
    let text = perf.run(Stdin::Null, args!["report", "--stdio", "-s", "srcline", "-i", at("in.data")]).text();
    for (line, share) in &ours {
        let theirs =
            words(&text).find(|words| words.get(1) == Some(&&**line)).map(|words| words[0].to_owned());
        assert_eq!(theirs.as_ref(), Some(share), "{line}: {text}");
    }
    let by_file = perfx(args!["list", "lines", "slow.c", at("in.data")]).text();
    assert!(by_file.contains("sum += i * i % 7;"), "{by_file}");
    let insn = perfx(args!["list", "lines", "wor", "--insn", at("in.data")]).text();
    assert!(insn.lines().nth(1).is_some_and(|line| line.contains("slow.c:") && line.contains('%')), "{insn}");
    let unknown = perfx(args!["list", "lines", "nothing", at("in.data")]);
    assert!(unknown.code == Some(1) && unknown.stderr.contains("similar names: `"), "{}", unknown.stderr);
}
