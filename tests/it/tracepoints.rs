//! The own fields of tracepoints: `perfx view` prints them as `perf script` does, and `--where` selects
//! samples by them.

use std::sync::atomic::{AtomicUsize, Ordering};

use crate::args;
use crate::support::{Fixture, Stdin, each_fixture, perfs, perfx, recorded};

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
