//! A file names code only if it is provably the recorded one, or if the user names it.

use std::ffi::OsString;
use std::fs;
use std::io::Read as _;
use std::os::unix::fs::MetadataExt as _;
use std::path::{Path, PathBuf};

use build_id::{BuildId, Object};
use flate2::read::GzDecoder;
use perfx_format::features::write_str;
use perfx_format::read::Recording;
use perfx_format::write::RecordingWriter;
use perfx_format::{Endian, Feature, Inode, MappedFile};
use perfx_resolve::{Facts, IdOptions, Images, Search};

use crate::args;
use crate::made::{ID, elf};
use crate::maker::{LE, Maker, PLAIN, event};
use crate::support::{Ran, Stdin, all, each, each_fixture, holds, perfx_command, root, run, temp};

/// A file whose only function is called `stranger`.
fn program() -> Vec<u8> {
    let mut bytes = elf(&[(".text", vec![0xc3; 0x2000])]);
    let name = bytes.windows(10).position(|window| window == b"\0function\0").unwrap();
    bytes[name + 1..name + 9].copy_from_slice(b"stranger");
    bytes
}

/// Like [`program`], without a build-id.
fn without_id() -> Vec<u8> {
    let mut bytes = program();
    let name = bytes.windows(4).position(|window| window == b"GNU\0").unwrap();
    bytes[name..name + 3].copy_from_slice(b"XXX");
    bytes
}

/// This machine as described by its kernel: host name, release and architecture.
pub(crate) fn here() -> [String; 3] {
    let line = |name: &str| {
        let text = fs::read_to_string(format!("/proc/sys/kernel/{name}")).ok();
        text.map_or_else(|| std::env::consts::ARCH.to_owned(), |text| text.trim_end().to_owned())
    };
    ["hostname", "osrelease", "arch"].map(line)
}

/// A recording of this machine with a sample in a file; `None`: it does not name its machine.
fn recorded(out: &Path, machine: Option<&[String; 3]>, path: &Path, file: Option<MappedFile<'_>>) {
    let mut maker = Maker::new(out, &[event(PLAIN, Vec::new())]);
    for (feature, text) in
        [Feature::HOSTNAME, Feature::OSRELEASE, Feature::ARCH].into_iter().zip(machine.into_iter().flatten())
    {
        maker.writer.set_feature(feature, write_str(text.as_bytes(), LE)).unwrap();
    }
    maker.comm(7, "prog", 0);
    let path = path.to_str().unwrap();
    match file {
        Some(file) => maker.mmap2(7, 0x10_0000, 0x10_000, file, path),
        None => maker.mmap(7, 0x10_0000, 0x10_000, path),
    }
    maker.sample(7, 0x10_1008);
    maker.writer.finish().unwrap();
}

/// The output of perfx with this folder as HOME.
fn at_home(home: &Path, line: impl IntoIterator<Item = OsString>) -> Ran {
    run(perfx_command().env("HOME", home).args(line), Stdin::Null)
}

fn folded(home: &Path, recording: &Path, more: &[OsString]) -> Ran {
    at_home(home, args!["export", "folded", recording, "-o", "-"].into_iter().chain(more.iter().cloned()))
}

const NAMED: &str = "prog;stranger 1000\n";
const NAMELESS: &str = "prog;[prog] 1000\n";

/// Each recording with a file at its path, its description of the file, and true if the file may name code.
#[test]
fn a_file_that_merely_shares_a_path_names_nothing() {
    let folder = temp();
    let (path, data) = (folder.path().join("prog"), folder.path().join("in.data"));
    fs::write(&path, program()).unwrap();
    let stat = fs::metadata(&path).unwrap();
    let inode = |inode| Some(MappedFile::Inode(Inode { major: 0, minor: 0, inode, generation: 0 }));
    let (own, other) = (here(), |at: usize| {
        let mut machine = here();
        machine[at] = "another".to_owned();
        machine
    });
    let (no_host, no_release, no_arch) = (other(0), other(1), other(2));
    let other_id = Some(MappedFile::BuildId(&[7; 20]));
    for (what, machine, file, bytes, expected) in [
        ("no machine, no inode", None, None, program(), NAMELESS),
        ("no machine, the inode", None, inode(stat.ino()), program(), NAMELESS),
        ("another host", Some(&no_host), inode(stat.ino()), program(), NAMELESS),
        ("another release", Some(&no_release), inode(stat.ino()), program(), NAMELESS),
        ("another architecture", Some(&no_arch), inode(stat.ino()), program(), NAMELESS),
        ("this machine, another inode", Some(&own), inode(stat.ino() + 1), program(), NAMELESS),
        ("this machine, another id", Some(&own), other_id, program(), NAMELESS),
        ("an id that the file lacks", Some(&own), Some(MappedFile::BuildId(&ID)), without_id(), NAMELESS),
        ("this machine, the inode", Some(&own), inode(stat.ino()), program(), NAMED),
        ("this machine, a file without id", Some(&own), inode(stat.ino()), without_id(), NAMED),
        ("this machine, no inode", Some(&own), None, program(), NAMED),
        ("no machine, the id", None, Some(MappedFile::BuildId(&ID)), program(), NAMED),
    ] {
        fs::write(&path, bytes).unwrap();
        recorded(&data, machine, &path, file);
        assert_eq!(folded(folder.path(), &data, &[]).text(), expected, "{what}");
    }
    // The user names the folder.
    fs::write(&path, program()).unwrap();
    recorded(&data, None, &path, None);
    assert_eq!(folded(folder.path(), &data, &args!["--root", "/"]).text(), NAMED);
}

