//! `aslr` moves all addresses, and perf still finds the same functions.

use std::fs;
use std::path::Path;

use perfx_format::features::{EventDesc, GroupDesc, write_event_desc, write_group_desc, write_str};
use perfx_format::record::builder::build;
use perfx_format::sample::raw_range;
use perfx_format::write::{feature_record, tracing_data_record};
use perfx_format::{Attr, Endian, Feature, Mmap, RecordType, sample_type as st};

use crate::promises::Input;
use crate::shares::{of_two_perfs, readers, shares};
use crate::snapshots::{Place, same};
use crate::support::{Fixture, Tier, each_fixture, holds, perfs, perfx, same_bytes, same_lines, temp};
use crate::{args, tiers};

/// Recordings with mappings, of every form and with every kind of address.
fn fixtures() -> Vec<Fixture> {
    let parts = [
        "addresses.", "allbits", "bpf.", "breakpoint", "buildid-mmap", "callgraph-user", "dwarf.",
        "forkexec", "fp", "forks.", "group.", "intr-regs", "mixed-callgraph", "pipe.", "pipe-group",
        "pipe-tracepoint", "replaced", "several", "sched-stat", "threads.", "trace.", "tracepoint",
        "user-regs", "z.", "z-tracepoint",
    ];
    of_two_perfs(&parts)
}

#[test]
fn perf_report_finds_the_same_functions() {
    let perfs = perfs(&["perf", "perf-new"]);
    each_fixture(&fixtures(), |fixture| {
        let folder = temp();
        let out = folder.path().join("out.data");
        perfx(args!["run", "-q", "-p", "aslr", fixture.path, "-o", out]).done()?;
        // Addresses without a name differ.
        let address = |word: &str| if word.starts_with("0x") { "0x…".to_owned() } else { word.to_owned() };
        let cell = |text: &str| text.split_whitespace().map(address).collect::<Vec<_>>().join(" ");
        let shown = |perf, path| shares(perf, path, &["--sort", "comm,dso,sym"], cell);
        for perf in readers(&perfs, fixture) {
            same_lines(perf.name, &shown(perf, &fixture.path)?, &shown(perf, &out)?)?;
        }
        Ok(())
    });
}

/// The mapped ranges of programs and kernels, without small addresses, which other numbers may equal.
fn mapped(input: &Input<'_>) -> Vec<(u64, u64)> {
    let mut recording = input.open().unwrap();
    let mut ranges = Vec::new();
    for batch in recording.decompressed() {
        let batch = batch.unwrap();
        let mut walker = batch.walk();
        while let Some(record) = walker.next_record().unwrap() {
            let mmap = Mmap::of(&record).filter(|mmap| mmap.start() >= 1 << 40);
            ranges.extend(mmap.map(|mmap| (mmap.start(), mmap.start().saturating_add(mmap.len()))));
        }
    }
    ranges
}

#[test]
fn no_old_address_is_in_any_byte_of_the_output() {
    let mut searched = 0;
    let counted = std::sync::Mutex::new(&mut searched);
    each_fixture(&fixtures(), |fixture| {
        let folder = temp();
        let out = folder.path().join("out.data");
        perfx(args!["run", "-q", "-p", "aslr", fixture.path, "-o", out]).done()?;
        let before = fixture.bytes();
        let input = fixture.input(&before);
        let ranges = mapped(&input);
        let bytes = fs::read(&out).unwrap();
        let endian = input.open().unwrap().endian;
        for at in 0..bytes.len().saturating_sub(7) {
            let word = endian.u64(&bytes, at).unwrap();
            let is_in = |(start, end): &&(u64, u64)| (*start..*end).contains(&word);
            if let Some((start, end)) = ranges.iter().find(is_in) {
                return Err(format!("at {at:#x} is {word:#x} out of {start:#x} to {end:#x}"));
            }
        }
        **counted.lock().unwrap() += ranges.len();
        let recording = Input::Bytes(&bytes).open().unwrap();
        let memory = st::REGS_USER | st::REGS_INTR | st::STACK_USER | st::AUX | st::PHYS_ADDR;
        assert!(recording.events.iter().all(|event| event.attr().sample_type & memory == 0));
        Ok(())
    });
    assert!(searched > 100, "only {searched} mappings were searched for");
}

