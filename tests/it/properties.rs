//! The arithmetic of layouts, offsets, address spaces and decompression holds for unforeseen inputs: each is
//! compared with a naive implementation on random cases; a failure prints its seed.

use std::collections::{BTreeSet, HashMap};
use std::io::{Cursor, Read as _, Seek as _, Write as _};
use std::sync::Arc;

use perfx_format::features::write_str;
use perfx_format::header::{Features, FileFront, FileHeader, Magic};
use perfx_format::read::{Batch, Expand, Recording, TempFiles};
use perfx_format::sample::{Sample, Weight, callchain};
use perfx_format::section::{Section, feature_table};
use perfx_format::{
    Bytes, Endian, Event, Feature, Kinds, Layout, Layouts, Origin, Origins, Record, RecordType, Walker,
    sample_type as st,
};
use perfx_model::address_space::{AddressSpaces, Changes, Hit, KERNEL, Lookup, Machine, Space};
use perfx_passes::{
    BuildIds, BuildIdsOptions, Compress, CompressOptions, Decompress, IdOptions, Mmap2BuildIds,
    Mmap2BuildIdsOptions,
};
use perfx_pipeline::{Job, Output, OutputForm, Pass, scan_past};

use crate::support::{Tier, each, each_fixture, recorded, times};
use crate::tiers;

/// Pseudo-random numbers, the same in every run (SplitMix64).
struct Random(u64);

impl Random {
    fn next(&mut self) -> u64 {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mut z = self.0;
        z = (z ^ z >> 30).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        z = (z ^ z >> 27).wrapping_mul(0x94d0_49bb_1331_11eb);
        z ^ z >> 31
    }

    /// A number from 0 up to, but not including, `end`.
    fn below(&mut self, end: usize) -> usize {
        (self.next() % end as u64) as usize
    }

    /// True in one of `n` cases on average.
    fn once_in(&mut self, n: usize) -> bool {
        self.below(n) == 0
    }

    fn bytes(&mut self, len: usize) -> Vec<u8> {
        (0..len).map(|_| self.next() as u8).collect()
    }

    fn words(&mut self, len: usize) -> Vec<u64> {
        (0..len).map(|_| self.next()).collect()
    }

    fn pick<T: Copy>(&mut self, from: &[T]) -> T {
        from[self.below(from.len())]
    }

    fn endian(&mut self) -> Endian {
        self.pick(&[Endian::Little, Endian::Big])
    }
}

/// Checks a property for this many seeds.
fn holds(cases: u64, check: impl Fn(&mut Random) + Sync) {
    let seeds: Vec<u64> = (0..cases * times() as u64).collect();
    each(
        &seeds,
        |seed| format!("seed {seed}"),
        |&seed| {
            check(&mut Random(seed));
            Ok(())
        },
    );
}

fn header(endian: Endian, kind: u32, misc: u16, size: usize) -> Vec<u8> {
    let mut bytes = endian.bytes_u32(kind).to_vec();
    bytes.extend(endian.bytes_u16(misc));
    bytes.extend(endian.bytes_u16(u16::try_from(size).unwrap()));
    bytes
}

fn record(endian: Endian, kind: RecordType, misc: u16, body: &[u8]) -> Vec<u8> {
    [header(endian, kind.0, misc, 8 + body.len()), body.to_vec()].concat()
}

fn put(bytes: &mut Vec<u8>, endian: Endian, words: &[u64]) {
    words.iter().for_each(|&word| bytes.extend(endian.bytes_u64(word)));
}

fn view(bytes: &[u8], endian: Endian) -> Record<'_> {
    Record::new(bytes, &[], Origin::Synthetic, endian).unwrap()
}

/// An attr, typed by hand.
#[derive(Clone, Copy, Default)]
struct Attr {
    sample_type: u64,
    read_format: u64,
    sample_id_all: bool,
    branch: u64,
    regs_user: u64,
    regs_intr: u64,
    len: usize,
}

impl Attr {
    fn bytes(&self, endian: Endian) -> Vec<u8> {
        let mut raw = vec![0; self.len.max(112)];
        let size = raw.len() as u32;
        endian.set_u32(&mut raw, 4, size);
        for (at, value) in [
            (24, self.sample_type),
            (32, self.read_format),
            (72, self.branch),
            (80, self.regs_user),
            (96, self.regs_intr),
        ] {
            endian.set_u64(&mut raw, at, value);
        }
        // Bit 18; a big-endian compiler counts the bits of a byte from the other end.
        raw[42] = if endian == Endian::Little { 1 << 2 } else { 1 << 5 } * u8::from(self.sample_id_all);
        raw
    }

    fn event(&self, ids: Vec<u64>, endian: Endian) -> Event {
        Event::new(self.bytes(endian), ids, endian)
    }
}

#[test]
fn a_set_of_kinds_is_a_set_of_numbers_up_to_127() {
    holds(500, |random| {
        let kind = |random: &mut Random| match random.below(4) {
            0 => random.next() as u32,
            1 => 120 + random.below(12) as u32,
            _ => random.below(100) as u32,
        };
        let mut sets = [0, 1].map(|_| {
            let kinds: Vec<u32> = (0..random.below(20)).map(|_| kind(random)).collect();
            let mut set = Kinds::of(&kinds.iter().map(|&kind| RecordType(kind)).collect::<Vec<_>>());
            let mut naive: BTreeSet<u32> = kinds.iter().map(|&kind| kind.min(127)).collect();
            if random.once_in(2) {
                let more = kind(random);
                set.insert(RecordType(more));
                naive.insert(more.min(127));
            }
            (set, naive)
        });
        let [(a, naive_a), (b, naive_b)] = &mut sets;
        assert_eq!(a.is_empty(), naive_a.is_empty());
        assert_eq!(a.intersects(*b), !naive_a.is_disjoint(naive_b));
        for _ in 0..50 {
            let kind = kind(random);
            assert_eq!(a.contains(RecordType(kind)), naive_a.contains(&kind.min(127)));
            let either = naive_a.contains(&kind.min(127)) || naive_b.contains(&kind.min(127));
            assert_eq!(a.union(*b).contains(RecordType(kind)), either);
            assert!(Kinds::ALL.contains(RecordType(kind)) && !Kinds::NONE.contains(RecordType(kind)));
        }
    });
}

/// A run of all sorts of records, with the position, kind, size and payload size of each.
fn run_of_records(
    random: &mut Random,
    endian: Endian,
    count: usize,
) -> (Vec<u8>, Vec<(usize, u32, usize, usize)>) {
    let (mut bytes, mut all) = (Vec::new(), Vec::new());
    for _ in 0..count {
        let kind = random.pick(&[1, 3, 9, 9, 9, 10, 66, 68, 71, 80, 99, 126, 127, 4000, u32::MAX]);
        let least =
            [(66, 12), (71, 16)].into_iter().find(|(other, _)| *other == kind).map_or(8, |(_, least)| least);
        let size = least + if random.once_in(20) { random.below(60_000) } else { random.below(60) };
        let payload = match kind {
            // A payload that fits into the record would be inside it.
            66 => size - 11 + random.below(100),
            71 => random.below(100),
            _ => 0,
        };
        let at = bytes.len();
        bytes.extend(header(endian, kind, random.next() as u16, size));
        bytes.extend(random.bytes(size - 8 + payload));
        match kind {
            66 => endian.set_u32(&mut bytes, at + 8, payload as u32),
            71 => endian.set_u64(&mut bytes, at + 8, payload as u64),
            _ => None,
        };
        all.push((at, kind, size, payload));
    }
    (bytes, all)
}

