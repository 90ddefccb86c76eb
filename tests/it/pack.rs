//! The packed files name the same functions after `unpack`, for perf and perfx; `unpack` writes all of a pack
//! and nothing else, or nothing.

use std::ffi::OsString;
use std::fs;
use std::io::Read as _;
use std::os::unix::fs::{MetadataExt as _, PermissionsExt as _, symlink};
use std::path::{Path, PathBuf};

use perfx_format::features::write_str;
use perfx_format::record::cpumode;
use perfx_format::write::RecordingWriter;
use perfx_format::{Attr, Endian, Event, Feature, Inode, MappedFile, Mmap2, RecordType, sample_type as st};
use serde_json::Value as Json;
use tar::{Archive, Builder, EntryType, Header};

use crate::args;
use crate::names::here;
use crate::support::{Fixture, Ran, Stdin, clean, is_installed, perfs, perfx, perfx_with, run, temp};
use crate::symbols::Workshop;

fn pack(recording: &Path, options: &[OsString], out: &Path) -> Ran {
    let mut args = args!["pack", recording, "-o", out].to_vec();
    args.extend_from_slice(options);
    perfx(args)
}

fn unpack(pack: &Path, into: &Path) -> Ran {
    perfx(args!["unpack", pack, "-o", into])
}

/// The archive without compression.
fn opened(pack: &Path) -> Vec<u8> {
    zstd::decode_all(&*fs::read(pack).unwrap()).unwrap()
}

fn names(archive: &[u8]) -> Vec<String> {
    let mut archive = Archive::new(archive);
    let entries = archive.entries().unwrap();
    entries.map(|entry| entry.unwrap().path().unwrap().to_str().unwrap().to_owned()).collect()
}

/// A build-id cache with the stripped program and its debug file.
fn cache(shop: &Workshop) -> PathBuf {
    let (cache, hex) = (shop.path("cache"), shop.id().to_string());
    let entry = cache.join(".build-id").join(&hex[..2]).join(&hex[2..]);
    fs::create_dir_all(&entry).unwrap();
    fs::copy(shop.path("stripped"), entry.join("elf")).unwrap();
    fs::copy(shop.path("program.debug"), entry.join("debug")).unwrap();
    cache
}

#[test]
fn each_of_several_recordings_has_a_pack() {
    let folder = temp();
    let (list, packs) = (folder.path().join("list"), folder.path().join("packs"));
    let path = |name: &str| Fixture::new(&format!("recorded/{name}.data")).path.display().to_string();
    let names = ["plain.p61", "cut-00050.p61", "fp.p61", "plain.p61"];
    fs::write(&list, names.map(path).join("\n")).unwrap();
    let at = format!("@{}", list.display());
    let ran = perfx(args!["pack", "--foreign", at, "--dir", packs]);
    assert_eq!(ran.code, Some(1));
    assert!(ran.stderr.contains("1 of 4 recordings failed and have no pack"), "{}", ran.stderr);
    let made = fs::read_dir(&packs).unwrap().map(|entry| entry.unwrap().file_name().into_string().unwrap());
    let mut made: Vec<String> = made.collect();
    made.sort();
    assert_eq!(made, ["fp.p61.data.tar.zst", "plain.p61.data-2.tar.zst", "plain.p61.data.tar.zst"]);
    let alone = folder.path().join("alone");
    perfx(args!["pack", "-q", "--foreign", path("fp.p61"), "-o", alone]);
    assert!(fs::read(packs.join(&made[0])).unwrap() == fs::read(&alone).unwrap());
    for (line, said) in [
        (&args!["pack", at][..], "a pack holds one recording: --dir DIR makes a pack of each"),
        (&args!["pack", "@nowhere"], "@nowhere: the list of inputs can't be read"),
        (&args!["info", "@nowhere"], "@nowhere: no such file; this command reads one recording"),
    ] {
        let ran = perfx(line);
        assert!(ran.code == Some(2) && ran.stderr.contains(said), "{:?} {}", ran.code, ran.stderr);
    }
}

