//! Finds the kernel files and modules that a root has installed for one kernel release.

use std::collections::{BTreeSet, HashMap};
use std::ffi::{OsStr, OsString};
use std::fs;
use std::os::unix::ffi::{OsStrExt, OsStringExt};
use std::path::{Path, PathBuf};

use crate::root::resolve;

/// The possible module files of a root, by [`module_name`].
pub(crate) type Modules = HashMap<OsString, BTreeSet<PathBuf>>;

/// The possible kernel files: first those with debug information, then the bare ones.
pub(crate) fn kernels(root: &Path, release: &str) -> Vec<PathBuf> {
    let places = [
        format!("usr/lib/debug/boot/vmlinux-{release}"),
        format!("boot/vmlinux-{release}"),
        format!("usr/lib/debug/lib/modules/{release}/vmlinux"),
        format!("lib/modules/{release}/vmlinux"),
    ];
    places.iter().filter_map(|place| resolve(root, Path::new(place)).ok()).collect()
}

/// All modules below `/lib/modules`, and those with debug information, which are never compressed.
///
/// The folders are walked because `modules.dep` is generated on the installed machine, and an unpacked
/// package has none. A folder that cannot be read has no modules.
pub(crate) fn modules(root: &Path, release: &str) -> Modules {
    let trees = ["lib/modules", "usr/lib/debug/lib/modules"];
    let mut folders: Vec<PathBuf> =
        trees.iter().filter_map(|tree| resolve(root, &Path::new(tree).join(release)).ok()).collect();
    let mut modules = Modules::new();
    while let Some(folder) = folders.pop() {
        for entry in fs::read_dir(folder).into_iter().flatten().flatten() {
            let path = entry.path();
            // Links to folders are not followed: `build` and `source` lead to the kernel's sources.
            if entry.file_type().is_ok_and(|kind| kind.is_dir()) {
                folders.push(path);
            } else if without_suffix(entry.file_name().as_bytes()).is_some() {
                let inside = path.strip_prefix(root).ok().and_then(|path| resolve(root, path).ok());
                modules.entry(module_name(&path)).or_default().extend(inside);
            }
        }
    }
    modules
}

/// The kernel's name of a module: `snd_hda_intel` for `/lib/…/snd-hda-intel.ko.xz` and for `[snd_hda_intel]`.
///
/// modprobe(8): "there is no difference between _ and - in module names". The name is one path component.
pub fn module_name(recorded: &Path) -> OsString {
    let name = recorded.as_os_str().as_bytes();
    let name = name.strip_prefix(b"[").and_then(|name| name.strip_suffix(b"]")).unwrap_or(name);
    let name = Path::new(OsStr::from_bytes(name)).file_name().unwrap_or_default().as_bytes();
    let name = without_suffix(name).unwrap_or(name);
    OsString::from_vec(name.iter().map(|&byte| if byte == b'-' { b'_' } else { byte }).collect())
}

fn without_suffix(file: &[u8]) -> Option<&[u8]> {
    let suffixes: [&[u8]; 5] = [b".ko", b".ko.gz", b".ko.xz", b".ko.zst", b".ko.debug"];
    suffixes.iter().find_map(|suffix| file.strip_suffix(*suffix))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_module_has_one_name_however_it_is_recorded() {
        for recorded in [
            "snd_hda_intel",
            "[snd-hda-intel]",
            "/lib/modules/6.1.0/kernel/sound/snd-hda-intel.ko",
            "/snd-hda_intel.ko.zst",
            "snd_hda_intel.ko.debug",
        ] {
            assert_eq!(module_name(Path::new(recorded)), "snd_hda_intel", "{recorded}");
        }
        assert_eq!(module_name(Path::new("[../../x]")), "x");
        assert_eq!(module_name(Path::new("[..]")), "");
    }
}
