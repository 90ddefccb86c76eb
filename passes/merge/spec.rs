//! Parses a guest argument: `PATH,pid=N,offset=N,scale=F,vcpu=V:TID,…,root=DIR`, or in perf inject's syntax
//! `PATH,PID[,OFFSET[,SCALE]]`.

use std::collections::BTreeMap;
use std::ffi::{OsStr, OsString};
use std::os::unix::ffi::OsStrExt;
use std::path::PathBuf;

use clap::Args;
use perfx_pipeline::{Context as _, Result, bail, ensure};

use super::clock::Scale;

#[derive(Args, Clone, Copy, Debug, Default)]
#[allow(missing_docs, reason = "its comment would become that of the command")]
pub struct MoreKinds {
    /// Also merge the guests' samples
    #[arg(long)]
    pub samples: bool,
    /// Also merge NAMESPACES, CGROUP, THROTTLE, LOST_SAMPLES and BPF records, which perf inject leaves out
    #[arg(long)]
    pub all: bool,
}

/// The options, checked.
#[derive(Clone, Debug, Default)]
pub struct MergeOptions {
    /// The guests, as [`GuestSpec::parse`] reads them.
    pub guests: Vec<OsString>,
    /// Further kinds to merge.
    pub more: MoreKinds,
    /// A folder that has a root folder for each guest, named after the pid of its process.
    pub guestmount: Option<PathBuf>,
}

/// A guest's recording, and its options.
#[derive(Clone, PartialEq, Debug)]
pub struct GuestSpec {
    /// The recording's path.
    pub path: PathBuf,
    /// The host process that runs the guest.
    pub pid: Option<u32>,
    /// To be subtracted from the guest's clock: cycles if its recording has a TIME_CONV record, else ns.
    pub offset: Option<i64>,
    /// Units of the guest's clock per unit of the host's.
    pub scale: Option<Scale>,
    /// The host thread of each VCPU.
    pub vcpus: BTreeMap<u32, u32>,
    /// A folder that replaces `/` of the guest.
    pub root: Option<PathBuf>,
}

impl GuestSpec {
    /// The syntax, for error messages.
    pub const FORM: &str = "PATH[,pid=N][,offset=N][,scale=F][,vcpu=V:TID]…[,root=DIR], or in perf's syntax PATH,PID[,OFFSET[,SCALE]]";

    /// Parses the argument. A `\` escapes the next character, such as a comma in a path.
    ///
    /// # Errors
    ///
    /// There is no path, a key is unknown or given twice, or a value is wrong.
    pub fn parse(text: &OsStr) -> Result<GuestSpec> {
        let mut parts = split(text.as_bytes()).into_iter();
        let path = PathBuf::from(OsStr::from_bytes(&parts.next().unwrap_or_default()));
        let shown = path.display().to_string();
        ensure!(!shown.is_empty(), "a guest needs a path: {}", GuestSpec::FORM);
        let mut spec =
            GuestSpec { path, pid: None, offset: None, scale: None, vcpus: BTreeMap::new(), root: None };
        for (position, part) in parts.enumerate() {
            spec.take(position, &part).with_context(|| format!("guest {shown}"))?;
        }
        Ok(spec)
    }

    fn take(&mut self, position: usize, part: &[u8]) -> Result<()> {
        if let Some(root) = part.strip_prefix(b"root=") {
            self.root = Some(OsStr::from_bytes(root).into());
            return Ok(());
        }
        let text = String::from_utf8_lossy(part);
        let name = ["pid", "offset", "scale"].get(position).copied();
        let (name, value) = match (text.split_once('='), name) {
            (Some(named), _) => named,
            (None, Some(name)) => (name, &*text),
            (None, None) => bail!("unexpected part `{text}`; expected {}", GuestSpec::FORM),
        };
        let wrong = || format!("`{value}` is not a valid {name}");
        match name {
            "pid" => self.pid = Some(whole_u32(value).filter(|&pid| pid != 0).with_context(wrong)?),
            "offset" => self.offset = Some(offset(value).with_context(wrong)?),
            "scale" => {
                let scale = value.parse().ok().and_then(Scale::new);
                self.scale = Some(scale.with_context(wrong)?);
            }
            "vcpu" => {
                let (vcpu, thread) =
                    value.split_once(':').with_context(|| format!("{}: it is V:TID", wrong()))?;
                let numbers = whole_u32(vcpu).zip(whole_u32(thread).filter(|&tid| tid != 0));
                let (vcpu, thread) = numbers.with_context(|| format!("{}: it is V:TID", wrong()))?;
                let before = self.vcpus.insert(vcpu, thread);
                ensure!(before.is_none(), "{}: VCPU {vcpu} is given twice", wrong());
            }
            _ => bail!("unknown option `{name}`: {}", GuestSpec::FORM),
        }
        Ok(())
    }
}

