//! Reads each part of a sample from typed bytes in both byte orders, cut and changed at every byte.

use super::*;
use crate::{Attr, Origin};

const BOTH: [Endian; 2] = [Endian::Little, Endian::Big];
const TXN: u64 = st::TRANSACTION;

struct Typed(Endian, Vec<u8>);

fn typed(endian: Endian) -> Typed {
    Typed(endian, Vec::new()).u32(9).raw(endian.bytes_u16(2)).raw([0, 0])
}

impl Typed {
    fn u32(self, value: u32) -> Self {
        let bytes = self.0.bytes_u32(value);
        self.raw(bytes)
    }
    fn u64s<const N: usize>(self, values: [u64; N]) -> Self {
        let endian = self.0;
        values.into_iter().fold(self, |typed, value| typed.raw(endian.bytes_u64(value)))
    }
    fn raw(mut self, value: impl AsRef<[u8]>) -> Self {
        self.1.extend(value.as_ref());
        self
    }
    fn done(mut self) -> Vec<u8> {
        let size = self.1.len() as u16;
        self.0.set_u16(&mut self.1, 6, size);
        self.1
    }
}

fn layout(sample_type: u64) -> Layout {
    Layout::new(&Attr { sample_type, ..Attr::default() })
}

fn view(bytes: &[u8], endian: Endian) -> Record<'_> {
    Record::new(bytes, &[], Origin::Synthetic, endian).unwrap()
}

fn parse<'a>(typed: &'a Typed, layout: &Layout) -> Sample<'a> {
    Sample::parse(&view(&typed.1, typed.0), layout).unwrap()
}

fn error(typed: &Typed, layout: &Layout) -> String {
    Sample::parse(&view(&typed.1, typed.0), layout).unwrap_err().what().to_owned()
}

fn sealed(typed: Typed) -> Typed {
    Typed(typed.0, typed.done())
}

fn words(run: Option<U64s<'_>>) -> Vec<u64> {
    run.expect("it was asked for").iter().collect()
}

/// All bits except WEIGHT, which WEIGHT_STRUCT replaces, with distinct values.
fn everything(endian: Endian) -> (Vec<u8>, Layout) {
    let mut layout = layout((1 << 25) - 1 - st::WEIGHT);
    (layout.read_format, layout.branch_sample_type) = (0x1f, 1 << 17);
    (layout.regs_user, layout.regs_intr) = (1 << 63 | 1, 1 << 5);
    let flags = if endian == Endian::Big { 1 << 62 } else { 1 << 1 };
    let bytes = typed(endian)
        .u64s([11, 0x401000])
        .u32(7)
        .u32(8)
        .u64s([9, 0x10, 12, 13])
        .u32(3)
        .u32(0)
        .u64s([1000])
        .u64s([2, 100, 50, 1, 11, 0, 3, 12, 4])
        .u64s([2, Marker::USER.0, 0x401000])
        .u32(4)
        .raw([1, 2, 3, 4])
        .u64s([1, 5, 0x20, 0x30, flags])
        .u64s([2, 0x40, 0x50])
        .u64s([8])
        .raw([9; 8])
        .u64s([4])
        .u64s([3 << 48 | 2 << 32 | 1, 0x22, 0x33])
        .u64s([1, 0x60])
        .u64s([0x44, 14, 4096, 8192])
        .u64s([8])
        .raw([7; 8]);
    (bytes.done(), layout)
}

