//! Parts of JSON documents that need more than a derive. Each describes itself as a JSON schema, so the
//! schema of a document follows from its type.

use std::borrow::Cow;
use std::fmt;

use perfx_format::read::Form;
use perfx_format::{Endian, HexNumber, Origin, RecordType, Value, ValueFields, hex};
use schemars::generate::SchemaSettings;
use schemars::{JsonSchema, Schema, SchemaGenerator, json_schema};
use serde::ser::SerializeMap as _;
use serde::{Serialize, Serializer};
use serde_json::{Map, Value as Json};

use crate::render::kind_name;

/// A JSON document, or a line of NDJSON: the version of its form, then the fields of `T`, an enum whose tag,
/// `what`, names the form. The version increases whenever a reader of the old form would misread the new.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Document<const VERSION: u32, T>(T);

impl<const VERSION: u32, T> Document<VERSION, T> {
    /// The document with this content.
    pub fn new(body: T) -> Self {
        Document(body)
    }
}

impl<const VERSION: u32, T: Serialize> Serialize for Document<VERSION, T> {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        #[derive(Serialize)]
        struct Parts<'a, T> {
            schema: u32,
            #[serde(flatten)]
            body: &'a T,
        }
        Parts { schema: VERSION, body: &self.0 }.serialize(serializer)
    }
}

impl<const VERSION: u32, T: JsonSchema> JsonSchema for Document<VERSION, T> {
    fn schema_name() -> Cow<'static, str> {
        T::schema_name()
    }

    fn json_schema(generator: &mut SchemaGenerator) -> Schema {
        let add_version = |form: &mut Map<String, Json>| {
            if let Some(properties) = form.get_mut("properties").and_then(Json::as_object_mut) {
                let version = json_schema!({ "const": VERSION, "description": "Version of this form" });
                properties.shift_insert(0, "schema".to_owned(), version.to_value());
            }
            if let Some(required) = form.get_mut("required").and_then(Json::as_array_mut) {
                required.insert(0, "schema".into());
            }
        };
        let mut schema = T::json_schema(generator);
        let object = schema.ensure_object();
        let Some(Json::Array(mut forms)) = object.remove("oneOf") else {
            add_version(object);
            return schema;
        };
        forms.iter_mut().filter_map(Json::as_object_mut).for_each(add_version);
        match forms.as_mut_slice() {
            [Json::Object(only)] => {
                for (name, value) in std::mem::take(only) {
                    object.entry(name).or_insert(value);
                }
            }
            _ => drop(object.insert("oneOf".to_owned(), forms.into())),
        }
        schema
    }
}

/// The JSON schema of a type.
pub fn schema<T: JsonSchema>() -> Json {
    let generator = SchemaSettings::draft2020_12().for_serialize().into_generator();
    let mut schema = generator.into_root_schema_for::<T>();
    let object = schema.ensure_object();
    if let Some(draft) = object.shift_remove("$schema") {
        object.shift_insert(0, "$schema".to_owned(), draft);
    }
    schema.to_value()
}

/// Appends JSON, indented or in one line. Unlike serde_json, it also escapes DEL and the controls from U+0080
/// to U+009F, which a terminal obeys.
///
/// # Errors
///
/// The value has a type that JSON lacks.
pub fn push_json(out: &mut Vec<u8>, value: &impl Serialize, indented: bool) -> serde_json::Result<()> {
    let begin = out.len();
    if indented {
        serde_json::to_writer_pretty(&mut *out, value)?;
    } else {
        serde_json::to_writer(&mut *out, value)?;
    }
    // Checking each piece of serde_json's would take as long as writing. Without branches it is vectorized.
    let may_be =
        |chunk: &[u8]| chunk.iter().fold(false, |found, &byte| found | (byte == 0x7f) | (byte == 0xc2));
    if out[begin..].chunks(256).any(may_be) {
        let plain = out.split_off(begin);
        push_escaped(out, &plain);
    }
    Ok(())
}

