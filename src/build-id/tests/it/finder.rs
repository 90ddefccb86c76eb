//! The finder searches the given places in order, verifies each result, and reports the reason of each place.

use std::fs;
use std::os::unix::fs::{MetadataExt, symlink};
use std::path::{Path, PathBuf};
use std::process::Command;

use crate::made::{ORDINARY, Shape, elf, note};
use build_id::{Answer, BuildId, Finder, KnownIds, Object, Places, RecordedOn};
use tempfile::TempDir;

const RELEASE: &str = "6.1.0-made-up";

/// A simulated machine: folders for its /, /proc and /sys, roots and caches.
struct World(TempDir);

impl World {
    fn new() -> World {
        World(tempfile::tempdir().unwrap())
    }

    fn path(&self, name: &str) -> PathBuf {
        self.0.path().join(name)
    }

    fn write(&self, name: &str, bytes: impl AsRef<[u8]>) -> PathBuf {
        let path = self.path(name);
        fs::create_dir_all(path.parent().unwrap()).unwrap();
        fs::write(&path, bytes).unwrap();
        path
    }

    fn elf(&self, name: &str, id: u8) -> PathBuf {
        self.write(name, elf(ORDINARY, &[id; 20]))
    }

    fn places(&self) -> Places {
        Places {
            files: true,
            running_kernel: true,
            recorded_on: RecordedOn { release: Some(RELEASE.to_owned()), ..RecordedOn::default() },
            system_root: self.path("system"),
            ..Places::default()
        }
    }

    /// The finder's answer without the folder of the test: `id source place`, or a line for each place.
    fn says(&self, places: Places, object: &Object) -> String {
        let text = match Finder::new(places).find(object) {
            Answer::Found { id, source, place, checked } => {
                let checked = if checked { "checked" } else { "unchecked" };
                format!("{:02x} {source}: {} {checked}", id.as_bytes()[0], place.display())
            }
            Answer::Missing { tried } => {
                let lines: Vec<_> =
                    tried.iter().map(|(source, reason)| format!("{source}: {reason}")).collect();
                lines.join("\n")
            }
        };
        text.replace(&format!("{}/", self.0.path().display()), "")
    }
}

fn file(path: impl Into<PathBuf>) -> Object {
    Object::File { path: path.into(), inode: None, pid: None }
}

fn file_of(path: &Path, inode: u64, pid: u32) -> Object {
    Object::File { path: path.to_owned(), inode: Some(inode), pid: Some(pid) }
}

fn inode(path: &Path) -> u64 {
    fs::metadata(path).unwrap().ino()
}

fn module(recorded: &str) -> Object {
    Object::Module(recorded.into())
}

#[test]
fn nothing_is_tried_without_places() {
    for object in [file("/bin/sh"), file("[heap]")] {
        let finder = Finder::new(Places::default());
        assert!(matches!(finder.find(&object), Answer::Missing { tried } if tried.is_empty()));
        assert_eq!(finder.find(&object).id(), None);
    }
}

#[test]
fn the_known_list_comes_first_for_every_object() {
    let world = World::new();
    let x = world.elf("x", 1);
    let list = format!("aa {},bb [kernel.kallsyms],cc [vdso],dd [ext4]", x.display());
    let says =
        |object| world.says(Places { known: KnownIds::parse(&list).unwrap(), ..world.places() }, &object);
    assert_eq!(says(file(&x)), "aa known list: x checked");
    assert_eq!(says(Object::Kernel), "bb known list: [kernel.kallsyms] checked");
    assert_eq!(says(Object::Vdso), "cc known list: [vdso] checked");
    assert_eq!(says(module("[ext4]")), "dd known list: [ext4] checked");
    assert_eq!(
        says(file("/no/such")),
        "known list: not in the list\nfile: /no/such: No such file or directory (os error 2)"
    );
}