#[test]
fn every_part_in_its_place() {
    for endian in BOTH {
        let (bytes, layout) = everything(endian);
        let record = view(&bytes, endian);
        let s = Sample::parse(&record, &layout).unwrap();
        assert_eq!(
            (s.identifier, s.ip, s.pid_tid, s.time),
            (Some(11), Some(0x401000), Some((7, 8)), Some(9))
        );
        assert_eq!((s.addr, s.id, s.stream_id, s.cpu), (Some(0x10), Some(12), Some(13), Some(3)));
        assert_eq!(s.period, Some(1000));
        let read = s.read.unwrap();
        assert_eq!((read.enabled, read.running, read.group), (Some(100), Some(50), true));
        let counts: Vec<_> = read.counts().map(|c| (c.value, c.id, c.lost)).collect();
        assert_eq!(counts, [(1, Some(11), Some(0)), (3, Some(12), Some(4))]);
        assert_eq!(words(s.callchain), [Marker::USER.0, 0x401000]);
        assert_eq!(callchain(&record, &layout), s.callchain);
        assert_eq!(s.raw, Some(&[1, 2, 3, 4][..]));
        let branches = s.branches.unwrap();
        assert_eq!((branches.hw_idx, branches.counters, branches.len()), (Some(5), None, 1));
        assert_eq!(branches.iter().next(), Some(Branch { from: 0x20, to: 0x30, flags: BranchFlags(2) }));
        let regs = s.regs_user.unwrap();
        assert_eq!((regs.abi, regs.get(0), regs.get(1)), (2, Some(0x40), None));
        assert_eq!((regs.get(63), regs.get(64)), (Some(0x50), None));
        assert_eq!(regs.iter().collect::<Vec<_>>(), [(0, 0x40), (63, 0x50)]);
        let stack = s.stack_user.unwrap();
        assert_eq!((stack.bytes, stack.dyn_size, stack.used()), (&[9; 8][..], Some(4), &[9; 4][..]));
        assert_eq!(s.weight, Some(Weight::Parts { var1_dw: 1, var2_w: 2, var3_w: 3 }));
        assert_eq!((s.data_src, s.transaction), (Some(DataSrc(0x22)), Some(0x33)));
        assert_eq!(s.regs_intr.unwrap().iter().collect::<Vec<_>>(), [(5, 0x60)]);
        assert_eq!((s.phys_addr, s.cgroup), (Some(0x44), Some(14)));
        assert_eq!((s.data_page_size, s.code_page_size), (Some(4096), Some(8192)));
        assert_eq!((s.aux, s.rest), (Some(&[7; 8][..]), &[][..]));
    }
}

#[test]
fn nothing_that_was_not_asked_for() {
    let bytes = typed(Endian::Little).done();
    let record = view(&bytes, Endian::Little);
    assert_eq!(Sample::parse(&record, &layout(0)).unwrap(), Sample::default());
    assert_eq!(callchain(&record, &layout(0)), None);
    let mut comm = bytes.clone();
    comm[0] = 3;
    let comm = view(&comm, Endian::Little);
    assert_eq!(Sample::parse(&comm, &layout(0)).unwrap_err().what(), "this is not a sample");
    assert_eq!(callchain(&comm, &layout(st::CALLCHAIN)), None);
}

#[test]
fn every_bit_alone() {
    for endian in BOTH {
        for bit in (0..25).map(|bit| 1 << bit) {
            let body = match bit {
                st::RAW => typed(endian).u32(4).raw([0; 4]),
                st::STACK_USER => typed(endian).u64s([8, 1, 8]),
                st::AUX => typed(endian).u64s([8, 1]),
                st::CALLCHAIN => typed(endian).u64s([1, 1]),
                st::BRANCH_STACK => typed(endian).u64s([1, 1, 2, 3]),
                _ => typed(endian).u64s([1]),
            };
            let sample = sealed(body);
            let parsed = parse(&sample, &layout(bit));
            assert_eq!(parsed.rest, b"", "{bit:#x}");
            assert_ne!(parsed, Sample::default(), "{bit:#x}");
            // One byte too few.
            let short = sealed(Typed(endian, sample.1[..sample.1.len() - 1].to_vec()));
            error(&short, &layout(bit));
        }
    }
}