/// Appends JSON, with escapes for such characters in its strings.
fn push_escaped(out: &mut Vec<u8>, mut json: &[u8]) {
    loop {
        json = match json {
            [] => break,
            [0x7f, rest @ ..] => {
                out.extend_from_slice(b"\\u007f");
                rest
            }
            [0xc2, control @ 0x80..=0x9f, rest @ ..] => {
                out.extend_from_slice(format!("\\u{control:04x}").as_bytes());
                rest
            }
            [byte, rest @ ..] => {
                out.push(*byte);
                rest
            }
        };
    }
}

/// Implements [`JsonSchema`] for a type with a short schema, which is repeated at each use.
macro_rules! schema_of {
    ([$($generics:tt)*] $type:ty: $($schema:tt)*) => {
        impl<$($generics)*> JsonSchema for $type {
            fn inline_schema() -> bool {
                true
            }

            fn schema_name() -> Cow<'static, str> {
                stringify!($type).into()
            }

            fn json_schema(_: &mut SchemaGenerator) -> Schema {
                json_schema!($($schema)*)
            }
        }
    };
}

/// A number with possibly more than 53 bits, as a decimal string: many readers would round it.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Default, Debug)]
pub struct Decimal<T>(pub T);

impl<T: fmt::Display> Serialize for Decimal<T> {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.collect_str(&self.0)
    }
}

schema_of!([T] Decimal<T>: { "type": "string", "pattern": "^[0-9]+$" });

/// A signed number with possibly more than 53 bits, as a decimal string.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Default, Debug)]
pub struct Integer<T>(pub T);

impl<T: fmt::Display> Serialize for Integer<T> {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.collect_str(&self.0)
    }
}

schema_of!([T] Integer<T>: { "type": "string", "pattern": "^-?[0-9]+$" });

/// An offset, as a string in hexadecimal.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Default, Debug)]
pub struct Hex(pub u64);

impl Serialize for Hex {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.serialize_str(HexNumber::new(self.0).as_str())
    }
}

schema_of!([] Hex: { "type": "string", "pattern": "^0x[0-9a-f]+$" });

/// Bytes, as a string of hex digits.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct HexDigits<'a>(pub &'a [u8]);

impl Serialize for HexDigits<'_> {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.serialize_str(&hex(self.0))
    }
}

schema_of!([] HexDigits<'_>: { "type": "string", "pattern": "^([0-9a-f]{2})*$" });

/// Text of a recording: a string; if it is not UTF-8, an object with its bytes.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Text<T>(pub T);

impl<T: AsRef<[u8]>> Serialize for Text<T> {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        ShownValue(&Value::Text(self.0.as_ref())).serialize(serializer)
    }
}

impl<T> JsonSchema for Text<T> {
    fn schema_name() -> Cow<'static, str> {
        "Text".into()
    }

    fn json_schema(generator: &mut SchemaGenerator) -> Schema {
        json_schema!({
            "description": "Text; {\"bytes\": hex digits} if it is not UTF-8",
            "oneOf": [
                { "type": "string" },
                {
                    "type": "object",
                    "properties": { "bytes": generator.subschema_for::<HexDigits<'_>>() },
                    "required": ["bytes"],
                    "additionalProperties": false,
                },
            ],
        })
    }
}

/// A value, as the table in [the crate's documentation](crate) says.
#[derive(Clone, Copy, PartialEq, Debug)]
pub struct ShownValue<'v>(pub &'v Value<'v>);

