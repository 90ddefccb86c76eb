//! Writes a table as a Parquet file, in row groups of bounded size whose columns are encoded on all threads.

use std::io::Write;
use std::mem;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, PoisonError};
use std::thread;

use ::parquet::basic::{
    Compression, ConvertedType, Encoding, LogicalType, Repetition, TimeUnit, Type as Physical, ZstdLevel,
};
use ::parquet::column::writer::{ColumnCloseResult, ColumnWriter, get_column_writer};
use ::parquet::data_type::ByteArray;
use ::parquet::errors::ParquetError;
use ::parquet::file::metadata::{KeyValue, SortingColumn};
use ::parquet::file::properties::{EnabledStatistics, WriterProperties, WriterPropertiesPtr, WriterVersion};
use ::parquet::file::writer::{SerializedFileWriter, SerializedPageWriter, TrackedWrite};
use ::parquet::schema::types::{ColumnDescPtr, ColumnPath, Type, TypePtr};
use bytes::Bytes;
use foldhash::fast::RandomState;
use indexmap::IndexSet;
use perfx_pipeline::{Error, Result};

use super::schema::{Column, Kind, Table};

/// A row group ends when its values exceed this many bytes in memory.
const GROUP: usize = 24 << 20;

const RECORDING: &str = "recording";

const LEVEL: i32 = 3;

/// The number of texts passed to the encoder at a time.
const TEXTS: usize = 1 << 13;

pub(crate) struct TableWriter {
    file: SerializedFileWriter<Box<dyn Write + Send>>,
    properties: WriterPropertiesPtr,
    columns: &'static [Column],
    /// The value of the column `recording`, if the table has it.
    recording: Option<Box<[u8]>>,
    /// In the order of the schema, without `recording`.
    leaves: Vec<Leaf>,
    next: usize,
    rows: usize,
    total: u64,
    bytes: usize,
    threads: usize,
}

/// The values of one column since the last row group. A list of structures has several.
struct Leaf {
    values: Values,
    /// The number of present values, and the levels above which a value is present.
    definition: Levels,
    repetition: Levels,
    full: i16,
    is_repeated: bool,
}

enum Values {
    Bool(Vec<bool>),
    I32(Vec<i32>),
    I64(Vec<i64>),
    Text(TextValues),
}

/// Each distinct text is stored once.
#[derive(Default)]
struct TextValues {
    codes: Vec<u32>,
    texts: IndexSet<Box<[u8]>, RandomState>,
    /// The codes of texts, by their numbers elsewhere, or [`NONE`].
    by_number: Vec<u32>,
}

const NONE: u32 = u32::MAX;

/// The first ones are often equal, as a column may be all null.
#[derive(Default)]
struct Levels {
    first: i16,
    equal: usize,
    rest: Vec<i16>,
}

impl Levels {
    #[inline]
    fn push(&mut self, level: i16) {
        if self.equal == 0 {
            self.first = level;
        }
        if self.rest.is_empty() && level == self.first {
            self.equal += 1;
        } else {
            self.rest.push(level);
        }
    }

    fn list(&self) -> Vec<i16> {
        let mut list = vec![self.first; self.equal];
        list.extend(&self.rest);
        list
    }
}

impl Leaf {
    fn new(values: Values, full: i16, is_repeated: bool) -> Leaf {
        Leaf { values, definition: Levels::default(), repetition: Levels::default(), full, is_repeated }
    }

    fn of(column: &Column) -> Vec<Leaf> {
        let i64s = || Values::I64(Vec::new());
        let texts = || Values::Text(TextValues::default());
        let single = |values| vec![Leaf::new(values, i16::from(column.nullable), false)];
        match column.kind {
            Kind::Bool => single(Values::Bool(Vec::new())),
            Kind::I32 => single(Values::I32(Vec::new())),
            Kind::I64 | Kind::U64 | Kind::WallTime => single(i64s()),
            Kind::Text => single(texts()),
            Kind::Ids | Kind::U64s => vec![Leaf::new(i64s(), 1, true)],
            Kind::Texts => vec![Leaf::new(texts(), 1, true)],
            Kind::TextMap => vec![Leaf::new(texts(), 1, true), Leaf::new(texts(), 1, true)],
            Kind::Calls => vec![
                Leaf::new(texts(), 1, true),
                Leaf::new(texts(), 2, true),
                Leaf::new(Values::I32(Vec::new()), 2, true),
            ],
        }
    }