#[test]
fn every_read_format() {
    for endian in BOTH {
        for format in 0..32_u64 {
            let has = |bit| format & bit != 0;
            let group = has(Read::GROUP);
            let times: Vec<u64> =
                [(1, 100), (2, 50)].into_iter().filter(|(bit, _)| has(*bit)).map(|(_, t)| t).collect();
            let tail =
                |id: u64| [(4, id), (16, id + 1)].into_iter().filter(|(bit, _)| has(*bit)).map(|(_, v)| v);
            let mut all = Vec::new();
            if group {
                all.push(3);
                all.extend(&times);
                (1..=3).for_each(|n| all.extend([n].into_iter().chain(tail(n * 10))));
            } else {
                all.push(1);
                all.extend(&times);
                all.extend(tail(10));
            }
            let mut sample = all.iter().fold(typed(endian), |typed, &word| typed.u64s([word]));
            sample = sealed(sample.u64s([1, 0x401000]));
            let mut layout = layout(st::READ | st::CALLCHAIN);
            layout.read_format = format;
            let parsed = parse(&sample, &layout);
            let read = parsed.read.unwrap();
            assert_eq!(read.enabled, has(1).then_some(100));
            assert_eq!(read.running, has(2).then_some(50));
            let counts: Vec<_> = read.counts().collect();
            let count =
                |n| Count { value: n, id: has(4).then_some(n * 10), lost: has(16).then_some(n * 10 + 1) };
            assert_eq!(counts, if group { vec![count(1), count(2), count(3)] } else { vec![count(1)] });
            assert_eq!(words(parsed.callchain), [0x401000]);
            assert_eq!(callchain(&view(&sample.1, endian), &layout), parsed.callchain);
        }
    }
}

/// Another part follows, so that a wrong choice is noticed.
#[test]
fn a_branch_stack_fills_the_record() {
    for endian in BOTH {
        let read = |branch_sample_type, body: Typed| {
            let mut layout = layout(st::BRANCH_STACK | TXN);
            layout.branch_sample_type = branch_sample_type;
            let sample = sealed(body.u64s([77]));
            let parsed = parse(&sample, &layout);
            assert_eq!((parsed.transaction, parsed.rest), (Some(77), &[][..]));
            let branches = parsed.branches.unwrap();
            let counters = branches.counters.map(|all| all.iter().collect::<Vec<_>>());
            (branches.hw_idx, branches.len(), counters)
        };
        let (hw, counters) = (1 << 17, 1 << 19);
        let body = || typed(endian);
        // The form of the attr.
        assert_eq!(read(0, body().u64s([1, 1, 2, 3])), (None, 1, None));
        assert_eq!(read(hw, body().u64s([1, 9, 1, 2, 3])), (Some(9), 1, None));
        assert_eq!(read(hw, body().u64s([0, 9])), (Some(9), 0, None));
        assert_eq!(read(counters, body().u64s([1, 1, 2, 3, 5])), (None, 1, Some(vec![5])));
        assert_eq!(read(hw | counters, body().u64s([1, 9, 1, 2, 3, 5])), (Some(9), 1, Some(vec![5])));
        // The kernel had no branches.
        assert_eq!(read(hw, body().u64s([0])), (None, 0, None));
        assert_eq!(read(hw | counters, body().u64s([0])).0, None);
        // Another event of the group requested counters, or none did.
        assert_eq!(read(0, body().u64s([2, 1, 2, 3, 1, 2, 3, 5, 6])), (None, 2, Some(vec![5, 6])));
        assert_eq!(read(hw, body().u64s([2, 9, 1, 2, 3, 1, 2, 3, 5, 6])), (Some(9), 2, Some(vec![5, 6])));
        assert_eq!(read(counters, body().u64s([2, 1, 2, 3, 1, 2, 3])), (None, 2, None));
        // perf wrote the sample.
        assert_eq!(read(0, body().u64s([2, 9, 1, 2, 3, 1, 2, 3])), (Some(9), 2, None));
        assert_eq!(read(0, body().u64s([0, 9])), (Some(9), 0, None));
        assert_eq!(read(hw | counters, body().u64s([2, 9, 1, 2, 3, 1, 2, 3])), (Some(9), 2, None));
        assert_eq!(read(0, body().u64s([2, 9, 1, 2, 3, 1, 2, 3, 5, 6])), (Some(9), 2, Some(vec![5, 6])));
    }
}

#[test]
fn a_branch_stack_that_fits_no_way_is_read_as_the_attr_says() {
    let mut layout = layout(st::BRANCH_STACK | TXN);
    layout.branch_sample_type = 1 << 17;
    let long = sealed(typed(Endian::Little).u64s([1, 9, 1, 2, 3, 77, 78, 79]));
    let parsed = parse(&long, &layout);
    assert_eq!(
        (parsed.branches.unwrap().hw_idx, parsed.transaction, parsed.rest.len()),
        (Some(9), Some(77), 16)
    );
    let short = sealed(typed(Endian::Little).u64s([1, 9, 1, 2]));
    assert_eq!(error(&short, &layout), "`branch_stack` says 1, which does not fit in the 16 bytes left");
}