#[test]
fn walking_skips_as_reading_every_header_would() {
    holds(400, |random| {
        let endian = random.endian();
        let count = random.below(40);
        let (bytes, all) = run_of_records(random, endian, count);
        let base = random.below(1 << 20) as u64;
        let origins = Origins::input(3, base);

        let mut walker = Walker::new(&bytes, &origins, endian);
        let wanted_kinds: Vec<u32> =
            (0..random.below(4)).map(|_| random.pick(&[3, 9, 66, 71, 127, 4000])).collect();
        let wanted = Kinds::of(&wanted_kinds.iter().map(|&kind| RecordType(kind)).collect::<Vec<_>>());
        let mut next = 0;
        loop {
            let stop = if random.once_in(3) { usize::MAX } else { random.below(bytes.len() + 1) };
            let expected = all[next..].iter().position(|&(at, kind, ..)| {
                at >= stop || wanted_kinds.iter().any(|wanted| kind.min(127) == (*wanted).min(127))
            });
            let got = walker.next_wanted(wanted, stop).unwrap();
            let Some(skipped) = expected else {
                assert!(got.is_none());
                assert_eq!(walker.position(), bytes.len());
                break;
            };
            let (at, kind, size, payload) = all[next + skipped];
            let got = got.expect("one more");
            assert_eq!(
                (got.kind().0, got.bytes(), got.payload()),
                (kind, &bytes[at..at + size], &bytes[at + size..at + size + payload])
            );
            assert_eq!(got.origin(), Origin::Input { stream: 3, offset: base + at as u64 });
            assert_eq!(walker.position(), at + size + payload);
            next += skipped + 1;
        }

        // Truncated anywhere, the walk ends with an error about the truncated record.
        let cut = random.below(bytes.len() + 1);
        let whole = all.iter().take_while(|(at, _, size, payload)| at + size + payload <= cut).count();
        let mut walker = Walker::new(&bytes[..cut], &origins, endian);
        for _ in 0..whole {
            assert!(walker.next_record().unwrap().is_some());
        }
        match all.get(whole).filter(|&&(at, ..)| at < cut) {
            Some(&(at, ..)) => {
                let place = walker.next_record().unwrap_err().place();
                assert_eq!(place, Some(Origin::Input { stream: 3, offset: base + at as u64 }));
            }
            None => assert!(walker.next_record().unwrap().is_none()),
        }
    });
}

#[test]
fn a_position_and_its_origin_lead_to_one_another() {
    holds(500, |random| {
        let mut origins = Origins::default();
        let mut runs = Vec::new();
        let mut start = 0;
        for number in 0..1 + random.below(8) as u64 {
            let origin = match random.below(3) {
                0 => Origin::Input { stream: random.below(3) as u32, offset: number << 32 },
                1 => Origin::Chunk {
                    stream: random.below(3) as u32,
                    record: number,
                    offset: -(random.below(50) as i64),
                },
                _ => Origin::Synthetic,
            };
            origins.push(start, origin);
            runs.push((start, origin));
            start += 1 + random.below(100);
        }
        let end = start + random.below(100);
        let cut = random.below(end + 1);
        let mut shorter = origins.clone();
        shorter.truncate(cut);
        for position in 0..end {
            let (first, origin) = *runs.iter().rfind(|(start, _)| *start <= position).unwrap();
            let inside = (position - first) as u64;
            let expected = match origin {
                Origin::Input { stream, offset } => Origin::Input { stream, offset: offset + inside },
                Origin::Chunk { stream, record, offset } => {
                    Origin::Chunk { stream, record, offset: offset + inside as i64 }
                }
                Origin::Synthetic => Origin::Synthetic,
            };
            assert_eq!(origins.at(position), expected);
            let back = if expected == Origin::Synthetic { None } else { Some(position) };
            assert_eq!(origins.position_of(expected), back);
            if position < cut {
                assert_eq!(shorter.at(position), expected);
            }
        }
        assert_eq!(origins.position_of(Origin::Input { stream: 9, offset: 0 }), None);
    });
}

#[derive(Default)]
struct Parts {
    words: HashMap<u64, u64>,
    read: Option<(Option<u64>, Option<u64>, Vec<(u64, Option<u64>, Option<u64>)>)>,
    callchain: Option<Vec<u64>>,
    raw: Option<Vec<u8>>,
    branches: Option<(Option<u64>, Vec<u64>, Option<Vec<u64>>)>,
    regs_user: Option<(u64, Vec<u64>)>,
    stack: Option<(Vec<u8>, Option<u64>)>,
    regs_intr: Option<(u64, Vec<u64>)>,
    aux: Option<Vec<u8>>,
}