#[test]
fn functions_have_the_same_names_after_a_pack_is_unpacked() {
    let Some(shop) = Workshop::new() else { return };
    let (recording, cache, id) = (shop.recording(), cache(&shop), shop.id().to_string());
    let (pack_at, folder) = (shop.path("out.tar.zst"), shop.path("out"));
    let places = args!["--foreign", "--buildid-dir", cache];
    let listed = perfx([&args!["pack", "-n", recording][..], &places].concat());
    assert_eq!(listed.code, Some(0), "{}", listed.stderr);
    assert!(listed.stderr.contains(&format!("would pack nowhere/program/{id}/elf: ")), "{}", listed.stderr);
    let ran = pack(&recording, &places, &pack_at);
    assert_eq!(ran.code, Some(0), "{}", ran.stderr);
    let archive = opened(&pack_at);
    let entry = |name| format!("nowhere/program/{id}/{name}");
    let link = format!(".build-id/{}/{}", &id[..2], &id[2..]);
    assert_eq!(names(&archive), ["perf.data", &entry("debug"), &entry("elf"), &link, "manifest.json"]);
    fs::rename(&cache, shop.path("away")).unwrap();

    let ran = perfx(args!["unpack", pack_at]);
    assert_eq!(ran.code, Some(0), "{}", ran.stderr);
    assert_eq!(fs::read(folder.join("perf.data")).unwrap(), fs::read(&recording).unwrap());
    let args = args![
        "export",
        "folded",
        "--foreign",
        "--no-inline",
        "--buildid-dir",
        folder,
        folder.join("perf.data")
    ];
    assert_eq!(perfx(args).text(), ":7;hidden 1\n");
    for perf in perfs(&["perf", "perf-new"]) {
        let args =
            args!["--buildid-dir", folder, "script", "-f", "-F", "ip,sym", "-i", folder.join("perf.data")];
        let ran = perf.run(Stdin::Null, args);
        assert!(ran.text().trim().ends_with(" hidden"), "{}: {} {}", perf.name, ran.text(), ran.stderr);
    }
    // As the users of perf archive unpack it.
    if is_installed("zstd", "apt-get install zstd") {
        let home = shop.path("home/.debug");
        fs::create_dir_all(&home).unwrap();
        let ran = run(clean("tar").args(args!["--zstd", "-xf", pack_at, "-C", home]), Stdin::Null);
        assert_eq!(ran.code, Some(0), "{}", ran.stderr);
        let args = args!["export", "folded", "--foreign", "--no-inline", "--buildid-dir", home, recording];
        assert_eq!(perfx(args).text(), ":7;hidden 1\n");
    }
    let ran = unpack(&pack_at, &folder);
    assert_eq!(ran.code, Some(1));
    assert!(ran.stderr.contains("exists: give another folder"), "{}", ran.stderr);
}

#[test]
fn a_pack_has_the_same_bytes_each_time_and_a_manifest_of_its_schema() {
    let Some(shop) = Workshop::new() else { return };
    let (recording, cache) = (shop.recording(), cache(&shop));
    let (first, second) = (shop.path("1.tar.zst"), shop.path("2.tar.zst"));
    let places = args!["--foreign", "--buildid-dir", cache];
    pack(&recording, &places, &first);
    fs::set_permissions(&recording, fs::Permissions::from_mode(0o777)).unwrap();
    pack(&recording, &[&places[..], &args!["-@", "1"]].concat(), &second);
    assert_eq!(fs::read(&first).unwrap(), fs::read(&second).unwrap());
    let folder = shop.path("out");
    unpack(&first, &folder);
    let manifest: Json = serde_json::from_slice(&fs::read(folder.join("manifest.json")).unwrap()).unwrap();
    crate::stats::conforms("pack", &manifest).unwrap();
    if is_installed("sha256sum", "apt-get install coreutils") {
        for file in manifest["files"].as_array().unwrap() {
            let path = folder.join(file["path"].as_str().unwrap());
            let ran = run(clean("sha256sum").arg(&path), Stdin::Null);
            assert_eq!(ran.text().split(' ').next(), file["sha256"].as_str());
            assert_eq!(fs::metadata(&path).unwrap().len(), file["bytes"].as_u64().unwrap());
        }
    }
}

#[test]
fn missing_files_are_reported_and_in_the_manifest() {
    let Some(shop) = Workshop::new() else { return };
    let pack_at = shop.path("out.tar.zst");
    // Another file is at the recorded path in the cache.
    fs::copy(env!("CARGO_BIN_EXE_perfx"), shop.path("stripped")).unwrap();
    let ran = pack(&shop.recording(), &args!["--foreign", "--buildid-dir", cache(&shop)], &pack_at);
    assert_eq!(ran.code, Some(3), "{}", ran.stderr);
    let why = "/nowhere/program: no file with this build-id was found";
    assert!(ran.stderr.contains(why), "{}", ran.stderr);
    assert!(!ran.stderr.contains("inject -b"), "{}", ran.stderr);
    assert_eq!(names(&opened(&pack_at)), ["perf.data", "manifest.json"]);
    let ran = perfx(args!["unpack", pack_at]);
    assert_eq!(ran.code, Some(0), "{}", ran.stderr);
    assert!(ran.stderr.contains(&format!("not in the pack: {why}")), "{}", ran.stderr);
}

