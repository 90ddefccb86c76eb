//! `redact` leaves nothing that reveals the user or the machine, and perf still shows the same samples.

use std::collections::{BTreeMap, BTreeSet};
use std::fs;
use std::path::Path;

use perfx_format::decode::decode;
use perfx_format::features::{BuildIds, FeatureContext, TracingData, decode_feature, trace_formats};
use perfx_format::read::Recording;
use perfx_format::record::build_id::BuildIdEntry;
use perfx_format::record::builder::build;
use perfx_format::record::cpumode;
use perfx_format::sample::Sample;
use perfx_format::write::RecordingWriter;
use perfx_format::{Attr, Endian, Event, Feature, MappedFile, Mmap2, RecordType, Value, sample_type as st};

use crate::maker::{LE, Maker};
use crate::parse::{Order, records};
use crate::promises::Input;
use crate::shares::{of_two_perfs, readers, shares};
use crate::snapshots::{Place, same};
use crate::support::{
    Fixture, Stdin, Tier, each_fixture, holds, named, perfs, perfx, recorded, same_bytes, same_lines, temp,
};
use crate::{args, tiers};

/// Texts of a decoded field, also those inside others.
fn texts(value: &Value<'_>, found: &mut BTreeSet<Vec<u8>>) {
    match value {
        Value::Text(text) => drop(found.insert(text.to_vec())),
        Value::List(values) => values.iter().for_each(|value| texts(value, found)),
        Value::Map(fields) => fields.iter().for_each(|(_, value)| texts(value, found)),
        _ => {}
    }
}

/// Runs of printable bytes, as strings(1) finds them.
fn strings(bytes: &[u8], found: &mut BTreeSet<Vec<u8>>) {
    let runs = bytes.split(|byte| !byte.is_ascii_graphic());
    found.extend(runs.filter(|run| run.len() >= 6).map(<[u8]>::to_vec));
}

/// The strings of a recording that must not be in its redacted copy. They are selected again by simpler rules
/// than those of the pass: all strings that are not in a list of those on every machine.
fn secrets(fixture: &Fixture) -> BTreeSet<String> {
    let bytes = fixture.bytes();
    let mut recording = fixture.input(&bytes).open().unwrap();
    let mut found = BTreeSet::new();
    let with_names = [
        Feature::HOSTNAME,
        Feature::CMDLINE,
        Feature::BUILD_ID,
        Feature::BPF_PROG_INFO,
        Feature::GROUP_DESC,
        Feature::EVENT_DESC,
    ];
    for feature in with_names {
        let section = recording.features.get(&feature).cloned().unwrap_or_default();
        let decoded = decode_feature(feature, &section, recording.endian, FeatureContext::default());
        decoded.fields.iter().for_each(|(_, value)| texts(value, &mut found));
    }
    if let Some(data) = recording.features.get(&Feature::BPF_BTF) {
        strings(data, &mut found);
    }
    for batch in recording.decompressed() {
        let batch = batch.unwrap();
        let mut walker = batch.walk();
        while let Some(record) = walker.next_record().unwrap() {
            decode(&record, &batch.layouts).fields.iter().for_each(|(_, value)| texts(value, &mut found));
            let layout = batch.layouts.layout_of(&record).filter(|_| record.kind() == RecordType::SAMPLE);
            if let Some(sample) = layout.and_then(|layout| Sample::parse(&record, layout).ok()) {
                strings(sample.raw.unwrap_or_default(), &mut found);
                strings(sample.callchain.map(|chain| chain.bytes()).unwrap_or_default(), &mut found);
                strings(sample.stack_user.map(|stack| stack.bytes).unwrap_or_default(), &mut found);
            }
        }
    }
    let parts = |text: Vec<u8>| {
        let text = String::from_utf8_lossy(&text).into_owned();
        let stays = text.starts_with("//")
            || text.starts_with("/usr/lib/")
            || text.starts_with("/usr/bin/")
            || text.starts_with('[');
        let parts = text.split('/').map(str::to_owned).collect::<Vec<_>>();
        if stays { Vec::new() } else { [parts, vec![text]].concat() }
    };
    found.into_iter().flat_map(parts).filter(|text| text.len() >= 3 && !is_everywhere(text)).collect()
}

/// Words that every recording may have: parts of paths, events, options and values of perf, kernel threads.
fn is_everywhere(text: &str) -> bool {
    let words = [
        "tmp", "home", "root", "opt", "usr", "lib", "bin", "dev", "zero", "perf", "perf-exec", "record",
        "stat", "//anon", "inode:[perf_event]", "swapper", "dwarf", "(deleted)", "zero (deleted)",
        "{anon_group}", "user.slice", "msec", "x86_64", "rcu_preempt", "trace", "system.slice", "kworker",
        "kworker/1:1H", "1:1H",
    ];
    let events = [
        "cpu-clock", "task-clock", "page-faults", "faults", "context-switches", "cs", "dummy", "cycles",
        "instructions", "bpf-output", "offcpu-time", "minor-faults", "major-faults", "cpu-migrations",
        "migrations", "mem:0x", "alignment-faults", "emulation-faults", "duration_time",
    ];
    let numbers = text.bytes().all(|byte| byte.is_ascii_digit() || b",.-:".contains(&byte));
    let tracepoint = [
        "sched:", "syscalls:", "raw_syscalls:", "exceptions:", "timer:", "irq:", "signal:", "task:", "lock:",
        "kmem:",
    ];
    numbers
        || text.starts_with('-')
        || text.starts_with("dwarf,")
        || words.contains(&text)
        || events.iter().any(|event| text.starts_with(event) && !text.contains("perfx"))
        || tracepoint.iter().any(|system| text.starts_with(system))
        || text.starts_with("x86_64") && text.contains('-')
}