#[test]
fn empty_parts() {
    for endian in BOTH {
        let mut layout =
            layout(st::CALLCHAIN | st::RAW | st::REGS_USER | st::STACK_USER | st::WEIGHT | st::AUX);
        layout.regs_user = u64::MAX;
        let sample = sealed(typed(endian).u64s([0]).u32(4).u32(0).u64s([0, 0, 5, 0]));
        let parsed = parse(&sample, &layout);
        assert!(parsed.callchain.unwrap().is_empty());
        assert_eq!(parsed.raw, Some(&[0; 4][..]));
        assert_eq!((parsed.regs_user.unwrap().abi, parsed.regs_user.unwrap().iter().count()), (0, 0));
        let stack = parsed.stack_user.unwrap();
        assert_eq!((stack.bytes, stack.dyn_size, stack.used()), (&[][..], None, &[][..]));
        assert_eq!((parsed.weight, parsed.aux), (Some(Weight::Full(5)), Some(&[][..])));
    }
}

#[test]
fn registers_of_an_unknown_abi_end_what_is_known() {
    for endian in BOTH {
        let mut layout = layout(st::CALLCHAIN | st::REGS_USER | st::WEIGHT);
        layout.regs_user = 3;
        // Registers of a 64-bit task and vectors.
        let sample = sealed(typed(endian).u64s([1, 9, 6, 1, 2, 5]));
        let what = "`regs_user` has abi 6, which is not known, so the parts from it on can't be read";
        assert_eq!(error(&sample, &layout), what);
        let known = Sample::parse_known(&view(&sample.1, endian), &layout).unwrap();
        assert_eq!((words(known.callchain), known.is_cut), (vec![9], true));
        assert_eq!((known.regs_user, known.weight, known.rest.len()), (None, None, 32));
        // A short record stays unreadable.
        assert!(Sample::parse_known(&view(&sealed(typed(endian).u64s([7, 9])).1, endian), &layout).is_err());
    }
}

#[test]
fn lengths_are_not_trusted() {
    let e = Endian::Little;
    let huge = |bit, length| error(&sealed(typed(e).u64s([length, 1])), &layout(bit));
    for (bit, part) in [
        (st::CALLCHAIN, "callchain"),
        (st::BRANCH_STACK, "branch_stack"),
        (st::STACK_USER, "stack_user"),
        (st::AUX, "aux"),
    ] {
        // Multiplied by 8 or 24, the last ones wrap to small numbers.
        for length in [9, 1 << 60, 1 << 61, u64::MAX / 24 + 1, u64::MAX] {
            assert!(
                huge(bit, length).starts_with(&format!("`{part}` says {length}")),
                "{}",
                huge(bit, length)
            );
        }
    }
    assert_eq!(huge(st::RAW, 1 << 32 | 13), "`raw` says 13, which does not fit in the 12 bytes left");
    let mut group = layout(st::READ);
    group.read_format = Read::GROUP;
    for count in [9, 1 << 61, u64::MAX] {
        assert_eq!(
            error(&sealed(typed(e).u64s([count, 1])), &group),
            "`read` does not fit in the 16 bytes left"
        );
    }
    let mut regs = layout(st::REGS_INTR);
    regs.regs_intr = 7;
    let two = sealed(typed(e).u64s([2, 1, 2]));
    assert_eq!(error(&two, &regs), "`regs_intr` says 3, which does not fit in the 16 bytes left");
    let stack = sealed(typed(e).u64s([8, 1]));
    assert_eq!(error(&stack, &layout(st::STACK_USER)), "`dyn_size` does not fit in the 0 bytes left");
    let used = sealed(typed(e).u64s([8, 1, 9999]));
    assert_eq!(parse(&used, &layout(st::STACK_USER)).stack_user.unwrap().used().len(), 8);
}