/// Begins a recording whose samples have an address, a task and a period.
fn recording_of_addresses(path: &Path, endian: Endian) -> RecordingWriter<fs::File> {
    let mut attr = Attr::default();
    (attr.type_, attr.sample_period, attr.sample_type) = (1, 1, st::IP | st::TID | st::PERIOD);
    let event = Event::made(&attr, Vec::new(), endian);
    RecordingWriter::create(path, std::slice::from_ref(&event), endian).unwrap()
}

/// JIT compilers list their code in /tmp/perf-PID.map.
#[test]
fn a_pack_has_the_perf_maps_of_the_processes() {
    let (folder, endian) = (temp(), Endian::Little);
    let at = |name: &str| folder.path().join(name);
    let mut writer = recording_of_addresses(&at("in.data"), endian);
    let memory = Mmap2 {
        misc: cpumode::USER,
        pid: 7,
        tid: 7,
        start: 0x10_0000,
        len: 0x1000,
        pgoff: 0,
        file: MappedFile::Inode(Inode { major: 0, minor: 0, inode: 0, generation: 0 }),
        prot: 5,
        flags: 2,
        name: b"//anon",
        trailer: &[],
    };
    writer.write(&memory.write(endian).unwrap()).unwrap();
    let parts = [&endian.bytes_u64(0x10_0010)[..], &[7, 0, 0, 0, 7, 0, 0, 0], &endian.bytes_u64(1)];
    writer.write_parts(RecordType::SAMPLE, cpumode::USER, &parts).unwrap();
    writer.finish().unwrap();
    fs::create_dir_all(at("root/tmp")).unwrap();
    fs::write(at("root/tmp/perf-7.map"), "100000 100 compiled\n").unwrap();
    let root = args!["--foreign", "--root", at("root")];
    let ran = pack(&at("in.data"), &root, &at("p.tar.zst"));
    assert_eq!(ran.code, Some(0), "{}", ran.stderr);
    let ran = perfx(args!["unpack", at("p.tar.zst")]);
    assert!(ran.stderr.contains("perf reads perf maps from /tmp only"), "{}", ran.stderr);
    let args = args!["export", "folded", "--foreign", "--root", at("p"), at("p/perf.data")];
    assert_eq!(perfx(args).text(), ":7;compiled 1\n");
    // Without it, the pack lacks names, which is reported.
    let ran = pack(&at("in.data"), &args!["--foreign"], &at("q.tar.zst"));
    assert_eq!(ran.code, Some(3), "{}", ran.stderr);
    assert!(ran.stderr.contains("/tmp/perf-7.map: its recorded path is not searched"), "{}", ran.stderr);
}

#[test]
fn a_recording_of_any_form_is_packed_as_it_is() {
    let folder = temp();
    let at = |name: &str| folder.path().join(name);
    for (number, name) in ["plain.p61.data", "pipe.p61.data", "z.p73.data"].into_iter().enumerate() {
        let (fixture, pack_at) =
            (Fixture::new(&format!("recorded/{name}")), at(&format!("{number}.tar.zst")));
        let bytes = fixture.bytes();
        for stdin in [Stdin::Pipe(&bytes), Stdin::File(&fixture.path)] {
            let ran = perfx_with(stdin, args!["pack", "--foreign", "-", "-f", "-o", pack_at]);
            assert!(matches!(ran.code, Some(0 | 3)), "{name}: {}", ran.stderr);
            let (archive, mut packed) = (opened(&pack_at), Vec::new());
            let mut archive = Archive::new(&*archive);
            archive.entries().unwrap().next().unwrap().unwrap().read_to_end(&mut packed).unwrap();
            assert!(packed == bytes, "{name}");
        }
    }
    let fixture = Fixture::new("crafted/dir-kcore.data");
    pack(&fixture.path, &args!["--foreign"], &at("d.tar.zst"));
    let ran = perfx(args!["unpack", at("d.tar.zst")]);
    assert_eq!(ran.code, Some(0), "{}", ran.stderr);
    let ran = run(clean("diff").args(args!["-r", fixture.path, at("d/perf.data")]), Stdin::Null);
    assert_eq!(ran.code, Some(0), "{}", ran.text());
}