/// True if the word is in the bytes, not as a part of a longer one.
fn has_word(bytes: &[u8], word: &str) -> bool {
    let is_part = |byte: Option<&u8>| byte.is_some_and(|byte| byte.is_ascii_alphanumeric() || *byte == b'_');
    let found = bytes.windows(word.len()).enumerate().filter(|(_, window)| *window == word.as_bytes());
    found.into_iter().any(|(at, _)| {
        !is_part(at.checked_sub(1).and_then(|before| bytes.get(before)))
            && !is_part(bytes.get(at + word.len()))
    })
}

/// A redacted copy as pipe data, without the formats of tracepoints, which have many words.
fn searched(path: &Path) -> Vec<u8> {
    let mut bytes = fs::read(path).unwrap();
    let recording = Input::Bytes(&bytes).open().unwrap();
    let section = recording.features.get(&Feature::TRACING_DATA).map(|section| section.to_vec());
    if let Some(section) = section {
        let at = bytes.windows(section.len()).position(|window| window == section).unwrap();
        bytes.drain(at..at + section.len());
    }
    bytes
}

tiers!(no_string_that_was_to_go_is_in_the_output);
fn no_string_that_was_to_go_is_in_the_output(tier: Tier) {
    let mut found = 0;
    let counted = std::sync::Mutex::new(&mut found);
    let mut fixtures = tier.of(recorded());
    fixtures.retain(|fixture| !fixture.name.contains("/cut-") && !fixture.name.contains("killed-"));
    each_fixture(&fixtures, |fixture| {
        let folder = temp();
        let out = folder.path().join("out.data");
        let ran = perfx(args!["redact", "-q", fixture.path, "-o", out]);
        // Some of them are damaged.
        if ran.code == Some(1) {
            return Ok(());
        }
        ran.done()?;
        let (secrets, bytes) = (secrets(fixture), searched(&out));
        let left: Vec<_> = secrets.iter().filter(|secret| has_word(&bytes, secret)).collect();
        **counted.lock().unwrap() += secrets.len();
        if !left.is_empty() {
            return Err(format!("of {} strings these are left: {left:?}", secrets.len()));
        }
        let recording = Input::Bytes(&fs::read(&out).unwrap()).open().unwrap();
        for feature in [Feature::BPF_PROG_INFO, Feature::BPF_BTF, Feature::CLOCK_DATA, Feature::AUXTRACE] {
            assert!(!recording.features.contains_key(&feature), "{feature}");
        }
        let memory = st::REGS_USER | st::REGS_INTR | st::STACK_USER | st::AUX;
        assert!(recording.events.iter().all(|event| event.attr().sample_type & memory == 0));
        let check = perfx(args!["redact", "--check", out]);
        let rest =
            check.stderr.lines().filter(|line| !line.contains("perf record was killed")).collect::<Vec<_>>();
        assert!(rest.len() == 2 && rest[1] == "perfx: nothing to redact", "{}", check.stderr);
        Ok(())
    });
    assert!(found > tier.pick(100, 1000), "only {found} strings were searched for");
}

/// The report of `redact -v`: each name with its pseudonym.
fn pseudonyms(stderr: &str) -> BTreeMap<String, String> {
    let pair = |line: &str| {
        let (category, names) = line.strip_prefix("perfx: ")?.split_once(": ")?;
        let (old, new) = names.split_once(" is now ").filter(|_| category != "cmdline")?;
        Some((old.to_owned(), new.to_owned()))
    };
    stderr.lines().filter_map(pair).collect()
}

#[test]
fn perf_report_shows_the_same_shares_of_the_pseudonyms() {
    let perfs = perfs(&["perf", "perf-new"]);
    let parts = [
        "forks", "fp.", "dwarf.", "allbits", "several", "buildid-", "pipe.", "pipe-group", "pipe-tracepoint",
        "z.", "threads.", "sched-stat", "tracepoint", "cgroups", "namespaces", "user-regs", "intr-regs",
        "switch.", "mixed-callgraph", "off-cpu",
    ];
    each_fixture(&of_two_perfs(&parts), |fixture| {
        let folder = temp();
        let out = folder.path().join("out.data");
        let ran = perfx(args!["redact", "-v", fixture.path, "-o", out]);
        let names = pseudonyms(&ran.stderr);
        ran.done()?;
        let pseudonym = |name: &str| names.get(name).map_or(name, String::as_str).to_owned();
        for perf in readers(&perfs, fixture) {
            let options = ["-v", "--sort", "comm,dso"];
            let wanted = shares(perf, &fixture.path, &options, pseudonym)?;
            same_lines(perf.name, &wanted, &shares(perf, &out, &options, str::to_owned)?)?;
        }
        Ok(())
    });
}

