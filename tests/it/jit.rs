//! `inject --jit`: perf shows the names that the programs of `tests/data/jit` gave to their code, in any form
//! of the recording, and in spite of damaged jitdumps.

use std::collections::BTreeSet;
use std::fs;
use std::path::{Path, PathBuf};

use linux_perf_data::jitdump::{JitDumpReader, JitDumpRecord};
use object::{Object as _, ObjectSymbol as _};
use perfx_format::features::{BuildIds, write_str};
use perfx_format::jitdump::{Body, Damage, Dump, Load, Move, Writer};
use perfx_format::read::Recording;
use perfx_format::record::cpumode;
use perfx_format::write::RecordingWriter;
use perfx_format::{Attr, Endian, Event, Feature, Inode, MappedFile, Mmap2, RecordType, sample_type as st};
use perfx_passes::parse_chain;
use perfx_pipeline::{Level, OutputForm};

use crate::args;
use crate::examples::examples;
use crate::promises::{Holds, Input, chain, kept, run as run_chain};
use crate::support::{
    Fixture, Perf, Ran, Stdin, each, holds, perfs, perfx, perfx_with, root, same_bytes, temp,
};

/// Recordings, and the functions that their samples hit. All but the last one were recorded with
/// CLOCK_MONOTONIC.
const RECORDINGS: [(&str, &[&str]); 10] = [
    ("plain", &["first_0", "first_1", "first_2", "second_0", "second_1", "second_2"]),
    ("twice", &["first_0", "first_1", "first_2", "second_0", "second_1", "second_2"]),
    ("close", &["first_0", "first_1", "first_2", "second_0", "second_1", "second_2"]),
    ("move", &["first_0", "first_1", "first_2"]),
    ("reuse", &["first_0", "first_1", "first_2", "second_0", "second_1", "second_2"]),
    ("fork", &["child", "first_0", "first_1", "first_2"]),
    ("torn", &["first_0", "first_1", "first_2", "second_0", "second_1", "second_2"]),
    ("node", &["JS:*fib /tmp/perfx-data/jit/fib.js:1:13"]),
    ("dwarf", &["first_0", "first_1", "first_2", "second_0", "second_1", "second_2"]),
    ("other-clock", &["first_0", "first_1", "first_2", "second_0", "second_1", "second_2"]),
];

fn data() -> PathBuf {
    root().join("tests/data/jit")
}

fn recording(name: &str) -> PathBuf {
    data().join(format!("{name}.data"))
}

/// Runs inject with the dumps of `tests/data/jit`.
fn inject(input: &Path, output: &Path, more: &[&str]) -> Ran {
    let mut args =
        args!["inject", "-j", "--foreign", "--jit-dir", data(), "-i", input, "-o", output].to_vec();
    args.extend(more.iter().map(Into::into));
    perfx(args)
}

/// The functions in images to which perf attributes samples.
fn named(perf: &Perf, recording: &Path) -> BTreeSet<String> {
    let ran = perf.run(
        Stdin::Null,
        args!["report", "--symfs", "/", "-f", "-F", "sym,dso", "-t", "@", "--stdio", "-i", recording],
    );
    let of_image = |line: &str| {
        let (symbol, dso) = line.rsplit_once('@')?;
        let symbol = symbol.trim().strip_prefix("[.]")?.trim();
        dso.contains("jit").then(|| symbol.to_owned()).filter(|_| dso.trim().ends_with(".so"))
    };
    ran.text().lines().filter_map(of_image).collect()
}

#[test]
fn perf_names_the_code_in_either_layout() {
    let perfs = perfs(&["perf", "perf-trixie", "perf-new"]);
    let cases: Vec<_> =
        RECORDINGS.iter().flat_map(|case| ["arena", "function"].map(|layout| (case, layout))).collect();
    let name = |((name, _), layout): &(&(&str, &[&str]), &str)| format!("{name} {layout}");
    each(&cases, name, |((name, functions), layout)| {
        let folder = temp();
        let out = folder.path().join("out.data");
        let ran = inject(&recording(name), &out, &["--jit-layout", layout]);
        if ran.code != Some(0) {
            return Err(format!("exit code {:?}: {}", ran.code, ran.stderr));
        }
        for perf in &perfs {
            let found = named(perf, &out);
            let expected: BTreeSet<String> = functions.iter().map(ToString::to_string).collect();
            if !found.is_superset(&expected) {
                return Err(format!("{} names {found:?}", perf.name));
            }
        }
        Ok(())
    });
}