tiers!(every_sample_stays_and_the_key_decides_where_everything_is);
/// perf inject --aslr drops the samples of tracepoints and those with stacks.
fn every_sample_stays_and_the_key_decides_where_everything_is(tier: Tier) {
    each_fixture(&tier.of(fixtures()), |fixture| {
        let folder = temp();
        let path = |name: &str| folder.path().join(name);
        for (name, chain) in [("a", "aslr:key=a"), ("again", "aslr:key=a"), ("b", "aslr:key=b")] {
            perfx(args!["run", "-q", "-p", chain, fixture.path, "-o", path(name)]).done()?;
        }
        let [a, again, b] = ["a", "again", "b"].map(|name| fs::read(path(name)).unwrap());
        same_bytes("with the same key", &a, &again)?;
        // Few regions may have the same order.
        assert!(a != b || fixture.name != "recorded/forks.p61.data");
        let count = |path: &Path| {
            let text = perfx(args!["dump", "--only", "SAMPLE", path]).text();
            text.lines().filter(|line| line.contains(RecordType::SAMPLE.name().unwrap_or_default())).count()
        };
        assert_eq!(count(&path("a")), count(&fixture.path));
        Ok(())
    });
}

#[test]
fn what_aslr_says() {
    let place = Place::new(&[
        ("dwarf.data", "recorded/dwarf.p61.data"),
        ("trace.data", "recorded/trace.p61.data"),
        ("kcore.data", "recorded/kcore.p61.data"),
        ("unknown.data", "crafted/kind-63-payload.data"),
        ("aux.data", "crafted/aux-samples.data"),
    ]);
    let lines = [
        "run -p aslr dwarf.data -o a.data",
        "run -p aslr:key=x trace.data -o b.data",
        "run -p aslr kcore.data -o c.data",
        "run -p aslr --to file kcore.data -o d.data",
        "run -p aslr unknown.data -o e.data",
        "run -p aslr aux.data -o f.data",
    ];
    same("aslr", "says", &place.say_all(&lines));
}

/// Regression: a type of 0x174 next to a pid of 0x4fcb looks like an address; without it, perf 6.1 crashes.
#[test]
fn adjacent_small_numbers_are_not_treated_as_an_address() {
    let fixture = Fixture::new("recorded/sched-stat.p61.data");
    let mut bytes = fixture.bytes();
    let mut recording = Input::Bytes(&bytes).open().unwrap();
    let mut places = Vec::new();
    for batch in recording.batches() {
        let batch = batch.unwrap();
        let mut walker = batch.walk();
        while let Some(record) = walker.next_record().unwrap() {
            let Some(layout) = batch.layouts.layout_of(&record) else { continue };
            let Some((_, at)) = record.origin().stored_at() else { continue };
            places.extend(raw_range(&record, layout).map(|raw| at as usize + raw.start));
        }
    }
    assert!(places.len() > 10);
    // common_pid, after common_type, common_flags and common_preempt_count.
    places.iter().for_each(|&at| bytes[at + 4..at + 8].copy_from_slice(&0x4fcb_u32.to_le_bytes()));
    let folder = temp();
    let (input, out) = (folder.path().join("in.data"), folder.path().join("out.data"));
    fs::write(&input, &bytes).unwrap();
    let ran = perfx(args!["inject", "--aslr", input, "-o", out]);
    assert!(matches!(ran.code, Some(0 | 3)), "{}", ran.stderr);
    let shown = |path: &Path| {
        let text = perfx(args!["dump", "--only", "SAMPLE", "--raw", path]).text();
        text.matches("cb4f0000").count()
    };
    assert!(shown(&input) >= places.len());
    assert_eq!(shown(&out), shown(&input));
}

