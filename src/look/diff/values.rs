//! Values that differ, as text and as JSON.

use std::collections::BTreeSet;

use perfx_format::{Value, ValueFields, bytes_of};
use perfx_pipeline::count;
use schemars::JsonSchema;
use serde::{Serialize, Serializer};
use serde_json::{Value as Json, json};

use crate::json::ShownValue;
use crate::render::{self, Style};

/// A value that differs.
#[derive(Clone, PartialEq, Debug, Serialize, JsonSchema)]
#[schemars(deny_unknown_fields)]
#[non_exhaustive]
pub struct Difference {
    /// The object that it belongs to; empty for a field of first_record
    #[serde(rename = "in")]
    pub place: String,
    /// Empty if the whole object differs
    pub field: String,
    /// As perfx dump --format ndjson shows it; null: absent
    pub a: Option<Shown>,
    /// The same for the other recording
    pub b: Option<Shown>,
}

/// A value as it is shown.
#[derive(Clone, PartialEq, Debug, JsonSchema)]
#[schemars(with = "Json", inline)]
pub struct Shown {
    text: String,
    json: Json,
}

impl Serialize for Shown {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        self.json.serialize(serializer)
    }
}

impl Shown {
    pub(super) fn new(value: &Value<'_>) -> Shown {
        Shown { text: render::value(value, Style::default()), json: json!(ShownValue(value)) }
    }

    pub(super) fn bytes(bytes: usize) -> Shown {
        Shown { text: bytes_of(bytes), json: bytes.into() }
    }

    pub(super) fn number(number: u64) -> Shown {
        Shown { text: count(number), json: number.into() }
    }

    /// The value as text.
    pub fn text(&self) -> &str {
        &self.text
    }
}

impl Difference {
    pub(super) fn between(place: &str, field: &str, a: &Value<'_>, b: &Value<'_>) -> Difference {
        let (a, b) = (Some(Shown::new(a)), Some(Shown::new(b)));
        Difference { place: place.to_owned(), field: field.to_owned(), a, b }
    }
}

pub(super) fn differences(place: &str, a: &ValueFields<'_>, b: &ValueFields<'_>) -> Vec<Difference> {
    let find = |fields: &ValueFields<'_>, name: &str| {
        fields.iter().find(|(other, _)| *other == name).map(|(_, value)| Shown::new(value))
    };
    let names: Vec<&str> = a.iter().chain(b).map(|(name, _)| *name).collect();
    let mut seen = BTreeSet::new();
    let mut found = Vec::new();
    for name in names.into_iter().filter(|name| seen.insert(*name)) {
        let (a, b) = (find(a, name), find(b, name));
        if a.as_ref().map(|shown| &shown.json) != b.as_ref().map(|shown| &shown.json) {
            found.push(Difference { place: place.to_owned(), field: name.to_owned(), a, b });
        }
    }
    found
}
