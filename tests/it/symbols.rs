//! Symbols and inlined calls are found wherever they may be: `.gnu_debugdata`, DWARF that dwz(1) moved to a
//! common file, the files of debuginfod, and kernel modules.

use std::collections::BTreeSet;
use std::ffi::OsString;
use std::fs;
use std::io::{BufRead as _, BufReader};
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};

use build_id::{BuildId, Object, RecordedOn};
use object::{Object as _, ObjectSegment as _, ObjectSymbol as _};
use perfx_format::features::write_str;
use perfx_format::record::cpumode;
use perfx_format::sample::NewSample;
use perfx_format::write::RecordingWriter;
use perfx_format::{
    Attr, Bytes, Endian, Event, Feature, Inode, MappedFile, Mmap2, RecordType, sample_type as st,
};
use symbols::{Call, DwarfFiles, ElfFile, Image, Mapped, Sources};
use tempfile::TempDir;

use crate::args;
use crate::support::{
    Ran, Stdin, clean, is_installed, perfs, perfx, perfx_command, root, run, temp, workloads,
};

const PROGRAM: &str = "
volatile unsigned long sink;
static inline unsigned long square(unsigned long x) { sink += x; return x * x; }
__attribute__((noinline)) static unsigned long hidden(unsigned long n) {
    unsigned long s = 0;
    for (unsigned long i = 0; i < n; i++) s += square(i);
    return s;
}
__attribute__((noinline)) unsigned long exported(unsigned long n) { return hidden(n) + 1; }
int main(int count, char **words) { sink = exported(count); return 0; }
";

/// A program in separate files.
pub(crate) struct Workshop(TempDir);

impl Workshop {
    /// `None` without a compiler, which [`workloads`] reports.
    pub(crate) fn new() -> Option<Workshop> {
        workloads()?;
        let shop = Workshop(temp());
        fs::write(shop.path("program.c"), PROGRAM).unwrap();
        let flags = args!["-O1", "-g", "-rdynamic", "-Wl,--build-id", "-o", "program", "program.c"];
        shop.tool("gcc", &flags);
        shop.tool("objcopy", &args!["--only-keep-debug", "program", "program.debug"]);
        shop.tool("objcopy", &args!["--strip-all", "program", "stripped"]);
        Some(shop)
    }

    pub(crate) fn path(&self, name: &str) -> PathBuf {
        self.0.path().join(name)
    }

    fn tool(&self, name: &str, args: &[OsString]) {
        let ran = run(clean(name).args(args).current_dir(self.0.path()), Stdin::Null);
        assert_eq!(ran.code, Some(0), "{name} {args:?}: {}", ran.stderr);
    }

    pub(crate) fn id(&self) -> BuildId {
        build_id::of_file(&self.path("program")).unwrap().unwrap()
    }

    /// The offset of a byte inside a function.
    pub(crate) fn inside(&self, function: &str) -> u64 {
        let bytes = fs::read(self.path("program")).unwrap();
        let file = object::File::parse(&*bytes).unwrap();
        let symbol = file.symbols().find(|symbol| symbol.name() == Ok(function)).unwrap();
        let address = symbol.address() + symbol.size() / 2;
        let holds = |segment: &object::Segment<'_, '_>| {
            (segment.address()..segment.address() + segment.size()).contains(&address)
        };
        let segment = file.segments().find(holds).unwrap();
        address - segment.address() + segment.file_range().0
    }

    /// A recording of the program at a path where it is missing, with a sample in `hidden`.
    pub(crate) fn recording(&self) -> PathBuf {
        self.recording_of(b"/nowhere/program")
    }

    /// Like [`Workshop::recording`], with this name in the mapping.
    fn recording_of(&self, name: &[u8]) -> PathBuf {
        let (path, endian) = (self.path("in.data"), Endian::Little);
        let mut attr = Attr::default();
        (attr.type_, attr.sample_period, attr.sample_type) = (1, 1, st::IP | st::TID | st::PERIOD);
        let event = Event::made(&attr, Vec::new(), endian);
        let mut writer = RecordingWriter::create(&path, std::slice::from_ref(&event), endian).unwrap();
        let id = self.id();
        let mapping = Mmap2 {
            misc: cpumode::USER,
            pid: 7,
            tid: 7,
            start: 0x10_0000,
            len: 0x10_0000,
            pgoff: 0,
            file: MappedFile::BuildId(id.as_bytes()),
            prot: 5,
            flags: 2,
            name,
            trailer: &[],
        };
        writer.write(&mapping.write(endian).unwrap()).unwrap();
        let ip = endian.bytes_u64(0x10_0000 + self.inside("hidden"));
        let parts = [&ip[..], &[7, 0, 0, 0, 7, 0, 0, 0], &endian.bytes_u64(1)];
        writer.write_parts(RecordType::SAMPLE, cpumode::USER, &parts).unwrap();
        writer.finish().unwrap();
        path
    }

    /// A build-id cache of perf with the program.
    fn cache(&self) -> PathBuf {
        let hex = self.id().to_string();
        let cache = self.path("cache");
        let entry = cache.join(".build-id").join(&hex[..2]).join(&hex[2..]);
        fs::create_dir_all(&entry).unwrap();
        fs::copy(self.path("program"), entry.join("elf")).unwrap();
        cache
    }

    /// The output of `export folded` with these options and this environment.
    fn folded(&self, options: &[&str], environment: &[(&str, &Path)]) -> Ran {
        self.folded_of(&self.recording(), options, environment)
    }

    fn folded_of(&self, recording: &Path, options: &[&str], environment: &[(&str, &Path)]) -> Ran {
        let mut command = perfx_command();
        command.env("HOME", self.path("home")).envs(environment.iter().copied());
        run(command.args(["export", "folded"]).args(options).arg(recording), Stdin::Null)
    }
}

