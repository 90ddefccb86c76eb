//! `perfx export parquet` writes recordings as tables in Parquet files, all tables of a recording or none.

use std::collections::BTreeSet;
use std::ffi::OsString;
use std::io::{self, Write};
use std::os::unix::ffi::OsStringExt as _;
use std::path::{Path, PathBuf};

use anyhow::Result;
use clap::Args;
use clap::builder::PossibleValuesParser;
use perfx_export::parquet::{
    BRANCHES, Identity, RECORDINGS, SPE, TABLES, Table, TableOptions, Written, short_hash, write_tables,
};
use perfx_look::clock::rfc3339;
use perfx_passes::IdOptions;
use perfx_pipeline::{Error, Level, Read, Report, count};

use super::input::{StackArgs, with_chains};
use crate::args::Usage;
use crate::io::output::{Existing, NewFiles, check_folder, refuse_inside};
use crate::io::source::{InputsArgs, Source, each_input, temp_files};

/// Write recordings as tables in Parquet files, for DuckDB, Spark and pandas
///
/// Each recording is a file DIR/TABLE/part-ID.parquet of each table, where ID comes from the bytes of
/// the recording. So the tables of any number of recordings fit into one folder, and a second run
/// with the same --partition-by replaces those of the first. All tables of a recording appear
/// together, or none does. If one of several recordings fails, the others are written, and the exit
/// code is 1.
///
/// docs/guide/tables.md lists the columns. The samples are in `samples`; `frames` has functions, and
/// `stacks` call chains.
///
/// Examples:
///   perfx export parquet perf.data --dir tables
///   perfx export parquet @recordings.txt --dir /data/perf --partition-by host,date
///   duckdb -c "SELECT symbol, sum(period) FROM 'tables/samples/**/*.parquet'
///     JOIN 'tables/frames/**/*.parquet' USING (recording, frame) GROUP BY 1 ORDER BY 2 DESC"
#[derive(Args, Debug)]
#[command(verbatim_doc_comment)]
pub(crate) struct Parquet {
    #[command(flatten)]
    inputs: InputsArgs,
    /// Folder to write to; it is created if necessary
    #[arg(help_heading = "Output", short = 'o', long, value_name = "DIR", visible_alias = "output")]
    dir: PathBuf,
    /// Put the files into folders KEY=VALUE, as Hive does: by host (the recorded machine), by date (of the first
    /// sample, UTC), or by a value that you give
    #[arg(help_heading = "Output", long, value_name = "host,date,KEY=VALUE,…", value_delimiter = ',')]
    partition_by: Vec<String>,
    /// Write only these tables
    #[arg(help_heading = "Output", long, value_name = "TABLE,…", value_delimiter = ',',
        value_parser = PossibleValuesParser::new(TABLES.map(|table| table.name)))]
    tables: Vec<String>,
    /// Write branch stacks, too (table branches)
    #[arg(help_heading = "Output", long)]
    branches: bool,
    /// Decode the AUX data of Arm SPE, and write its records, too (table spe); --time does not cut them, but perfx
    /// filter --time does
    #[arg(help_heading = "Output", long)]
    spe: bool,
    /// Leave out calls that the compiler inlined and source lines, and don't read DWARF
    #[arg(help_heading = "Output", long)]
    no_inline: bool,
    /// Dry run: report what would be done, write nothing
    #[arg(help_heading = "Output", short = 'n', long)]
    dry_run: bool,
    #[command(flatten)]
    stacks: StackArgs,
}

enum Key {
    Host,
    Date,
    Given(String, String),
}

/// The longest name of a file or folder on Linux, bytes.
const MOST_NAME: usize = 255;

/// Hive's name for a missing value.
const MISSING: &str = "__HIVE_DEFAULT_PARTITION__";

