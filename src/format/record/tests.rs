//! Tests every view of a record against bytes typed by hand, in both byte orders, cut at every byte.

use super::aux::{Aux, Auxtrace};
use super::cgroup::Cgroup;
use super::deferred::CallchainDeferred;
use super::ksymbol::Ksymbol;
use super::lost::Lost;
use super::time_conv::TimeConv;
use super::{Origin, Record};
use crate::record::builder::{build, finished_round, pad, set_misc, set_size};
use crate::{Endian, RECORD_SIZE_MAX, RecordType};

const BOTH: [Endian; 2] = [Endian::Little, Endian::Big];

fn typed(kind: RecordType, misc: u16, words: &[u64], rest: &[u8], endian: Endian) -> Vec<u8> {
    let words: Vec<u8> = words.iter().flat_map(|&word| endian.bytes_u64(word)).collect();
    build(kind, misc, &[&words, rest], endian).unwrap()
}

fn pair(first: u32, second: u32, endian: Endian) -> u64 {
    endian.u64(&[endian.bytes_u32(first), endian.bytes_u32(second)].concat(), 0).unwrap()
}

/// Calls the check with the record, and with every prefix of it.
fn cut(bytes: &[u8], endian: Endian, check: impl Fn(&Record<'_>, bool)) {
    for len in 8..=bytes.len() {
        let mut front = bytes[..len].to_vec();
        set_size(&mut front, endian).unwrap();
        check(&Record::new(&front, &[], Origin::Synthetic, endian).unwrap(), len == bytes.len());
    }
}

#[test]
fn every_view_reads_what_is_typed_and_no_front_of_it_panics() {
    for endian in BOTH {
        let aux = typed(RecordType::AUX, 0, &[4096, 512, 1], &[], endian);
        cut(&aux, endian, |record, whole| {
            assert_eq!(
                Aux::of(record),
                whole.then_some(Aux { offset: 4096, size: 512, flags: Aux::TRUNCATED })
            );
            assert_eq!((Auxtrace::of(record), Cgroup::of(record)), (None, None));
        });
        let words = [16, 8, 7, pair(3, 44, endian)];
        let auxtrace = typed(RecordType::AUXTRACE, 0, &words, &endian.bytes_u32(u32::MAX), endian);
        cut(&auxtrace, endian, |record, whole| {
            let wanted = Auxtrace { size: 16, offset: 8, reference: 7, idx: 3, tid: 44, cpu: Auxtrace::ANY };
            assert_eq!(Auxtrace::of(record), whole.then_some(wanted));
        });
        let kinds = [endian.bytes_u16(Ksymbol::OUT_OF_LINE), endian.bytes_u16(1)].concat();
        let rest = [&endian.bytes_u32(80), &kinds[..], b"bpf_prog\0\0\0\0\0\0\0\0"].concat();
        let symbol = typed(RecordType::KSYMBOL, 0, &[0xffff_ffff_c000_0000], &rest, endian);
        cut(&symbol, endian, |record, whole| {
            let read = Ksymbol::of(record);
            assert_eq!(read.is_some(), record.bytes().len() >= 24);
            if let Some(read) = read.filter(|_| whole) {
                assert_eq!((read.address, read.length), (0xffff_ffff_c000_0000, 80));
                assert_eq!((read.kind, read.name, read.is_gone()), (2, &b"bpf_prog"[..], true));
            }
        });
        let cgroup = typed(RecordType::CGROUP, 0, &[77], b"/a/b\0\0\0\0", endian);
        cut(&cgroup, endian, |record, whole| {
            let read = Cgroup::of(record);
            assert_eq!(read.is_some(), record.bytes().len() >= 16);
            assert!(!whole || read == Some(Cgroup { id: 77, path: b"/a/b" }));
        });
        let deferred = typed(RecordType::CALLCHAIN_DEFERRED, 0, &[9, 2, 100, 200], &[], endian);
        cut(&deferred, endian, |record, whole| {
            let read = CallchainDeferred::of(record).map(|read| (read.cookie, read.ips.iter().collect()));
            let ips = if whole { vec![100, 200] } else { vec![] };
            assert_eq!(read, (record.bytes().len() >= 16).then_some((9, ips)));
        });
        let conv = typed(RecordType::TIME_CONV, 0, &[31, 5, 6, 7, 8], &[1, 1, 0, 0, 0, 0, 0, 0], endian);
        cut(&conv, endian, |record, whole| {
            let read = TimeConv::of(record);
            assert_eq!(read.is_some(), record.bytes().len() >= 32);
            let wanted = TimeConv { shift: 31, mult: 5, zero: 6, short: Some((7, 8)), can_convert: true };
            assert!(!whole || read == Some(wanted));
        });
        for (kind, misc, words, wanted) in [
            (RecordType::LOST, 0, &[11, 5][..], Lost::Records(5)),
            (RecordType::LOST_SAMPLES, 0, &[6], Lost::Samples(6)),
            (RecordType::LOST_SAMPLES, 1 << 15, &[7], Lost::Filtered(7)),
        ] {
            cut(&typed(kind, misc, words, &[], endian), endian, |record, whole| {
                assert_eq!(Lost::of(record), whole.then_some(wanted));
            });
        }
    }
}

#[test]
fn a_header_is_written_and_changed() {
    for endian in BOTH {
        let round = finished_round(endian);
        let record = Record::new(&round, &[], Origin::Synthetic, endian).unwrap();
        assert_eq!((record.kind(), record.misc()), (RecordType::FINISHED_ROUND, 0));
        assert_eq!(round.to_vec(), build(RecordType::FINISHED_ROUND, 0, &[], endian).unwrap());
        let mut longer = [&round[..], &[0; 8]].concat();
        assert_eq!(set_size(&mut longer, endian), Some(16));
        set_misc(&mut longer, 0x4002, endian);
        assert_eq!(Record::new(&longer, &[], Origin::Synthetic, endian).unwrap().misc(), 0x4002);
        let too_long = vec![0; RECORD_SIZE_MAX];
        assert_eq!(build(RecordType::COMM, 0, &[&too_long], endian), None);
        assert_eq!(set_size(&mut vec![0; RECORD_SIZE_MAX + 8], endian), None);
        let mut padded = build(RecordType::COMM, 0, &[&[1; 8], &[2; 16]], endian).unwrap();
        assert_eq!(pad(&mut padded, 16, 3, endian), Some(()));
        let record = Record::new(&padded, &[], Origin::Synthetic, endian).unwrap();
        assert_eq!(record.body(), [&[1; 8][..], &[0; 3], &[2; 16]].concat());
        let before = padded.clone();
        assert_eq!(pad(&mut padded, 32, 3, endian), None);
        assert_eq!(pad(&mut padded, 0, RECORD_SIZE_MAX, endian), None);
        assert_eq!(padded, before);
    }
}
