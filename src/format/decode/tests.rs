//! Decodes every kind from typed bytes in both byte orders, cut and changed at every byte, and each oddity.

use super::*;
use crate::value::Fields;
use crate::{Attr, Endian, Event, Kinds, MMAP_BUILD_ID, Origin, sample_type as st};

const BOTH: [Endian; 2] = [Endian::Little, Endian::Big];

struct Typed(Endian, Vec<u8>);

fn typed(endian: Endian, kind: RecordType, misc: u16) -> Typed {
    Typed(endian, Vec::new()).u32(kind.0).u16(misc).u16(0)
}

impl Typed {
    fn u8(mut self, value: u8) -> Self {
        self.1.push(value);
        self
    }
    fn u16(mut self, value: u16) -> Self {
        self.1.extend(self.0.bytes_u16(value));
        self
    }
    fn u32(mut self, value: u32) -> Self {
        self.1.extend(self.0.bytes_u32(value));
        self
    }
    fn u64(mut self, value: u64) -> Self {
        self.1.extend(self.0.bytes_u64(value));
        self
    }
    fn u64s<const N: usize>(self, values: [u64; N]) -> Self {
        values.into_iter().fold(self, Typed::u64)
    }
    fn raw(mut self, value: impl AsRef<[u8]>) -> Self {
        self.1.extend(value.as_ref());
        self
    }
    fn zeros(mut self, count: usize) -> Self {
        self.1.resize(self.1.len() + count, 0);
        self
    }
    fn field(self, text: &str, size: usize) -> Self {
        self.raw(text).zeros(size - text.len())
    }
    fn text(self, text: &str) -> Self {
        self.field(text, (text.len() + 1).next_multiple_of(8))
    }
    fn trailer(self) -> Self {
        self.u32(7).u32(u32::MAX).u64s([9, 11, 12]).u32(3).u32(0).u64(11)
    }
    fn done(mut self) -> Vec<u8> {
        let size = self.1.len() as u16;
        self.0.set_u16(&mut self.1, 6, size);
        self.1
    }
}

const TRAILER: &str = "sample_id={pid=7 tid=-1 time=9 id=11 stream_id=12 cpu=3 identifier=11}";

/// An attr of 136 bytes: `flags` as a little-endian machine numbers them.
fn attr(endian: Endian, sample_type: u64, read_format: u64, flags: u64) -> Vec<u8> {
    let flags = match endian {
        Endian::Little => flags.to_le_bytes(),
        Endian::Big => flags.to_le_bytes().map(u8::reverse_bits),
    };
    Typed(endian, Vec::new()).u32(1).u32(136).u64s([0, 1000, sample_type, read_format]).raw(flags).zeros(88).1
}

const ALL_IDS: u64 = st::IP | st::TID | st::TIME | st::ID | st::STREAM_ID | st::CPU | st::IDENTIFIER;
const SAMPLE_ID_ALL: u64 = 1 << 18;
const BUILD_ID: u64 = 1 << 34;

fn layouts_of(endian: Endian, attrs: &[(u64, u64, u64)]) -> Layouts {
    let event = |(index, &(sample_type, read_format, flags)): (usize, &(u64, u64, u64))| {
        Event::new(attr(endian, sample_type, read_format, flags), vec![11 + index as u64], endian)
    };
    Layouts::new(&attrs.iter().enumerate().map(event).collect::<Vec<_>>())
}

fn layouts(endian: Endian) -> Layouts {
    layouts_of(endian, &[(ALL_IDS, 0x1f, SAMPLE_ID_ALL)])
}

fn view<'a>(bytes: &'a [u8], endian: Endian) -> Record<'a> {
    let size = usize::from(endian.u16(bytes, 6).unwrap());
    Record::new(&bytes[..size], &bytes[size..], Origin::Synthetic, endian).unwrap()
}

fn show(value: &Value<'_>) -> String {
    match value {
        Value::Number(n) => n.to_string(),
        Value::Signed(n) => n.to_string(),
        Value::Hex(n) => format!("{n:#x}"),
        Value::Float(n) => n.to_string(),
        Value::Text(text) => format!("'{}'", text.escape_ascii()),
        Value::Name(name) => name.to_string(),
        Value::Bytes(bytes) => bytes.iter().map(|b| format!("{b:02x}")).collect(),
        Value::List(values) => format!("[{}]", values.iter().map(show).collect::<Vec<_>>().join(" ")),
        Value::Map(fields) => format!("{{{}}}", show_fields(fields)),
    }
}

fn show_fields(fields: &Fields<'_>) -> String {
    fields.iter().map(|(name, value)| format!("{name}={}", show(value))).collect::<Vec<_>>().join(" ")
}

fn shown(bytes: &[u8], endian: Endian, layouts: &Layouts) -> String {
    let decoded = decode(&view(bytes, endian), layouts);
    let odd = decoded.issues.iter().map(|odd| format!(" !{}", odd.code)).collect::<String>();
    format!("{}{odd}", show_fields(&decoded.fields))
}

use RecordType as T;

