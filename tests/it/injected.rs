//! `inject` adds the files' build-ids for the DSOs that samples hit according to perf, before the first hit,
//! once, and in every form of recording; perf shows the same samples as before.

use std::collections::{BTreeMap, BTreeSet, HashMap};
use std::fs;
use std::os::unix::fs::MetadataExt;
use std::path::Path;

use object::Object as _;

use crate::args;
use crate::oracle::{Case, Question, SAMPLES, SCRIPT, STATS, STATS_BUT_MAPPINGS, main_perfs_agree};
use crate::parse::{self, BUILD_ID, Contents, Order, Rec, feature};
use crate::support::{Fixture, Stdin, each, perfs, perfx, root, same_bytes, temp, workloads};
use crate::tiny;

/// The folder of the workloads in the recordings.
const WORK: &str = "/tmp/perfx-data/work";

/// The id of an ELF file, if it has one.
fn id_of(path: &Path) -> Option<Vec<u8>> {
    let bytes = fs::read(path).unwrap_or_else(|e| panic!("{}: {e}", path.display()));
    object::File::parse(&*bytes).unwrap().build_id().unwrap().map(<[u8]>::to_vec)
}

/// Injects the ids of the workloads, with `root` as the recorded machine's `/`.
fn inject(options: &[&str], root: &Path, input: &Path, out: &Path) -> Result<(), String> {
    let mut args = args!["inject", "-q", "--foreign", "--root", root, "-o", out, input].to_vec();
    args.extend(options.iter().map(Into::into));
    let ran = perfx(args);
    if ran.code == Some(0) { Ok(()) } else { Err(format!("{options:?}: {ran:?}")) }
}

/// The ids in a recording for DSOs below a folder, by their names relative to it.
fn ids_below(folder: &str, bytes: &[u8], is_pipe: bool) -> BTreeMap<String, Vec<u8>> {
    let contents = if is_pipe { Contents::pipe(bytes) } else { Contents::file(bytes) };
    let below = |(_, id, name): (i32, Vec<u8>, Vec<u8>)| {
        let name = String::from_utf8(name).ok()?;
        Some((name.strip_prefix(folder)?.trim_start_matches('/').to_owned(), id))
    };
    contents.build_ids(bytes).into_iter().filter_map(below).collect()
}

/// Like `ids`, for the ids in MMAP2 records.
fn ids_in_mappings(bytes: &[u8], is_pipe: bool) -> BTreeMap<String, Vec<u8>> {
    let contents = if is_pipe { Contents::pipe(bytes) } else { Contents::file(bytes) };
    let mut ids = BTreeMap::new();
    for record in contents.records(bytes).iter().filter(|record| record.kind == 10) {
        if contents.order.u16(&record.bytes, 4) & 0x4000 != 0
            && let Some(name) = name_at(record, 72).strip_prefix(WORK)
        {
            let size = usize::from(record.bytes[40]);
            ids.insert(name.trim_start_matches('/').to_owned(), record.bytes[44..44 + size].to_vec());
        }
    }
    ids
}

fn name_at(record: &Rec, at: usize) -> String {
    let name = record.bytes[at..].split(|&byte| byte == 0).next().unwrap_or_default();
    String::from_utf8_lossy(name).into_owned()
}

#[test]
fn ids_are_those_of_the_files_whole() {
    let Some(root) = workloads() else { return };
    // Programs with ids of 20, 16, 8 and 0 bytes and a library by dlopen, recorded without ids.
    for name in
        ["recorded/no-buildid.p61.data", "recorded/no-buildid.p73.data", "recorded/data-mmap.p61.data"]
    {
        let fixture = Fixture::new(name);
        let bytes = fixture.bytes();
        let contents = Contents::file(&bytes);
        let mapped = contents.records(&bytes).into_iter().filter(|record| record.kind == 10);
        let mapped: BTreeSet<_> = mapped.map(|record| name_at(&record, 72)).collect();
        let expected: BTreeMap<_, _> = mapped
            .iter()
            .filter_map(|name| {
                let name = name.strip_prefix(WORK)?.trim_start_matches('/').to_owned();
                let id = id_of(&root.join(&WORK[1..]).join(&name))?;
                Some((name, id))
            })
            .collect();
        assert!(expected.len() >= 2, "{name}: {expected:?}");
        let folder = temp();
        let out = folder.path().join("out.data");
        inject(&["--buildid-all"], root, &fixture.path, &out).unwrap();
        assert_eq!(ids_below(WORK, &fs::read(&out).unwrap(), false), expected, "{name} --buildid-all");
        inject(&["--mmap2-buildid-all", "-f"], root, &fixture.path, &out).unwrap();
        assert_eq!(ids_in_mappings(&fs::read(&out).unwrap(), false), expected, "{name} --mmap2-buildid-all");
    }
}

/// The DSO that each sample hits with its own address: index of the record, path. For recordings of one event
/// with IP, TID, TIME and PERIOD.
fn hits(records: &[Rec], contents: &Contents) -> Vec<(usize, String)> {
    let order = contents.order;
    let sample_type = order.u64(&contents.events[0].0, 24);
    assert_eq!(sample_type, 0x107, "IP, TID, TIME, PERIOD");
    let time = |record: &Rec| match record.kind {
        9 => order.u64(&record.bytes, 24),
        _ => order.u64(&record.bytes, record.size - 8),
    };
    let mut in_time: Vec<_> =
        records.iter().enumerate().filter(|(_, record)| [3, 7, 9, 10].contains(&record.kind)).collect();
    in_time.sort_by_key(|(_, record)| time(record));
    let mut spaces: HashMap<u32, Vec<(u64, u64, String)>> = HashMap::new();
    let mut hits = Vec::new();
    for (index, record) in in_time {
        let bytes = &record.bytes;
        match record.kind {
            3 if order.u16(bytes, 4) & 0x2000 != 0 => {
                spaces.remove(&order.u32(bytes, 8));
            }
            7 => {
                let parent = spaces.get(&order.u32(bytes, 12)).cloned().unwrap_or_default();
                spaces.insert(order.u32(bytes, 8), parent);
            }
            10 => {
                let start = order.u64(bytes, 16);
                let end = start + order.u64(bytes, 24);
                spaces.entry(order.u32(bytes, 8)).or_default().push((start, end, name_at(record, 72)));
            }
            9 => {
                let (ip, pid) = (order.u64(bytes, 8), order.u32(bytes, 16));
                let space = spaces.get(&pid).map(Vec::as_slice).unwrap_or_default();
                let hit = space.iter().rev().find(|(start, end, _)| (*start..*end).contains(&ip));
                hits.extend(hit.map(|(_, _, name)| (index, name.clone())));
            }
            _ => {}
        }
    }
    hits.sort();
    hits
}