fn image(path: &Path) -> Image {
    let sources = Sources::new(false, &[PathBuf::from("/")], &[], &RecordedOn::default());
    sources.image(&Object::File { path: path.to_owned(), inode: None, pid: None }, None, None).unwrap()
}

/// The functions at an address, by DWARF; `None` if the image has none.
pub(crate) fn calls_at(image: &Image, address: u64) -> Option<Vec<Call>> {
    let files = DwarfFiles::new(|file| Some(Box::new(Bytes::map(file).ok()?) as Mapped));
    let inlined = image.inlined(&files)?;
    Some(inlined.at(address))
}

fn name_at(image: &Image, offset: u64) -> Option<String> {
    image.find(offset).map(|symbol| symbol.shown().into_owned())
}

/// Regression: a memory file was taken for memory before its build-id was looked at.
#[test]
fn a_program_that_was_run_from_a_memory_file_is_named_by_its_build_id() {
    let Some(shop) = Workshop::new() else { return };
    let recording = shop.recording_of(b"/memfd:program (deleted)");
    let ran = shop.folded_of(&recording, &["--buildid-dir", shop.cache().to_str().unwrap()], &[]);
    assert!(ran.text().contains(";hidden;square "), "{}{}", ran.text(), ran.stderr);
}

/// Regression: the suffix of a deleted file was taken for a part of its path below a root.
#[test]
fn a_deleted_file_is_found_in_a_root() {
    let Some(shop) = Workshop::new() else { return };
    fs::create_dir_all(shop.path("root/nowhere")).unwrap();
    fs::copy(shop.path("program"), shop.path("root/nowhere/program")).unwrap();
    let recording = shop.recording_of(b"/nowhere/program (deleted)");
    let root = shop.path("root");
    let ran = shop.folded_of(&recording, &["--root", root.to_str().unwrap()], &[]);
    assert!(ran.text().contains(";hidden;square "), "{}{}", ran.text(), ran.stderr);
    // As in packages of RPM, by its id alone.
    let hex = shop.id().to_string();
    let link = root.join("usr/lib/.build-id").join(&hex[..2]).join(&hex[2..]);
    fs::create_dir_all(link.parent().unwrap()).unwrap();
    fs::rename(root.join("nowhere"), root.join("opt")).unwrap();
    std::os::unix::fs::symlink("/opt/program", link).unwrap();
    let ran = shop.folded_of(&recording, &["--root", root.to_str().unwrap()], &[]);
    assert!(ran.text().contains(";hidden;square "), "{}{}", ran.text(), ran.stderr);
}

#[test]
fn gnu_debugdata_names_what_the_dynamic_symbols_do_not() {
    let Some(shop) = Workshop::new() else { return };
    if !is_installed("xz", "apt-get install xz-utils") {
        return;
    }
    let (stripped, hidden) = (shop.path("stripped"), shop.inside("hidden"));
    assert_eq!(name_at(&image(&shop.path("program")), hidden).unwrap(), "hidden");
    assert_ne!(name_at(&image(&stripped), hidden), Some("hidden".into()));
    // As made by find-debuginfo of RPM.
    shop.tool(
        "objcopy",
        &args!["-S", "--remove-section=.comment", "--keep-symbol=hidden", "program.debug", "mini"],
    );
    shop.tool("xz", &args!["mini"]);
    let with_mini = shop.path("with-mini");
    shop.tool("objcopy", &args!["--add-section=.gnu_debugdata=mini.xz", "stripped", "with-mini"]);
    let found = image(&with_mini);
    assert_eq!(name_at(&found, hidden).unwrap(), "hidden");
    assert_eq!(name_at(&found, shop.inside("exported")).unwrap(), "exported");
    // Damaged data names nothing, or something, and stops nothing.
    let whole = fs::read(shop.path("mini.xz")).unwrap();
    for at in (0..whole.len()).step_by(200) {
        let mut damaged = whole.clone();
        damaged[at] ^= 0x55;
        fs::write(shop.path("mini.xz"), damaged).unwrap();
        shop.tool("objcopy", &args!["--add-section=.gnu_debugdata=mini.xz", "stripped", "with-mini"]);
        name_at(&image(&with_mini), hidden);
    }
}

#[test]
fn dwarf_that_dwz_moved_to_a_common_file_is_found() {
    let Some(shop) = Workshop::new() else { return };
    if !is_installed("dwz", "apt-get install dwz") {
        return;
    }
    fs::copy(shop.path("program"), shop.path("other")).unwrap();
    let plain = image(&shop.path("program"));
    let hidden = plain.address_of(shop.inside("hidden")).unwrap();
    let wanted = calls_at(&plain, hidden).unwrap();
    assert!(wanted.iter().any(|call| call.symbol == "hidden"), "{wanted:?}");
    shop.tool("dwz", &args!["-m", "common.debug", "-M", "common.debug", "program", "other"]);
    assert!(shop.path("common.debug").exists(), "dwz moved nothing");
    assert_eq!(calls_at(&image(&shop.path("program")), hidden).unwrap(), wanted);
    // Another file of that name is not the right one.
    fs::copy(shop.path("program.debug"), shop.path("common.debug")).unwrap();
    assert_eq!(calls_at(&image(&shop.path("program")), hidden), None);
}