/// A sample as the kernel writes it (perf_output_sample in kernel/events/core.c), part by part.
fn sample(random: &mut Random, endian: Endian, attr: &Attr) -> (Vec<u8>, Parts) {
    let (mut body, mut parts) = (Vec::new(), Parts::default());
    let has = |bit: u64| attr.sample_type & bit != 0;
    for bit in
        [st::IDENTIFIER, st::IP, st::TID, st::TIME, st::ADDR, st::ID, st::STREAM_ID, st::CPU, st::PERIOD]
    {
        if has(bit) {
            let word = random.next();
            put(&mut body, endian, &[word]);
            parts.words.insert(bit, word);
        }
    }
    if has(st::READ) {
        let [times, run, id, group, lost] = [0, 1, 2, 3, 4].map(|bit| attr.read_format >> bit & 1 == 1);
        let count = if group { random.below(4) } else { 1 };
        let counts: Vec<_> = (0..count)
            .map(|_| (random.next(), id.then(|| random.next()), lost.then(|| random.next())))
            .collect();
        let (enabled, running) = (times.then(|| random.next()), run.then(|| random.next()));
        put(&mut body, endian, &[if group { count as u64 } else { counts[0].0 }]);
        enabled.iter().chain(&running).for_each(|&time| put(&mut body, endian, &[time]));
        for (value, id, lost) in &counts {
            if group {
                put(&mut body, endian, &[*value]);
            }
            id.iter().chain(lost).for_each(|&word| put(&mut body, endian, &[word]));
        }
        parts.read = Some((enabled, running, counts));
    }
    if has(st::CALLCHAIN) {
        let count = random.below(6);
        let chain = random.words(count);
        put(&mut body, endian, &[chain.len() as u64]);
        put(&mut body, endian, &chain);
        parts.callchain = Some(chain);
    }
    if has(st::RAW) {
        let len = 4 + 8 * random.below(5);
        let raw = random.bytes(len);
        body.extend(endian.bytes_u32(raw.len() as u32));
        body.extend(&raw);
        parts.raw = Some(raw);
    }
    if has(st::BRANCH_STACK) {
        let count = random.below(4);
        let hw_idx = (attr.branch >> 17 & 1 == 1).then(|| random.next());
        let entries = random.words(count * 3);
        let counters = (attr.branch >> 19 & 1 == 1).then(|| random.words(count));
        put(&mut body, endian, &[count as u64]);
        hw_idx.iter().for_each(|&index| put(&mut body, endian, &[index]));
        put(&mut body, endian, &entries);
        counters.iter().for_each(|counters| put(&mut body, endian, counters));
        parts.branches = Some((hw_idx, entries, counters));
    }
    let regs = |random: &mut Random, body: &mut Vec<u8>, mask: u64| {
        let abi = random.below(3) as u64;
        let values = random.words(if abi == 0 { 0 } else { mask.count_ones() as usize });
        put(body, endian, &[abi]);
        put(body, endian, &values);
        (abi, values)
    };
    if has(st::REGS_USER) {
        parts.regs_user = Some(regs(random, &mut body, attr.regs_user));
    }
    if has(st::STACK_USER) {
        let len = 8 * random.below(5);
        let stack = random.bytes(len);
        put(&mut body, endian, &[stack.len() as u64]);
        body.extend(&stack);
        let dyn_size = (len > 0).then(|| random.below(len + 1) as u64);
        dyn_size.iter().for_each(|&size| put(&mut body, endian, &[size]));
        parts.stack = Some((stack, dyn_size));
    }
    let mut words = |random: &mut Random, body: &mut Vec<u8>, bits: &[u64]| {
        for &bit in bits.iter().filter(|&&bit| has(bit)) {
            let word = random.next();
            put(body, endian, &[word]);
            parts.words.insert(bit, word);
        }
    };
    words(random, &mut body, &[st::WEIGHT, st::WEIGHT_STRUCT, st::DATA_SRC, st::TRANSACTION]);
    let regs_intr = has(st::REGS_INTR).then(|| regs(random, &mut body, attr.regs_intr));
    words(random, &mut body, &[st::PHYS_ADDR, st::CGROUP, st::DATA_PAGE_SIZE, st::CODE_PAGE_SIZE]);
    parts.regs_intr = regs_intr;
    if has(st::AUX) {
        let len = 8 * random.below(5);
        let aux = random.bytes(len);
        put(&mut body, endian, &[aux.len() as u64]);
        body.extend(&aux);
        parts.aux = Some(aux);
    }
    (record(endian, RecordType::SAMPLE, random.next() as u16, &body), parts)
}

fn random_attr(random: &mut Random) -> Attr {
    // WEIGHT or WEIGHT_STRUCT: the kernel refuses both together.
    let mut sample_type =
        random.next() & ((1 << 25) - 1) & !if random.once_in(2) { st::WEIGHT } else { st::WEIGHT_STRUCT };
    if random.once_in(3) {
        sample_type &= random.next();
    }
    Attr {
        sample_type,
        read_format: random.next() & 31,
        sample_id_all: random.once_in(2),
        branch: random.next() & (1 << 17 | 1 << 19 | 1 << 3),
        regs_user: random.next() & random.next(),
        regs_intr: random.next() & random.next(),
        len: 112 + 8 * random.below(6),
    }
}

#[test]
fn a_sample_reads_as_the_kernel_wrote_it() {
    holds(3000, |random| {
        let (endian, attr) = (random.endian(), random_attr(random));
        let (bytes, parts) = sample(random, endian, &attr);
        let layout = Layout::new(attr.event(Vec::new(), endian).attr());
        let record = view(&bytes, endian);
        let s = Sample::parse(&record, &layout).unwrap();
        let word = |bit| parts.words.get(&bit).copied();
        // Two u32: the first one comes first in either byte order.
        let halves = |word: u64| {
            if endian == Endian::Little {
                (word as u32, (word >> 32) as u32)
            } else {
                ((word >> 32) as u32, word as u32)
            }
        };
        assert_eq!(s.rest, b"");
        assert_eq!(
            (s.identifier, s.ip, s.time, s.addr),
            (word(st::IDENTIFIER), word(st::IP), word(st::TIME), word(st::ADDR))
        );
        assert_eq!((s.id, s.stream_id, s.period), (word(st::ID), word(st::STREAM_ID), word(st::PERIOD)));
        assert_eq!((s.pid_tid, s.cpu), (word(st::TID).map(halves), word(st::CPU).map(|word| halves(word).0)));
        let read = s.read.map(|read| {
            (read.enabled, read.running, read.counts().map(|c| (c.value, c.id, c.lost)).collect())
        });
        assert_eq!(read, parts.read);
        assert_eq!(s.callchain.map(|chain| chain.iter().collect()), parts.callchain);
        assert_eq!(s.raw, parts.raw.as_deref());
        let branches = s.branches.map(|branches| {
            let words = branches.iter().flat_map(|branch| [branch.from, branch.to]).collect::<Vec<_>>();
            (branches.hw_idx, words, branches.counters.map(|counters| counters.iter().collect()))
        });
        let expected = parts.branches.map(|(hw_idx, entries, counters)| {
            (hw_idx, entries.chunks(3).flat_map(|entry| [entry[0], entry[1]]).collect(), counters)
        });
        assert_eq!(branches, expected);
        for (regs, mask, expected) in
            [(s.regs_user, attr.regs_user, parts.regs_user), (s.regs_intr, attr.regs_intr, parts.regs_intr)]
        {
            let got = regs.map(|regs| (regs.abi, regs.iter().collect::<Vec<_>>()));
            let numbers = (0..64).filter(|number| mask >> number & 1 == 1);
            assert_eq!(got, expected.map(|(abi, values)| (abi, numbers.zip(values).collect())));
        }
        assert_eq!(s.stack_user.map(|stack| (stack.bytes.to_vec(), stack.dyn_size)), parts.stack);
        let weight = match s.weight {
            Some(Weight::Full(weight)) => Some(weight),
            Some(Weight::Parts { var1_dw, var2_w, var3_w }) => {
                Some(u64::from(var3_w) << 48 | u64::from(var2_w) << 32 | u64::from(var1_dw))
            }
            None => None,
        };
        assert_eq!(weight, word(st::WEIGHT).or(word(st::WEIGHT_STRUCT)));
        assert_eq!(
            (s.data_src.map(|source| source.0), s.transaction),
            (word(st::DATA_SRC), word(st::TRANSACTION))
        );
        assert_eq!((s.phys_addr, s.cgroup), (word(st::PHYS_ADDR), word(st::CGROUP)));
        assert_eq!(
            (s.data_page_size, s.code_page_size),
            (word(st::DATA_PAGE_SIZE), word(st::CODE_PAGE_SIZE))
        );
        assert_eq!(s.aux, parts.aux.as_deref());
        // The shortcuts that read one part have the same results.
        assert_eq!(
            (layout.recorded_time(&record), layout.pid_tid(&record), layout.cpu(&record), layout.ip(&record)),
            (s.time, s.pid_tid, s.cpu, s.ip)
        );
        assert_eq!(layout.id(&record), s.identifier.or(s.id));
        assert_eq!(callchain(&record, &layout), s.callchain);
    });
}

