//! Shows decoded values as one line or as indented lines, and text for a terminal.

use std::borrow::Cow;

use perfx_format::read::Form;
use perfx_format::{Decoded, HexNumber, RecordType, Value, ValueFields as Fields, push_hex};

/// Options for text.
#[derive(Clone, Copy, PartialEq, Eq, Default, Debug)]
pub struct Style {
    /// True to show all bytes of `Bytes`, of any length.
    pub all_bytes: bool,
}

/// Longer `Bytes` are shortened: a build-id has 20, a hash 32.
const SHORT: usize = 32;

/// The number of bytes shown of longer ones.
const FIRST: usize = 16;

/// The fields of a decoded record or section, followed by any oddities as `odd`, a list of {code, what}.
pub fn with_odd(decoded: Decoded<'_>) -> Fields<'_> {
    let Decoded { mut fields, issues: odd, .. } = decoded;
    if !odd.is_empty() {
        let odd = odd.into_iter().map(|odd| {
            Value::Map(vec![
                ("code", Value::Name(odd.code.as_str().into())),
                ("what", Value::Name(odd.what.into())),
            ])
        });
        fields.push(("odd", Value::List(odd.collect())));
    }
    fields
}

/// `name=value` pairs separated by a space.
pub fn line(fields: &Fields<'_>, style: Style) -> String {
    made(|text| push_line(text, fields, style))
}

/// A value as in [`line()`].
pub fn value(value: &Value<'_>, style: Style) -> String {
    made(|text| push_value(text, value, style))
}

/// One `name: value` per line, each line ended by a newline; nested values follow, indented by two more
/// spaces. `depth` is the indentation of the outermost fields, in such steps.
pub fn indented(fields: &Fields<'_>, depth: usize, style: Style) -> String {
    made(|text| push_indented(text, fields, depth, false, style))
}

/// The name of a record kind, `unknown(4000)` for an unknown one.
pub fn kind_name(kind: RecordType) -> Cow<'static, str> {
    kind.name().map_or_else(|| format!("unknown({})", kind.0).into(), Cow::Borrowed)
}

/// The name of a recording's form: `file`, `pipe`, `directory (version 1)`.
pub fn form_name(form: Form) -> String {
    match form {
        Form::File => "file".to_owned(),
        Form::Pipe => "pipe".to_owned(),
        Form::Directory { version } => format!("directory (version {version})"),
    }
}

/// Text for a person, without quotes; escapes invalid UTF-8 and characters that could harm a terminal.
pub fn readable(text: &[u8]) -> String {
    made(|out| {
        for chunk in text.utf8_chunks() {
            out.extend_from_slice(printable(chunk.valid()).as_bytes());
            push_escaped(out, chunk.invalid());
        }
    })
}

/// Escapes text: names in a recording may contain terminal commands and characters that reorder others.
pub fn printable(text: &str) -> String {
    let mut out = String::with_capacity(text.len());
    for char in text.chars() {
        match is_hidden(char) {
            true => out.extend(char.escape_default()),
            false => out.push(char),
        }
    }
    out
}

/// True for controls, and for invisible characters that change the order, position or width of others.
pub fn is_hidden(char: char) -> bool {
    char.is_control()
        || matches!(
            char,
            '\u{ad}' | '\u{61c}' | '\u{180e}' | '\u{200b}'..='\u{200f}' | '\u{2028}'..='\u{202e}' | '\u{2060}'..='\u{206f}'
                | '\u{feff}' | '\u{fff9}'..='\u{fffb}' | '\u{e0000}'..='\u{e007f}'
        )
}

fn made(push: impl FnOnce(&mut Vec<u8>)) -> String {
    let mut text = Vec::new();
    push(&mut text);
    String::from_utf8(text).unwrap_or_default()
}

/// Appends [`line()`] to text, which stays UTF-8.
pub fn push_line(text: &mut Vec<u8>, fields: &Fields<'_>, style: Style) {
    for (index, (name, value)) in fields.iter().enumerate() {
        if index > 0 {
            text.push(b' ');
        }
        text.extend_from_slice(name.as_bytes());
        text.push(b'=');
        push_value(text, value, style);
    }
}

