//! A document matches its JSON schema. Checks the keywords that the schemas of perfx have; any other is an
//! error.

use std::collections::HashMap;
use std::sync::Mutex;

use regex::Regex;
use serde_json::Value as Json;

/// A schema with its definitions.
struct Check<'a> {
    root: &'a Json,
    wrong: Vec<String>,
}

pub(crate) fn differences(schema: &Json, document: &Json) -> Vec<String> {
    let mut check = Check { root: schema, wrong: Vec::new() };
    check.value(schema, document, "");
    check.wrong
}

fn matches(pattern: &str, text: &str) -> bool {
    static KNOWN: Mutex<Option<HashMap<String, Regex>>> = Mutex::new(None);
    let mut known = KNOWN.lock().unwrap();
    let known = known.get_or_insert_default();
    known.entry(pattern.to_owned()).or_insert_with(|| Regex::new(pattern).unwrap()).is_match(text)
}

fn is_of_type(value: &Json, name: &str) -> bool {
    match name {
        "null" => value.is_null(),
        "boolean" => value.is_boolean(),
        "integer" => value.is_i64() || value.is_u64(),
        "number" => value.is_number(),
        "string" => value.is_string(),
        "array" => value.is_array(),
        "object" => value.is_object(),
        _ => panic!("no type: {name}"),
    }
}

/// The elements of an array.
fn list(value: &Json) -> &[Json] {
    value.as_array().unwrap_or_else(|| panic!("no array: {value}"))
}

impl Check<'_> {
    fn value(&mut self, schema: &Json, value: &Json, at: &str) {
        if let Some(allowed) = schema.as_bool() {
            if !allowed {
                self.wrong.push(format!("{at}: must not be there"));
            }
            return;
        }
        let keywords = schema.as_object().unwrap_or_else(|| panic!("no schema: {schema}"));
        for (keyword, wanted) in keywords {
            let fits = match keyword.as_str() {
                // "format" has the width of an integer, whose bounds are "minimum" and "maximum".
                "$schema" | "$defs" | "title" | "description" | "format" => true,
                "$ref" => {
                    let pointer =
                        wanted.as_str().and_then(|to| to.strip_prefix('#')).expect("within the schema");
                    let target = self.root.pointer(pointer).unwrap_or_else(|| panic!("no {pointer}"));
                    self.value(target, value, at);
                    true
                }
                "type" => match wanted.as_str() {
                    Some(name) => is_of_type(value, name),
                    None => list(wanted).iter().any(|name| is_of_type(value, name.as_str().unwrap())),
                },
                "const" => value == wanted,
                "enum" => list(wanted).contains(value),
                "minimum" => value.as_f64().is_none_or(|value| value >= wanted.as_f64().unwrap()),
                "maximum" => value.as_f64().is_none_or(|value| value <= wanted.as_f64().unwrap()),
                "pattern" => value.as_str().is_none_or(|text| matches(wanted.as_str().unwrap(), text)),
                "required" => value.as_object().is_none_or(|object| {
                    list(wanted).iter().all(|name| object.contains_key(name.as_str().unwrap()))
                }),
                "properties" => {
                    for (name, schema) in wanted.as_object().unwrap() {
                        if let Some(value) = value.get(name) {
                            self.value(schema, value, &format!("{at}/{name}"));
                        }
                    }
                    true
                }
                "additionalProperties" => {
                    let known = keywords.get("properties").and_then(Json::as_object);
                    for (name, value) in value.as_object().into_iter().flatten() {
                        if known.is_none_or(|known| !known.contains_key(name)) {
                            self.value(wanted, value, &format!("{at}/{name}"));
                        }
                    }
                    true
                }
                "items" => {
                    for (index, value) in value.as_array().into_iter().flatten().enumerate() {
                        self.value(wanted, value, &format!("{at}/{index}"));
                    }
                    true
                }
                "anyOf" => self.fitting(wanted, value, at) > 0,
                "oneOf" => self.fitting(wanted, value, at) == 1,
                other => panic!("{other} in a schema is not checked"),
            };
            if !fits {
                self.wrong.push(format!("{at}: {value} is not as {keyword} {wanted} says"));
            }
        }
    }

    fn fitting(&self, schemas: &Json, value: &Json, at: &str) -> usize {
        let fits = |schema: &&Json| {
            let mut check = Check { root: self.root, wrong: Vec::new() };
            check.value(schema, value, at);
            check.wrong.is_empty()
        };
        list(schemas).iter().filter(fits).count()
    }
}

#[test]
fn each_keyword_of_a_schema_is_checked() {
    let schema = serde_json::json!({
        "$defs": { "id": { "type": "string", "pattern": "^0x[0-9a-f]+$" } },
        "type": "object",
        "properties": {
            "id": { "$ref": "#/$defs/id" },
            "byte": { "type": ["integer", "null"], "minimum": 0, "maximum": 255 },
            "kind": { "oneOf": [{ "const": "a" }, { "enum": ["b", "c"] }] },
            "list": { "type": "array", "items": { "anyOf": [{ "type": "number" }, { "type": "boolean" }] } },
        },
        "required": ["id"],
        "additionalProperties": false,
    });
    let sound = serde_json::json!({ "id": "0x1f", "byte": null, "kind": "c", "list": [1, 0.5, true] });
    assert_eq!(differences(&schema, &sound), Vec::<String>::new());
    for (name, wrong) in [
        ("id", serde_json::json!("1f")),
        ("id", serde_json::json!(31)),
        ("byte", serde_json::json!(-1)),
        ("byte", serde_json::json!(256)),
        ("byte", serde_json::json!(0.5)),
        ("kind", serde_json::json!("d")),
        ("list", serde_json::json!([1, "2"])),
        ("list", serde_json::json!({})),
        ("more", serde_json::json!(1)),
    ] {
        let mut document = sound.clone();
        document[name] = wrong;
        assert_eq!(differences(&schema, &document).len(), 1, "{document}");
    }
    assert_eq!(differences(&schema, &serde_json::json!({})).len(), 1);
    assert_eq!(differences(&schema, &serde_json::json!([])).len(), 1);
}