#[test]
fn a_trailer_is_found_from_the_end_and_made_of_a_sample() {
    // The order of struct sample_id in perf_event_open(2).
    const TRAILER: [u64; 6] = [st::TID, st::TIME, st::ID, st::STREAM_ID, st::CPU, st::IDENTIFIER];
    holds(2000, |random| {
        let (endian, attr) = (random.endian(), random_attr(random));
        let (bytes, parts) = sample(random, endian, &attr);
        let layout = Layout::new(attr.event(Vec::new(), endian).attr());
        let mut trailer = Vec::new();
        TRAILER
            .iter()
            .filter(|_| attr.sample_id_all)
            .filter_map(|bit| parts.words.get(bit))
            .for_each(|&word| put(&mut trailer, endian, &[word]));
        assert_eq!(layout.trailer_of_sample(&view(&bytes, endian)), trailer);
        assert_eq!(usize::from(layout.trailer.size), trailer.len());

        let len = 8 * random.below(10);
        let other = record(
            endian,
            RecordType(random.pick(&[1, 2, 3, 10, 19, 63])),
            0,
            &[random.bytes(len), trailer].concat(),
        );
        let (other, sampled) = (view(&other, endian), view(&bytes, endian));
        if attr.sample_id_all {
            assert_eq!(layout.time(&other), layout.time(&sampled));
            assert_eq!(layout.pid_tid(&other), layout.pid_tid(&sampled));
            assert_eq!(layout.cpu(&other), layout.cpu(&sampled));
            assert_eq!(layout.id(&other), layout.id(&sampled));
        } else {
            assert_eq!((layout.time(&other), layout.id(&other)), (None, None));
        }
    });
}

#[test]
fn a_record_finds_its_event_by_its_id() {
    holds(500, |random| {
        let endian = random.endian();
        // IDENTIFIER has the same position whatever the other fields.
        let attrs: Vec<Attr> = (0..1 + random.below(5))
            .map(|_| {
                let mut attr = random_attr(random);
                attr.sample_type |= st::IDENTIFIER;
                attr.sample_id_all = true;
                attr
            })
            .collect();
        let first = random.pick(&[1, 1000, u64::MAX - 40]);
        let mut ids: Vec<u64> = (first..first + 40).filter(|_| !random.once_in(4)).collect();
        ids.sort_by_key(|id| id.wrapping_mul(random.0 | 1));
        let events: Vec<Event> = attrs
            .iter()
            .enumerate()
            .map(|(index, attr)| {
                let own = ids.iter().skip(index).step_by(attrs.len()).copied().collect();
                attr.event(own, endian)
            })
            .collect();
        let layouts = Layouts::new(&events);
        layouts.check_ids().unwrap();
        for id in first..first + 40 {
            let expected = events.iter().position(|event| event.ids.contains(&id));
            assert_eq!(layouts.event_of_id(id), expected);
            let comm = record(
                endian,
                RecordType::COMM,
                0,
                &[random.bytes(16), endian.bytes_u64(id).to_vec()].concat(),
            );
            let (mut sampled, _) = sample(random, endian, &attrs[expected.unwrap_or(0)]);
            endian.set_u64(&mut sampled, 8, id);
            for bytes in [comm, sampled] {
                let one = events.len() == 1;
                assert_eq!(layouts.event_of(&view(&bytes, endian)), if one { Some(0) } else { expected });
            }
        }
    });
}

fn random_events(random: &mut Random, endian: Endian, least: usize) -> Vec<Event> {
    let mut attr = random_attr(random);
    (0..least + random.below(4))
        .map(|_| {
            attr.sample_type ^= st::PERIOD & random.next();
            let count = random.below(5);
            attr.event(random.words(count), endian)
        })
        .collect()
}

/// Features of text, and some of numbers without a meaning yet.
fn random_features(random: &mut Random, endian: Endian) -> Features {
    let text = |random: &mut Random| -> Bytes {
        let len = 1 + random.below(90);
        let letters: Vec<u8> = random.bytes(len).iter().map(|byte| b'a' + byte % 26).collect();
        write_str(&letters, endian).into()
    };
    let mut features = Features::new();
    for _ in 0..random.below(8) {
        let feature = Feature(random.pick(&[3, 5, 6, 8, 9, 35, 63, 64, 127, 128, 200, 255]));
        let len = 1 + random.below(90);
        let section = if feature.0 < 35 { text(random) } else { random.bytes(len).into() };
        features.insert(feature, section);
    }
    // Without it, readers distrust the word order of the bitmap.
    let hostname = text(random);
    features.insert(Feature::HOSTNAME, hostname);
    features
}

/// A file in perf's own layout.
fn canonical(events: &[Event], features: &Features, data: &[u8], endian: Endian) -> Vec<u8> {
    let mut front = FileFront::new(events, endian);
    let section = Section { offset: front.bytes.len() as u64, size: data.len() as u64 };
    let header = front.header(section, Section::default(), features.keys().copied());
    front.bytes[..104].copy_from_slice(&header);
    let sizes: Vec<u64> = features.values().map(|section| section.len() as u64).collect();
    let table = feature_table(section.end(), sizes.into_iter(), &[], endian);
    let sections: Vec<u8> = features.values().flat_map(|section| section.to_vec()).collect();
    [&front.bytes, data, &table, &sections].concat()
}

#[test]
fn a_written_layout_is_read_back() {
    holds(400, |random| {
        let endian = random.endian();
        let (events, features) = (random_events(random, endian, 0), random_features(random, endian));
        let len = random.below(300);
        let data = random.bytes(len);
        let file = canonical(&events, &features, &data, endian);
        let header = FileHeader::read(&file.clone().into()).unwrap();
        assert!(header.events == events && header.features == features);
        assert_eq!(header.faults, []);
        assert_eq!(file[header.data.offset as usize..header.data.end() as usize], data);
        // Nothing overlaps, and nothing is left over: every byte belongs to one part.
        let mut parts: Vec<Section> = header.sections.iter().map(|(_, section)| *section).collect();
        parts.extend(&header.ids);
        parts.extend([header.attrs, header.data, Section { offset: 0, size: 104 }]);
        parts.push(Section { offset: header.data.end(), size: features.len() as u64 * 16 });
        parts.retain(|part| part.size > 0);
        parts.sort_by_key(|part| part.offset);
        assert!(parts.windows(2).all(|pair| pair[0].end() == pair[1].offset));
        assert_eq!(parts.last().map(Section::end), Some(file.len() as u64));

        // Ids and attrs may also come after everything else.
        let at = file.len() as u64;
        let late = [file.clone(), attrs_at(at, &events, endian)].concat();
        let late = with_attrs_at(late, at, header.data, (&events, &features), endian);
        let header = FileHeader::read(&late.into()).unwrap();
        assert!(header.events == events && header.features == features);
    });
}