/// Every kind with its decoded form. `~` is the trailer.
fn records(e: Endian) -> Vec<(Vec<u8>, &'static str)> {
    let new = |kind| typed(e, kind, 2);
    let tasks = |kind| typed(e, kind, 2).u32(u32::MAX).u32(8);
    let mapping = |misc| typed(e, T::MMAP2, misc).u32(7).u32(8).u64s([0x1000, 0x2000, 0x3000]);
    let inode = |misc| mapping(misc).u32(254).u32(1).u64s([77, 78]).u32(5).u32(2);
    let id20: Vec<u8> = (1..=20).collect();
    vec![
        (
            tasks(T::MMAP).u64s([0x1000, 0x2000, 0x3000]).text("/bin/cat").trailer().done(),
            "pid=-1 tid=8 addr=0x1000 len=0x2000 pgoff=0x3000 filename='/bin/cat' ~",
        ),
        (new(T::LOST).u64s([11, 5]).trailer().done(), "id=11 lost=5 ~"),
        (tasks(T::COMM).text("cat").trailer().done(), "pid=-1 tid=8 comm='cat' ~"),
        (
            new(T::EXIT).u32(1).u32(2).u32(3).u32(4).u64(5).trailer().done(),
            "pid=1 ppid=2 tid=3 ptid=4 time=5 ~",
        ),
        (
            new(T::FORK).u32(1).u32(2).u32(3).u32(4).u64(5).trailer().done(),
            "pid=1 ppid=2 tid=3 ptid=4 time=5 ~",
        ),
        (new(T::THROTTLE).u64s([5, 11, 12]).trailer().done(), "time=5 id=11 stream_id=12 ~"),
        (new(T::UNTHROTTLE).u64s([5, 11, 12]).trailer().done(), "time=5 id=11 stream_id=12 ~"),
        (
            tasks(T::READ).u64s([2, 100, 50, 1, 11, 0, 3, 12, 4]).trailer().done(),
            "pid=-1 tid=8 time_enabled=100 time_running=50 values=[{value=1 id=11 lost=0} {value=3 id=12 lost=4}] ~",
        ),
        (
            inode(2).text("/bin/cat").trailer().done(),
            "pid=7 tid=8 addr=0x1000 len=0x2000 pgoff=0x3000 maj=254 min=1 ino=77 ino_generation=78 prot=READ|EXEC flags=0x2 \
             filename='/bin/cat' ~",
        ),
        (
            mapping(0x4002).raw([20, 0, 0, 0]).raw(&id20).u32(1).u32(1).text("x").trailer().done(),
            "pid=7 tid=8 addr=0x1000 len=0x2000 pgoff=0x3000 build_id=0102030405060708090a0b0c0d0e0f1011121314 prot=READ flags=0x1 \
             filename='x' ~",
        ),
        (
            new(T::AUX).u64s([0x10, 0x20, 0x100 | 1 << 40 | 9]).trailer().done(),
            "aux_offset=0x10 aux_size=32 flags=TRUNCATED|COLLISION|bit40 format=1 ~",
        ),
        (tasks(T::ITRACE_START).trailer().done(), "pid=-1 tid=8 ~"),
        (new(T::LOST_SAMPLES).u64(4).trailer().done(), "lost=4 ~"),
        (new(T::SWITCH).trailer().done(), "~"),
        (tasks(T::SWITCH_CPU_WIDE).trailer().done(), "next_prev_pid=-1 next_prev_tid=8 ~"),
        (
            tasks(T::NAMESPACES).u64s([8, 4, 1, 4, 2, 4, 3, 4, 4, 4, 5, 4, 6, 4, 7, 4, 8]).trailer().done(),
            "pid=-1 tid=8 link_info=[{ns=net dev=4 ino=1} {ns=uts dev=4 ino=2} {ns=ipc dev=4 ino=3} {ns=pid dev=4 ino=4} \
             {ns=user dev=4 ino=5} {ns=mnt dev=4 ino=6} {ns=cgroup dev=4 ino=7} {dev=4 ino=8}] ~",
        ),
        (
            new(T::KSYMBOL)
                .u64(0xffff_ffff_c000_0000)
                .u32(64)
                .u16(1)
                .u16(1)
                .text("bpf_prog")
                .trailer()
                .done(),
            "addr=0xffffffffc0000000 len=64 ksym_type=BPF flags=UNREGISTER name='bpf_prog' ~",
        ),
        (
            new(T::BPF_EVENT).u16(1).u16(0).u32(9).raw([1, 2, 3, 4, 5, 6, 7, 8]).trailer().done(),
            "type=PROG_LOAD flags=0x0 id=9 tag=0102030405060708 ~",
        ),
        (new(T::CGROUP).u64(5).text("/a.slice").trailer().done(), "id=5 path='/a.slice' ~"),
        (
            new(T::TEXT_POKE).u64(0x10).u16(1).u16(5).raw([0x90, 1, 2, 3, 4, 5]).zeros(6).trailer().done(),
            "addr=0x10 old_len=1 new_len=5 old_bytes=90 new_bytes=0102030405 ~",
        ),
        (new(T::AUX_OUTPUT_HW_ID).u64(0x20).trailer().done(), "hw_id=0x20 ~"),
        (
            new(T::CALLCHAIN_DEFERRED).u64s([0x600, 2, -512_i64 as u64, 0x401150]).trailer().done(),
            "cookie=0x600 ips=[USER 0x401150] ~",
        ),
        (
            new(T::HEADER_ATTR).raw(attr(e, ALL_IDS, 4, SAMPLE_ID_ALL | 1 | 2 << 15)).u64s([11, 12]).done(),
            "attr={type=SOFTWARE size=136 config=0x0 sample_period=1000 sample_type=IP|TID|TIME|ID|CPU|STREAM_ID|IDENTIFIER \
             read_format=ID flags=disabled|sample_id_all precise_ip=2 wakeup_events=0 bp_type=0x0 config1=0x0 config2=0x0 \
             branch_sample_type=- sample_regs_user=0x0 sample_stack_user=0 clockid=0 sample_regs_intr=0x0 aux_watermark=0 \
             sample_max_stack=0 reserved_2=0x0 aux_sample_size=0 aux_action=- sig_data=0x0 config3=0x0} ids=[11 12]",
        ),
        (new(T::HEADER_EVENT_TYPE).u64(1).field("cycles", 64).done(), "event_id=0x1 name='cycles'"),
        (new(T::HEADER_TRACING_DATA).u32(8).u32(0).done().into_iter().chain([1; 8]).collect(), "size=8"),
        (
            typed(e, T::HEADER_BUILD_ID, 2)
                .u32(u32::MAX)
                .raw(&id20)
                .zeros(4)
                .text("/bin/cat")
                .zeros(4)
                .done(),
            "pid=-1 build_id=0102030405060708090a0b0c0d0e0f1011121314 filename='/bin/cat'",
        ),
        (
            typed(e, T::HEADER_BUILD_ID, 0x8002)
                .u32(5)
                .raw(&id20)
                .u8(8)
                .zeros(3)
                .text("abc")
                .zeros(4)
                .trailer()
                .done(),
            "pid=5 build_id=0102030405060708 filename='abc' ~",
        ),
        (new(T::FINISHED_ROUND).done(), ""),
        (
            new(T::ID_INDEX).u64s([2, 11, 0, 1, u64::MAX, 0, 1, u64::MAX, 9]).done(),
            "entries=[{id=11 idx=0 cpu=1 tid=-1} {id=0 idx=1 cpu=-1 tid=9}]",
        ),
        (
            new(T::ID_INDEX).u64s([2, 11, 0, 1, u64::MAX, 0, 1, 2, 9, 100, 0, 100, u64::MAX]).done(),
            "entries=[{id=11 idx=0 cpu=1 tid=-1 machine_pid=100 vcpu=0} {id=0 idx=1 cpu=2 tid=9 machine_pid=100 vcpu=-1}]",
        ),
        (new(T::AUXTRACE_INFO).u32(4).u32(0).u64s([1, 255]).done(), "type=ARM_SPE priv=[0x1 0xff]"),
        (new(T::AUXTRACE_INFO).u32(8).u32(0).done(), "type=RISCV_TRACE priv=[]"),
        (
            new(T::AUXTRACE)
                .u64s([16, 0x40, 0x50])
                .u32(1)
                .u32(u32::MAX)
                .u32(2)
                .u32(0)
                .done()
                .into_iter()
                .chain([9; 16])
                .collect(),
            "size=16 offset=0x40 reference=0x50 idx=1 tid=-1 cpu=2",
        ),
        (
            new(T::AUXTRACE_ERROR).u32(1).u32(2).u32(3).u32(4).u32(5).u32(0).u64(0x10).text("bad").done(),
            "type=ITRACE code=2 cpu=3 pid=4 tid=5 fmt=0 ip=0x10 msg='bad'",
        ),
        (
            new(T::AUXTRACE_ERROR)
                .u32(1)
                .u32(2)
                .u32(3)
                .u32(4)
                .u32(5)
                .u32(1)
                .u64s([0x10, 99])
                .text("bad")
                .done(),
            "type=ITRACE code=2 cpu=3 pid=4 tid=5 fmt=1 ip=0x10 time=99 msg='bad'",
        ),
        (
            new(T::AUXTRACE_ERROR)
                .u32(1)
                .u32(2)
                .u32(u32::MAX)
                .u32(4)
                .u32(5)
                .u32(2)
                .u64s([0x10, 99])
                .field("bad", 64)
                .u32(6)
                .u32(7)
                .done(),
            "type=ITRACE code=2 cpu=-1 pid=4 tid=5 fmt=2 ip=0x10 time=99 msg='bad' machine_pid=6 vcpu=7",
        ),
        (
            new(T::THREAD_MAP).u64s([2, 5]).field("cat", 16).u64(u64::MAX).field("", 16).done(),
            "entries=[{pid=5 comm='cat'} {pid=-1 comm=''}]",
        ),
        (new(T::CPU_MAP).u16(0).u16(2).u16(1).u16(0xffff).done(), "type=CPUS cpu=[1 -1]"),
        (
            new(T::CPU_MAP).u16(1).u16(2).u16(4).u32(5).u32(1).zeros(2).done(),
            "type=MASK long_size=4 mask=[0x5 0x1]",
        ),
        (
            new(T::CPU_MAP).u16(1).u16(1).u16(8).zeros(4).u64(5).zeros(6).done(),
            "type=MASK long_size=8 mask=[0x5]",
        ),
        (
            new(T::CPU_MAP).u16(2).u8(1).u8(0).u16(2).u16(5).done(),
            "type=RANGE any_cpu=1 start_cpu=2 end_cpu=5",
        ),
        (new(T::STAT_CONFIG).u64s([2, 1, 1000, 9, 3]).done(), "data=[{tag=INTERVAL val=1000} {tag=9 val=3}]"),
        (
            new(T::STAT).u64(11).u32(u32::MAX).u32(1).u64s([10, 20, 30]).done(),
            "id=11 cpu=-1 thread=1 val=10 ena=20 run=30",
        ),
        (new(T::STAT_ROUND).u64s([1, 500]).done(), "type=FINAL time=500"),
        (new(T::EVENT_UPDATE).u64s([0, 11]).text("ms").zeros(16).done(), "type=UNIT id=11 unit='ms'"),
        (new(T::EVENT_UPDATE).u64s([1, 11, 0.25f64.to_bits()]).done(), "type=SCALE id=11 scale=0.25"),
        (new(T::EVENT_UPDATE).u64s([2, 11]).text("cycles").done(), "type=NAME id=11 name='cycles'"),
        (
            new(T::EVENT_UPDATE).u64s([3, 11]).u16(0).u16(2).u16(1).u16(0xffff).done(),
            "type=CPUS id=11 cpus={type=CPUS cpu=[1 -1]}",
        ),
        (new(T::TIME_CONV).u64s([1, 2, 3]).done(), "time_shift=1 time_mult=2 time_zero=3"),
        (
            new(T::TIME_CONV).u64s([1, 2, 3, 4, 255]).u8(1).u8(0).zeros(6).done(),
            "time_shift=1 time_mult=2 time_zero=3 time_cycles=4 time_mask=0xff cap_user_time_zero=1 cap_user_time_short=0",
        ),
        (new(T::HEADER_FEATURE).u64(3).raw([1, 2, 3]).done(), "feat_id=3 feature=HOSTNAME payload=010203"),
        (new(T::HEADER_FEATURE).u64(32).done(), "feat_id=32 feature=end"),
        (new(T::COMPRESSED).raw([1, 2, 3]).done(), "size=3"),
        (new(T::FINISHED_INIT).done(), ""),
        (new(T::COMPRESSED2).u64(3).raw([1, 2, 3]).zeros(5).done(), "data_size=3"),
        (
            new(T::BPF_METADATA).field("prog", 512).u64(1).field("key", 64).field("value", 256).done(),
            "prog_name='prog' entries=[{key='key' value='value'}]",
        ),
        (
            (1..=6)
                .fold(new(T::SCHEDSTAT_CPU).u64(100).u32(1).u16(17).u16(0), Typed::u32)
                .u64s([7, 8, 9])
                .done(),
            "timestamp=100 cpu=1 version=17 yld_count=1 array_exp=2 sched_count=3 sched_goidle=4 ttwu_count=5 ttwu_local=6 \
             rq_cpu_time=7 run_delay=8 pcount=9",
        ),
        (
            (1..=36)
                .fold(new(T::SCHEDSTAT_DOMAIN).u64(100).u32(1).u16(15).u16(2), Typed::u32)
                .zeros(40)
                .done(),
            "timestamp=100 cpu=1 version=15 domain=2 load_balance=[\
             {cpu_is=idle lb_count=1 lb_balanced=2 lb_failed=3 lb_imbalance=4 lb_gained=5 lb_hot_gained=6 lb_nobusyq=7 lb_nobusyg=8} \
             {cpu_is=busy lb_count=9 lb_balanced=10 lb_failed=11 lb_imbalance=12 lb_gained=13 lb_hot_gained=14 lb_nobusyq=15 lb_nobusyg=16} \
             {cpu_is=newidle lb_count=17 lb_balanced=18 lb_failed=19 lb_imbalance=20 lb_gained=21 lb_hot_gained=22 lb_nobusyq=23 \
             lb_nobusyg=24}] alb_count=25 alb_failed=26 alb_pushed=27 sbe_count=28 sbe_balanced=29 sbe_pushed=30 sbf_count=31 \
             sbf_balanced=32 sbf_pushed=33 ttwu_wake_remote=34 ttwu_move_affine=35 ttwu_move_balance=36",
        ),
        (
            new(T(40)).u64(5).trailer().done(),
            match e {
                Endian::Little => "bytes=0500000000000000 ~ !kind-unknown",
                Endian::Big => "bytes=0000000000000005 ~ !kind-unknown",
            },
        ),
        (new(T(4000)).raw([1; 8]).done(), "bytes=0101010101010101 !kind-unknown"),
    ]
}

