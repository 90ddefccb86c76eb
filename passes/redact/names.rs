//! Decides which names reveal a user or machine, and creates pseudonyms. Names that every machine has stay.

use std::ops::Range;

use perfx_format::names::without_deleted;
use perfx_format::{Feature, PATH_MAX};

use super::known::{Memory, is_folder, is_known, is_listed, is_symbol, replaced, thread};
use crate::scrub::{Key, is_word};

pub(super) const HOST: &[u8] = b"host";

/// Folders whose files come with the distribution or the kernel.
const SYSTEM: [&[u8]; 13] = [
    b"/usr/bin/", b"/usr/sbin/", b"/usr/lib/", b"/usr/lib32/", b"/usr/lib64/", b"/usr/libx32/",
    b"/usr/libexec/", b"/bin/", b"/sbin/", b"/lib/", b"/lib32/", b"/lib64/", b"/boot/",
];

/// The texts before the kernel's release in paths.
const RELEASES: [&[u8]; 5] =
    [b"/lib/modules/", b"/usr/lib/modules/", b"/boot/vmlinux-", b"/boot/vmlinuz-", b"/boot/System.map-"];

/// First folders that every machine has.
const FOLDERS: [&[u8]; 11] =
    [b"", b"home", b"root", b"tmp", b"var", b"opt", b"srv", b"mnt", b"media", b"run", b"usr"];

/// Ends of file names that readers recognise; `.ko` may be compressed, and a version after `.so` is dropped.
const ENDS: [&str; 22] = [
    ".so", ".ko", ".o", ".a", ".exe", ".dll", ".jar", ".node", ".wasm", ".py", ".dump", ".map", ".oat",
    ".dex", ".odex", ".vdex", ".art", ".bin", ".debug", ".dwo", ".img", ".dylib",
];

/// Cgroups that systemd and container runtimes make everywhere.
const CGROUPS: [&[u8]; 10] = [
    b"", b"init.scope", b"system.slice", b"user.slice", b"machine.slice", b"kubepods", b"kubepods.slice",
    b"docker", b"lxc", b"actions_job",
];

const UNITS: [&str; 6] = [".slice", ".scope", ".service", ".mount", ".socket", ".swap"];

/// perf names BPF programs with this, the tag in hex, and `_` with the program's own name, if any.
const BPF: &[u8] = b"bpf_prog_";

/// The pseudonym of a path; `None` if the path is the same on every machine.
pub(super) fn path(key: &Key, name: &[u8]) -> Option<Vec<u8>> {
    if is_public(name) {
        return None;
    }
    let path = without_deleted(name);
    let gone = &name[path.len()..];
    let new = if let Memory::Named(front, inner, end) = Memory::of(path) {
        [front, &key.word("name", inner), end].concat()
    } else if let Some(inner) = path.strip_prefix(b"/memfd:") {
        [b"/memfd:", &file(key, inner)[..]].concat()
    } else if let Some(release) = release(path).filter(|_| is_of_system(path)) {
        let (front, rest) = (&path[..release.start], &path[release.end..]);
        let release = &path[release];
        let is_known = is_known(Feature::OSRELEASE, "text", release);
        let release = if is_known { release.to_vec() } else { replaced(key, Feature::OSRELEASE, release) };
        let rest = if is_of_kernel(rest) { rest.to_vec() } else { folders(key, rest, &[]) };
        [front, &release, &rest].concat()
    } else {
        folders(key, path, &FOLDERS)
    };
    let new = [&new, gone].concat();
    // Pseudonyms of folders can be longer than their names.
    let at = path.iter().rposition(|&byte| byte == b'/').filter(|_| new.len() >= PATH_MAX);
    let Some((folder, name)) = at.map(|at| path.split_at(at)) else { return Some(new) };
    Some([b"/", &key.word("dir", folder)[..], b"/", &file(key, &name[1..]), gone].concat())
}