#[test]
fn a_file_with_another_inode_is_not_used() {
    let world = World::new();
    let x = world.elf("x", 1);
    let says = |inode: u64| {
        world.says(world.places(), &Object::File { path: x.clone(), inode: Some(inode), pid: None })
    };
    assert_eq!(says(inode(&x)), "01 file: x checked");
    assert_eq!(says(0), "01 file: x unchecked");
    assert_eq!(world.says(world.places(), &file(&x)), "01 file: x unchecked");
    let other = inode(&x) + 1;
    assert_eq!(says(other), format!("file: x: replaced: inode is {}, recording says {other}", inode(&x)));
}

#[test]
fn deleted_files_and_names_of_memory_are_not_read() {
    let world = World::new();
    let x = world.elf("x (deleted)", 1);
    world.elf("system/proc/7/root/y", 1);
    let deleted = "file: deleted or replaced before the recording ended, not read";
    assert_eq!(world.says(world.places(), &file_of(&x, inode(&x), 7)), deleted);
    assert_eq!(world.says(world.places(), &file("[heap]")), "file: not an absolute path");
    assert_eq!(
        world.says(world.places(), &file("/dev/null")),
        "file: /dev/null: not a regular file but a device, not read"
    );
    let text = world.write("text", "just text");
    assert_eq!(world.says(world.places(), &file(text)), "file: text: not an ELF file");
    let none = world.write("none", elf(ORDINARY, &[0; 20]));
    assert_eq!(world.says(world.places(), &file(none)), "file: none: no build-id of 1 to 20 bytes in it");
}

#[test]
fn a_path_in_a_container_is_read_through_its_process() {
    let world = World::new();
    let x = world.elf("system/proc/7/root/usr/lib/x", 1);
    symlink("/usr/lib", world.path("system/proc/7/root/lib")).unwrap();
    let path = Path::new("/lib/x");
    let says = |inode, pid| world.says(world.places(), &file_of(path, inode, pid));
    let found = "01 /proc/7/root: system/proc/7/root/usr/lib/x";
    assert_eq!(says(inode(&x), 7), format!("{found} checked"));
    assert_eq!(says(0, 7), format!("{found} unchecked"));
    let not_here = "file: /lib/x: No such file or directory (os error 2)\n/proc";
    assert_eq!(says(0, 8), format!("{not_here}/8/root: the process has ended"));
    assert!(
        says(inode(&x) + 1, 7)
            .starts_with(&format!("{not_here}/7/root: system/proc/7/root/usr/lib/x: replaced"))
    );
}

/// Regression: a program of this machine at the path of another one in a container hid that.
#[test]
fn a_file_with_a_wanted_id_is_found_beyond_others_at_its_path() {
    let world = World::new();
    let host = world.elf("bin/x", 1);
    let id = |byte: u8| BuildId::new(&[byte; 20]).unwrap();
    let inside = format!("system/proc/7/root{}", host.display());
    world.elf(&inside, 2);
    let mapped = world.elf("unlinked", 3);
    let finder = Finder::new(world.places());
    let found = |path: &Path, wanted| match finder.find_same(&file_of(path, 5, 7), wanted) {
        Answer::Found { source, .. } => source.to_string(),
        Answer::Missing { tried } => {
            tried.iter().map(|(source, reason)| format!("{source}: {reason}\n")).collect()
        }
    };
    assert_eq!(found(&host, id(1)), "file");
    assert_eq!(found(&host, id(2)), "/proc/7/root");
    assert!(found(&host, id(3)).contains(&format!("build-id is {}, recording says {}", id(2), id(3))));
    // A mapping leads to the file itself, whatever is at its path now.
    let deleted = PathBuf::from(format!("{} (deleted)", mapped.display()));
    fs::create_dir_all(world.path("system/proc/7/map_files")).unwrap();
    fs::rename(&mapped, &deleted).unwrap();
    symlink(&deleted, world.path("system/proc/7/map_files/1000-2000")).unwrap();
    assert_eq!(found(&deleted, id(3)), "/proc/7/map_files");
    // It may have been deleted only after it was recorded.
    assert_eq!(found(&mapped, id(3)), "/proc/7/map_files");
    assert_eq!(found(Path::new(&format!("{} (deleted)", host.display())), id(2)), "/proc/7/root");
}