#[test]
fn every_kind_in_both_byte_orders() {
    for endian in BOTH {
        let mut missing = T::NAMED.to_vec();
        let mut with_texts = Kinds::of(&[T::SAMPLE]);
        for (bytes, expected) in records(endian) {
            let expected = expected.replace('~', TRAILER);
            let record = view(&bytes, endian);
            missing.retain(|&kind| kind != record.kind());
            let layouts = if record.kind() == T::MMAP2 && record.misc() & MMAP_BUILD_ID != 0 {
                layouts_of(endian, &[(ALL_IDS, 0, SAMPLE_ID_ALL | BUILD_ID)])
            } else {
                layouts(endian)
            };
            let shown = shown(&bytes, endian, &layouts);
            assert_eq!(shown, expected, "{} {endian:?}", record.kind());
            if !decode(&record, &layouts).texts(&bytes).is_empty() {
                with_texts.insert(record.kind());
            }
        }
        assert_eq!(with_texts.names(), Kinds::TEXTS.names());
        assert_eq!(missing, [T::SAMPLE], "typed in the tests of sample.rs");
    }
}

/// Decodes copies of a record, cut or changed at every byte. The oddities must be the same without values.
fn damage(bytes: &[u8], endian: Endian, all: &[Layouts]) {
    let look = |bytes: &[u8], layouts: &Layouts| {
        let record = view(bytes, endian);
        assert_eq!(decode(&record, layouts).issues, issues(&record, layouts), "{record:?}");
    };
    let size = view(bytes, endian).bytes().len();
    for cut in 8..=size {
        let mut cut_bytes = bytes[..cut].to_vec();
        endian.set_u16(&mut cut_bytes, 6, cut as u16);
        all.iter().for_each(|layouts| look(&cut_bytes, layouts));
    }
    for at in (0..size).filter(|at| !(6..8).contains(at)) {
        for change in [0x01, 0x10, 0x80, 0xff] {
            let mut changed = bytes.to_vec();
            changed[at] ^= change;
            look(&changed, &all[0]);
        }
    }
}