#[test]
fn the_same_key_gives_the_same_pseudonyms_and_a_second_run_changes_nothing() {
    let folder = temp();
    let path = |name: &str| folder.path().join(name);
    let redact = |name: &str, options: &[&str]| {
        let input = Fixture::new(name).path;
        let options = options.iter().map(Into::into);
        let ran = perfx(args!["redact", "-v", "-f", input, "-o", path("out")].into_iter().chain(options));
        pseudonyms(&ran.stderr)
    };
    let names = ["recorded/forks.p61.data", "recorded/forks.p73.data"];
    let [one, other] = names.map(|name| redact(name, &["--key", "a"]));
    let common: Vec<_> = one.keys().filter(|name| other.contains_key(*name)).collect();
    assert!(common.len() > 10 && common.iter().all(|name| one[*name] == other[*name]), "{common:?}");
    let is_fixed = |name: &str| name == "host" || name.ends_with("-local");
    for options in [&["--key", "b"][..], &[]] {
        let third = redact(names[0], options);
        assert!(common.iter().all(|name| third[*name] != one[*name] || is_fixed(&third[*name])), "{third:?}");
    }
    for fixture in [named("recorded/forks"), named("recorded/bpf"), named("recorded/pipe-trace")].concat() {
        perfx(args!["redact", "-q", "-f", fixture.path, "-o", path("once")]).done().unwrap();
        perfx(args!["redact", "-q", "-f", path("once"), "-o", path("twice")]).done().unwrap();
        let [once, twice] = ["once", "twice"].map(|name| fs::read(path(name)).unwrap());
        same_bytes(&fixture.name, &once, &twice).unwrap();
    }
}

/// Formats of tracepoints of users are renamed with their events, and perf still finds them.
#[test]
fn a_probe_has_neither_its_name_nor_its_arguments() {
    // A user can choose any name for the system.
    for (system, ip, argument) in [
        ("probe_bank", "__probe_ip", "customer"),
        ("bank", "__probe_ip", "customer"),
        // The tracepoints of eprobes and of programs have no field that identifies them.
        ("bank", "ip", "customer"),
        ("user_events_multi", "ip", "common_customer"),
    ] {
        neither_its_name_nor_its_arguments(system, ip, argument);
    }
}

fn neither_its_name_nor_its_arguments(system: &str, ip: &str, argument: &str) {
    let folder = temp();
    let (input, out) = (folder.path().join("in.data"), folder.path().join("out.data"));
    let fixture = Fixture::new("recorded/tracepoint.p61.data");
    let bytes = fixture.bytes();
    let recording = Input::Bytes(&bytes).open().unwrap();
    let section = &recording.features[&Feature::TRACING_DATA];
    let format = format!(
        "name: handle_password\nID: 4321\nformat:\n\
        \tfield:unsigned short common_type;\toffset:0;\tsize:2;\tsigned:0;\n\
        \tfield:unsigned char common_flags;\toffset:2;\tsize:1;\tsigned:0;\n\
        \tfield:unsigned char common_preempt_count;\toffset:3;\tsize:1;\tsigned:0;\n\
        \tfield:int common_pid;\toffset:4;\tsize:4;\tsigned:1;\n\n\
        \tfield:unsigned long {ip};\toffset:8;\tsize:8;\tsigned:0;\n\
        \tfield:u64 {argument};\toffset:16;\tsize:8;\tsigned:0;\n\n\
        print fmt: \"(%lx) customer=%Lu\", REC->{ip}, REC->{argument}\n"
    );
    let mut data = TracingData::read(section).unwrap();
    data.systems = vec![(system.as_bytes(), vec![format.as_bytes()])];
    data.ftrace = vec![
        b"name: password\nID: 7\nformat:\n",
        b"name: function\nID: 1\nformat:\n\tfield:int customer;\toffset:8;\tsize:4;\tsigned:1;\n",
        b"name: print\nID: 5\nformat:\n\
        \tfield:unsigned short common_type;\toffset:0;\tsize:2;\tsigned:0;\n\
        \tfield:unsigned char common_flags;\toffset:2;\tsize:1;\tsigned:0;\n\
        \tfield:unsigned char common_preempt_count;\toffset:3;\tsize:1;\tsigned:0;\n\
        \tfield:int common_pid;\toffset:4;\tsize:4;\tsigned:1;\n\n\
        \tfield:unsigned long ip;\toffset:8;\tsize:8;\tsigned:0;\n\
        \tfield:char buf[];\toffset:16;\tsize:0;\tsigned:0;\n\n\
        print fmt: \"%ps: %s\", (void *)REC->ip, REC->buf\n",
    ];
    let headers =
        [&b"header_page\0\x08\0\0\0\0\0\0\0password"[..], b"header_event\0\x08\0\0\0\0\0\0\0password"];
    let head = [&data.head[..20], &headers.concat()].concat();
    data.head = &head;
    let endian = Endian::Little;
    let mut attr = Attr::default();
    (attr.type_, attr.config, attr.sample_period) = (2, 4321, 1);
    attr.sample_type = st::IP | st::TID | st::TIME | st::CPU | st::RAW;
    attr.flags = 1 << 18;
    let event = Event::made(&attr, vec![1], endian);
    let mut writer = RecordingWriter::create(&input, std::slice::from_ref(&event), endian).unwrap();
    writer.set_feature(Feature::TRACING_DATA, data.write().unwrap()).unwrap();
    let words = |words: &[u64]| words.iter().flat_map(|&word| endian.bytes_u64(word)).collect::<Vec<u8>>();
    let raw =
        [&[28, 0, 0, 0][..], &[0xe1, 0x10, 0, 0, 7, 0, 0, 0], &words(&[0x1234_5678, 0x0bad_cafe]), &[0; 4]]
            .concat();
    let sample = [words(&[0x1000, 7 << 32 | 7, 5, 0]), raw].concat();
    writer.write_parts(RecordType::SAMPLE, cpumode::USER, &[&sample]).unwrap();
    writer.finish().unwrap();
    let ran = perfx(args!["redact", "-v", input, "-o", out]).done().unwrap();
    let renamed = format!("events: {system}:handle_password is now probe:event_");
    assert!(ran.stderr.contains(&renamed), "{}", ran.stderr);
    for gone in ["password", "function"] {
        assert!(ran.stderr.contains(&format!("events: ftrace:{gone} is now \n")), "{}", ran.stderr);
    }
    let bytes = fs::read(&out).unwrap();
    assert!(holds(&bytes, "name: print\n"));
    for secret in ["password", "customer", "bank"] {
        assert!(!holds(&bytes, secret), "{secret}");
    }
    assert!(!holds(&bytes, endian.bytes_u32(0x0bad_cafe)));
    let recording = Input::Bytes(&bytes).open().unwrap();
    let section = &recording.features[&Feature::TRACING_DATA];
    assert_eq!(trace_formats(section, endian).iter().map(|format| format.id).next_back(), Some(Some(4321)));
    for perf in perfs(&["perf", "perf-new"]) {
        let text =
            perf.run(Stdin::Null, args!["script", "-f", "-F", "tid,event", "-i", out]).done().unwrap().text();
        assert!(text.contains("probe:event_"), "{}: {text}", perf.name);
    }
}