fn push_value(text: &mut Vec<u8>, value: &Value<'_>, style: Style) {
    match value {
        Value::Number(number) => push_number(text, *number),
        Value::Signed(number) => push_number(text, *number),
        Value::Hex(number) => text.extend_from_slice(HexNumber::new(*number).as_bytes()),
        // `Debug` uses an exponent where `Display` would write hundreds of zeros.
        Value::Float(number) => text.extend_from_slice(format!("{number:?}").as_bytes()),
        Value::Text(bytes) => push_text(text, bytes),
        Value::Name(name) => push_text(text, name.as_bytes()),
        Value::Bytes([]) => text.extend_from_slice(b"<0 bytes>"),
        Value::Bytes(bytes) if style.all_bytes || bytes.len() <= SHORT => push_hex(text, bytes),
        Value::Bytes(bytes) => {
            text.push(b'<');
            push_number(text, bytes.len());
            text.extend_from_slice(b" bytes ");
            push_hex(text, &bytes[..FIRST]);
            text.extend_from_slice("…>".as_bytes());
        }
        Value::List(values) => {
            text.push(b'[');
            for (index, value) in values.iter().enumerate() {
                if index > 0 {
                    text.push(b' ');
                }
                push_value(text, value, style);
            }
            text.push(b']');
        }
        Value::Map(fields) => {
            text.push(b'{');
            push_line(text, fields, style);
            text.push(b'}');
        }
    }
}

/// Appends a number in decimal.
pub fn push_number(text: &mut Vec<u8>, number: impl itoa::Integer) {
    text.extend_from_slice(itoa::Buffer::new().format(number).as_bytes());
}

fn push_text(out: &mut Vec<u8>, text: &[u8]) {
    let plain = |c: char| !c.is_whitespace() && !is_hidden(c) && c != '"';
    let is_plain = match text {
        [] => false,
        _ if text.iter().all(|&byte| byte.is_ascii_graphic() && byte != b'"') => true,
        _ => str::from_utf8(text).is_ok_and(|text| text.chars().all(plain)),
    };
    if is_plain {
        return out.extend_from_slice(text);
    }
    out.push(b'"');
    for chunk in text.utf8_chunks() {
        for c in chunk.valid().chars() {
            let mut bytes = [0; 4];
            let bytes = c.encode_utf8(&mut bytes).as_bytes();
            match c {
                '"' | '\\' => out.extend_from_slice(&[b'\\', bytes[0]]),
                c if is_hidden(c) => push_escaped(out, bytes),
                _ => out.extend_from_slice(bytes),
            }
        }
        push_escaped(out, chunk.invalid());
    }
    out.push(b'"');
}

fn push_escaped(text: &mut Vec<u8>, bytes: &[u8]) {
    for byte in bytes {
        text.extend_from_slice(b"\\x");
        push_hex(text, &[*byte]);
    }
}

/// Appends all fields, indented by `depth` steps; the first field of a list item gets a dash.
fn push_indented(text: &mut Vec<u8>, fields: &Fields<'_>, depth: usize, dash: bool, style: Style) {
    for (index, (name, value)) in fields.iter().enumerate() {
        push_margin(text, depth, dash && index == 0);
        text.extend_from_slice(name.as_bytes());
        text.push(b':');
        match value {
            Value::Map(fields) if nests(value) => {
                text.push(b'\n');
                push_indented(text, fields, depth + 1, false, style);
            }
            Value::List(values) if nests(value) => {
                text.push(b'\n');
                for value in values {
                    match value {
                        Value::Map(fields) if fields.iter().any(|(_, value)| nests(value)) => {
                            push_indented(text, fields, depth + 2, true, style);
                            continue;
                        }
                        Value::Map(fields) => {
                            push_margin(text, depth + 2, true);
                            push_line(text, fields, style);
                        }
                        value => {
                            push_margin(text, depth + 2, true);
                            push_value(text, value, style);
                        }
                    }
                    text.push(b'\n');
                }
            }
            value => {
                text.push(b' ');
                push_value(text, value, style);
                text.push(b'\n');
            }
        }
    }
}

/// Appends two spaces per step; a dash replaces the last two.
fn push_margin(text: &mut Vec<u8>, depth: usize, dash: bool) {
    let width = depth * 2;
    let mark = if dash { "- " } else { "" };
    text.extend_from_slice(format!("{mark:>width$}").as_bytes());
}

/// True if the value needs lines of its own.
fn nests(value: &Value<'_>) -> bool {
    match value {
        Value::Map(fields) => !fields.is_empty(),
        Value::List(values) => values.iter().any(nests),
        _ => false,
    }
}

#[cfg(test)]
pub(crate) mod tests {
    use super::*;
    use perfx_format::Issue;