/// Damaged records, cut or changed at every byte, decode to fields of all their bytes, without a panic.
#[test]
fn damage_never_panics() {
    for endian in BOTH {
        let all = [
            layouts(endian),
            Layouts::new(&[]),
            layouts_of(endian, &[(ALL_IDS, 0, SAMPLE_ID_ALL), (st::TIME | ALL_IDS, 4, SAMPLE_ID_ALL)]),
            layouts_of(endian, &[(ALL_IDS, 0, SAMPLE_ID_ALL), (st::TIME, 4, 0)]),
        ];
        for (bytes, _) in records(endian) {
            damage(&bytes, endian, &all);
        }
    }
}

#[test]
fn a_sample_with_a_call_chain_or_raw_data_of_exactly_its_length_is_sound() {
    for endian in BOTH {
        let front =
            || typed(endian, T::SAMPLE, 1).u64s([11, 0x1000]).u32(7).u32(7).u64s([9, 11, 12]).u32(3).u32(0);
        let chain = front().u64s([2, 0x1000, 0x2000]).done();
        let raw = front().u32(12).zeros(12).done();
        for (bit, bytes) in [(st::CALLCHAIN, chain), (st::RAW, raw)] {
            let layouts = layouts_of(endian, &[(ALL_IDS | bit, 0, SAMPLE_ID_ALL)]);
            assert_eq!(issues(&view(&bytes, endian), &layouts), []);
            damage(&bytes, endian, &[layouts]);
        }
    }
}

