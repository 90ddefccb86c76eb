//! What `perfx recover` brings back is all that can be read, and perf reads it.

use std::fs;

use crate::args;
use crate::filter::records;
use crate::snapshots::{Place, same};
use crate::support::{Fixture, Form, Stdin, each, each_fixture, perfs, perfx, recorded, same_bytes, temp};

#[test]
fn what_is_whole_comes_out_as_it_is() {
    let whole: Vec<_> = recorded()
        .into_iter()
        .filter(|f| f.form == Form::File && !["cut-", "killed"].iter().any(|part| f.name.contains(part)))
        .collect();
    each_fixture(&whole, |fixture| {
        let folder = temp();
        let (copied, recovered) = (folder.path().join("copy"), folder.path().join("recovered"));
        let code = perfx(args!["copy", "-q", fixture.path, "-o", copied]).code;
        if code != Some(0) {
            return Ok(());
        }
        let ran = perfx(args!["recover", "-q", fixture.path, "-o", recovered]);
        // The later files of -z --switch-output can't be read alone.
        if ran.code != Some(0) && !fixture.name.contains("switch-output-z") {
            return Err(ran.stderr);
        }
        if ran.code != Some(0) {
            return Ok(());
        }
        same_bytes("copy", &fs::read(copied).unwrap(), &fs::read(recovered).unwrap())
    });
}

#[test]
fn wherever_a_file_is_cut_the_whole_records_before_come_back_and_perf_reads_them() {
    let fixture = Fixture::new("recorded/plain.p61.data");
    let (bytes, whole) = (fixture.bytes(), records(&fixture.path));
    let u64_at = |at: usize| u64::from_le_bytes(bytes[at..at + 8].try_into().unwrap()) as usize;
    let (data, size) = (u64_at(40), u64_at(48));
    let ends: Vec<usize> = {
        let mut ends = vec![data];
        while *ends.last().unwrap() < data + size {
            let at = *ends.last().unwrap();
            ends.push(at + usize::from(u16::from_le_bytes(bytes[at + 6..at + 8].try_into().unwrap())));
        }
        ends
    };
    let perfs = perfs(&["perf"]);
    let cuts: Vec<usize> = (data..=bytes.len()).step_by(37).collect();
    each(
        &cuts,
        |cut| format!("cut at {cut}"),
        |&cut| {
            let folder = temp();
            let (input, output) = (folder.path().join("cut.data"), folder.path().join("out.data"));
            fs::write(&input, &bytes[..cut]).unwrap();
            let ran = perfx(args!["recover", "-q", input, "-o", output]);
            if ran.code != Some(if cut == bytes.len() { 0 } else { 3 }) {
                return Err(format!("exit code {:?}: {}", ran.code, ran.stderr));
            }
            let left = ends.iter().filter(|&&end| end > data && end <= cut.min(data + size)).count();
            if records(&output) != whole[..left] {
                return Err(format!("{} records came back, not {left}", records(&output).len()));
            }
            // perf warns of a recording without records, though it reads it.
            for perf in perfs.iter().filter(|_| left > 0) {
                let said = perf.run(Stdin::Null, args!["script", "-f", "-i", output]);
                if said.code != Some(0) {
                    return Err(said.stderr);
                }
            }
            Ok(())
        },
    );
}

#[test]
fn a_hole_is_stepped_over() {
    let fixture = Fixture::new("recorded/several.p61.data");
    let mut bytes = fixture.bytes();
    let whole = records(&fixture.path);
    let data = u64::from_le_bytes(bytes[40..48].try_into().unwrap()) as usize;
    bytes[data + 2000..data + 2600].fill(0);
    let folder = temp();
    let (input, output) = (folder.path().join("hole.data"), folder.path().join("out.data"));
    fs::write(&input, &bytes).unwrap();
    let ran = perfx(args!["recover", input, "-o", output]);
    assert_eq!(ran.code, Some(3), "{}", ran.stderr);
    assert!(ran.stderr.contains("records go on behind them"), "{}", ran.stderr);
    let left = records(&output);
    assert!(left.len() > whole.len() / 2 && left.len() < whole.len());
    let mut rest = whole.iter();
    assert!(left.iter().all(|record| rest.any(|other| other == record)), "a record was made up");
}

#[test]
fn killed_recordings_come_back() {
    let place = Place::new(&[
        ("killed.data", "recorded/killed.p61.data"),
        ("killed-z.data", "recorded/killed-z.p61.data"),
        ("killed-threads.data", "recorded/killed-threads.p61.data"),
        ("killed-pipe.data", "recorded/killed-pipe.p61.data"),
        ("whole.data", "recorded/plain.p61.data"),
        ("none.data", "crafted/val-text.data"),
    ]);
    let lines = [
        "recover killed.data -o a.data",
        "recover --guess killed-z.data -o b.data",
        "recover killed-threads.data -o c.data",
        "recover killed-pipe.data -o d.data",
        "recover whole.data -o e.data",
        "recover none.data -o f.data",
    ];
    let mut text = place.say_all(&lines);
    text += &place.dump("a.data", &["feature EVENT_DESC", "feature SAMPLE_TIME"], &["FINISHED_INIT"]);
    same("recover", "killed", &text);
    for perf in perfs(&["perf"]) {
        for name in ["a.data", "b.data", "c.data"] {
            let said = perf.run(Stdin::Null, args!["script", "-f", "-i", place.path(name)]);
            assert_eq!(said.code, Some(0), "{name}: {}", said.stderr);
        }
    }
}