    /// Adds a level; returns its bytes.
    #[inline]
    fn level(&mut self, definition: i16, is_first: bool) -> usize {
        if self.full > 0 {
            self.definition.push(definition);
        }
        if self.is_repeated {
            self.repetition.push(i16::from(!is_first));
        }
        2
    }

    fn text(&mut self, text: &[u8]) -> usize {
        let Values::Text(TextValues { codes, texts, .. }) = &mut self.values else { return 0 };
        let known = texts.len();
        let code = match texts.get_index_of(text) {
            Some(code) => code,
            None => texts.insert_full(shown(text).into()).0,
        };
        codes.push(code as u32);
        4 + if texts.len() > known { text.len() + 32 } else { 0 }
    }

    /// A text with a fixed number, by which it is found faster.
    fn numbered_text(&mut self, number: u32, text: &[u8]) -> usize {
        let Values::Text(values) = &mut self.values else { return 0 };
        let at = number as usize;
        if let Some(&code) = values.by_number.get(at).filter(|&&code| code != NONE) {
            values.codes.push(code);
            return 4;
        }
        let bytes = self.text(text);
        if let Values::Text(TextValues { codes, by_number, .. }) = &mut self.values {
            by_number.resize(by_number.len().max(at + 1), NONE);
            by_number[at] = codes.last().copied().unwrap_or(NONE);
        }
        bytes
    }

    #[inline]
    fn i64(&mut self, value: i64) -> usize {
        match &mut self.values {
            Values::I64(values) => values.push(value),
            Values::I32(values) => values.push(value as i32),
            Values::Bool(values) => values.push(value != 0),
            Values::Text(..) => {}
        }
        8
    }

    fn encode(
        mut self,
        column: ColumnDescPtr,
        properties: WriterPropertiesPtr,
    ) -> Result<(Bytes, ColumnCloseResult), ParquetError> {
        let mut out = TrackedWrite::new(Vec::new());
        let mut writer = get_column_writer(column, properties, Box::new(SerializedPageWriter::new(&mut out)));
        let definition = (self.full > 0).then(|| mem::take(&mut self.definition).list());
        let repetition = self.is_repeated.then(|| mem::take(&mut self.repetition).list());
        let levels = (definition.as_deref(), repetition.as_deref());
        match (&mut writer, self.values) {
            (ColumnWriter::BoolColumnWriter(writer), Values::Bool(values)) => {
                writer.write_batch(&values, levels.0, levels.1)?;
            }
            (ColumnWriter::Int32ColumnWriter(writer), Values::I32(values)) => {
                writer.write_batch(&values, levels.0, levels.1)?;
            }
            (ColumnWriter::Int64ColumnWriter(writer), Values::I64(values)) => {
                writer.write_batch(&values, levels.0, levels.1)?;
            }
            (ColumnWriter::ByteArrayColumnWriter(writer), Values::Text(TextValues { codes, texts, .. })) => {
                let texts: Vec<ByteArray> =
                    texts.into_iter().map(|text| ByteArray::from(Bytes::from(text))).collect();
                // Many pieces equal the last: a column may have only one text.
                let (mut codes, mut last): (&[u32], &[u32]) = (&codes, &[]);
                let mut values: Vec<ByteArray> = Vec::new();
                for (definition, repetition) in pieces(levels, codes.len()) {
                    let present = match definition {
                        Some(definition) => definition.iter().filter(|&&level| level == self.full).count(),
                        None => TEXTS.min(codes.len()),
                    };
                    let piece;
                    (piece, codes) = codes.split_at(present.min(codes.len()));
                    if piece != last {
                        values = piece.iter().map(|&code| texts[code as usize].clone()).collect();
                        last = piece;
                    }
                    writer.write_batch(&values, definition, repetition)?;
                }
            }
            _ => return Err(ParquetError::General("a column has values of another type".into())),
        }
        let closed = writer.close()?;
        Ok((Bytes::from(out.into_inner()?), closed))
    }
}

/// Levels of definition and repetition.
type LevelSlices<'l> = (Option<&'l [i16]>, Option<&'l [i16]>);

/// Cuts levels, or without them `count` values, into pieces of at least [`TEXTS`] values that end with a row.
fn pieces<'l>((definition, repetition): LevelSlices<'l>, count: usize) -> Vec<LevelSlices<'l>> {
    let total = definition.map_or(count, <[i16]>::len);
    let mut pieces = Vec::new();
    let mut start = 0;
    while start < total {
        let mut end = total.min(start + TEXTS);
        while repetition.is_some_and(|levels| levels.get(end).is_some_and(|&level| level > 0)) {
            end += 1;
        }
        pieces.push((
            definition.map(|levels| &levels[start..end]),
            repetition.map(|levels| &levels[start..end]),
        ));
        start = end;
    }
    pieces
}