#[test]
fn damage_never_panics() {
    for endian in BOTH {
        let (bytes, layout) = everything(endian);
        for cut in 8..bytes.len() {
            let sample = sealed(Typed(endian, bytes[..cut].to_vec()));
            error(&sample, &layout);
            callchain(&view(&sample.1, endian), &layout);
        }
        for at in (0..bytes.len()).filter(|at| !(6..8).contains(at)) {
            for change in [0x01, 0x10, 0x80, 0xff] {
                let mut changed = bytes.clone();
                changed[at] ^= change;
                let record = view(&changed, endian);
                if let (Ok(sample), chain) = (Sample::parse(&record, &layout), callchain(&record, &layout)) {
                    assert_eq!(sample.callchain, chain);
                    let _ = sample.read.map(|read| read.counts().count());
                    let _ = sample
                        .branches
                        .map(|branches| branches.iter().map(|b| b.flags.parts().count()).sum::<usize>());
                    let _ = sample.stack_user.map(|stack| stack.used().len());
                }
            }
        }
    }
}

#[test]
fn call_chains_are_addresses_and_markers() {
    for endian in BOTH {
        let chain =
            [0x1, Marker::KERNEL.0, 0x2, -4000_i64 as u64, 0x3, Marker::USER_DEFERRED.0, Marker::USER.0];
        let bytes: Vec<u8> = chain.iter().flat_map(|&entry| endian.bytes_u64(entry)).collect();
        let run = U64s::new(&bytes[..], endian);
        // The entry after USER_DEFERRED is a cookie, whatever its value.
        assert_eq!(frames(run, 5).collect::<Vec<_>>(), [(5, 0x1), (1, 0x2), (0, 0x3)]);
        assert_eq!((run.len(), run.get(2), run.get(7), run.get(usize::MAX)), (7, Some(2), None, None));
        assert_eq!(run.iter().rev().next_back(), Some(1));
        assert_eq!(U64s::new(&bytes[..15], endian).len(), 1);
        assert_eq!(format!("{:?}", U64s::new(&bytes[..8], endian)), "[\"0x1\"]");
    }
    assert_eq!(Marker::of(-4096_i64 as u64), None);
    assert_eq!(Marker::of(-4095_i64 as u64).unwrap().name(), None);
    assert_eq!(Marker::of(-2560_i64 as u64), Some(Marker::GUEST_USER));
    assert_eq!((Marker::GUEST_USER.name(), Marker::GUEST_USER.cpumode()), (Some("GUEST_USER"), 5));
}

fn parts(lost: bool, counters: bool) -> Vec<(u64, Vec<u64>)> {
    let mut read = vec![2, 100, 50, 1000, 11];
    read.extend(lost.then_some(7));
    read.extend([2000, 12]);
    read.extend(lost.then_some(8));
    let mut branches = vec![2, u64::MAX, 0x10, 0x20, 0, 0x30, 0x40, 1];
    branches.extend(counters.then_some([3, 4]).into_iter().flatten());
    vec![
        (st::IDENTIFIER, vec![11]),
        (st::IP, vec![0x1000]),
        (st::TID, vec![7]),
        (st::PERIOD, vec![5]),
        (st::READ, read),
        (st::CALLCHAIN, vec![1, 0x1000]),
        // u32 size 4, then 4 bytes.
        (st::RAW, vec![4 | 0xabcd << 32]),
        (st::BRANCH_STACK, branches),
        (st::REGS_USER, vec![2, 1, 2]),
        (st::STACK_USER, vec![8, 0x55, 8]),
        (st::WEIGHT_STRUCT, vec![13]),
        (st::DATA_SRC, vec![14]),
        (st::TRANSACTION, vec![15]),
        (st::REGS_INTR, vec![2, 3]),
        (st::PHYS_ADDR, vec![16]),
        (st::CGROUP, vec![17]),
        (st::DATA_PAGE_SIZE, vec![4096]),
        (st::CODE_PAGE_SIZE, vec![8192]),
        (st::AUX, vec![8, 0x77]),
        (1 << 30, vec![99, 98]),
    ]
}

