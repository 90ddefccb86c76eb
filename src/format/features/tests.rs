//! Decodes every feature from typed bytes in both byte orders, cut and changed at every byte.

use super::*;
use crate::record::build_id::BuildIdEntry;
use crate::value::Fields;

const CPUS: FeatureContext = FeatureContext { cpus: Some(NrCpus { available: 3, online: 2 }) };
const BOTH: [Endian; 2] = [Endian::Little, Endian::Big];

struct Bytes(Endian, Vec<u8>);

impl Bytes {
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
    fn raw(mut self, value: impl AsRef<[u8]>) -> Self {
        self.1.extend(value.as_ref());
        self
    }
    fn zeros(mut self, count: usize) -> Self {
        self.1.resize(self.1.len() + count, 0);
        self
    }
    /// A STR padded to 64 as perf does.
    fn str(self, text: &str) -> Self {
        let padded = (text.len() / 64 + 1) * 64;
        self.u32(padded as u32).raw(text).zeros(padded - text.len())
    }
    fn bare(self, text: &str) -> Self {
        self.u32(text.len() as u32 + 1).raw(text).zeros(1)
    }
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

fn shown(decoded: &Decoded<'_>) -> String {
    let codes = decoded.issues.iter().map(|odd| format!(" !{}", odd.code));
    show_fields(&decoded.fields) + &codes.collect::<String>()
}

fn count(fields: &Fields<'_>) -> usize {
    fn one(value: &Value<'_>) -> usize {
        1 + match value {
            Value::List(values) => values.iter().map(one).sum(),
            Value::Map(fields) => count(fields),
            _ => 0,
        }
    }
    fields.iter().map(|(_, value)| one(value)).sum()
}

type Case = (Feature, fn(Bytes) -> Bytes, &'static str);

/// (feature, section, what it decodes to).
const CASES: &[Case] = &[
    (
        Feature::TRACING_DATA,
        |b| {
            let big = u8::from(b.0 == Endian::Big);
            b.raw(b"\x17\x08\x44tracing0.6\0")
                .raw([big, 8])
                .u32(4096)
                .raw("header_page\0")
                .u64(3)
                .raw("abc")
                .raw("header_event\0")
                .u64(1)
                .raw("d")
                .u32(1)
                .u64(16)
                .raw("name: function\nx")
                .u32(2)
                .raw("sched\0")
                .u32(2)
                .u64(14)
                .raw("name: a\nID: 7\n")
                .u64(2)
                .raw("??")
                .raw("irq\0")
                .u32(0)
                .u32(0)
                .u32(2)
                .raw("fm")
                .u64(4)
                .raw("1 a\n")
                .zeros(5)
        },
        "version='0.6' byte_order=ORDER long_size=8 page_size=4096 header_page_size=3 header_event_size=1 \
         ftrace=[{size=16 name='function'}] systems=[{name='sched' events=[{size=14 name='a' id=7} {size=2}]} \
         {name='irq' events=[]}] kallsyms_size=0 printk_size=2 saved_cmdlines_size=4",
    ),
    (
        Feature::BUILD_ID,
        |b| {
            b.u32(0)
                .u16(0x8002)
                .u16(45)
                .u32(u32::MAX)
                .raw([0xab; 16])
                .zeros(4)
                .raw([16, 0, 0, 0])
                .raw("/bin/sh\0?")
                .u32(67)
                .u16(1)
                .u16(38)
                .u32(7)
                .raw([1; 20])
                .zeros(4)
                .raw("k\0")
        },
        "dsos=[{misc=0x8002 pid=-1 id=abababababababababababababababab filename='/bin/sh'} \
         {misc=0x1 pid=7 id=0101010101010101010101010101010101010101 filename='k'}]",
    ),
    (Feature::HOSTNAME, |b| b.str("host"), "text='host'"),
    (Feature::OSRELEASE, |b| b.bare("6.1.0-1-amd64"), "text='6.1.0-1-amd64'"),
    (Feature::VERSION, |b| b.str("7.3"), "text='7.3'"),
    (Feature::ARCH, |b| b.str("x86_64"), "text='x86_64'"),
    (Feature::NRCPUS, |b| b.u32(3).u32(2), "available=3 online=2"),
    (Feature::CPUDESC, |b| b.u32(2).raw("ab"), "text='ab' !string-unterminated"),
    (Feature::CPUID, |b| b.u32(64).raw("A,1\0").zeros(60), "text='A,1'"),
    (Feature::TOTAL_MEM, |b| b.u64(24_684_096), "kb=24684096"),
    (
        Feature::CMDLINE,
        |b| b.u32(3).str("/usr/bin/perf").bare("record").str(""),
        "arguments=['/usr/bin/perf' 'record' '']",
    ),
    (
        Feature::EVENT_DESC,
        |b| {
            // An attr of 152 bytes is larger than any we know.
            let attr = |b: Bytes, config| b.u32(1).u32(152).u64(config).zeros(136);
            let b = attr(b.u32(2).u32(152), 0).u32(2).str("cycles:u").u64(5).u64(6);
            attr(b, 3).u32(0).bare("cs")
        },
        "attr_size=152 events=[{attr={ATTR} name='cycles:u' ids=[5 6]} {attr={ATTR} name='cs' ids=[]}]",
    ),
    (Feature::CPU_TOPOLOGY, |b| b.u32(1).str("0-2").u32(0), "packages=['0-2'] threads=[]"),
    (
        Feature::CPU_TOPOLOGY,
        |b| b.u32(0).u32(1).str("0").u32(0).u32(0).u32(1).u32(0).u32(u32::MAX).u32(u32::MAX),
        "packages=[] threads=['0'] cpus=[{core=0 package=0} {core=1 package=0} {core=-1 package=-1}]",
    ),
    (
        Feature::CPU_TOPOLOGY,
        |b| b.u32(0).u32(0).zeros(24).u32(1).str("0-1").u32(0).u32(0).u32(u32::MAX),
        "packages=[] threads=[] cpus=[{core=0 package=0} {core=0 package=0} {core=0 package=0}] dies=['0-1'] die_of_cpu=[0 0 -1]",
    ),
    (
        Feature::NUMA_TOPOLOGY,
        |b| b.u32(1).u32(4).u64(100).u64(50).str("0-1"),
        "nodes=[{node=4 total_kb=100 free_kb=50 cpus='0-1'}]",
    ),
    (Feature::BRANCH_STACK, |b| b, ""),
    (
        Feature::PMU_MAPPINGS,
        |b| b.u32(2).u32(1).str("software").u32(4).str("cpu"),
        "pmus=[{type=1 name='software'} {type=4 name='cpu'}]",
    ),
    (
        Feature::GROUP_DESC,
        |b| b.u32(1).str("{anon_group}").u32(2).u32(3),
        "groups=[{name='{anon_group}' leader=2 members=3}]",
    ),
    (Feature::AUXTRACE, |b| b.u64(1).u64(0x1000).u64(48), "entries=[{offset=0x1000 size=48}]"),
    (Feature::STAT, |b| b, ""),
    (
        Feature::CACHE,
        |b| b.u32(1).u32(1).u32(2).u32(64).u32(1024).u32(8).str("Unified").str("512K").str("0-1"),
        "version=1 caches=[{level=2 line_size=64 sets=1024 ways=8 type='Unified' size='512K' cpus='0-1'}]",
    ),
    (Feature::SAMPLE_TIME, |b| b.u64(1).u64(u64::MAX), "first_ns=1 last_ns=18446744073709551615"),
    (
        Feature::MEM_TOPOLOGY,
        |b| b.u64(1).u64(0x800_0000).u64(2).u64(0).u64(65).u64(65).u64(u64::MAX).u64(1).u64(1).u64(0).u64(0),
        "version=1 block_size=0x8000000 nodes=[{node=0 blocks=65 bitmap=[0xffffffffffffffff 0x1]} {node=1 blocks=0 bitmap=[]}]",
    ),
    (Feature::CLOCKID, |b| b.u64(1), "resolution_ns=1"),
    (Feature::DIR_FORMAT, |b| b.u64(1), "version=1"),
    (
        Feature::BPF_PROG_INFO,
        |b| {
            b.u32(2)
                .u32(80)
                .u32(3)
                .u64(0x21)
                .u32(8)
                .u32(42)
                .raw([9; 8])
                .zeros(48)
                .raw("prog\0")
                .zeros(11)
                .raw("xyz")
                // Three functions: of the last one only the address is there.
                .u32(192)
                .u32(40)
                .u64(0)
                .u32(1)
                .u32(43)
                .zeros(96)
                .u32(3)
                .u32(2)
                .u64(0)
                .u64(24)
                .zeros(52)
                .u32(1)
                .u64(32)
                .u64(0xffff_0000)
                .u64(0xffff_1000)
                .u64(0xffff_2000)
                .u32(16)
                .u32(32)
                .raw([7; 8])
        },
        "programs=[{info_size=80 data_size=3 arrays=0x21 type=8 id=42 tag=0909090909090909 name='prog'} \
         {info_size=192 data_size=40 arrays=0x0 type=1 id=43 tag=0000000000000000 name='' functions=[\
         {addr=0xffff0000 size=16 tag=0707070707070707} {addr=0xffff1000 size=32} {addr=0xffff2000}]}]",
    ),
    (Feature::BPF_BTF, |b| b.u32(1).u32(17).u32(2).raw("ab"), "btfs=[{id=17 size=2}]"),
    (
        Feature::COMPRESSED,
        |b| b.u32(0).u32(1).u32(3).u32(9).u32(528_384),
        "version=0 method=1 level=3 ratio=9 mmap_len=528384",
    ),
    (
        Feature::CPU_PMU_CAPS,
        |b| b.u32(1).str("max_precise").str("3"),
        "capabilities=[{name='max_precise' value='3'}]",
    ),
    (
        Feature::CLOCK_DATA,
        |b| b.u32(1).u32(4).u64(1_700_000_000).u64(77),
        "version=1 clockid=4 wall_ns=1700000000 clock_ns=77",
    ),
    (
        Feature::HYBRID_TOPOLOGY,
        |b| b.u32(1).str("cpu_core").str("0-7"),
        "pmus=[{name='cpu_core' cpus='0-7'}]",
    ),
    (
        Feature::PMU_CAPS,
        |b| b.u32(2).u32(1).str("branches").str("32").str("cpu_core").u32(0).str("cpu_atom"),
        "pmus=[{capabilities=[{name='branches' value='32'}] name='cpu_core'} {capabilities=[] name='cpu_atom'}]",
    ),
    (
        Feature::CPU_DOMAIN_INFO,
        |b| b.u32(17).u32(1).u32(0).u32(1).u32(0).str("SMT").str("3").str("0-1").u32(1).u32(0),
        "schedstat_version=17 domains_max=1 cpus=[{cpu=0 domains=[{domain=0 name='SMT' mask='3' cpus='0-1'}]} {cpu=1 domains=[]}]",
    ),
    (
        Feature::CPU_DOMAIN_INFO,
        |b| b.u32(15).u32(1).u32(0).u32(1).u32(0).str("3").str("0-1").u32(1).u32(0),
        "schedstat_version=15 domains_max=1 cpus=[{cpu=0 domains=[{domain=0 mask='3' cpus='0-1'}]} {cpu=1 domains=[]}]",
    ),
    (Feature::E_MACHINE, |b| b.u32(62).u32(5), "e_machine=62 e_flags=0x5"),
    (Feature::CLN_SIZE, |b| b.u32(64), "size=64"),
    (
        Feature::AUXTRACE,
        |b| b.u64(0x300).u64(48).u64(0x500).u64(48),
        "entries=[{offset=0x300 size=48} {offset=0x500 size=48}]",
    ),
    (
        Feature::META_INFO,
        |b| b.raw("clockid\0perf\0android_version\x0015\0"),
        "infos=[{key='clockid' value='perf'} {key='android_version' value='15'}]",
    ),
    (
        Feature::FILE,
        |b| {
            // A symbol `f`, and the offset of an ELF file; no symbol.
            let elf = b.u32(3 + 4 + 8 + 4 + 14 + 8).raw("/a\0").u32(2).u64(0x1000).u32(1);
            let b = elf.u64(0x1010).u32(16).raw("f\0").u64(7);
            b.u32(6 + 4 + 8 + 4).raw("[krn]\0").u32(0).u64(1).u32(0)
        },
        "files=[{path='/a' type=ELF file min_vaddr=0x1000 symbols=1} \
         {path='[krn]' type=kernel min_vaddr=0x1 symbols=0}]",
    ),
    (
        Feature::FILE2,
        |b| {
            // A path, a type, an address as a varint of two bytes, two symbols, the offset of an ELF file.
            let elf = *b"\x0a\x02/a\x10\x02\x18\x80\x20\x22\x02\x08\x01\x22\x00\x32\x02\x08\x07";
            b.u32(19).raw(elf).u32(11).raw("\x0a\x05[krn]\x10\0\x18\x01")
        },
        "files=[{path='/a' type=ELF file min_vaddr=0x1000 offset=0x7 symbols=2} \
         {path='[krn]' type=kernel min_vaddr=0x1 symbols=0}]",
    ),
    (
        Feature::HIPERF_FILES_SYMBOL,
        |b| {
            let b = b.u32(1).u32(3).raw("/a\0").u32(2).u64(0x1000).u64(0x200).u32(3).raw("01\0");
            b.u32(1).u64(0x1010).u32(8).u32(2).raw("f\0")
        },
        "files=[{path='/a' type=2 address=0x1000 offset=0x200 build_id='01' symbols=1}]",
    ),
    (Feature(200), |b| b.raw([1, 2, 0]), "bytes=010200"),
];

fn cases() -> impl Iterator<Item = (Feature, Endian, Vec<u8>, &'static str)> {
    CASES.iter().flat_map(|&(feature, section, expected)| {
        BOTH.map(|endian| (feature, endian, section(Bytes(endian, Vec::new())).1, expected))
    })
}

#[test]
fn every_feature_decodes_in_both_byte_orders() {
    for (feature, endian, section, expected) in cases() {
        let mut decoded = decode_feature(feature, &section, endian, CPUS);
        // Other tests check the contents of attrs.
        for (_, value) in &mut decoded.fields {
            let Value::List(values) = value else { continue };
            for value in values {
                let Value::Map(fields) = value else { continue };
                if let Some((_, attr)) = fields.iter_mut().find(|(name, _)| *name == "attr") {
                    *attr = Value::Name("{ATTR}".into());
                }
            }
        }
        let order = if endian == Endian::Big { "big" } else { "little" };
        assert_eq!(shown(&decoded), expected.replace("ORDER", order), "{feature} {endian:?}");
    }
    for feature in Feature::NAMED {
        assert!(CASES.iter().any(|case| case.0 == *feature), "{feature} has no section here");
    }
}

#[test]
fn a_section_cut_anywhere_keeps_what_was_read_and_says_so() {
    for (feature, endian, section, _) in cases() {
        let whole = decode_feature(feature, &section, endian, CPUS);
        for cut in 0..section.len() {
            let decoded = decode_feature(feature, &section[..cut], endian, CPUS);
            assert!(count(&decoded.fields) <= count(&whole.fields) + 1, "{feature} cut to {cut}");
            // These may end early: an older revision, no more entries, no padding, no layout at all.
            let open = [
                Feature::CPU_TOPOLOGY,
                Feature::BUILD_ID,
                Feature::TRACING_DATA,
                Feature::AUXTRACE,
                Feature::META_INFO,
                Feature::FILE,
                Feature::FILE2,
                Feature(200),
            ];
            assert!(
                !decoded.issues.is_empty() || open.contains(&feature),
                "{feature} cut to {cut} looks whole"
            );
        }
    }
    let section = Bytes(Endian::Little, Vec::new()).u32(2).u32(1).str("software").u32(4).u32(64).raw("cp").1;
    let decoded = decode_feature(Feature::PMU_MAPPINGS, &section, Endian::Little, CPUS);
    assert_eq!(shown(&decoded), "pmus=[{type=1 name='software'} {type=4}] rest=400000006370 !section-short");
    assert_eq!(decoded.issues[0].what, "section of 86 bytes: `name` says 64 bytes, 2 are left");
}

#[test]
fn no_changed_byte_panics_or_makes_more_values_than_bytes() {
    for (feature, endian, section, _) in cases() {
        for at in 0..section.len() {
            for value in [0, 1, 0x7f, 0x80, 0xff, section[at] ^ 0x10] {
                let mut section = section.clone();
                section[at] = value;
                for context in [CPUS, FeatureContext::default()] {
                    let decoded = decode_feature(feature, &section, endian, context);
                    assert!(
                        count(&decoded.fields) <= section.len() + 64,
                        "{feature} with {value:#x} at {at}"
                    );
                }
            }
        }
    }
}

#[test]
fn wild_counts_allocate_nothing() {
    let all_ones = [0xff; 4096];
    for number in 0..=255 {
        for size in [0, 1, 7, 8, 12, 16, 40, 4096] {
            let cpus = NrCpus { available: u32::MAX, online: u32::MAX };
            let context = FeatureContext { cpus: Some(cpus) };
            for section in [&all_ones[..size], &[0; 4096][..size]] {
                let decoded = decode_feature(Feature(number), section, Endian::Little, context);
                assert!(count(&decoded.fields) <= section.len() + 64);
            }
        }
    }
}

#[test]
fn what_is_odd_has_a_code() {
    let odd = |feature, context, section: fn(Bytes) -> Bytes| {
        let section = section(Bytes(Endian::Big, Vec::new())).1;
        shown(&decode_feature(feature, &section, Endian::Big, context))
    };
    let none = FeatureContext::default();
    assert_eq!(odd(Feature::NRCPUS, none, |b| b.u32(1).u32(2)), "available=1 online=2 !nrcpus-range");
    assert_eq!(odd(Feature::CACHE, none, |b| b.u32(2).u32(0)), "version=2 rest=00000000 !version-unknown");
    assert_eq!(
        odd(Feature::CLOCK_DATA, none, |b| b.u32(9).u32(8)),
        "version=9 rest=00000008 !version-unknown"
    );
    assert_eq!(odd(Feature::DIR_FORMAT, none, |b| b.u64(2)), "version=2 !version-unknown");
    assert_eq!(odd(Feature::CLN_SIZE, none, |b| b.u32(64).zeros(8)), "size=64");
    assert_eq!(odd(Feature::CLN_SIZE, none, |b| b.u32(64).raw([0, 1])), "size=64 rest=0001 !section-rest");
    assert_eq!(odd(Feature::STAT, none, |b| b.raw("x")), "rest=78 !section-rest");
    assert_eq!(odd(Feature::NRCPUS, none, |b| b.u32(1)), "available=1 !section-short");
    assert_eq!(
        odd(Feature::CPU_TOPOLOGY, none, |b| b.zeros(8).u32(1)),
        "packages=[] threads=[] rest=00000001 !nrcpus-missing"
    );
    assert_eq!(
        odd(Feature::MEM_TOPOLOGY, none, |b| b.u64(1).u64(2).u64(1).u64(0).u64(1).u64(0)),
        "version=1 block_size=0x2 nodes=[{node=0 blocks=1 bitmap=[]}] !bitmap-size"
    );
    assert_eq!(
        odd(Feature::EVENT_DESC, none, |b| b.u32(1).u32(8).u64(1)),
        "attr_size=8 rest=0000000000000001 !attr-size"
    );
    assert_eq!(odd(Feature::TRACING_DATA, none, |b| b.raw("x")), "rest=78 !tracing-magic");
    assert_eq!(
        odd(Feature::BUILD_ID, none, |b| b.u32(9).u16(0x8000).u16(36).zeros(24).raw([0, 0, 0, 0])),
        "dsos=[{misc=0x8000 pid=0 id= filename=''}] !build-id-type !build-id-size"
    );
}

#[test]
fn build_ids_without_pid_are_told_by_the_kernels_name() {
    for endian in BOTH {
        let b = Bytes(endian, Vec::new())
            .u32(0)
            .u16(1)
            .u16(96)
            .raw([1; 20])
            .zeros(4)
            .raw("[kernel.kallsyms]\0")
            .zeros(46);
        let section = b.u32(0).u16(2).u16(96).raw([2; 20]).zeros(4).raw("/bin/sh\0").zeros(56).1;
        let ids: Vec<_> =
            BuildIds::new(&section, endian).map(|entry| (entry.pid, entry.id, entry.filename)).collect();
        assert_eq!(ids, [(-1, &[1; 20][..], &b"[kernel.kallsyms]"[..]), (-1, &[2; 20], b"/bin/sh")]);
        let decoded = decode_feature(Feature::BUILD_ID, &section, endian, CPUS);
        assert_eq!(decoded.issues[0].code, crate::FaultCode::BuildIdWithoutPid);
    }
}

#[test]
fn build_ids_are_written_as_they_are_read() {
    let id = [7; 20];
    for endian in BOTH {
        let mut section = Vec::new();
        let mut written = Vec::new();
        for length in 1..=20 {
            let name = &b"/usr/lib/x86_64-linux-gnu"[..length];
            let sized = BuildIdEntry::new(2, -1, &id[..length], name);
            let unsized_ = BuildIdEntry { misc: 4, pid: 99, id: &id, filename: name };
            for entry in [sized, unsized_] {
                entry.write_section(endian, &mut section).unwrap();
                written.push(entry);
                for trailer in [&[][..], &[0; 24]] {
                    let mut record = Vec::new();
                    entry.write_record(trailer, endian, &mut record).unwrap();
                    assert_eq!(record.len() % 8, 0);
                    assert_eq!(
                        (endian.u32(&record, 0), endian.u16(&record, 6)),
                        (Some(67), Some(record.len() as u16))
                    );
                    assert_eq!(BuildIdEntry::read(&record, endian), Some(entry));
                }
            }
        }
        let mut ids = BuildIds::new(&section, endian);
        assert_eq!(ids.by_ref().collect::<Vec<_>>(), written);
        assert_eq!(ids.rest(), b"");
    }
    // As perf 7.3 writes "[vdso]": 36 + 8 bytes.
    let mut section = Vec::new();
    BuildIdEntry::new(2, -1, &id, b"[vdso]").write_section(Endian::Little, &mut section).unwrap();
    assert_eq!(&section[..8], [0, 0, 0, 0, 2, 0x80, 44, 0]);
    assert_eq!(&section[32..], b"\x14\0\0\0[vdso]\0\0");
    // Values that an entry cannot contain.
    assert_eq!(BuildIdEntry::new(2, -1, &[0; 21], b"").write_section(Endian::Little, &mut section), None);
    assert_eq!(
        BuildIdEntry::new(2, -1, &id, &[b'a'; 65_520]).write_record(&[], Endian::Little, &mut section),
        None
    );
    assert_eq!(section.len(), 44);
}

#[test]
fn numbers_are_written_as_they_are_read() {
    for endian in BOTH {
        let cpus = NrCpus { available: 8, online: 7 };
        assert_eq!(NrCpus::read(&cpus.write(endian), endian), Some(cpus));
        let time = SampleTime { first_ns: 1, last_ns: u64::MAX };
        assert_eq!(SampleTime::read(&time.write(endian), endian), Some(time));
        let compressed = Compressed { method: 1, level: 3, ratio: 10, mmap_len: 528_384 };
        assert_eq!(compressed.write(endian).len(), 20);
        assert_eq!(Compressed::read(&compressed.write(endian), endian), Some(compressed));
        let clock = ClockData { clockid: 1, wall_ns: 2, clock_ns: 3 };
        assert_eq!(ClockData::read(&clock.write(endian), endian), Some(clock));
        assert_eq!(ClockData::read(&clock.write(endian)[..23], endian), None);
        assert_eq!(ClockData::read(&[3; 24], endian), None, "another version");
        let entries = [AuxtraceEntry { offset: 280, size: 48 }, AuxtraceEntry { offset: 4096, size: 48 }];
        let section = write_auxtrace_index(&entries, endian);
        assert_eq!(read_auxtrace_index(&section, endian).as_deref(), Some(&entries[..]));
        assert_eq!(read_auxtrace_index(&section[..39], endian), None);
    }
}

#[test]
fn texts_groups_and_events_are_written_as_they_are_read() {
    for endian in BOTH {
        for length in [0, 1, 62, 63, 64, 200] {
            let text = vec![b'x'; length];
            let section = write_str(&text, endian);
            assert_eq!((section.len() - 4) % 64, 0);
            assert_eq!(read_str(&section, endian), Some(&text[..]));
        }
        let groups = [
            GroupDesc { name: b"{anon_group}", leader: 0, members: 2 },
            GroupDesc { name: b"mine", leader: 5, members: 3 },
        ];
        let section = write_group_desc(&groups, endian);
        assert_eq!(read_group_desc(&section, endian).as_deref(), Some(&groups[..]));

        let attr = [3; 128];
        let event = |name, ids| EventDesc { attr: &attr, name, ids };
        let events = [event(b"cycles:u", vec![1, 2]), event(b"cs", vec![])];
        let section = write_event_desc(128, &events, endian).unwrap();
        assert_eq!(read_event_desc(&section, endian).as_deref(), Some(&events[..]));
        assert_eq!(read_event_desc(&section[..section.len() - 1], endian), None);
        // A size larger than the attr's adds zeros; a smaller one is refused.
        let grown = write_event_desc(136, &events, endian).unwrap();
        assert_eq!(read_event_desc(&grown, endian).unwrap()[1].attr, [&[3; 128][..], &[0; 8]].concat());
        assert_eq!(write_event_desc(64, &events, endian), None);
    }
}

#[test]
fn a_section_that_stops_perf_is_repaired_in_both_byte_orders() {
    for endian in [Endian::Little, Endian::Big] {
        let as_it_is = |feature, section: &[u8]| repair(feature, section, endian, FeatureContext::default());
        let text = write_str(b"a text", endian);
        assert_eq!(as_it_is(Feature::CPUDESC, &text), Repaired::Sound);
        // Shorter than its length says; too short for a length.
        let mut long = endian.bytes_u32(5000).to_vec();
        long.extend(b"a text");
        assert_eq!(as_it_is(Feature::CPUDESC, &long), Repaired::Rewritten(text.clone()));
        assert_eq!(as_it_is(Feature::CPUDESC, b""), Repaired::Unreadable("it is empty".to_owned()));
        assert!(matches!(as_it_is(Feature::CPUDESC, b"\x01"), Repaired::Unreadable(_)));
        // A string instead of a list of strings.
        let list = [&endian.bytes_u32(1)[..], &text].concat();
        assert_eq!(as_it_is(Feature::CMDLINE, &list), Repaired::Sound);
        assert_eq!(as_it_is(Feature::CMDLINE, &text), Repaired::Rewritten(list));
        // Another version; a feature that perf skips; an unknown feature.
        let version = [endian.bytes_u32(2), endian.bytes_u32(0)].concat();
        assert!(matches!(as_it_is(Feature::CACHE, &version), Repaired::Unreadable(_)));
        assert_eq!(as_it_is(Feature::EVENT_DESC, b"\x01"), Repaired::Sound);
        assert_eq!(as_it_is(Feature(200), b"\x01"), Repaired::Sound);
    }
}

/// Regression: `recover` dropped them, together with all unknown features.
#[test]
fn sections_of_a_newer_perf_are_kept_and_those_that_lost_bytes_are_not() {
    let endian = Endian::Little;
    let left_out = |features: &[(Feature, Vec<u8>)]| {
        let features = features.iter().map(|(feature, section)| (*feature, section.clone().into()));
        meaningless(&features.collect(), endian)
    };
    let cpus = || (Feature::NRCPUS, [endian.bytes_u32(2), endian.bytes_u32(2)].concat());
    let longer = |(feature, section): (Feature, Vec<u8>)| (feature, [&section[..], b"more"].concat());
    let unknown = || (Feature(200), b"bytes".to_vec());
    let version = || (Feature::CACHE, [endian.bytes_u32(2), endian.bytes_u32(0)].concat());
    let empty = || (Feature::BPF_BTF, Vec::new());
    assert_eq!(left_out(&[longer(cpus()), unknown()]), []);
    // Only the section that stops perf is left out.
    assert_eq!(
        left_out(&[longer(cpus()), version(), empty(), unknown()]),
        [Feature::CACHE, Feature::BPF_BTF]
    );
    // In a file that has lost or gained bytes, the other sections can't be verified.
    let cut = || (Feature::BPF_PROG_INFO, endian.bytes_u32(7).to_vec());
    let expected = [Feature::BPF_PROG_INFO, Feature::NRCPUS, Feature(200)];
    assert_eq!(left_out(&[longer(cpus()), cut(), unknown()]), expected);
}

#[test]
fn an_event_of_several_groups_belongs_to_the_first() {
    let group = |leader, members| GroupDesc { name: b"g", leader, members };
    let divided = |groups: &[GroupDesc<'_>], events| grouped_events(groups, events);
    assert_eq!(divided(&[], 2), [(0..1, None), (1..2, None)]);
    // Listed in the other order than their events; the second shares event 2 with the first.
    assert_eq!(divided(&[group(2, 2), group(0, 3)], 5), [(0..2, Some(1)), (2..4, Some(0)), (4..5, None)]);
    // A group within another, and what is left of the other after it.
    assert_eq!(divided(&[group(1, 1), group(0, 3)], 3), [(0..1, Some(1)), (1..2, Some(0)), (2..3, Some(1))]);
    // Groups of no event, beyond the last, and up to the largest number.
    assert_eq!(
        divided(&[group(0, 0), group(1, u32::MAX), group(u32::MAX, 9)], 3),
        [(0..1, None), (1..3, Some(1))]
    );
}