/// Regression: only the folder of the copy in the cache was searched.
#[test]
fn dwarf_beside_the_recorded_file_is_found_for_its_copy_in_a_cache() {
    let Some(shop) = Workshop::new() else { return };
    if !is_installed("dwz", "apt-get install dwz") || !is_installed("dwp", "apt-get install binutils") {
        return;
    }
    let root = shop.path("root");
    let nowhere = root.join("nowhere");
    fs::create_dir_all(nowhere.join("rel")).unwrap();
    let finds_inlined = || {
        let (cache, root) = (shop.cache(), root.to_str().unwrap());
        let ran = shop.folded(&["--foreign", "--buildid-dir", cache.to_str().unwrap(), "--root", root], &[]);
        ran.text().contains(";hidden;square ")
    };
    // A common file of dwz with a path relative to the program.
    fs::copy(shop.path("program"), shop.path("other")).unwrap();
    shop.tool("dwz", &args!["-m", "common.debug", "-M", "rel/common.debug", "program", "other"]);
    assert!(!finds_inlined());
    fs::rename(shop.path("common.debug"), nowhere.join("rel/common.debug")).unwrap();
    assert!(finds_inlined());
    // A package of split units, and such a unit in the folder of the compiler.
    let flags = args!["-O1", "-gdwarf-4", "-gsplit-dwarf", "-Wl,--build-id", "-o", "program", "program.c"];
    shop.tool("gcc", &flags);
    shop.tool("dwp", &args!["-e", "program", "-o", "program.dwp"]);
    assert!(!finds_inlined());
    fs::rename(shop.path("program.dwp"), nowhere.join("program.dwp")).unwrap();
    assert!(finds_inlined());
    fs::remove_file(nowhere.join("program.dwp")).unwrap();
    let built = root.join(shop.path("").strip_prefix("/").unwrap());
    fs::create_dir_all(&built).unwrap();
    let unit = fs::read_dir(shop.path("")).unwrap().map(|entry| entry.unwrap().path());
    let unit = unit.into_iter().find(|path| path.extension().is_some_and(|end| end == "dwo")).unwrap();
    fs::rename(&unit, built.join(unit.file_name().unwrap())).unwrap();
    assert!(finds_inlined());
}

/// DWARF of a function with 4,000 inlined calls that share a list of 4,000 ranges.
const SHARED_RANGES: &str = "
.section .debug_abbrev
.byte 1, 0x11, 1, 0x11, 1, 0x12, 7, 0, 0, 2, 0x2e, 1, 0x11, 1, 0x12, 7, 0, 0, 3, 0x1d, 0, 0x55, 0x17, 0, 0, 0
.section .debug_info
.long end - start
start: .short 4
.long 0
.byte 8, 1
.quad 0x1000, 0x100000
.byte 2
.quad 0x1000, 0x100000
.rept 4000
.byte 3
.long 0
.endr
.byte 0, 0
end:
.section .debug_ranges
.rept 4000
.quad 1, 0x90000
.endr
.quad 0, 0
";

#[test]
fn dwarf_that_takes_more_work_than_its_size_allows_is_left_and_that_is_said() {
    let Some(shop) = Workshop::new() else { return };
    fs::write(shop.path("ranges.s"), SHARED_RANGES).unwrap();
    shop.tool("gcc", &args!["-O1", "-Wl,--build-id", "-o", "program", "program.c", "ranges.s"]);
    fs::create_dir_all(shop.path("root/nowhere")).unwrap();
    fs::copy(shop.path("program"), shop.path("root/nowhere/program")).unwrap();
    let said = "/nowhere/program: some inlined calls and source lines are not shown, because reading its DWARF was \
                stopped: the same ranges, lines or names are used too often";
    let root = shop.path("root");
    let ran = shop.folded(&["--root", root.to_str().unwrap()], &[]);
    assert_eq!((ran.code, ran.text()), (Some(3), ":7;hidden 1\n".to_owned()), "{}", ran.stderr);
    assert!(ran.stderr.contains(said), "{}", ran.stderr);
    let ran = perfx(&args!["view", "-F", "+srcline", "--root", root, shop.recording()]);
    assert!(ran.text().contains("hidden+") && ran.stderr.contains(said), "{}\n{}", ran.text(), ran.stderr);
    // Names alone do not need it, nor does a sample without a chain.
    let ran = perfx(&args!["view", "--root", root, shop.recording()]);
    assert!(ran.text().contains("hidden+") && !ran.stderr.contains(said), "{}\n{}", ran.text(), ran.stderr);
    assert!(!shop.folded(&["--no-inline", "--root", root.to_str().unwrap()], &[]).stderr.contains(said));
}

#[test]
fn the_cache_of_debuginfod_is_read() {
    let Some(shop) = Workshop::new() else { return };
    let cache = shop.path("cache");
    let environment = [("DEBUGINFOD_CACHE_PATH", &*cache)];
    assert_eq!(shop.folded(&[], &environment).text(), ":7;[program] 1\n");
    let entry = cache.join(shop.id().to_string());
    fs::create_dir_all(&entry).unwrap();
    fs::copy(shop.path("stripped"), entry.join("executable")).unwrap();
    // An empty file means that no server has it.
    fs::write(entry.join("debuginfo"), "").unwrap();
    assert!(!shop.folded(&[], &environment).text().contains("hidden"));
    fs::copy(shop.path("program.debug"), entry.join("debuginfo")).unwrap();
    assert_eq!(shop.folded(&["--no-inline"], &environment).text(), ":7;hidden 1\n");
    // Its default place.
    let default = shop.path("home/.cache/debuginfod_client");
    fs::create_dir_all(default.parent().unwrap()).unwrap();
    fs::rename(&cache, &default).unwrap();
    assert_eq!(shop.folded(&["--no-inline"], &[]).text(), ":7;hidden 1\n");
    assert_eq!(shop.folded(&["--foreign"], &[]).text(), ":7;[program] 1\n");
    // A file with another build-id is never used.
    fs::copy(env!("CARGO_BIN_EXE_perfx"), default.join(shop.id().to_string()).join("executable")).unwrap();
    assert_eq!(shop.folded(&[], &[]).text(), ":7;[program] 1\n");
}

/// A server that ends with the test.
struct Server(Child);