impl Serialize for ShownValue<'_> {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        match self.0 {
            Value::Number(number) => serializer.serialize_str(itoa::Buffer::new().format(*number)),
            Value::Signed(number) => serializer.serialize_str(itoa::Buffer::new().format(*number)),
            Value::Hex(number) => Hex(*number).serialize(serializer),
            Value::Float(number) if number.is_finite() => serializer.serialize_f64(*number),
            Value::Float(number) => serializer.collect_str(number),
            Value::Text(text) => match str::from_utf8(text) {
                Ok(text) => serializer.serialize_str(text),
                Err(_) => serializer.collect_map([("bytes", HexDigits(text))]),
            },
            Value::Name(name) => serializer.serialize_str(name),
            Value::Bytes(bytes) => HexDigits(bytes).serialize(serializer),
            Value::List(values) => serializer.collect_seq(values.iter().map(ShownValue)),
            Value::Map(fields) => serialize_fields(fields, serializer),
        }
    }
}

/// Decoded fields as an object, in their order.
#[derive(Clone, PartialEq, Debug)]
pub struct Fields<'v>(pub Cow<'v, ValueFields<'v>>);

impl<'v> From<ValueFields<'v>> for Fields<'v> {
    fn from(fields: ValueFields<'v>) -> Fields<'v> {
        Fields(Cow::Owned(fields))
    }
}

impl<'v> From<&'v ValueFields<'v>> for Fields<'v> {
    fn from(fields: &'v ValueFields<'v>) -> Fields<'v> {
        Fields(Cow::Borrowed(fields))
    }
}

impl Serialize for Fields<'_> {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serialize_fields(&self.0, serializer)
    }
}

impl JsonSchema for Fields<'_> {
    fn schema_name() -> Cow<'static, str> {
        "Fields".into()
    }

    fn json_schema(_: &mut SchemaGenerator) -> Schema {
        json_schema!({
            "type": "object",
            "description": "Decoded fields in their order: numbers are strings, text that is not UTF-8 is \
                {\"bytes\": hex digits}; `odd` lists deviations from the format",
        })
    }
}

/// A second field with the same name is `name_2`.
fn serialize_fields<S: Serializer>(fields: &ValueFields<'_>, serializer: S) -> Result<S::Ok, S::Error> {
    let mut map = serializer.serialize_map(Some(fields.len()))?;
    for (index, (name, value)) in fields.iter().enumerate() {
        let value = ShownValue(value);
        match fields[..index].iter().filter(|(before, _)| before == name).count() {
            0 => map.serialize_entry(name, &value)?,
            before => map.serialize_entry(&format!("{name}_{}", before + 1), &value)?,
        }
    }
    map.end()
}

/// The kind of a record, to flatten into an object.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Serialize, JsonSchema)]
#[serde(into = "KindFields")]
#[schemars(with = "KindFields")]
pub struct Kind(pub RecordType);

#[derive(Serialize, JsonSchema)]
struct KindFields {
    /// Name without PERF_RECORD_; unknown(N) for an unknown kind
    kind: KindName,
    /// The number of the kind
    #[serde(rename = "type")]
    #[schemars(range(max = 4294967295u32))]
    number: u32,
}

impl From<Kind> for KindFields {
    fn from(Kind(kind): Kind) -> KindFields {
        KindFields { kind: KindName(kind), number: kind.0 }
    }
}

/// The name of a kind.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct KindName(pub RecordType);

impl Serialize for KindName {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.serialize_str(&kind_name(self.0))
    }
}

schema_of!([] KindName: { "type": "string" });

/// The place of a record in its input.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Serialize, JsonSchema)]
#[serde(into = "PlaceFields")]
#[schemars(with = "PlaceFields")]
pub struct Place(pub Origin);

#[derive(Serialize, JsonSchema)]
#[schemars(deny_unknown_fields)]
struct PlaceFields {
    /// 0: the main file; from 1 on: the data.N of a directory
    stream: u32,
    /// Absolute, bytes; for a decompressed record, the offset of the COMPRESSED record in which it begins,
    /// and its own in the contents
    offset: Offset,
}

impl From<Place> for PlaceFields {
    fn from(Place(origin): Place) -> PlaceFields {
        let (stream, _) = origin.stored_at().unwrap_or_default();
        PlaceFields { stream, offset: Offset(origin) }
    }
}