#[test]
fn a_deleted_file_is_searched_for_by_its_path_in_roots_and_caches() {
    let world = World::new();
    world.elf("root/usr/x", 1);
    let hex = "02".repeat(20);
    world.write(&format!("cache/usr/y/{hex}/elf"), "");
    let places =
        || Places { roots: vec![world.path("root")], caches: vec![world.path("cache")], ..Places::default() };
    let says = |path: &str| world.says(places(), &file(path));
    assert_eq!(says("/usr/x (deleted)"), "01 root root: root/usr/x unchecked");
    assert_eq!(says("/usr/y (deleted)"), format!("02 build-id cache: cache/usr/y/{hex} unchecked"));
}

#[test]
fn roots_are_searched_in_order_and_never_left() {
    let world = World::new();
    let outside = world.elf("outside/x", 9);
    fs::create_dir_all(world.path("a")).unwrap();
    symlink(outside.parent().unwrap(), world.path("a/lib")).unwrap();
    world.elf("b/usr/lib/x", 2);
    symlink("/usr/lib", world.path("b/lib")).unwrap();
    world.elf("c/lib/x", 3);
    let roots = |names: &[&str]| Places {
        roots: names.iter().map(|name| world.path(name)).collect(),
        files: false,
        ..world.places()
    };
    // Inode numbers do not apply to roots.
    let x = file_of(Path::new("/lib/x"), 12345, 7);
    let root = |name| format!("root {}", world.path(name).display());
    let b = root("b").replace(&format!("{}/", world.0.path().display()), "");
    assert_eq!(world.says(roots(&["a", "b", "c"]), &x), format!("02 {b}: b/usr/lib/x unchecked"));
    assert_eq!(world.says(roots(&["c", "b"]), &x), "03 root c: c/lib/x unchecked");
    assert_eq!(world.says(roots(&["a"]), &x), "root a: a/lib/x: No such file or directory (os error 2)");
    assert_eq!(
        world.says(roots(&["c"]), &file("/../outside/x")),
        "root c: c/../outside/x: No such file or directory (os error 2)"
    );
    assert_eq!(world.says(roots(&["c"]), &file("lib/x")), "root c: not an absolute path");
}

#[test]
fn a_root_has_the_kernel_of_the_recorded_release() {
    for place in ["usr/lib/debug/boot/vmlinux-", "boot/vmlinux-"] {
        let world = World::new();
        world.elf(&format!("r/{place}{RELEASE}"), 4);
        world.elf(&format!("r/{place}5.10"), 5);
        let places = Places { roots: vec![world.path("r")], ..world.places() };
        assert_eq!(world.says(places, &Object::Kernel), format!("04 root r: r/{place}{RELEASE} unchecked"));
    }
    for place in ["usr/lib/debug/lib/modules", "lib/modules"] {
        let world = World::new();
        world.elf(&format!("r/{place}/{RELEASE}/vmlinux"), 4);
        let places = Places { roots: vec![world.path("r")], ..world.places() };
        assert_eq!(
            world.says(places, &Object::Kernel),
            format!("04 root r: r/{place}/{RELEASE}/vmlinux unchecked")
        );
    }
}

#[test]
fn a_root_without_the_kernel_is_reported() {
    let world = World::new();
    fs::create_dir_all(world.path("r")).unwrap();
    let places = |release: Option<&str>| Places {
        roots: vec![world.path("r")],
        recorded_on: RecordedOn { release: release.map(str::to_owned), ..RecordedOn::default() },
        ..world.places()
    };
    assert_eq!(
        world.says(places(None), &Object::Kernel),
        "root r: the recording does not name the kernel's release\n\
         running kernel: the recording does not name the kernel's release"
    );
    let says = world.says(places(Some(RELEASE)), &Object::Kernel);
    assert!(says.starts_with("root r: no file of that name for release 6.1.0-made-up\n"), "{says}");
    // A root gives no vdso: the recording does not say which of the installed ones was mapped.
    let says = world.says(places(None), &Object::Vdso);
    assert_eq!(says, "running kernel: the recording does not name the kernel's release");
}

