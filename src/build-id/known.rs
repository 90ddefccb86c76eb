//! Parses the user's list of build-ids for lookups by path; errors name the line.

use std::collections::HashMap;
use std::ffi::OsStr;
use std::fmt;
use std::fs::File;
use std::io::{self, Read as _};
use std::os::unix::ffi::OsStrExt;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use crate::BuildId;

const LIST_MAX: u64 = 64 << 20;

/// Reads a list with an entry in each line.
///
/// # Errors
///
/// The file cannot be read, or has more than 64 MiB, like a device.
pub fn read_list(file: &Path) -> io::Result<Vec<u8>> {
    let mut text = Vec::new();
    File::open(file)?.take(LIST_MAX + 1).read_to_end(&mut text)?;
    match text.len() as u64 > LIST_MAX {
        true => Err(io::Error::other("it is larger than 64 MiB, too large for a list")),
        false => Ok(text),
    }
}

/// Build-ids by path, in the syntax of `perf inject --known-build-ids` and of `perf buildid-list`.
///
/// Paths are compared literally: they are recorded paths, not files of this machine.
#[derive(Clone, Debug, Default)]
pub struct KnownIds {
    ids: HashMap<PathBuf, (BuildId, Spot)>,
}

#[derive(Clone, Debug)]
enum Spot {
    /// The n-th entry of the list, from 1.
    Entry(usize),
    /// A line of a file, counted from 1.
    Line(Arc<Path>, usize),
}

impl fmt::Display for Spot {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Spot::Entry(n) => write!(f, "entry {n}"),
            Spot::Line(file, n) => write!(f, "{}, line {n}", file.display()),
        }
    }
}

impl KnownIds {
    /// Parses the syntax of perf-inject(1): entries separated by commas, each `HEX PATH`, or `file://NAME`
    /// for a file of such lines.
    ///
    /// Spaces may precede the build-id and separate it from the path; the rest is the path, including spaces.
    /// In a file, blank lines and lines that start with `#` are skipped, and a path may have any bytes except
    /// a line end, so a path with a comma needs a file.
    ///
    /// perf skips entries that it cannot parse, and shortens ids; here, such entries and paths with two ids
    /// are errors.
    ///
    /// # Errors
    ///
    /// An entry is invalid, a path has two ids, or a file cannot be read. The error names the entry or line.
    pub fn parse(list: &str) -> Result<KnownIds, KnownError> {
        let mut known = KnownIds::default();
        for (n, entry) in list.split(',').enumerate() {
            let spot = Spot::Entry(n + 1);
            match entry.trim_start_matches(BLANK).strip_prefix("file://") {
                Some(name) => known.add_file(Path::new(name), &spot)?,
                None => known.add(entry.as_bytes(), spot)?,
            }
        }
        Ok(known)
    }

    /// The build-id for this path.
    pub fn get(&self, path: &Path) -> Option<BuildId> {
        self.ids.get(path).map(|&(id, _)| id)
    }

    /// The paths with a build-id, sorted.
    pub fn paths(&self) -> impl Iterator<Item = &Path> {
        let mut paths: Vec<_> = self.ids.keys().map(PathBuf::as_path).collect();
        paths.sort();
        paths.into_iter()
    }

    /// The number of paths.
    pub fn len(&self) -> usize {
        self.ids.len()
    }

    /// True if there are no paths.
    pub fn is_empty(&self) -> bool {
        self.ids.is_empty()
    }

    fn add_file(&mut self, file: &Path, entry: &Spot) -> Result<(), KnownError> {
        let text = read_list(file)
            .map_err(|error| entry.error(format!("can't read {}: {error}", file.display())))?;
        let file = Arc::from(file);
        for (n, line) in text.split(|&byte| byte == b'\n').enumerate() {
            let line = trim_start(line.strip_suffix(b"\r").unwrap_or(line));
            if !line.is_empty() && !line.starts_with(b"#") {
                self.add(line, Spot::Line(Arc::clone(&file), n + 1))?;
            }
        }
        Ok(())
    }

    fn add(&mut self, entry: &[u8], spot: Spot) -> Result<(), KnownError> {
        let entry = trim_start(entry);
        let hex_end = entry.iter().position(|&byte| is_blank(byte)).unwrap_or(entry.len());
        let (hex, path) = entry.split_at(hex_end);
        let id = BuildId::from_hex(&String::from_utf8_lossy(hex)).map_err(|error| spot.error(error))?;
        let path = Path::new(OsStr::from_bytes(trim_start(path)));
        if path.as_os_str().is_empty() {
            return Err(spot.error("no path after the build-id"));
        }
        match self.ids.get(path) {
            Some((other, there)) if *other != id => {
                Err(spot.error(format!("{} has build-id {id} here and {other} in {there}", path.display())))
            }
            Some(_) => Ok(()),
            None => {
                self.ids.insert(path.to_owned(), (id, spot));
                Ok(())
            }
        }
    }
}