/// True for a file that every machine of a distribution has, and for names of no file.
pub(super) fn is_public(name: &[u8]) -> bool {
    let path = without_deleted(name);
    let is_of_release = || {
        release(path).is_none_or(|release| {
            is_of_kernel(&path[release.end..]) && is_known(Feature::OSRELEASE, "text", &path[release])
        })
    };
    matches!(Memory::of(path), Memory::Known) || is_of_system(path) && is_of_release()
}

fn is_of_system(path: &[u8]) -> bool {
    let recorded = &path[in_debug(path)..];
    let below = SYSTEM.iter().find_map(|folder| recorded.strip_prefix(*folder));
    below.is_some_and(|below| release(path).is_some() || has_known_folders(below))
        && !path.windows(4).any(|window| window == b"/../")
}

/// True if distributions have these folders below one of [`SYSTEM`]; versions are no longer than a date.
fn has_known_folders(below: &[u8]) -> bool {
    const DATE: usize = 8;
    let mut parts = below.rsplit(|&byte| byte == b'/');
    parts.next();
    parts.all(|folder| str::from_utf8(folder).is_ok_and(is_folder))
        && below.split(|byte| !byte.is_ascii_digit()).all(|digits| digits.len() <= DATE)
}

/// The length of a debug folder at the beginning, before the path of the file itself.
fn in_debug(path: &[u8]) -> usize {
    let folder = b"/usr/lib/debug";
    if path.starts_with(&[folder, &b"/"[..]].concat()) { folder.len() } else { 0 }
}

/// The kernel's release in the path of a module or kernel: `/lib/modules/6.1.0/x.ko`, `/boot/vmlinux-6.1.0`.
fn release(path: &[u8]) -> Option<Range<usize>> {
    let in_debug = in_debug(path);
    let start = in_debug + RELEASES.iter().find(|front| path[in_debug..].starts_with(front))?.len();
    let len = path[start..].iter().position(|&byte| byte == b'/').unwrap_or(path.len() - start);
    Some(start..start + len)
}

/// True if a file in the kernel's folder came with the kernel. `build` links to the source tree.
fn is_of_kernel(path: &[u8]) -> bool {
    let files = [
        "/vdso/vdso32.so", "/vdso/vdso64.so", "/vdso/vdsox32.so", "/vdso/vdso.so", "/vmlinux",
        "/build/vmlinux",
    ];
    // The folder of all drivers directly contains no module.
    let is_module = || {
        let driver = path.strip_prefix(b"/kernel/drivers/");
        path.starts_with(b"/kernel/") && driver.is_none_or(|driver| driver.contains(&b'/'))
    };
    path.is_empty() || is_module() || files.iter().any(|file| file.as_bytes() == path)
}

/// Pseudonyms for the folders and the file of a path; a first folder in `kept` stays.
fn folders(key: &Key, path: &[u8], kept: &[&[u8]]) -> Vec<u8> {
    let parts: Vec<&[u8]> = path.split(|&byte| byte == b'/').collect();
    let last = parts.len() - 1;
    let part = |(number, part): (usize, &&[u8])| match number {
        _ if part.is_empty() => Vec::new(),
        _ if number == last => file(key, part),
        1 if kept.contains(part) => part.to_vec(),
        _ => key.word("dir", part),
    };
    parts.iter().enumerate().map(part).collect::<Vec<_>>().join(&b'/')
}

/// The pseudonym of a file name, with its end. Names derived from a pid by perf or JIT compilers stay.
fn file(key: &Key, name: &[u8]) -> Vec<u8> {
    if is_of_pid(name) {
        return name.to_vec();
    }
    let (named, end) = split_end(name);
    [&key.word("file", named)[..], end].concat()
}