#[test]
fn every_form_gets_the_same_images_and_all_promises_are_kept() {
    let registered = |name| perfx_passes::REGISTRY.iter().find(|pass| pass.name == name).unwrap();
    let jit = registered("jit");
    each(
        &RECORDINGS,
        |(name, _)| (*name).to_owned(),
        |(name, _)| {
            let bytes = Fixture::new(&format!("jit/{name}.data")).bytes();
            let made = |bytes: &[u8], chain: &str, form| {
                run_chain(Input::Bytes(bytes).open().unwrap(), parse_chain(chain).unwrap(), form, 2).unwrap()
            };
            let (_, pipe) = made(&bytes, "decompress", OutputForm::Pipe);
            let (_, compressed) = made(&bytes, "compress:level=1", OutputForm::File);
            for example in examples(jit) {
                let chain = chain(jit, example);
                let (expected, file) = made(&bytes, &chain, OutputForm::File);
                if expected.made.is_empty() {
                    return Err("no image was made".to_owned());
                }
                for (form, input) in [("file", &bytes), ("pipe", &pipe), ("compressed", &compressed)] {
                    let input = Input::Bytes(input);
                    let before = Holds::of(&input).ok_or("it can't be read")?;
                    for to in [OutputForm::File, OutputForm::Pipe] {
                        let (outcome, _) = kept(&input, &before, &chain, to)
                            .map_err(|why| format!("{form} {example}: {why}"))?
                            .ok_or("it was refused")?;
                        let paths = |made: &[perfx_pipeline::SideFile]| -> Vec<PathBuf> {
                            made.iter().map(|made| made.path.clone()).collect()
                        };
                        if paths(&outcome.made) != paths(&expected.made) {
                            return Err(format!("{form}: {:?}", outcome.made));
                        }
                    }
                }
                // A second run finds nothing more to inject.
                let (again, twice) = made(&file, &chain, OutputForm::File);
                same_bytes("injected twice", &file, &twice)?;
                if !again.made.is_empty() {
                    return Err("images were made of a recording that maps no dump".to_owned());
                }
            }
            Ok(())
        },
    );
}

#[test]
fn a_pipe_is_read_and_written_with_the_images_where_the_user_wants_them() {
    let folder = temp();
    let (out, images) = (folder.path().join("out.pipe"), folder.path().join("a/b"));
    let pipe = perfx(args!["copy", "--to", "pipe", "-i", recording("plain"), "-o", "-"]).stdout;
    let args = args!["inject", "-j", "--jit-dir", data(), "--jit-output", images, "-o", "-"];
    let ran = perfx_with(Stdin::Pipe(&pipe), args);
    assert_eq!(ran.code, Some(0), "{}", ran.stderr);
    fs::write(&out, &ran.stdout).unwrap();
    assert_eq!(fs::read_dir(&images).unwrap().count(), 1);
    for perf in perfs(&["perf", "perf-new"]) {
        assert!(named(&perf, &out).contains("second_2"), "{}", perf.name);
    }
}

#[test]
fn build_ids_of_images_go_into_the_feature_as_those_of_files_do() {
    let folder = temp();
    let out = folder.path().join("out.data");
    let ran = inject(&recording("plain"), &out, &["-b"]);
    assert_eq!(ran.code, Some(0), "{}", ran.stderr);
    let injected = Recording::open(&out).unwrap();
    let entries: Vec<_> = BuildIds::new(&injected.features[&Feature::BUILD_ID], injected.endian).collect();
    let image = entries.iter().find(|entry| {
        entry.filename.ends_with(b".so")
            && entry.filename.starts_with(folder.path().as_os_str().as_encoded_bytes())
    });
    let image = image.expect("the image is in the feature");
    let path = Path::new(std::str::from_utf8(image.filename).unwrap());
    let bytes = fs::read(path).unwrap();
    let file = object::File::parse(&*bytes).unwrap();
    assert_eq!(file.build_id().unwrap().unwrap(), &image.id[..20]);
    let symbols: Vec<_> = file.symbols().map(|symbol| symbol.name().unwrap().to_owned()).collect();
    assert_eq!(symbols, ["first_0", "first_1", "first_2", "second_0", "second_1", "second_2"]);
    assert_eq!(path.parent(), Some(&*folder.path().join("out.data.jit")));
}