fn sample_of(parts: &[(u64, Vec<u64>)], kept: u64) -> Vec<u8> {
    let words = parts.iter().filter(|(bit, _)| kept & bit != 0).flat_map(|(_, words)| words);
    let body: Vec<u8> = words.flat_map(|word| word.to_le_bytes()).collect();
    build(RecordType::SAMPLE, 2, &[&body], Endian::Little).unwrap()
}

#[test]
fn a_sample_without_parts_is_what_its_event_would_record_without_them() {
    let all = parts(true, true).iter().fold(0, |all, (bit, _)| all | bit);
    let attr = Attr {
        sample_type: all,
        read_format: 0b11111,
        branch_sample_type: 1 << 17 | 1 << 19,
        sample_regs_user: 0b11,
        sample_regs_intr: 0b1,
        ..Attr::default()
    };
    let layout = Layout::new(&attr);
    let whole = sample_of(&parts(true, true), all);
    let record = Record::new(&whole, &[], Origin::Synthetic, Endian::Little).unwrap();
    let can_go = [
        st::REGS_USER,
        st::STACK_USER,
        st::WEIGHT_STRUCT,
        st::REGS_INTR,
        st::PHYS_ADDR,
        st::CGROUP,
        st::DATA_PAGE_SIZE,
        st::CODE_PAGE_SIZE,
        st::AUX,
        st::UNNAMED,
    ];
    for number in 0..1 << can_go.len() {
        let gone = can_go.iter().enumerate().filter(|(bit, _)| number >> bit & 1 != 0);
        let gone = gone.fold(0, |gone, (_, part)| gone | part);
        for (lost, branch_counters) in [(false, false), (true, false), (false, true), (true, true)] {
            let left_out = LeftOut { parts: gone, lost, branch_counters };
            let wanted = sample_of(&parts(!lost, !branch_counters), all & !gone);
            assert_eq!(without(&record, &layout, left_out).unwrap(), wanted, "{left_out:?}");
        }
    }
}

/// Regression: attrs with aarch64 registers for frame pointer chains must keep them.
#[test]
fn a_sample_with_another_call_chain_keeps_its_user_registers_if_its_event_does() {
    for endian in BOTH {
        let layout =
            Layout { regs_user: 1 << 30, ..layout(st::IP | st::CALLCHAIN | st::REGS_USER | st::WEIGHT) };
        let sample = |chain: &[u64], user: &[u64]| {
            let words = [&[0x1000, chain.len() as u64], chain, user, &[7]].concat();
            sealed(words.into_iter().fold(typed(endian), |typed, word| typed.u64s([word])))
        };
        let recorded = sample(&[0x1000, 0x2000], &[2, 0x3000]);
        let record = view(&recorded.1, endian);
        let parsed = Sample::parse(&record, &layout).unwrap();
        let made = |user| with_callchain(&record, &layout, &parsed, &[0x1000], user).unwrap();
        assert_eq!(made(UserParts::Kept), sample(&[0x1000], &[2, 0x3000]).1);
        assert_eq!(made(UserParts::LeftOut), sample(&[0x1000], &[]).1);
        assert_eq!(made(UserParts::Empty), sample(&[0x1000], &[0, 0]).1);
    }
}

#[test]
fn a_read_record_loses_only_the_numbers_of_lost_samples() {
    let attr = Attr { read_format: 0b10111, ..Attr::default() };
    let words = |words: &[u64]| {
        let body: Vec<u8> = words.iter().flat_map(|word| word.to_be_bytes()).collect();
        build(RecordType::READ, 0, &[&body], Endian::Big).unwrap()
    };
    // pid and tid, value, enabled, running, id, lost; then a trailer of two words.
    let whole = words(&[7 << 32 | 8, 1, 2, 3, 4, 5, 6, 7]);
    let record = Record::new(&whole, &[], Origin::Synthetic, Endian::Big).unwrap();
    let layout = Layout::new(&attr);
    assert_eq!(read_record_without_lost(&record, &layout).unwrap(), words(&[7 << 32 | 8, 1, 2, 3, 4, 6, 7]));
    let short = words(&[1, 2]);
    let record = Record::new(&short, &[], Origin::Synthetic, Endian::Big).unwrap();
    assert_eq!(read_record_without_lost(&record, &layout), None);
}