/// True for `perf-PID.map`, `jit-PID.dump`, and images of JIT code, `jit-PID-N.so` and `jitted-PID-N[-N].so`:
/// a pid, and numbers in the range of pids.
fn is_of_pid(name: &[u8]) -> bool {
    const PID_MAX_LIMIT: u32 = 1 << 22;
    let forms = [
        ("perf-", ".map", 1..=1),
        ("jit-", ".dump", 1..=1),
        ("jit-", ".so", 2..=2),
        ("jitted-", ".so", 2..=3),
    ];
    let is_number = |word: &str| {
        word.bytes().all(|byte| byte.is_ascii_digit())
            && word.parse().is_ok_and(|number: u32| number <= PID_MAX_LIMIT && number.to_string() == word)
    };
    str::from_utf8(name).is_ok_and(|name| {
        forms.into_iter().any(|(front, end, count)| {
            let numbers = name.strip_prefix(front).and_then(|rest| rest.strip_suffix(end));
            let numbers = numbers.map(|numbers| numbers.split('-'));
            numbers.is_some_and(|mut all| count.contains(&all.clone().count()) && all.all(is_number))
        })
    })
}

fn split_end(name: &[u8]) -> (&[u8], &[u8]) {
    let text = str::from_utf8(name).unwrap_or_default();
    let is_version = |version: &str| {
        !version.is_empty() && version.bytes().all(|byte| byte.is_ascii_digit() || byte == b'.')
    };
    if text.rsplit_once(".so.").is_some_and(|(stem, version)| !stem.is_empty() && is_version(version)) {
        return (name, b".so");
    }
    let packed = [".ko.xz", ".ko.zst", ".ko.gz"].into_iter().find(|end| text.ends_with(end));
    let known = packed.or_else(|| ENDS.into_iter().find(|end| text.ends_with(end)));
    let at = known.map_or(name.len(), |end| text.len() - end.len());
    if at > 0 { name.split_at(at) } else { (name, b"") }
}

pub(super) fn cgroup(key: &Key, path: &[u8]) -> Vec<u8> {
    let part = |part: &[u8]| {
        if CGROUPS.contains(&part) {
            return part.to_vec();
        }
        let end = UNITS.into_iter().find(|end| part.ends_with(end.as_bytes())).unwrap_or_default();
        let stem = &part[..part.len() - end.len()];
        [&key.word("group", stem)[..], end.as_bytes()].concat()
    };
    path.split(|&byte| byte == b'/').map(part).collect::<Vec<_>>().join(&b'/')
}

/// The pseudonym of a thread's name, at most 15 bytes.
pub(super) fn comm(key: &Key, name: &[u8]) -> Vec<u8> {
    let is_number = name.strip_prefix(b":").is_some_and(|tid| tid.iter().all(u8::is_ascii_digit));
    match thread(name) {
        Some(kept) => kept.to_vec(),
        None if name.is_empty() || is_number => name.to_vec(),
        None => key.word("comm", name),
    }
}

/// The pseudonym of a BPF program's tag, with four leading zeros.
pub(super) fn tag(key: &Key, tag: [u8; 8]) -> [u8; 8] {
    if tag[..4] == [0; 4] {
        return tag;
    }
    (key.number("tag", &tag) & u64::from(u32::MAX)).to_be_bytes()
}

pub(super) fn symbol(key: &Key, name: &[u8]) -> Vec<u8> {
    if is_symbol(name) {
        return name.to_vec();
    }
    let Some((hex, rest)) = name.strip_prefix(BPF).and_then(|program| program.split_at_checked(16)) else {
        return key.word("symbol", name);
    };
    let Some(number) = str::from_utf8(hex).ok().and_then(|hex| u64::from_str_radix(hex, 16).ok()) else {
        return key.word("symbol", name);
    };
    let tag = u64::from_be_bytes(tag(key, number.to_be_bytes()));
    let rest =
        rest.strip_prefix(b"_").map_or(Vec::new(), |name| [b"_", &key.word("prog", name)[..]].concat());
    [BPF, format!("{tag:016x}").as_bytes(), &rest].concat()
}