/// The ids and attrs that `FileFront` puts after a header, for another offset.
fn attrs_at(at: u64, events: &[Event], endian: Endian) -> Vec<u8> {
    let mut bytes = FileFront::new(events, endian).bytes.split_off(104);
    let entry = events.iter().map(|event| event.raw().len()).max().unwrap_or(0) + 16;
    let end = bytes.len();
    for number in 0..events.len() {
        let ids = end - number * entry - 16;
        let moved = endian.u64(&bytes, ids).unwrap() - 104 + at;
        endian.set_u64(&mut bytes, ids, moved);
    }
    bytes
}

/// The file with a header that points to them there.
fn with_attrs_at(
    mut file: Vec<u8>,
    at: u64,
    data: Section,
    (events, features): (&[Event], &Features),
    endian: Endian,
) -> Vec<u8> {
    let front = FileFront::new(events, endian);
    let mut header = front.header(data, Section::default(), features.keys().copied());
    let attrs = endian.u64(&header, 24).unwrap() - 104 + at;
    endian.set_u64(&mut header, 24, attrs);
    file[..104].copy_from_slice(&header);
    file
}

fn temp_files() -> TempFiles {
    Arc::new(tempfile::tempfile)
}

fn open(bytes: &[u8]) -> Recording {
    let mut file = tempfile::tempfile().unwrap();
    file.write_all(bytes).unwrap();
    Recording::from_file(file, "made".into(), temp_files()).unwrap()
}

fn run(recording: Recording, passes: Vec<Box<dyn Pass>>, form: OutputForm, threads: usize) -> Vec<u8> {
    let mut file = tempfile::tempfile().unwrap();
    let job = Job { recording, passes, threads, temp_files: temp_files() };
    match form {
        OutputForm::Pipe => job.run(Output::Pipe(&mut file)).unwrap(),
        form => job.run(Output::File(&file, form)).unwrap(),
    };
    let mut bytes = Vec::new();
    file.rewind().unwrap();
    file.read_to_end(&mut bytes).unwrap();
    bytes
}

/// The records of all batches, decompressed.
fn records(recording: &mut Recording) -> Vec<u8> {
    let endian = recording.endian;
    Expand::new(recording.batches(), endian, 0).flat_map(|batch| batch.unwrap().bytes.to_vec()).collect()
}

/// The same parts in an order and with gaps that perf would not choose.
fn scattered(
    random: &mut Random,
    events: &[Event],
    features: &Features,
    data: &[u8],
    endian: Endian,
) -> Vec<u8> {
    let mut file = vec![0; 104];
    let mut gap = |file: &mut Vec<u8>| {
        let len = 8 * random.below(4);
        file.extend(random.bytes(len));
        file.len() as u64
    };
    let mut slots = Vec::new();
    for section in features.values() {
        slots.extend([gap(&mut file), section.len() as u64]);
        file.extend(&**section);
    }
    let data_at = gap(&mut file);
    file.extend(data);
    put(&mut file, endian, &slots);
    let at = gap(&mut file);
    file.extend(attrs_at(at, events, endian));
    let data = Section { offset: data_at, size: data.len() as u64 };
    with_attrs_at(file, at, data, (events, features), endian)
}

#[test]
fn a_copy_of_any_recording_is_identical() {
    holds(150, |random| {
        let endian = random.endian();
        let (events, features) = (random_events(random, endian, 1), random_features(random, endian));
        let count = random.below(60);
        // Without records that have a meaning for the container.
        let (data, _) = loop {
            let (data, all) = run_of_records(random, endian, count);
            if all.iter().all(|(_, kind, ..)| !matches!(kind, 66 | 80)) || count > 8 {
                break (data, all);
            }
        };
        let file = canonical(&events, &features, &data, endian);
        assert!(run(open(&file), vec![], OutputForm::File, 1) == file, "a canonical file comes out the same");
        let other = scattered(random, &events, &features, &data, endian);
        assert!(run(open(&other), vec![], OutputForm::File, 2) == file, "any other comes out canonical");
    });
}

#[test]
fn nothing_is_lost_in_a_round_trip_through_pipe_data() {
    holds(150, |random| {
        let endian = random.endian();
        let (events, features) = (random_events(random, endian, 1), random_features(random, endian));
        let mut data = Vec::new();
        for _ in 0..random.below(60) {
            let kind = RecordType(random.pick(&[1, 3, 9, 9, 10, 68, 99, 4000]));
            let len = 8 * random.below(20);
            data.extend(record(endian, kind, random.next() as u16, &random.bytes(len)));
        }
        // The end of the header records is the first other record.
        data.extend(record(endian, RecordType::FINISHED_ROUND, 0, &[]));
        let file = canonical(&events, &features, &data, endian);
        let pipe = run(open(&file), vec![], OutputForm::Pipe, 1);
        assert!(run(open(&pipe), vec![], OutputForm::Pipe, 1) == pipe, "pipe data comes out the same");
        let read =
            Recording::from_reader(Box::new(Cursor::new(pipe.clone())), "made".into(), temp_files()).unwrap();
        assert!(read.events == events);
        assert_eq!(read.features, features);
        for back in [open(&pipe), read] {
            assert!(run(back, vec![], OutputForm::File, 1) == file);
        }
    });
}

/// A change of an address space in the naive model.
#[derive(Clone, Copy)]
enum Change {
    Map { start: u64, end: u64, mapping: u32 },
    Fork { parent: u32 },
    Exec,
}

/// The mappings of a program and of the one that it replaced, each with its number.
#[derive(Clone, Default)]
struct Programs {
    now: Vec<(u64, u64, u32)>,
    replaced: Vec<(u64, u64, u32)>,
}

/// Replays all changes up to a time, in time order. The mappings of a replaced program count where the new
/// one has mapped nothing.
fn replay(changes: &[(u64, Space, Change)], time: u64, space: Space, address: u64) -> Option<u32> {
    let mut programs: HashMap<Space, Programs> = HashMap::new();
    let mut sorted: Vec<_> = changes.iter().filter(|(at, ..)| *at <= time).collect();
    sorted.sort_by_key(|(at, ..)| *at);
    for &&(_, space, change) in &sorted {
        match change {
            Change::Map { start, end, mapping } => {
                programs.entry(space).or_default().now.push((start, end, mapping));
            }
            Change::Fork { parent } => {
                let parent = programs.get(&Space { pid: parent, ..space });
                let now = parent.map(|parent| parent.now.clone()).unwrap_or_default();
                programs.insert(space, Programs { now, replaced: Vec::new() });
            }
            Change::Exec => {
                let program = programs.entry(space).or_default();
                program.replaced = std::mem::take(&mut program.now);
            }
        }
    }
    let Programs { now, replaced } = programs.get(&space)?;
    let newest = |maps: &[(u64, u64, u32)]| {
        let found = maps.iter().rfind(|(start, end, _)| (*start..*end).contains(&address));
        found.map(|&(.., mapping)| mapping)
    };
    newest(now).or_else(|| newest(replaced))
}

