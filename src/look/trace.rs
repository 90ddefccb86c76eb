//! Shows the raw data of tracepoints as `perf script` does: by the print format of the recorded kernel, a
//! format of printf with C expressions.

use std::collections::HashSet;
use std::net::Ipv6Addr;

use perfx_format::header::Features;
use perfx_format::tracepoint::{NamedField, TraceFieldKind, TraceFormat, TraceValue};
use perfx_format::{ByTracepoint, Endian, Event, hex, until_nul};

use crate::render::readable;

/// Maximum length of a format, bytes; the text of a sample takes time in proportion to it.
const FORMAT_MAX: usize = 1 << 14;

/// Maximum depth of an expression, and maximum number of its operators.
const DEPTH_MAX: u32 = 64;
const OPERATORS_MAX: usize = 1 << 10;

/// Maximum length of the text of a sample, bytes, and maximum width of a number.
const TEXT_MAX: usize = 1 << 16;
const WIDTH_MAX: usize = 256;

/// A value as text.
pub fn value_text(value: TraceValue<'_>) -> String {
    match value {
        TraceValue::Signed(number) => number.to_string(),
        TraceValue::Unsigned(number) => number.to_string(),
        TraceValue::Pointer(number) => format!("{number:#x}"),
        TraceValue::Text(bytes) => {
            let text = until_nul(bytes);
            match str::from_utf8(text).is_ok_and(|text| !text.contains(char::is_control)) {
                true => readable(text),
                false => hex(bytes),
            }
        }
        TraceValue::Bytes(bytes) => hex(bytes),
    }
}

/// The printers of all tracepoints whose format is in the recording.
pub fn printers<'t>(
    events: &[Event],
    features: &'t Features,
    endian: Endian,
) -> ByTracepoint<TracePrinter<'t>> {
    ByTracepoint::new(events, features, endian, |format| TracePrinter::new(format, endian))
}

/// Shows the samples of a tracepoint.
#[derive(Clone, Debug)]
pub struct TracePrinter<'t> {
    fields: Vec<NamedField<'t>>,
    /// The parts of the text; the error is the reason why the format can't be used.
    parts: Result<Vec<TextPart>, String>,
    endian: Endian,
}

#[derive(Clone, Debug)]
enum TextPart {
    Literal(String),
    Number { width: Width, bits: u32, style: Style, of: Expr },
    Text { width: Width, of: Expr },
}

#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum Style {
    Signed,
    Unsigned,
    Hex { upper: bool },
    Octal,
    Char,
    Pointer,
}

/// Flags, width and precision of a format.
#[derive(Clone, Copy, Default, Debug)]
struct Width {
    left: bool,
    zeros: bool,
    alternate: bool,
    plus: bool,
    space: bool,
    width: usize,
    precision: Option<usize>,
}

#[derive(Clone, Debug)]
enum Expr {
    Number(i64),
    Text(String),
    /// A field by its index, and the index of the number in it.
    Field(usize, Option<Box<Expr>>),
    Unary(u8, Box<Expr>),
    Binary(&'static str, Box<[Expr; 2]>),
    Either(Box<[Expr; 3]>),
    Cast {
        bytes: usize,
        signed: bool,
        of: Box<Expr>,
    },
    /// `__print_flags`: the names of the set bits, with a separator.
    Flags(Box<Expr>, String, Vec<(i64, String)>),
    /// `__print_symbolic`: the name of a number.
    Symbolic(Box<Expr>, Vec<(i64, String)>),
    /// `%pI4` and others: the bytes of a field.
    Bytes(usize, Notation),
}

/// How the kernel's printf shows bytes.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum Notation {
    Ipv4 { zeros: bool, order: Order },
    Ipv6 { colons: bool },
    ShortIpv6,
    Mac { between: &'static str, reversed: bool },
    Uuid { little_endian: bool, upper: bool },
}

/// The order of the bytes of an address.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum Order {
    Network,
    Little,
    /// The byte order of the recorded machine.
    Host,
}

/// The suffixes of `%p` in formats that show bytes; longer ones before their prefixes.
const NOTATIONS: [(&str, Notation); 23] = {
    use Notation::{Ipv4, Ipv6, Mac, ShortIpv6, Uuid};
    use Order::{Host, Little, Network};
    [
        ("I4h", Ipv4 { zeros: false, order: Host }),
        ("I4l", Ipv4 { zeros: false, order: Little }),
        ("I4n", Ipv4 { zeros: false, order: Network }),
        ("I4b", Ipv4 { zeros: false, order: Network }),
        ("I4", Ipv4 { zeros: false, order: Network }),
        ("i4h", Ipv4 { zeros: true, order: Host }),
        ("i4l", Ipv4 { zeros: true, order: Little }),
        ("i4n", Ipv4 { zeros: true, order: Network }),
        ("i4b", Ipv4 { zeros: true, order: Network }),
        ("i4", Ipv4 { zeros: true, order: Network }),
        ("I6c", ShortIpv6),
        ("I6", Ipv6 { colons: true }),
        ("i6", Ipv6 { colons: false }),
        ("MF", Mac { between: "-", reversed: false }),
        ("MR", Mac { between: ":", reversed: true }),
        ("M", Mac { between: ":", reversed: false }),
        ("mR", Mac { between: "", reversed: true }),
        ("m", Mac { between: "", reversed: false }),
        ("Ub", Uuid { little_endian: false, upper: false }),
        ("UB", Uuid { little_endian: false, upper: true }),
        ("Ul", Uuid { little_endian: true, upper: false }),
        ("UL", Uuid { little_endian: true, upper: true }),
        ("U", Uuid { little_endian: false, upper: false }),
    ]
};

