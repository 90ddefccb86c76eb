//! Decodes a trace with libipt, Intel's decoder: builds a small program with it (Debian: libipt-dev).

use std::ffi::OsString;
use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;

pub(crate) struct Libipt {
    folder: PathBuf,
}

impl Libipt {
    /// Builds the program. `None` without a C compiler or libipt, which is reported.
    pub(crate) fn build(name: &str) -> Option<Libipt> {
        let folder = std::env::temp_dir().join(format!("perfx-libipt-{name}-{}", std::process::id()));
        fs::create_dir_all(&folder).unwrap();
        let libipt = Libipt { folder };
        let source = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/libipt/libipt.c");
        let built = Command::new("cc")
            .args(["-O1", "-o"])
            .args([&libipt.path("libipt"), &source])
            .arg("-lipt")
            .output();
        if built.is_ok_and(|built| built.status.success()) {
            return Some(libipt);
        }
        eprintln!("SKIPPED: a comparison with libipt, which needs a C compiler and libipt-dev");
        None
    }

    fn path(&self, name: &str) -> PathBuf {
        self.folder.join(name)
    }

    /// The packets that libipt reads in a trace, or with code at these addresses the executed instructions,
    /// for a processor with all errata or none.
    pub(crate) fn lines(&self, trace: &[u8], code: &[(u64, &[u8])], has_errata: bool) -> Vec<String> {
        fs::write(self.path("trace"), trace).unwrap();
        let mut line: Vec<OsString> = vec![self.path("trace").into()];
        for (at, (start, bytes)) in code.iter().enumerate() {
            let path = self.path(&format!("code{at}"));
            fs::write(&path, bytes).unwrap();
            line.extend([path.into(), format!("{start:x}").into()]);
        }
        let mut command = Command::new(self.path("libipt"));
        command.args(line).envs(has_errata.then_some(("ERRATA", "all")));
        Libipt::run(&mut command)
    }

    /// The family and model of processors, and whether they have each erratum.
    #[allow(dead_code, reason = "only one of the tests needs it")]
    pub(crate) fn errata(&self) -> Vec<String> {
        Libipt::run(&mut Command::new(self.path("libipt")))
    }

    fn run(command: &mut Command) -> Vec<String> {
        let ran = command.output().unwrap();
        assert!(ran.status.success(), "{:?}", ran.status);
        String::from_utf8(ran.stdout).unwrap().lines().map(str::to_owned).collect()
    }
}

impl Drop for Libipt {
    fn drop(&mut self) {
        fs::remove_dir_all(&self.folder).unwrap();
    }
}
