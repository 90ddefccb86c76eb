//! The own fields of tracepoints: `perfx view` prints them as `perf script` does, and `--where` selects
//! samples by them.

use std::sync::atomic::{AtomicUsize, Ordering};

use std::fs;

use perfx_format::Feature;
use perfx_format::RecordType as T;
use perfx_format::features::TracingData;
use perfx_format::record::cpumode::KERNEL;

use crate::args;
use crate::maker::{Maker, tracepoint, tracing_data};
use crate::support::{Fixture, Stdin, each_fixture, perfs, perfx, recorded, temp};

/// Recordings of tracepoints.
fn fixtures() -> Vec<Fixture> {
    let mut fixtures = recorded();
    fixtures.retain(|fixture| {
        let name = fixture.path.file_name().unwrap().to_string_lossy();
        let parts = ["tracepoint", "trace.", "off-cpu", "sched-stat", "lost.", "stat-sched"];
        parts.iter().any(|part| name.contains(part))
    });
    fixtures
}

#[test]
fn the_fields_of_tracepoints_are_those_of_perf_script() {
    for perf in perfs(&["perf", "perf-new"]) {
        let checked = AtomicUsize::new(0);
        each_fixture(&fixtures(), |fixture| {
            let line = args!["script", "-F", "event,trace", "-i", fixture.path];
            let shown = perf.run(Stdin::Null, line);
            if shown.code != Some(0) || shown.stdout.is_empty() {
                return Ok(());
            }
            // perf prints call chains, too.
            let lines = |text: &str| -> Vec<String> {
                text.lines().filter(|line| line.contains(": ")).map(|line| line.trim().to_owned()).collect()
            };
            let ours = perfx(args!["view", "-q", "--foreign", "-F", "event,trace", fixture.path]);
            crate::support::same_lines(&fixture.name, &lines(&shown.text()), &lines(&ours.text()))?;
            checked.fetch_add(lines(&ours.text()).len(), Ordering::Relaxed);
            Ok(())
        });
        assert!(checked.into_inner() > 100, "{}", perf.name);
    }
}