#[test]
fn a_recording_of_another_clock_is_refused_only_where_time_decides() {
    let folder = temp();
    let out = folder.path().join("out.data");
    let ran = inject(&recording("other-clock"), &out, &[]);
    assert_eq!(ran.code, Some(0), "{}", ran.stderr);
    assert!(ran.stderr.contains("recorded without -k 1"), "{}", ran.stderr);
    fs::remove_file(&out).unwrap();
    let ran = inject(&recording("other-clock-reuse"), &out, &[]);
    assert_eq!(ran.code, Some(1), "{}", ran.stderr);
    assert!(ran.stderr.contains("perf record -k 1"), "{}", ran.stderr);
    assert!(!out.exists());
}

/// Images have the code, too.
#[test]
fn perf_annotates_the_code_of_images() {
    let folder = temp();
    let out = folder.path().join("out");
    inject(&recording("plain"), &out, &[]).done().unwrap();
    for perf in perfs(&["perf", "perf-trixie", "perf-new"]) {
        let args = args!["annotate", "--symfs", "/", "-f", "--stdio", "-s", "first_1", "-i", out];
        let shown = perf.run(Stdin::Null, args).text();
        assert!(shown.contains("%rcx") && shown.contains("ret"), "{}: {shown}", perf.name);
    }
}

/// perf finds the images in its cache when their folder is gone. An existing entry is unchanged.
#[test]
fn images_in_the_build_id_cache_are_found_when_their_folder_is_gone() {
    let folder = temp();
    let (out, images, cache) =
        (folder.path().join("out"), folder.path().join("images"), folder.path().join("cache"));
    fs::create_dir(&cache).unwrap();
    let text = |path: &Path| path.to_str().unwrap().to_owned();
    let options = ["--jit-output", &text(&images), "--jit-cache", "--buildid-dir", &text(&cache)];
    let link = |folder: PathBuf| {
        let first = fs::read_dir(folder.join(".build-id")).unwrap().next().unwrap().unwrap().path();
        fs::read_dir(first).unwrap().next().unwrap().unwrap().path()
    };
    inject(&recording("plain"), &out, &options).done().unwrap();
    let (entry, image) = (link(cache.clone()).join("elf"), images.join("jit-15625-0.so"));
    same_bytes("the entry", &fs::read(&image).unwrap(), &fs::read(&entry).unwrap()).unwrap();
    // Like perf's: a link to a folder with the file's path and build-id.
    let target = fs::read_link(link(cache.clone())).unwrap();
    assert!(target.starts_with(Path::new("../..").join(image.strip_prefix("/").unwrap())), "{target:?}");
    fs::remove_dir_all(&images).unwrap();
    for perf in perfs(&["perf", "perf-trixie", "perf-new"]) {
        let args = args!["--buildid-dir", cache, "report", "-f", "-F", "sym", "--stdio", "-i", out];
        let shown = perf.run(Stdin::Null, args).text();
        assert!(shown.contains("first_0"), "{}: {shown}", perf.name);
    }
    fs::write(&entry, "kept").unwrap();
    inject(&recording("plain"), &out, &[&options[..], &["-f"]].concat()).done().unwrap();
    assert_eq!((fs::read(&entry).unwrap(), image.exists()), (b"kept".to_vec(), true));
}

#[test]
fn a_dump_that_is_missing_is_a_warning_and_its_mapping_stays() {
    let folder = temp();
    let out = folder.path().join("out.data");
    let ran = perfx(args!["inject", "-j", "--foreign", "-i", recording("plain"), "-o", out]);
    assert_eq!(ran.code, Some(3), "{}", ran.stderr);
    assert!(ran.stderr.contains("/tmp/perfx-data/jit/jit-"), "{}", ran.stderr);
    let count = |path: &Path| {
        let mut recording = Recording::open(path).unwrap();
        let mut records = recording.records();
        std::iter::from_fn(|| records.next_record().unwrap().map(drop)).count()
    };
    assert_eq!(count(&out), count(&recording("plain")));
    assert!(!folder.path().join("out.data.jit").exists());
}