impl Key {
    fn parse(text: &str) -> Result<Key, Usage> {
        let wrong = |what: String| Usage(format!("--partition-by {text}: {what}"));
        match text.split_once('=') {
            None if text == "host" => Ok(Key::Host),
            None if text == "date" => Ok(Key::Date),
            None => Err(wrong("the keys are host, date, and KEY=VALUE".into())),
            Some((key, value)) => {
                let is_name = |byte: u8| byte.is_ascii_lowercase() || byte.is_ascii_digit() || byte == b'_';
                if key.is_empty() || !key.bytes().all(is_name) {
                    return Err(wrong("a key consists of lower-case letters, digits and _".into()));
                }
                let is_column = |table: &&Table| table.columns.iter().any(|column| column.name == key);
                if key == "recording" || TABLES.iter().any(is_column) {
                    return Err(wrong(format!("a table has a column {key}")));
                }
                let given = Key::Given(key.to_owned(), value.to_owned());
                if given.folder(&Written::default()).len() > MOST_NAME {
                    return Err(wrong(format!("the name of a folder has at most {MOST_NAME} bytes")));
                }
                Ok(given)
            }
        }
    }

    fn name(&self) -> &str {
        match self {
            Key::Host => "host",
            Key::Date => "date",
            Key::Given(key, _) => key,
        }
    }

    /// The name of a recording's folder. Recorded names are encoded, so they cannot lead elsewhere.
    fn folder(&self, written: &Written) -> OsString {
        let value = match self {
            Key::Host => written.hostname.as_deref().map(host),
            Key::Date => written.first_wall_ns.map(|ns| rfc3339(ns).into_bytes()[..10].to_vec()),
            Key::Given(_, value) => Some(encoded(value.as_bytes())),
        };
        let value = value.filter(|value| !value.is_empty()).unwrap_or_else(|| MISSING.into());
        OsString::from_vec([self.name().as_bytes(), b"=", &value].concat())
    }
}

/// Encodes a value as Hive does: `%XX` for bytes that are special in a path or to a shell, or not UTF-8.
fn encoded(value: &[u8]) -> Vec<u8> {
    let mut out = Vec::new();
    for chunk in value.utf8_chunks() {
        for c in chunk.valid().chars() {
            let is_plain = c.is_ascii_alphanumeric() || matches!(c, '-' | '_') || c == '.' && !out.is_empty();
            if is_plain || !c.is_ascii() && !c.is_control() {
                out.extend(c.encode_utf8(&mut [0; 4]).as_bytes());
            } else {
                c.encode_utf8(&mut [0; 4])
                    .bytes()
                    .for_each(|byte| out.extend(format!("%{byte:02X}").as_bytes()));
            }
        }
        chunk.invalid().iter().for_each(|byte| out.extend(format!("%{byte:02X}").as_bytes()));
    }
    out
}

/// The encoded name of a host; if it is too long for a folder, its beginning and a hash.
fn host(name: &[u8]) -> Vec<u8> {
    let all = encoded(name);
    if "host=".len() + all.len() <= MOST_NAME {
        return all;
    }
    let parts = (0..=name.len().min(MOST_PART)).rev().map(|end| encoded(&name[..end]));
    let part = parts.into_iter().find(|part| part.len() <= MOST_PART).unwrap_or_default();
    [&part, &b"-"[..], short_hash(name).as_bytes()].concat()
}

/// The maximum length of that beginning, bytes.
const MOST_PART: usize = 200;

impl Parquet {
    pub(crate) fn run(&self) -> Result<u8> {
        let ids = self.stacks.ids()?;
        let keys = self.partition_by.iter().map(|key| Key::parse(key)).collect::<Result<Vec<_>, _>>()?;
        let mut names = BTreeSet::new();
        if let Some(key) = keys.iter().find(|key| !names.insert(key.name())) {
            return Err(Usage(format!("--partition-by names {} twice", key.name())).into());
        }
        let sources = self.inputs.sources()?;
        check_folder(&self.dir, &[], &[], Existing::Keep)?;
        each_input(&sources, "have no tables", |source| self.export(source, &ids, &keys))
    }

    fn is_wanted(&self, table: &Table) -> bool {
        let extra = [(&BRANCHES, self.branches), (&SPE, self.spe)];
        match extra.into_iter().find(|(extra, _)| extra.name == table.name) {
            Some((_, true)) => true,
            extra if self.tables.is_empty() => extra.is_none(),
            _ => self.tables.iter().any(|name| name == table.name),
        }
    }