impl Notation {
    /// The text of these bytes; `None` if their number is wrong.
    fn text(self, bytes: &[u8], endian: Endian) -> Option<String> {
        let joined = |bytes: &[u8], between: &str| {
            bytes.iter().map(|byte| format!("{byte:02x}")).collect::<Vec<_>>().join(between)
        };
        Some(match self {
            Notation::Ipv4 { zeros, order } => {
                let mut address = *<&[u8; 4]>::try_from(bytes).ok()?;
                if order == Order::Little || order == Order::Host && endian == Endian::Little {
                    address.reverse();
                }
                let [a, b, c, d] = address;
                if zeros { format!("{a:03}.{b:03}.{c:03}.{d:03}") } else { format!("{a}.{b}.{c}.{d}") }
            }
            Notation::ShortIpv6 => Ipv6Addr::from(*<&[u8; 16]>::try_from(bytes).ok()?).to_string(),
            Notation::Ipv6 { colons } => {
                let words = <&[u8; 16]>::try_from(bytes).ok()?.as_chunks::<2>().0;
                let words: Vec<String> = words.iter().map(|word| joined(word, "")).collect();
                words.join(if colons { ":" } else { "" })
            }
            Notation::Mac { between, reversed } => {
                let mut address = *<&[u8; 6]>::try_from(bytes).ok()?;
                if reversed {
                    address.reverse();
                }
                joined(&address, between)
            }
            Notation::Uuid { little_endian, upper } => {
                let mut id = *<&[u8; 16]>::try_from(bytes).ok()?;
                if little_endian {
                    [0..4, 4..6, 6..8].into_iter().for_each(|part| id[part].reverse());
                }
                let parts = [0..4, 4..6, 6..8, 8..10, 10..16].map(|part| joined(&id[part], ""));
                let text = parts.join("-");
                if upper { text.to_uppercase() } else { text }
            }
        })
    }
}

impl<'t> TracePrinter<'t> {
    /// A printer for samples of this tracepoint, in recordings of this byte order.
    pub fn new(format: &TraceFormat<'t>, endian: Endian) -> TracePrinter<'t> {
        // A kernel names fields once, but damaged formats may not; tables refuse duplicates.
        let mut known = HashSet::new();
        let named = format.fields().filter(|field| known.insert(field.name));
        let fields: Vec<NamedField<'t>> = named.collect();
        let text = str::from_utf8(format.text).ok().and_then(|text| text.split_once("print fmt:"));
        let parts = match text {
            Some((_, text)) if text.len() <= FORMAT_MAX => parse(text, &fields),
            Some(_) => Err("the format is too long".to_owned()),
            None => Err("there is no format".to_owned()),
        };
        TracePrinter { fields, parts, endian }
    }

    /// The reason why the kernel's print format can't be used, so that each field is shown with its name.
    pub fn why_by_field(&self) -> Option<&str> {
        self.parts.as_ref().err().map(String::as_str)
    }

    /// The text of a sample with this raw data.
    pub fn text(&self, raw: &[u8]) -> String {
        let mut text = String::new();
        if let Ok(parts) = &self.parts {
            let values = Values { fields: &self.fields, raw, endian: self.endian };
            if parts.iter().try_for_each(|part| values.part(part, &mut text)).is_some() {
                return text;
            }
            text.clear();
        }
        for (name, value) in self.values(raw) {
            let space = if text.is_empty() { "" } else { " " };
            text += &format!("{space}{name}={value}");
            if text.len() > TEXT_MAX {
                break;
            }
        }
        text
    }

    /// The names and values of the fields that only this tracepoint has, up to the end of the raw data;
    /// several numbers as a list. Ends when the values exceed 64 KiB.
    pub fn values<'r>(&'r self, raw: &'r [u8]) -> impl Iterator<Item = (&'t str, String)> + use<'r, 't> {
        let own = self.fields.iter().filter(|field| !field.is_common());
        let mut bytes = 0;
        let values = own.filter_map(|field| Some((field.name, self.value(field, raw)?)));
        values.take_while(move |(_, value)| {
            let before = bytes;
            bytes += value.len();
            before <= TEXT_MAX
        })
    }

