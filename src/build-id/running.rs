//! Reads the build-ids of the running kernel, of its modules and of the vdso in this program.
//!
//! All of them have the native byte order and word size.

use std::ffi::OsStr;
use std::fs::{self, File};
use std::io::Read;
use std::os::unix::fs::FileExt;
use std::path::{Path, PathBuf};

use object::Endianness;

use crate::elf::{self, Error};
use crate::root::resolve;
use crate::{BuildId, from_elf, from_notes};

/// The read limit for a file of /proc or /sys, bytes. `maps` is the longest, with a line for each mapping.
const MOST_READ: u64 = 16 << 20;

/// The folder that contains /proc and /sys: `/`, or a simulated machine in a test.
#[derive(Clone, Copy)]
pub(crate) struct Running<'a>(pub(crate) &'a Path);

/// The file or folder that was searched, and the result.
pub(crate) type Looked = (PathBuf, Result<Option<BuildId>, Error>);

impl Running<'_> {
    pub(crate) fn host(self) -> Option<String> {
        self.inside("proc/sys/kernel/hostname").ok().map(|text| line(&text))
    }

    pub(crate) fn release(self) -> Result<String, (PathBuf, Error)> {
        let file = self.0.join("proc/sys/kernel/osrelease");
        match self.inside("proc/sys/kernel/osrelease") {
            Ok(text) => Ok(line(&text)),
            Err(error) => Err((file, error)),
        }
    }

    /// This machine's architecture as in `uname -m`, which perf records.
    ///
    /// /proc/sys/kernel/arch exists since Linux 6.1. On older kernels this is the architecture that the
    /// program was built for, because std has no uname(2). If the two differ (a 32-bit program on a 64-bit
    /// kernel), the kernel is not used, rather than used wrongly.
    pub(crate) fn arch(self) -> String {
        match self.inside("proc/sys/kernel/arch") {
            Ok(text) => line(&text),
            Err(_) => match std::env::consts::ARCH {
                "powerpc64" if cfg!(target_endian = "little") => "ppc64le",
                "powerpc64" => "ppc64",
                arch => arch,
            }
            .to_owned(),
        }
    }

    /// The build-id of the kernel; all its notes are in one file (`notes_read` in kernel/ksysfs.c).
    pub(crate) fn kernel(self) -> Looked {
        let notes = self.inside("sys/kernel/notes");
        (self.0.join("sys/kernel/notes"), notes.map(|notes| from_notes(&notes, Endianness::default())))
    }

    /// A module, by the kernel's name for it. Each of its note sections is a file (`add_notes_attrs` in
    /// kernel/module/sysfs.c), usually with the build-id in `.note.gnu.build-id`.
    pub(crate) fn module(self, name: &OsStr) -> Looked {
        let folder = Path::new("sys/module").join(name).join("notes");
        let id = resolve(self.0, &folder).map_err(Error::from).and_then(|folder| first_in(&folder));
        (self.0.join(folder), id)
    }

    /// Reads a file. The folder may be the mounted `/` of a guest, whose links must not lead out of it.
    fn inside(self, file: &str) -> Result<Vec<u8>, Error> {
        contents(&resolve(self.0, Path::new(file))?)
    }

    /// The vdso mapped in this program; `None` if there is none.
    pub(crate) fn vdso(self) -> Option<Looked> {
        let maps = self.0.join("proc/self/maps");
        match contents(&maps) {
            Err(error) => Some((maps, Err(error))),
            Ok(text) => {
                let (start, end) = vdso_range(&String::from_utf8_lossy(&text))?;
                let memory = self.0.join("proc/self/mem");
                let id = image_of(&memory, start, end).and_then(|image| from_elf(&image));
                Some((memory, id))
            }
        }
    }

    pub(crate) fn vdso_image(self) -> Option<Vec<u8>> {
        let text = contents(&self.0.join("proc/self/maps")).ok()?;
        let (start, end) = vdso_range(&String::from_utf8_lossy(&text))?;
        image_of(&self.0.join("proc/self/mem"), start, end).ok()
    }
}

fn line(text: &[u8]) -> String {
    String::from_utf8_lossy(text.trim_ascii_end()).into_owned()
}

fn first_in(folder: &Path) -> Result<Option<BuildId>, Error> {
    for entry in fs::read_dir(folder)? {
        let entry = entry?;
        // sysfs has no links here; elsewhere links could lead anywhere.
        if entry.file_type()?.is_file()
            && let Some(id) = from_notes(&contents(&entry.path())?, Endianness::default())
        {
            return Ok(Some(id));
        }
    }
    Ok(None)
}

/// The addresses of the vdso in the format of proc_pid_maps(5).
//
// The auxiliary vector also has its address, but not its end.
fn vdso_range(maps: &str) -> Option<(u64, u64)> {
    let line = maps.lines().find(|line| line.ends_with(" [vdso]"))?;
    let (start, end) = line.split(' ').next()?.split_once('-')?;
    Some((u64::from_str_radix(start, 16).ok()?, u64::from_str_radix(end, 16).ok()?))
}

fn image_of(memory: &Path, start: u64, end: u64) -> Result<Vec<u8>, Error> {
    let (file, _) = elf::open(memory)?;
    let mut image = vec![0; end.saturating_sub(start).min(MOST_READ) as usize];
    file.read_exact_at(&mut image, start)?;
    Ok(image)
}

fn contents(file: &Path) -> Result<Vec<u8>, Error> {
    let (file, _): (File, _) = elf::open(file)?;
    let mut bytes = Vec::new();
    file.take(MOST_READ).read_to_end(&mut bytes)?;
    Ok(bytes)
}