    fn export(&self, source: &Source, ids: &IdOptions, keys: &[Key]) -> Result<u8> {
        let recording = source.open_indexed()?;
        refuse_inside(source, &self.dir)?;
        let mut files = NewFiles::below(&self.dir)?;
        let identity = Identity::of(&recording)?;
        let mut report = Report::default();
        let threads = self.stacks.threads.count(&recording);
        let mut recording = with_chains(recording, ids, threads, &mut report)?;
        let filter = self.stacks.filter()?;
        let readings = 2 + filter.readings() + u64::from(self.is_wanted(&SPE));
        recording.progress().expect(readings);
        let bar = self.stacks.verbosity.progress(&recording);
        let create = |table: &'static Table| -> Result<Option<Box<dyn Write + Send>>, Error> {
            if !self.is_wanted(table) {
                return Ok(None);
            }
            if self.dry_run {
                return Ok(Some(Box::new(io::sink())));
            }
            let file = files.create(self.dir.join(table.name));
            Ok(Some(file.map_err(|error| Error::new(format!("{error:#}")))?))
        };
        let options = TableOptions { filter, ids: ids.clone(), inlined: !self.no_inline, threads };
        let written = write_tables(&mut recording, &identity, &options, &temp_files(), create, &mut report)?;
        let folder: PathBuf = keys.iter().map(|key| key.folder(&written)).collect();
        let part = folder.join(format!("part-{}.parquet", identity.id));
        files.name_last(&self.dir.join(RECORDINGS.name));
        files.commit(Existing::Replace, |table| table.join(&part))?;
        drop(bar);
        report.read = Read { name: Some(recording.name.clone()), records: None, bytes: identity.bytes };
        if let Some(named) = &written.named {
            named.say(&mut report);
        }
        if written.first_wall_ns.is_none() && keys.iter().any(|key| matches!(key, Key::Date)) {
            let what =
                "its date is not known: perf record -k CLOCK_MONOTONIC records it, and date=VALUE gives one";
            report.say(Level::Warning, what);
        }
        let rows: Vec<String> =
            written.rows.iter().map(|(table, rows)| format!("{table} ({})", count(*rows))).collect();
        let place = Path::new("*").join(part);
        let done = if self.dry_run { "would write" } else { "wrote" };
        report.say(
            Level::Info,
            format!("{done} {}, rows: {}", self.dir.join(place).display(), rows.join(", ")),
        );
        Ok(self.stacks.verbosity.print(&report))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_value_from_a_recording_stays_in_its_folder() {
        let cases: [(&[u8], &str); 7] = [
            (b"db-1.example.org", "db-1.example.org"),
            (b"../../etc", "%2E.%2F..%2Fetc"),
            (b"..", "%2E."),
            (b"a/b=c%d\n\0", "a%2Fb%3Dc%25d%0A%00"),
            ("bürn".as_bytes(), "bürn"),
            (b"\xff x", "%FF%20x"),
            (b"", ""),
        ];
        for (value, expected) in cases {
            assert_eq!(String::from_utf8(encoded(value)).unwrap(), expected);
        }
        let folder = |host: &[u8]| {
            let written = Written { hostname: Some(host.to_vec()), ..Written::default() };
            Key::Host.folder(&written).into_string().unwrap()
        };
        // A folder's name has at most 255 bytes.
        assert_eq!(folder(&[b'a'; 250]), format!("host={}", "a".repeat(250)));
        let hash = "772f911dd9d66928";
        assert_eq!(folder(&[b'a'; 251]), format!("host={}-{hash}", "a".repeat(200)));
        assert!(folder(&[b'/'; 84]).starts_with(&format!("host={}-", "%2F".repeat(66))));
        assert_ne!(folder("ü".repeat(200).as_bytes()), folder("ü".repeat(201).as_bytes()));
        let written = Written { hostname: Some(b"/".to_vec()), ..Written::default() };
        assert_eq!(Key::Host.folder(&written), "host=%2F");
        assert_eq!(Key::Date.folder(&written), "date=__HIVE_DEFAULT_PARTITION__");
        let written = Written { first_wall_ns: Some(1_700_000_000_000_000_000), ..written };
        assert_eq!(Key::Date.folder(&written), "date=2023-11-14");
    }
}