/// Regression: `pack` took ids and files of this machine by their names alone for any recording without ids,
/// and `inject -b` did not report all of them.
#[test]
fn a_foreign_recording_gets_no_file_of_this_machine_into_its_pack() {
    let folder = temp();
    let (path, data) = (folder.path().join("prog"), folder.path().join("in.data"));
    fs::write(&path, program()).unwrap();
    let inode = fs::metadata(&path).unwrap().ino();
    let inode = MappedFile::Inode(Inode { major: 0, minor: 0, inode, generation: 0 });
    let own = here();
    let foreign = ["another".to_owned(), own[1].clone(), own[2].clone()];
    let packed = |more: &[OsString]| {
        let line = args!["pack", "-n", data].into_iter().chain(more.iter().cloned());
        at_home(folder.path(), line)
    };
    recorded(&data, Some(&own), &path, Some(inode));
    let ran = packed(&[]);
    assert!(ran.stderr.contains("/prog/") && ran.code == Some(0), "{}", ran.stderr);
    recorded(&data, Some(&foreign), &path, Some(inode));
    let ran = packed(&[]);
    assert_eq!(ran.code, Some(3), "{}", ran.stderr);
    assert!(ran.stderr.contains("the recording has no build-id for it"), "{}", ran.stderr);
    assert!(!ran.stderr.contains("/prog/") && !ran.stderr.contains("added the build-ids"), "{}", ran.stderr);
    assert!(packed(&args!["--root", "/"]).stderr.contains("/prog/"));
    for (machine, is_said) in [(&own, false), (&foreign, true)] {
        recorded(&data, Some(machine), &path, Some(inode));
        let out = folder.path().join("out.data");
        let ran = at_home(folder.path(), args!["inject", "-b", "-f", data, "-o", out]);
        assert_eq!(ran.stderr.contains("1 file was found by name only"), is_said, "{}", ran.stderr);
    }
}

/// Regression: the zeros after a shorter id were in the names of files and in tables, and made a second
/// entry.
#[test]
fn padding_zeros_are_not_part_of_an_id() {
    let folder = temp();
    let (data, out) = (folder.path().join("in.data"), folder.path().join("out.data"));
    let mut id = [7; 20];
    id[16..].fill(0);
    recorded(&data, None, Path::new("/opt/gone/prog"), Some(MappedFile::BuildId(&id)));
    let short = "07".repeat(16);
    let ran = at_home(folder.path(), args!["list", "dsos", "--json", data]);
    assert!(ran.text().contains(&format!("\"build_id\": \"{short}\"")), "{}", ran.text());
    let known = format!("{short} /opt/gone/prog");
    let line = args!["inject", "-b", "-f", "--foreign", "--known-build-ids", known, data, "-o", out];
    at_home(folder.path(), line).done().unwrap();
    let ran = at_home(folder.path(), args!["list", "build-ids", out]);
    assert_eq!(
        (ran.text().lines().count(), ran.text().contains(&format!("{short} "))),
        (2, true),
        "{}",
        ran.text()
    );
}

/// A name is enough in a cache that the user names, but `~/.debug` has files of any recording.
#[test]
fn the_cache_in_the_home_folder_names_code_by_its_build_id_alone() {
    let folder = temp();
    let (path, data) = (folder.path().join("gone/prog"), folder.path().join("in.data"));
    let cache = folder.path().join(".debug");
    plant(&cache, path.to_str().unwrap(), "elf", &program());
    for machine in [None, Some(&here())] {
        recorded(&data, machine, &path, None);
        assert_eq!(folded(folder.path(), &data, &[]).text(), NAMELESS);
        assert_eq!(folded(folder.path(), &data, &args!["--buildid-dir", cache]).text(), NAMED);
        recorded(&data, machine, &path, Some(MappedFile::BuildId(&ID)));
        assert_eq!(folded(folder.path(), &data, &[]).text(), NAMED);
    }
}

/// Puts a file into a cache of perf, as `perf record` does.
fn plant(cache: &Path, path: &str, name: &str, bytes: &[u8]) {
    let hex = BuildId::new(&ID).unwrap().to_string();
    let folder = cache.join(path.trim_start_matches('/')).join(&hex);
    let link = cache.join(".build-id").join(&hex[..2]).join(&hex[2..]);
    fs::create_dir_all(&folder).unwrap();
    fs::create_dir_all(link.parent().unwrap()).unwrap();
    fs::write(folder.join(name), bytes).unwrap();
    let _ = std::os::unix::fs::symlink(folder, link);
}