#[test]
fn a_record_stands_before_the_first_sample_that_hits_and_nowhere_else() {
    let Some(root) = workloads() else { return };
    for name in [
        "recorded/no-buildid.p61.data",
        "recorded/plain.p61.data",
        "recorded/no-buildid-mmap.p73.data",
        "recorded/threads-named.p61.data",
        "crafted/be-plain.p61.data",
    ] {
        let fixture = Fixture::new(name);
        let folder = temp();
        let out = folder.path().join("out.data");
        inject(&["--buildids"], root, &fixture.path, &out).unwrap();
        let bytes = fs::read(&out).unwrap();
        let contents = Contents::file(&bytes);
        let records = contents.records(&bytes);
        let hits = hits(&records, &contents);
        let is_ours = |name: &str| name.starts_with(WORK) && !name.ends_with("noid");
        let mut firsts: BTreeMap<&str, usize> = BTreeMap::new();
        for (index, name) in hits.iter().filter(|(_, name)| is_ours(name)) {
            firsts.entry(name).or_insert(*index);
        }
        assert!(!firsts.is_empty(), "{name}: nothing is hit");
        let mut told = BTreeMap::new();
        for (index, record) in records.iter().enumerate().filter(|(_, record)| record.kind == BUILD_ID) {
            let dso = name_at(record, 36);
            let next = index + records[index..].iter().position(|record| record.kind != BUILD_ID).unwrap();
            if is_ours(&dso) {
                assert!(told.insert(dso, next).is_none(), "{name}: two records of one DSO");
            }
        }
        let told: BTreeMap<&str, usize> = told.iter().map(|(name, next)| (name.as_str(), *next)).collect();
        assert_eq!(
            told, firsts,
            "{name}: before which record a DSO's id is told, and which sample hits it first"
        );
    }
}

/// The recording as if its programs had been in `folder`, whose name is as long as the original's. The files
/// differ, so their inodes are replaced, too.
fn moved_to(folder: &Path, fixture: &Fixture) -> Vec<u8> {
    let mut bytes = fixture.bytes();
    let to = folder.to_str().unwrap().as_bytes();
    assert_eq!(to.len(), WORK.len());
    for at in 0..bytes.len() - WORK.len() {
        if bytes[at..].starts_with(WORK.as_bytes()) {
            bytes[at..at + to.len()].copy_from_slice(to);
        }
    }
    let contents = Contents::file(&bytes);
    for record in contents.records(&bytes) {
        let name = name_at(&record, 72.min(record.bytes.len()));
        if record.kind == 10
            && contents.order.u16(&record.bytes, 4) & 0x4000 == 0
            && name.starts_with(folder.to_str().unwrap())
        {
            let inode = fs::metadata(&name).unwrap().ino();
            contents.order.set_u64(&mut bytes, contents.data.start + record.at + 48, inode);
        }
    }
    bytes
}

#[test]
fn the_dsos_are_those_that_perf_injects() {
    let Some(root) = workloads() else { return };
    let perfs = perfs(&["perf", "perf-new"]);
    if perfs.is_empty() {
        return;
    }
    let folder = tempfile::Builder::new().prefix("perfx-it-").rand_bytes(6).tempdir_in("/tmp").unwrap();
    for entry in fs::read_dir(root.join(&WORK[1..])).unwrap() {
        let path = entry.unwrap().path();
        fs::copy(&path, folder.path().join(path.file_name().unwrap())).unwrap();
    }
    let below = folder.path().to_str().unwrap();
    // perf 7 reads all of them, perf 6.1 its own.
    let mut compared = 0;
    for name in ["no-buildid.p61", "no-buildid-mmap.p73", "data-mmap.p61", "fp.p61", "threads-named.p61"] {
        let fixture = Fixture::new(&format!("recorded/{name}.data"));
        let input = folder.path().join("in.data");
        fs::write(&input, moved_to(folder.path(), &fixture)).unwrap();
        for (perf, options) in
            perfs.iter().flat_map(|perf| ["-b", "--buildid-all"].map(|option| (perf, option)))
        {
            let (theirs, ours) = (folder.path().join("theirs.data"), folder.path().join("ours.data"));
            let ran = perf.run(Stdin::Null, args!["inject", options, "-f", "-i", input, "-o", theirs]);
            let Ok(theirs) = fs::read(&theirs).and_then(|bytes| fs::remove_file(&theirs).map(|()| bytes))
            else {
                continue;
            };
            // perf 6.1 leaves the section empty with --buildid-all.
            if ran.code != Some(0) || (perf.name, options) == ("perf", "--buildid-all") {
                continue;
            }
            let ran = perfx(args!["inject", "-q", "-f", options, "-o", ours, input]);
            assert_eq!(ran.code, Some(0), "{}", ran.stderr);
            // Only the section: perf 6.1's records do not contain the length of an id.
            let theirs = ids_below(below, &section_only(theirs), false);
            let ours = ids_below(below, &section_only(fs::read(&ours).unwrap()), false);
            assert_eq!(ours, theirs, "{name}: perfx and {} inject {options}", perf.name);
            assert!(!theirs.is_empty(), "{name}");
            compared += 1;
        }
    }
    assert!(compared >= 4, "only {compared} of them could be compared");
}

/// The file with its BUILD_ID records changed to an unknown kind.
fn section_only(mut bytes: Vec<u8>) -> Vec<u8> {
    let contents = Contents::file(&bytes);
    for record in contents.records(&bytes).iter().filter(|record| record.kind == BUILD_ID) {
        let at = contents.data.start + record.at;
        bytes[at..at + 4].fill(0x55);
    }
    bytes
}