const BLANK: [char; 2] = [' ', '\t'];

fn is_blank(byte: u8) -> bool {
    BLANK.contains(&char::from(byte))
}

fn trim_start(bytes: &[u8]) -> &[u8] {
    let start = bytes.iter().position(|&byte| !is_blank(byte)).unwrap_or(bytes.len());
    &bytes[start..]
}

/// An error in a list of known build-ids, with the entry or line.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct KnownError {
    at: String,
    what: String,
}

impl Spot {
    fn error(&self, what: impl ToString) -> KnownError {
        KnownError { at: self.to_string(), what: what.to_string() }
    }
}

impl fmt::Display for KnownError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}: {}", self.at, self.what)
    }
}

impl std::error::Error for KnownError {}

#[cfg(test)]
mod tests {
    use std::fs;

    use super::*;

    const ID: &str = "00112233445566778899aabbccddeeff00112233";

    fn says(list: &str) -> String {
        KnownIds::parse(list).unwrap_err().to_string()
    }

    fn hex(known: &KnownIds, path: impl AsRef<OsStr>) -> Option<String> {
        known.get(Path::new(path.as_ref())).map(|id| id.to_string())
    }

    #[test]
    fn entries_of_any_length_are_kept_whole() {
        let known =
            KnownIds::parse(&format!("{ID} /bin/a,  AB /bin/b  c ,1234   [kernel.kallsyms],ab /bin/b  c "))
                .unwrap();
        assert_eq!(known.len(), 3);
        assert_eq!(hex(&known, "/bin/a").as_deref(), Some(ID));
        assert_eq!(hex(&known, "/bin/b  c ").as_deref(), Some("ab"));
        assert_eq!(hex(&known, "[kernel.kallsyms]").as_deref(), Some("1234"));
        assert_eq!(hex(&known, "/bin/b"), None);
    }

    #[test]
    fn a_wrong_entry_is_named() {
        assert_eq!(says(""), "entry 1: the build-id is empty");
        assert_eq!(says("ab /a,"), "entry 2: the build-id is empty");
        assert_eq!(says("ab /a,abcd"), "entry 2: no path after the build-id");
        assert_eq!(says("ab /a,abcd  "), "entry 2: no path after the build-id");
        assert_eq!(says("abc /a"), "entry 1: the build-id has an odd number of hex digits, 3");
        assert_eq!(says("/a"), "entry 1: character 1 of the build-id, '/', is not a hex digit");
        assert_eq!(
            says(&format!("{ID}00 /a")),
            "entry 1: the build-id has 21 bytes, at most 20 are possible"
        );
        assert_eq!(says("ab /a,cd /b,cd /a"), "entry 3: /a has build-id cd here and ab in entry 1");
        assert_eq!(
            says("file:///no/such/list"),
            "entry 1: can't read /no/such/list: No such file or directory (os error 2)"
        );
    }

    #[test]
    fn a_file_may_contain_paths_that_a_list_cannot() {
        let dir = tempfile::tempdir().unwrap();
        let file = dir.path().join("ids");
        fs::write(&file, b"# made by hand\n\nab /a,b\r\n  cd /odd\xff name\nab /a,b\n12 /last, no line end")
            .unwrap();
        let known = KnownIds::parse(&format!("ef /e,file://{}", file.display())).unwrap();
        assert_eq!(known.len(), 4);
        assert_eq!(hex(&known, "/e").as_deref(), Some("ef"));
        assert_eq!(hex(&known, "/a,b").as_deref(), Some("ab"));
        assert_eq!(hex(&known, OsStr::from_bytes(b"/odd\xff name")).as_deref(), Some("cd"));
        assert_eq!(hex(&known, "/last, no line end").as_deref(), Some("12"));
    }

    #[test]
    fn a_wrong_line_is_named() {
        let dir = tempfile::tempdir().unwrap();
        let file = dir.path().join("ids");
        let wrong = |text: &str| {
            fs::write(&file, text).unwrap();
            says(&format!("ab /a,file://{}", file.display())).replace(&file.display().to_string(), "FILE")
        };
        assert_eq!(
            wrong("\n#\nxy /b\n"),
            "FILE, line 3: character 1 of the build-id, 'x', is not a hex digit"
        );
        assert_eq!(wrong("cd /b\ncd\n"), "FILE, line 2: no path after the build-id");
        assert_eq!(wrong("cd /a\n"), "FILE, line 1: /a has build-id cd here and ab in entry 1");
        assert_eq!(wrong("cd /b\n\nef /b\n"), "FILE, line 3: /b has build-id ef here and cd in FILE, line 1");
    }
}
