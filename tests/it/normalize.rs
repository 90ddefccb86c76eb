//! The reader named in `normalize --for` reads the output, with the same samples; losses are reported.

use perfx_format::readers::READERS;
use serde_json::Value as Json;

use crate::support::{
    Form, Perf, Stdin, Tier, each_fixture, perf, perfx, recorded, same_bytes, same_lines, temp,
};
use crate::{args, tiers};

fn samples(path: &std::path::Path) -> Result<u64, String> {
    let stats: Json =
        serde_json::from_str(&perfx(args!["stats", "--json", path]).text()).map_err(|e| e.to_string())?;
    let kinds = stats["kinds"].as_array().unwrap().iter();
    Ok(kinds.filter(|kind| kind["kind"] == "SAMPLE").map(|kind| kind["records"].as_u64().unwrap()).sum())
}

tiers!(a_normalized_recording_has_all_samples_and_nothing_that_its_reader_refuses);
fn a_normalized_recording_has_all_samples_and_nothing_that_its_reader_refuses(tier: Tier) {
    each_fixture(&tier.of(recorded()), |fixture| {
        let folder = temp();
        let (out, again) = (folder.path().join("out.data"), folder.path().join("again.data"));
        for reader in READERS {
            let ran = perfx(args!["normalize", "--for", reader.name, fixture.path, "-f", "-o", out]);
            if ran.code == Some(1) {
                // Recordings that can't be decompressed either.
                let opened = perfx(args!["decompress", fixture.path, "-o", again]);
                return if opened.code == Some(1) { Ok(()) } else { Err(ran.stderr) };
            }
            let doctor = perfx(args!["doctor", "--for", reader.name, out]);
            if doctor.code != Some(0) {
                return Err(format!("{}: {}", reader.name, doctor.text()));
            }
            let (before, after) = (samples(&fixture.path)?, samples(&out)?);
            if before != after {
                return Err(format!("{}: {before} samples became {after}", reader.name));
            }
            let ran = perfx(args!["normalize", "--for", reader.name, out, "-f", "-o", again]);
            if ran.code != Some(0) {
                return Err(format!("{}, once more: {}", reader.name, ran.stderr));
            }
            if out.is_file() {
                let read = |path| std::fs::read(path).unwrap();
                same_bytes(&format!("{}, once more", reader.name), &read(&again), &read(&out))?;
            }
        }
        Ok(())
    });
}

/// The lines of the samples, as a perf shows them.
fn lines(perf: &Perf, path: &std::path::Path) -> Option<Vec<String>> {
    let ran = perf.run(Stdin::Null, args!["script", "-f", "-G", "-F", "ip", "-i", path]);
    (ran.code == Some(0)).then(|| ran.text().lines().map(|line| line.trim().to_owned()).collect())
}

#[test]
fn older_perfs_read_what_a_newer_one_recorded() {
    let Some(new) = perf("perf-new") else { return };
    for (reader, old) in [("perf-5.10", "perf-bullseye"), ("perf-6.1", "perf"), ("perf-6.12", "perf-trixie")]
    {
        let Some(old) = perf(old) else { continue };
        // perf 5.10 shows zeros for the counters of perf stat in pipe data, even of its own version.
        let is_shown = |name: &str| reader != "perf-5.10" || !name.contains("pipe-stat");
        let newer = recorded().into_iter().filter(|fixture| fixture.recorded_by() == Some("p73"));
        let newer: Vec<_> = newer.filter(|fixture| is_shown(&fixture.name)).collect();
        each_fixture(&newer, |fixture| {
            let folder = temp();
            let out = folder.path().join("out.data");
            let ran = perfx(args!["normalize", "--for", reader, fixture.path, "-o", out]);
            let Some(wanted) = lines(&new, &fixture.path).filter(|_| ran.code != Some(1)) else {
                return Ok(());
            };
            let Some(found) = lines(&old, &out) else { return Err(format!("{} refuses it", old.name)) };
            same_lines(old.name, &found, &wanted)
        });
    }
}