#[test]
fn the_second_time_there_is_nothing_to_inject() {
    let Some(root) = workloads() else { return };
    let names = [
        "recorded/no-buildid.p61.data",
        "recorded/no-buildid-mmap.p73.data",
        "recorded/z.p61.data",
        "recorded/pipe.p61.data",
        "recorded/threads.p61.data",
        "recorded/fp.p73.data",
        "crafted/be-forkexec.p61.data",
        "crafted/guest-le.data",
        "recorded/anon-exec.p61.data",
    ];
    let options = ["--buildids", "--buildid-all", "--mmap2-buildids", "--mmap2-buildid-all"];
    let cases: Vec<_> = names.iter().flat_map(|name| options.map(|option| (*name, option))).collect();
    each(
        &cases,
        |case| format!("{case:?}"),
        |(name, option)| {
            let folder = temp();
            let (once, twice) = (folder.path().join("once.data"), folder.path().join("twice.data"));
            inject(&[option], root, &Fixture::new(name).path, &once)?;
            inject(&[option], root, &once, &twice)?;
            same_bytes("the second time", &fs::read(&once).unwrap(), &fs::read(&twice).unwrap())
        },
    );
}

#[test]
fn ids_get_into_every_form() {
    let Some(root) = workloads() else { return };
    let burn = id_of(&root.join(&WORK[1..]).join("burn")).unwrap();
    let cases = [
        ("recorded/no-buildid.p61.data", "burn"),
        ("recorded/z.p61.data", "burn"),
        ("recorded/z.p612.data", "burn"),
        ("recorded/pipe.p61.data", "burn"),
        ("recorded/pipe-z.p61.data", "burn"),
        ("recorded/threads.p61.data", "crew"),
        ("recorded/threads-z.p61.data", "crew"),
        ("crafted/be-plain.p61.data", "burn"),
        ("crafted/be-pipe.p61.data", "burn"),
        ("crafted/be-z.p61.data", "burn"),
    ];
    assert_eq!(burn[0], 0xb0);
    let forms = ["file", "pipe"];
    let cases: Vec<_> = cases.iter().flat_map(|case| forms.map(|form| (*case, form))).collect();
    each(
        &cases,
        |case| format!("{case:?}"),
        |((name, program), form)| {
            let folder = temp();
            let out = folder.path().join("out.data");
            let fixture = Fixture::new(name);
            inject(&["--buildids", "--to", form], root, &fixture.path, &out)?;
            let out = fs::read(&out).unwrap();
            let mut ids = ids_below(WORK, &out, *form == "pipe");
            // In a pipe, an id in a mapping is not repeated.
            ids.extend(ids_in_mappings(&out, *form == "pipe"));
            let expected = id_of(&root.join(&WORK[1..]).join(program));
            if ids.get(*program) != expected.as_ref() {
                return Err(format!("{ids:?}"));
            }
            Ok(())
        },
    );
}

#[test]
fn perf_says_the_same_of_the_samples_as_before() {
    // Ids that no file has: perf must not read symbols from a different file.
    const IDS: &str = "0102030405060708090a0b0c0d0e0f1011121314 /tmp/perfx-data/work/burn,\
        15161718191a1b1c1d1e1f202122232425262728 /tmp/perfx-data/work/forks,\
        292a2b2c2d2e2f30 /usr/lib/x86_64-linux-gnu/libc.so.6";
    const COMMANDS: [&[&str]; 5] = [
        &["inject", "--foreign", "--known-build-ids", IDS, "--buildids"],
        &["inject", "--foreign", "--known-build-ids", IDS, "--buildids", "--to", "pipe"],
        &["inject", "--foreign", "--known-build-ids", IDS, "--buildid-all"],
        &["inject", "--foreign", "--known-build-ids", IDS, "--mmap2-buildids"],
        &["inject", "--foreign", "--known-build-ids", IDS, "--mmap2-buildid-all"],
    ];
    let mut cases: Vec<Case<'_>> = Vec::new();
    for name in [
        "recorded/no-buildid.p61.data",
        "recorded/forkexec.p73.data",
        "crafted/be-forkexec.p61.data",
        "recorded/z.p61.data",
    ] {
        for command in COMMANDS {
            let questions: &[&Question] = match command.last() {
                Some(&"pipe") => &[&SAMPLES],
                Some(option) if option.starts_with("--mmap2") => &[&SAMPLES, &STATS_BUT_MAPPINGS],
                _ => &[&SAMPLES, &STATS],
            };
            cases.push((name, command, questions));
        }
    }
    main_perfs_agree(&cases);
}

#[test]
fn in_place_only_the_ids_change() {
    let Some(root) = workloads() else { return };
    let mut changed = 0;
    for name in ["recorded/no-buildid.p61.data", "recorded/z.p73.data", "crafted/be-plain.p61.data"] {
        let fixture = Fixture::new(name);
        let folder = temp();
        let (there, out) = (folder.path().join("there.data"), folder.path().join("out.data"));
        fs::write(&there, fixture.bytes()).unwrap();
        let ran = perfx(args!["inject", "-q", "-b", "--foreign", "--root", root, "--in-place", there]);
        assert_eq!(ran.code, Some(0), "{name}: {}", ran.stderr);
        inject(&["--buildids"], root, &fixture.path, &out).unwrap();
        let [before, there, out] =
            [&fixture.path, &there, &out].map(|path| section_only(fs::read(path).unwrap()));
        let (old, new) = (Contents::file(&before), Contents::file(&there));
        same_bytes(name, &before[old.data.clone()], &there[new.data.clone()]).unwrap();
        assert_eq!(old.events, new.events, "{name}");
        assert_eq!(new.build_ids(&there), Contents::file(&out).build_ids(&out), "{name}");
        changed += usize::from(new.build_ids(&there) != old.build_ids(&before));
        let others = |contents: &Contents| {
            let mut features = contents.features.clone();
            features.remove(&feature::BUILD_ID);
            features
        };
        assert_eq!(others(&old), others(&new), "{name}");
    }
    assert!(changed > 0, "they had all of these ids before");
}

/// pid and name of every MMAP2 record.
fn mappings(bytes: &[u8]) -> Vec<(u32, String)> {
    let contents = Contents::file(bytes);
    let mappings = contents.records(bytes).into_iter().filter(|record| record.kind == 10);
    mappings.map(|record| (contents.order.u32(&record.bytes, 8), name_at(&record, 72))).collect()
}