impl Drop for Server {
    fn drop(&mut self) {
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

#[test]
fn with_debuginfod_files_are_downloaded() {
    let Some(shop) = Workshop::new() else { return };
    let ran = shop.folded(&["--debuginfod"], &[]);
    assert_eq!(ran.code, Some(2), "{}", ran.stderr);
    assert!(ran.stderr.contains("DEBUGINFOD_URLS is not set"), "{}", ran.stderr);
    if !is_installed("debuginfod-find", "apt-get install debuginfod")
        || !is_installed("python3", "apt-get install python3")
    {
        return;
    }
    let served = shop.path("served").join("buildid").join(shop.id().to_string());
    fs::create_dir_all(&served).unwrap();
    fs::copy(shop.path("stripped"), served.join("executable")).unwrap();
    fs::copy(shop.path("program.debug"), served.join("debuginfo")).unwrap();
    let script = "
import functools, http.server
handler = functools.partial(http.server.SimpleHTTPRequestHandler, directory='served')
server = http.server.ThreadingHTTPServer(('127.0.0.1', 0), handler)
print(server.server_port, flush=True)
server.serve_forever()";
    let mut command = clean("python3");
    command.args(["-c", script]).current_dir(shop.0.path()).stdout(Stdio::piped()).stderr(Stdio::null());
    let mut server = Server(command.spawn().unwrap());
    let mut port = String::new();
    BufReader::new(server.0.stdout.take().unwrap()).read_line(&mut port).unwrap();
    let url = PathBuf::from(format!("http://127.0.0.1:{}", port.trim()));
    let cache = shop.path("cache");
    let environment = [("DEBUGINFOD_URLS", &*url), ("DEBUGINFOD_CACHE_PATH", &*cache)];
    assert_eq!(shop.folded(&[], &environment).text(), ":7;[program] 1\n", "nobody asked for a download");
    assert_eq!(shop.folded(&["--debuginfod", "--no-inline"], &environment).text(), ":7;hidden 1\n");
    drop(server);
    assert_eq!(shop.folded(&["--no-inline"], &environment).text(), ":7;hidden 1\n", "it is in the cache");
}

/// perf names the code of BPF programs, and of other code that the kernel loads, by KSYMBOL records.
#[test]
fn ksymbol_records_name_the_code_that_the_kernel_loads() {
    let (folder, endian) = (temp(), Endian::Little);
    let path = folder.path().join("in.data");
    let mut attr = Attr::default();
    (attr.type_, attr.sample_period, attr.sample_type) = (1, 1, st::IP | st::TID | st::PERIOD);
    let event = Event::made(&attr, Vec::new(), endian);
    let mut writer = RecordingWriter::create(&path, std::slice::from_ref(&event), endian).unwrap();
    let address = 0xffff_ffff_c012_3000_u64;
    let symbol =
        [&endian.bytes_u64(address)[..], &[0, 1, 0, 0, 1, 0, 0, 0], b"bpf_prog_6deef7357e7b4530_demo\0\0"];
    writer.write_parts(RecordType::KSYMBOL, 0, &symbol).unwrap();
    for at in [0x10, 0xff, 0x100] {
        let parts = [&endian.bytes_u64(address + at)[..], &[7, 0, 0, 0, 7, 0, 0, 0], &endian.bytes_u64(1)];
        writer.write_parts(RecordType::SAMPLE, cpumode::KERNEL, &parts).unwrap();
    }
    writer.finish().unwrap();
    let ran = perfx(args!["export", "folded", "--foreign", path]);
    assert_eq!(ran.text(), ":7;[unknown] 1\n:7;bpf_prog_6deef7357e7b4530_demo 2\n", "{}", ran.stderr);
    for perf in perfs(&["perf", "perf-new"]) {
        let ran = perf.run(Stdin::Null, args!["script", "-f", "-F", "ip,sym", "-i", path]).done().unwrap();
        let text = ran.text();
        let names: Vec<&str> = text.lines().filter_map(|line| line.split_whitespace().nth(1)).collect();
        assert_eq!(
            names,
            ["bpf_prog_6deef7357e7b4530_demo", "bpf_prog_6deef7357e7b4530_demo", "[unknown]"],
            "{}",
            perf.name
        );
    }
}

const STUBS: &str = "
#include <stdlib.h>
#include <string.h>
static int one(int x) { return x + 1; }
static int (*pick(void))(int) { return one; }
static int chosen(int) __attribute__((ifunc(\"pick\")));
int all(int x, char *text) {
    text = realloc(text, x);
    return chosen(x) + (int)strtol(text, 0, 10) + abs(atoi(text)) + (int)strcspn(text, text);
}
";

/// The slot of a function that is chosen at the start (IRELATIVE) is among those of the others, at any
/// position.
#[test]
fn stubs_are_named_by_their_slots_among_those_of_ifuncs() {
    if workloads().is_none() || !is_installed("objdump", "apt-get install binutils") {
        return;
    }
    let folder = temp();
    let library = folder.path().join("stubs.so");
    fs::write(folder.path().join("stubs.c"), STUBS).unwrap();
    let flags = ["-O1", "-shared", "-fPIC", "-fno-builtin", "-Wl,-z,lazy", "-o"];
    let ran = run(clean("gcc").args(flags).args([&library, &folder.path().join("stubs.c")]), Stdin::Null);
    assert_eq!(ran.code, Some(0), "{}", ran.stderr);
    let disassembly = run(clean("objdump").arg("-d").arg(&library), Stdin::Null);
    let image = image(&library);
    let mut seen = Vec::new();
    for line in disassembly.text().lines().filter(|line| line.ends_with("@plt>:")) {
        let (address, name) = line.split_once(" <").unwrap();
        let name = name.trim_end_matches(">:");
        // The segments of such a small library have their addresses as offsets.
        let ours = name_at(&image, u64::from_str_radix(address, 16).unwrap() + 4).unwrap();
        // objdump names no function for a chosen one.
        let expected = if name.starts_with("*ABS*") { "chosen@plt" } else { name };
        assert_eq!(ours, expected, "{line}");
        seen.push(ours);
    }
    for name in ["realloc@plt", "strtol@plt", "chosen@plt"] {
        assert!(seen.iter().any(|seen| seen == name), "{name} is not among {seen:?}");
    }
}

const STATIC_STUBS: &str = "
static int one(void) { return 1; }
static int two(void) { return 2; }
static void *pick_first(void) { return one; }
static void *pick_second(void) { return two; }
int first(void) __attribute__((ifunc(\"pick_first\")));
int second(void) __attribute__((ifunc(\"pick_second\")));
void _start(void) { first(); second(); for (;;); }
";

/// The stubs of a static program lead only to functions that are chosen at the start; their section has no
/// entry size.
#[test]
fn stubs_of_a_static_program_are_as_long_as_their_jumps() {
    if workloads().is_none() {
        return;
    }
    let folder = temp();
    let program = folder.path().join("static");
    fs::write(folder.path().join("static.c"), STATIC_STUBS).unwrap();
    for (protection, size) in [("none", 8), ("full", 16)] {
        let flags = ["-O1", "-static", "-nostdlib", "-no-pie", "-o"];
        let protection = format!("-fcf-protection={protection}");
        let args = [&program, &folder.path().join("static.c")];
        let ran = run(clean("gcc").arg(protection).args(flags).args(args), Stdin::Null);
        assert_eq!(ran.code, Some(0), "{}", ran.stderr);
        let image = image(&program);
        // `.plt` is the first section of code.
        let mut names = (0..4).map(|number| name_at(&image, 0x1000 + number * size / 2));
        let mut of_stub = || [names.next().unwrap(), names.next().unwrap()];
        for _ in 0..2 {
            let [begin, middle] = of_stub();
            assert!(begin == middle && begin.as_ref().unwrap().ends_with("@plt"), "{begin:?}, {middle:?}");
        }
    }
}

/// The linker of ppc64 puts stubs with names of its own into `.text`; its `.plt` has no code. These are perf
/// 7.3's names.
#[test]
fn stubs_of_ppc64_have_the_names_that_the_linker_gave_them() {
    let image = image(&root().join("tests/data/foreign/ppc64el/stubs.so"));
    for (address, name) in [
        (0x2bc, None),
        (0x2c0, Some("0000001a.plt_call.1a:7")),
        (0x2ec, Some("0000001a.plt_call.read_it")),
        (0x31c, Some("0000001a.plt_call.write_it")),
        (0x320, Some("one")),
        (0x338, Some("chosen")),
        (0x3dc, None),
        (0x3e8, Some("__glink_PLTresolve")),
    ] {
        assert_eq!(name_at(&image, address).as_deref(), name, "{address:#x}");
    }
}

/// The stubs of other architectures are those found by objdump (binutils 2.40). It gives no name to a stub
/// whose function is chosen at the start, and on arm these are in a section of their own.
#[test]
fn stubs_of_other_architectures_are_where_objdump_finds_them() {
    // The first address of each, and the distance between them.
    for (arch, first, size, chosen) in [
        ("i386", 0x1c0, 16, true),
        ("riscv64", 0x2e0, 16, true),
        ("armhf", 0x1ac, 12, false),
        ("s390x", 0x2d8, 32, true),
        ("arm64", 0x2c0, 16, true),
    ] {
        let image = image(&root().join(format!("tests/data/foreign/{arch}/stubs.so")));
        let names = ["read_it@plt", "write_it@plt", "chosen@plt"];
        for (at, name) in names.iter().take(if chosen { 3 } else { 2 }).enumerate() {
            let start = first + size * at as u64;
            for address in [start, start + size - 1] {
                assert_eq!(name_at(&image, address).as_deref(), Some(*name), "{arch} {address:#x}");
            }
        }
    }
}

/// A string table of `n` bytes and `n` symbols, each of which is named by the rest of the table.
fn overlapping_names(n: usize) -> Vec<u8> {
    let section = |kind: u32, offset: usize, size: usize, link: u32, entry: u64| {
        let fields: [u64; 5] = [0, 0, offset as u64, size as u64, u64::from(link)];
        let mut header = [0_u32.to_le_bytes(), kind.to_le_bytes()].concat();
        header.extend(fields.iter().flat_map(|field| field.to_le_bytes()));
        header.extend([1, entry].iter().flat_map(|field| field.to_le_bytes()));
        header
    };
    let mut file = [&b"\x7fELF\x02\x01\x01"[..], &[0; 9], &[3, 0, 62, 0, 1, 0, 0, 0], &[0; 16]].concat();
    file.extend(64_u64.to_le_bytes());
    file.extend([0, 0, 0, 0, 64, 0, 56, 0, 0, 0, 64, 0, 4, 0, 0, 0]);
    let strings = 64 + 4 * 64;
    let symbols = strings + n + 1;
    file.extend(section(0, 0, 0, 0, 0));
    file.extend(section(2, symbols, n * 24, 2, 24));
    file.extend(section(3, strings, n + 1, 0, 0));
    file.extend(section(1, 0, 0, 0, 0));
    file.extend(vec![b'a'; n]);
    file.push(0);
    for at in 0..n as u32 {
        file.extend(at.to_le_bytes());
        file.extend([0x12, 0, 3, 0]);
        file.extend([u64::from(at) * 16, 16].iter().flat_map(|field| field.to_le_bytes()));
    }
    file
}

/// 0.2 MB took 816 MB.
#[test]
fn names_that_overlap_take_no_memory_of_their_own() {
    let folder = temp();
    let file = folder.path().join("overlap");
    let read = |n| {
        fs::write(&file, overlapping_names(n)).unwrap();
        ElfFile::read(&file)
    };
    // Few that overlap are named.
    let elf = read(31).unwrap();
    assert_eq!(elf.symbols.len(), 31);
    assert_eq!(elf.symbols[30].name.len(), 1);
    for n in [4000, 16_000] {
        let error = read(n).unwrap_err().to_string();
        assert!(error.contains("share too many bytes"), "{error}");
    }
}

const NO_FILE: Inode = Inode { major: 0, minor: 0, inode: 0, generation: 0 };

/// A recording of a kernel: mappings with address, size, offset, name and build-id, and samples with address
/// and CPU mode.
pub(crate) fn record_kernel(
    out: &Path,
    mappings: &[(u64, u64, u64, &str, Option<BuildId>)],
    samples: &[(u64, u16)],
) {
    let mut attr = Attr::default();
    attr.sample_type = st::IP | st::TID | st::TIME;
    // sample_id_all, mmap.
    (attr.flags, attr.sample_period) = (1 << 18 | 1 << 8, 1000);
    let event = Event::made(&attr, vec![1], Endian::Little);
    let mut writer = RecordingWriter::create(out, &[event], Endian::Little).unwrap();
    writer.set_feature(Feature::OSRELEASE, write_str(b"6.0.0-none", Endian::Little)).unwrap();
    for (start, len, pgoff, name, id) in mappings {
        let mapping = Mmap2 {
            misc: cpumode::KERNEL,
            pid: u32::MAX,
            tid: 0,
            start: *start,
            len: *len,
            pgoff: *pgoff,
            file: id.as_ref().map_or(MappedFile::Inode(NO_FILE), |id| MappedFile::BuildId(id.as_bytes())),
            prot: 5,
            flags: 2,
            name: name.as_bytes(),
            trailer: &[0; 16],
        };
        writer.write(&mapping.write(Endian::Little).unwrap()).unwrap();
    }
    for (&(ip, cpumode), time) in samples.iter().zip(1..) {
        let sample = NewSample { cpumode, ip, pid: 1, tid: 1, time, ..NewSample::default() };
        writer.write(&sample.build(&attr, Endian::Little).unwrap()).unwrap();
    }
    writer.finish().unwrap();
}

const MODULE: &str = "
int first(int x) { return x * 3 + 1; }
int second(int x) { return x * 5 + 2; }
__attribute__((section(\".text.unlikely\"))) int third(int x) { return x * 7 + 3; }
__attribute__((section(\".init.text\"))) int init(int x) { return x * 9 + 4; }
";

/// A module of a kernel that is not running: its file has the offsets of functions from the recorded address.
#[test]
fn modules_of_another_boot_are_named_by_their_files() {
    if workloads().is_none() || !is_installed("ld", "apt-get install binutils") {
        return;
    }
    let folder = temp();
    let path = |name: &str| folder.path().join(name);
    let name = "/lib/modules/6.0.0-none/kernel/drivers/fake.ko";
    let module = path("root").join(&name[1..]);
    fs::create_dir_all(module.parent().unwrap()).unwrap();
    fs::write(path("fake.c"), MODULE).unwrap();
    let done = |command: &mut Command| {
        let ran = run(command, Stdin::Null);
        assert_eq!(ran.code, Some(0), "{}", ran.stderr);
    };
    done(clean("gcc").args(["-O1", "-c", "-o"]).args([path("fake.o"), path("fake.c")]));
    done(clean("ld").args(["-r", "--build-id=sha1", "-o"]).args([module.clone(), path("fake.o")]));
    let elf = ElfFile::read(&module).unwrap();
    let address = |name: &str| {
        elf.symbols.iter().find(|symbol| &*symbol.name == name.as_bytes()).map(|symbol| symbol.start)
    };
    assert_eq!((address("first"), address("init")), (Some(0), None));
    let (start, kernel) = (0xffff_ffff_c012_0000, 0xffff_ffff_8100_0000);
    let recording = path("module.data");
    let mappings = [
        (kernel, 0x1_0000, kernel, "[kernel.kallsyms]_text", Some(BuildId::new(&[7; 20]).unwrap())),
        (start, 0x1_0000, 0, name, elf.build_id),
    ];
    let expected = ["first", "second", "third"];
    let samples = expected.map(|name| (start + address(name).unwrap() + 2, cpumode::KERNEL));
    record_kernel(&recording, &mappings, &samples);
    let root = path("root").display().to_string();
    let view = |more: &[&str]| {
        let line = ["view", "--foreign", "-F", "ip,sym,symoff"];
        run(perfx_command().args(line).args(more).arg(&recording), Stdin::Null).text()
    };
    let named: Vec<String> = view(&["--root", &root]).lines().map(|line| line[18..].to_owned()).collect();
    assert_eq!(named, expected.map(|name| format!("{name}+0x2")));
    assert!(view(&[]).lines().all(|line| line.ends_with("[unknown]")));
    for perf in perfs(&["perf-new"]) {
        let fields = ["-F", "ip,sym,symoff"];
        let theirs = perf.script(&recording, &path("root"), &fields).text();
        assert_eq!(view(&["--root", &root]), theirs, "{}", perf.name);
    }
}

/// The recorded mapping of the kernel ends with `_etext`, but `start_kernel` and other code of .init.text is
/// after that: these frames had no name. A symbol there makes an address the kernel's, as in perf; others
/// stay unknown.
#[test]
fn code_of_the_kernel_behind_its_mapping_has_a_name() {
    let folder = temp();
    let path = |name: &str| folder.path().join(name);
    let (kernel, module) = (0xffff_ffff_8100_0000_u64, 0xffff_ffff_c000_0000_u64);
    let entry = path("cache/.build-id/07").join("07".repeat(19));
    fs::create_dir_all(&entry).unwrap();
    let symbols = [
        (0, "T _text"),
        (0x1000, "T do_idle"),
        (0x2_0000, "T _etext"),
        (0x5_0000, "T start_kernel"),
        (0x5_0400, "t x86_64_start_kernel"),
        (0x5_0800, "B _end"),
    ];
    // perf ends the last symbol of a table at the end of its page.
    let lines = symbols.map(|(at, symbol)| format!("{:x} {symbol}\n", kernel + at));
    fs::write(entry.join("kallsyms"), lines.concat()).unwrap();
    let recording = path("in.data");
    let id = |byte| BuildId::new(&[byte; 20]);
    let mappings = [
        (kernel, 0x2_0000, kernel, "[kernel.kallsyms]_text", id(7)),
        (module, 0x1000, 0, "/lib/modules/1/fake.ko", id(8)),
    ];
    let samples = [
        (kernel + 0x1008, cpumode::KERNEL, "do_idle+0x8"),
        (kernel + 0x5_0004, cpumode::KERNEL, "start_kernel+0x4"),
        (kernel + 0x5_0402, cpumode::KERNEL, "x86_64_start_kernel+0x2"),
        (module - 0x10_0000, cpumode::KERNEL, "[unknown]"),
        // After the next mapping it can't be the kernel, nor can code of a process.
        (module + 0x2000, cpumode::KERNEL, "[unknown]"),
        (kernel + 0x5_0004, cpumode::USER, "[unknown]"),
    ];
    record_kernel(&recording, &mappings, &samples.map(|(ip, cpumode, _)| (ip, cpumode)));
    let view = ["view", "--foreign", "-F", "ip,sym,symoff,dso", "--buildid-dir"];
    let ran = run(perfx_command().args(view).arg(path("cache")).arg(&recording), Stdin::Null);
    let named: Vec<String> = ran.text().lines().map(|line| line.trim_start()[17..].to_owned()).collect();
    let dso = |name: &str| if name == "[unknown]" { "([unknown])" } else { "([kernel.kallsyms])" };
    let expected = samples.map(|(_, _, name)| format!("{name} {}", dso(name)));
    assert_eq!(named[..], expected, "{}", ran.stderr);
}

const KERNEL: &str = "
int _text(int x) { return x + 1; }
int first(int x) { return x * 3 + 1; }
int second(int x) { return x * 5 + 2; }
";

/// Regression: a FIFO at `proc/kallsyms` below a root made `view`, `list` and `export folded` wait for ever.
#[test]
fn only_regular_files_are_opened_in_the_places_of_symbols() {
    let folder = temp();
    let path = |name: &str| folder.path().join(name);
    let put = |name: &str| {
        fs::create_dir_all(path(name).parent().unwrap()).unwrap();
        path(name)
    };
    let id = BuildId::new(&[7; 20]).unwrap();
    let notes = [&b"\x04\0\0\0\x14\0\0\0\x03\0\0\0GNU\0"[..], id.as_bytes()].concat();
    fs::write(put("root/sys/kernel/notes"), &notes).unwrap();
    let entry = format!("cache/.build-id/07/{}", "07".repeat(19));
    let fifos = [
        "root/proc/kallsyms",
        "root/boot/vmlinux-6.0.0-none",
        "root/opt/program",
        "root/tmp/perf-7.map",
        &format!("root/usr/lib/debug/.build-id/07/{}.debug", "07".repeat(19)),
        &format!("{entry}/elf"),
        &format!("{entry}/kallsyms"),
        "fifo",
    ];
    for name in fifos {
        let fifo = rustix::fs::FileType::Fifo;
        rustix::fs::mknodat(rustix::fs::CWD, put(name), fifo, 0o600.into(), 0).unwrap();
    }
    let (kernel, input) = (0xffff_ffff_8100_0000, path("in.data"));
    let mappings = [
        (kernel, 0x10_0000, kernel, "[kernel.kallsyms]_text", Some(id)),
        (0x40_0000, 0x1000, 0, "/opt/program", Some(id)),
        (0x50_0000, 0x1000, 0, "//anon", None),
    ];
    let samples = [(kernel + 16, cpumode::KERNEL), (0x40_0010, cpumode::USER), (0x50_0010, cpumode::USER)];
    record_kernel(&input, &mappings, &samples);
    let commands: [&[&str]; 3] = [&["view", "-F", "ip,sym"], &["list", "functions"], &["export", "folded"]];
    for command in commands {
        for (option, value, code) in [
            ("--root", "root", 0),
            ("--buildid-dir", "cache", 0),
            ("--kallsyms", "fifo", 2),
            ("--vmlinux", "fifo", 2),
        ] {
            let program = perfx_command().get_program().to_owned();
            let mut within = clean("timeout");
            within.arg("60").arg(program).args(command).args([option]).arg(path(value)).arg(&input);
            let ran = run(&mut within, Stdin::Null);
            assert_eq!(ran.code, Some(code), "{command:?} {option}: {}", ran.stderr);
            assert!(code == 0 || ran.stderr.contains("not a regular file but a FIFO"), "{}", ran.stderr);
        }
    }
}

/// Symbols of a kernel at another address (KASLR), by `--kallsyms`, `--vmlinux` and the files below `--root`.
/// If the recording lacks its kernel's build-id, the list of a running kernel below `--root` may be that of
/// another.
#[test]
fn symbols_of_another_kernel_come_from_where_the_user_says() {
    if workloads().is_none() || !is_installed("ld", "apt-get install binutils") {
        return;
    }
    let folder = temp();
    let path = |name: &str| folder.path().join(name);
    let put = |name: &str, bytes: &[u8]| {
        fs::create_dir_all(path(name).parent().unwrap()).unwrap();
        fs::write(path(name), bytes).unwrap();
    };
    put("kernel.c", KERNEL.as_bytes());
    let id = BuildId::new(&[7; 20]).unwrap();
    let done = |command: &mut Command| {
        let ran = run(command, Stdin::Null);
        assert_eq!(ran.code, Some(0), "{}", ran.stderr);
    };
    done(clean("gcc").args(["-O1", "-c", "-o"]).args([path("kernel.o"), path("kernel.c")]));
    let vmlinux = path("vmlinux");
    let link = ["-e", "_text", "-Ttext=0xffffffff81000000", &format!("--build-id=0x{id}"), "-o"];
    done(clean("ld").args(link).args([&vmlinux, &path("kernel.o")]));
    let elf = ElfFile::read(&vmlinux).unwrap();
    let at = |name: &str| {
        let found = elf.symbols.iter().find(|symbol| &*symbol.name == name.as_bytes());
        found.unwrap().start - 0xffff_ffff_8100_0000
    };
    let (recorded, booted) = (0xffff_ffff_9200_0000_u64, 0xffff_ffff_a500_0000_u64);
    let lines = ["_text", "first", "second"].map(|name| format!("{:x} T {name}\n", booted + at(name)));
    put("kallsyms", lines.concat().as_bytes());
    put("live/proc/kallsyms", lines.concat().as_bytes());
    let notes = [&b"\x04\0\0\0\x14\0\0\0\x03\0\0\0GNU\0"[..], id.as_bytes()].concat();
    put("live/sys/kernel/notes", &notes);
    put("installed/boot/vmlinux-6.0.0-none", &fs::read(&vmlinux).unwrap());

    let samples =
        [(recorded + at("first") + 2, cpumode::KERNEL), (recorded + at("second") + 1, cpumode::KERNEL)];
    let name = "[kernel.kallsyms]_text";
    for (file, id) in
        [("known.data", Some(id)), ("unknown.data", None), ("other.data", BuildId::new(&[8; 20]))]
    {
        record_kernel(&path(file), &[(recorded, 0x10_0000, recorded, name, id)], &samples);
    }
    let named = "first+0x2 second+0x1";
    let nothing = "[unknown] [unknown]";
    for (file, option, value, expected, said) in [
        ("known.data", "--kallsyms", "kallsyms", named, ""),
        ("known.data", "--vmlinux", "vmlinux", named, ""),
        ("known.data", "--root", "live", named, ""),
        ("known.data", "--root", "installed", named, ""),
        ("unknown.data", "--kallsyms", "kallsyms", named, ""),
        ("unknown.data", "--vmlinux", "vmlinux", named, ""),
        ("unknown.data", "--root", "live", nothing, "the recording has no build-id for it"),
        ("unknown.data", "--root", "installed", named, ""),
        ("other.data", "--vmlinux", "vmlinux", nothing, "the recording says 0808"),
        ("other.data", "--root", "live", nothing, "nothing with its build-id, 0808"),
        ("other.data", "--root", "installed", nothing, "nothing with its build-id, 0808"),
    ] {
        let view = ["view", "--foreign", "-F", "ip,sym,symoff", option];
        let ran = run(perfx_command().args(view).args([path(value), path(file)]), Stdin::Null);
        let text = ran.text();
        let found: Vec<&str> = text.lines().filter_map(|line| line.split_whitespace().nth(1)).collect();
        assert_eq!(found.join(" "), expected, "{file} {option} {value}: {}", ran.stderr);
        assert!(ran.stderr.contains(said), "{file} {option} {value}: {}", ran.stderr);
    }
}

/// The reason for missing names was only visible as addresses.
#[test]
fn the_list_of_dsos_says_why_functions_have_no_names_and_what_helps() {
    let Some(shop) = Workshop::new() else { return };
    let root = shop.path("root");
    fs::create_dir_all(root.join("nowhere")).unwrap();
    let listed = || {
        let ran = perfx(args!["list", "dsos", "--foreign", "--root", root, shop.recording()]);
        let row = ran.text().lines().nth(1).unwrap().split_whitespace().last().unwrap().to_owned();
        (row, ran.stderr)
    };
    let (names, said) = listed();
    let why = format!(
        "100 % of the samples are in /nowhere/program: no file with build-id {} was found",
        shop.id()
    );
    assert!(
        names == "none" && said.contains(&format!("{why}; what helps: --debuginfod or --root DIR")),
        "{said}"
    );
    let file = root.join("nowhere/program");
    fs::copy(shop.path("stripped"), &file).unwrap();
    let (names, said) = listed();
    assert!(names == "exported" && said.contains(": it is stripped; what helps: --debuginfod"), "{said}");
    fs::copy(shop.path("program"), &file).unwrap();
    assert_eq!(listed().0, "lines");
    // Another build at the same path.
    shop.tool("gcc", &args!["-O2", "-Wl,--build-id", "-o", "other", "program.c"]);
    fs::copy(shop.path("other"), &file).unwrap();
    let (names, said) = listed();
    assert!(names == "none" && said.contains("/nowhere/program is another build, "), "{said}");
}

const LAMBDAS: &str = "
volatile unsigned long sink;
int main() {
    auto first = [](unsigned long n) { for (unsigned long i = 0; i < n; i++) sink += i; };
    auto second = [](unsigned long n) { for (unsigned long i = 0; i < n; i++) sink ^= i * 3; };
    first(1000);
    second(1000);
}
";

/// Regression: all inlined lambdas were one function, `operator()`.
#[test]
fn inlined_lambdas_of_different_lines_have_different_names() {
    let Some(shop) = Workshop::new() else { return };
    if !is_installed("g++", "apt-get install g++") {
        return;
    }
    fs::write(shop.path("lambdas.cpp"), LAMBDAS).unwrap();
    shop.tool("g++", &args!["-O2", "-g", "-o", "lambdas", "lambdas.cpp"]);
    let file = fs::read(shop.path("lambdas")).unwrap();
    let symbols = object::File::parse(&*file).unwrap();
    let main = symbols.symbols().find(|symbol| symbol.name() == Ok("main")).unwrap();
    let image = image(&shop.path("lambdas"));
    let mut names = BTreeSet::new();
    for address in main.address()..main.address() + main.size() {
        names.extend(calls_at(&image, address).unwrap().into_iter().map(|call| call.symbol));
    }
    let expected = ["main", "{lambdas.cpp:4}::operator()", "{lambdas.cpp:5}::operator()"];
    assert_eq!(names, expected.map(str::to_owned).into());
}
