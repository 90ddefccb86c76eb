//! `redact` leaves no byte that is not a value it knows, wherever a secret is: the places come from the layouts, so that
//! a new kind or feature can't be forgotten.

use std::collections::BTreeSet;
use std::fs;
use std::path::Path;
use std::time::Instant;

use perfx_format::decode::decode;
use perfx_format::features::{EventDesc, FeatureContext, NrCpus, decode_feature, write_event_desc};
use perfx_format::read::Recording;
use perfx_format::write::RecordingWriter;
use perfx_format::{Attr, Endian, Event, Feature, RecordType, Value, sample_type as st};

use crate::args;
use crate::promises::Input;
use crate::support::{Fixture, holds, perfx, temp};

/// Its halves are looked for, so that a number of 4 bytes can hold one.
const SECRET: &[u8; 8] = b"/SeCrEt!";
const ENDIAN: Endian = Endian::Little;

/// How many halves of the secret are in these bytes.
fn halves(bytes: &[u8]) -> usize {
    bytes.windows(4).filter(|window| *window == &SECRET[..4] || *window == &SECRET[4..]).count()
}

/// How many of them are in numbers, which stay.
fn in_numbers(value: &Value<'_>) -> usize {
    match value {
        Value::Number(number) | Value::Hex(number) => halves(&number.to_le_bytes()),
        Value::Signed(number) => halves(&number.to_le_bytes()),
        Value::Float(number) => halves(&number.to_bits().to_le_bytes()),
        // Bits that have no name are part of a number, too.
        Value::Name(name) if name.contains("bit") => 2,
        Value::List(values) => values.iter().map(in_numbers).sum(),
        Value::Map(fields) => fields.iter().map(|(_, value)| in_numbers(value)).sum(),
        _ => 0,
    }
}

fn event() -> Event {
    let mut attr = Attr::default();
    (attr.type_, attr.sample_period, attr.flags) = (1, 1, 1 << 18);
    attr.sample_type = st::IP | st::TID | st::TIME | st::CPU | st::IDENTIFIER;
    Event::made(&attr, vec![1], ENDIAN)
}

/// Bodies of a record: the secret at each place between numbers that make every count, type and version known.
fn bodies(kind: RecordType) -> Vec<Vec<u8>> {
    let size = (kind.min_size() - 8).next_multiple_of(8) + 64;
    let words = (0..4).map(|word: u64| word.to_le_bytes().to_vec());
    let halves = [1, 2, 15, 16, 17].map(|half: u16| half.to_le_bytes().to_vec());
    let fills = words.chain(halves).map(|fill| fill.iter().copied().cycle().take(size).collect::<Vec<u8>>());
    let with_secret = |fill: Vec<u8>| {
        (0..=size - 16).step_by(4).map(move |at| {
            let mut body = fill.clone();
            body[at..at + 16].copy_from_slice(&[*SECRET; 2].concat());
            // The trailer: the ids are those of the event.
            body.extend([0; 24]);
            body.extend(1_u64.to_le_bytes());
            body
        })
    };
    fills.flat_map(with_secret).collect()
}

/// The kinds of the records that have more of the secret than is in their numbers.
fn leaks(path: &Path) -> BTreeSet<String> {
    let bytes = fs::read(path).unwrap();
    let mut recording = Input::Bytes(&bytes).open().unwrap();
    let mut found = BTreeSet::new();
    for batch in recording.decompressed() {
        let batch = batch.unwrap();
        let mut walker = batch.walk();
        while let Some(record) = walker.next_record().unwrap() {
            let decoded = decode(&record, &batch.layouts);
            let known: usize = decoded.fields.iter().map(|(_, value)| in_numbers(value)).sum();
            if halves(record.bytes()) > known {
                found.insert(format!(
                    "{} {:?} {decoded:?}",
                    record.kind(),
                    record.bytes().escape_ascii().to_string()
                ));
            }
        }
    }
    found
}

#[test]
fn a_secret_stays_in_no_part_of_a_record_that_is_not_a_number() {
    let folder = temp();
    let (input, out) = (folder.path().join("in.data"), folder.path().join("out.data"));
    // Those of pipe data, of compression, and with a payload have tests of their own.
    let others = [
        RecordType::HEADER_ATTR,
        RecordType::HEADER_FEATURE,
        RecordType::HEADER_TRACING_DATA,
        RecordType::COMPRESSED,
        RecordType::COMPRESSED2,
        RecordType::AUXTRACE,
    ];
    let mut wrong = Vec::new();
    for kind in RecordType::NAMED.iter().filter(|kind| !others.contains(kind)) {
        let mut writer = RecordingWriter::create(&input, &[event()], ENDIAN).unwrap();
        bodies(*kind).iter().for_each(|body| writer.write_parts(*kind, 0, &[body]).unwrap());
        writer.finish().unwrap();
        let ran = perfx(args!["redact", "-q", "-f", input, "-o", out]);
        if !matches!(ran.code, Some(0 | 3)) {
            wrong.push(format!("{kind}: {:?} {}", ran.code, ran.stderr));
            continue;
        }
        wrong.extend(leaks(&out).into_iter().take(1));
        let check = perfx(args!["redact", "--check", input]);
        let after = perfx(args!["redact", "--check", out]);
        if check.code != Some(3) || after.code != Some(0) {
            wrong.push(format!(
                "{kind}: {:?} {}, then {:?} {}",
                check.code, check.stderr, after.code, after.stderr
            ));
        }
    }
    assert!(wrong.is_empty(), "{wrong:#?}");
}