#[test]
fn an_address_has_the_mapping_of_a_replay_in_time_order() {
    holds(600, |random| {
        let endian = random.endian();
        let timed = !random.once_in(4);
        let attr = Attr {
            sample_type: st::TID | if timed { st::TIME } else { 0 },
            sample_id_all: true,
            ..Attr::default()
        };
        let layouts = Layouts::new(&[attr.event(vec![], endian)]);
        let machines = [Machine::Host, Machine::Host, Machine::Guest(7)];
        let aligned = random.once_in(2);
        // A few pids and a few pages, so that mappings overlap often.
        let count = 5 + random.below(60);
        let mut times: Vec<u64> = (0..count as u64).map(|number| 1000 + number * 10).collect();
        times.sort_by_key(|time| time.wrapping_mul(random.0 | 1) >> 7);

        let (mut changes, mut naive, mut mapping, mut last_map) = (Changes::default(), Vec::new(), 0, None);
        for mut time in times {
            let (machine, pid) = (random.pick(&machines), 1 + random.below(5) as u32);
            let mut what = random.below(10);
            let (mut machine, mut pid) = (machine, pid);
            if let (Some((at, before)), true) = (last_map, timed && random.once_in(5)) {
                // Mappings with equal times stay in file order.
                let before: Space = before;
                (time, machine, pid, what) = (at, before.machine, before.pid, 9);
            }
            let kernel =
                pid == KERNEL || what == 9 && random.once_in(4) && last_map.is_none_or(|(at, _)| at != time);
            let space = Space { machine, pid: if kernel { KERNEL } else { pid } };
            let mode = match (machine, kernel) {
                (Machine::Host, true) => 1,
                (Machine::Host, false) => 2,
                (_, true) => 4,
                (_, false) => 5,
            };
            let mut body = Vec::new();
            let (kind, misc) = match what {
                0 | 1 => {
                    let parent = 1 + random.below(5) as u32;
                    for word in [pid, parent, pid, parent] {
                        body.extend(endian.bytes_u32(word));
                    }
                    put(&mut body, endian, &[time]);
                    if parent != pid {
                        naive.push((time, space, Change::Fork { parent }));
                    }
                    (RecordType::FORK, 0)
                }
                2 => {
                    body.extend([endian.bytes_u32(pid), endian.bytes_u32(pid), *b"exec", [0; 4]].concat());
                    naive.push((time, space, Change::Exec));
                    (RecordType::COMM, 1 << 13)
                }
                // A new name alone changes nothing, nor does an exit: samples may come late.
                3 => {
                    body.extend([endian.bytes_u32(pid), endian.bytes_u32(pid), *b"name", [0; 4]].concat());
                    (RecordType::COMM, 0)
                }
                _ => {
                    let odd = |random: &mut Random| if aligned { 0 } else { random.below(4096) as u64 };
                    let start = (1 + random.below(10) as u64) * 4096 + odd(random);
                    let len = (1 + random.below(4) as u64) * 4096 - odd(random);
                    body.extend([endian.bytes_u32(pid), endian.bytes_u32(pid)].concat());
                    put(&mut body, endian, &[start, len, 0]);
                    let kind = if random.once_in(2) { RecordType::MMAP } else { RecordType::MMAP2 };
                    if kind == RecordType::MMAP2 {
                        put(&mut body, endian, &[0, u64::from(mapping % 5), 0, 0]);
                    }
                    body.extend(format!("/bin/{:02}\0", mapping % 7).bytes());
                    naive.push((time, space, Change::Map { start, end: start + len, mapping }));
                    mapping += 1;
                    last_map = Some((time, space));
                    (kind, mode)
                }
            };
            if kind != RecordType::MMAP && kind != RecordType::MMAP2 {
                last_map = None;
            }
            put(&mut body, endian, &[0]);
            if timed {
                put(&mut body, endian, &[time]);
            }
            let bytes = record(endian, kind, misc, &body);
            let origin = Origin::Input { stream: 0, offset: time };
            changes.add(&Record::new(&bytes, &[], origin, endian).unwrap(), &layouts, machine);
        }
        let spaces = Arc::new(AddressSpaces::new(changes));
        let mut lookup = Lookup::new(spaces.clone());
        for _ in 0..300 {
            let pid = if random.once_in(5) { KERNEL } else { 1 + random.below(6) as u32 };
            let space = Space { machine: random.pick(&machines), pid };
            let time = 990 + random.below(count * 10 + 20) as u64;
            let address = random.below(16 * 4096) as u64;
            let got: Option<Hit> = lookup.find(space, address, perfx_format::OrderKey::at(time));
            assert_eq!(
                got.map(|hit| hit.mapping),
                replay(&naive, time, space, address),
                "{space:?} {address:#x} at {time}"
            );
            if let Some(hit) = got {
                assert_eq!(
                    &*spaces.dsos()[hit.dso as usize].0.name,
                    format!("/bin/{:02}", hit.mapping % 7).as_bytes()
                );
            }
        }
    });
}

/// A stream of records, part of it compressed: the stored bytes, and the records in the order in which they
/// become complete.
fn compressed(random: &mut Random, endian: Endian) -> (Vec<u8>, Vec<u8>) {
    let level = random.pick(&[1, 3]);
    let new = || zstd::stream::Encoder::new(Vec::new(), level).unwrap();
    let (mut encoder, mut stored, mut whole) = (new(), Vec::new(), Vec::new());
    // The data to compress, and the length already done.
    let (mut source, mut done) = (Vec::new(), 0);
    let mut ends = Vec::new();
    for _ in 0..1 + random.below(12) {
        if random.once_in(3) {
            let (plain, _) = run_of_plain(random, endian);
            stored.extend(&plain);
            whole.extend(&plain);
            continue;
        }
        let (more, more_ends) = run_of_plain(random, endian);
        ends.extend(more_ends.iter().map(|end| source.len() + end));
        let before = source.len();
        source.extend(more);
        // Possibly inside a record.
        let upto =
            if random.once_in(2) { source.len() } else { before + random.below(source.len() - before + 1) };
        encoder.write_all(&source[done.min(upto)..upto]).unwrap();
        let zstd = if random.once_in(4) {
            std::mem::replace(&mut encoder, new()).finish().unwrap()
        } else {
            encoder.flush().unwrap();
            std::mem::take(encoder.get_mut())
        };
        let is_done = |end: &&usize| **end <= upto;
        let from = ends.iter().filter(|end| **end <= done).max().copied().unwrap_or(0);
        let to = ends.iter().filter(is_done).max().copied().unwrap_or(0);
        done = done.max(upto);
        whole.extend(&source[from.min(to)..to]);
        pieces(random, endian, &zstd, &mut stored);
    }
    encoder.write_all(&source[done..]).unwrap();
    let from = ends.iter().filter(|end| **end <= done).max().copied().unwrap_or(0);
    whole.extend(&source[from..]);
    pieces(random, endian, &encoder.finish().unwrap(), &mut stored);
    (stored, whole)
}