/// Regression: the table of tracepoints kept unreadable formats, and `--check` found nothing.
#[test]
fn an_unreadable_format_does_not_stay() {
    let folder = temp();
    let (input, out) = (folder.path().join("in.data"), folder.path().join("out.data"));
    let recording = Recording::open(&Fixture::new("recorded/tracepoint.p61.data").path).unwrap();
    let section = &recording.features[&Feature::TRACING_DATA];
    let long = format!("name: {}\nID: 900\nformat:\nprint fmt: \"\"\n", "password".repeat(32));
    for (system, texts) in [
        ("bank", vec![long.as_str()]),
        ("bank", vec!["password"]),
        ("bank", vec![]),
        ("sched", vec![&long]),
        ("sched", vec!["password"]),
    ] {
        let mut data = TracingData::read(section).unwrap().without_texts();
        data.systems = vec![(system.as_bytes(), texts.iter().map(|text| text.as_bytes()).collect())];
        let mut writer = RecordingWriter::create(&input, &recording.events, recording.endian).unwrap();
        writer.set_feature(Feature::TRACING_DATA, data.write().unwrap()).unwrap();
        writer.finish().unwrap();
        let check = perfx(args!["redact", "--check", input]);
        assert_eq!(check.code, Some(3), "{system} {texts:?}");
        let ran = perfx(args!["redact", "-f", input, "-o", out]);
        let said = "1 format of a tracepoint left out: not as the kernel writes them\n";
        assert_eq!(ran.stderr.contains(said), !texts.is_empty(), "{system}: {}", ran.stderr);
        let bytes = fs::read(&out).unwrap();
        assert!(!holds(&bytes, "password") && !holds(&bytes, "bank"), "{system} {texts:?}");
        let check = perfx(args!["redact", "--check", out]);
        assert_eq!(check.code, Some(0), "{system} {texts:?}: {}", check.stderr);
    }
}

/// A call chain of code without frame pointers had words of the stack, such as parts of a path.
#[test]
fn text_in_a_call_chain_is_cleared() {
    let folder = temp();
    let (input, out) = (folder.path().join("in.data"), folder.path().join("out.data"));
    let endian = Endian::Little;
    let mut attr = Attr::default();
    (attr.type_, attr.sample_period, attr.flags) = (1, 1, 1 << 18);
    attr.sample_type = st::IP | st::TID | st::TIME | st::CALLCHAIN;
    let event = Event::made(&attr, vec![1], endian);
    let mut writer = RecordingWriter::create(&input, std::slice::from_ref(&event), endian).unwrap();
    let texts = [*b"/llvm-un", *b"secret\0\0"].map(u64::from_le_bytes);
    let chain =
        [-128_i64 as u64, 0xffff_ffff_8100_0000, -512_i64 as u64, 0x40_0000, texts[0], texts[1], 0x40_1000];
    let (misc, pid, tid, start, len, pgoff, prot, flags) = (cpumode::USER, 7, 7, 0x40_0000, 0x1000, 0, 5, 2);
    let (file, name, trailer) = (MappedFile::BuildId(&[3; 20]), &b"/usr/bin/true"[..], &[0; 16]);
    let mmap = Mmap2 { misc, pid, tid, start, len, pgoff, file, prot, flags, name, trailer }.write(endian);
    writer.write(&mmap.unwrap()).unwrap();
    let words = [&[0x40_0000, 7 << 32 | 7, 5, chain.len() as u64][..], &chain].concat();
    let sample: Vec<u8> = words.iter().flat_map(|&word| endian.bytes_u64(word)).collect();
    writer.write_parts(RecordType::SAMPLE, cpumode::USER, &[&sample]).unwrap();
    writer.finish().unwrap();
    let check = perfx(args!["redact", "--check", input]);
    assert_eq!(check.code, Some(3));
    let said = "stacks: 2 entries of call chains are in no mapping\n";
    assert!(check.stderr.contains(said), "{}", check.stderr);
    perfx(args!["redact", "-q", input, "-o", out]).done().unwrap();
    let bytes = fs::read(&out).unwrap();
    let zeroed: Vec<u8> = chain
        .iter()
        .map(|&entry| if texts.contains(&entry) { 0 } else { entry })
        .flat_map(|entry| endian.bytes_u64(entry))
        .collect();
    assert!(holds(&bytes, zeroed));
    assert_eq!(perfx(args!["redact", "--check", out]).code, Some(0));
}

