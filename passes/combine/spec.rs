//! Parses an input of `join`: `PATH[,offset=NS]`.

use std::ffi::OsStr;
use std::os::unix::ffi::OsStrExt as _;
use std::path::PathBuf;

use perfx_pipeline::{Context as _, Result, ensure};

/// A recording to join, and its options.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct InputSpec {
    /// The path.
    pub path: PathBuf,
    /// The lead of its clock over the others', ns: its time t becomes t - offset.
    pub offset: Option<i64>,
}

impl InputSpec {
    /// Parses the input. Everything before the last `,offset=` is the path.
    ///
    /// # Errors
    ///
    /// There is no path, or the offset is not a number.
    pub fn parse(text: &OsStr) -> Result<InputSpec> {
        const OFFSET: &[u8] = b",offset=";
        let bytes = text.as_bytes();
        let found = bytes.windows(OFFSET.len()).rposition(|part| part == OFFSET);
        let (path, offset) = match found {
            None => (bytes, None),
            Some(at) => {
                let offset = offset(&String::from_utf8_lossy(&bytes[at + OFFSET.len()..]))?;
                (&bytes[..at], Some(offset))
            }
        };
        ensure!(!path.is_empty(), "an input needs a path: PATH[,offset=NS]");
        Ok(InputSpec { path: OsStr::from_bytes(path).into(), offset })
    }
}

pub(crate) fn offset(text: &str) -> Result<i64> {
    let number = text.parse().ok();
    number.with_context(|| {
        format!("`{text}` is not an offset: give the ns by which the input's clock is ahead, such as -1500")
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_path_may_hold_anything() {
        let parse = |text: &str| InputSpec::parse(OsStr::new(text));
        let spec = |path: &str, offset| InputSpec { path: path.into(), offset };
        assert_eq!(parse("a,b.data").unwrap(), spec("a,b.data", None));
        assert_eq!(parse("a,b.data,offset=-5").unwrap(), spec("a,b.data", Some(-5)));
        assert_eq!(parse("a,offset=1,offset=+2").unwrap(), spec("a,offset=1", Some(2)));
        for text in ["", ",offset=1", "a,offset=", "a,offset=1.5", "a,offset=99999999999999999999"] {
            assert!(parse(text).is_err(), "{text}");
        }
    }
}