/// Records that may be inside compressed ones, and the end of each.
fn run_of_plain(random: &mut Random, endian: Endian) -> (Vec<u8>, Vec<usize>) {
    let (mut bytes, mut ends) = (Vec::new(), Vec::new());
    for _ in 0..1 + random.below(20) {
        let kind = RecordType(random.pick(&[1, 3, 9, 9, 9, 10, 68, 99]));
        let len = if random.once_in(30) { random.below(8000) * 8 } else { random.below(20) * 8 };
        // Half of it is compressible.
        let fill = random.next() as u8;
        let body = if random.once_in(2) { vec![fill; len] } else { random.bytes(len) };
        bytes.extend(record(endian, kind, 0, &body));
        ends.push(bytes.len());
    }
    (bytes, ends)
}

/// Divides zstd data into COMPRESSED and COMPRESSED2 records.
fn pieces(random: &mut Random, endian: Endian, mut zstd: &[u8], stored: &mut Vec<u8>) {
    while !zstd.is_empty() {
        let most = zstd.len().min(65_000);
        let len = if random.once_in(2) { most } else { 1 + random.below(most) };
        let (piece, rest) = zstd.split_at(len);
        if random.once_in(2) {
            stored.extend(record(endian, RecordType::COMPRESSED, 0, piece));
        } else {
            // perf 6.16 to 7.1 wrote a wrong length; if a piece ends with a block, the padding can be
            // recognised all the same.
            let wrong = piece.len() == zstd.len() && random.once_in(3);
            let size = if wrong { random.pick(&[0, u64::MAX, 1 << 40]) } else { len as u64 };
            let mut body = endian.bytes_u64(size).to_vec();
            body.extend(piece);
            body.resize(body.len().next_multiple_of(8), 0);
            stored.extend(record(endian, RecordType::COMPRESSED2, 0, &body));
        }
        zstd = rest;
    }
}

#[test]
fn decompressed_records_do_not_depend_on_how_the_stream_was_cut() {
    holds(300, |random| {
        let endian = random.endian();
        let (stored, whole) = compressed(random, endian);
        let events = random_events(random, endian, 1);
        let mut features = random_features(random, endian);
        // version 1, zstd, level, ratio, mmap_len.
        let section = [1, 1, 3, 4, 528_384].map(|word: u32| endian.bytes_u32(word)).concat();
        features.insert(Feature::COMPRESSED, section.into());
        let file = canonical(&events, &features, &stored, endian);
        assert!(records(&mut open(&file)) == whole, "expanded");

        let mut recording = open(&file);
        for batch in Expand::new(recording.batches(), endian, 0) {
            let batch: Batch = batch.unwrap();
            assert!(batch.fragment.is_none());
            let (mut walker, mut at) = (batch.walk(), 0);
            while let Some(record) = walker.next_record().unwrap() {
                assert_eq!(batch.origins.position_of(record.origin()), Some(at));
                at = walker.position();
            }
        }

        // A pass that needs every record leaves them uncompressed; others do not change them.
        let ids = IdOptions::new(None, Vec::new(), Vec::new(), true).unwrap();
        let all: Box<dyn Pass> = Box::new(Mmap2BuildIds::new(Mmap2BuildIdsOptions { hit: false, ids }));
        let plain = run(open(&file), vec![all], OutputForm::File, 1);
        features.remove(&Feature::COMPRESSED);
        assert!(plain == canonical(&events, &features, &whole, endian), "written");
    });
}

tiers!(decompress_restores_any_compressed_records);
fn decompress_restores_any_compressed_records(tier: Tier) {
    holds(tier.pick(15, 150), |random| {
        let endian = random.endian();
        let events = random_events(random, endian, 1);
        let features = random_features(random, endian);
        let mut data = Vec::new();
        for _ in 0..1 + random.below(40) {
            data.extend(run_of_plain(random, endian).0);
            // Incompressible, and as large as a record can be.
            if random.once_in(8) {
                let len = random.pick(&[64_000, 65_504, 65_520]);
                let body = random.bytes(len);
                data.extend(record(endian, RecordType::SAMPLE, 0, &body));
            }
        }
        let options = CompressOptions {
            level: random.pick(&[1, 3, 7, 19, 22]),
            compressed2: random.once_in(2),
            solid: false,
            ratio: false,
        };
        let solid = random.once_in(3);
        let options = if solid { CompressOptions { solid, level: 3, ..options } } else { options };
        let compress = || -> Vec<Box<dyn Pass>> { vec![Box::new(Compress::new(options))] };
        let file = canonical(&events, &features, &data, endian);
        for form in [OutputForm::File, OutputForm::Pipe] {
            let whole = run(open(&file), vec![], form, 1);
            let small = run(open(&file), compress(), form, 1);
            assert!(run(open(&file), compress(), form, 3) == small, "three threads, {options:?}");
            let back = || -> Vec<Box<dyn Pass>> { vec![Box::new(Decompress::default())] };
            assert!(run(open(&small), back(), form, 2) == whole, "{form:?} {options:?}");
            assert!(small.len() <= whole.len() + 4096, "{form:?} {options:?}: it never gets larger");
        }
    });
}

/// A recording of more than one batch: processes that start, map and end, and samples of all of them.
fn long(random: &mut Random, endian: Endian) -> Vec<u8> {
    let attr = Attr {
        sample_type: st::IP | st::TID | st::TIME | st::CALLCHAIN | st::RAW,
        sample_id_all: true,
        ..Attr::default()
    };
    let mut data = Vec::new();
    let mut time = 0;
    while data.len() < 9 << 20 {
        time += 1 + random.below(50) as u64;
        let pid = 1 + random.below(40) as u32;
        let task = [endian.bytes_u32(pid), endian.bytes_u32(pid)].concat();
        let mut trailer = task.clone();
        put(&mut trailer, endian, &[time]);
        let page = 4096 * (1 + random.below(20) as u64);
        match random.below(20) {
            0 => {
                let mut body = task;
                put(&mut body, endian, &[page, 8192, 0, 0, 1 + page / 4096, 0, 5]);
                body.extend(format!("/bin/{:03}", random.below(200)).bytes());
                body.extend([0; 8]);
                data.extend(record(endian, RecordType::MMAP2, 2, &[body, trailer].concat()));
            }
            1 => {
                let parent = endian.bytes_u32(1 + random.below(40) as u32);
                let mut body =
                    [task[..4].to_vec(), parent.to_vec(), task[..4].to_vec(), parent.to_vec()].concat();
                put(&mut body, endian, &[time]);
                data.extend(record(endian, RecordType::FORK, 0, &[body, trailer].concat()));
            }
            _ => {
                let mut body = endian.bytes_u64(page + 5).to_vec();
                body.extend(task);
                let count = random.below(4);
                put(&mut body, endian, &[time, count as u64]);
                let chain: Vec<u64> = (0..count).map(|_| 4096 * (1 + random.below(20) as u64)).collect();
                put(&mut body, endian, &chain);
                // It makes the recording long, and is skipped.
                body.extend(endian.bytes_u32(1020));
                body.extend([7; 1020]);
                data.extend(record(endian, RecordType::SAMPLE, 2, &body));
            }
        }
    }
    data.extend(record(endian, RecordType::FINISHED_ROUND, 0, &[]));
    canonical(&[attr.event(vec![7], endian)], &random_features(random, endian), &data, endian)
}