/// Without mappings no address is known to be one of code, and all call chains were lost with exit code 0.
#[test]
fn call_chains_of_a_process_without_mappings_are_a_loss() {
    let folder = temp();
    let (input, out) = (folder.path().join("in.data"), folder.path().join("out.data"));
    let endian = Endian::Little;
    let mut attr = Attr::default();
    (attr.type_, attr.sample_period, attr.flags) = (1, 1, 1 << 18);
    attr.sample_type = st::IP | st::TID | st::TIME | st::CALLCHAIN;
    let event = Event::made(&attr, vec![1], endian);
    let (misc, tid, len, pgoff, prot, flags) = (cpumode::USER, 7, 0x1000, 0, 5, 2);
    let (file, name, trailer) = (MappedFile::BuildId(&[3; 20]), &b"/usr/bin/true"[..], &[0; 16]);
    let mmap = |pid, start| Mmap2 { misc, pid, tid, start, len, pgoff, file, prot, flags, name, trailer };
    // The mappings of no process, of another one, of the parent, and those at the start of a recording of
    // simpleperf.
    for (case, is_lost) in [("none", true), ("other", true), ("parent", false), ("initial", false)] {
        let mut writer = RecordingWriter::create(&input, std::slice::from_ref(&event), endian).unwrap();
        let own = mmap(7, 0x40_0000).write(endian).unwrap();
        match case {
            "other" => writer.write(&mmap(8, 0x90_0000).write(endian).unwrap()).unwrap(),
            "parent" => {
                writer.write(&mmap(8, 0x40_0000).write(endian).unwrap()).unwrap();
                let task = [7, 8, 7, 8].map(u32::to_le_bytes);
                writer.write_parts(RecordType::FORK, 0, &[task.as_flattened(), &[0; 24]]).unwrap();
            }
            "initial" => writer.set_feature(Feature::INIT_MAP, own).unwrap(),
            _ => {}
        }
        let words = [0x40_0000, 7 << 32 | 7, 5, 2, -512_i64 as u64, 0x40_0100].map(u64::to_le_bytes);
        writer.write_parts(RecordType::SAMPLE, cpumode::USER, &[words.as_flattened()]).unwrap();
        writer.finish().unwrap();
        let ran = perfx(args!["redact", "-f", input, "-o", out]);
        // INIT_MAP itself is dropped.
        let is_whole = !is_lost && case != "initial";
        assert_eq!(ran.code, Some(if is_whole { 0 } else { 3 }), "{case}: {}", ran.stderr);
        let lost = "stacks: 2 addresses of samples and call chains are of processes whose mappings are not in the \
                    recording, now 0\n";
        assert_eq!(ran.stderr.contains(lost), is_lost, "{case}: {}", ran.stderr);
        assert_eq!(holds(&fs::read(&out).unwrap(), endian.bytes_u64(0x40_0100)), !is_lost, "{case}");
    }
}

