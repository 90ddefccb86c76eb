//! Opens a recording that is a directory: `data`, and `data.0`, `data.1`, … of `perf record --threads`.

use std::ffi::OsStr;
use std::fs::File;
use std::io;
use std::path::Path;
use std::sync::Arc;

use super::recording::{Form, Recording};
use super::stream::{Source, Stream};
use crate::header::{Fault, Severity};
use crate::{Bytes, Error, FaultCode, Feature, Result};

/// A folder in a recording's directory with a copy of the kernel's code (`perf record --kcore`).
pub const KCORE_DIR: &str = "kcore_dir";

impl Recording {
    pub(super) fn open_directory(path: &Path, name: Arc<str>) -> Result<Recording> {
        let data = path.join("data");
        let data_name: Arc<str> = data.to_string_lossy().into();
        let io = |what: &str, e| Error::io(what, e);
        let no_data = |e| {
            io("a directory without a readable file `data` is not a recording", e).code(FaultCode::Directory)
        };
        let opened = std::fs::metadata(&data).map_err(no_data)?;
        if !opened.is_file() {
            return Err(no_data(io::ErrorKind::InvalidInput.into()));
        }
        let file = File::open(&data).map_err(no_data)?;
        let bytes = Bytes::map(&file).map_err(|e| e.file(&data_name))?;
        let file = Some(Arc::new(file));
        let mut recording =
            Recording::from_file_header(&bytes, file, data_name.clone()).map_err(|e| e.file(&data_name))?;
        let cut_short = recording.faults.iter().any(|fault| fault.severity >= Severity::Loss);
        let has_parts = path.join("data.0").is_file();
        let version = match recording.features.get(&Feature::DIR_FORMAT) {
            Some(section) => recording.endian.u64(section, 0).unwrap_or(0),
            // perf record --threads was killed before it wrote the feature, or the feature is lost.
            None if cut_short && has_parts => 1,
            None => 0,
        };
        if version > 1 {
            let what = format!("directory format {version} is newer than 1, the newest that perfx knows");
            return Err(Error::new(what).code(FaultCode::Directory));
        }
        let (mut parts, mut others) = (Vec::new(), Vec::new());
        for entry in std::fs::read_dir(path).map_err(|e| io("the directory can't be read", e))? {
            let entry = entry.map_err(|e| io("the directory can't be read", e))?.path();
            match entry.file_name().and_then(OsStr::to_str) {
                Some("data") => {}
                Some(part) if version == 1 && part.starts_with("data.") => {
                    // By number, not by name: data.10 comes after data.9.
                    let number = part["data.".len()..].parse::<u64>();
                    match number {
                        number if entry.is_file() => parts.push((number.unwrap_or(u64::MAX), entry)),
                        Ok(number) => others.push(number),
                        Err(_) => recording.extras.push(entry),
                    }
                }
                _ => recording.extras.push(entry),
            }
        }
        parts.sort();
        others.sort_unstable();
        let (code, severity) = (FaultCode::DirectoryPart, Severity::Loss);
        for number in &others {
            let what = format!("data.{number} is not a file, so its records are missing");
            recording.faults.push(Fault { code, offset: 0, what, severity, hint: None });
        }
        // A `data.N` that is there but is not a file is not missing.
        let mut numbers: Vec<u64> = parts.iter().map(|(number, _)| *number).chain(others).collect();
        numbers.sort_unstable();
        recording.extras.sort();
        // perf record --threads numbers files from 0 on, without a count: a missing last one is not noticed.
        if let Some(&last) = numbers.last()
            && last >= numbers.len() as u64
            && last < u64::MAX
        {
            let first = (0..).zip(&numbers).find(|(number, part)| number != *part);
            let first = first.map_or(0, |(number, _)| number);
            let missing = match last + 1 - numbers.len() as u64 {
                1 => format!("data.{first} is missing, and its records with it"),
                n => {
                    format!("data.{first} and {} more files are missing, and their records with them", n - 1)
                }
            };
            recording.faults.push(Fault { code, offset: 0, what: missing, severity, hint: None });
        }
        if version == 1 && parts.is_empty() {
            return Err(
                Error::new("directory format 1 without a single data.N file").code(FaultCode::Directory)
            );
        }
        for (index, (_, path)) in parts.into_iter().enumerate() {
            let name: Arc<str> = path.to_string_lossy().into();
            let file = File::open(&path).map_err(|e| Error::io("can't be opened", e).file(&name))?;
            let bytes = Bytes::map(&file).map_err(|e| e.file(&name))?;
            let source = Source::Mapped { bytes, file: Some(Arc::new(file)), offset: 0 };
            recording.streams.push(Stream { name, index: index as u32 + 1, source });
        }
        recording.form = Form::Directory { version };
        recording.opened = Some(opened);
        recording.name = name;
        Ok(recording)
    }
}