/// Every reader uses code from the same places.
#[test]
fn no_reader_takes_names_or_code_from_a_file_that_merely_shares_a_path() {
    let folder = temp();
    let (path, data) = (folder.path().join("prog"), folder.path().join("in.data"));
    fs::write(&path, program()).unwrap();
    recorded(&data, None, &path, None);
    let out = folder.path().join("out");
    let lines = [
        args!["view", data].to_vec(),
        args!["list", "functions", data].to_vec(),
        args!["list", "stacks", data].to_vec(),
        args!["export", "pprof", data, "-f", "-o", out].to_vec(),
        args!["export", "firefox", data, "-f", "-o", out].to_vec(),
        args!["overview", data].to_vec(),
        args!["export", "csv", data, "-f", "--dir", out].to_vec(),
        args!["export", "folded", "--symbol", "stranger", data, "-o", "-"].to_vec(),
    ];
    let names = |line: Vec<OsString>| {
        let ran = at_home(folder.path(), line);
        let made = fs::read(&out).or_else(|_| fs::read(out.join("results.csv"))).unwrap_or_default();
        let mut plain = Vec::new();
        let _ = GzDecoder::new(&made[..]).read_to_end(&mut plain);
        let _ = fs::remove_file(&out).or_else(|_| fs::remove_dir_all(&out));
        [ran.stdout, made, plain].concat()
    };
    for line in lines {
        assert!(!holds(&names(line.clone()), "stranger"), "{line:?}");
        let named = line.iter().cloned().chain(args!["--root", "/"]).collect();
        assert!(holds(&names(named), "stranger"), "{line:?}");
    }
}

/// A recording without the build-ids of its features.
fn nameless(path: &Path, out: &Path) {
    let mut recording = Recording::open(path).unwrap();
    let mut writer = RecordingWriter::create(out, &recording.events, recording.endian).unwrap();
    for (&feature, section) in recording.features.iter().filter(|(feature, _)| **feature != Feature::BUILD_ID)
    {
        writer.set_feature(feature, section.clone()).unwrap();
    }
    let mut records = recording.records();
    while let Some(record) = records.next_record().unwrap() {
        writer.write_record(&record).unwrap();
    }
    writer.finish().unwrap();
}

/// Not even if its cache has files of the recorded names, and the recording no build-ids.
#[test]
fn recordings_of_other_machines_get_no_names_of_this_one() {
    let folder = temp();
    let machines: Vec<PathBuf> = fs::read_dir(root().join("tests/data/foreign"))
        .unwrap()
        .map(|entry| entry.unwrap().path().join("dwarf.data"))
        .filter(|data| data.exists())
        .collect();
    assert!(machines.len() > 6);
    each(
        &machines,
        |data| data.display().to_string(),
        |data| {
            let home = folder.path().join(data.parent().unwrap().file_name().unwrap());
            let (cache, copy) = (home.join(".debug"), home.join("in.data"));
            fs::create_dir_all(&cache).unwrap();
            let mut recording = Recording::open(data).unwrap();
            let facts = Facts::survey(&mut recording, 1, false).unwrap();
            for (dso, _) in facts.spaces.dsos() {
                let name = String::from_utf8_lossy(perfx_resolve::dso_name(dso)).into_owned();
                let entry = if name.starts_with("[vdso") { "vdso" } else { "elf" };
                plant(&cache, &name, entry, &program());
            }
            let kallsyms =
                b"ffffffff81000000 T _text\nffffffff81000000 T _stext\nffffffff81000100 t stranger\n";
            plant(&cache, "[kernel.kallsyms]", "kallsyms", kallsyms);
            nameless(data, &copy);
            for data in [data, &copy] {
                let (with, without) =
                    (folded(&home, data, &[]), folded(folder.path(), data, &args!["--foreign"]));
                if with.text() != without.text() || with.text().is_empty() {
                    return Err(format!("{}\n{}", with.text(), without.text()));
                }
            }
            Ok(())
        },
    );
}

/// Neither files nor the running kernel.
#[test]
fn no_recording_of_the_tests_gets_code_of_this_machine_by_a_name() {
    let mut fixtures = all();
    fixtures.retain(|fixture| Recording::open(&fixture.path).is_ok());
    each_fixture(&fixtures, |fixture| {
        let Ok(mut recording) = Recording::open(&fixture.path) else { return Ok(()) };
        let Ok(facts) = Facts::survey(&mut recording, 1, false) else { return Ok(()) };
        let (features, endian, ids): (_, Endian, _) =
            (&recording.features, recording.endian, &IdOptions::default());
        let images = Images::new(Search { facts: &facts, features, endian, ids, inlined: false });
        for number in 0..facts.spaces.dsos().len() as u32 {
            let Some((dso, object)) = images.object(number).filter(|_| images.id(number).is_none()) else {
                continue;
            };
            let is_kernel = matches!(object, Object::Kernel | Object::Module(_));
            if images.of(number).is_some() || !is_kernel && images.code(number).is_some() {
                return Err(format!("{}", dso.name.escape_ascii()));
            }
        }
        Ok(())
    });
}
