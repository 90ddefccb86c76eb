//! `inject --itrace` synthesizes the samples of Arm SPE like perf 7.3, except where perf is wrong.

use std::collections::HashMap;
use std::ffi::OsString;
use std::fs;
use std::path::{Path, PathBuf};

use perfx_format::event_name::event_names;
use perfx_format::read::Recording;

use crate::args;
use crate::snapshots::{Place, same};
use crate::support::{Fixture, Perf, Stdin, each, perf, perfs, perfx, perfx_with, root, same_lines, temp};

/// Every letter that Arm SPE knows.
const ALL: &str = "i1ibl2fmtaM";

fn crafted(name: &str) -> PathBuf {
    root().join(format!("tests/data/crafted/{name}.data"))
}

fn letters(letters: &str) -> OsString {
    format!("--itrace={letters}").into()
}

/// All parts of all samples of decoded events, and of PEBS samples from a trace, in order.
pub(crate) fn samples(path: &Path) -> Vec<String> {
    let mut recording = Recording::open(path).unwrap();
    let names = event_names(&recording, &HashMap::new());
    let decoded = recording.events.iter().position(|event| event.ids.iter().all(|&id| id > 1_000_000_000));
    let recorded = recording.events.clone();
    let mut records = recording.records();
    let mut lines = Vec::new();
    while let Some(record) = records.next_record().unwrap() {
        const AUX_OUTPUT: u32 = 31;
        let is_made = |event: &usize| Some(*event) >= decoded || recorded[*event].attr().flag(AUX_OUTPUT);
        let Some(event) = record.event().filter(is_made) else { continue };
        if let Some(mut sample) = record.sample().unwrap() {
            let (name, mode) = (String::from_utf8_lossy(&names[event].name), record.cpumode());
            let branches: Vec<_> = sample.branches.iter().flat_map(|stack| stack.iter()).collect();
            let index = sample.branches.map(|stack| stack.hw_idx);
            // Their bytes are in the recording's byte order.
            sample.branches = None;
            lines.push(format!("{name} {mode} {sample:?} {index:?} {branches:?}"));
        }
    }
    lines
}

/// The attrs of decoded events with their names and ids; perf's attrs are larger.
pub(crate) fn events(path: &Path) -> Vec<String> {
    let recording = Recording::open(path).unwrap();
    let names = event_names(&recording, &HashMap::new());
    let decoded = recording.events.iter().zip(names);
    let decoded = decoded.filter(|(event, _)| event.ids.iter().all(|&id| id > 1_000_000_000));
    let shown = decoded.map(|(event, name)| {
        let mut attr = *event.attr();
        attr.size = 0;
        format!("{} {:?} {attr:?}", String::from_utf8_lossy(&name.name), event.ids)
    });
    shown.collect()
}

fn decode(perf: &Perf, input: &Path, output: &Path, with: &str) -> Result<(), String> {
    perf.run(Stdin::Null, args!["inject", "-f", letters(with), "-i", input, "-o", output]).done().map(drop)
}

#[test]
fn samples_and_events_are_those_of_perf() {
    let Some(perf) = perf("perf-new") else { return };
    let names = ["spe-v2", "spe-v1", "spe-be", "spe-switch", "spe-threads"];
    let cases: Vec<_> =
        names.iter().flat_map(|&name| [ALL, "i1ibl1", "i7iMf", "i1imta"].map(|with| (name, with))).collect();
    each(
        &cases,
        |(name, with)| format!("{name} {with}"),
        |&(name, with)| {
            let folder = temp();
            let (theirs, ours) = (folder.path().join("theirs"), folder.path().join("ours"));
            decode(&perf, &crafted(name), &theirs, with)?;
            perfx(args!["inject", letters(with), crafted(name), "-o", ours]);
            let wanted = samples(&theirs);
            assert!(wanted.len() > 20, "{}", wanted.len());
            same_lines("samples", &wanted, &samples(&ours))?;
            same_lines("events", &events(&theirs), &events(&ours))
        },
    );
}