/// The names in feature BUILD_ID.
fn named_in_feature(bytes: &[u8]) -> BTreeSet<String> {
    let bytes = section_only(bytes.to_vec());
    let names = Contents::file(&bytes).build_ids(&bytes).into_iter().map(|(_, _, name)| name);
    names.map(|name| String::from_utf8(name).unwrap()).collect()
}

#[test]
fn all_mappings_of_processes_whose_user_stacks_are_sampled_stay() {
    for name in ["dwarf.p510", "dwarf.p61", "dwarf.p73", "mixed-callgraph.p61", "be-dwarf.p61"] {
        let folder = if name.starts_with("be") { "crafted" } else { "recorded" };
        let fixture = Fixture::new(&format!("{folder}/{name}.data"));
        let folder = temp();
        let out = folder.path().join("out.data");
        let ran = perfx(args!["inject", "-B", "--foreign", "-o", out, fixture.path]);
        assert!(matches!(ran.code, Some(0 | 3)), "{name}: {}", ran.stderr);
        assert!(ran.stderr.contains("samples have user stacks"), "{name}: {}", ran.stderr);
        let before = fixture.bytes();
        let contents = Contents::file(&before);
        let sampled: BTreeSet<u32> = contents
            .records(&before)
            .iter()
            .filter(|record| record.kind == 9)
            .map(|record| {
                let sample_type = contents.order.u64(&contents.events[0].0, 24);
                contents.order.u32(&record.bytes, if sample_type & 1 << 16 != 0 { 24 } else { 16 })
            })
            .collect();
        let of_sampled = |bytes: &[u8]| -> Vec<(u32, String)> {
            mappings(bytes).into_iter().filter(|(pid, _)| sampled.contains(pid)).collect()
        };
        let before = of_sampled(&before);
        assert!(before.len() > 3, "{name}: {before:?}");
        assert_eq!(of_sampled(&fs::read(&out).unwrap()), before, "{name}");
    }
}

#[test]
fn all_mappings_of_a_recording_with_aux_data_stay() {
    for name in ["aux-le", "aux-be", "aux-no-index", "aux-samples", "aux-spe"] {
        let fixture = Fixture::new(&format!("crafted/{name}.data"));
        let folder = temp();
        let out = folder.path().join("out.data");
        let ran = perfx(args!["inject", "-B", "--foreign", "-o", out, fixture.path]);
        assert!(ran.stderr.contains("which may need any mapping to be decoded"), "{name}: {}", ran.stderr);
        let (before, after) = (fixture.bytes(), fs::read(&out).unwrap());
        let (old, new) = (Contents::file(&before), Contents::file(&after));
        same_bytes(name, &before[old.data], &after[new.data]).unwrap();
    }
}

#[test]
fn perf_unwinds_and_decodes_the_same_after_unneeded_mappings_left() {
    const COMMAND: &[&str] = &["inject", "--foreign", "--mmap2-buildids"];
    const DECODED: Question =
        Question { args: &["script", "-f", "--itrace=b"], line: |line| Some(line.to_owned()) };
    let mut cases: Vec<Case<'_>> = Vec::new();
    for name in ["recorded/dwarf.p61.data", "recorded/dwarf.p73.data", "recorded/mixed-callgraph.p61.data"] {
        cases.push((name, COMMAND, &[&SCRIPT]));
    }
    for name in ["crafted/aux-le.data", "crafted/aux-pipe-le.data"] {
        cases.push((name, COMMAND, &[&DECODED]));
    }
    main_perfs_agree(&cases);
}

/// Records for a recording of one event with IP, TID, TIME and PERIOD, typed by hand.
struct Typed {
    order: Order,
    bytes: Vec<u8>,
}

impl Typed {
    fn new() -> Typed {
        Typed { order: Order { big: false }, bytes: Vec::new() }
    }

    fn record(mut self, kind: u32, misc: u16, words: &[u32], text: &str, trailer: [u64; 2]) -> Typed {
        let mut body: Vec<u8> = words.iter().flat_map(|word| word.to_le_bytes()).collect();
        if !text.is_empty() {
            body.extend(text.as_bytes());
            body.resize((body.len() + 1).next_multiple_of(8), 0);
        }
        if kind != 9 {
            body.extend(trailer.iter().flat_map(|word| word.to_le_bytes()));
        }
        self.bytes.extend(kind.to_le_bytes());
        self.bytes.extend(misc.to_le_bytes());
        self.bytes.extend((body.len() as u16 + 8).to_le_bytes());
        self.bytes.extend(body);
        self
    }

    fn mmap2(self, pid: u32, start: u32, name: &str, time: u32) -> Typed {
        let words = [pid, pid, start, 0, 0x1000, 0, 0, 0, 8, 1, 77, 0, 0, 0, 5, 2];
        self.record(10, 2, &words, name, [id(pid), time.into()])
    }

    fn vdso(self, pid: u32, start: u64, time: u32) -> Typed {
        let (low, high) = (start as u32, (start >> 32) as u32);
        let words = [pid, pid, low, high, 0x2000, 0, 0, 0, 0, 0, 0, 0, 0, 0, 5, 2];
        self.record(10, 2, &words, "[vdso]", [id(pid), time.into()])
    }

    fn exec(self, pid: u32, name: &str, time: u32) -> Typed {
        self.record(3, 0x2000, &[pid, pid], name, [id(pid), time.into()])
    }

    fn fork(self, pid: u32, parent: u32, time: u32) -> Typed {
        self.record(7, 0, &[pid, parent, pid, parent, time, 0], "", [id(pid), time.into()])
    }

    fn sample(self, pid: u32, ip: u32, time: u32) -> Typed {
        self.record(9, 2, &[ip, 0, pid, pid, time, 0, 1, 0], "", [0; 2])
    }

    fn file(self) -> Vec<u8> {
        let fixture = Fixture::new("recorded/no-buildid.p61.data");
        let bytes = fixture.bytes();
        let contents = Contents::file(&bytes);
        assert_eq!(contents.order.u64(&contents.events[0].0, 24), 0x107, "IP, TID, TIME, PERIOD");
        assert_eq!(contents.order.big, self.order.big);
        fixture.with_data(|_| self.bytes)
    }
}

fn id(pid: u32) -> u64 {
    u64::from(pid) << 32 | u64::from(pid)
}

