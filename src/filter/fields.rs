//! Selects samples of tracepoints by their own fields, with conditions like those of perf's filters.

use std::collections::BTreeSet;

use perfx_format::header::Features;
use perfx_format::tracepoint::{NamedField, TraceValue};
use perfx_format::{ByTracepoint, Endian, Event, hex, until_nul};
use perfx_look::trace::{FieldText, TracePrinter, printers};
use perfx_pipeline::{Context as _, Error, Result, bail, did_you_mean, ensure};
use regex::bytes::Regex;

const DEPTH_MAX: u32 = 64;

#[derive(Clone, Debug)]
pub(crate) enum Condition {
    All(Vec<Condition>),
    Any(Vec<Condition>),
    Test(Test),
}

#[derive(Clone, Debug)]
pub(crate) struct Test {
    field: String,
    operator: &'static str,
    value: Value,
}

#[derive(Clone, Debug)]
enum Value {
    Number(i128),
    Text(String),
    Glob(Regex),
}

#[derive(Debug)]
pub(crate) enum EventCondition {
    All(Vec<EventCondition>),
    Any(Vec<EventCondition>),
    Test(NamedField<'static>, Test),
    Shown(FieldText, Test),
    Never,
}

/// Longer ones before their prefixes.
const OPERATORS: [&str; 7] = ["==", "!=", "<=", ">=", "<", ">", "~"];

impl Condition {
    /// Parses `FIELD OPERATOR VALUE`, or several of these with `&&`, `||` and parentheses.
    pub(crate) fn parse(text: &str) -> Result<Condition> {
        let mut rest = text;
        let condition = any(&mut rest, 0)?;
        ensure!(rest.trim().is_empty(), "`{}`: expected && or ||", rest.trim());
        Ok(condition)
    }

    fn tests(&self) -> Vec<&Test> {
        match self {
            Condition::All(parts) | Condition::Any(parts) => {
                parts.iter().flat_map(Condition::tests).collect()
            }
            Condition::Test(test) => vec![test],
        }
    }

    fn for_event(&self, printer: &TracePrinter<'_>) -> Result<EventCondition> {
        let each = |parts: &[Condition]| -> Result<Vec<EventCondition>> {
            parts.iter().map(|part| part.for_event(printer)).collect()
        };
        Ok(match self {
            Condition::All(parts) => EventCondition::All(each(parts)?),
            Condition::Any(parts) => EventCondition::Any(each(parts)?),
            Condition::Test(test) => match printer.fields().iter().find(|field| field.name == test.field) {
                Some(field) => match test.shown(field, printer) {
                    Some(text) => EventCondition::Shown(text, test.clone()),
                    None => {
                        let field = NamedField { name: "", type_name: "", ..*field };
                        EventCondition::Test(field, test.of(&field)?)
                    }
                },
                None => EventCondition::Never,
            },
        })
    }

    pub(crate) fn for_events(
        conditions: &[Condition],
        events: &[Event],
        features: &Features,
        endian: Endian,
    ) -> Result<ByTracepoint<EventCondition>> {
        let known = printers(events, features, endian);
        let names: BTreeSet<&str> =
            known.values().flat_map(TracePrinter::fields).map(|field| field.name).collect();
        for test in conditions.iter().flat_map(Condition::tests) {
            ensure!(!names.is_empty(), "--where: the recording has no samples of tracepoints with fields");
            if !names.contains(&*test.field) {
                let own: Vec<&str> =
                    names.iter().filter(|name| !name.starts_with("common_")).copied().collect();
                let meant = did_you_mean(&test.field, &own);
                bail!(
                    "--where: no event has a field `{}`; the fields are {}{meant}",
                    test.field,
                    own.join(", ")
                );
            }
        }
        let all = |printer: TracePrinter<'_>| {
            let parts = conditions.iter().map(|condition| condition.for_event(&printer));
            parts.collect::<Result<_>>().map(EventCondition::All)
        };
        known.try_map(all).context("--where")
    }
}

impl Test {
    fn shown(&self, field: &NamedField<'_>, printer: &TracePrinter<'_>) -> Option<FieldText> {
        use perfx_format::tracepoint::TraceFieldKind::{Numbers, Pointer};
        let is_text = matches!(self.value, Value::Text(_) | Value::Glob(_));
        let is_equality = matches!(self.operator, "==" | "!=" | "~");
        let is_number = matches!(field.kind, Numbers | Pointer);
        (is_text && is_equality && is_number).then(|| printer.field_text(field.name)).flatten()
    }