/// Size, cookie, count and pid are those of the example in the patch that introduced the kind.
#[test]
fn a_deferred_call_chain_byte_by_byte() {
    #[rustfmt::skip]
    let bytes = [
        22, 0, 0, 0, 2, 0, 0x40, 0,
        6, 0, 0, 0, 0x0b, 0, 0, 0,
        3, 0, 0, 0, 0, 0, 0, 0,
        0x00, 0xfe, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff,
        0x94, 0x9c, 0x2c, 0x5b, 0x31, 0x7f, 0, 0,
        0x5a, 0x45, 0x30, 0x5b, 0x31, 0x7f, 0, 0,
        0x08, 0x09, 0, 0, 0x08, 0x09, 0, 0,
        0xea, 0x8f, 0x81, 0x3c, 0x9d, 0x04, 0, 0,
    ];
    let endian = Endian::Little;
    let layouts = layouts_of(endian, &[(st::TID | st::TIME, 0, SAMPLE_ID_ALL)]);
    assert_eq!(
        shown(&bytes, endian, &layouts),
        "cookie=0xb00000006 ips=[USER 0x7f315b2c9c94 0x7f315b30455a] sample_id={pid=2312 tid=2312 time=5073371500522}"
    );
}

#[test]
fn the_build_id_bit_is_believed_only_where_a_build_id_is() {
    for e in BOTH {
        let front = || typed(e, T::MMAP2, 0x4002).u32(7).u32(8).u64s([0x1000, 0x2000, 0]);
        let end = |typed: Typed, id| typed.u32(4).u32(2).text("/x").u32(7).u32(8).u64(id).done();
        // Two events: 11 without build-ids, 12 with.
        let trailer = st::TID | st::IDENTIFIER;
        let one = layouts_of(e, &[(trailer, 0, SAMPLE_ID_ALL)]);
        let two = layouts_of(e, &[(trailer, 0, SAMPLE_ID_ALL), (trailer, 0, SAMPLE_ID_ALL | BUILD_ID)]);
        let verdict = |bytes: &[u8], layouts| match mmap_build_id(&view(bytes, e), layouts).unwrap() {
            MmapBuildId::Clear => "clear".to_owned(),
            MmapBuildId::BuildId(id) => format!("{} bytes", id.len()),
            MmapBuildId::Wrong => "wrong".to_owned(),
        };
        // Device 8:1, inode 77, generation 0. Only in little-endian order does 8 look like a size.
        let inode = |id| end(front().u32(8).u32(1).u64s([77, 0]), id);
        assert_eq!(verdict(&inode(11), &one), "wrong");
        assert_eq!(verdict(&inode(11), &two), "wrong");
        assert_eq!(verdict(&inode(12), &two), if e == Endian::Little { "8 bytes" } else { "wrong" });
        // Device 254:0.
        assert_eq!(verdict(&end(front().u32(254).u32(0).u64s([77, 5]), 12), &two), "wrong");
        let id =
            |id: &[u8], event| end(front().u8(id.len() as u8).zeros(3).raw(id).zeros(20 - id.len()), event);
        // As perf inject writes it: no event has attr.build_id.
        assert_eq!(verdict(&id(&[0xab; 20], 11), &one), "20 bytes");
        assert_eq!(verdict(&id(&[0xab; 8], 11), &one), "8 bytes");
        // As perf record synthesises it, with id 0.
        assert_eq!(verdict(&id(&[1, 0, 0, 0, 2, 0, 0, 0], 0), &two), "8 bytes");
        assert_eq!(verdict(&id(&[], 12), &two), "wrong");
        let shown = shown(&inode(11), e, &one);
        let both = match e {
            Endian::Little => "build_id_size=8 build_id=010000004d00000000000000000000000000000",
            Endian::Big => "build_id_size=0 build_id=00000001000000000000004d0000000000000000",
        };
        assert!(shown.contains("maj=8 min=1 ino=77 ino_generation=0"), "{shown}");
        assert!(shown.contains(both) && shown.ends_with("!mmap-build-id-bit"), "{shown}");
    }
}