#[test]
fn a_different_existing_image_is_overwritten_only_with_force() {
    let folder = temp();
    let (out, images) = (folder.path().join("out.data"), folder.path().join("out.data.jit"));
    assert_eq!(inject(&recording("plain"), &out, &[]).code, Some(0));
    let image = fs::read_dir(&images).unwrap().next().unwrap().unwrap().path();
    let whole = fs::read(&image).unwrap();
    let again = folder.path().join("again.data");
    let into = ["--jit-output", images.to_str().unwrap()];
    assert_eq!(inject(&recording("plain"), &again, &into).code, Some(0), "the same content may stay");
    fs::remove_file(&again).unwrap();
    fs::write(&image, b"mine").unwrap();
    let ran = inject(&recording("plain"), &again, &into);
    assert_eq!((ran.code, again.exists()), (Some(1), false), "{}", ran.stderr);
    assert_eq!(fs::read(&image).unwrap(), b"mine");
    assert_eq!(inject(&recording("plain"), &again, &[&into[..], &["-f"]].concat()).code, Some(0));
    assert_eq!(fs::read(&image).unwrap(), whole);
}

/// Regression: `--in-place` replaced an image without `-f`, `--backup` kept no copy of it, and `-f` deleted a
/// folder of that name with its contents.
#[test]
fn an_image_is_replaced_only_on_request_and_a_folder_never() {
    let folder = temp();
    let (here, images) = (folder.path().join("here.data"), folder.path().join("here.data.jit"));
    let in_place = |more: &[&str]| {
        fs::copy(recording("plain"), &here).unwrap();
        let mut line =
            args!["inject", "--jit", "--foreign", "--jit-dir", data(), "--in-place", here].to_vec();
        line.extend(more.iter().map(Into::into));
        perfx(line)
    };
    let ran = in_place(&["--jit-output", images.to_str().unwrap()]);
    assert_eq!(ran.code, Some(0), "{}", ran.stderr);
    let image = fs::read_dir(&images).unwrap().next().unwrap().unwrap().path();
    let whole = fs::read(&image).unwrap();
    fs::write(&image, b"mine").unwrap();
    let old = PathBuf::from(format!("{}.old", image.display()));
    let into = ["--jit-output", images.to_str().unwrap()];
    let ran = in_place(&into);
    assert_eq!((ran.code, fs::read(&image).unwrap()), (Some(1), b"mine".to_vec()), "{}", ran.stderr);
    let ran = in_place(&[&into[..], &["--backup"]].concat());
    assert_eq!((ran.code, fs::read(&image).unwrap() == whole), (Some(0), true), "{}", ran.stderr);
    assert_eq!(fs::read(old).unwrap(), b"mine");
    fs::remove_file(&image).unwrap();
    fs::create_dir(&image).unwrap();
    fs::write(image.join("work"), b"mine").unwrap();
    let ran = in_place(&[&into[..], &["-f"]].concat());
    assert_eq!((ran.code, fs::read(image.join("work")).unwrap()), (Some(1), b"mine".to_vec()));
    assert!(ran.stderr.contains("is not a regular file"), "{}", ran.stderr);
}

#[test]
fn a_dry_run_writes_no_image() {
    let folder = temp();
    let ran = inject(&recording("plain"), &folder.path().join("out.data"), &["-n"]);
    assert_eq!(ran.code, Some(0), "{}", ran.stderr);
    assert_eq!(fs::read_dir(folder.path()).unwrap().count(), 0);
}

#[test]
fn only_damaged_parts_of_a_dump_are_lost() {
    let folder = temp();
    let dump = fs::read_dir(data()).unwrap().map(|entry| entry.unwrap().path());
    let bytes = fs::read(recording("reuse")).unwrap();
    let name = |path: &PathBuf| path.file_name().unwrap().to_str().unwrap().to_owned();
    let is_of_reuse = |path: &PathBuf| name(path).ends_with(".dump") && holds(&bytes, name(path));
    let dump = dump.into_iter().find(is_of_reuse).unwrap();
    let whole = fs::read(&dump).unwrap();
    let chain = format!("jit:foreign:output=images:dir={}", folder.path().display());
    let inject = |dump_bytes: &[u8]| {
        fs::write(folder.path().join(name(&dump)), dump_bytes).unwrap();
        run_chain(Input::Bytes(&bytes).open().unwrap(), parse_chain(&chain).unwrap(), OutputForm::File, 1)
    };
    for at in 0..whole.len() {
        let mut damaged = whole.clone();
        damaged[at] = !damaged[at];
        for dump in [&damaged, &whole[..at].to_vec()] {
            let (outcome, _) = inject(dump).unwrap();
            let len: u64 = outcome.made.iter().map(|made| made.range.end - made.range.start).sum();
            assert!(len < 1 << 20, "{at}: images of {len} bytes");
        }
    }
    // Functions that the dump had after its end were missing without a word.
    let lines = inject(&whole[..whole.len() - 4]).unwrap().0.report.lines;
    let is_reported = |(level, line): &(Level, String)| {
        *level == Level::Info && line.contains("its last record is incomplete (")
    };
    assert!(lines.iter().any(is_reported), "{lines:?}");
}