    /// The test for this field; bytes are compared as hex. Fails if none can pass: text against a number.
    fn of(&self, field: &NamedField<'_>) -> Result<Test> {
        use perfx_format::tracepoint::TraceFieldKind::{Bytes, Located, Numbers, Pointer};
        let name = &self.field;
        let (what, such) = if field.is_text { ("a text", "x") } else { ("bytes", "7f000001") };
        match (field.kind, &self.value) {
            (Bytes | Located { .. }, Value::Number(_)) => {
                bail!("`{name}` is {what}: give it in quotation marks, such as {name} == \"{such}\"")
            }
            (Bytes | Located { .. }, Value::Text(_)) if !matches!(self.operator, "==" | "!=") => {
                bail!("`{name}` is {what}: compare it with ==, != or ~")
            }
            (Bytes | Located { .. }, Value::Text(text)) if !field.is_text => {
                let is_hex = text.len() % 2 == 0 && text.bytes().all(|byte| byte.is_ascii_hexdigit());
                ensure!(is_hex, "`{name}` is bytes: `{text}` is not hex digits, such as \"{such}\"");
                Ok(Test { value: Value::Text(text.to_ascii_lowercase()), ..self.clone() })
            }
            (Bytes | Located { .. }, Value::Glob(glob)) if !field.is_text => {
                let of_either_case = Regex::new(&format!("(?i){}", glob.as_str()));
                let glob = of_either_case.with_context(|| format!("`{name}`"))?;
                Ok(Test { value: Value::Glob(glob), ..self.clone() })
            }
            (Numbers | Pointer, Value::Text(_) | Value::Glob(_)) => bail!("`{name}` is a number"),
            (Numbers, _) if field.number_size != field.field.size => {
                bail!("`{name}` holds several numbers, which can't be compared")
            }
            _ => Ok(self.clone()),
        }
    }

    fn is_true(&self, value: TraceValue<'_>) -> bool {
        let compare = |number: i128| {
            let Value::Number(wanted) = self.value else { return false };
            match self.operator {
                "==" => number == wanted,
                "!=" => number != wanted,
                "<=" => number <= wanted,
                ">=" => number >= wanted,
                "<" => number < wanted,
                _ => number > wanted,
            }
        };
        match (value, &self.value) {
            (TraceValue::Signed(number), _) => compare(number.into()),
            (TraceValue::Unsigned(number) | TraceValue::Pointer(number), _) => compare(number.into()),
            (TraceValue::Text(bytes), wanted) => self.is_true_of(wanted, until_nul(bytes)),
            (TraceValue::Bytes(bytes), wanted) => self.is_true_of(wanted, hex(bytes).as_bytes()),
        }
    }

    fn is_true_of(&self, wanted: &Value, text: &[u8]) -> bool {
        match wanted {
            Value::Text(wanted) => (text == wanted.as_bytes()) == (self.operator == "=="),
            Value::Glob(glob) => glob.is_match(text),
            Value::Number(_) => false,
        }
    }
}

impl EventCondition {
    pub(crate) fn is_true(&self, raw: &[u8], endian: Endian) -> bool {
        match self {
            EventCondition::All(parts) => parts.iter().all(|part| part.is_true(raw, endian)),
            EventCondition::Any(parts) => parts.iter().any(|part| part.is_true(raw, endian)),
            EventCondition::Test(field, test) => {
                field.value(raw, endian).is_some_and(|value| test.is_true(value))
            }
            EventCondition::Shown(text, test) => {
                text.of(raw).is_some_and(|text| test.is_true_of(&test.value, text.as_bytes()))
            }
            EventCondition::Never => false,
        }
    }
}

fn any(rest: &mut &str, depth: u32) -> Result<Condition> {
    ensure!(depth < DEPTH_MAX, "too many parentheses");
    let mut parts = vec![all(rest, depth)?];
    while takes(rest, "||") {
        parts.push(all(rest, depth)?);
    }
    Ok(if parts.len() == 1 { parts.remove(0) } else { Condition::Any(parts) })
}

fn all(rest: &mut &str, depth: u32) -> Result<Condition> {
    let mut parts = vec![one(rest, depth)?];
    while takes(rest, "&&") {
        parts.push(one(rest, depth)?);
    }
    Ok(if parts.len() == 1 { parts.remove(0) } else { Condition::All(parts) })
}

fn one(rest: &mut &str, depth: u32) -> Result<Condition> {
    if takes(rest, "(") {
        let inner = any(rest, depth + 1)?;
        ensure!(takes(rest, ")"), "`{rest}`: expected )");
        return Ok(inner);
    }
    let field = word(rest);
    ensure!(!field.is_empty(), "`{}`: expected the name of a field", rest.trim());
    let operator = OPERATORS.into_iter().find(|operator| takes(rest, operator));
    let operator = operator.with_context(|| {
        format!("`{}`: expected an operator after `{field}`: {}", rest.trim(), OPERATORS.join(" "))
    })?;
    let value = value(rest, operator)?;
    Ok(Condition::Test(Test { field: field.to_owned(), operator, value }))
}

fn value(rest: &mut &str, operator: &str) -> Result<Value> {
    *rest = rest.trim_start();
    let quote = rest.chars().next().filter(|quote| matches!(quote, '"' | '\''));
    let (text, is_quoted) = match quote {
        Some(quote) => {
            let (text, after) = rest[1..]
                .split_once(quote)
                .with_context(|| format!("`{rest}`: expected {quote} at the end"))?;
            *rest = after;
            (text, true)
        }
        None => {
            let end = rest.find(|letter: char| letter.is_whitespace() || matches!(letter, '&' | '|' | ')'));
            let (text, after) = rest.split_at(end.unwrap_or(rest.len()));
            *rest = after;
            (text, false)
        }
    };
    ensure!(is_quoted || !text.is_empty(), "expected a value after {operator}");
    if operator == "~" {
        return glob(text).map(Value::Glob);
    }
    if is_quoted {
        return Ok(Value::Text(text.to_owned()));
    }
    let digits = text.strip_prefix('-').unwrap_or(text);
    let number = match digits.strip_prefix("0x") {
        Some(hex) => u64::from_str_radix(hex, 16).ok(),
        None => digits.parse().ok(),
    };
    Ok(match number.map(i128::from) {
        Some(number) => Value::Number(if text.starts_with('-') { -number } else { number }),
        None => Value::Text(text.to_owned()),
    })
}