#[test]
fn what_is_odd_has_a_code() {
    let long_name = format!("pid=1 tid=2 comm='{}' !string-unterminated", "x".repeat(64));
    let e = Endian::Little;
    let (one, none) = (layouts(e), Layouts::new(&[]));
    let plain = layouts_of(e, &[(ALL_IDS, 0, 0)]);
    let disagree = layouts_of(e, &[(st::IDENTIFIER, 0, SAMPLE_ID_ALL), (st::TIME, 0, SAMPLE_ID_ALL)]);
    let two = layouts_of(e, &[(ALL_IDS, 0, SAMPLE_ID_ALL), (ALL_IDS | st::PERIOD, 0, SAMPLE_ID_ALL)]);
    let new = |kind| typed(e, kind, 2);
    let comm = |text: &str| new(T::COMM).u32(1).u32(2).raw(text);
    let cases: Vec<(Vec<u8>, &Layouts, &str)> = vec![
        // A size that is not a multiple of 8, and the kinds that allow one.
        (new(T::FINISHED_ROUND).zeros(1).done(), &one, " !size-unaligned"),
        (new(T::COMPRESSED).done(), &one, "size=0 !compressed-size"),
        (new(T::COMPRESSED2).u64(9).raw([1; 8]).done(), &one, "data_size=9 !compressed-size"),
        (new(T::COMPRESSED2).u64(0).raw([1; 8]).done(), &one, "data_size=0 !compressed-size"),
        (
            new(T::HEADER_TRACING_DATA).u32(3).done().into_iter().chain([1; 3]).collect(),
            &one,
            "size=3 !payload-unaligned",
        ),
        (typed(e, T::SWITCH, 7).done(), &plain, " !cpumode-unknown"),
        // Strings.
        (comm("12345678").done(), &plain, "pid=1 tid=2 comm='12345678' !string-unterminated"),
        // perf pads with whatever is in its buffer.
        (comm("123\0\0\0\x005").done(), &plain, "pid=1 tid=2 comm='123' rest=00000035"),
        (
            comm("123\0\0\0\x0056789abcd").done(),
            &plain,
            "pid=1 tid=2 comm='123' rest=000000353637383961626364 !rest",
        ),
        (comm("").done(), &plain, "pid=1 tid=2 !too-small"),
        // The trailer. Without one the string needs all bytes; with one, too much padding would follow it.
        (comm("/a/long/name\0\0\0\0").done(), &one, "pid=1 tid=2 comm='/a/long/name' !trailer-missing"),
        // Text up to the end of the record is not a trailer.
        (comm(&"x".repeat(64)).done(), &one, &long_name),
        (new(T::FORK).u64s([1, 2, 3]).done(), &one, "pid=1 ppid=0 tid=2 ptid=0 time=3 !trailer-missing"),
        (new(T::FORK).u64s([1, 2]).done(), &one, "pid=1 ppid=0 tid=2 ptid=0 !too-small"),
        (new(T::SWITCH).done(), &one, " !trailer-missing"),
        // The event.
        (
            comm("a\0\0\0\0\0\0\0").u64s([3, 4]).done(),
            &none,
            "pid=1 tid=2 comm='a' rest=00000000000003000000000000000400000000000000 !no-event",
        ),
        (new(T::SWITCH).done(), &none, " !no-event"),
        (new(T::SWITCH).u64(5).done(), &disagree, "rest=0500000000000000 !id-position"),
        (new(T::SAMPLE).u64(5).done(), &disagree, "bytes=0500000000000000 !id-position"),
        (new(T::SAMPLE).u64(5).done(), &two, "bytes=0500000000000000 !id-unknown"),
        (
            new(T::SWITCH).u64s([0, 0, 9, 9, 0, 9]).done(),
            &one,
            "sample_id={pid=0 tid=0 time=0 id=9 stream_id=9 cpu=0 identifier=9} !id-unknown",
        ),
        (
            new(T::SWITCH).u64s([0, 0, 0, 0, 0, 9]).done(),
            &two,
            "sample_id={pid=0 tid=0 time=0 id=0 stream_id=0 cpu=0 identifier=9} !id-unknown",
        ),
        (
            new(T::ID_INDEX).u64s([1, 9, 0, 0, 0]).done(),
            &one,
            "entries=[{id=9 idx=0 cpu=0 tid=0}] !id-unknown",
        ),
        (new(T::EVENT_UPDATE).u64s([2, 9]).text("x").done(), &one, "type=NAME id=9 name='x' !id-unknown"),
        // Counts.
        (
            new(T::NAMESPACES).u64s([0, 1 << 60, 1, 2]).done(),
            &plain,
            "pid=0 tid=0 link_info=[{ns=net dev=1 ino=2}] !count-too-large",
        ),
        (
            new(T::ID_INDEX).u64s([u64::MAX, 11, 0, 0, 0, 5]).done(),
            &one,
            "entries=[{id=11 idx=0 cpu=0 tid=0}] rest=0500000000000000 !count-too-large",
        ),
        (new(T::ID_INDEX).u64(1 << 59 | 1).done(), &one, "entries=[] !count-too-large"),
        (new(T::ID_INDEX).u64((1 << 59) - 1).done(), &one, "entries=[] !count-too-large"),
        (new(T::THREAD_MAP).u64(3).done(), &one, "entries=[] !count-too-large"),
        (new(T::CPU_MAP).u16(0).u16(9).u32(0).done(), &one, "type=CPUS cpu=[0 0] !count-too-large"),
        (new(T::CALLCHAIN_DEFERRED).u64s([5, 9, 1]).done(), &plain, "cookie=0x5 ips=[0x1] !count-too-large"),
        (
            new(T::TEXT_POKE).u64(5).u16(1).u16(9).raw([1, 2, 0, 0]).done(),
            &plain,
            "addr=0x5 old_len=1 new_len=9 old_bytes=01 rest=020000 !count-too-large",
        ),
        // Unknown numbers.
        (new(T::CPU_MAP).u16(9).u16(1).u32(1).done(), &one, "type=9 rest=010001000000 !cpu-map-type"),
        (
            new(T::CPU_MAP).u16(1).u16(1).u16(2).u16(1).done(),
            &one,
            "type=MASK long_size=2 rest=0100 !cpu-map-type",
        ),
        (
            new(T::EVENT_UPDATE).u64s([9, 11, 1]).done(),
            &one,
            "type=9 id=11 rest=0100000000000000 !update-type",
        ),
        (new(T::AUXTRACE_INFO).u32(9).u32(0).done(), &one, "type=9 priv=[] !auxtrace-type"),
        (
            new(T::SCHEDSTAT_CPU).u64(1).u32(1).u16(18).u16(0).u64(1).done(),
            &one,
            "timestamp=1 cpu=1 version=18 rest=0100000000000000 !schedstat-version",
        ),
        (new(T::HEADER_FEATURE).u64(200).raw([1]).done(), &one, "feat_id=200 payload=01 !feature-unknown"),
        (
            new(T::HEADER_FEATURE).u64(1 << 40).raw([1]).done(),
            &one,
            "feat_id=1099511627776 payload=01 !feature-unknown",
        ),
        // Build-ids.
        (
            typed(e, T::HEADER_BUILD_ID, 0x8002).u32(1).zeros(20).u32(0).text("abc").zeros(4).done(),
            &one,
            "pid=1 build_id= filename='abc' !build-id-size",
        ),
        (
            typed(e, T::HEADER_BUILD_ID, 0x8002).u32(1).raw([1; 20]).u32(21).text("abc").zeros(4).done(),
            &one,
            "pid=1 build_id=0101010101010101010101010101010101010101 filename='abc' !build-id-size",
        ),
    ];
    for (bytes, layouts, expected) in cases {
        let shown = shown(&bytes, e, layouts);
        assert!(shown.starts_with(expected), "{shown}\n{expected}");
        if expected.contains('!') {
            assert_eq!(shown, expected);
        }
    }
}