/// Text as UTF-8: each invalid byte becomes `\xNN`.
fn shown(text: &[u8]) -> Vec<u8> {
    if str::from_utf8(text).is_ok() {
        return text.to_vec();
    }
    let mut shown = Vec::new();
    for chunk in text.utf8_chunks() {
        shown.extend(chunk.valid().as_bytes());
        chunk.invalid().iter().for_each(|byte| shown.extend(format!("\\x{byte:02x}").as_bytes()));
    }
    shown
}

fn parquet_type(column: &Column) -> Result<TypePtr, ParquetError> {
    let needed = |nullable| if nullable { Repetition::OPTIONAL } else { Repetition::REQUIRED };
    let text = |name: &str, nullable| {
        let text = Type::primitive_type_builder(name, Physical::BYTE_ARRAY);
        text.with_repetition(needed(nullable))
            .with_logical_type(Some(LogicalType::String))
            .build()
            .map(Arc::new)
    };
    let number = |name: &str, physical, logical: Option<LogicalType>, nullable| {
        let number = Type::primitive_type_builder(name, physical).with_repetition(needed(nullable));
        number.with_logical_type(logical).build().map(Arc::new)
    };
    let unsigned = Some(LogicalType::integer(64, false));
    let list = |element: TypePtr| -> Result<TypePtr, ParquetError> {
        let repeated = Type::group_type_builder("list").with_repetition(Repetition::REPEATED);
        let repeated = repeated.with_fields(vec![element]).build()?;
        let list = Type::group_type_builder(column.name).with_repetition(Repetition::REQUIRED);
        let list = list.with_logical_type(Some(LogicalType::List)).with_converted_type(ConvertedType::LIST);
        list.with_fields(vec![Arc::new(repeated)]).build().map(Arc::new)
    };
    let (name, nullable) = (column.name, column.nullable);
    match column.kind {
        Kind::Bool => number(name, Physical::BOOLEAN, None, nullable),
        Kind::I32 => number(name, Physical::INT32, None, nullable),
        Kind::I64 => number(name, Physical::INT64, None, nullable),
        Kind::U64 => number(name, Physical::INT64, unsigned, nullable),
        Kind::WallTime => {
            let time = LogicalType::timestamp(true, TimeUnit::MICROS);
            number(name, Physical::INT64, Some(time), nullable)
        }
        Kind::Text => text(name, nullable),
        Kind::Ids => list(number("element", Physical::INT64, None, false)?),
        Kind::U64s => list(number("element", Physical::INT64, unsigned, false)?),
        Kind::Texts => list(text("element", false)?),
        Kind::Calls => {
            let fields = vec![
                text("function", false)?,
                text("file", true)?,
                number("line", Physical::INT32, None, true)?,
            ];
            let element = Type::group_type_builder("element").with_repetition(Repetition::REQUIRED);
            list(Arc::new(element.with_fields(fields).build()?))
        }
        Kind::TextMap => {
            let entry = Type::group_type_builder("key_value").with_repetition(Repetition::REPEATED);
            let entry = entry.with_fields(vec![text("key", false)?, text("value", false)?]).build()?;
            let map = Type::group_type_builder(name).with_repetition(Repetition::REQUIRED);
            let map = map.with_logical_type(Some(LogicalType::Map)).with_converted_type(ConvertedType::MAP);
            map.with_fields(vec![Arc::new(entry)]).build().map(Arc::new)
        }
    }
}