/// A pattern of perf's filters: `*`, `?` and `[a-z]`.
fn glob(text: &str) -> Result<Regex> {
    let mut pattern = "(?s-u)^".to_owned();
    for letter in text.chars() {
        match letter {
            '*' => pattern += ".*",
            '?' => pattern += ".",
            '[' | ']' | '-' => pattern.push(letter),
            other => pattern += &regex::escape(other.encode_utf8(&mut [0; 4])),
        }
    }
    Regex::new(&(pattern + "$"))
        .map_err(|_| Error::new(format!("`{text}` is not a pattern: use *, ? and [a-z]")))
}

fn takes(rest: &mut &str, sign: &str) -> bool {
    *rest = rest.trim_start();
    match rest.strip_prefix(sign) {
        Some(after) => {
            *rest = after;
            true
        }
        None => false,
    }
}

fn word<'t>(rest: &mut &'t str) -> &'t str {
    *rest = rest.trim_start();
    let end = rest.find(|letter: char| !letter.is_alphanumeric() && letter != '_').unwrap_or(rest.len());
    let (word, after) = rest.split_at(end);
    *rest = after;
    word
}

#[cfg(test)]
mod tests {
    use super::*;

    fn is_true(condition: &str, value: TraceValue<'_>) -> bool {
        match Condition::parse(condition).unwrap() {
            Condition::Test(test) => test.is_true(value),
            other => panic!("{other:?}"),
        }
    }

    #[test]
    fn numbers_and_texts_are_compared() {
        for (condition, expected) in [
            ("x == 5", [false, true, false]),
            ("x != 5", [true, false, true]),
            ("x < 0x5", [true, false, false]),
            ("x <= 5", [true, true, false]),
            ("x>5", [false, false, true]),
            ("x >= 5", [false, true, true]),
            ("x >= -1", [true, true, true]),
        ] {
            let numbers = [4, 5, 6];
            assert_eq!(numbers.map(|n| is_true(condition, TraceValue::Unsigned(n))), expected, "{condition}");
            assert_eq!(numbers.map(|n| is_true(condition, TraceValue::Pointer(n))), expected, "{condition}");
        }
        assert!(
            is_true("x == -1", TraceValue::Signed(-1)) && !is_true("x == -1", TraceValue::Unsigned(u64::MAX))
        );
        for (condition, expected) in [
            ("x == \"sh\"", [true, false]),
            ("x == sh", [true, false]),
            ("x != 'sh'", [false, true]),
            ("x ~ s*", [true, true]),
            ("x ~ s[a-m]?", [false, false]),
            ("x ~ \"?sh\"", [false, true]),
        ] {
            let texts: [&[u8]; 2] = [b"sh\0junk", b"ssh"];
            assert_eq!(texts.map(|text| is_true(condition, TraceValue::Text(text))), expected, "{condition}");
        }
        assert!(
            is_true("x == 7f00", TraceValue::Text(b"7f00"))
                && is_true("x == '7f00'", TraceValue::Bytes(&[0x7f, 0]))
        );
    }

    #[test]
    fn and_binds_closer_than_or() {
        fn shown(condition: &Condition) -> String {
            let parts = |parts: &[Condition]| parts.iter().map(shown).collect::<Vec<_>>().join(" ");
            match condition {
                Condition::All(all) => format!("all({})", parts(all)),
                Condition::Any(any) => format!("any({})", parts(any)),
                Condition::Test(test) => test.field.clone(),
            }
        }
        let parsed = |text: &str| Condition::parse(text).map(|condition| shown(&condition)).ok();
        let of = |text: &str| parsed(text).unwrap_or_default();
        assert_eq!(of("a==1 || b==1&&c==1"), "any(a all(b c))");
        assert_eq!(of("(a==1||b==1) && c==1"), "all(any(a b) c)");
        assert_eq!(of("a==1 && (b==1 && (c==1))"), "all(a all(b c))");
        for text in
            ["", "a", "a==", "==1", "a==1 b==1", "(a==1", "a==1)", "a==\"x", "a ~ [", "a = 1", "a==1 &&"]
        {
            assert_eq!(parsed(text), None, "{text}");
        }
        let deep = |depth| format!("{}a==1{}", "(".repeat(depth), ")".repeat(depth));
        assert_eq!(parsed(&deep(DEPTH_MAX as usize - 1)).as_deref(), Some("a"));
        assert_eq!(parsed(&deep(DEPTH_MAX as usize)), None);
    }
}