    pub(crate) fn all() -> Fields<'static> {
        vec![
            ("pid", Value::Number(u64::MAX)),
            ("cpu", Value::Signed(-1)),
            ("addr", Value::Hex(0xffff_ffff_8100_0000)),
            ("scale", Value::Float(1e-9)),
            ("comm", Value::Text(b"perf")),
            ("flags", Value::Name("A|B".into())),
            ("id", Value::Bytes(&[0, 1, 0xfe])),
            ("ids", Value::List(vec![Value::Number(5), Value::Number(6)])),
            ("sample_id", Value::Map(vec![("time", Value::Number(7)), ("cpu", Value::Number(0))])),
            ("none", Value::List(vec![])),
            ("nothing", Value::Map(vec![])),
        ]
    }

    fn text(bytes: &[u8]) -> String {
        value(&Value::Text(bytes), Style::default())
    }

    #[test]
    fn a_line_holds_every_kind() {
        assert_eq!(
            line(&all(), Style::default()),
            "pid=18446744073709551615 cpu=-1 addr=0xffffffff81000000 scale=1e-9 comm=perf flags=A|B id=0001fe ids=[5 6] \
             sample_id={time=7 cpu=0} none=[] nothing={}"
        );
    }

    #[test]
    fn text_is_quoted_only_when_it_must_be() {
        assert_eq!(text(b"[kernel.kallsyms]_text"), "[kernel.kallsyms]_text");
        assert_eq!(text("bürn\\x".as_bytes()), "bürn\\x");
        assert_eq!(text(b""), r#""""#);
        assert_eq!(text(b"/with a space\\"), r#""/with a space\\""#);
        assert_eq!(text(b"say \"hi\""), r#""say \"hi\"""#);
        assert_eq!(text(b"new\nline\x1b[0m"), r#""new\x0aline\x1b[0m""#);
        assert_eq!(text("\u{85}é".as_bytes()), r#""\xc2\x85é""#);
        assert_eq!(text(b"a\xff\xfeb\xc3"), r#""a\xff\xfeb\xc3""#);
    }

    #[test]
    fn long_bytes_are_cut_unless_all_are_requested() {
        let show = |bytes, all_bytes| value(&Value::Bytes(bytes), Style { all_bytes });
        assert_eq!(show(&[], true), "<0 bytes>");
        assert_eq!(show(&[0xab; 32], false), "ab".repeat(32));
        assert_eq!(show(&[0xab; 33], false), format!("<33 bytes {}…>", "ab".repeat(16)));
        assert_eq!(show(&[0xab; 33], true), "ab".repeat(33));
    }

    #[test]
    fn floats_have_no_long_rows_of_zeros() {
        let show = |number| value(&Value::Float(number), Style::default());
        assert_eq!([1.0, 1e300, f64::NAN, f64::NEG_INFINITY].map(show), ["1.0", "1e300", "NaN", "-inf"]);
    }

    #[test]
    fn nested_values_are_indented() {
        let fields: Fields<'_> = vec![
            ("version", Value::Number(1)),
            ("ids", Value::List(vec![Value::Number(5), Value::Number(6)])),
            ("trailer", Value::Map(vec![("time", Value::Number(7))])),
            (
                "events",
                Value::List(vec![
                    Value::Map(vec![
                        ("attr", Value::Map(vec![("type", Value::Number(1)), ("config", Value::Hex(0))])),
                        ("name", Value::Text(b"cpu clock")),
                        ("caps", Value::List(vec![Value::Map(vec![("name", Value::Text(b"n"))])])),
                    ]),
                    Value::Map(vec![("name", Value::Text(b"cs")), ("ids", Value::List(vec![]))]),
                    Value::Number(3),
                ]),
            ),
        ];
        let expected = r#"
  version: 1
  ids: [5 6]
  trailer:
    time: 7
  events:
    - attr:
        type: 1
        config: 0x0
      name: "cpu clock"
      caps:
        - name=n
    - name=cs ids=[]
    - 3
"#;
        assert_eq!(indented(&fields, 1, Style::default()), expected[1..]);
    }

    #[test]
    fn oddities_follow_the_fields() {
        let issues =
            vec![Issue { code: perfx_format::FaultCode::SectionShort, what: "2 bytes left".to_owned() }];
        let decoded = Decoded { fields: vec![("version", Value::Number(1))], issues, ..Decoded::default() };
        assert_eq!(
            line(&with_odd(decoded), Style::default()),
            r#"version=1 odd=[{code=section-short what="2 bytes left"}]"#
        );
        assert_eq!(with_odd(Decoded::default()), vec![]);
    }
}
