//! Keeps what perf 6.1 and 7.3 say of recordings in `tests/data`, so that quick tests compare with both where neither is
//! installed.
//!
//! Each line of `tests/data/perf-6.1.answers` and `perf-7.3.answers` is a JSON object: the command, the hash of the
//! recording, and perf's exit code and output. An answer about other bytes is not used. Only answers that follow from the
//! recording alone are kept, not those that depend on programs, symbols or the kernel of a machine. To write them, with
//! both perfs installed: `PERFX_ANSWERS=write cargo test --test it -- info:: stats::`.

use std::collections::BTreeMap;
use std::fs;
use std::path::PathBuf;
use std::sync::Mutex;

use serde_json::{Value as Json, json};

use crate::args;
use crate::support::{Fixture, Perf, Ran, Stdin, Tier, perf, perfs, root};

/// The answers of a perf: kept ones in the quick tier, its own in the exhaustive one.
#[derive(Debug)]
pub(crate) struct Answers {
    /// The perf's name for [`perf`].
    pub(crate) name: &'static str,
    kept: BTreeMap<String, Json>,
    perf: Option<Perf>,
}

/// The answers of perf 6.1 (`perf`) or 7.3 (`perf-new`). `None` if perf itself must answer and is not installed.
pub(crate) fn answers(name: &'static str, tier: Tier) -> Option<Answers> {
    let asks = tier == Tier::Exhaustive || is_written();
    let perf = if asks { Some(perf(name)?) } else { None };
    Some(Answers { name, kept: read(name), perf })
}

impl Answers {
    /// What perf answers to these words about a recording. It reads the recording from standard input if they end with
    /// `-`, else from its path, which is added.
    pub(crate) fn ask(&self, fixture: &Fixture, words: &[&str]) -> Result<Ran, String> {
        let command = format!("{} {}", fixture.name, words.join(" "));
        let Some(perf) = &self.perf else {
            let kept = self.kept.get(&command).filter(|kept| kept["bytes"] == hash(fixture));
            let kept = kept.ok_or("what perf says of it is not kept: see tests/it/kept.rs")?;
            let text = |field: &str| kept[field].as_str().expect("a text").to_owned();
            let code = kept["code"].as_i64().map(|code| code as i32);
            return Ok(Ran { code, stdout: text("stdout").into(), stderr: text("stderr") });
        };
        let ran = ask(perf, fixture, words);
        if is_written() {
            write(self.name, &command, answer(&ran, fixture));
        }
        Ok(ran)
    }
}

fn ask(perf: &Perf, fixture: &Fixture, words: &[&str]) -> Ran {
    match words.last() {
        Some(&"-") => perf.run(Stdin::Pipe(&fixture.bytes()), words),
        _ => perf.run(Stdin::Null, words.iter().map(Into::into).chain(args![fixture.path])),
    }
}

fn answer(ran: &Ran, fixture: &Fixture) -> Json {
    let stderr = ran.stderr.replace(&format!("{}/", root().display()), "");
    json!({ "bytes": hash(fixture), "code": ran.code, "stdout": ran.text(), "stderr": stderr })
}

/// FNV-1a, of 64 bits.
fn hash(fixture: &Fixture) -> String {
    let add = |hash: u64, byte: u8| (hash ^ u64::from(byte)).wrapping_mul(0x100_0000_01b3);
    format!("{:016x}", fixture.bytes().into_iter().fold(0xcbf2_9ce4_8422_2325, add))
}

/// True if answers are written, not compared.
fn is_written() -> bool {
    std::env::var("PERFX_ANSWERS").is_ok_and(|value| value == "write")
}

fn file(name: &str) -> PathBuf {
    root().join(format!("tests/data/perf-{}.answers", if name == "perf" { "6.1" } else { "7.3" }))
}

/// The kept answers by recording and words.
fn read(name: &str) -> BTreeMap<String, Json> {
    let text = fs::read_to_string(file(name)).unwrap_or_default();
    text.lines().map(|line| serde_json::from_str(line).expect("a recording, words and an answer")).collect()
}

fn write(name: &str, command: &str, answer: Json) {
    static ONE: Mutex<()> = Mutex::new(());
    let _one = ONE.lock().unwrap();
    let mut kept = read(name);
    kept.insert(command.to_owned(), answer);
    let lines = kept.iter().map(|entry| serde_json::to_string(&entry).unwrap() + "\n");
    fs::write(file(name), lines.collect::<String>()).unwrap();
}

#[test]
#[ignore = "exhaustive: perf answers again"]
fn perf_still_says_what_is_kept() {
    for perf in perfs(&["perf", "perf-new"]) {
        for (command, kept) in read(perf.name) {
            let (recording, words) = command.split_once(' ').expect("a recording and words");
            let fixture = Fixture::new(recording);
            let words: Vec<&str> = words.split(' ').collect();
            let mut now = answer(&ask(&perf, &fixture, &words), &fixture);
            let mut kept = kept;
            for answer in [&mut now, &mut kept] {
                // The time of the file; perf's warnings depend on the machine.
                let lines = answer["stdout"].as_str().expect("a text").lines();
                answer["stdout"] = lines.filter(|line| !line.starts_with("# captured on")).collect();
                answer["stderr"] = Json::Null;
            }
            assert_eq!(now, kept, "{} {command}", perf.name);
        }
    }
}