#[test]
fn an_attr_of_any_size() {
    for endian in BOTH {
        let raw = attr(endian, st::READ | 1 << 25, 8, 1 << 10 | 1 << 14 | 1 << 25 | 1 << 40);
        let names = |size| show_fields(&decode_attr(&raw[..size], endian));
        assert!(names(64).ends_with("bp_type=0x0 config1=0x0"));
        // Cut inside a field.
        assert!(names(66).ends_with("config1=0x0 tail=0000"));
        assert!(names(136).ends_with("sig_data=0x0 config3=0x0"));
        let names = names(136);
        for part in [
            "sample_freq=1000",
            "sample_type=READ|bit25",
            "flags=freq|watermark|use_clockid|bit40",
            "wakeup_watermark=0",
            "clockid=REALTIME",
        ] {
            assert!(names.contains(part), "{names}");
        }
        let long = [&raw[..], &[0; 8], &[1; 8]].concat();
        assert!(show_fields(&decode_attr(&long, endian)).ends_with("config4=0x0 tail=0101010101010101"));
        let codes = |size| {
            let odd = attr_issues(&Attr::decode(&raw, endian), size);
            odd.into_iter().map(|odd| format!("{}: {}", odd.code, odd.what)).collect::<Vec<_>>()
        };
        let expected = [
            "attr-bits: `flags` has bit40",
            "attr-bits: `sample_type` has bit25",
            "read-without-id: samples have counters without their ids",
        ];
        assert_eq!(codes(136), expected);
        assert_eq!(codes(128)[0], "attr-size: an attr of 128 bytes says it has 136");
        for size in 0..long.len() {
            decode_attr(&long[..size], endian);
        }
    }
}

#[test]
fn bits_and_bytes_of_an_attr_that_are_not_known_are_cleared() {
    for endian in BOTH {
        let mut raw = vec![0xff; 160];
        assert!(clear_unknown(&mut raw, endian) > 0);
        let attr = Attr::decode(&raw, endian);
        let bits = [attr.flags, attr.sample_type, attr.read_format, attr.branch_sample_type];
        assert_eq!(bits, [40, 25, 5, 20].map(|bits| (1 << bits) - 1));
        assert_eq!((attr.aux_action, attr.config, attr.config4), (7, u64::MAX, u64::MAX));
        assert_eq!(raw[144..], [0; 16]);
        assert_eq!(clear_unknown(&mut raw, endian), 0);
        for size in 0..raw.len() {
            clear_unknown(&mut vec![0xff; size], endian);
        }
    }
}