/// The functions of a dump: time, address, name, and the code or the new address.
type DumpFunctions = Vec<(u64, u64, Vec<u8>, Vec<u8>)>;

fn ours(bytes: &[u8]) -> (DumpFunctions, Damage) {
    let mut records = Dump::new(bytes).unwrap().records();
    let told = records.by_ref().filter_map(|record| match record.body {
        Body::Load(load) => Some((record.time, load.address, load.name.to_vec(), load.code.to_vec())),
        Body::Move(moved) => Some((
            record.time,
            moved.old_address,
            moved.index.to_le_bytes().to_vec(),
            moved.new_address.to_le_bytes().to_vec(),
        )),
        _ => None,
    });
    (told.collect(), records.damage())
}

fn theirs(bytes: &[u8]) -> DumpFunctions {
    let mut reader = JitDumpReader::new(bytes).unwrap();
    let mut told = Vec::new();
    while let Some(record) = reader.next_record().unwrap() {
        let time = record.timestamp;
        match record.parse().unwrap() {
            JitDumpRecord::CodeLoad(load) => {
                let (name, code) = (load.function_name.as_slice(), load.code_bytes.as_slice());
                told.push((time, load.code_addr, name.to_vec(), code.to_vec()));
            }
            JitDumpRecord::CodeMove(moved) => told.push((
                time,
                moved.old_code_addr,
                moved.code_index.to_le_bytes().to_vec(),
                moved.new_code_addr.to_le_bytes().to_vec(),
            )),
            _ => {}
        }
    }
    told
}

#[test]
fn another_reader_finds_the_same_functions_in_the_dumps() {
    let dumps = fs::read_dir(data()).unwrap().map(|entry| entry.unwrap().path());
    let dumps: Vec<_> = dumps.filter(|path| path.extension().is_some_and(|end| end == "dump")).collect();
    let mut compared = 0;
    for path in &dumps {
        let bytes = fs::read(path).unwrap();
        let (told, damage) = ours(&bytes);
        // After a damaged record the other reader does not find the next one.
        if damage == Damage::default() {
            assert!(told == theirs(&bytes), "{}", path.display());
            compared += 1;
        }
    }
    assert!(compared + 1 >= dumps.len(), "{compared} of {} dumps", dumps.len());
}

/// Writes a recording of a process that mapped the dump `jit-7.dump`, with samples at these addresses and
/// times, and the dump. Returns the recording's path.
fn with_dump(folder: &Path, endian: Endian, arch: &[u8], dump: Writer, samples: &[(u64, u64)]) -> PathBuf {
    let (pid, tid) = (7, 7);
    fs::write(folder.join("jit-7.dump"), dump.into_bytes()).unwrap();
    // The CPU's clock, by CLOCK_MONOTONIC, and times in all records.
    let mut attr = Attr::default();
    (attr.type_, attr.sample_period, attr.sample_type) = (1, 1_000_000, st::IP | st::TID | st::TIME);
    (attr.flags, attr.clockid) = (1 << 18 | 1 << 25, 1);
    let event = Event::made(&attr, vec![1], endian);
    let input = folder.join("in.data");
    let mut writer = RecordingWriter::create(&input, std::slice::from_ref(&event), endian).unwrap();
    let task = [endian.bytes_u32(pid); 2];
    let trailer = [task.as_flattened(), &endian.bytes_u64(1)].concat();
    let file = MappedFile::Inode(Inode { major: 8, minor: 1, inode: 7, generation: 0 });
    let (start, len, pgoff, prot, flags) = (0x10_0000, 0x1000, 0, 5, 2);
    let (misc, name, trailer) = (cpumode::USER, &b"/tmp/jit-7.dump"[..], &trailer[..]);
    let mapping = Mmap2 { misc, pid, tid, start, len, pgoff, file, prot, flags, name, trailer };
    writer.write(&mapping.write(endian).unwrap()).unwrap();
    for &(ip, time) in samples {
        let parts = [&endian.bytes_u64(ip)[..], task.as_flattened(), &endian.bytes_u64(time)];
        writer.write_parts(RecordType::SAMPLE, cpumode::USER, &parts).unwrap();
    }
    writer.set_feature(Feature::ARCH, write_str(arch, endian)).unwrap();
    writer.finish().unwrap();
    input
}