/// Regression: it ended with 3 and packed nothing, though inject -b finds the build-id in the same way.
#[test]
fn build_ids_that_the_recording_lacks_are_found_and_packed() {
    let Some(shop) = Workshop::new() else { return };
    let (program, endian) = (shop.path("program"), Endian::Little);
    let there = fs::metadata(&program).unwrap();
    let device = |number: u64| u32::try_from(number).unwrap();
    let file = Inode {
        major: device(rustix::fs::major(there.dev()).into()),
        minor: device(rustix::fs::minor(there.dev()).into()),
        inode: there.ino(),
        generation: 0,
    };
    let mapping = Mmap2 {
        misc: cpumode::USER,
        pid: 7,
        tid: 7,
        start: 0x10_0000,
        len: 0x10_0000,
        pgoff: 0,
        file: MappedFile::Inode(file),
        prot: 5,
        flags: 2,
        name: program.as_os_str().as_encoded_bytes(),
        trailer: &[],
    };
    let mut writer = recording_of_addresses(&shop.path("in.data"), endian);
    writer.write(&mapping.write(endian).unwrap()).unwrap();
    let ip = endian.bytes_u64(0x10_0000 + shop.inside("hidden"));
    let parts = [&ip[..], &[7, 0, 0, 0, 7, 0, 0, 0], &endian.bytes_u64(1)];
    writer.write_parts(RecordType::SAMPLE, cpumode::USER, &parts).unwrap();
    for (feature, text) in [Feature::HOSTNAME, Feature::OSRELEASE, Feature::ARCH].into_iter().zip(here()) {
        writer.set_feature(feature, write_str(text.as_bytes(), endian)).unwrap();
    }
    writer.finish().unwrap();
    perfx(args!["copy", "-q", "--to", "pipe", shop.path("in.data"), "-o", shop.path("pipe.data")])
        .done()
        .unwrap();
    for name in ["in", "pipe"] {
        let (packed, folder) = (shop.path("p.tar.zst"), shop.path(name));
        let ran = pack(&shop.path(&format!("{name}.data")), &args!["-f"], &packed);
        assert_eq!(ran.code, Some(0), "{}", ran.stderr);
        assert!(
            ran.stderr.contains("added the build-ids of 1 DSO to the packed recording"),
            "{}",
            ran.stderr
        );
        assert_eq!(unpack(&packed, &folder).code, Some(0));
        let args = args!["export", "folded", "--foreign", "--no-inline", "--buildid-dir", folder];
        let ran = perfx([&args[..], &args![folder.join("perf.data")]].concat());
        assert_eq!(ran.text(), ":7;hidden 1\n", "{}", ran.stderr);
    }
}

/// An entry of an archive: its type, its path, and the content or the target of a link.
type Entry<'a> = (EntryType, &'a str, &'a str);