#[test]
fn the_old_image_of_an_exec_stays_where_samples_during_the_exec_hit_it() {
    let typed = Typed::new()
        .mmap2(7, 0x1000, "/bin/shell", 10)
        .mmap2(7, 0x9000, "/lib/never-hit", 11)
        .fork(8, 7, 20)
        .exec(8, "tool", 30)
        .mmap2(8, 0x5000, "/bin/tool", 31)
        // The kernel's exec is not finished: the user part belongs to the old image.
        .sample(8, 0x1234, 32)
        .sample(8, 0x5234, 40);
    let folder = temp();
    let (input, out) = (folder.path().join("in.data"), folder.path().join("out.data"));
    fs::write(&input, typed.file()).unwrap();
    let ids = "aa /bin/shell,bb /bin/tool,cc /lib/never-hit";
    let ran = perfx(args!["inject", "-B", "--foreign", "--known-build-ids", ids, "-o", out, input]);
    assert_eq!(ran.code, Some(0), "{}", ran.stderr);
    let left = mappings(&fs::read(&out).unwrap());
    assert_eq!(left, [(7, "/bin/shell".to_owned()), (8, "/bin/tool".to_owned())]);
    let ran = perfx(args!["inject", "-b", "-f", "--foreign", "--known-build-ids", ids, "-o", out, input]);
    assert_eq!(ran.code, Some(0), "{}", ran.stderr);
    let named = named_in_feature(&fs::read(&out).unwrap());
    assert!(named.contains("/bin/shell") && named.contains("/bin/tool"), "{named:?}");
    assert!(!named.contains("/lib/never-hit"), "{named:?}");
}

#[test]
fn the_vdso_of_a_32_bit_process_gets_no_id_of_the_64_bit_one() {
    let typed = Typed::new()
        .vdso(7, 0xf7f4_c000, 10)
        .vdso(8, 0x7fff_f7fc_0000, 11)
        .sample(7, 0xf7f4_c010, 20)
        .record(9, 2, &[0xf7fc_0010, 0x7fff, 8, 8, 21, 0, 1, 0], "", [0; 2]);
    let folder = temp();
    let (input, out) = (folder.path().join("in.data"), folder.path().join("out.data"));
    let named = |arch: &str, option: &str| {
        // The recording has an id for a [vdso], which perf record writes for 64-bit processes.
        let entry = [&[0; 4][..], &[2, 0, 44, 0], &[0xff; 4], &[0xab; 20], &[0; 4], b"[vdso]\0\0"].concat();
        let arch = [&8u32.to_le_bytes(), arch.as_bytes()].concat();
        let features = [(2, entry), (6, arch)];
        let flags = tiny::SAMPLE_ID_ALL;
        fs::write(&input, tiny::file(0x107, flags, &typed.bytes, &features)).unwrap();
        let ran = perfx(args!["inject", option, "-f", "--foreign", "-o", out, input]);
        assert_eq!(ran.code, Some(0), "{option} {}", ran.stderr);
        let bytes = fs::read(&out).unwrap();
        let records = Contents::file(&bytes).records(&bytes);
        records
            .iter()
            .filter(|record| record.kind == BUILD_ID || record.kind == 10 && record.bytes[5] & 0x40 != 0)
            .map(|record| (record.kind, u64::from_le_bytes(record.bytes[16..24].try_into().unwrap())))
            .collect::<Vec<_>>()
    };
    const HIGH: (u32, u64) = (10, 0x7fff_f7fc_0000);
    for option in ["-B", "--mmap2-buildid-all"] {
        assert_eq!(named("x86_64\0\0", option), [HIGH], "{option}");
        // A 32-bit kernel has only one.
        assert_eq!(named("armv7l\0\0", option), [(10, 0xf7f4_c000), HIGH], "{option}");
    }
    for option in ["-b", "--buildid-all"] {
        let records = named("x86_64\0\0", option);
        assert_eq!(records.len(), 1, "{option}: {records:?}");
    }
}

#[test]
fn all_dsos_of_processes_whose_user_stacks_are_sampled_count_as_hit() {
    for name in ["recorded/dwarf.p61.data", "recorded/dwarf.p73.data"] {
        let fixture = Fixture::new(name);
        let bytes = fixture.bytes();
        let files: BTreeSet<String> = mappings(&bytes)
            .into_iter()
            .map(|(_, name)| name)
            .filter(|name| name.starts_with("/usr"))
            .collect();
        assert!(files.len() >= 2, "{name}: {files:?}");
        let ids: Vec<String> = files.iter().map(|file| format!("abcdef {file}")).collect();
        let folder = temp();
        let out = folder.path().join("out.data");
        let ran = perfx(args![
            "inject",
            "-b",
            "--foreign",
            "--known-build-ids",
            ids.join(","),
            "-o",
            out,
            fixture.path
        ]);
        assert_eq!(ran.code, Some(0), "{name}: {}", ran.stderr);
        assert!(ran.stderr.contains("samples have user stacks"), "{name}: {}", ran.stderr);
        let named = named_in_feature(&fs::read(&out).unwrap());
        assert!(named.is_superset(&files), "{name}: {named:?} without some of {files:?}");
    }
}

/// Names and ids of MMAP2 records with an id.
fn held_by_mappings(bytes: &[u8]) -> BTreeMap<String, Vec<u8>> {
    let contents = Contents::file(bytes);
    let mut held = BTreeMap::new();
    for record in contents.records(bytes).iter().filter(|record| record.kind == 10) {
        if contents.order.u16(&record.bytes, 4) & 0x4000 != 0 {
            let size = usize::from(record.bytes[40]);
            let name = name_at(record, 72);
            // The kernel's mapping has the name of a symbol, too.
            let name = name.replace("[kernel.kallsyms]_text", "[kernel.kallsyms]");
            held.insert(name, record.bytes[44..44 + size].to_vec());
        }
    }
    held
}