#[test]
fn no_guess_is_made_between_two_kernels_of_one_release() {
    let world = World::new();
    world.elf(&format!("r/boot/vmlinux-{RELEASE}"), 4);
    let debug = format!("r/usr/lib/debug/lib/modules/{RELEASE}/vmlinux");
    world.elf(&debug, 4);
    let says = || {
        let places = Places { roots: vec![world.path("r")], ..world.places() };
        world.says(places, &Object::Kernel)
    };
    assert!(says().starts_with("04 root r"));
    world.elf(&debug, 5);
    let ids = ["04".repeat(20), "05".repeat(20)].join(", ");
    assert!(says().contains(&format!("r: 2 build-ids, not guessed: {ids}\n")), "{}", says());
}

#[test]
fn modules_of_a_root_are_found_by_path_or_by_name() {
    let world = World::new();
    let tree = format!("r/usr/lib/modules/{RELEASE}");
    symlink("/usr/lib", {
        fs::create_dir_all(world.path("r")).unwrap();
        world.path("r/lib")
    })
    .unwrap();
    world.elf(&format!("{tree}/kernel/sound/snd-hda-intel.ko"), 1);
    world.elf(&format!("{tree}/kernel/twice.ko"), 2);
    world.elf(&format!("{tree}/updates/twice.ko"), 3);
    world.write(&format!("{tree}/kernel/packed.ko.xz"), b"\xfd7zXZ\0 and so on, long enough");
    world.write(&format!("{tree}/kernel/both.ko.xz"), b"\xfd7zXZ\0 and so on, long enough");
    world.elf(&format!("r/usr/lib/debug/lib/modules/{RELEASE}/kernel/both.ko.debug"), 4);
    symlink("/", world.path(&format!("{tree}/build"))).unwrap();
    let finder_says = |recorded: &str| {
        let places = Places { roots: vec![world.path("r")], files: false, ..world.places() };
        let says = world.says(places, &module(recorded));
        says.lines().next().unwrap().replace(&tree, "TREE")
    };
    let found = "01 root r: TREE/kernel/sound/snd-hda-intel.ko unchecked";
    for recorded in ["[snd_hda_intel]", "snd-hda-intel", "/elsewhere/snd_hda_intel.ko.zst"] {
        assert_eq!(finder_says(recorded), found, "{recorded}");
    }
    assert_eq!(finder_says(&format!("/lib/modules/{RELEASE}/kernel/sound/snd-hda-intel.ko")), found);
    assert_eq!(
        finder_says(&format!("/lib/modules/{RELEASE}/updates/twice.ko")),
        "03 root r: TREE/updates/twice.ko unchecked"
    );
    assert!(finder_says("[twice]").starts_with("root r: r: 2 build-ids, not guessed: 02020202"));
    assert_eq!(finder_says("[packed]"), "root r: TREE/kernel/packed.ko.xz: compressed (xz), not read");
    assert_eq!(
        finder_says(&format!("/lib/modules/{RELEASE}/kernel/both.ko.xz")),
        format!("04 root r: r/usr/lib/debug/lib/modules/{RELEASE}/kernel/both.ko.debug unchecked")
    );
    // A module from elsewhere, and an unrelated file with the same name.
    world.write("r/opt/own.ko.gz", b"\x1f\x8b and so on, long enough");
    assert_eq!(finder_says("/opt/own.ko.gz"), "root r: r/opt/own.ko.gz: compressed (gzip), not read");
    world.elf("r/none", 9);
    assert_eq!(finder_says("none"), "root r: no file of that name for release 6.1.0-made-up");
    assert_eq!(finder_says("[none]"), "root r: no file of that name for release 6.1.0-made-up");
}

#[test]
fn a_module_recorded_by_path_is_read_there() {
    let world = World::new();
    let path = world.elf("ext4.ko", 1);
    assert_eq!(world.says(world.places(), &Object::Module(path)), "01 file: ext4.ko unchecked");
}