/// Runs inject on a recording of [`with_dump`].
fn inject_beside(input: &Path, output: &Path, more: &[&str]) -> Ran {
    let folder = input.parent().unwrap();
    let args = args!["inject", "-j", "--foreign", "--jit-dir", folder, "-i", input, "-o", output];
    perfx(args.iter().cloned().chain(more.iter().map(Into::into)))
}

/// The sizes of all images beside an output, together.
fn size_of_images(output: &Path) -> u64 {
    let folder = PathBuf::from(format!("{}.jit", output.display()));
    fs::read_dir(folder).unwrap().map(|entry| entry.unwrap().metadata().unwrap().len()).sum()
}

/// A recording of s390 with a jitdump, both written by a big-endian machine.
#[test]
fn a_big_endian_recording_gets_big_endian_images() {
    let (folder, endian) = (temp(), Endian::Big);
    let path = |name: &str| folder.path().join(name);
    let (pid, tid) = (7, 7);
    let mut dump = Writer::new(endian, 22, pid);
    for (index, name) in [b"inner", b"outer"].into_iter().enumerate() {
        let (address, index) = (0x7000 + 0x40 * index as u64, index as u64);
        dump.load(
            index + 1,
            &Load { pid, tid, address, size: 4, index, name, code: &[0x07, 0xfe, 0x07, 0x07] },
        );
    }
    let input = with_dump(folder.path(), endian, b"s390x", dump, &[(0x7000, 10), (0x7040, 11), (0x7042, 12)]);
    let out = path("out.data");
    let ran = inject_beside(&input, &out, &[]).done().unwrap();
    assert!(ran.stderr.contains("2 functions of 1 jitdump in 1 image"), "{}", ran.stderr);
    let image = fs::read(path("out.data.jit/jit-7-0.so")).unwrap();
    let image = object::File::parse(&*image).unwrap();
    assert_eq!((image.architecture(), image.is_little_endian()), (object::Architecture::S390x, false));
    for perf in perfs(&["perf", "perf-trixie", "perf-new"]) {
        assert_eq!(named(&perf, &out), ["inner", "outer"].map(str::to_owned).into(), "{}", perf.name);
    }
}

const X86_64: u32 = 62;

/// A time that no other numbers in a record of a dump resemble, ns.
const LATER: u64 = 1 << 50;

/// Regression: 1,500 MOVEs of 64 KiB of code made images of 96 MiB.
#[test]
fn moved_code_is_written_once_and_named_at_each_place() {
    let folder = temp();
    let mut dump = Writer::new(Endian::Little, X86_64, 7);
    let (pid, tid, size, index) = (7, 7, 0x1_0000, 1);
    let code = vec![0x90; size as usize];
    dump.load(1, &Load { pid, tid, address: 0x10_0000, size, index, name: b"moved", code: &code });
    let mut samples = vec![(0x10_0010, 10)];
    for number in 1..1500 {
        let (old_address, new_address) = (0x10_0000, 0x10_0000 + number * size);
        dump.moved(1 + 10 * number, &Move { pid, tid, old_address, new_address, size, index });
        samples.push((new_address + 0x20, 2 + 10 * number));
    }
    // Over the code that was moved last, and moved away from there.
    let (address, index, name) = (0x10_0000 + 1499 * size, 2, b"over");
    dump.load(20_000, &Load { pid, tid, address, size, index, name, code: &code });
    samples.push((address + 0x20, 20_001));
    dump.moved(30_000, &Move { pid, tid, old_address: address, new_address: 0x10_0000, size, index });
    samples.push((0x10_0020, 30_001));
    let input = with_dump(folder.path(), Endian::Little, b"x86_64", dump, &samples);
    for layout in ["arena", "function"] {
        let out = folder.path().join(layout);
        let ran = inject_beside(&input, &out, &["--jit-layout", layout]);
        assert_eq!(ran.code, Some(0), "{layout}: {}", ran.stderr);
        assert!(ran.stderr.contains("1,502 functions of 1 jitdump in "), "{}", ran.stderr);
        let len = size_of_images(&out);
        assert!(len < 5 * size, "{layout}: {len} bytes");
        for perf in perfs(&["perf", "perf-trixie", "perf-new"]) {
            let ran = perf.run(Stdin::Null, args!["script", "--symfs", "/", "-f", "-F", "ip,sym", "-i", out]);
            let text = ran.text();
            let names: Vec<_> = text.lines().filter_map(|line| line.split_whitespace().nth(1)).collect();
            let expected = [vec!["moved"; 1500], vec!["over"; 2]].concat();
            assert!(names == expected, "{layout}: {}: {}", perf.name, ran.stderr);
        }
    }
}