#[test]
fn a_new_build_id_feature_has_the_ids_in_mmap2_records() {
    let folder = temp();
    let out = folder.path().join("out.data");
    let with_mmap2_ids = Fixture::new("recorded/plain.p73.data");
    let with_feature = Fixture::new("recorded/plain.p61.data");
    assert!(!Contents::file(&with_mmap2_ids.bytes()).features.contains_key(&feature::BUILD_ID));
    let held = held_by_mappings(&with_mmap2_ids.bytes());
    assert!(held.len() > 3, "{held:?}");
    let in_feature = |line: &[&str]| {
        let ran = perfx(line.iter().map(Into::into).chain(args!["-f", "-o", out]));
        assert!(matches!(ran.code, Some(0 | 3)), "{line:?}: {}", ran.stderr);
        let bytes = section_only(fs::read(&out).unwrap());
        let contents = Contents::file(&bytes);
        let ids = contents.build_ids(&bytes).into_iter();
        ids.map(|(_, id, name)| (String::from_utf8(name).unwrap(), id)).collect::<BTreeMap<_, _>>()
    };
    let path = |fixture: &Fixture| fixture.path.to_str().unwrap().to_owned();
    let (new, old) = (path(&with_mmap2_ids), path(&with_feature));
    for line in [
        &["inject", "-b", "--foreign", &new][..],
        &["join", "--mix", &new, &old],
        &["join", "--mix", &old, &new],
    ] {
        let made = in_feature(line);
        let lacking: Vec<_> = held.keys().filter(|name| !made.contains_key(*name)).collect();
        assert!(lacking.is_empty(), "{line:?} makes {made:?} without {lacking:?}");
    }
}

#[test]
fn an_id_that_the_user_gives_replaces_the_recording_s() {
    const GIVEN: &str = "aabbccddeeff00112233";
    let given: Vec<u8> =
        (0..GIVEN.len()).step_by(2).map(|at| u8::from_str_radix(&GIVEN[at..at + 2], 16).unwrap()).collect();
    // One has its ids in the feature, one in MMAP2 records, one in HEADER_BUILD_ID records.
    let pipe = temp();
    let piped = pipe.path().join("pipe.data");
    let old = Fixture::new("recorded/plain.p61.data").path;
    let ran = perfx(args!["copy", "-q", "--to", "pipe", "-o", piped, old]);
    assert_eq!(ran.code, Some(0), "{}", ran.stderr);
    for input in [old, Fixture::new("recorded/plain.p73.data").path, piped] {
        for option in ["-b", "--buildid-all", "-B", "--mmap2-buildid-all"] {
            let what = format!("{option} {}", input.display());
            let folder = temp();
            let (out, again) = (folder.path().join("out.data"), folder.path().join("again.data"));
            let ids = format!("{GIVEN} {WORK}/burn");
            let known = ["inject", option, "--foreign", "-v", "--known-build-ids", &ids];
            let ran = perfx(known.map(Into::into).into_iter().chain(args!["-o", out, input]));
            assert_eq!(ran.code, Some(0), "{what}: {}", ran.stderr);
            assert!(
                ran.stderr.contains("1 build-id of the recording replaced with the ones you gave"),
                "{what}: {}",
                ran.stderr
            );
            let line = format!("{WORK}/burn: {GIVEN} in place of ");
            assert!(ran.stderr.contains(&line), "{what}: {}", ran.stderr);
            assert!(!ran.stderr.contains("not needed"), "{what}: {}", ran.stderr);
            let bytes = fs::read(&out).unwrap();
            let burn: Vec<_> = ids_below(WORK, &bytes, false)
                .into_iter()
                .chain(ids_in_mappings(&bytes, false))
                .filter(|(name, _)| name == "burn")
                .map(|(_, id)| id)
                .collect();
            assert!(!burn.is_empty() && burn.iter().all(|id| *id == given), "{what}: {burn:x?}");
            let ran = perfx(known.map(Into::into).into_iter().chain(args!["-o", again, out]));
            assert!(!ran.stderr.contains("replaced"), "{what}: {}", ran.stderr);
            same_bytes(&what, &bytes, &fs::read(&again).unwrap()).unwrap();
        }
    }
}

#[test]
fn an_id_inside_compressed_records_that_contradicts_the_user_is_suspect() {
    let folder = temp();
    let out = folder.path().join("out.data");
    let ids = format!("aabb {WORK}/burn");
    let input = Fixture::new("recorded/z.p73.data").path;
    let ran = perfx(args!["inject", "-b", "--foreign", "--known-build-ids", ids, "-o", out, input]);
    assert_eq!(ran.code, Some(3), "{}", ran.stderr);
    assert!(ran.stderr.contains("perfx decompress first"), "{}", ran.stderr);
}

#[test]
fn mmap2_records_of_early_rhel_7_have_their_names_8_bytes_earlier() {
    let fixture = Fixture::new("recorded/no-buildid.p61.data");
    let old_form = fixture.with_data(|data| {
        let order = Order { big: false };
        let records = parse::records(data, order);
        let shortened = records.into_iter().flat_map(|record| {
            let mut bytes = record.bytes;
            if record.kind == 10 {
                bytes.drain(64..72);
                bytes[6..8].copy_from_slice(&(record.size as u16 - 8).to_le_bytes());
            }
            bytes
        });
        shortened.collect()
    });
    let folder = temp();
    let (input, old, new) =
        (folder.path().join("in.data"), folder.path().join("old.data"), folder.path().join("new.data"));
    fs::write(&input, old_form).unwrap();
    let names = |path: &Path| -> Vec<String> {
        let dump = perfx(args!["dump", "--only", "MMAP2", path]).done().unwrap().text();
        let names = dump.lines().filter_map(|line| line.split(" filename=").nth(1));
        names.map(|rest| rest.split(" sample_id=").next().unwrap().to_owned()).collect()
    };
    assert_eq!(names(&input), names(&fixture.path));
    assert!(names(&input).iter().any(|name| name.contains("burn")));
    let ids = format!("aabb {WORK}/burn");
    for option in ["-b", "--buildid-all", "--mmap2-buildid-all", "-B"] {
        let known = ["inject", option, "-q", "-f", "--foreign", "--known-build-ids", &ids];
        for (input, out) in [(&input, &old), (&fixture.path, &new)] {
            perfx(known.map(Into::into).into_iter().chain(args!["-o", out, input])).done().unwrap();
        }
        let (old, new) = (fs::read(&old).unwrap(), fs::read(&new).unwrap());
        let ids = |bytes: &[u8]| (ids_below(WORK, bytes, false), ids_in_mappings(bytes, false));
        assert_eq!(ids(&old), ids(&new), "{option}");
        assert_ne!(ids(&old), (BTreeMap::new(), BTreeMap::new()), "{option}");
    }
}