#[test]
fn a_cache_contains_the_id_in_the_name_of_an_entry() {
    let world = World::new();
    let one = "11".repeat(20);
    let two = "22".repeat(16);
    world.write(&format!("cache/usr/bin/x/{one}/elf"), "");
    world.write("cache/usr/bin/x/longer/elf", "");
    world.write(&format!("cache/usr/bin/y/{one}/elf"), "");
    world.write(&format!("cache/usr/bin/y/{two}/debug"), "");
    world.write(&format!("cache/[kernel.kallsyms]/{one}/kallsyms"), "");
    world.write(&format!("cache/[vdso]/{two}/vdso"), "");
    world.write(&format!("cache/[ext4]/{two}"), "the file itself, in old versions");
    world.write("cache/usr/bin/z/other", "");
    world.write(&format!("outside/{one}/elf"), "");
    let says = |object: &Object| {
        let caches = vec![world.path("empty"), world.path("cache")];
        let says = world.says(Places { caches, files: false, ..world.places() }, object);
        says.lines().find(|line| !line.contains("empty/")).unwrap().to_owned()
    };
    assert_eq!(says(&file("/usr/bin/x")), format!("11 build-id cache: cache/usr/bin/x/{one} unchecked"));
    assert_eq!(
        says(&file("/usr/bin/y")),
        format!("build-id cache: cache/usr/bin/y: 2 build-ids, not guessed: {one}, {two}")
    );
    assert_eq!(says(&Object::Kernel), format!("11 build-id cache: cache/[kernel.kallsyms]/{one} unchecked"));
    assert_eq!(says(&Object::Vdso), format!("22 build-id cache: cache/[vdso]/{two} unchecked"));
    let caches = vec![world.path("cache")];
    let other =
        world.says(Places { caches, files: false, running_kernel: false, ..world.places() }, &Object::Vdso32);
    assert_eq!(other, "", "the cache has that of 64-bit processes under this name");
    let recorded_on = RecordedOn { arch: Some("i686".to_owned()), ..RecordedOn::default() };
    let caches = vec![world.path("cache")];
    let only = Places { caches, recorded_on, files: false, running_kernel: false, ..world.places() };
    assert_eq!(
        world.says(only, &Object::Vdso32),
        format!("22 build-id cache: cache/[vdso]/{two} unchecked"),
        "a 32-bit machine has no other"
    );
    assert_eq!(says(&module("[ext4]")), format!("22 build-id cache: cache/[ext4]/{two} unchecked"));
    assert_eq!(
        says(&file("/usr/bin/z")),
        "build-id cache: cache/usr/bin/z: no build-id of 1 to 20 bytes in it"
    );
    assert_eq!(
        says(&file("/../outside")),
        "build-id cache: cache/../outside: No such file or directory (os error 2)"
    );
}

/// This machine's byte order, as in its notes.
const NATIVE: Shape = Shape { big_endian: cfg!(target_endian = "big"), ..ORDINARY };