/// Regression: these were mistaken for names on every machine, or with only a pid.
#[test]
fn names_that_only_resemble_common_ones_do_not_stay() {
    let endian = Endian::Little;
    let folder = temp();
    let (input, out) = (folder.path().join("in.data"), folder.path().join("out.data"));
    let mut attr = Attr::default();
    (attr.type_, attr.sample_period, attr.flags) = (1, 1, 1 << 18);
    attr.sample_type = st::IP | st::TID | st::TIME;
    let event = Event::made(&attr, vec![1], endian);
    let mut writer = RecordingWriter::create(&input, std::slice::from_ref(&event), endian).unwrap();
    let paths = [
        ("/usr/lib/debug/home/alice/secret/server.debug", "alice"),
        ("/lib/modules/6.1.0/build/home/alice/driver.ko", "alice"),
        ("/home/x/libx.so.4111111111111111", "4111111111111111"),
        ("/tmp/perf-4111111111111111.map", "4111111111111111"),
        ("/tmp/jit-7-4111111111111111.so", "4111111111111111"),
        ("/usr/share/acme/tool", "acme"),
        ("/usr/libexec/alicecorp/agent", "alice"),
        ("/usr/lib/alicecorp/libx.so", "alice"),
        ("/lib/modules/6.1.0/kernel/drivers/alicedrv.ko", "alice"),
    ];
    let file = MappedFile::BuildId(&[3; 20]);
    let (misc, pid, tid, len, pgoff, prot, flags) = (cpumode::USER, 7, 7, 0x1000, 0, 5, 2);
    for (start, (path, _)) in (0x40_0000..).step_by(0x1000).zip(paths) {
        let (name, trailer) = (path.as_bytes(), &[0; 16]);
        let mmap =
            Mmap2 { misc, pid, tid, start, len, pgoff, file, prot, flags, name, trailer }.write(endian);
        writer.write(&mmap.unwrap()).unwrap();
    }
    writer.set_feature(Feature::NRCPUS, b"SeCrEt!!".to_vec()).unwrap();
    writer.finish().unwrap();
    let check = perfx(args!["redact", "--check", "-v", input]);
    assert_eq!(check.code, Some(3));
    assert!(check.stderr.contains("feature NRCPUS (7): it is damaged"), "{}", check.stderr);
    perfx(args!["redact", "-q", input, "-o", out]).done().unwrap();
    let bytes = fs::read(&out).unwrap();
    for (path, secret) in paths {
        assert!(check.stderr.contains(&format!("paths: {path}\n")), "{path}: {}", check.stderr);
        assert!(!holds(&bytes, secret), "{path}");
    }
    assert!(!holds(&bytes, "SeCr"));
    assert_eq!(perfx(args!["redact", "--check", out]).code, Some(0));
}

/// Each folder becomes a longer word, and perf refuses a BUILD_ID section and an MMAP2 with a path above
/// PATH_MAX.
#[test]
fn a_pseudonym_is_not_longer_than_perf_reads() {
    let endian = Endian::Little;
    let long = format!("/home{}/server.so.1", "/a".repeat(400));
    let mut attr = Attr::default();
    (attr.type_, attr.sample_period, attr.flags) = (1, 1, 1 << 18);
    attr.sample_type = st::IP | st::TID | st::TIME;
    let event = Event::made(&attr, vec![1], endian);
    let folder = temp();
    let (input, out) = (folder.path().join("in.data"), folder.path().join("out.data"));
    let mut writer = RecordingWriter::create(&input, std::slice::from_ref(&event), endian).unwrap();
    let mut ids = Vec::new();
    for path in [&long[..], "/home/x"] {
        BuildIdEntry::new(cpumode::USER, -1, &[3; 20], path.as_bytes())
            .write_section(endian, &mut ids)
            .unwrap();
    }
    writer.set_feature(Feature::BUILD_ID, ids).unwrap();
    let file = MappedFile::BuildId(&[3; 20]);
    let (misc, pid, tid, start, len, pgoff, prot, flags) = (cpumode::USER, 7, 7, 0x40_0000, 0x1000, 0, 5, 2);
    let (name, trailer) = (long.as_bytes(), &[0; 16]);
    let mmap = Mmap2 { misc, pid, tid, start, len, pgoff, file, prot, flags, name, trailer }.write(endian);
    writer.write(&mmap.unwrap()).unwrap();
    writer.finish().unwrap();
    perfx(args!["redact", input, "-o", out]).done().unwrap();
    let bytes = fs::read(&out).unwrap();
    let recording = Input::Bytes(&bytes).open().unwrap();
    let entries: Vec<_> = BuildIds::new(&recording.features[&Feature::BUILD_ID], endian)
        .map(|entry| String::from_utf8(entry.filename.to_vec()).unwrap())
        .collect();
    assert_eq!(entries.len(), 2);
    assert!(entries[0].ends_with(".so") && entries[0].len() < 100, "{}", entries[0]);
    let dump = perfx(args!["dump", "--only", "MMAP2", out]).text();
    assert!(dump.contains(&format!("filename={} ", entries[0])), "{dump}");
}

#[test]
fn a_copy_of_the_kernel_is_not_kept_by_any_command() {
    let folder = temp();
    let out = folder.path().join("out.data");
    let input = Fixture::new("recorded/kcore.p61.data").path;
    let ran = perfx(args!["run", "-p", "redact", input, "-o", out]);
    assert_eq!(ran.code, Some(1), "{}", ran.stderr);
    assert!(
        ran.stderr.contains("use perfx redact, or keep category kcore") && !out.exists(),
        "{}",
        ran.stderr
    );
    perfx(args!["redact", "-q", input, "-o", out]).done().unwrap();
    assert!(out.is_file());
    perfx(args!["redact", "-q", "-f", "--keep", "kcore", input, "-o", out]).done().unwrap();
    assert!(out.join("kcore_dir").is_dir());
}