/// A recording with a function of the kernel, the texts of its addresses, and names that have no value.
#[test]
fn addresses_in_fields_have_the_names_and_texts_of_the_recorded_kernel() {
    let folder = temp();
    let path = |name: &str| folder.path().join(name);
    let start = 0xffff_ffff_8100_0000_u64;
    fs::write(path("kallsyms"), format!("{start:x} T _text\n{:x} T work\n", start + 0x100)).unwrap();
    let fields = "\tfield:void *function;\toffset:8;\tsize:8;\tsigned:0;\n\
        \tfield:const char *what;\toffset:16;\tsize:8;\tsigned:0;\n\n";
    let format =
        |id: u64, print: &str| format!("name: made{id}\nID: {id}\nformat:\n{fields}print fmt: {print}\n");
    let formats = [
        format(7, r#""%ps %pS: %s", REC->function, REC->function, REC->what"#),
        format(8, r#""%s", unknown(REC->what)"#),
        format(9, r#""%p", base + REC->function"#),
    ];
    let section = tracing_data("made", &formats.each_ref().map(|format| &**format));
    let mut section = TracingData::read(&section).unwrap();
    section.printk = b"0xffffffff82000000 : \"Start: now\"\n";
    let events = [(7, 1), (8, 2), (9, 3)].map(|(config, id)| tracepoint(config, id));
    let mut maker = Maker::new(&path("in.data"), &events);
    let (ids, range) =
        ([u32::MAX, 0].map(u32::to_le_bytes), [start, 0x100_0000, start].map(u64::to_le_bytes));
    let name = b"[kernel.kallsyms]_text\0\0";
    maker.put(T::MMAP, KERNEL, 0, &[ids.as_flattened(), range.as_flattened(), name]);
    let raw = |function: u64, what: u64| [0, function, what].map(u64::to_le_bytes).concat();
    for (id, function, what) in
        [(1, start + 0x104, 0xffff_ffff_8200_0000), (1, 0x10, 0x20), (2, 1, 2), (3, 5, 0)]
    {
        maker.trace(id, 1, &raw(function, what));
    }
    maker.writer.set_feature(Feature::TRACING_DATA, section.write().unwrap()).unwrap();
    maker.writer.finish().unwrap();
    let shown = |option: &str| {
        let (symbols, input) = (path("kallsyms"), path("in.data"));
        perfx(args!["view", "--foreign", "--kallsyms", symbols, input, "-F", "trace", option]).done().unwrap()
    };
    let ran = shown("-v");
    let lines: Vec<String> = ran.text().lines().map(|line| line.trim().to_owned()).collect();
    assert_eq!(
        lines,
        ["work work+0x4: Start: now", "0x10 0x10: 20", "[FAILED TO PARSE] function=0x1 what=0x2", "0x5"]
    );
    for said in [
        "the fields of 1 tracepoint are shown one by one",
        "made:made8: `unknown` is a function of the kernel",
        "the texts of 1 tracepoint need variables or constants of the kernel that are not recorded",
        "made:made9: base",
    ] {
        assert!(ran.stderr.contains(said), "{said}: {}", ran.stderr);
    }
    assert!(shown("--json").text().contains(r#""trace":"work work+0x4: Start: now""#));
}

fn selected(name: &str, condition: &str) -> Vec<String> {
    let path = Fixture::new(&format!("recorded/{name}")).path;
    let ran = perfx(args!["view", "-q", "--foreign", "-F", "event,trace", "--where", condition, path]);
    ran.text().lines().map(|line| line.trim().to_owned()).filter(|line| !line.is_empty()).collect()
}

#[test]
fn conditions_select_by_the_fields_of_tracepoints() {
    let all = selected("off-cpu.p61.data", "common_pid >= 0");
    let with = |part: &str| all.iter().filter(|line| line.contains(part)).cloned().collect::<Vec<_>>();
    for (condition, part) in [
        (r#"prev_comm == "crew""#, "prev_comm=crew "),
        ("prev_comm == crew && next_prio > 0", "prev_comm=crew "),
        (r#"prev_comm ~ "cr?w""#, "prev_comm=crew "),
        (r#"(prev_comm ~ "c[r]*" || prev_comm == "nobody")"#, "prev_comm=crew "),
        ("prev_state == 1", "prev_state=S "),
        ("prev_state == 0x1", "prev_state=S "),
        ("prev_state == S", "prev_state=S "),
        (r#"prev_state == "S" && prev_state != "D""#, "prev_state=S "),
        ("prev_state ~ S*", "prev_state=S "),
    ] {
        let found = selected("off-cpu.p61.data", condition);
        assert!(!found.is_empty() && found.len() < all.len(), "{condition}");
        assert_eq!(found, with(part), "{condition}");
    }
    let others = selected("off-cpu.p61.data", "prev_comm != crew");
    assert_eq!(others.len(), all.len() - with("prev_comm=crew ").len());
    // Events without the field have no such samples.
    let calls = selected("trace.p61.data", "id == 12");
    assert!(!calls.is_empty() && calls.iter().all(|line| line.contains("NR 12")), "{calls:?}");
    assert_eq!(selected("trace.p61.data", "ret < 0").len(), selected("trace.p61.data", "ret <= -1").len());
}

#[test]
fn a_wrong_condition_lists_the_fields() {
    let path = Fixture::new("recorded/off-cpu.p61.data").path;
    let said = |condition: &str| {
        let ran = perfx(args!["filter", "--where", condition, path, "-o", "/dev/null"]);
        assert_ne!(ran.code, Some(0));
        ran.stderr
    };
    for (condition, part) in [
        (
            "prev_com == 1",
            "no event has a field `prev_com`; the fields are next_comm, next_pid, next_prio, prev_comm",
        ),
        ("prev_com == 1", "did you mean `prev_comm`?"),
        ("prev_comm == 3", "`prev_comm` is a text"),
        ("prev_comm < x", "`prev_comm` is a text: compare it with ==, != or ~"),
        ("prev_pid == x", "`prev_pid` is a number"),
        ("prev_pid = 1", "expected an operator after `prev_pid`"),
        ("prev_pid == 1 prev_pid", "expected && or ||"),
        ("prev_pid == \"1", "expected \" at the end"),
        ("prev_pid ==", "expected a value after =="),
        ("(prev_pid == 1", "expected )"),
        ("", "expected the name of a field"),
        (&"(".repeat(100_000), "too many parentheses"),
    ] {
        assert!(said(condition).contains(part), "{condition}: {}", said(condition));
    }
    let plain = Fixture::new("recorded/fp.p61.data").path;
    let ran = perfx(args!["view", "--where", "x == 1", plain]);
    assert!(ran.stderr.contains("no samples of tracepoints with fields"), "{}", ran.stderr);
}