#[test]
fn without_anything_to_inject_the_recording_is_copied() {
    for name in ["recorded/plain.p61.data", "recorded/z.p73.data", "recorded/pipe.p61.data"] {
        let input = Fixture::new(name).path;
        let injected = perfx(args!["inject", input]);
        assert_eq!(injected.code, Some(0), "{name}: {}", injected.stderr);
        assert!(
            injected.stderr.contains("nothing to inject: give --buildids"),
            "{name}: {}",
            injected.stderr
        );
        same_bytes(name, &injected.stdout, &perfx(args!["copy", input]).stdout).unwrap();
    }
    let folder = temp();
    let there = folder.path().join("perf.data");
    let bytes = Fixture::new("recorded/plain.p61.data").bytes();
    fs::write(&there, &bytes).unwrap();
    let ran = perfx(args!["inject", "--in-place", there]);
    assert!(ran.code == Some(0) && ran.stderr.contains("is unchanged"), "{}", ran.stderr);
    same_bytes("in place", &bytes, &fs::read(&there).unwrap()).unwrap();
    // Places for ids are useless without an option for the injected data.
    let ran = perfx(args!["inject", "--known-build-ids", "aa /bin/x", there]);
    assert_eq!(ran.code, Some(2), "{}", ran.stderr);
}

#[test]
fn the_reason_for_an_empty_injection_is_reported() {
    let folder = temp();
    let out = folder.path().join("out.data");
    let ran = perfx(args![
        "inject",
        "-b",
        "--foreign",
        "-o",
        out,
        Fixture::new("recorded/no-buildid.p61.data").path
    ]);
    assert!(ran.stderr.contains("nothing injected: no build-id was found"), "{}", ran.stderr);
    assert_eq!(ran.code, Some(3), "{}", ran.stderr);
    let again = folder.path().join("again.data");
    perfx(args!["inject", "-b", "--foreign", "-f", "-o", out, Fixture::new("recorded/plain.p61.data").path])
        .done()
        .unwrap();
    let ran = perfx(args!["inject", "-b", "--foreign", "-o", again, out]);
    let there = "nothing injected: the recording already has all of these build-ids";
    assert!(ran.code == Some(0) && ran.stderr.contains(there), "{}", ran.stderr);
}

#[test]
fn ids_of_files_that_only_their_name_identifies_are_said_to_be_so() {
    let Some(root) = workloads() else { return };
    let folder = temp();
    let out = folder.path().join("out.data");
    let input = Fixture::new("recorded/no-buildid.p61.data").path;
    let ran = perfx(args!["inject", "-b", "-v", "--foreign", "--root", root, "-o", out, input]);
    assert_eq!(ran.code, Some(0), "{}", ran.stderr);
    assert!(
        ran.stderr.contains("found by name only; if a different file of that name was recorded"),
        "{}",
        ran.stderr
    );
    assert!(ran.stderr.contains("/burn, by its name alone)"), "{}", ran.stderr);
}

#[test]
fn a_thread_without_a_name_is_called_by_its_tid() {
    let typed = Typed::new()
        .mmap2(131, 0x1000, "/bin/x", 10)
        .sample(131, 0x1234, 20)
        .fork(132, 131, 30)
        .sample(132, 0x1234, 40);
    let folder = temp();
    let (input, out) = (folder.path().join("in.data"), folder.path().join("out.data"));
    fs::write(&input, typed.file()).unwrap();
    for (name, kept) in [("':131'", 0), (":131", 1), (":132", 1), (":13[12]", 2)] {
        let ran = perfx(args!["filter", "-f", "--comm", name, input, "-o", out]);
        assert!(ran.stderr.contains(&format!("kept {kept} of 2 samples")), "{name}: {}", ran.stderr);
    }
    let du = perfx(args!["du", input]).done().unwrap().text();
    assert!(du.contains("131 :131") && du.contains("132 :132"), "{du}");
    let tables = folder.path().join("csv");
    perfx(args!["export", "csv", "--foreign", input, "-o", tables]).done().unwrap();
    let processes = fs::read_to_string(tables.join("processes.csv")).unwrap();
    assert!(processes.contains("131,:131,") && processes.contains("132,:132,"), "{processes}");
    for perf in perfs(&["perf", "perf-new"]) {
        let script = perf.run(Stdin::Null, args!["script", "-f", "-F", "comm", "-i", input]).text();
        let comms: Vec<_> = script.split_whitespace().collect();
        assert_eq!(comms, [":131", ":132"], "{}", perf.name);
    }
}

#[test]
fn an_event_without_ids_keeps_its_name_in_a_pipe() {
    // A name that perf would not derive, and no ids.
    let mut bytes = Fixture::new("recorded/no-buildid.p61.data").bytes();
    for at in 0..bytes.len() - 9 {
        if bytes[at..].starts_with(b"cpu-clock") {
            bytes[at..at + 9].copy_from_slice(b"my-own-ck");
        }
    }
    let contents = Contents::file(&bytes);
    assert_eq!(contents.events.len(), 1);
    let order = contents.order;
    let ids_at = order.section(&bytes, 24).start + contents.events[0].0.len();
    order.set_u64(&mut bytes, ids_at + 8, 0);
    let folder = temp();
    let (input, piped, back) =
        (folder.path().join("in.data"), folder.path().join("pipe.data"), folder.path().join("back.data"));
    fs::write(&input, bytes).unwrap();
    perfx(args!["copy", "-q", "--to", "pipe", "-o", piped, input]).done().unwrap();
    let pipe = fs::read(&piped).unwrap();
    let update = Contents::pipe(&pipe).records(&pipe).into_iter().find(|record| record.kind == 78);
    let update = update.expect("an EVENT_UPDATE");
    assert_eq!((order.u64(&update.bytes, 8), order.u64(&update.bytes, 16)), (2, 0), "NAME of id 0");
    let name = |path: &Path| {
        let info = perfx(args!["info", "--json", path]).done().unwrap().text();
        let info: serde_json::Value = serde_json::from_str(&info).unwrap();
        info["events"][0]["name"].clone()
    };
    assert_eq!(name(&piped), name(&input));
    let dump = perfx(args!["dump", "--only", "EVENT_UPDATE", piped]).done().unwrap().text();
    assert!(dump.contains("my-own-ck") && !dump.contains("id-unknown"), "{dump}");
    perfx(args!["copy", "-q", "--to", "file", "-o", back, piped]).done().unwrap();
    assert_eq!(name(&back), name(&input));
}