fn archive(entries: &[Entry<'_>]) -> Vec<u8> {
    let mut archive = Builder::new(Vec::new());
    for &(kind, path, content) in entries {
        let mut header = Header::new_gnu();
        // Paths that the crate would refuse.
        header.as_gnu_mut().unwrap().name[..path.len()].copy_from_slice(path.as_bytes());
        header.set_entry_type(kind);
        header.set_size(0);
        if kind == EntryType::Symlink || kind == EntryType::Link {
            header.as_gnu_mut().unwrap().linkname[..content.len()].copy_from_slice(content.as_bytes());
        } else {
            header.set_size(content.len() as u64);
        }
        header.set_cksum();
        let content = if header.size().unwrap() == 0 { "" } else { content };
        archive.append(&header, content.as_bytes()).unwrap();
    }
    archive.into_inner().unwrap()
}

const FILE: EntryType = EntryType::Regular;
const LINK: EntryType = EntryType::Symlink;

/// A manifest of the file `a` with the contents `x`.
const MANIFEST: &str = r#"{"schema":1,"what":"pack","files":[{"path":"perf.data","bytes":0,"sha256":"e3b0c44298fc1c149afbf4c8996fb92427ae41e4649b934ca495991b7852b855"},{"path":"a","bytes":1,"sha256":"2d711642b726b04401627ca9fbac32f5c8530fb1903cc4db02258717921a4881"}],"missing":[]}"#;

#[test]
fn an_invalid_pack_leaves_nothing_behind() {
    let folder = temp();
    let inside = folder.path().join("inside");
    fs::create_dir(&inside).unwrap();
    let long = "n".repeat(5000);
    let manifest = (FILE, "manifest.json", MANIFEST);
    let [negative, text, fraction] = ["-1", r#""x""#, "1.5"]
        .map(|schema| MANIFEST.replace(r#""schema":1,"#, &format!(r#""schema":{schema},"#)));
    let cases: [(&str, &[Entry<'_>]); 28] = [
        (
            "manifest.json: its schema is -1, and this version of perfx reads",
            &[(FILE, "manifest.json", &negative)],
        ),
        ("manifest.json: its schema is \"x\"", &[(FILE, "manifest.json", &text)]),
        ("manifest.json: its schema is 1.5", &[(FILE, "manifest.json", &fraction)]),
        ("missing field `schema`", &[(FILE, "manifest.json", r#"{"what":"pack","files":[],"missing":[]}"#)]),
        ("a/b: File exists", &[(FILE, "a", "x"), (FILE, "a/b", "x")]),
        ("has no manifest.json", &[(FILE, "a", "x")]),
        (
            "it has no perf.data",
            &[(FILE, "manifest.json", r#"{"schema":1,"what":"pack","files":[],"missing":[]}"#)],
        ),
        ("a is missing", &[(FILE, "perf.data", ""), manifest]),
        ("a is damaged", &[(FILE, "perf.data", ""), (FILE, "a", "y"), manifest]),
        ("a is damaged", &[(FILE, "perf.data", ""), (FILE, "a", "xx"), manifest]),
        (
            "b is not in the manifest",
            &[(FILE, "perf.data", ""), (FILE, "a", "x"), (FILE, "b", "x"), manifest],
        ),
        ("after manifest.json", &[(FILE, "perf.data", ""), (FILE, "a", "x"), manifest, (FILE, "b", "x")]),
        ("`../a` is not a path inside", &[(FILE, "../a", "x")]),
        ("`/tmp/a` is not a path inside", &[(FILE, "/tmp/a", "x")]),
        ("`b/../../a` is not a path inside", &[(FILE, "b/../../a", "x")]),
        ("`` is not a path inside", &[(FILE, "", "x")]),
        ("`a/` is not a path inside", &[(FILE, "a/", "x")]),
        ("exists", &[(FILE, "a", "x"), (FILE, "a", "x")]),
        ("manifest.json: ", &[(FILE, "manifest.json", "[1]")]),
        ("neither a file nor a link", &[(EntryType::Fifo, "a", "")]),
        ("neither a file nor a link", &[(EntryType::Link, "a", "/etc/passwd")]),
        ("it links a to /etc/passwd", &[(LINK, "a", "/etc/passwd")]),
        ("to ../../../b", &[(LINK, ".build-id/aa/bb", "../../../b")]),
        ("to ../../.build-id/aa", &[(LINK, ".build-id/aa/bb", "../../.build-id/aa")]),
        ("it links .build-id/aa to", &[(LINK, ".build-id/aa", "../../b")]),
        (".build-id/aa/bb/elf is not a link", &[(FILE, ".build-id/aa/bb/elf", "x")]),
        ("a name is too long", &[(EntryType::GNULongName, "././@LongLink", &long), (FILE, "a", "x")]),
        ("not a pack", &[]),
    ];
    for (wrong, entries) in cases {
        let pack_at = folder.path().join("p.tar.zst");
        let bytes = if wrong == "not a pack" { vec![7; 600] } else { archive(entries) };
        fs::write(&pack_at, zstd::encode_all(&*bytes, 1).unwrap()).unwrap();
        let ran = unpack(&pack_at, &inside.join("out"));
        assert_eq!(ran.code, Some(1), "{wrong}: {}", ran.stderr);
        assert!(ran.stderr.contains(wrong), "{wrong}: {}", ran.stderr);
        // A temporary name changes with each run, and the folder is gone.
        assert!(!ran.stderr.contains(".perfx-"), "{wrong}: {}", ran.stderr);
        assert_eq!(fs::read_dir(&inside).unwrap().count(), 0, "{wrong}");
    }
    assert!(!folder.path().join("a").exists());
    // Uncompressed data is not a pack; neither is one whose name gives no folder.
    let plain = folder.path().join("plain.tar");
    fs::write(&plain, archive(&[(FILE, "perf.data", ""), (FILE, "a", "x"), manifest])).unwrap();
    assert_eq!(unpack(&plain, &inside.join("out")).code, Some(1));
    assert_eq!(perfx(args!["unpack", plain]).code, Some(2));
    // But these entries are a pack, also into an empty folder.
    let good = folder.path().join("good.tar.zst");
    let entries = [(FILE, "perf.data", ""), (FILE, "a", "x"), (LINK, ".build-id/aa/bb", "../../b"), manifest];
    fs::write(&good, zstd::encode_all(&*archive(&entries), 1).unwrap()).unwrap();
    let ran = unpack(&good, &inside);
    assert_eq!(ran.code, Some(0), "{}", ran.stderr);
    assert_eq!(fs::read(inside.join("a")).unwrap(), b"x");
}

/// 673 kB became 20 GB on disk, and 2 kB 300,000 folders.
#[test]
fn a_small_pack_does_not_fill_the_disk() {
    let folder = temp();
    let (bomb, out) = (folder.path().join("p.tar.zst"), folder.path().join("out"));
    let zeros = "\0".repeat(3 << 20);
    let hash = "bbd05cf6097ac9b1f89ea29d2542c1b7b67ee46848393895f5a9e43fa1f621e5";
    let manifest = format!(
        r#"{{"schema":1,"what":"pack","files":[{{"path":"perf.data","bytes":{},"sha256":"{hash}"}}],"missing":[]}}"#,
        zeros.len()
    );
    let entries = [(FILE, "perf.data", &*zeros), (FILE, "manifest.json", &*manifest)];
    fs::write(&bomb, zstd::encode_all(&*archive(&entries), 1).unwrap()).unwrap();
    let unpack = |more: &[&str]| {
        let args = args!["unpack", bomb, "-o", out];
        perfx(args.iter().cloned().chain(more.iter().map(Into::into)))
    };
    let ran = unpack(&["--max-size", "1M"]);
    assert_eq!((ran.code, out.exists()), (Some(1), false), "{}", ran.stderr);
    assert!(ran.stderr.contains("perf.data: the files have more than 1.0 MB, which --max-size allows"));
    let ran = unpack(&["--max-size", "4M"]);
    assert_eq!(ran.code, Some(0), "{}", ran.stderr);
    let file = out.join("perf.data").metadata().unwrap();
    assert_eq!((file.len(), file.blocks()), (3 << 20, 0));
    assert_eq!(unpack(&["--max-size", "much"]).code, Some(2));
    let deep: Vec<String> = (0..60).map(|first| format!("{first}{}", "/a".repeat(40))).collect();
    let entries: Vec<_> = deep.iter().map(|path| (FILE, &**path, "")).collect();
    fs::write(&bomb, zstd::encode_all(&*archive(&entries), 1).unwrap()).unwrap();
    fs::remove_dir_all(&out).unwrap();
    let ran = unpack(&[]);
    assert_eq!((ran.code, out.exists()), (Some(1), false), "{}", ran.stderr);
    assert!(ran.stderr.contains("too many files and folders for its size"), "{}", ran.stderr);
}

/// The pack ended with 0, and could not be unpacked.
#[test]
fn programs_called_like_files_of_a_pack_are_packed() {
    let Some(shop) = Workshop::new() else { return };
    for name in ["/perf.data", "/perf.data/x", "/manifest.json", "/.build-id/aa", "/.build-id", "/by-id/aa"] {
        let (named, out) = (shop.path("named.data"), shop.path("out.tar.zst"));
        let path = format!("/nowhere/program={name}");
        let ran = perfx(args!["remap", "-f", "--path", path, shop.recording(), "-o", named]);
        assert_eq!(ran.code, Some(0), "{}", ran.stderr);
        let options = args!["-f", "--foreign", "--buildid-dir", cache(&shop)];
        assert!(pack(&named, &options, &out).stderr.contains("packed 3 files"), "{name}");
        let folder = shop.path("unpacked");
        let ran = unpack(&out, &folder);
        assert_eq!(ran.code, Some(0), "{name}: {}", ran.stderr);
        let folded = |cache: &Path| {
            perfx(args!["export", "folded", "--foreign", "--buildid-dir", cache, named]).text()
        };
        assert_eq!(folded(&folder), folded(&cache(&shop)), "{name}");
        fs::remove_dir_all(folder).unwrap();
    }
}

#[test]
fn damaged_packs_fail_and_write_nothing() {
    let Some(shop) = Workshop::new() else { return };
    let (whole, folder) = (shop.path("out.tar.zst"), shop.path("inside"));
    fs::create_dir(&folder).unwrap();
    pack(&shop.recording(), &args!["--foreign", "--buildid-dir", cache(&shop)], &whole);
    let archive = opened(&whole);
    let damaged = shop.path("damaged.tar.zst");
    for at in (0..archive.len()).step_by(archive.len() / 60) {
        let mut bytes = archive.clone();
        bytes[at] ^= 0x41;
        fs::write(&damaged, zstd::encode_all(&*bytes, 1).unwrap()).unwrap();
        let ran = unpack(&damaged, &folder.join("out"));
        // The padding of an entry is not checked by anything.
        if ran.code == Some(0) {
            fs::remove_dir_all(folder.join("out")).unwrap();
        } else {
            assert_eq!(ran.code, Some(1), "{at}: {}", ran.stderr);
        }
        // The archive is empty after the manifest.
        let cut = at.min(archive.len() - 2048);
        fs::write(&damaged, zstd::encode_all(&archive[..cut], 1).unwrap()).unwrap();
        assert_eq!(unpack(&damaged, &folder.join("out")).code, Some(1), "cut at {at}");
        assert_eq!(fs::read_dir(&folder).unwrap().count(), 0);
    }
}

/// Found by its debug link beside the recorded path, although the file itself comes from a cache.
#[test]
fn a_debug_file_beside_the_recorded_path_is_found_for_a_file_of_a_cache() {
    let Some(shop) = Workshop::new() else { return };
    let (cache, root) = (cache(&shop), shop.path("root/nowhere"));
    let hex = shop.id().to_string();
    fs::remove_file(cache.join(".build-id").join(&hex[..2]).join(&hex[2..]).join("debug")).unwrap();
    fs::create_dir_all(&root).unwrap();
    let ran = run(
        clean("objcopy")
            .args(args!["--add-gnu-debuglink=program.debug", "stripped"])
            .current_dir(shop.path("").as_path()),
        Stdin::Null,
    );
    assert_eq!(ran.code, Some(0), "{}", ran.stderr);
    fs::copy(shop.path("stripped"), cache.join(".build-id").join(&hex[..2]).join(&hex[2..]).join("elf"))
        .unwrap();
    fs::copy(shop.path("program.debug"), root.join("program.debug")).unwrap();
    let root = shop.path("root");
    let args = args!["export", "folded", "--foreign", "--no-inline", "--buildid-dir", cache, "--root", root];
    let ran = perfx([&args[..], &args![shop.recording()]].concat());
    assert_eq!(ran.text(), ":7;hidden 1\n", "{}", ran.stderr);
    // Links are not followed out of the root.
    fs::remove_file(root.join("nowhere/program.debug")).unwrap();
    symlink("../../program.debug", root.join("nowhere/program.debug")).unwrap();
    let ran = perfx([&args[..], &args![shop.recording()]].concat());
    assert_eq!(ran.text(), ":7;[program] 1\n", "{}", ran.stderr);
}

/// perf names such code by its KSYMBOL records, so it needs no file.
#[test]
fn code_named_by_records_is_not_missing() {
    let (folder, endian) = (temp(), Endian::Little);
    let at = |name: &str| folder.path().join(name);
    let mut writer = recording_of_addresses(&at("in.data"), endian);
    let address = 0xffff_ffff_c012_3000_u64;
    let symbol =
        [&endian.bytes_u64(address)[..], &[0, 1, 0, 0, 1, 0, 0, 0], b"bpf_prog_6deef7357e7b4530_demo\0\0"];
    writer.write_parts(RecordType::KSYMBOL, 0, &symbol).unwrap();
    let parts = [&endian.bytes_u64(address + 16)[..], &[7, 0, 0, 0, 7, 0, 0, 0], &endian.bytes_u64(1)];
    writer.write_parts(RecordType::SAMPLE, cpumode::KERNEL, &parts).unwrap();
    writer.finish().unwrap();
    let ran = pack(&at("in.data"), &args!["--foreign"], &at("p.tar.zst"));
    assert_eq!(ran.code, Some(0), "{}", ran.stderr);
}