#[derive(Clone, Debug)]
pub(crate) struct About {
    /// The recording's id; `None` for a table of no recording, which has no column `recording`.
    pub(crate) id: Option<String>,
    pub(crate) facts: Vec<(&'static str, String)>,
}

fn properties(table: &Table, about: &About) -> Result<WriterProperties, ParquetError> {
    let mut properties = WriterProperties::builder()
        .set_writer_version(WriterVersion::PARQUET_2_0)
        .set_created_by("perfx".to_owned())
        .set_compression(Compression::ZSTD(ZstdLevel::try_new(LEVEL)?))
        .set_statistics_enabled(EnabledStatistics::Page)
        .set_max_row_group_row_count(None)
        .set_data_page_row_count_limit(1 << 17);
    let facts = about.facts.iter().map(|(key, value)| KeyValue::new((*key).to_owned(), value.clone()));
    properties = properties.set_key_value_metadata(Some(facts.collect()));
    for column in table.columns.iter().filter(|column| column.delta) {
        let path = ColumnPath::from(column.name);
        properties = properties
            .set_column_dictionary_enabled(path.clone(), false)
            .set_column_encoding(path, Encoding::DELTA_BINARY_PACKED);
    }
    if table.columns.iter().any(|column| column.name == "build_id") {
        properties = properties.set_column_bloom_filter_enabled(ColumnPath::from("build_id"), true);
    }
    if let Some(at) = table.sorted_by {
        // The column `recording` precedes all others.
        let sorted = SortingColumn {
            column_idx: at as i32 + i32::from(about.id.is_some()),
            descending: false,
            nulls_first: true,
        };
        properties = properties.set_sorting_columns(Some(vec![sorted]));
    }
    Ok(properties.build())
}

/// Most errors of the writer are the operating system's.
fn failed(error: ParquetError) -> Error {
    match error {
        ParquetError::External(cause) => match cause.downcast::<std::io::Error>() {
            Ok(cause) => Error::from(*cause),
            Err(cause) => Error::new(cause.to_string()),
        },
        error => Error::new(error.to_string()),
    }
}

impl TableWriter {
    pub(crate) fn new(
        table: &Table,
        about: &About,
        out: Box<dyn Write + Send>,
        threads: usize,
    ) -> Result<TableWriter> {
        let begin = || -> Result<_, ParquetError> {
            let recording =
                Column { name: RECORDING, kind: Kind::Text, nullable: false, delta: false, about: "" };
            let recording = about.id.is_some().then_some(&recording);
            let fields = recording.into_iter().chain(table.columns).map(parquet_type);
            let fields = fields.collect::<Result<Vec<_>, _>>()?;
            let schema = Type::group_type_builder(table.name).with_fields(fields).build()?;
            let properties = Arc::new(properties(table, about)?);
            Ok((SerializedFileWriter::new(out, Arc::new(schema), properties.clone())?, properties))
        };
        let (file, properties) = begin().map_err(failed)?;
        Ok(TableWriter {
            file,
            properties,
            recording: about.id.as_ref().map(|id| id.as_bytes().into()),
            columns: table.columns,
            leaves: table.columns.iter().flat_map(Leaf::of).collect(),
            next: 0,
            rows: 0,
            total: 0,
            bytes: 0,
            threads,
        })
    }

    #[inline]
    fn value<V>(&mut self, value: Option<V>, add: impl FnOnce(&mut Leaf, V) -> usize) -> &mut Self {
        let leaf = &mut self.leaves[self.next];
        self.next += 1;
        self.bytes += leaf.level(value.is_some().into(), true);
        self.bytes += value.map_or(0, |value| add(leaf, value));
        self
    }

    fn list<V>(
        &mut self,
        values: impl IntoIterator<Item = V>,
        add: impl Fn(&mut Leaf, V) -> usize,
    ) -> &mut Self {
        let (leaf, mut is_first) = (&mut self.leaves[self.next], true);
        self.next += 1;
        for value in values {
            self.bytes += leaf.level(1, is_first) + add(leaf, value);
            is_first = false;
        }
        if is_first {
            self.bytes += leaf.level(0, true);
        }
        self
    }

    /// A number, the bits of an unsigned number, or a flag.
    pub(crate) fn number(&mut self, value: impl Into<Option<i64>>) -> &mut Self {
        self.value(value.into(), Leaf::i64)
    }

    pub(crate) fn text<'t>(&mut self, value: impl Into<Option<&'t [u8]>>) -> &mut Self {
        self.value(value.into(), Leaf::text)
    }