/// A feature of pipe data can come after records; a pass sees it only then.
#[test]
fn late_features_lose_their_addresses_too() {
    const ADDRESS: u64 = 0x5511_2233_4455;
    let (endian, name) = (Endian::Little, format!("mem:{ADDRESS:#x}:rw"));
    let mut attr = Attr::default();
    (attr.type_, attr.config1, attr.config2) = (5, ADDRESS, 8);
    let attr = attr.encode(endian);
    let event = EventDesc { attr: &attr, name: name.as_bytes(), ids: vec![1] };
    let events = write_event_desc(attr.len() as u32, &[event], endian).unwrap();
    let filter = format!("start {ADDRESS:#x} @ /bin/sh,{ADDRESS},{ADDRESS:x}");
    let words = ["perf", "record", "-e", &format!("cycles,{name}"), "--filter", &filter];
    let words: Vec<u8> = words.iter().flat_map(|word| write_str(word.as_bytes(), endian)).collect();
    let command_line = [&endian.bytes_u32(6)[..], &words].concat();
    let groups = write_group_desc(&[GroupDesc { name: name.as_bytes(), leader: 0, members: 1 }], endian);
    let address = [endian.bytes_u64(1), endian.bytes_u64(ADDRESS)].concat();
    let features = [
        (Feature::EVENT_DESC, &events[..]),
        (Feature::CMDLINE, &command_line),
        (Feature::AUXTRACE, &address),
        (Feature::BPF_PROG_INFO, &address),
        (Feature::BPF_BTF, &address),
        (Feature::GROUP_DESC, &groups),
        (Feature(200), &address),
    ];
    let mut bytes = Fixture::new("recorded/pipe.p61.data").bytes();
    for (feature, section) in features {
        bytes.extend(feature_record(feature, section, endian).unwrap());
    }
    // After the fields, and before the trailer.
    let lost = [&endian.bytes_u64(1)[..], &endian.bytes_u64(1), &endian.bytes_u64(ADDRESS), &[0; 64]];
    bytes.extend(build(RecordType::LOST, 0, &lost, endian).unwrap());
    // A number that no file can have.
    let mut large = feature_record(Feature(0), &address, endian).unwrap();
    large[9] = 1;
    bytes.extend(large);
    let (record, payload) = tracing_data_record(&[&b"damaged "[..], &address].concat(), endian).unwrap();
    bytes.extend([record, payload].concat());
    let folder = temp();
    let (input, out) = (folder.path().join("in.data"), folder.path().join("out.data"));
    fs::write(&input, &bytes).unwrap();
    let (number, text) = (ADDRESS.to_le_bytes(), format!("{ADDRESS:x}"));
    assert!(holds(&bytes, number) && holds(&bytes, &text));
    for form in ["pipe", "file"] {
        let ran = perfx(args!["run", "-f", "-p", "aslr", "--to", form, input, "-o", out]);
        assert_eq!(ran.code, Some(3), "{}", ran.stderr);
        for what in [
            "feature unknown (200) left out: it may hold anything",
            "feature TRACING_DATA (1) left out: it is damaged and may hold anything",
            "1 HEADER_FEATURE left out: they may hold anything",
            "feature AUXTRACE (18) left out",
        ] {
            assert!(ran.stderr.contains(what), "{what}: {}", ran.stderr);
        }
        let bytes = fs::read(&out).unwrap();
        assert!(!holds(&bytes, &number[..6]) && !holds(&bytes, &text), "to {form}");
        assert!(holds(&bytes, b"cycles,mem:0x0:rw") && holds(&bytes, b"\0mem:0x0:rw\0"), "to {form}");
    }
}

/// Only addresses were to be moved.
#[test]
fn data_that_aslr_can_not_move_is_lost() {
    let folder = temp();
    let out = folder.path().join("out.data");
    for (name, what) in [
        ("crafted/aux-le.data", " AUX, "),
        ("crafted/aux-samples.data", "registers, stacks and similar data cut out of 5 samples"),
        ("recorded/fp.p61.data", "feature BPF_PROG_INFO (25) left out: it may hold addresses"),
    ] {
        let ran = perfx(args!["inject", "--aslr", "-f", Fixture::new(name).path, "-o", out]);
        let said = ran.stderr.lines().any(|line| line.starts_with("perfx: lost: ") && line.contains(what));
        assert!(ran.code == Some(3) && said, "{name}: {}", ran.stderr);
    }
}

/// Regression: they were dropped without a report.
#[test]
fn bytes_outside_all_sections_are_dropped_with_a_report() {
    let folder = temp();
    let (input, out) = (folder.path().join("in.data"), folder.path().join("out.data"));
    let bytes = [&Fixture::new("recorded/forkexec.p61.data").bytes()[..], b"anything"].concat();
    fs::write(&input, bytes).unwrap();
    let ran = perfx(args!["inject", "--aslr", input, "-o", out]);
    assert_eq!(ran.code, Some(3), "{}", ran.stderr);
    assert!(ran.stderr.contains("lost: 8 bytes outside all sections left out"), "{}", ran.stderr);
    let written = fs::read(&out).unwrap();
    assert!(!written.windows(8).any(|window| window == b"anything"));
}

/// Regression: unknown parts of samples were dropped without a report, because their bits in the attr were
/// cleared before they could be counted.
#[test]
fn unknown_parts_of_samples_are_dropped_with_a_report() {
    for name in ["crafted/sample-bit25-le.data", "crafted/sample-bit25-be.data"] {
        let folder = temp();
        let out = folder.path().join("out.data");
        let ran = perfx(args!["inject", "--aslr", Fixture::new(name).path, "-o", out]);
        assert_eq!(ran.code, Some(3), "{name}: {}", ran.stderr);
        assert!(ran.stderr.contains("without a known field zeroed"), "{name}: {}", ran.stderr);
    }
}