#[test]
fn the_bytes_written_depend_on_neither_threads_nor_the_form_of_the_input() {
    holds(2, |random| {
        let endian = random.endian();
        let file = long(random, endian);
        let pipe = run(open(&file), vec![], OutputForm::Pipe, 3);
        let known: Vec<String> =
            (0..200).step_by(3).map(|name| format!("{:04x} /bin/{name:03}", name + 1)).collect();
        let ids = IdOptions::new(Some(&known.join(",")), Vec::new(), Vec::new(), true).unwrap();
        let hit = || -> Vec<Box<dyn Pass>> {
            vec![Box::new(BuildIds::new(BuildIdsOptions { ids: ids.clone(), ..BuildIdsOptions::default() }))]
        };
        let expected = run(open(&file), hit(), OutputForm::File, 1);
        assert!(expected.len() > file.len() + 60 * 40, "ids were injected");
        assert!(run(open(&file), hit(), OutputForm::File, 4) == expected, "four threads");
        assert!(run(open(&pipe), hit(), OutputForm::File, 3) == expected, "pipe data in a file");
        let reader =
            Recording::from_reader(Box::new(Cursor::new(pipe)), "made".into(), temp_files()).unwrap();
        assert!(run(reader, hit(), OutputForm::File, 2) == expected, "pipe data as it comes");
        let bytes: Bytes = expected.into();
        let header = FileHeader::read(&bytes).unwrap();
        assert_eq!((header.faults.len(), header.magic), (0, Magic::read(&file).unwrap()));
    });
}

#[test]
fn leaping_over_samples_finds_what_walking_finds() {
    let temp_files: TempFiles = Arc::new(tempfile::tempfile);
    each_fixture(&recorded(), |fixture| {
        let Ok(mut recording) = Recording::open_with(&fixture.path, temp_files.clone()) else {
            return Ok(());
        };
        // The second time, the extents are known.
        for _ in 0..2 {
            for batch in recording.batches().map_while(Result::ok) {
                let mut walker = batch.walk();
                let all: Vec<_> = std::iter::from_fn(|| walker.next_record().unwrap()).collect();
                let kinds: BTreeSet<u32> = all.iter().map(|record| record.kind().0).collect();
                for kind in kinds {
                    let wanted = Kinds::of(&[RecordType(kind), RecordType::COMM]);
                    let mut walker = batch.walk();
                    for expected in all.iter().filter(|record| wanted.contains(record.kind())) {
                        let got = walker.next_wanted(wanted, usize::MAX).unwrap();
                        let place = got.map(|record| (record.origin(), record.whole_size()));
                        if place != Some((expected.origin(), expected.whole_size())) {
                            return Err(format!("{expected:?} is not what comes: {got:?}"));
                        }
                    }
                    if walker.next_wanted(wanted, usize::MAX).unwrap().is_some() {
                        return Err("one too many".into());
                    }
                    if walker.position() != batch.bytes.len() {
                        return Err("it does not end where the batch does".into());
                    }
                }
            }
        }
        Ok(())
    });
}

/// Bytes that look like records from any position, but are not: rounds.
fn lookalikes(endian: Endian, size: usize) -> Vec<u8> {
    record_of(endian, RecordType::FINISHED_ROUND, &[]).repeat(size / 8)
}

fn record_of(endian: Endian, kind: RecordType, body: &[u8]) -> Vec<u8> {
    let size = u16::try_from(8 + body.len()).unwrap();
    [&endian.bytes_u32(kind.0)[..], &endian.bytes_u16(0), &endian.bytes_u16(size), body].concat()
}

tiers!(guessed_batches_equal_those_read_in_order);
fn guessed_batches_equal_those_read_in_order(tier: Tier) {
    const MANY: usize = 1 << 20;
    for (case, endian) in
        (0..5).step_by(tier.pick(3, 1)).flat_map(|case| [(case, Endian::Little), (case, Endian::Big)])
    {
        let small = |count| record_of(endian, RecordType::SAMPLE, &[7; 48]).repeat(count);
        let large = record_of(endian, RecordType::SAMPLE, &lookalikes(endian, 60_000));
        let payload = lookalikes(endian, 9 * MANY);
        let aux = [&endian.bytes_u64(payload.len() as u64)[..], &[0; 32]].concat();
        let aux = [record_of(endian, RecordType::AUXTRACE, &aux), payload].concat();
        let odd = record_of(endian, RecordType(4000), &[3; 5]);
        let mut data = [small(MANY / 8), large.repeat(150), small(10), aux, small(MANY / 4)].concat();
        match case {
            1 => data.extend(&large[..500]),
            2 => data.extend([[0; 64].to_vec(), small(MANY / 8)].concat()),
            // Records of a length that moves all later ones away from the guessed positions.
            3 => data = [odd, data].concat(),
            4 => {
                data = [large.repeat(60), record_of(endian, RecordType::COMPRESSED, &[1; 64]), data].concat()
            }
            _ => {}
        }
        let events = random_events(&mut Random(7), endian, 1);
        let file = canonical(&events, &Features::new(), &data, endian);
        let found = |threads: usize, opens: bool| {
            let mut found = Vec::new();
            let work = |batch: &Batch| batch.walk().next_record().map(|first| first.map(|r| r.origin()));
            let mut recording = open(&file);
            // The second time, the extents are known.
            for _ in 0..2 {
                scan_past(&mut recording, threads, opens, work, |read| {
                    found.push(match read {
                        Ok((batch, first)) => format!(
                            "{first:?} {} bytes, {} records of {:?}, {:?}",
                            batch.bytes.len(),
                            batch.records,
                            batch.kinds.names(),
                            batch.fragment
                        ),
                        Err(error) => error.to_string(),
                    });
                    Ok(())
                })
                .unwrap();
            }
            found
        };
        for opens in [false, true] {
            let in_order = found(1, opens);
            assert!(in_order.len() > 4, "{in_order:?}");
            for threads in [2, 5] {
                assert_eq!(found(threads, opens), in_order, "case {case} {endian:?}");
            }
        }
    }
}
