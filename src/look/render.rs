//! Shows decoded values as one line or as indented lines, and text for a terminal.

use std::fmt::{self, Write};

use perfx_format::hex;
use perfx_format::read::Form;
use perfx_format::{Decoded, RecordType, Value, ValueFields as Fields};

/// Options for text.
#[derive(Clone, Copy, PartialEq, Eq, Default, Debug)]
pub struct Style {
    /// True to show all bytes of `Bytes`, however many.
    pub all_bytes: bool,
}

/// `Bytes` up to this length are shown completely: a build-id has 20, a hash 32.
const SHORT: usize = 32;

/// The number of bytes shown of longer ones.
const FIRST: usize = 16;

/// The fields of a decoded record or section, followed by its oddities, if any, as `odd`: a list of {code,
/// what}.
pub fn with_odd(decoded: Decoded<'_>) -> Fields<'_> {
    let Decoded { mut fields, issues: odd } = decoded;
    if !odd.is_empty() {
        let odd = odd.into_iter().map(|odd| {
            Value::Map(vec![("code", Value::Name(odd.code.into())), ("what", Value::Name(odd.what.into()))])
        });
        fields.push(("odd", Value::List(odd.collect())));
    }
    fields
}

/// `name=value` pairs separated by a space.
pub fn line<'v>(fields: &'v Fields<'_>, style: Style) -> impl fmt::Display + 'v {
    shown(move |f| write_pairs(f, fields, style))
}

/// A value as in [`line()`].
pub fn value<'v>(value: &'v Value<'_>, style: Style) -> impl fmt::Display + 'v {
    shown(move |f| write_value(f, value, style))
}

/// One `name: value` per line, each line ended by a newline; nested values follow, indented by two more
/// spaces. `depth` is the indentation of the outermost fields, in such steps.
pub fn indented<'v>(fields: &'v Fields<'_>, depth: usize, style: Style) -> impl fmt::Display + 'v {
    shown(move |f| write_indented(f, fields, depth, false, style))
}

/// The name of a record kind, `unknown(4000)` for an unknown one.
pub fn kind_name(kind: RecordType) -> String {
    kind.name().map_or_else(|| format!("unknown({})", kind.0), str::to_owned)
}

/// The name of a recording's form: `file`, `pipe`, `directory (version 1)`.
pub fn form_name(form: Form) -> String {
    match form {
        Form::File => "file".to_owned(),
        Form::Pipe => "pipe".to_owned(),
        Form::Directory { version } => format!("directory (version {version})"),
    }
}

/// Text for a person, without quotes; invalid UTF-8 and characters that could harm a terminal are escaped.
pub fn readable(text: &[u8]) -> String {
    let mut out = String::new();
    for chunk in text.utf8_chunks() {
        out += &printable(chunk.valid());
        // Writing to a String cannot fail.
        let _ = write_escaped(&mut out, chunk.invalid());
    }
    out
}

/// Escapes text: names in a recording can contain anything, including terminal commands and characters that
/// change the order of others.
pub fn printable(text: &str) -> String {
    let shown =
        |char: char| if is_hidden(char) { char.escape_default().to_string() } else { char.to_string() };
    text.chars().map(shown).collect()
}

/// True for control characters, and for invisible Unicode characters that change the order, position or width
/// of others.
pub fn is_hidden(char: char) -> bool {
    char.is_control()
        || matches!(
            char,
            '\u{ad}' | '\u{61c}' | '\u{180e}' | '\u{200b}'..='\u{200f}' | '\u{2028}'..='\u{202e}' | '\u{2060}'..='\u{206f}'
                | '\u{feff}' | '\u{fff9}'..='\u{fffb}' | '\u{e0000}'..='\u{e007f}'
        )
}

/// A `Display` from a function.
fn shown(write: impl Fn(&mut fmt::Formatter<'_>) -> fmt::Result) -> impl fmt::Display {
    struct Shown<F>(F);
    impl<F: Fn(&mut fmt::Formatter<'_>) -> fmt::Result> fmt::Display for Shown<F> {
        fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
            self.0(f)
        }
    }
    Shown(write)
}

fn write_pairs(f: &mut impl Write, fields: &Fields<'_>, style: Style) -> fmt::Result {
    for (index, (name, value)) in fields.iter().enumerate() {
        if index > 0 {
            f.write_char(' ')?;
        }
        write!(f, "{name}=")?;
        write_value(f, value, style)?;
    }
    Ok(())
}

fn write_value(f: &mut impl Write, value: &Value<'_>, style: Style) -> fmt::Result {
    match value {
        Value::Number(number) => write!(f, "{number}"),
        Value::Signed(number) => write!(f, "{number}"),
        Value::Hex(number) => write!(f, "{number:#x}"),
        // `Debug` uses an exponent where `Display` would write hundreds of zeros.
        Value::Float(number) => write!(f, "{number:?}"),
        Value::Text(text) => write_text(f, text),
        Value::Name(name) => write_text(f, name.as_bytes()),
        Value::Bytes([]) => f.write_str("<0 bytes>"),
        Value::Bytes(bytes) if style.all_bytes || bytes.len() <= SHORT => f.write_str(&hex(bytes)),
        Value::Bytes(bytes) => {
            write!(f, "<{} bytes ", bytes.len())?;
            f.write_str(&hex(&bytes[..FIRST]))?;
            f.write_str("…>")
        }
        Value::List(values) => {
            f.write_char('[')?;
            for (index, value) in values.iter().enumerate() {
                if index > 0 {
                    f.write_char(' ')?;
                }
                write_value(f, value, style)?;
            }
            f.write_char(']')
        }
        Value::Map(fields) => {
            f.write_char('{')?;
            write_pairs(f, fields, style)?;
            f.write_char('}')
        }
    }
}

fn write_text(f: &mut impl Write, text: &[u8]) -> fmt::Result {
    let plain = |c: char| !c.is_whitespace() && !is_hidden(c) && c != '"';
    match str::from_utf8(text) {
        Ok(text) if !text.is_empty() && text.chars().all(plain) => return f.write_str(text),
        _ => f.write_char('"')?,
    }
    for chunk in text.utf8_chunks() {
        for c in chunk.valid().chars() {
            match c {
                '"' | '\\' => write!(f, "\\{c}")?,
                c if is_hidden(c) => write_escaped(f, c.encode_utf8(&mut [0; 4]).as_bytes())?,
                c => f.write_char(c)?,
            }
        }
        write_escaped(f, chunk.invalid())?;
    }
    f.write_char('"')
}

fn write_escaped(f: &mut impl Write, bytes: &[u8]) -> fmt::Result {
    bytes.iter().try_for_each(|byte| write!(f, "\\x{byte:02x}"))
}

/// Writes all fields, indented by `depth` steps; the first one gets a dash if they are an item of a list.
fn write_indented(
    f: &mut impl Write,
    fields: &Fields<'_>,
    depth: usize,
    dash: bool,
    style: Style,
) -> fmt::Result {
    for (index, (name, value)) in fields.iter().enumerate() {
        write_margin(f, depth, dash && index == 0)?;
        write!(f, "{name}:")?;
        match value {
            Value::Map(fields) if nests(value) => {
                f.write_char('\n')?;
                write_indented(f, fields, depth + 1, false, style)?;
            }
            Value::List(values) if nests(value) => {
                f.write_char('\n')?;
                for value in values {
                    match value {
                        Value::Map(fields) if fields.iter().any(|(_, value)| nests(value)) => {
                            write_indented(f, fields, depth + 2, true, style)?;
                            continue;
                        }
                        Value::Map(fields) => {
                            write_margin(f, depth + 2, true)?;
                            write_pairs(f, fields, style)?;
                        }
                        value => {
                            write_margin(f, depth + 2, true)?;
                            write_value(f, value, style)?;
                        }
                    }
                    f.write_char('\n')?;
                }
            }
            value => {
                f.write_char(' ')?;
                write_value(f, value, style)?;
                f.write_char('\n')?;
            }
        }
    }
    Ok(())
}

/// Writes two spaces per step; a dash replaces the last two.
fn write_margin(f: &mut impl Write, depth: usize, dash: bool) -> fmt::Result {
    let width = depth * 2;
    let mark = if dash { "- " } else { "" };
    write!(f, "{mark:>width$}")
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

    /// One value of each kind.
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
        value(&Value::Text(bytes), Style::default()).to_string()
    }

    #[test]
    fn a_line_holds_every_kind() {
        assert_eq!(
            line(&all(), Style::default()).to_string(),
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
    fn long_bytes_are_cut_unless_all_are_asked_for() {
        let show = |bytes, all_bytes| value(&Value::Bytes(bytes), Style { all_bytes }).to_string();
        assert_eq!(show(&[], true), "<0 bytes>");
        assert_eq!(show(&[0xab; 32], false), "ab".repeat(32));
        assert_eq!(show(&[0xab; 33], false), format!("<33 bytes {}…>", "ab".repeat(16)));
        assert_eq!(show(&[0xab; 33], true), "ab".repeat(33));
    }

    #[test]
    fn floats_have_no_long_rows_of_zeros() {
        let show = |number| value(&Value::Float(number), Style::default()).to_string();
        assert_eq!([1.0, 1e300, f64::NAN, f64::NEG_INFINITY].map(show), ["1.0", "1e300", "NaN", "-inf"]);
    }

    #[test]
    fn what_is_inside_stands_further_in() {
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
        assert_eq!(indented(&fields, 1, Style::default()).to_string(), expected[1..]);
    }

    #[test]
    fn oddities_follow_the_fields() {
        let issues = vec![Issue { code: "section-short", what: "2 bytes left".to_owned() }];
        let decoded = Decoded { fields: vec![("version", Value::Number(1))], issues };
        assert_eq!(
            line(&with_odd(decoded), Style::default()).to_string(),
            r#"version=1 odd=[{code=section-short what="2 bytes left"}]"#
        );
        assert_eq!(with_odd(Decoded::default()), vec![]);
    }
}