/// The file without this feature: its bit is cleared, and later slots move up, as if perf record had failed
/// to write it.
fn without_feature(mut bytes: Vec<u8>, feature: u64) -> Vec<u8> {
    let contents = Contents::file(&bytes);
    let slot = contents.features.keys().position(|&there| there == feature).expect("the feature");
    let table = contents.data.end..contents.data.end + contents.features.len() * 16;
    bytes.copy_within(table.start + slot * 16 + 16..table.end, table.start + slot * 16);
    let bits = contents.order.u64(&bytes, 72);
    contents.order.set_u64(&mut bytes, 72, bits & !(1 << feature));
    bytes
}

#[test]
fn a_build_id_feature_made_by_merge_has_the_ids_in_mmap2_records_of_the_host() {
    let folder = temp();
    let path = |name: &str| folder.path().join(name);
    for name in ["host.data", "guest.data"] {
        let packed = fs::File::open(root().join("tests/data/guests").join(format!("{name}.zst"))).unwrap();
        fs::write(path(name), zstd::decode_all(packed).unwrap()).unwrap();
    }
    let host = path("with-ids.data");
    let line = args!["inject", "-q", "--mmap2-buildid-all", "--foreign", "-o", host, path("host.data")];
    perfx(line).done().unwrap();
    let bytes = without_feature(fs::read(&host).unwrap(), feature::BUILD_ID);
    let held = held_by_mappings(&bytes);
    assert!(held.len() > 2, "{held:?}");
    fs::write(&host, bytes).unwrap();
    let merged = path("merged.data");
    perfx(args!["merge", "-q", "-o", merged, host, path("guest.data")]).done().unwrap();
    let named = named_in_feature(&fs::read(&merged).unwrap());
    let lacking: Vec<_> = held.keys().filter(|name| !named.contains(*name)).collect();
    assert!(lacking.is_empty(), "{lacking:?} are not in {named:?}");
}

#[test]
fn samples_in_compressed_records_that_the_header_does_not_announce_count() {
    let Some(root) = workloads() else { return };
    let folder = temp();
    let path = |name: &str| folder.path().join(name);
    let announced = Fixture::new("recorded/no-buildid.p61.data");
    perfx(args!["compress", "-q", "--solid", "-o", path("announced"), announced.path]).done().unwrap();
    let bytes = without_feature(fs::read(path("announced")).unwrap(), feature::COMPRESSED);
    fs::write(path("not"), bytes).unwrap();
    let ids = ["announced", "not"].map(|name| {
        let out = path("out.data");
        let ran = perfx(args!["inject", "-b", "-f", "--foreign", "--root", root, "-o", out, path(name)]);
        // The section of the feature remains.
        assert!(matches!(ran.code, Some(0 | 3)), "{ran:?}");
        let bytes = fs::read(&out).unwrap();
        (ids_below(WORK, &bytes, false), kinds(&bytes))
    });
    assert!(ids[0].0.len() > 1, "{ids:?}");
    assert_eq!(ids[0], ids[1]);
}

/// The kinds of the records in the file, in order.
fn kinds(bytes: &[u8]) -> Vec<u32> {
    Contents::file(bytes).records(bytes).iter().map(|record| record.kind).collect()
}

/// Regression: they were found only by a second run, and the first reported that there are none.
#[test]
fn late_build_ids_are_reported_and_b_waits_for_them() {
    let folder = temp();
    let (input, output) = (folder.path().join("in.data"), folder.path().join("out.data"));
    let bytes = Fixture::new("recorded/pipe-inject-b.p61.data").bytes();
    let all = parse::records(&bytes[16..], Order::of(&bytes));
    let (ids, others): (Vec<_>, Vec<_>) = all.iter().partition(|record| record.kind == BUILD_ID);
    let moved = others.iter().chain(&ids).flat_map(|record| record.bytes.clone());
    fs::write(&input, bytes[..16].iter().copied().chain(moved).collect::<Vec<u8>>()).unwrap();
    assert_eq!(ids.len(), 2);
    let inject =
        |option| perfx(args!["inject", option, "--foreign", "--to", "pipe", &input, "-f", "-o", &output]);
    let ran = inject("--buildid-all");
    let said =
        "the build-ids of 2 DSOs come only after the first mapping, where they stay; perfx inject -b waits";
    assert!(ran.stderr.contains(said), "{}", ran.stderr);
    let ran = inject("-b");
    assert!(ran.stderr.contains("injected 2 HEADER_BUILD_ID records"), "{}", ran.stderr);
}

#[test]
fn ids_keep_their_positions_after_another_pass() {
    let Some(root) = workloads() else { return };
    let folder = temp();
    let path = |name: &str| folder.path().join(name);
    let fixture = Fixture::new("recorded/no-buildid.p61.data");
    for (name, chain) in [
        ("alone", ["build-ids:root=ROOT:foreign"].as_slice()),
        ("behind", &["reindex-ids", "reindex-times", "build-ids:root=ROOT:foreign"]),
        ("between", &["decompress", "build-ids:root=ROOT:foreign", "reindex-times", "sort"]),
        ("sorted", &["build-ids:root=ROOT:foreign", "sort"]),
    ] {
        let mut line = args!["run", "-q", "-o", path(name), fixture.path].to_vec();
        for pass in chain {
            line.extend(["-p".into(), pass.replace("ROOT", root.to_str().unwrap()).into()]);
        }
        perfx(line).done().unwrap();
    }
    let bytes = |name| fs::read(path(name)).unwrap();
    assert!(ids_below(WORK, &bytes("alone"), false).len() > 1);
    assert_eq!(bytes("behind"), bytes("alone"));
    assert_eq!(bytes("between"), bytes("sorted"));
}

#[test]
fn into_pipe_data_that_has_all_ids_nothing_is_injected() {
    let fixture = Fixture::new("recorded/buildid-all.p73.data");
    let ran = perfx(args!["inject", "-b", "--foreign", fixture.path, "--to", "pipe"]);
    assert!(ran.stderr.contains("nothing injected"), "{}", ran.stderr);
}
