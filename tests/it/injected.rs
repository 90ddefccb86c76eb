//! `inject` puts in the ids that the files have, of the DSOs that perf finds hit, before the first sample that hits, once, and into every
//! form of recording; perf says the same of the samples as before.

use std::collections::{BTreeMap, BTreeSet, HashMap};
use std::fs;
use std::os::unix::fs::MetadataExt;
use std::path::Path;

use object::Object as _;

use crate::args;
use crate::oracle::{Case, Question, SAMPLES, STATS, STATS_BUT_MAPPINGS, main_perfs_agree};
use crate::parse::{BUILD_ID, Contents, Rec, feature};
use crate::support::{Fixture, Stdin, each, perfs, perfx, same_bytes, temp, workloads};

/// Where the recordings say that the workloads are.
const WORK: &str = "/tmp/perfx-data/work";

/// The id of an ELF file, or none.
fn id_of(path: &Path) -> Option<Vec<u8>> {
    let bytes = fs::read(path).unwrap_or_else(|e| panic!("{}: {e}", path.display()));
    object::File::parse(&*bytes).unwrap().build_id().unwrap().map(<[u8]>::to_vec)
}

/// Injects the ids of the workloads, as if `root` were the recorded machine's `/`.
fn inject(options: &[&str], root: &Path, input: &Path, out: &Path) -> Result<(), String> {
    let mut args = args!["inject", "-q", "--no-files", "--root", root, "-o", out, input].to_vec();
    args.extend(options.iter().map(Into::into));
    let ran = perfx(args);
    if ran.code == Some(0) { Ok(()) } else { Err(format!("{options:?}: {ran:?}")) }
}

/// The ids in a recording of DSOs below a folder, by their names without it.
fn ids_below(folder: &str, bytes: &[u8], is_pipe: bool) -> BTreeMap<String, Vec<u8>> {
    let contents = if is_pipe { Contents::pipe(bytes) } else { Contents::file(bytes) };
    let below = |(_, id, name): (i32, Vec<u8>, Vec<u8>)| {
        let name = String::from_utf8(name).ok()?;
        Some((name.strip_prefix(folder)?.trim_start_matches('/').to_owned(), id))
    };
    contents.build_ids(bytes).into_iter().filter_map(below).collect()
}

/// The ids that MMAP2 records hold, the same way.
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

/// Which DSO each sample hits with its own address: index of the record, path. For recordings of one event with IP, TID, TIME and PERIOD.
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

/// A recording as if it had been made of programs in `folder`, whose name is as long as the original's. They are other files, so their
/// inodes go in, too.
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
    // perf 7 reads all of them, perf 6.1 those it recorded.
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
            // Only the section: perf 6.1's records do not say how long an id is.
            let theirs = ids_below(below, &section_only(theirs), false);
            let ours = ids_below(below, &section_only(fs::read(&ours).unwrap()), false);
            assert_eq!(ours, theirs, "{name}: perfx and {} inject {options}", perf.name);
            assert!(!theirs.is_empty(), "{name}");
            compared += 1;
        }
    }
    assert!(compared >= 4, "only {compared} of them could be compared");
}

/// The file with its BUILD_ID records made unknown ones.
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
            // What the mapping tells is not told again in a pipe.
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
    // Ids that no file has: perf must not look for symbols in a file that is another one.
    const IDS: &str = "0102030405060708090a0b0c0d0e0f1011121314 /tmp/perfx-data/work/burn,\
        15161718191a1b1c1d1e1f202122232425262728 /tmp/perfx-data/work/forks,\
        292a2b2c2d2e2f30 /usr/lib/x86_64-linux-gnu/libc.so.6";
    const COMMANDS: [&[&str]; 5] = [
        &["inject", "--no-files", "--known-build-ids", IDS, "--buildids"],
        &["inject", "--no-files", "--known-build-ids", IDS, "--buildids", "--to", "pipe"],
        &["inject", "--no-files", "--known-build-ids", IDS, "--buildid-all"],
        &["inject", "--no-files", "--known-build-ids", IDS, "--mmap2-buildids"],
        &["inject", "--no-files", "--known-build-ids", IDS, "--mmap2-buildid-all"],
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
        let ran = perfx(args!["inject", "-q", "-b", "--no-files", "--root", root, "--in-place", there]);
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