#[test]
fn pipes_and_compressed_recordings_give_the_same_samples() {
    let folder = temp();
    let path = |name: &str| folder.path().join(name);
    let decoded = |input: &[u8], name: &str| {
        perfx_with(Stdin::Pipe(input), args!["inject", letters(ALL), "-", "-o", path(name)]).done().unwrap();
        samples(&path(name))
    };
    let file = decoded(&fs::read(crafted("spe-v2")).unwrap(), "file");
    assert_eq!(file.len(), 1215);
    assert_eq!(file, decoded(&fs::read(crafted("spe-pipe")).unwrap(), "pipe"));
    assert_eq!(events(&path("file")), events(&path("pipe")));
    perfx(args!["decompress", crafted("spe-z"), "-o", path("plain")]).done().unwrap();
    let plain = decoded(&fs::read(path("plain")).unwrap(), "plain-decoded");
    assert!(plain.len() > 500);
    assert_eq!(plain, decoded(&fs::read(crafted("spe-z")).unwrap(), "z"));
}

#[test]
fn a_call_is_no_access_to_memory() {
    let folder = temp();
    let ours = folder.path().join("ours");
    perfx(args!["inject", letters(ALL), crafted("spe-calls"), "-o", ours]).done().unwrap();
    let found = samples(&ours);
    assert_eq!(found.len(), 120);
    assert!(found.iter().all(|line| !line.starts_with("memory") && line.contains("Some(DataSrc(0))")));
    let Some(perf) = perf("perf-new") else { return };
    let theirs = folder.path().join("theirs");
    decode(&perf, &crafted("spe-calls"), &theirs, ALL).unwrap();
    let lines = samples(&theirs);
    let (memory, others): (Vec<_>, Vec<_>) = lines.iter().partition(|line| line.starts_with("memory"));
    assert_eq!((memory.len(), others.len()), (60, 120), "the fault of perf 7.3 is gone");
}

/// Except for operations without a meaning, where perf 7.3 repeats the words of the packet before, and for what an event
/// is called whose meaning the CPU defines.
#[test]
fn dump_lists_the_packets_of_arm_spe_that_perf_lists() {
    for perf in perfs(&["perf-new"]) {
        for name in ["spe-be", "spe-calls", "spe-damaged", "spe-operations", "spe-v2"] {
            let theirs = perf.run(Stdin::Null, args!["script", "-f", "-D", "-i", crafted(name)]).stdout;
            let theirs = String::from_utf8_lossy(&theirs).into_owned();
            let is_packet = |line: &&str| line.starts_with(".  0") && line.find(':') == Some(11);
            let is_own = |line: &&str| line.ends_with(" OTHER") || line.contains(" EV ");
            let theirs: Vec<_> = theirs.lines().filter(is_packet).map(|line| line[1..].to_owned()).collect();
            let ours = perfx(args!["dump", "--kind", "AUXTRACE", "--aux", crafted(name)]).text();
            let ours: Vec<_> = ours.lines().filter(|line| line.starts_with("  0")).collect();
            assert!(theirs.len() > 50 && theirs.len() == ours.len(), "{name}");
            let compared = theirs.iter().zip(ours).filter(|(_, ours)| !is_own(ours));
            compared.for_each(|(theirs, ours)| assert_eq!(theirs, ours, "{name}"));
        }
    }
}

/// perf script makes them, too; of traces of code it makes calls.
#[test]
fn view_shows_the_samples_of_instructions_of_arm_spe_without_letters() {
    let count = |letters: &str| {
        let options = args!["view", "--foreign", "--count", letters, crafted("spe-calls")];
        perfx(options).text().trim().parse::<u64>().unwrap()
    };
    assert_eq!(count("--itrace"), count("--itrace=iblfmtaM"));
    assert!(count("--itrace") > count("--itrace=blfmtaM"));
}

#[test]
fn without_i_each_sample_counts_for_one() {
    let folder = temp();
    let ours = folder.path().join("ours");
    // perf 7.3 gives them the period 0, with which perf report shows nothing.
    perfx(args!["inject", "--itrace=b", crafted("spe-v2"), "-o", ours]).done().unwrap();
    let found = samples(&ours);
    assert!(found.len() > 50 && found.iter().all(|line| line.contains("period: Some(1)")));
    // perf 7.3 refuses --itrace without letters.
    perfx(args!["inject", "--itrace", crafted("spe-v2"), "-f", "-o", ours]).done().unwrap();
    assert_eq!(events(&ours).len(), 10);
}

