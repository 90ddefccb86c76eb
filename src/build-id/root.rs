//! Resolves a path inside a folder that replaces `/`, and never outside of it.

use std::collections::VecDeque;
use std::ffi::OsString;
use std::fs;
use std::io;
use std::path::{Component, Path, PathBuf};

/// The number of symbolic links that the kernel follows before it returns ELOOP (path_resolution(7)).
const MOST_LINKS: u32 = 40;

/// The target of `path` if `root` were `/`. No component of the result below `root` is a symbolic link.
///
/// A container image has links like `/lib -> /usr/lib`. Opening `root/lib/x` would follow that one to the
/// host's own `/usr/lib`, and so would `/proc/PID/root/lib/x`. As after chroot(2), an absolute link starts
/// again at `root`, and `..` at the top stays there.
///
/// A concurrent change of `root` can still mislead this function; openat2(2) with RESOLVE_IN_ROOT would
/// prevent that, but std does not have it, and the worst result is a wrong build-id.
///
/// # Errors
///
/// Part of the path cannot be read, or has too many symbolic links.
pub fn resolve(root: &Path, path: &Path) -> io::Result<PathBuf> {
    let mut inside = PathBuf::new();
    let mut ahead: VecDeque<OsString> = parts(path).collect();
    let mut links = 0;
    while let Some(part) = ahead.pop_front() {
        if part == ".." {
            inside.pop();
            continue;
        }
        let next = root.join(&inside).join(&part);
        if !fs::symlink_metadata(&next)?.is_symlink() {
            inside.push(part);
            continue;
        }
        links += 1;
        if links > MOST_LINKS {
            return Err(io::Error::other("too many levels of symbolic links"));
        }
        let target = fs::read_link(&next)?;
        if target.is_absolute() {
            inside.clear();
        }
        for part in parts(&target).collect::<Vec<_>>().into_iter().rev() {
            ahead.push_front(part);
        }
    }
    Ok(root.join(inside))
}

/// Like [`resolve`], but the last component may be a symbolic link, for
/// [`open_unlinked`](crate::open_unlinked) to refuse.
///
/// # Errors
///
/// As [`resolve`], or the path does not end with a name.
pub fn resolve_folder(root: &Path, path: &Path) -> io::Result<PathBuf> {
    let name = path.file_name().ok_or(io::ErrorKind::InvalidInput)?;
    Ok(resolve(root, path.parent().unwrap_or(Path::new("")))?.join(name))
}

/// The components of a path, `..` included, without the leading `/` and without `.`.
fn parts(path: &Path) -> impl Iterator<Item = OsString> {
    path.components().filter_map(|component| match component {
        Component::Normal(name) => Some(name.to_owned()),
        Component::ParentDir => Some("..".into()),
        Component::RootDir | Component::CurDir | Component::Prefix(_) => None,
    })
}

#[cfg(test)]
mod tests {
    use std::os::unix::fs::symlink;

    use super::*;

    fn tree() -> tempfile::TempDir {
        let dir = tempfile::tempdir().unwrap();
        let root = dir.path().join("root");
        fs::create_dir_all(root.join("usr/lib/deep")).unwrap();
        fs::write(root.join("usr/lib/x"), "inside").unwrap();
        fs::write(dir.path().join("secret"), "outside").unwrap();
        dir
    }

    fn found(dir: &tempfile::TempDir, path: &str) -> Option<PathBuf> {
        let root = dir.path().join("root");
        let place = resolve(&root, Path::new(path)).ok()?;
        Some(place.strip_prefix(&root).expect("inside the root").to_owned())
    }

    #[test]
    fn an_absolute_link_starts_again_at_the_root() {
        let dir = tree();
        symlink("/usr/lib", dir.path().join("root/lib")).unwrap();
        symlink("lib/x", dir.path().join("root/to-x")).unwrap();
        symlink("/lib/x", dir.path().join("root/usr/lib/deep/to-x")).unwrap();
        for path in
            ["/lib/x", "lib/x", "/./lib//x", "/to-x", "/lib/deep/to-x", "/lib/deep/../x", "/../../lib/x"]
        {
            assert_eq!(found(&dir, path), Some("usr/lib/x".into()), "{path}");
        }
    }

    #[test]
    fn a_link_does_not_lead_out() {
        let dir = tree();
        let root = dir.path().join("root");
        symlink("../secret", root.join("up")).unwrap();
        symlink("../../../../../../../../../../../../../../etc/passwd", root.join("usr/lib/far")).unwrap();
        symlink(dir.path().join("secret"), root.join("absolute")).unwrap();
        for path in ["/up", "/usr/lib/far", "/absolute", "/../secret", "/etc/passwd"] {
            assert_eq!(found(&dir, path), None, "{path}");
        }
        fs::write(root.join("secret"), "inside").unwrap();
        assert_eq!(found(&dir, "/up"), Some("secret".into()));
        assert_eq!(found(&dir, "/../secret"), Some("secret".into()));
    }

    #[test]
    fn a_circle_of_links_ends() {
        let dir = tree();
        symlink("b", dir.path().join("root/a")).unwrap();
        symlink("a", dir.path().join("root/b")).unwrap();
        let error = resolve(&dir.path().join("root"), Path::new("/a")).unwrap_err();
        assert_eq!(error.to_string(), "too many levels of symbolic links");
    }

    #[test]
    fn missing_objects_are_not_found() {
        let dir = tree();
        for path in ["/nothing", "/nothing/../usr/lib/x", "/usr/lib/x/y"] {
            assert_eq!(found(&dir, path), None, "{path}");
        }
    }
}