/// Regression: perf report had a row for each address of the code: 56 and 16 % of one function.
#[test]
fn a_moved_function_is_one_row_of_perf_report() {
    let folder = temp();
    for layout in ["arena", "function"] {
        let out = folder.path().join(layout);
        inject(&recording("move"), &out, &["--jit-layout", layout]).done().unwrap();
        for perf in perfs(&["perf", "perf-trixie", "perf-new"]) {
            let line = args!["report", "--symfs", "/", "-f", "-F", "overhead,sym,dso", "--stdio", "-i", out];
            let text = perf.run(Stdin::Null, line).text();
            let rows: Vec<_> = text.lines().filter(|line| line.contains("[.] first_")).collect();
            assert!(rows.len() == 3 && rows[0].contains("72.00%"), "{layout}: {}: {rows:?}", perf.name);
        }
    }
}

/// Regression: 500 LOADs without code made images of 8 GiB.
#[test]
fn images_have_no_place_for_code_that_no_dump_holds() {
    let folder = temp();
    let mut dump = Writer::new(Endian::Little, X86_64, 7);
    let (pid, tid, size) = (7, 7, 16 << 20);
    let mut samples = Vec::new();
    for index in 1..500 {
        let (address, name) = (index * size, format!("absent{index}"));
        dump.load(index, &Load { pid, tid, address, size, index, name: name.as_bytes(), code: &[] });
        samples.push((address + 0x20, 1000 + index));
    }
    let input = with_dump(folder.path(), Endian::Little, b"x86_64", dump, &samples);
    let out = folder.path().join("out.data");
    let ran = inject_beside(&input, &out, &[]);
    assert_eq!(ran.code, Some(0), "{}", ran.stderr);
    assert!(size_of_images(&out) < 1 << 20, "{}", size_of_images(&out));
    for perf in perfs(&["perf", "perf-trixie", "perf-new"]) {
        assert_eq!(named(&perf, &out).len(), 499, "{}", perf.name);
    }
    let folded = perfx(args!["export", "folded", out]).done().unwrap();
    assert_eq!(folded.text().lines().filter(|line| line.contains("absent")).count(), 499);
}

#[test]
fn functions_that_would_leave_too_large_gaps_in_images_are_said_to_be_lost() {
    let folder = temp();
    let mut dump = Writer::new(Endian::Little, X86_64, 7);
    let (pid, tid, name) = (7, 7, b"apart");
    for index in 1..100 {
        // One byte of code, directly followed by 16 MiB that the dump lacks.
        let (address, time) = (index << 32, LATER + index);
        dump.load(time, &Load { pid, tid, address, size: 1, index, name, code: &[0x90] });
        dump.load(time, &Load { pid, tid, address: address + 1, size: 16 << 20, index, name, code: &[] });
    }
    let input = with_dump(folder.path(), Endian::Little, b"x86_64", dump, &[(1 << 32, LATER + 1000)]);
    let out = folder.path().join("out.data");
    let ran = inject_beside(&input, &out, &[]);
    assert_eq!(ran.code, Some(3), "{}", ran.stderr);
    assert!(size_of_images(&out) < 257 << 20, "{}", size_of_images(&out));
    let lost = "lost: 166 functions of JIT compilers, so far apart that their images would have more than 256 MiB of gaps";
    assert!(ran.stderr.contains(lost) && ran.stderr.contains("32 functions of 1 jitdump"), "{}", ran.stderr);
}