/// The pseudonym of a build-id: 12 zeros and a number. It is recognisable, and no inode.
pub(super) fn build_id(key: &Key, id: &[u8]) -> [u8; 20] {
    let mut new = [0; 20];
    if id.len() == 20 && id[..12] == [0; 12] {
        new.copy_from_slice(id);
    } else {
        new[12..].copy_from_slice(&key.number("build-id", id).to_be_bytes());
        // Zeros at the end of an id are padding.
        new[19] |= 1;
    }
    new
}

#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum Value {
    /// A number, a word of perf or the name of an event, which reveal nothing.
    Plain,
    Text,
}

/// Letters of `perf record` without a value, or with one in the same word (perf 5.10 to 7.3, `-h`).
const FLAGS: &[u8] = b"abBdgIiNnPqRSsTvWz";

/// Letters whose value reveals nothing if it is a number or a word of perf.
const PLAIN: &[u8] = b"cCDeFjkmprtu";

/// Letters whose value is a file or a name.
const TEXT: &[u8] = b"Go";

struct PerfOption<'w> {
    name: &'w [u8],
    /// The value in the same word.
    value: Option<(Value, &'w [u8])>,
    next: Option<Value>,
}

impl<'w> PerfOption<'w> {
    /// `None` if perf record has no such option; the next word is then uncertain.
    fn of(word: &'w [u8]) -> Option<PerfOption<'w>> {
        match word.strip_prefix(b"--") {
            Some(long) => PerfOption::long(word, long),
            None => PerfOption::letters(word),
        }
    }

    fn long(word: &'w [u8], long: &'w [u8]) -> Option<PerfOption<'w>> {
        let equals = long.iter().position(|&byte| byte == b'=');
        let name = str::from_utf8(&long[..equals.unwrap_or(long.len())]).ok()?;
        let positive = name.strip_prefix("no-").unwrap_or(name);
        let (kind, takes) = match name {
            _ if is_listed("perf flag", positive) => (Value::Plain, false),
            _ if is_listed("perf plain", name) => (Value::Plain, true),
            _ if is_listed("perf text", name) => (Value::Text, true),
            _ => return None,
        };
        let next = Some(kind).filter(|_| takes && equals.is_none());
        let (name, value) = word.split_at(equals.map_or(word.len(), |at| at + 3));
        Some(PerfOption { name, value: equals.map(|_| (kind, value)), next })
    }