#[test]
fn what_redact_says() {
    let place = Place::new(&[
        ("forks.data", "recorded/forks.p61.data"),
        ("dwarf.data", "recorded/dwarf.p61.data"),
        ("trace.data", "recorded/tracepoint.p61.data"),
        ("bpf.data", "recorded/bpf.p73.data"),
        ("kcore.data", "recorded/kcore.p61.data"),
        ("cgroups.data", "recorded/cgroups.p61.data"),
        ("unknown.data", "crafted/kind-63-payload.data"),
        ("aux.data", "crafted/aux-samples.data"),
        ("torn.data", "crafted/z-corrupt-block-le.data"),
        ("features.data", "crafted/features-unknown-le.data"),
    ]);
    let lines = [
        "redact --key x forks.data -o a.data",
        "redact --check a.data",
        "redact --check forks.data",
        "redact --check -v --keep comms,paths bpf.data",
        "redact --key x -v dwarf.data -o b.data",
        "redact -n trace.data",
        "redact kcore.data -o c.data",
        "redact --key x -v cgroups.data -o d.data",
        "redact unknown.data -o e.data",
        "redact --keep unknown unknown.data -o f.data",
        "redact --check unknown.data",
        "redact aux.data -o g.data",
        "redact torn.data -o h.data",
        "redact features.data -o i.data",
        "redact --keep nothing forks.data -o x",
        "redact --check forks.data -o x",
    ];
    same("redact", "says", &place.say_all(&lines));
}

/// Regression: unknown bytes after the fields of a feature were copied without a report.
#[test]
fn unknown_bytes_of_a_feature_do_not_stay() {
    let folder = temp();
    let (input, out) = (folder.path().join("in.data"), folder.path().join("out.data"));
    let recording = Recording::open(&Fixture::new("crafted/features-all-le.data").path).unwrap();
    let mut wrong = Vec::new();
    // perfx rebuilds these when it writes.
    let made = [Feature::TRACING_DATA, Feature::AUXTRACE, Feature::COMPRESSED];
    for (feature, section) in &recording.features {
        let mut writer = RecordingWriter::create(&input, &recording.events, recording.endian).unwrap();
        let nrcpus = recording.features[&Feature::NRCPUS].to_vec();
        writer.set_feature(Feature::NRCPUS, nrcpus).unwrap();
        writer.set_feature(*feature, [&section[..], b"MARKER of a host"].concat()).unwrap();
        writer.finish().unwrap();
        for to in ["file", "pipe"] {
            let ran = perfx(args!["redact", "-f", "--to", to, input, "-o", out]);
            let bytes = fs::read(&out).unwrap_or_default();
            let is_said = ran.stderr.contains(&feature.to_string()) || made.contains(feature);
            if holds(&bytes, "MARKER") || !is_said {
                wrong.push((*feature, ran.code, ran.stderr));
            }
        }
        let check = perfx(args!["redact", "--check", input]);
        if check.code != Some(3) && !made.contains(feature) {
            wrong.push((*feature, check.code, check.stderr));
        }
    }
    assert!(wrong.is_empty(), "{wrong:#?}");
}

/// Regression: pipe data got the old names, though redact reported that they were replaced. And a pseudonym
/// was cut to fit a short field, so it was not recognised as one.
#[test]
fn names_of_event_types_leave_pipe_data_too_and_pseudonyms_are_not_cut() {
    let folder = temp();
    let path = |name: &str| folder.path().join(name);
    let recording = Recording::open(&Fixture::new("recorded/fp.p61.data").path).unwrap();
    let (file, endian) = (fs::File::create(path("in")).unwrap(), recording.endian);
    let mut writer = RecordingWriter::to_pipe(file, &recording.events, &recording.features, endian).unwrap();
    let kind = RecordType::HEADER_EVENT_TYPE;
    writer.write_parts(kind, 0, &[&[0; 8], b"secret\0\0"]).unwrap();
    // The records before the first other one are perf's header.
    let lost = endian.bytes_u64(1);
    writer.write_parts(RecordType::LOST, 0, &[&lost, &lost, &[0; 16]]).unwrap();
    writer.write_parts(kind, 0, &[&[0; 8], b"secret\0\0"]).unwrap();
    writer.write_parts(kind, 0, &[&[0; 8], b"secret\0\0", &[0; 56]]).unwrap();
    writer.finish().unwrap();
    perfx(args!["copy", path("in"), "--to", "file", "-o", path("file")]).done().unwrap();
    for (from, to) in [("in", "pipe"), ("in", "file"), ("file", "pipe"), ("file", "file")] {
        perfx(args!["redact", "-f", "--to", to, path(from), "-o", path("out")]).done().unwrap();
        assert!(!holds(&fs::read(path("out")).unwrap(), "secret"), "{from} to {to}");
        let check = perfx(args!["redact", "--check", path("out")]);
        assert_eq!(check.code, Some(0), "{from} to {to}: {}", check.stderr);
    }
    perfx(args!["redact", "-f", "--to", "pipe", path("in"), "-o", path("out")]).done().unwrap();
    let dump = perfx(args!["dump", "--only", "HEADER_EVENT_TYPE", path("out")]).text();
    let names: Vec<_> = dump.split_whitespace().filter_map(|word| word.strip_prefix("name=")).collect();
    assert!(matches!(names[..], [one, "\"\"", other] if one == other && one.starts_with("event-")), "{dump}");
}