/// The recording `plain` as if its program had written a perf map instead of a jitdump, and that map.
fn with_perf_map(folder: &Path) -> PathBuf {
    let mut bytes = fs::read(recording("plain")).unwrap();
    let marker = bytes.windows(5).position(|part| part == b"/jit-").unwrap();
    let name = &bytes[marker + 1..][..bytes[marker + 1..].iter().position(|&byte| byte == 0).unwrap()];
    let name = String::from_utf8(name.to_vec()).unwrap();
    let (functions, _) = ours(&fs::read(data().join(&name)).unwrap());
    let line = |(_, address, name, code): &(u64, u64, Vec<u8>, Vec<u8>)| {
        format!("{address:x} {:x} {}\n", code.len(), String::from_utf8_lossy(name))
    };
    let map: String = functions.iter().map(line).collect();
    let pid = name.trim_start_matches("jit-").trim_end_matches(".dump");
    fs::write(folder.join(format!("perf-{pid}.map")), map).unwrap();
    // No jitdump has such a name.
    while let Some(at) = bytes.windows(5).position(|part| part == b"/jit-") {
        bytes[at + 1] = b'x';
    }
    let path = folder.join("in.data");
    fs::write(&path, bytes).unwrap();
    path
}

#[test]
fn a_perf_map_names_the_code_of_a_process_without_a_dump() {
    let folder = temp();
    let input = with_perf_map(folder.path());
    for layout in ["arena", "function"] {
        let out = folder.path().join(layout);
        let args = args!["inject", "-j", "--jit-map", "--foreign", "--jit-dir", folder.path()];
        let more = args!["--jit-layout", layout, "-i", input, "-o", out];
        let ran = perfx(args.into_iter().chain(more));
        assert_eq!(ran.code, Some(0), "{}", ran.stderr);
        assert!(ran.stderr.contains("6 functions of 1 perf map in "), "{}", ran.stderr);
        for perf in perfs(&["perf", "perf-trixie", "perf-new"]) {
            let found = named(&perf, &out);
            let expected = RECORDINGS[0].1.iter().map(ToString::to_string).collect();
            assert!(found.is_superset(&expected), "{layout}: {} names {found:?}", perf.name);
        }
    }
}

#[test]
fn code_of_an_earlier_program_with_the_pid_of_a_perf_map_is_reported() {
    let folder = temp();
    let path = |name: &str| folder.path().join(name);
    let input = with_perf_map(folder.path());
    let text = |name: &str| path(name).to_str().unwrap().to_owned();
    perfx(args!["retime", "-q", "-f", "--offset", "100000000000", input, "-o", path("later")])
        .done()
        .unwrap();
    perfx(args!["join", "-q", "-f", input, text("later"), "-o", path("both")]).done().unwrap();
    let args = args!["inject", "-j", "--jit-map", "--foreign", "--jit-dir", folder.path()];
    let ran = perfx(args.into_iter().chain(args!["-i", path("both"), "-o", path("out")]));
    assert_eq!(ran.code, Some(3), "{}", ran.stderr);
    let line = ".map is of the last program with this pid: the code in 1 mapping of memory of earlier ones has no names";
    assert!(ran.stderr.contains("perfx: lost: ") && ran.stderr.contains(line), "{}", ran.stderr);
}

#[test]
fn without_a_perf_map_the_search_is_shown() {
    let folder = temp();
    let input = with_perf_map(folder.path());
    let out = folder.path().join("out.data");
    let ran = perfx(args!["inject", "-j", "--jit-map", "--foreign", "-i", input, "-o", out]);
    assert_eq!(ran.code, Some(3), "{}", ran.stderr);
    assert!(ran.stderr.contains("warning: no perf map was found"), "{}", ran.stderr);
    assert!(ran.stderr.contains(": /tmp/perf-"), "{}", ran.stderr);
}

/// Regression: it was placed below the home folder of the password database, which perf does not read either.
#[test]
fn without_home_the_cache_must_be_named() {
    let ran =
        perfx(args!["inject", "--jit", "--jit-cache", "-n", Fixture::new("recorded/plain.p61.data").path]);
    assert_eq!(ran.code, Some(2), "{}", ran.stderr);
    assert!(ran.stderr.contains("HOME is not set; name the cache with --buildid-dir"), "{}", ran.stderr);
}