#[test]
fn a_secret_stays_in_no_text_or_gap_of_a_feature() {
    let folder = temp();
    let (input, out) = (folder.path().join("in.data"), folder.path().join("out.data"));
    let recording = Recording::open(&Fixture::new("crafted/features-all-le.data").path).unwrap();
    let endian = recording.endian;
    let nrcpus = recording.features[&Feature::NRCPUS].to_vec();
    let context = FeatureContext { cpus: NrCpus::read(&nrcpus, endian) };
    // Flags are empty, and perfx makes these again when it writes; tracing data has a test of its own.
    let others =
        [Feature::BRANCH_STACK, Feature::STAT, Feature::TRACING_DATA, Feature::AUXTRACE, Feature::COMPRESSED];
    let mut wrong = Vec::new();
    for feature in Feature::NAMED.iter().filter(|feature| !others.contains(feature)) {
        let old = recording.features.get(feature).unwrap_or_else(|| panic!("{feature} is in no test"));
        let decoded = decode_feature(*feature, old, endian, context);
        let texts = decoded.texts(old).into_iter().map(|(_, place)| place).filter(|place| !place.is_empty());
        let behind_nul = decoded.gaps.iter().map(|gap| gap.start + 1..gap.end);
        let variants = [texts.collect::<Vec<_>>(), behind_nul.collect()];
        for places in variants.into_iter().filter(|places| places.iter().any(|place| place.len() >= 4)) {
            let mut section = old.to_vec();
            for place in places {
                let secret: Vec<u8> = SECRET.iter().copied().cycle().take(place.len()).collect();
                section[place].copy_from_slice(&secret);
            }
            let mut writer = RecordingWriter::create(&input, &recording.events, endian).unwrap();
            writer.set_feature(Feature::NRCPUS, nrcpus.clone()).unwrap();
            writer.set_feature(*feature, section).unwrap();
            writer.finish().unwrap();
            let check = perfx(args!["redact", "--check", input]);
            for to in ["file", "pipe"] {
                let ran = perfx(args!["redact", "-q", "-f", "--to", to, input, "-o", out]);
                let after = perfx(args!["redact", "--check", out]);
                let left = halves(&fs::read(&out).unwrap_or_default());
                if left > 0
                    || check.code != Some(3)
                    || !matches!(ran.code, Some(0 | 3))
                    || after.code != Some(0)
                {
                    wrong.push(format!(
                        "{feature} {to}: {left} {:?} {} {}",
                        check.code, ran.stderr, after.stderr
                    ));
                }
            }
        }
    }
    assert!(wrong.is_empty(), "{wrong:#?}");
}

#[test]
fn the_part_of_an_attr_that_is_not_known_does_not_stay() {
    let folder = temp();
    let (input, out) = (folder.path().join("in.data"), folder.path().join("out.data"));
    let mut raw = event().raw().to_vec();
    raw.resize(160, 0);
    raw[144..160].copy_from_slice(&[*SECRET; 2].concat());
    ENDIAN.set_u32(&mut raw, 4, 160);
    let described = EventDesc { attr: &raw, name: b"cpu-clock", ids: vec![1] };
    let section = write_event_desc(160, &[described], ENDIAN).unwrap();
    let event = Event::new(raw, vec![1], ENDIAN);
    let mut writer = RecordingWriter::create(&input, &[event], ENDIAN).unwrap();
    writer.set_feature(Feature::EVENT_DESC, section).unwrap();
    writer.finish().unwrap();
    for from in ["file", "pipe"] {
        perfx(args!["copy", "-q", "-f", "--to", from, input, "-o", folder.path().join("from")])
            .done()
            .unwrap();
        let from = folder.path().join("from");
        assert_eq!(halves(&fs::read(&from).unwrap()), 8);
        assert_eq!(perfx(args!["redact", "--check", from]).code, Some(3));
        for command in [&["redact"][..], &["inject", "--aslr"]] {
            for to in ["file", "pipe"] {
                let mut line: Vec<std::ffi::OsString> = command.iter().map(Into::into).collect();
                line.extend(args!["-f", "--to", to, from, "-o", out]);
                let ran = perfx(line);
                assert!(matches!(ran.code, Some(0 | 3)), "{}", ran.stderr);
                assert_eq!(halves(&fs::read(&out).unwrap()), 0, "{command:?} to {to}");
            }
        }
    }
}

/// 20,000 events took 22 s.
#[test]
fn redact_is_linear_in_events() {
    let folder = temp();
    let (input, out) = (folder.path().join("in.data"), folder.path().join("out.data"));
    let mut took = [2_000, 8_000].map(|count| {
        let events: Vec<Event> = (1..=count)
            .map(|id| {
                let mut attr = *event().attr();
                (attr.type_, attr.config) = (4, id);
                Event::made(&attr, vec![id], ENDIAN)
            })
            .collect();
        let names: Vec<String> = (1..=count).map(|id| format!("secret-{id}")).collect();
        let described = events.iter().zip(&names);
        let described: Vec<EventDesc<'_>> = described
            .map(|(event, name)| EventDesc {
                attr: event.raw(),
                name: name.as_bytes(),
                ids: event.ids.clone(),
            })
            .collect();
        let size = events[0].raw().len() as u32;
        let mut writer = RecordingWriter::create(&input, &events, ENDIAN).unwrap();
        writer.set_feature(Feature::EVENT_DESC, write_event_desc(size, &described, ENDIAN).unwrap()).unwrap();
        writer.finish().unwrap();
        let start = Instant::now();
        perfx(args!["redact", "-q", "-f", input, "-o", out]).done().unwrap();
        let took = start.elapsed().as_secs_f64();
        assert!(!holds(&fs::read(&out).unwrap(), "secret-"));
        took
    });
    // Starting takes time, too.
    took[0] += 0.2;
    assert!(took[1] < 10.0 * took[0], "{took:?}");
}