#[test]
fn stacks_leave_pipe_data_whose_events_come_late() {
    let folder = temp();
    let path = |name: &str| folder.path().join(name);
    perfx(args![
        "copy",
        "-q",
        "--to",
        "pipe",
        Fixture::new("recorded/dwarf.p61.data").path,
        "-o",
        path("early")
    ])
    .done()
    .unwrap();
    let pipe = fs::read(path("early")).unwrap();
    let (head, records) = (&pipe[..16], records(&pipe[16..], Order { big: false }));
    let (attrs, others): (Vec<_>, Vec<_>) = records.iter().partition(|record| record.kind == 64);
    let stacks: Vec<&[u8]> =
        others.iter().filter(|record| record.kind == 9).map(|record| &record.bytes[8..]).collect();
    assert!(!attrs.is_empty() && stacks.len() > 1);
    let behind_one = 1 + others.iter().position(|record| record.kind == 9).unwrap();
    let (front, behind) = others.split_at(behind_one);
    let orders = [vec![front, &attrs, behind], vec![front, behind, &attrs], vec![front, behind]];
    for (number, order) in orders.into_iter().enumerate() {
        let late: Vec<u8> = order.concat().into_iter().flat_map(|record| record.bytes.clone()).collect();
        fs::write(path("in"), [head, &late].concat()).unwrap();
        for form in ["pipe", "file"] {
            let ran = perfx(args!["redact", "-f", "--to", form, path("in"), "-o", path("out")]);
            // A file without an event is refused.
            let Some(code @ (0 | 3)) = ran.code else { continue };
            // Samples before their event can't be read.
            assert!(number < 2 || code == 3, "{number} {form}: {}", ran.stderr);
            let out = fs::read(path("out")).unwrap();
            let stays = |stack: &&[u8]| out.windows(stack.len()).any(|there| there == *stack);
            assert!(!stacks.iter().any(stays), "{number} {form}");
        }
        assert_eq!(perfx(args!["redact", "--check", path("in")]).code, Some(3), "{number}");
    }
}

#[test]
fn bytes_outside_all_sections_do_not_stay() {
    let folder = temp();
    let (input, out) = (folder.path().join("in.data"), folder.path().join("out.data"));
    let bytes = Fixture::new("recorded/fp.p61.data").bytes();
    fs::write(&input, [&bytes[..], b"MARKER of a host"].concat()).unwrap();
    for command in [&["redact"][..], &["inject", "--aslr"]] {
        let mut line: Vec<std::ffi::OsString> = command.iter().map(Into::into).collect();
        line.extend(args![input, "-f", "-o", out]);
        let ran = perfx(&line);
        assert!(matches!(ran.code, Some(0 | 3)), "{}", ran.stderr);
        let left = fs::read(&out).unwrap();
        assert!(!holds(&left, "MARKER"), "{command:?}");
        // Pipe data cannot contain them, so the writer reported them, too.
        line.truncate(command.len() + 1);
        let ran = perfx([line, args!["-o", "-"].to_vec()].concat());
        assert_eq!(ran.stderr.matches("16 bytes").count(), 1, "{}", ran.stderr);
    }
    let ran = perfx(args!["redact", "--check", input]);
    assert_eq!(ran.code, Some(3));
    assert!(ran.stderr.contains("16 bytes outside all sections"), "{}", ran.stderr);
}

/// Regression: the address of the sample stayed where the equal first entry of its chain became 0, and every
/// frame in mappings of simpleperf's INIT_MAP became 0.
#[test]
fn only_code_addresses_stay_in_samples_and_chains() {
    let folder = temp();
    let (path, out) = (folder.path().join("in.data"), folder.path().join("out.data"));
    let mut attr = Attr::default();
    (attr.type_, attr.sample_type) = (1, st::IP | st::TID | st::TIME | st::CALLCHAIN);
    let mut maker = Maker::new(&path, &[Event::made(&attr, Vec::new(), LE)]);
    let mapping = |start: u64| {
        let (pids, range) = ([7_u32; 2].map(u32::to_le_bytes), [start, 0x1000, 0].map(u64::to_le_bytes));
        let parts: [&[u8]; 3] = [pids.as_flattened(), range.as_flattened(), b"/opt/x\0\0"];
        build(RecordType::MMAP, cpumode::USER, &parts, LE).unwrap()
    };
    maker.writer.set_feature(Feature::INIT_MAP, mapping(0x1_0000)).unwrap();
    maker.mmap(7, 0x2_0000, 0x1000, "/opt/y");
    let text = u64::from_le_bytes(*b"alice\0\0\0");
    for ip in [0x1_0010, 0x2_0010, text] {
        let words = [ip, 7 << 32 | 7, 1, 2, ip, 0x1_0020].map(u64::to_le_bytes);
        maker.writer.write_parts(RecordType::SAMPLE, cpumode::USER, &[words.as_flattened()]).unwrap();
    }
    maker.writer.finish().unwrap();
    let checked = perfx(args!["redact", "--check", path]);
    assert!(checked.stderr.contains("1 address of a sample is in no mapping"), "{}", checked.stderr);
    perfx(args!["redact", "-f", path, "-o", out]).done().unwrap();
    let dump = perfx(args!["dump", "--only", "SAMPLE", out]).text();
    for ip in ["ip=0x10010 ", "ip=0x20010 ", "ip=0x0 "] {
        assert!(dump.contains(ip), "{dump}");
    }
    assert!(dump.contains("0x10020") && !dump.contains(&format!("{text:x}")), "{dump}");
}