    fn value(&self, field: &NamedField<'_>, raw: &[u8]) -> Option<String> {
        let value = field.value(raw, self.endian)?;
        if field.kind != TraceFieldKind::Numbers || field.number_size == field.field.size {
            return Some(value_text(value));
        }
        let numbers = (0..).map_while(|index| field.number(index, raw, self.endian));
        let numbers: Vec<String> = numbers.take(TEXT_MAX / 2).map(value_text).collect();
        // Numbers of, say, 3 bytes.
        if numbers.is_empty() { Some(value_text(value)) } else { Some(format!("[{}]", numbers.join(", "))) }
    }
}

struct Values<'a> {
    fields: &'a [NamedField<'a>],
    raw: &'a [u8],
    endian: Endian,
}

impl Values<'_> {
    /// Adds a part; `None` if the raw data lacks a field, or the text is too long.
    fn part(&self, part: &TextPart, out: &mut String) -> Option<()> {
        match part {
            TextPart::Literal(text) => out.push_str(text),
            TextPart::Text { width, of } => {
                let mut text = String::new();
                self.text(of, &mut text)?;
                if let Some(precision) = width.precision {
                    text = text.chars().take(precision).collect();
                }
                padded(out, &text, *width);
            }
            TextPart::Number { width, bits, style, of } => {
                let unused = 64 - bits;
                let number = self.number(of)?;
                let unsigned = number.cast_unsigned() << unused >> unused;
                let signed = number << unused >> unused;
                let sign = match (signed < 0, width.plus, width.space) {
                    (true, ..) => "-",
                    (false, true, _) => "+",
                    (false, false, true) => " ",
                    _ => "",
                };
                let prefix = |text| if width.alternate && unsigned != 0 { text } else { "" };
                let (prefix, digits) = match style {
                    Style::Signed => (sign, signed.unsigned_abs().to_string()),
                    Style::Unsigned => ("", unsigned.to_string()),
                    Style::Hex { upper: false } => (prefix("0x"), format!("{unsigned:x}")),
                    Style::Hex { upper: true } => (prefix("0X"), format!("{unsigned:X}")),
                    Style::Octal => (prefix("0"), format!("{unsigned:o}")),
                    Style::Char => ("", readable(&[unsigned as u8])),
                    Style::Pointer if number == 0 => ("", "(nil)".to_owned()),
                    Style::Pointer => ("0x", format!("{unsigned:x}")),
                };
                let wanted = match width.precision {
                    Some(precision) => precision,
                    None if width.zeros && !width.left => width.width.saturating_sub(prefix.len()),
                    None => 0,
                };
                let zeros = "0".repeat(wanted.saturating_sub(digits.len()));
                padded(out, &format!("{prefix}{zeros}{digits}"), *width);
            }
        }
        (out.len() <= TEXT_MAX).then_some(())
    }

    fn text(&self, of: &Expr, out: &mut String) -> Option<()> {
        match of {
            Expr::Text(text) => out.push_str(text),
            Expr::Field(field, None) => {
                out.push_str(&readable(self.fields[*field].value(self.raw, self.endian)?.text()?));
            }
            Expr::Bytes(field, notation) => match self.fields[*field].value(self.raw, self.endian)? {
                TraceValue::Text(bytes) | TraceValue::Bytes(bytes) => {
                    *out += &notation.text(bytes, self.endian)?
                }
                _ => return None,
            },
            Expr::Either(parts) => {
                let [condition, yes, no] = &**parts;
                return self.text(if self.number(condition)? != 0 { yes } else { no }, out);
            }
            Expr::Flags(value, between, names) => {
                let (mut value, before) = (self.number(value)?, out.len());
                let zero = names.iter().find(|(flag, _)| value == 0 && *flag == 0);
                out.push_str(zero.map_or("", |(_, name)| name));
                for (flag, name) in names.iter().filter(|(flag, _)| *flag != 0) {
                    if value & flag == *flag {
                        out.push_str(if out.len() > before { between } else { "" });
                        out.push_str(name);
                        value &= !flag;
                    }
                }
                if value != 0 {
                    out.push_str(if out.len() > before { between } else { "" });
                    *out += &format!("{value:#x}");
                }
            }
            Expr::Symbolic(value, names) => {
                let value = self.number(value)?;
                match names.iter().find(|(number, _)| *number == value) {
                    Some((_, name)) => out.push_str(name),
                    None => *out += &format!("{value:#x}"),
                }
            }
            _ => return None,
        }
        (out.len() <= TEXT_MAX).then_some(())
    }

    /// The value of an expression, 64 bits as in perf.
    fn number(&self, of: &Expr) -> Option<i64> {
        Some(match of {
            Expr::Number(number) => *number,
            Expr::Field(field, at) => {
                let field = &self.fields[*field];
                let index = at.as_ref().map_or(Some(0), |at| usize::try_from(self.number(at)?).ok())?;
                match field.number(index, self.raw, self.endian)? {
                    // perf ignores the sign of fields.
                    TraceValue::Signed(number) => {
                        let unused = 64 - 8 * field.number_size as u32;
                        (number.cast_unsigned() << unused >> unused).cast_signed()
                    }
                    TraceValue::Unsigned(number) | TraceValue::Pointer(number) => number.cast_signed(),
                    TraceValue::Text(_) | TraceValue::Bytes(_) => return None,
                }
            }
            Expr::Unary(sign, of) => {
                let number = self.number(of)?;
                match sign {
                    b'-' => number.wrapping_neg(),
                    b'~' => !number,
                    b'!' => i64::from(number == 0),
                    _ => number,
                }
            }
            Expr::Binary(sign, sides) => binary(sign, self.number(&sides[0])?, self.number(&sides[1])?)?,
            Expr::Either(parts) => {
                let [condition, yes, no] = &**parts;
                self.number(if self.number(condition)? != 0 { yes } else { no })?
            }
            Expr::Cast { bytes, signed, of } => {
                let (number, unused) = (self.number(of)?, 64 - 8 * *bytes as u32);
                match signed {
                    true => number << unused >> unused,
                    false => (number.cast_unsigned() << unused >> unused).cast_signed(),
                }
            }
            Expr::Text(_) | Expr::Flags(..) | Expr::Symbolic(..) | Expr::Bytes(..) => return None,
        })
    }
}

