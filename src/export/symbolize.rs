//! Names places known by build-id and offset: reads them from Parquet, and writes a table of their functions.

use std::collections::{BTreeMap, BTreeSet};
use std::fs::File;
use std::io::Write;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use ::parquet::errors::ParquetError;
use ::parquet::file::reader::{FileReader as _, SerializedFileReader};
use ::parquet::record::Field;
use ::parquet::schema::types::Type;
use build_id::BuildId;
use perfx_pipeline::{Error, Level, Report, Result, count, counted, ensure};
use perfx_resolve::{FileNames, Function, IdOptions, Named, with_deep_stack};

use crate::parquet::{About, Kind, Table, TableWriter, column, maybe, write_functions};

/// The table that is written, sorted by build-id and offset.
pub const NAMES: Table = Table {
    name: "names",
    about: "The functions at places in files",
    sorted_by: Some(0),
    columns: &[
        column("build_id", Kind::Text, "The build-id of the file, hex"),
        column("offset", Kind::U64, "The offset in the file"),
        maybe("symbol", Kind::Text, "The function, as perf names it"),
        maybe("symbol_offset", Kind::I64, "The distance from its beginning, bytes"),
        maybe("file", Kind::Text, "The source file"),
        maybe("line", Kind::I32, "The line in it"),
        column("inline", Kind::Calls, "Calls that the compiler inlined into it, innermost first"),
    ],
};

#[derive(Default)]
struct Places {
    path: PathBuf,
    offsets: BTreeSet<u64>,
}

/// Distinct places, by build-id.
#[derive(Default)]
pub struct Unnamed {
    files: BTreeMap<String, Places>,
    odd: u64,
}

impl Unnamed {
    /// Reads the columns `build_id`, `offset` and, if there is one, `path` of a Parquet file.
    ///
    /// # Errors
    ///
    /// The file cannot be read, or lacks a column.
    pub fn read(&mut self, path: &Path) -> Result<()> {
        let name = || path.display();
        let broken = |error: ParquetError| Error::new(format!("{}: {error}", name()));
        let file = File::open(path).map_err(|error| Error::new(format!("{}: {error}", name())))?;
        let reader = SerializedFileReader::new(file).map_err(broken)?;
        let schema = reader.metadata().file_metadata().schema();
        let wanted = ["build_id", "offset", "path"];
        let is_wanted = |field: &&Arc<Type>| wanted.contains(&field.name()) && field.is_primitive();
        let fields: Vec<_> = schema.get_fields().iter().filter(is_wanted).cloned().collect();
        for wanted in &wanted[..2] {
            ensure!(
                fields.iter().any(|field| field.name() == *wanted),
                "{}: it has no column {wanted}; a table of places has build_id and offset",
                name()
            );
        }
        let projection =
            Type::group_type_builder(schema.name()).with_fields(fields).build().map_err(broken)?;
        for row in reader.get_row_iter(Some(projection)).map_err(broken)? {
            let row = row.map_err(broken)?;
            let (mut id, mut offset, mut path) = (None, None, None);
            for (column, field) in row.get_column_iter() {
                match (column.as_str(), field) {
                    ("build_id", Field::Str(text)) => id = Some(text),
                    ("path", Field::Str(text)) => path = Some(text),
                    ("offset", Field::ULong(value)) => offset = Some(*value),
                    ("offset", Field::Long(value)) => offset = u64::try_from(*value).ok(),
                    ("offset", Field::Int(value)) => offset = u64::try_from(*value).ok(),
                    ("offset", Field::UInt(value)) => offset = Some((*value).into()),
                    _ => {}
                }
            }
            match id.zip(offset) {
                Some((id, offset)) => {
                    let places = self.files.entry(id.clone()).or_default();
                    places.offsets.insert(offset);
                    if let Some(path) = path.filter(|_| places.path.as_os_str().is_empty()) {
                        places.path = path.into();
                    }
                }
                None => self.odd += 1,
            }
        }
        Ok(())
    }

    /// Names the places, and writes a row for each.
    ///
    /// # Errors
    ///
    /// The table cannot be written, or a thread not started.
    pub fn write(
        self,
        ids: &IdOptions,
        inlined: bool,
        out: Box<dyn Write + Send>,
        report: &mut Report,
    ) -> Result<()> {
        let facts = vec![("perfx.version", env!("CARGO_PKG_VERSION").to_owned())];
        let mut out = TableWriter::new(&NAMES, &About { id: None, facts }, out, 1)?;
        let odd = self.odd;
        let (named, places) = with_deep_stack(|| self.rows(ids, inlined, &mut out))??;
        let rows = out.close()?;
        named.say(report);
        if odd > 0 {
            let rows = counted(odd, "row has", "rows have");
            report.say(Level::Warning, format!("{rows} no build-id or no offset, and can't be named"));
        }
        report.say(Level::Info, format!("named {} of {}", count(places), counted(rows, "place", "places")));
        Ok(())
    }

    /// Writes the rows; returns the files that have symbols, and the number of named places.
    fn rows(self, ids: &IdOptions, inlined: bool, out: &mut TableWriter) -> Result<(Named, u64)> {
        let names = FileNames::new(ids, inlined);
        let (mut named, mut places) = (Named::default(), 0);
        for (hex, Places { path, offsets }) in self.files {
            let mut result = Ok(());
            let mut row = |offset: u64, functions: Vec<Function<'_>>, distance: u64| {
                places += u64::from(!functions.is_empty());
                if result.is_ok() {
                    out.text(hex.as_bytes()).number(offset as i64);
                    result = write_functions(out, &functions, distance).end_row();
                }
            };
            let id = BuildId::from_hex(&hex).ok();
            let all = offsets.iter().copied();
            if id.is_some_and(|id| names.name(path.clone(), id, all.clone(), &mut row)) {
                named.with_symbols += 1;
            } else {
                all.for_each(|offset| row(offset, Vec::new(), 0));
                named.without.push(format!("{} {hex}", path.display()).trim_start().to_owned());
            }
            result?;
        }
        Ok((named, places))
    }
}