    fn letters(word: &'w [u8]) -> Option<PerfOption<'w>> {
        let letters = word.strip_prefix(b"-").filter(|letters| !letters.is_empty())?;
        for (at, letter) in letters.iter().enumerate() {
            let (name, value) = word.split_at(at + 2);
            let kind = match letter {
                b'I' | b'S' | b'z' => Value::Plain,
                _ if FLAGS.contains(letter) => continue,
                _ if PLAIN.contains(letter) => Value::Plain,
                _ if TEXT.contains(letter) => Value::Text,
                _ => return None,
            };
            let takes = !FLAGS.contains(letter);
            let next = Some(kind).filter(|_| takes && value.is_empty());
            let value = Some((kind, value)).filter(|_| !value.is_empty());
            return Some(PerfOption { name, value, next });
        }
        Some(PerfOption { name: word, value: None, next: None })
    }
}

#[derive(Debug, Default)]
pub(super) struct CommandLine {
    words: usize,
    /// True from the recorded program, or the first unknown word, on.
    in_program: bool,
    /// The kind of this word, if it is the value of the option before it.
    value: Option<Value>,
}

impl CommandLine {
    /// The pseudonym of the next word. Options, numbers and event names stay, up to the program.
    pub(super) fn word(&mut self, key: &Key, word: &[u8], is_event: impl Fn(&[u8]) -> bool) -> Vec<u8> {
        self.words += 1;
        let new = |word: &[u8]| if is_word("arg", word) { word.to_vec() } else { key.word("arg", word) };
        let shown = |kind: Value, value: &[u8]| match kind {
            Value::Plain if is_value(value) || is_event(value) => value.to_vec(),
            _ => new(value),
        };
        match (self.words, self.value.take()) {
            (1, _) if word == b"perf" => return word.to_vec(),
            (1, _) => return path(key, word).unwrap_or_else(|| word.to_vec()),
            (2, _) if word == b"record" => return word.to_vec(),
            // The options of other recorders are unknown.
            (2, _) => self.in_program = true,
            (_, Some(kind)) => return shown(kind, word),
            _ => {}
        }
        if self.in_program {
            return new(word);
        }
        let option = if word == b"--" { None } else { PerfOption::of(word) };
        let Some(PerfOption { name, value, next }) = option else {
            self.in_program = true;
            return if word == b"--" { word.to_vec() } else { new(word) };
        };
        self.value = next;
        [name, &value.map_or(Vec::new(), |(kind, value)| shown(kind, value))].concat()
    }
}

/// True for numbers and words of perf, separated by commas: `99`, `0-3,7`, `dwarf,8192`.
fn is_value(word: &[u8]) -> bool {
    let is_number = |part: &[u8]| part.iter().all(|byte| byte.is_ascii_digit() || b".-".contains(byte));
    word.split(|&byte| byte == b',')
        .all(|part| !part.is_empty() && part != b"--" && (is_number(part) || is_listed("perf word", part)))
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The name with pseudonyms shown by their words alone.
    fn shown(name: &[u8]) -> String {
        let mut text = String::from_utf8(name.to_vec()).unwrap();
        let is_tag = |text: &str, at: usize| {
            let digits = text.as_bytes().get(at + 1..at + 11);
            digits.is_some_and(|digits| digits.iter().all(u8::is_ascii_hexdigit))
        };
        while let Some((at, _)) = text.match_indices('-').find(|&(at, _)| is_tag(&text, at)) {
            text.replace_range(at..at + 11, "~");
        }
        text
    }

    #[test]
    fn paths_of_users_have_pseudonyms_and_those_of_the_system_do_not() {
        let key = Key::of_text("");
        let new = |path: &str| super::path(&key, path.as_bytes()).map(|new| shown(&new));
        for stays in [
            "",
            "//anon",
            "[vdso]",
            "[kernel.kallsyms]_text",
            "[heap]",
            "anon_inode:[perf_event]",
            "/usr/lib/x86_64-linux-gnu/libc.so.6",
            "/usr/bin/python3.11 (deleted)",
            "/dev/zero (deleted)",
            "/lib/modules/6.1.0-1/kernel/fs/ext4/ext4.ko.xz",
            "/usr/lib/debug/boot/vmlinux-6.1.0-37-cloud-amd64",
            "/usr/lib/debug/usr/bin/python3.11",
            "/usr/lib/debug-tools/x",
            "/lib/modules/6.1.0/build/vmlinux",
            "/lib/modules/6.1.0/vdso/vdso64.so",
        ] {
            assert_eq!(new(stays), None, "{stays}");
        }
        for (path, expected) in [
            ("/home/alice/secret/bin/server", "/home/dir~/dir~/dir~/file~"),
            ("/home/alice/libx.so.1.2 (deleted)", "/home/dir~/file~.so (deleted)"),
            ("/home/alice/libx.so.4111111111111111", "/home/dir~/file~.so"),
            ("/opt/acme/lib/acme.node", "/opt/dir~/dir~/file~.node"),
            ("/data/x", "/dir~/file~"),
            ("/tmp/perf-123.map", "/tmp/perf-123.map"),
            ("/tmp/jitted-123-4.so", "/tmp/jitted-123-4.so"),
            ("/tmp/jitted-123-4-1.so", "/tmp/jitted-123-4-1.so"),
            ("/root/.debug/jit/x/jit-9.dump", "/root/dir~/dir~/dir~/jit-9.dump"),
            ("/tmp/perf-4111111111111111.map", "/tmp/file~.map"),
            ("/tmp/perf-0123.map", "/tmp/file~.map"),
            ("/tmp/perf-1-2.map", "/tmp/file~.map"),
            ("/tmp/jit-7-20251129.dump", "/tmp/file~.dump"),
            ("/tmp/jitted-7-4111111111111111.so", "/tmp/file~.so"),
            ("/tmp/perf-123.jar", "/tmp/file~.jar"),
            ("/usr/share/acme/lib/acme.jar", "/usr/dir~/dir~/dir~/file~.jar"),
            ("/usr/lib/debug/home/alice/server.debug", "/usr/dir~/dir~/dir~/dir~/file~.debug"),
            ("/usr/lib/debug/.build-id/ab/cdef.debug", "/usr/dir~/dir~/dir~/dir~/file~.debug"),
            ("/lib/modules/6.1.0/build/home/alice/x.ko", "/lib/modules/6.1.0/dir~/dir~/dir~/file~.ko"),
            ("/lib/modules/6.1.0/vdso/secret.so", "/lib/modules/6.1.0/dir~/file~.so"),
            ("/usr/lib/../../home/bob/x", "/usr/dir~/dir~/dir~/dir~/dir~/file~"),
            ("/usr/local/bin/x", "/usr/dir~/dir~/file~"),
            ("/usr/lib/libx.so.4111111111111111", "/usr/dir~/file~.so"),
            // Folders of vendors below those of the system.
            ("/usr/lib/alicecorp/libx.so", "/usr/dir~/dir~/file~.so"),
            ("/usr/libexec/alicecorp/agent", "/usr/dir~/dir~/file~"),
            ("/lib64/alice/z.so", "/dir~/dir~/file~.so"),
            ("/lib/modules/6.1.0/kernel/drivers/alicedrv.ko", "/lib/modules/6.1.0/dir~/dir~/file~.ko"),
            ("/dev/shm/secret", "/dir~/dir~/file~"),
            ("/memfd:secret (deleted)", "/memfd:file~ (deleted)"),
            ("/dev/mapper/secret", "/dir~/dir~/file~"),
            ("/proc/7/root/home/alice/x", "/dir~/dir~/dir~/dir~/dir~/file~"),
            ("[anon:secret]", "[anon:name~]"),
            ("[anon_shmem:secret]", "[anon_shmem:name~]"),
            ("/lib/modules/6.1.0/extra/acme.ko.xz", "/lib/modules/6.1.0/dir~/file~.ko.xz"),
            ("/lib/modules/6.1.0-acme/kernel/fs/ext4.ko", "/lib/modules/6.1.0-local/kernel/fs/ext4.ko"),
            ("/usr/lib/modules/6.1.0-acme/extra/x.ko", "/usr/lib/modules/6.1.0-local/dir~/file~.ko"),
            ("/boot/vmlinuz-6.1.0-acme", "/boot/vmlinuz-6.1.0-local"),
            ("/usr/lib/debug/boot/vmlinux-acme", "/usr/lib/debug/boot/vmlinux-name~"),
            ("secret", "file~"),
            // These only begin like names of the kernel.
            ("//secret", "//file~"),
            ("[secret]", "[name~]"),
            ("[vdso]secret", "[name~"),
            ("[kernel.kallsyms]secret", "[kernel.kallsyms]name~"),
            ("anon_inode:secret", "anon_inode:name~"),
            ("/dev/secret", "/dir~/file~"),
        ] {
            assert_eq!(new(path).as_deref(), Some(expected), "{path}");
            let once = super::path(&key, path.as_bytes()).unwrap();
            assert_eq!(super::path(&key, &once).unwrap_or_else(|| once.clone()), once, "{path}");
        }
    }

    #[test]
    fn options_and_numbers_of_perf_stay_in_a_command_line() {
        let key = Key::of_text("");
        let new = |line: &str| {
            let mut words = CommandLine::default();
            let word = |word: &str| {
                shown(&words.word(&key, word.as_bytes(), |word| word == b"cycles" || word == b"cpu/x/"))
            };
            line.split(' ').map(word).collect::<Vec<_>>().join(" ")
        };
        for (line, expected) in [
            ("perf record -F 99 -g -- ./server --password=x 5", "perf record -F 99 -g -- arg~ arg~ arg~"),
            (
                "/home/a/perf record -F99 --call-graph dwarf,512 x -g 7",
                "/home/dir~/file~ record -F99 --call-graph dwarf,512 arg~ arg~ arg~",
            ),
            (
                "perf record -e cycles -o out -c 5 -e cpu/x/ -a",
                "perf record -e cycles -o arg~ -c 5 -e cpu/x/ -a",
            ),
            // Regression: the program's own options stayed after an option without a value.
            (
                "perf record -g psql -p 5432 --account 4111111111111111 --password=987654",
                "perf record -g arg~ arg~ arg~ arg~ arg~ arg~",
            ),
            ("perf record -ag -o 5432 --verb 7 -F 99", "perf record -ag -o arg~ arg~ arg~ arg~ arg~"),
            ("perf record -agF99 --no-buildid -oa.data x", "perf record -agF99 --no-buildid -oarg~ arg~"),
            ("perf record -z3 -S -I --password=987654", "perf record -z3 -S -I arg~"),
            ("perf stat record -I 100 sleep 1", "perf arg~ arg~ arg~ arg~ arg~ arg~"),
            ("perf record -g ./server --pin 1234", "perf record -g arg~ arg~ arg~"),
            ("perf record --output=secret sleep", "perf record --output=arg~ arg~"),
            ("perf record -p 12,13 --freq=99", "perf record -p 12,13 --freq=99"),
        ] {
            assert_eq!(new(line), expected);
        }
    }

    #[test]
    fn other_names_keep_what_every_machine_has() {
        let key = Key::of_text("");
        for (path, expected) in [
            ("/", "/"),
            ("/system.slice/secret.service", "/system.slice/group~.service"),
            ("/user.slice/user-1000.slice", "/user.slice/group~.slice"),
        ] {
            let new = cgroup(&key, path.as_bytes());
            assert_eq!(shown(&new), expected);
            assert_eq!(cgroup(&key, &new), new);
        }
        for (name, expected) in [
            ("perf-exec", "perf-exec"),
            ("kworker/0:1-ev", "kworker/0:1-ev"),
            (":131", ":131"),
            ("server", "comm~"),
            ("perf.secret", "comm~"),
            ("kworker/secret", "comm~"),
        ] {
            let new = comm(&key, name.as_bytes());
            assert!(new.len() <= 15);
            assert_eq!((shown(&new), comm(&key, &new)), (expected.to_owned(), new));
        }
        let program = symbol(&key, b"bpf_prog_0123456789abcdef_secret");
        assert!(
            shown(&program).ends_with("_prog~") && program.starts_with(b"bpf_prog_00000000"),
            "{program:?}"
        );
        assert_eq!(symbol(&key, &program), program);
        let bytes = tag(&key, [1, 0x23, 0x45, 0x67, 0x89, 0xab, 0xcd, 0xef]);
        assert_eq!(program[9..25], *format!("{:016x}", u64::from_be_bytes(bytes)).as_bytes());
        assert_eq!(symbol(&key, b"bpf_trampoline_6442"), b"bpf_trampoline_6442");
        assert_eq!(shown(&symbol(&key, b"secret")), "symbol~");
        assert_eq!(shown(&symbol(&key, b"bpf_trampoline_secret")), "symbol~");
        let id = build_id(&key, &[7; 20]);
        assert_eq!((build_id(&key, &id), &id[..12]), (id, &[0; 12][..]));
        for name in [&b".so"[..], b"a.so.", b"x.secret", b".so.1"] {
            assert_eq!(split_end(name), (name, &b""[..]));
        }
    }
}