#[test]
fn the_running_kernel_is_used_if_it_is_the_recorded_one() {
    let world = World::new();
    world.write("system/proc/sys/kernel/osrelease", format!("{RELEASE}\n"));
    world.write("system/proc/sys/kernel/arch", "made64\n");
    let notes =
        |id: u8| [note(NATIVE, b"Xen\0", 3, b"1", 4), note(NATIVE, b"GNU\0", 3, &[id; 20], 4)].concat();
    world.write("system/sys/kernel/notes", notes(1));
    world.write("system/sys/module/snd_hda_intel/notes/.note.Linux", note(NATIVE, b"Linux\0", 3, b"1", 4));
    world.write("system/sys/module/snd_hda_intel/notes/.note.gnu.build-id", notes(2));
    world.write(
        "system/proc/self/maps",
        "1000-2000 r-xp 00000000 00:00 0 /x\n3000-4000 r-xp 00000000 00:00 0   [vdso]\n",
    );
    let memory = [vec![0xee; 0x3000], elf(NATIVE, &[3; 20])].concat();
    world.write("system/proc/self/mem", [memory, vec![0; 0x1000]].concat());
    let says = |release: &str, arch: Option<&str>, object| {
        let release = Some(release.to_owned());
        let recorded_on = RecordedOn { release, arch: arch.map(str::to_owned), ..RecordedOn::default() };
        world.says(Places { recorded_on, files: false, ..world.places() }, &object)
    };
    for arch in [None, Some("made64")] {
        assert_eq!(says(RELEASE, arch, Object::Kernel), "01 running kernel: system/sys/kernel/notes checked");
        for recorded in ["[snd_hda_intel]", "/lib/modules/6.1.0/snd-hda-intel.ko.xz"] {
            assert_eq!(
                says(RELEASE, arch, module(recorded)),
                "02 running kernel: system/sys/module/snd_hda_intel/notes checked"
            );
        }
        assert_eq!(says(RELEASE, arch, Object::Vdso), "03 running kernel: system/proc/self/mem unchecked");
        assert_eq!(
            says(RELEASE, arch, Object::Vdso32),
            "running kernel: processes of this word size have another vdso than this program"
        );
    }
    assert_eq!(
        says(RELEASE, None, module("[ext4]")),
        "running kernel: system/sys/module/ext4/notes: No such file or directory (os error 2)"
    );
    assert_eq!(
        says("5.10", Some("made64"), Object::Kernel),
        "running kernel: this machine is 6.1.0-made-up, the recording is of 5.10"
    );
    assert_eq!(
        says(RELEASE, Some("x86_64"), Object::Vdso),
        "running kernel: this machine is made64, the recording is of x86_64"
    );
    let images_of = |release: &str| {
        let recorded_on = RecordedOn { release: Some(release.to_owned()), ..RecordedOn::default() };
        let finder = Finder::new(Places { recorded_on, ..world.places() });
        [finder.vdso_image(), finder.running_vdso_image()].map(|image| image.is_some())
    };
    assert_eq!((images_of(RELEASE), images_of("5.10")), ([true, true], [false, true]));
    // No file name is the kernel's.
    assert_eq!(says(RELEASE, None, file("/bin/sh")), "");
    world.write("system/proc/self/maps", "");
    assert_eq!(says(RELEASE, None, Object::Vdso), "running kernel: this program has no vdso mapped");
}

#[test]
fn a_recording_is_of_a_machine_with_its_host_name_release_and_architecture() {
    let world = World::new();
    world.write("system/proc/sys/kernel/hostname", "made-up\n");
    world.write("system/proc/sys/kernel/osrelease", format!("{RELEASE}\n"));
    world.write("system/proc/sys/kernel/arch", "made64\n");
    let is_of = |host: Option<&str>, release: Option<&str>, arch: Option<&str>, system: &str| {
        let [host, release, arch] = [host, release, arch].map(|text| text.map(str::to_owned));
        RecordedOn { host, release, arch }.is_machine(&world.path(system))
    };
    let all = (Some("made-up"), Some(RELEASE), Some("made64"));
    assert!(is_of(all.0, all.1, all.2, "system"));
    for (host, release, arch, system) in [
        (Some("other"), all.1, all.2, "system"),
        (all.0, Some("5.10"), all.2, "system"),
        (all.0, all.1, Some("x86_64"), "system"),
        (None, all.1, all.2, "system"),
        (all.0, None, all.2, "system"),
        (all.0, all.1, None, "system"),
        (None, None, None, "nowhere"),
        (all.0, all.1, all.2, "nowhere"),
    ] {
        assert!(!is_of(host, release, arch, system), "{host:?} {release:?} {arch:?} {system}");
    }
}

#[test]
fn the_kernel_and_vdso_of_this_machine_are_found() {
    let release = fs::read_to_string("/proc/sys/kernel/osrelease").unwrap().trim_end().to_owned();
    let arch = Command::new("uname").arg("-m").output().unwrap().stdout;
    let arch = String::from_utf8(arch).unwrap().trim_end().to_owned();
    let recorded_on = RecordedOn { release: Some(release), arch: Some(arch), ..RecordedOn::default() };
    let finder = Finder::new(Places { recorded_on, running_kernel: true, ..Places::default() });
    if Path::new("/sys/kernel/notes").exists() {
        assert!(finder.find(&Object::Kernel).id().is_some());
    }
    if fs::read_to_string("/proc/self/maps").unwrap().contains("[vdso]") {
        assert!(finder.find(&Object::Vdso).id().is_some());
    }
}