#[test]
fn doctor_says_what_a_reader_refuses() {
    let path = |name: &str| crate::support::Fixture::new(&format!("recorded/{name}")).path;
    let ran = perfx(args!["doctor", "--for", "perf-6.1", path("z.p73.data"), path("fp.p61.data")]);
    assert_eq!(ran.code, Some(3));
    assert!(ran.text().contains("z.p73.data: perf-6.1 refuses or misreads\n"), "{}", ran.text());
    assert!(ran.text().contains("  COMPRESSED2 records: 1\n"), "{}", ran.text());
    assert!(ran.text().ends_with("fp.p61.data: perf-6.1 reads it\n"), "{}", ran.text());
    for format in ["json", "ndjson"] {
        let ran = perfx(args!["doctor", "--for", "perf-6.1", "--format", format, path("z.p73.data")]);
        let document: Json = serde_json::from_str(&ran.text()).unwrap();
        crate::stats::conforms("doctor", &document).unwrap();
    }
    // Pipe data may have larger attrs.
    let pipe = recorded()
        .into_iter()
        .find(|fixture| fixture.form == Form::Pipe && fixture.recorded_by() == Some("p73"));
    let ran = perfx(args!["doctor", "--for", "perf-6.1", pipe.unwrap().path]);
    assert!(!ran.text().contains("attrs of"), "{}", ran.text());
    assert_eq!(perfx(args!["doctor", "--for", "perf-1.0", path("fp.p61.data")]).code, Some(2));
    assert_eq!(perfx(args!["normalize", path("fp.p61.data")]).code, Some(2));
}

#[test]
fn perf_6_1_decodes_arm_spe_that_a_newer_perf_described() {
    let Some(old) = perf("perf") else { return };
    let (folder, fixture) = (temp(), crate::support::Fixture::new("crafted/spe-v2.data"));
    let out = folder.path().join("out.data");
    let ran = perfx(args!["normalize", "--for", "perf-6.1", fixture.path, "-o", out]);
    assert_eq!(ran.code, Some(3));
    assert!(ran.stderr.contains("lost: what perf 6.13 added to the description of Arm SPE in 1 record"));
    let decoded = |path| old.run(Stdin::Null, args!["script", "-f", "-i", path]).text().lines().count();
    assert!(decoded(&fixture.path) < 100 && decoded(&out) > 1000);
}

#[test]
fn a_deferred_call_chain_loses_its_user_part() {
    let Some(old) = perf("perf") else { return };
    for endian in ["le", "be"] {
        let folder = temp();
        let fixture = crate::support::Fixture::new(&format!("crafted/sample-deferred-{endian}.data"));
        let out = folder.path().join("out.data");
        let ran = perfx(args!["normalize", "--for", "perf-6.1", fixture.path, "-o", out]);
        assert_eq!(ran.code, Some(3));
        assert!(ran.stderr.contains("lost: the deferred user call chains of 6 samples"), "{}", ran.stderr);
        assert_eq!(lines(&old, &fixture.path), None, "6.1 does not read the original");
        assert_eq!(lines(&old, &out).map(|lines| lines.len()), Some(6));
    }
}

/// perf refuses pipe data with an unknown feature, and skips it in a file.
#[test]
fn pipe_data_has_no_feature_refused_by_its_reader() {
    let Some(old) = perf("perf-bullseye") else { return };
    let fixture = crate::support::Fixture::new("recorded/fp.p73.data");
    let folder = temp();
    let out = folder.path().join("out.pipe");
    let ran = perfx(args!["normalize", "--for", "perf-5.10", fixture.path, "--to", "pipe", "-o", out]);
    assert_eq!(ran.code, Some(3), "{}", ran.stderr);
    assert!(ran.stderr.contains("perf-5.10 refuses it in pipe data"), "{}", ran.stderr);
    let ran = old.run(Stdin::Null, args!["report", "-f", "--stdio", "-i", out]);
    assert_eq!(ran.code, Some(0), "{}", ran.stderr);
    assert_eq!(perfx(args!["doctor", "--for", "perf-5.10", out]).code, Some(0));
    let ran = perfx(args!["doctor", "--for", "perf-5.10", fixture.path]);
    assert!(!ran.text().contains("feature"), "{}", ran.text());
}

/// perf before 5.12 interpreted MMAP2 records of the kernel as MMAP records, and then had no names for it.
#[test]
fn perf_5_10_names_the_kernel_of_a_newer_recording() {
    let Some(old) = perf("perf-bullseye") else { return };
    let fixture = crate::support::Fixture::new("recorded/fp.p73.data");
    let folder = temp();
    let out = folder.path().join("out.data");
    perfx(args!["normalize", "--for", "perf-5.10", fixture.path, "-o", out]);
    let ran = old.run(Stdin::Null, args!["script", "-f", "--show-mmap-events", "-i", out]);
    let kernel = ran.text().lines().filter(|line| line.contains("[kernel.kallsyms]_text")).count();
    assert_eq!(kernel, 1, "{}", ran.text());
    let dump = perfx(args!["dump", "--only", "MMAP,MMAP2", out]).text();
    assert!(
        dump.lines().any(|line| line.contains(" MMAP ") && line.contains("[kernel.kallsyms]_text")),
        "{dump}"
    );
}