/// The offset of a record: `0x410`, or `0x410+0x20` inside the contents of a compressed record.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Offset(pub Origin);

impl fmt::Display for Offset {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let text = self.0.to_string();
        f.write_str(text.strip_prefix("offset ").unwrap_or(&text))
    }
}

impl Serialize for Offset {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        match self.0 {
            Origin::Input { offset, .. } => Hex(offset).serialize(serializer),
            _ => serializer.collect_str(self),
        }
    }
}

schema_of!([] Offset: { "type": "string", "pattern": "^0x[0-9a-f]+([+-]0x[0-9a-f]+)?$" });

/// The form of a recording, as fields `form` and, of a directory, `directory_version`.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct FormName(pub Form);

#[derive(Serialize, JsonSchema)]
struct FormFields {
    #[schemars(extend("enum" = ["file", "pipe", "directory"]))]
    form: &'static str,
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schemars(with = "u64")]
    directory_version: Option<u64>,
}

impl Serialize for FormName {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        let (form, directory_version) = match self.0 {
            Form::File => ("file", None),
            Form::Pipe => ("pipe", None),
            Form::Directory { version } => ("directory", Some(version)),
        };
        FormFields { form, directory_version }.serialize(serializer)
    }
}

impl JsonSchema for FormName {
    fn inline_schema() -> bool {
        true
    }

    fn schema_name() -> Cow<'static, str> {
        FormFields::schema_name()
    }

    fn json_schema(generator: &mut SchemaGenerator) -> Schema {
        FormFields::json_schema(generator)
    }
}

/// The byte order of a recording.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Serialize, JsonSchema)]
#[serde(rename_all = "lowercase")]
pub enum ByteOrder {
    /// Least significant byte first
    Little,
    /// Most significant byte first
    Big,
}

impl From<Endian> for ByteOrder {
    fn from(endian: Endian) -> ByteOrder {
        match endian {
            Endian::Little => ByteOrder::Little,
            Endian::Big => ByteOrder::Big,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::render::tests::all;

    fn shown(fields: ValueFields<'_>) -> String {
        serde_json::to_string(&Fields::from(fields)).unwrap()
    }

    #[test]
    fn json_has_no_byte_that_a_terminal_obeys() {
        let text = "a\u{7f}b\u{85}\u{9f}é\u{a0}\u{1b}";
        for indented in [false, true] {
            let mut json = Vec::new();
            push_json(&mut json, &[text], indented).unwrap();
            let json = String::from_utf8(json).unwrap();
            assert!(json.contains(r"a\u007fb\u0085\u009fé"), "{json}");
            assert!(!json.chars().any(|char| char.is_control() && char != '\n'), "{json:?}");
            assert_eq!(serde_json::from_str::<Vec<String>>(&json).unwrap(), [text]);
        }
    }

    #[test]
    fn json_loses_nothing_and_keeps_the_order() {
        assert_eq!(
            shown(all()),
            concat!(
                r#"{"pid":"18446744073709551615","cpu":"-1","addr":"0xffffffff81000000","scale":1e-9,"comm":"perf","#,
                r#""flags":"A|B","id":"0001fe","ids":["5","6"],"sample_id":{"time":"7","cpu":"0"},"none":[],"nothing":{}}"#
            )
        );
        let fields = vec![
            ("comm", Value::Text(b"\xff\x00")),
            ("comm", Value::Text(b"a\"\n")),
            ("comm", Value::Float(f64::INFINITY)),
            ("all", Value::Bytes(&[0xab; 33])),
        ];
        let digits = "ab".repeat(33);
        assert_eq!(
            shown(fields),
            format!(r#"{{"comm":{{"bytes":"ff00"}},"comm_2":"a\"\n","comm_3":"inf","all":"{digits}"}}"#)
        );
    }
}