fn binary(sign: &str, left: i64, right: i64) -> Option<i64> {
    let shift = u32::try_from(right).ok().filter(|&by| by < 64);
    Some(match sign {
        "*" => left.wrapping_mul(right),
        "/" => left.checked_div(right)?,
        "%" => left.checked_rem(right)?,
        "+" => left.wrapping_add(right),
        "-" => left.wrapping_sub(right),
        "<<" => left << shift?,
        ">>" => (left.cast_unsigned() >> shift?).cast_signed(),
        "<" => i64::from(left < right),
        ">" => i64::from(left > right),
        "<=" => i64::from(left <= right),
        ">=" => i64::from(left >= right),
        "==" => i64::from(left == right),
        "!=" => i64::from(left != right),
        "&" => left & right,
        "^" => left ^ right,
        "|" => left | right,
        "&&" => i64::from(left != 0 && right != 0),
        _ => i64::from(left != 0 || right != 0),
    })
}

fn padded(out: &mut String, text: &str, width: Width) {
    let blanks = " ".repeat(width.width.saturating_sub(text.chars().count()));
    match width.left {
        true => *out += &format!("{text}{blanks}"),
        false => *out += &format!("{blanks}{text}"),
    }
}

/// The binary operators of C, the highest precedence first; longer ones before their prefixes.
const OPERATORS: [&[&str]; 10] = [
    &["*", "/", "%"],
    &["+", "-"],
    &["<<", ">>"],
    &["<=", ">=", "<", ">"],
    &["==", "!="],
    &["&"],
    &["^"],
    &["|"],
    &["&&"],
    &["||"],
];

/// Parses a print format.
struct Parser<'p> {
    rest: &'p str,
    fields: &'p [NamedField<'p>],
    /// The number of operators in the current value.
    operators: usize,
}