#[test]
fn damaged_data_costs_only_the_records_around_it() {
    let folder = temp();
    let (ours, theirs) = (folder.path().join("ours"), folder.path().join("theirs"));
    let ran = perfx(args!["inject", letters(ALL), crafted("spe-damaged"), "-o", ours]);
    assert_eq!(ran.code, Some(3), "{}", ran.stderr);
    assert!(
        ran.stderr.contains("9 bytes of the AUX data do not belong to a packet of Arm SPE"),
        "{}",
        ran.stderr
    );
    let Some(perf) = perf("perf-new") else { return };
    decode(&perf, &crafted("spe-damaged"), &theirs, ALL).unwrap();
    // perf also makes samples from the broken records.
    let (found, perfs) = (samples(&ours), samples(&theirs));
    assert!(found.len() > 500 && perfs.len() > found.len());
    let mut perfs = perfs.into_iter();
    assert!(
        found.iter().all(|line| perfs.any(|other| other == *line)),
        "all of ours are among perf's, in order"
    );
}

#[test]
fn every_perf_reads_the_decoded_samples() {
    let folder = temp();
    let out = folder.path().join("out");
    perfx(args!["inject", letters(ALL), "--strip", crafted("spe-v2"), "-o", out]).done().unwrap();
    let perfs = perfs(&["perf-bullseye", "perf", "perf-trixie", "perf-sid", "perf-new"]);
    for perf in perfs.iter().filter(|perf| perf.can_read(&crafted("spe-v2"))) {
        let ran =
            perf.run(Stdin::Null, args!["script", "-f", "-F", "event,ip,time", "-i", out]).done().unwrap();
        let (shown, lines) = (ran.text(), samples(&out).len());
        assert_eq!(shown.lines().filter(|line| !line.trim().is_empty()).count(), lines, "{}", perf.name);
        assert!(shown.contains("remote-access") && shown.contains("instructions"), "{}", perf.name);
    }
}

#[test]
fn reports_and_errors() {
    let place = Place::new(&[
        ("v2.data", "crafted/spe-v2.data"),
        ("calls.data", "crafted/spe-calls.data"),
        ("switch.data", "crafted/spe-switch.data"),
        ("damaged.data", "crafted/spe-damaged.data"),
        ("bts.data", "crafted/aux-le.data"),
        ("foreign.data", "crafted/aux-spe.data"),
    ]);
    let text = place.say_all(&[
        "inject --itrace v2.data -o all.data",
        "inject --itrace=i50ibl2 --strip v2.data -o some.data",
        "dump --only 3,7,9,69,79 some.data",
        "inject --itrace=i1i switch.data -o out.data",
        "inject --itrace=i1i damaged.data -f -o out.data",
        "inject --itrace=i100usle --strip bts.data -o no.data",
        "inject --itrace=i100us v2.data -o no.data",
        "inject --itrace=z v2.data -o no.data",
        "inject --itrace=l v2.data -o no.data",
        "inject --itrace foreign.data -o no.data",
        "run -p itrace:events=b calls.data -f -o out.data",
    ]);
    same("itrace", "reports-and-errors", &text);
}

/// They were to be decoded with --itrace, and by perf inject, which does not decode them either.
#[test]
fn the_advice_for_a_tracer_that_is_not_decoded_is_about_that_tracer() {
    let folder = temp();
    let input = folder.path().join("in.data");
    let mut bytes = Fixture::new("crafted/aux-le.data").bytes();
    let info = b"\x46\0\0\0\0\0\x40\0\x02\0\0\0";
    let at = bytes.windows(info.len()).position(|window| window == info).unwrap() + 8;
    for (kind, name, advice) in [
        (2, "Intel BTS", "perf inject --itrace makes samples of it"),
        (6, "HiSilicon PTT", "perf report -D shows its packets"),
        (7, "POWER VPA DTL", "perf script makes samples of it"),
        (8, "RISC-V", "perf report -D shows it if perf knows it"),
        (9, "an unknown tracer", "perf report -D shows it if perf knows it"),
    ] {
        bytes[at] = kind;
        fs::write(&input, &bytes).unwrap();
        let view = perfx(args!["view", input]).stderr;
        let said = format!("a hardware trace of {name}: perfx does not decode it; {advice}\n");
        assert!(view.contains(&said), "{view}");
        let inject = perfx(args!["inject", "--itrace", input, "-o", folder.path().join("out.data")]).stderr;
        let said = format!("contains AUX data of {name}, which perfx does not decode: {advice}; perfx strip");
        assert!(inject.contains(&said), "{inject}");
        assert!(!perfx(args![input]).text().contains("--itrace"), "{name}");
    }
}