#[test]
fn misc_bits_have_names() {
    for (kind, misc, expected) in [
        (T::MMAP2, 0x7002, "user|PROC_MAP_PARSE_TIMEOUT|MMAP_DATA|MMAP_BUILD_ID"),
        (T::MMAP, 0x2001, "kernel|MMAP_DATA"),
        (T::COMM, 0x2002, "user|COMM_EXEC"),
        (T::FORK, 0x2000, "unknown|FORK_EXEC"),
        (T::SWITCH, 0x6000, "unknown|SWITCH_OUT|SWITCH_OUT_PREEMPT"),
        (T::SAMPLE, 0x4005, "guest_user|EXACT_IP"),
        (T::SAMPLE, 0x0004, "guest_kernel"),
        (T::SAMPLE, 0x0803, "hypervisor|bit11"),
        (T::LOST_SAMPLES, 0x8000, "unknown|LOST_SAMPLES_BPF"),
        (T::HEADER_BUILD_ID, 0x8002, "user|BUILD_ID_SIZE"),
        (T::FINISHED_ROUND, 0, "-"),
        (T::FINISHED_ROUND, 0x4007, "cpumode7|bit14"),
    ] {
        assert_eq!(misc_names(kind, misc), expected);
    }
}

/// The parts of a sample by their decoded names; `src/format/sample/tests.rs` tests their layouts.
#[test]
fn a_sample_in_words() {
    for e in BOTH {
        let with =
            st::CALLCHAIN | st::RAW | st::BRANCH_STACK | st::REGS_USER | st::STACK_USER | st::WEIGHT_STRUCT;
        let with = with | st::DATA_SRC | st::TRANSACTION | st::AUX | st::READ | st::IP;
        let mut raw = attr(e, with, 1 | 4, 0);
        e.set_u64(&mut raw, 72, 1 << 17 | 1 << 19);
        e.set_u64(&mut raw, 80, 1 << 3 | 1);
        let layouts = Layouts::new(&[Event::new(raw, vec![11], e)]);
        let flags = if e == Endian::Big { 1 << 62 | 5 << 44 } else { 1 << 1 | 5 << 4 };
        let bytes = typed(e, T::SAMPLE, 2)
            .u64s([0x401150, 1000, 500, 11])
            .u64s([3, -128_i64 as u64, 0xffff_ffff_8100_0000, -4000_i64 as u64])
            .u32(4)
            .raw([1, 2, 3, 4])
            .u64s([1, u64::MAX, 0x10, 0x20, flags, 7])
            .u64s([1, 0x30, 0x40])
            .u64(8)
            .raw([5; 8])
            .u64(9)
            .u64s([3 << 48 | 2 << 32 | 1, 1 << 1, 5 << 32 | 2])
            .u64(8)
            .raw([6; 8]);
        let expected = "ip=0x401150 read={value=1000 time_enabled=500 id=11} callchain=[KERNEL 0xffffffff81000000 0xfffffffffffff060] \
                        raw=01020304 branch_stack={hw_idx=-1 entries=[{from=0x10 to=0x20 predicted=1 cycles=5}] counters=[0x7]} \
                        regs_user={abi=32 mask=0x9 values=[0x30 0x40]} stack_user={dyn_size=9 bytes=0505050505050505} \
                        weight={var1_dw=1 var2_w=2 var3_w=3} data_src={val=0x2 op=LOAD} \
                        transaction={flags=TRANSACTION abort_code=0x5} aux=0606060606060606";
        let bytes = bytes.done();
        assert_eq!(shown(&bytes, e, &layouts), format!("{expected} !stack-size"));
        let longer = Typed(e, bytes).u64(0).done();
        assert_eq!(
            shown(&longer, e, &layouts),
            format!("{expected} rest=0000000000000000 !stack-size !rest")
        );
        let shorter = typed(e, T::SAMPLE, 2).u64s([0x401150, 1000, 500, 11, 9, 0x10]).done();
        let expected = "ip=0x401150 read={value=1000 time_enabled=500 id=11} rest=";
        let shown = shown(&shorter, e, &layouts);
        assert!(shown.starts_with(expected) && shown.ends_with(" !count-too-large"), "{shown}");
    }
}

#[test]
fn bytes_that_hold_no_field_are_gaps() {
    for endian in BOTH {
        let layouts = layouts(endian);
        let gaps = |bytes: &[u8]| decode(&view(bytes, endian), &layouts).gaps;
        let comm = typed(endian, RecordType::COMM, 0).u32(7).u32(7).text("sh").trailer().done();
        // After the NUL, and after the CPU of the trailer.
        assert_eq!(gaps(&comm), [11..16, 52..56]);
        let lost = typed(endian, RecordType::LOST, 0).u64s([11, 2]).raw([5; 8]).trailer().done();
        assert_eq!(gaps(&lost), [16..24, 60..64]);
        let sample = typed(endian, RecordType::SAMPLE, 0).u64s([11, 1, 2, 3, 11, 12, 3]).raw([5; 8]).done();
        assert_eq!(gaps(&sample), [52..56, 56..64]);
        let mut bytes = Cow::Borrowed(&lost[..]);
        assert_eq!(clear_gaps(gaps(&lost), &mut bytes), 8);
        assert_eq!(bytes[24..32], [0; 8]);
        assert_eq!((&bytes[..24], &bytes[32..]), (&lost[..24], &lost[32..]));
    }
}