fn parse(text: &str, fields: &[NamedField<'_>]) -> Result<Vec<TextPart>, String> {
    let mut parser = Parser { rest: text, fields, operators: 0 };
    let format = parser.string()?;
    let mut args = Vec::new();
    while parser.takes(",") {
        parser.operators = 0;
        args.push(parser.expr(0)?);
    }
    match parser.rest.trim() {
        "" => split(&format, args, fields),
        rest => Err(format!("`{}` is not understood", first(rest))),
    }
}

/// The beginning of a text, for a message.
fn first(text: &str) -> String {
    let word: String = text.chars().take(20).take_while(|letter| !letter.is_whitespace()).collect();
    readable(word.as_bytes())
}

fn split(format: &str, args: Vec<Expr>, fields: &[NamedField<'_>]) -> Result<Vec<TextPart>, String> {
    let (mut parts, mut args) = (Vec::new(), args.into_iter());
    let mut rest = format;
    while let Some(at) = rest.find('%') {
        let (before, from) = rest.split_at(at);
        if !before.is_empty() {
            parts.push(TextPart::Literal(before.to_owned()));
        }
        rest = &from[1..];
        if let Some(after) = rest.strip_prefix('%') {
            parts.push(TextPart::Literal("%".to_owned()));
            rest = after;
            continue;
        }
        let unknown = || format!("`{}` is not known", first(from));
        let mut width = Width::default();
        let flags = rest.len() - rest.trim_start_matches(['-', '0', '#', '+', ' ']).len();
        for flag in rest[..flags].chars() {
            match flag {
                '-' => width.left = true,
                '0' => width.zeros = true,
                '#' => width.alternate = true,
                '+' => width.plus = true,
                _ => width.space = true,
            }
        }
        rest = &rest[flags..];
        width.width = digits(&mut rest).unwrap_or(0);
        if let Some(after) = rest.strip_prefix('.') {
            rest = after;
            width.precision = Some(digits(&mut rest).unwrap_or(0));
        }
        if width.width.max(width.precision.unwrap_or(0)) > WIDTH_MAX {
            return Err(unknown());
        }
        let length = rest.len() - rest.trim_start_matches(['h', 'l', 'L', 'z', 't', 'q', 'j']).len();
        let bits = match &rest[..length] {
            "" => 32,
            "h" => 16,
            "hh" => 8,
            _ => 64,
        };
        let mut after = rest[length..].chars();
        let letter = after.next().ok_or_else(unknown)?;
        rest = after.as_str();
        let mut of = args.next().ok_or("it has too few values")?;
        let notation = NOTATIONS.iter().find(|(suffix, _)| letter == 'p' && rest.starts_with(suffix));
        if let (Some((suffix, notation)), Expr::Field(field, None)) = (notation, &of) {
            rest = &rest[suffix.len()..];
            of = Expr::Bytes(*field, *notation);
            parts.push(TextPart::Text { width, of });
            continue;
        }
        let style = match letter {
            's' => {
                if !of.is_text(fields) {
                    return Err("a string is given by its address".to_owned());
                }
                parts.push(TextPart::Text { width, of });
                continue;
            }
            'd' | 'i' => Style::Signed,
            'u' => Style::Unsigned,
            'x' => Style::Hex { upper: false },
            'X' => Style::Hex { upper: true },
            'o' => Style::Octal,
            'c' => Style::Char,
            // %pS and similar formats look up an address.
            'p' if !rest.starts_with(|letter: char| letter.is_ascii_alphanumeric()) => Style::Pointer,
            _ => return Err(unknown()),
        };
        let bits = if style == Style::Pointer { 64 } else { bits };
        parts.push(TextPart::Number { width, bits, style, of });
    }
    if !rest.is_empty() {
        parts.push(TextPart::Literal(rest.to_owned()));
    }
    Ok(parts)
}

fn digits(rest: &mut &str) -> Option<usize> {
    let count = rest.len() - rest.trim_start_matches(|digit: char| digit.is_ascii_digit()).len();
    let (number, after) = rest.split_at(count);
    *rest = after;
    if number.is_empty() { None } else { Some(number.parse().unwrap_or(usize::MAX)) }
}

impl Expr {
    fn is_text(&self, fields: &[NamedField<'_>]) -> bool {
        match self {
            Expr::Text(_) | Expr::Flags(..) | Expr::Symbolic(..) | Expr::Bytes(..) => true,
            Expr::Either(parts) => parts[1].is_text(fields) && parts[2].is_text(fields),
            Expr::Field(field, None) => {
                matches!(fields[*field].kind, TraceFieldKind::Bytes | TraceFieldKind::Located { .. })
            }
            _ => false,
        }
    }
}

impl<'p> Parser<'p> {
    fn takes(&mut self, sign: &str) -> bool {
        self.rest = self.rest.trim_start();
        match self.rest.strip_prefix(sign) {
            Some(rest) => {
                self.rest = rest;
                true
            }
            None => false,
        }
    }

    fn must(&mut self, sign: &str) -> Result<(), String> {
        match self.takes(sign) {
            true => Ok(()),
            false => Err(format!("`{}` is not understood", first(self.rest))),
        }
    }

    /// A name; empty if there is none.
    fn word(&mut self) -> &'p str {
        self.rest = self.rest.trim_start();
        let is_part = |letter: char| letter.is_ascii_alphanumeric() || letter == '_';
        let (word, rest) = self.rest.split_at(self.rest.len() - self.rest.trim_start_matches(is_part).len());
        self.rest = rest;
        word
    }

    /// Adjacent string literals.
    fn string(&mut self) -> Result<String, String> {
        let mut text = String::new();
        self.must("\"")?;
        loop {
            let mut letters = self.rest.chars();
            match letters.next().ok_or("a string is not terminated")? {
                '"' => {
                    self.rest = letters.as_str();
                    if !self.takes("\"") {
                        return Ok(text);
                    }
                    continue;
                }
                '\\' => match letters.next().ok_or("a string is not terminated")? {
                    'n' => text.push('\n'),
                    't' => text.push('\t'),
                    other => text.push(other),
                },
                letter => text.push(letter),
            }
            self.rest = letters.as_str();
        }
    }

    /// An expression; `depth` is its nesting depth.
    fn expr(&mut self, depth: u32) -> Result<Expr, String> {
        let condition = self.operation(OPERATORS.len(), depth + 1)?;
        if !self.takes("?") {
            return Ok(condition);
        }
        let yes = self.expr(depth + 1)?;
        self.must(":")?;
        let no = self.expr(depth + 1)?;
        Ok(Expr::Either(Box::new([condition, yes, no])))
    }

    /// Operands with the operators of the first `levels` precedence levels.
    fn operation(&mut self, levels: usize, depth: u32) -> Result<Expr, String> {
        let Some(level) = levels.checked_sub(1) else { return self.value(depth) };
        let mut left = self.operation(level, depth)?;
        while let Some(sign) = self.operator(OPERATORS[level]) {
            let right = self.operation(level, depth)?;
            left = Expr::Binary(sign, Box::new([left, right]));
            self.operators += 1;
            if self.operators > OPERATORS_MAX {
                return Err("it has too many operators".to_owned());
            }
        }
        Ok(left)
    }

    fn operator(&mut self, of: &[&'static str]) -> Option<&'static str> {
        self.rest = self.rest.trim_start();
        let found = *of.iter().find(|sign| self.rest.starts_with(**sign))?;
        // `&` is not `&&`, nor `<` the beginning of `<<`.
        let longer = ["&&", "||", "<<", ">>"]
            .iter()
            .any(|sign| sign.len() > found.len() && sign.starts_with(found) && self.rest.starts_with(sign));
        if longer {
            return None;
        }
        self.rest = &self.rest[found.len()..];
        Some(found)
    }

    fn value(&mut self, depth: u32) -> Result<Expr, String> {
        if depth > DEPTH_MAX {
            return Err("its expressions are nested too deeply".to_owned());
        }
        self.rest = self.rest.trim_start();
        for sign in *b"-~!+" {
            if self.rest.as_bytes().first() == Some(&sign) {
                self.rest = &self.rest[1..];
                return Ok(Expr::Unary(sign, Box::new(self.value(depth + 1)?)));
            }
        }
        if self.rest.starts_with('"') {
            return self.string().map(Expr::Text);
        }
        if let Some(rest) = self.rest.strip_prefix('\'') {
            let mut letters = rest.chars();
            let letter = letters.next().filter(|letter| *letter != '\\').ok_or("a character is missing")?;
            self.rest = letters.as_str();
            self.must("'")?;
            return Ok(Expr::Number(i64::from(u32::from(letter))));
        }
        if self.takes("(") {
            if let Some((bytes, signed)) = self.cast() {
                return Ok(Expr::Cast { bytes, signed, of: Box::new(self.value(depth + 1)?) });
            }
            let inner = self.expr(depth + 1)?;
            self.must(")")?;
            return Ok(inner);
        }
        match self.word() {
            "REC" => {
                self.must("->")?;
                let field = self.field()?;
                if !self.takes("[") {
                    return Ok(Expr::Field(field, None));
                }
                let index = self.expr(depth + 1)?;
                self.must("]")?;
                Ok(Expr::Field(field, Some(Box::new(index))))
            }
            "__get_str" | "__get_rel_str" => {
                self.must("(")?;
                let field = self.field()?;
                self.must(")")?;
                Ok(Expr::Field(field, None))
            }
            "__print_flags" => {
                self.must("(")?;
                let value = self.expr(depth + 1)?;
                self.must(",")?;
                let between = self.string()?;
                Ok(Expr::Flags(Box::new(value), between, self.names(depth)?))
            }
            "__print_symbolic" => {
                self.must("(")?;
                let value = self.expr(depth + 1)?;
                Ok(Expr::Symbolic(Box::new(value), self.names(depth)?))
            }
            number if number.starts_with(|digit: char| digit.is_ascii_digit()) => {
                let digits = number.trim_end_matches(['u', 'U', 'l', 'L']);
                let parsed = match (digits.strip_prefix("0x").or(digits.strip_prefix("0X")), digits) {
                    (Some(hex), _) => u64::from_str_radix(hex, 16),
                    (None, octal) if octal.len() > 1 && octal.starts_with('0') => {
                        u64::from_str_radix(octal, 8)
                    }
                    (None, decimal) => decimal.parse(),
                };
                let parsed = parsed.map_err(|_| format!("`{}` is not a number", first(number)))?;
                Ok(Expr::Number(parsed.cast_signed()))
            }
            "" => Err(format!("`{}` is not understood", first(self.rest))),
            other => Err(format!("`{}` is not understood", first(other))),
        }
    }

    fn field(&mut self) -> Result<usize, String> {
        let name = self.word();
        let found = self.fields.iter().position(|field| field.name == name);
        found.ok_or_else(|| format!("it names no field `{}`", first(name)))
    }

    /// The type of a cast, without the parenthesis before it: its size, and true if signed.
    fn cast(&mut self) -> Option<(usize, bool)> {
        let (inner, rest) = self.rest.split_once(')')?;
        let is_type = |letter: char| letter.is_ascii_alphanumeric() || matches!(letter, '_' | ' ' | '*');
        let words: Vec<&str> = inner.split([' ', '*']).filter(|word| !word.is_empty()).collect();
        let starts = words.first()?.starts_with(|letter: char| letter.is_ascii_alphabetic() || letter == '_');
        if !starts || !inner.chars().all(is_type) {
            return None;
        }
        self.rest = rest;
        let has = |word: &str| words.contains(&word);
        let unsigned =
            has("unsigned") || has("bool") || words.iter().any(|word| word.starts_with(['u', 'U']));
        let bytes = match words.iter().map(|word| word.trim_start_matches("__")).collect::<Vec<_>>()[..] {
            _ if inner.contains('*') => return Some((8, false)),
            _ if has("char") || has("bool") => 1,
            _ if has("short") => 2,
            _ if has("long") => 8,
            _ if has("int") || has("unsigned") => 4,
            ["u8" | "s8"] => 1,
            ["u16" | "s16"] => 2,
            ["u32" | "s32"] => 4,
            _ => 8,
        };
        let signed = !unsigned && !words.iter().any(|word| word.trim_start_matches("__").starts_with('u'));
        Some((bytes, signed))
    }

    /// Numbers with their names, `, { 1, "ONE" }, …)`.
    fn names(&mut self, depth: u32) -> Result<Vec<(i64, String)>, String> {
        let mut names = Vec::new();
        let before = self.operators;
        let nothing = Values { fields: &[], raw: &[], endian: Endian::Little };
        while self.takes(",") {
            self.must("{")?;
            // Only its value is kept.
            self.operators = 0;
            let number = self.expr(depth + 1)?;
            self.must(",")?;
            let name = self.string()?;
            self.must("}")?;
            names.push((nothing.number(&number).ok_or("the number of a name is not one")?, name));
        }
        self.operators = before;
        self.must(")")?;
        Ok(names)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const FIELDS: &str = "name: made\nID: 1\nformat:\n\
        \tfield:unsigned short common_type;\toffset:0;\tsize:2;\tsigned:0;\n\n\
        \tfield:char comm[8];\toffset:8;\tsize:8;\tsigned:0;\n\
        \tfield:int pid;\toffset:16;\tsize:4;\tsigned:1;\n\
        \tfield:__data_loc char[] text;\toffset:20;\tsize:4;\tsigned:0;\n\
        \tfield:unsigned long args[2];\toffset:24;\tsize:16;\tsigned:0;\n\
        \tfield:void * ptr;\toffset:40;\tsize:8;\tsigned:0;\n\n\
        print fmt: ";

    /// Raw data with comm `sh`, pid -2, text `hi`, args 5 and 0x10, ptr 0.
    fn raw() -> Vec<u8> {
        let mut raw = vec![0; 51];
        raw[8..10].copy_from_slice(b"sh");
        raw[16..20].copy_from_slice(&(-2i32).to_le_bytes());
        raw[20..24].copy_from_slice(&(3u32 << 16 | 48).to_le_bytes());
        raw[24] = 5;
        raw[32] = 0x10;
        raw[48..50].copy_from_slice(b"hi");
        raw
    }

    fn shown(print_fmt: &str) -> Result<String, String> {
        let text = format!("{FIELDS}{print_fmt}\n");
        let format = TraceFormat { system: b"s", name: b"made", id: Some(1), text: text.as_bytes() };
        let printer = TracePrinter::new(&format, Endian::Little);
        let shown = printer.text(&raw());
        match printer.why_by_field() {
            Some(why) => Err(format!("{why}; {shown}")),
            None => Ok(shown),
        }
    }

    #[test]
    fn expressions_of_c_are_evaluated() {
        for (format, text) in [
            (r#""%s %d", REC->comm, REC->pid"#, "sh -2"),
            (r#""%s|%5s|%-5s|%.1s|", __get_str(text), REC->comm, REC->comm, REC->comm"#, "hi|   sh|sh   |s|"),
            (r#""%u %x %ld", REC->pid, REC->pid, REC->pid"#, "4294967294 fffffffe 4294967294"),
            (r#""%08lx %#lx %lu%%", REC->args[1], REC->args[1], REC->args[0] * 2 + 1"#, "00000010 0x10 11%"),
            (r#""%p %p", REC->ptr, (void *)REC->args[1]"#, "(nil) 0x10"),
            (r#""%s", REC->args[0] & 4 ? "yes" : "no""#, "yes"),
            (
                r#""%s", __print_flags(REC->args[0], "|", { 1, "A" }, { (1 << 1), "B" }, { 0x4UL, "C" })"#,
                "A|C",
            ),
            (r#""%s", __print_flags(REC->args[1], "|", { 1, "A" })"#, "0x10"),
            (
                r#""%s %s", __print_symbolic(REC->args[0], { 5, "FIVE" }), __print_symbolic(REC->pid, { 5, "FIVE" })"#,
                "FIVE 0xfffffffe",
            ),
            (r#""%d %d", (u8)REC->pid, (int)REC->pid < 0"#, "254 1"),
            (r#""a" "b\n""#, "ab\n"),
            (r#""%d", 1 + 2 * 3 == 7 && !0 || 0"#, "1"),
            (r#""%c%+d% d%03d", 'x', 1, 2, 3"#, "x+1 2003"),
        ] {
            assert_eq!(shown(format).as_deref(), Ok(text), "{format}");
        }
    }

    #[test]
    fn addresses_and_ids_are_shown_as_by_the_kernels_printf() {
        let lines = [("ip", 4), ("ip6", 16), ("mac", 6)].map(|(name, size)| {
            format!("\tfield:__u8 {name}[{size}];\toffset:8;\tsize:{size};\tsigned:0;\n")
        });
        let shown = |format: &str, bytes: &[u8]| {
            let text = format!("name: made\nID: 1\nformat:\n{}\nprint fmt: {format}\n", lines.concat());
            let format = TraceFormat { system: b"s", name: b"made", id: Some(1), text: text.as_bytes() };
            let printer = TracePrinter::new(&format, Endian::Little);
            let raw = [&[0; 8], bytes].concat();
            match printer.why_by_field() {
                Some(why) => why.to_owned(),
                None => printer.text(&raw),
            }
        };
        let bytes: Vec<u8> = (0..16).map(|byte| byte * 17).collect();
        for (format, text) in [
            (r#""%pI4|%pi4", REC->ip, REC->ip"#, "0.17.34.51|000.017.034.051"),
            // The letter was text.
            (
                r#""%pI4h|%pI4l|%pI4n|%pI4b|%pi4h", REC->ip, REC->ip, REC->ip, REC->ip, REC->ip"#,
                "51.34.17.0|51.34.17.0|0.17.34.51|0.17.34.51|051.034.017.000",
            ),
            (r#""%pmR", REC->mac"#, "554433221100"),
            (r#""%pI6", REC->ip6"#, "0011:2233:4455:6677:8899:aabb:ccdd:eeff"),
            (r#""%pi6", REC->ip6"#, "00112233445566778899aabbccddeeff"),
            (r#""%pI6c", REC->ip6"#, "11:2233:4455:6677:8899:aabb:ccdd:eeff"),
            (r#""%pM %pm", REC->mac, REC->mac"#, "00:11:22:33:44:55 001122334455"),
            (r#""%pMF %pMR", REC->mac, REC->mac"#, "00-11-22-33-44-55 55:44:33:22:11:00"),
            (
                r#""%pU %pUb", REC->ip6, REC->ip6"#,
                "00112233-4455-6677-8899-aabbccddeeff 00112233-4455-6677-8899-aabbccddeeff",
            ),
            (r#""%pUL", REC->ip6"#, "33221100-5544-7766-8899-AABBCCDDEEFF"),
            // Fields of the wrong size.
            (r#""%pM", REC->ip"#, "ip=00112233 ip6=00112233445566778899aabbccddeeff mac=001122334455"),
            (r#""%pISpc", REC->ip6"#, "`%pISpc` is not known"),
        ] {
            assert_eq!(shown(format, &bytes), text, "{format}");
        }
        let mapped = [&[0; 10][..], &[0xff, 0xff, 127, 0, 0, 1]].concat();
        let short = |bytes: &[u8]| shown(r#""%pI6c", REC->ip6"#, bytes);
        assert_eq!([short(&mapped), short(&[0; 16])], ["::ffff:127.0.0.1", "::"]);
    }

    #[test]
    fn bytes_that_begin_with_0_are_shown() {
        let text = "name: made\nID: 1\nformat:\n\tfield:__u8 ip[4];\toffset:8;\tsize:4;\tsigned:0;\n";
        let format = TraceFormat { system: b"s", name: b"made", id: Some(1), text: text.as_bytes() };
        let printer = TracePrinter::new(&format, Endian::Little);
        // As text, the first would be empty, and the second an M.
        let shown = [[0, 0, 0, 1], [77, 0, 0, 0]].map(|ip| printer.text(&[&[0; 8][..], &ip].concat()));
        assert_eq!(shown, ["ip=00000001", "ip=4d000000"]);
    }

    #[test]
    fn unprintable_samples_are_shown_field_by_field() {
        let fields = "comm=sh pid=-2 text=hi args=[5, 16] ptr=0x0";
        let deep = format!("\"%d\", {}1{}", "(".repeat(1000), ")".repeat(1000));
        let long = format!("\"%d\", 1{}", "+1".repeat(5000));
        let endless = format!("\"{}\"", "x".repeat(1 << 20));
        for (format, why) in [
            (r#""%pS", REC->ptr"#, "`%pS` is not known"),
            (r#""%s", REC->ptr"#, "a string is given by its address"),
            (r#""%s", REC->other"#, "it names no field `other`"),
            (r#""%d", vmemmap_base"#, "`vmemmap_base` is not understood"),
            (r#""%d""#, "it has too few values"),
            (r#""%99999999999999999999d", 1"#, "is not known"),
            (r#""%"#, "is not terminated"),
            ("", "is not understood"),
            (&deep, "nested too deeply"),
            (&long, "too many operators"),
            (&endless, "too long"),
        ] {
            let error = shown(format).unwrap_err();
            assert!(error.contains(why) && error.ends_with(fields), "{error}");
        }
        // A division by 0, or an index out of range.
        for format in [r#""%d", 1 / 0"#, r#""%d", REC->args[2]"#, r#""%d", 1 << 64"#] {
            assert_eq!(shown(format).as_deref(), Ok(fields), "{format}");
        }
    }

    #[test]
    fn short_raw_data_is_shown_up_to_its_end() {
        let text = format!("{FIELDS}\"%s %d\", REC->comm, REC->pid\n");
        let format = TraceFormat { system: b"s", name: b"made", id: Some(1), text: text.as_bytes() };
        let printer = TracePrinter::new(&format, Endian::Little);
        assert_eq!(printer.text(&raw()[..18]), "comm=sh");
        assert_eq!(printer.text(&[]), "");
    }
}