fn whole_u32(text: &str) -> Option<u32> {
    whole(text)?.try_into().ok()
}

/// A number in decimal, `0x` hexadecimal or `0` octal, as perf parses it by strtoull(3).
fn whole(text: &str) -> Option<u64> {
    let digits = |text: &str, radix| {
        text.bytes()
            .all(|byte| byte.is_ascii_alphanumeric())
            .then(|| u64::from_str_radix(text, radix).ok())?
    };
    match text.strip_prefix("0x").or_else(|| text.strip_prefix("0X")) {
        Some(hex) => digits(hex, 16),
        None if text.len() > 1 && text.starts_with('0') => digits(&text[1..], 8),
        None => digits(text, 10),
    }
}

/// An offset: as in perf, a number and its two's complement in 64 bits are the same.
fn offset(text: &str) -> Option<i64> {
    match text.strip_prefix('-') {
        Some(number) => Some(0u64.wrapping_sub(whole(number)?) as i64),
        None => Some(whole(text.strip_prefix('+').unwrap_or(text))? as i64),
    }
}

fn split(text: &[u8]) -> Vec<Vec<u8>> {
    let mut parts = vec![Vec::new()];
    let mut bytes = text.iter();
    while let Some(&byte) = bytes.next() {
        match (byte, parts.last_mut()) {
            (b',', _) => parts.push(Vec::new()),
            (b'\\', Some(part)) => part.push(*bytes.next().unwrap_or(&b'\\')),
            (byte, Some(part)) => part.push(byte),
            (_, None) => {}
        }
    }
    parts
}

#[cfg(test)]
mod tests {
    use super::*;

    fn parse(text: &str) -> Result<GuestSpec> {
        GuestSpec::parse(OsStr::new(text))
    }

    #[test]
    fn both_syntaxes_are_equivalent() {
        let named = parse("g.data,pid=1234,offset=-4745478104161,scale=2.5").unwrap();
        assert_eq!(parse("g.data,1234,-4745478104161,2.5").unwrap(), named);
        assert_eq!(parse("g.data,0x4d2,0xFFFFFBAF1B769B9F,2.5").unwrap(), named);
        assert_eq!(named.offset, Some(-4_745_478_104_161));
        assert_eq!(
            parse("g.data,scale=1,vcpu=0:11,vcpu=1:12,root=/srv/a b").unwrap().vcpus,
            [(0, 11), (1, 12)].into()
        );
        assert_eq!(parse(r"a\,b.data").unwrap().path, PathBuf::from("a,b.data"));
    }

    #[test]
    fn nonsensical_options_are_errors() {
        for (text, part) in [
            ("", "needs a path"),
            ("g,0", "`0` is not a valid pid"),
            ("g,1,12zz", "`12zz` is not a valid offset"),
            ("g,1,2,0", "`0` is not a valid scale"),
            ("g,1,2,-1", "`-1` is not a valid scale"),
            ("g,1,2,3,4", "unexpected part"),
            ("g,vcpu=1", "it is V:TID"),
            ("g,vcpu=0:1,vcpu=0:2", "VCPU 0 is given twice"),
            ("g,colour=red", "unknown option `colour`"),
        ] {
            let error = parse(text).unwrap_err().to_string();
            assert!(error.contains(part), "{text}: {error}");
        }
    }
}