    pub(super) fn numbered_text<'t>(&mut self, value: impl Into<Option<(u32, &'t [u8])>>) -> &mut Self {
        self.value(value.into(), |leaf, (number, text)| leaf.numbered_text(number, text))
    }

    pub(super) fn numbers(&mut self, values: impl IntoIterator<Item = i64>) -> &mut Self {
        self.list(values, Leaf::i64)
    }

    pub(super) fn texts<'t>(&mut self, values: impl IntoIterator<Item = &'t [u8]>) -> &mut Self {
        self.list(values, Leaf::text)
    }

    /// A list of calls: function, source file, line.
    pub(crate) fn calls<'t>(
        &mut self,
        calls: impl IntoIterator<Item = (&'t str, Option<&'t str>, Option<u32>)>,
    ) -> &mut Self {
        let (mut bytes, mut is_first) = (0, true);
        let [functions, files, lines] = &mut self.leaves[self.next..self.next + 3] else { return self };
        self.next += 3;
        for (function, file, line) in calls {
            bytes += functions.level(1, is_first) + functions.text(function.as_bytes());
            bytes += files.level(1 + i16::from(file.is_some()), is_first);
            bytes += file.map_or(0, |file| files.text(file.as_bytes()));
            bytes += lines.level(1 + i16::from(line.is_some()), is_first);
            bytes += line.map_or(0, |line| lines.i64(line.into()));
            is_first = false;
        }
        if is_first {
            bytes += functions.level(0, true) + files.level(0, true) + lines.level(0, true);
        }
        self.bytes += bytes;
        self
    }

    pub(super) fn text_map<'t>(&mut self, entries: impl IntoIterator<Item = (&'t str, String)>) -> &mut Self {
        let (mut bytes, mut is_first) = (0, true);
        let [keys, values] = &mut self.leaves[self.next..self.next + 2] else { return self };
        self.next += 2;
        for (key, value) in entries {
            bytes += keys.level(1, is_first) + keys.text(key.as_bytes());
            bytes += values.level(1, is_first) + values.text(value.as_bytes());
            is_first = false;
        }
        if is_first {
            bytes += keys.level(0, true) + values.level(0, true);
        }
        self.bytes += bytes;
        self
    }

    pub(crate) fn end_row(&mut self) -> Result<()> {
        debug_assert_eq!(self.next, self.leaves.len(), "a row has all columns");
        self.next = 0;
        self.rows += 1;
        if self.bytes >= GROUP { self.flush() } else { Ok(()) }
    }

    fn flush(&mut self) -> Result<()> {
        let new = self.columns.iter().flat_map(Leaf::of).collect();
        let leaves = mem::replace(&mut self.leaves, new);
        let recording = self.recording.clone().map(|id| {
            let (codes, texts) = (vec![0; self.rows], IndexSet::from_iter([id]));
            Leaf::new(Values::Text(TextValues { codes, texts, by_number: Vec::new() }), 0, false)
        });
        self.total += self.rows as u64;
        (self.rows, self.bytes) = (0, 0);
        let columns = recording.into_iter().chain(leaves).collect();
        let encoded = self.encoded(columns);
        let write = || -> Result<(), ParquetError> {
            let mut group = self.file.next_row_group()?;
            for column in encoded {
                let (bytes, closed) = column?;
                group.append_column(&bytes, closed)?;
            }
            group.close().map(drop)
        };
        write().map_err(failed)
    }

    fn encoded(&self, leaves: Vec<Leaf>) -> Vec<Result<(Bytes, ColumnCloseResult), ParquetError>> {
        let (columns, properties) = (self.file.schema_descr().columns().to_vec(), self.properties.clone());
        let encode = |(at, leaf): (usize, Leaf)| leaf.encode(columns[at].clone(), properties.clone());
        if self.threads <= 1 {
            return leaves.into_iter().enumerate().map(encode).collect();
        }
        let threads = self.threads.min(leaves.len());
        let waiting: Vec<Mutex<Option<Leaf>>> =
            leaves.into_iter().map(|leaf| Mutex::new(Some(leaf))).collect();
        let next = AtomicUsize::new(0);
        let done = Mutex::new(Vec::new());
        let work = || {
            loop {
                let at = next.fetch_add(1, Ordering::Relaxed);
                let Some(leaf) = waiting.get(at) else { return };
                let leaf = leaf.lock().unwrap_or_else(PoisonError::into_inner).take();
                let encoded = leaf.map(|leaf| encode((at, leaf)));
                let mut done = done.lock().unwrap_or_else(PoisonError::into_inner);
                done.extend(encoded.map(|encoded| (at, encoded)));
            }
        };
        thread::scope(|scope| {
            // If a thread cannot start, there is one fewer.
            (1..threads).for_each(|_| drop(thread::Builder::new().spawn_scoped(scope, work)));
            work();
        });
        let mut done = done.into_inner().unwrap_or_else(PoisonError::into_inner);
        done.sort_by_key(|(at, _)| *at);
        done.into_iter().map(|(_, encoded)| encoded).collect()
    }

    pub(crate) fn close(mut self) -> Result<u64> {
        if self.rows > 0 {
            self.flush()?;
        }
        let mut out = self.file.into_inner().map_err(failed)?;
        out.flush()?;
        Ok(self.total)
    }
}
