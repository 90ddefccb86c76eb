//! Parses print formats of tracepoints: a format of printf, and its arguments, which are C expressions.

use perfx_format::tracepoint::{NamedField, TraceFieldKind};

use super::notation::Notation;
use super::number::{IntType, Number};
use crate::render::{printable, readable};

/// Maximum depth and number of operators of an expression.
const DEPTH_MAX: u32 = 64;
const OPERATORS_MAX: usize = 1 << 10;

pub(super) const WIDTH_MAX: usize = 256;

#[derive(Clone, Default, Debug)]
pub(super) struct Parts {
    pub(super) parts: Vec<TextPart>,
    /// Variables and constants of the kernel whose values are not recorded.
    pub(super) unknown: Vec<String>,
}

#[derive(Clone, Debug)]
pub(super) enum TextPart {
    Literal(String),
    Value(Box<Directive>),
}

#[derive(Clone, Debug)]
pub(super) struct Directive {
    pub(super) width: Width,
    /// The values of `*` in width and precision.
    pub(super) given: [Option<Expr>; 2],
    pub(super) style: Style,
    pub(super) of: Expr,
}

#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum Style {
    Text,
    Number {
        bits: u32,
        base: Base,
    },
    /// The name of the kernel's function at an address.
    Function {
        with_offset: bool,
    },
    Bytes(Notation),
    /// As many bytes as the width, in hex.
    Dump {
        between: &'static str,
    },
    /// A bitmap of as many bits as the width.
    Bits {
        as_list: bool,
    },
}

#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum Base {
    Signed,
    Unsigned,
    Hex { upper: bool },
    Octal,
    Char,
    Pointer,
}

#[derive(Clone, Copy, Default, Debug)]
pub(super) struct Width {
    pub(super) left: bool,
    pub(super) zeros: bool,
    pub(super) alternate: bool,
    pub(super) plus: bool,
    pub(super) space: bool,
    pub(super) width: usize,
    pub(super) precision: Option<usize>,
}

#[derive(Clone, Debug)]
pub(super) enum Expr {
    Number(Number),
    Text(String),
    Field(usize),
    /// The data that a field locates, and its length, bytes.
    Located(usize),
    Length(usize),
    /// An element of an array, and its type if the array is cast.
    Element(Box<[Expr; 2]>, Option<IntType>),
    Unary(u8, Box<Expr>),
    Binary(&'static str, Box<[Expr; 2]>),
    Either(Box<[Expr; 3]>),
    Cast(Cast, Box<Expr>),
    /// `__print_flags`: the names of the set bits, with a separator.
    Flags(Box<Expr>, String, Vec<(i64, String)>),
    /// `__print_symbolic`: the name of a number.
    Symbolic(Box<Expr>, Vec<(i64, String)>),
    /// `__print_hex`: bytes, and their count.
    Hex(Box<[Expr; 2]>, &'static str),
    /// `__print_array`: numbers, their count, and the bytes of each.
    Array(Box<[Expr; 3]>),
    /// `__get_bitmask`, and `__get_cpumask` as a list.
    Bits {
        field: usize,
        as_list: bool,
    },
}

#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum Cast {
    Int(IntType),
    Bool,
    /// The type of the integers that it points to, if known.
    Pointer(Option<IntType>),
    Other,
}

impl Expr {
    fn is_text(&self, fields: &[NamedField<'_>]) -> bool {
        match self {
            Expr::Text(_) | Expr::Flags(..) | Expr::Symbolic(..) => true,
            Expr::Hex(..) | Expr::Array(_) | Expr::Bits { .. } => true,
            Expr::Either(parts) => parts[1].is_text(fields) && parts[2].is_text(fields),
            // A null pointer.
            Expr::Cast(Cast::Pointer(_), of) if matches!(**of, Expr::Number(_)) => true,
            // The address of a text that the recording may hold.
            Expr::Field(field) if fields[*field].kind == TraceFieldKind::Pointer => true,
            _ => self.is_array(fields),
        }
    }

    fn is_array(&self, fields: &[NamedField<'_>]) -> bool {
        match self {
            Expr::Located(_) => true,
            Expr::Field(field) => {
                let NamedField { field, kind, number_size, .. } = fields[*field];
                match kind {
                    TraceFieldKind::Bytes | TraceFieldKind::Located { .. } => true,
                    TraceFieldKind::Numbers => number_size != field.size,
                    TraceFieldKind::Pointer => false,
                }
            }
            Expr::Cast(Cast::Pointer(_), of) => of.is_array(fields),
            _ => false,
        }
    }

    fn is_number(&self, fields: &[NamedField<'_>]) -> bool {
        match self {
            Expr::Number(_) | Expr::Length(_) => true,
            Expr::Field(_) => !self.is_array(fields),
            Expr::Element(parts, _) => parts[0].is_array(fields) && parts[1].is_number(fields),
            Expr::Unary(_, of) | Expr::Cast(_, of) => of.is_number(fields),
            Expr::Binary(_, sides) => sides.iter().all(|side| side.is_number(fields)),
            Expr::Either(parts) => parts.iter().all(|part| part.is_number(fields)),
            _ => false,
        }
    }
}

/// The highest precedence first; longer ones before their prefixes.
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

/// Constants that kernels before 4.1 write by name.
const CONSTANTS: [(&str, i64); 12] = [
    ("HI_SOFTIRQ", 0),
    ("TIMER_SOFTIRQ", 1),
    ("NET_TX_SOFTIRQ", 2),
    ("NET_RX_SOFTIRQ", 3),
    ("BLOCK_SOFTIRQ", 4),
    ("IRQ_POLL_SOFTIRQ", 5),
    ("TASKLET_SOFTIRQ", 6),
    ("SCHED_SOFTIRQ", 7),
    ("HRTIMER_SOFTIRQ", 8),
    ("RCU_SOFTIRQ", 9),
    ("HRTIMER_NORESTART", 0),
    ("HRTIMER_RESTART", 1),
];

struct Parser<'p> {
    rest: &'p str,
    fields: &'p [NamedField<'p>],
    /// The size of `long` and of pointers, bytes.
    long: u8,
    operators: usize,
    unknown: Vec<String>,
    /// Inside a number that has a name: constants of the kernel have their values there.
    in_names: bool,
}

/// Parses the text after `print fmt:`; the error is the reason why it can't be used.
pub(super) fn parse(text: &str, fields: &[NamedField<'_>], long: u8) -> Result<Parts, String> {
    let mut parser = Parser { rest: text, fields, long, operators: 0, unknown: Vec::new(), in_names: false };
    let format = parser.string()?;
    let mut args = Vec::new();
    while parser.takes(",") {
        parser.operators = 0;
        args.push(parser.expr(0)?);
    }
    match parser.rest.trim() {
        "" => Ok(Parts { parts: split(&format, args, (fields, long))?, unknown: parser.unknown }),
        rest => Err(format!("`{}` is not understood", first(rest))),
    }
}

fn first(text: &str) -> String {
    let word: String = text.chars().take(20).take_while(|letter| !letter.is_whitespace()).collect();
    readable(word.as_bytes())
}

fn split(
    format: &str,
    args: Vec<Expr>,
    (fields, long): (&[NamedField<'_>], u8),
) -> Result<Vec<TextPart>, String> {
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
        let mut arg = || args.next().ok_or("it has too few values");
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
        let mut given = [None, None];
        match rest.strip_prefix('*') {
            Some(after) => (rest, given[0]) = (after, Some(arg()?)),
            None => width.width = digits(&mut rest).unwrap_or(0),
        }
        if let Some(after) = rest.strip_prefix('.') {
            rest = after;
            match rest.strip_prefix('*') {
                Some(after) => (rest, given[1]) = (after, Some(arg()?)),
                None => width.precision = Some(digits(&mut rest).unwrap_or(0)),
            }
        }
        if width.width.max(width.precision.unwrap_or(0)) > WIDTH_MAX {
            return Err(unknown());
        }
        let length = rest.len() - rest.trim_start_matches(['h', 'l', 'L', 'z', 't', 'q', 'j']).len();
        let bits = match &rest[..length] {
            "" => 32,
            "h" => 16,
            "hh" => 8,
            "l" | "z" | "t" => 8 * u32::from(long),
            _ => 64,
        };
        let mut after = rest[length..].chars();
        let letter = after.next().ok_or_else(unknown)?;
        rest = after.as_str();
        let of = arg()?;
        let number = |base| Style::Number { bits, base };
        let style = match letter {
            's' => Style::Text,
            'd' | 'i' => number(Base::Signed),
            'u' => number(Base::Unsigned),
            'x' => number(Base::Hex { upper: false }),
            'X' => number(Base::Hex { upper: true }),
            'o' => number(Base::Octal),
            'c' => number(Base::Char),
            'p' => pointer(&mut rest).ok_or_else(unknown)?,
            _ => return Err(unknown()),
        };
        let (fits, what) = match style {
            Style::Text => (of.is_text(fields), "no text"),
            Style::Number { .. } | Style::Function { .. } => (of.is_number(fields), "no number"),
            Style::Bytes(_) | Style::Dump { .. } | Style::Bits { .. } => (of.is_array(fields), "no array"),
        };
        if !fits || given.iter().flatten().any(|given| !given.is_number(fields)) {
            return Err(format!("{what} is given for `{}`", first(from)));
        }
        parts.push(TextPart::Value(Box::new(Directive { width, given, style, of })));
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

/// The style of `%p` and the letters after it, which are consumed; `None` if they are unknown.
fn pointer(rest: &mut &str) -> Option<Style> {
    if let Some((notation, after)) = Notation::parse(rest) {
        *rest = after;
        return Some(Style::Bytes(notation));
    }
    let plain = Style::Number { bits: 64, base: Base::Pointer };
    let styles = [
        ("S", Style::Function { with_offset: true }),
        ("F", Style::Function { with_offset: true }),
        ("s", Style::Function { with_offset: false }),
        ("f", Style::Function { with_offset: false }),
        ("hC", Style::Dump { between: ":" }),
        ("hD", Style::Dump { between: "-" }),
        ("hN", Style::Dump { between: "" }),
        ("h", Style::Dump { between: " " }),
        ("bl", Style::Bits { as_list: true }),
        ("b", Style::Bits { as_list: false }),
        ("x", plain),
        ("K", plain),
    ];
    for (letters, style) in styles {
        if let Some(after) = rest.strip_prefix(letters) {
            *rest = after;
            return Some(style);
        }
    }
    (!rest.starts_with(|letter: char| letter.is_ascii_alphanumeric())).then_some(plain)
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

    fn word(&mut self) -> &'p str {
        self.rest = self.rest.trim_start();
        let is_part = |letter: char| letter.is_ascii_alphanumeric() || letter == '_';
        let (word, rest) = self.rest.split_at(self.rest.len() - self.rest.trim_start_matches(is_part).len());
        self.rest = rest;
        word
    }

    fn string(&mut self) -> Result<String, String> {
        let mut text = String::new();
        // The format may contain commands for a terminal.
        let push = |text: &mut String, letter: char| match letter {
            '\n' | '\t' => text.push(letter),
            letter => *text += &printable(letter.encode_utf8(&mut [0; 4])),
        };
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
                    'r' => push(&mut text, '\r'),
                    other => push(&mut text, other),
                },
                letter if letter.is_control() && letter != '\n' => {
                    return Err("a string has a control character".to_owned());
                }
                letter => push(&mut text, letter),
            }
            self.rest = letters.as_str();
        }
    }

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
        // `&` is not the beginning of `&&` here.
        let longer = ["&&", "||", "<<", ">>"]
            .iter()
            .any(|sign| sign.len() > found.len() && sign.starts_with(found) && self.rest.starts_with(sign));
        if longer {
            return None;
        }
        self.rest = &self.rest[found.len()..];
        Some(found)
    }

    /// An operand, with the operators before and after it.
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
        if self.rest.starts_with('(')
            && let Some(cast) = self.cast()
        {
            return Ok(Expr::Cast(cast, Box::new(self.value(depth + 1)?)));
        }
        let mut of = self.primary(depth)?;
        while self.takes("[") {
            let index = self.expr(depth + 1)?;
            self.must("]")?;
            let (of_elements, array) = match of {
                Expr::Cast(Cast::Pointer(elements), array) => (elements, *array),
                array => (None, array),
            };
            of = Expr::Element(Box::new([array, index]), of_elements);
        }
        Ok(of)
    }

    fn primary(&mut self, depth: u32) -> Result<Expr, String> {
        if self.rest.starts_with('"') {
            return self.string().map(Expr::Text);
        }
        if let Some(rest) = self.rest.strip_prefix('\'') {
            let mut letters = rest.chars();
            let letter = letters.next().filter(|letter| *letter != '\\').ok_or("a character is missing")?;
            self.rest = letters.as_str();
            self.must("'")?;
            return Ok(Expr::Number(IntType::INT.number(i128::from(u32::from(letter)))));
        }
        if self.takes("(") {
            let before = self.rest;
            if self.word() == "REC" && self.takes(")") {
                self.must("->")?;
                return self.field().map(Expr::Field);
            }
            self.rest = before;
            let inner = self.expr(depth + 1)?;
            self.must(")")?;
            return Ok(inner);
        }
        let word = self.word();
        if word.is_empty() {
            return Err(format!("`{}` is not understood", first(self.rest)));
        }
        if word == "REC" {
            self.must("->")?;
            return self.field().map(Expr::Field);
        }
        if word.starts_with(|digit: char| digit.is_ascii_digit()) {
            let number = Number::parse(word).ok_or_else(|| format!("`{}` is not a number", first(word)))?;
            return Ok(Expr::Number(number));
        }
        if !self.takes("(") {
            let known = CONSTANTS.iter().find(|(constant, _)| self.in_names && *constant == word);
            let value = known.map_or(0, |(_, value)| *value);
            if known.is_none() {
                // perf, too, calculates with 0.
                self.unknown.push(word.to_owned());
            }
            return Ok(Expr::Number(wide(value)));
        }
        let of = self.call(word, depth)?;
        self.must(")")?;
        Ok(of)
    }

    /// A call of a function or macro up to its closing parenthesis.
    fn call(&mut self, function: &str, depth: u32) -> Result<Expr, String> {
        Ok(match function {
            "__get_str"
            | "__get_rel_str"
            | "__get_dynamic_array"
            | "__get_rel_dynamic_array"
            | "__get_sockaddr"
            | "__get_rel_sockaddr"
            | "__get_sockaddr_rel" => Expr::Located(self.located()?),
            "__get_dynamic_array_len" | "__get_rel_dynamic_array_len" => Expr::Length(self.located()?),
            "__get_bitmask" | "__get_rel_bitmask" => Expr::Bits { field: self.located()?, as_list: false },
            "__get_cpumask" | "__get_rel_cpumask" => Expr::Bits { field: self.located()?, as_list: true },
            "__print_flags" => {
                let value = self.number(depth)?;
                self.must(",")?;
                let between = self.string()?;
                Expr::Flags(value, between, self.names(depth)?)
            }
            "__print_symbolic" => Expr::Symbolic(self.number(depth)?, self.names(depth)?),
            "__print_hex" | "__print_hex_str" => {
                let bytes = self.array(depth)?;
                self.must(",")?;
                let between = if function == "__print_hex" { " " } else { "" };
                Expr::Hex(Box::new([bytes, *self.number(depth)?]), between)
            }
            "__print_array" => {
                let numbers = self.array(depth)?;
                self.must(",")?;
                let count = *self.number(depth)?;
                self.must(",")?;
                Expr::Array(Box::new([numbers, count, *self.number(depth)?]))
            }
            "__builtin_expect" => {
                let value = self.expr(depth + 1)?;
                self.must(",")?;
                self.number(depth)?;
                value
            }
            "sizeof" => {
                let size = self.size().ok_or("a size is not recorded")?;
                Expr::Number(IntType { bytes: self.long, signed: false }.number(i128::from(size)))
            }
            other => return Err(format!("`{}` is a function of the kernel", first(other))),
        })
    }

    fn number(&mut self, depth: u32) -> Result<Box<Expr>, String> {
        let of = self.expr(depth + 1)?;
        if of.is_number(self.fields) { Ok(Box::new(of)) } else { Err("a number is missing".to_owned()) }
    }

    fn array(&mut self, depth: u32) -> Result<Expr, String> {
        let of = self.expr(depth + 1)?;
        if of.is_array(self.fields) { Ok(of) } else { Err("an array is missing".to_owned()) }
    }

    fn field(&mut self) -> Result<usize, String> {
        let name = self.word();
        let found = self.fields.iter().position(|field| field.name == name);
        found.ok_or_else(|| format!("there is no field `{}`", first(name)))
    }

    /// A field that locates data.
    fn located(&mut self) -> Result<usize, String> {
        let field = self.field()?;
        match self.fields[field].kind {
            TraceFieldKind::Located { .. } => Ok(field),
            _ => Err(format!("field `{}` locates no data", first(self.fields[field].name))),
        }
    }

    /// The size of the type or field in `sizeof`, bytes.
    fn size(&mut self) -> Option<u64> {
        let before = self.rest;
        if self.word() == "REC" {
            self.must("->").ok()?;
            return Some(self.fields[self.field().ok()?].field.size as u64);
        }
        let end = before.find(')')?;
        self.rest = &before[end..];
        match self.cast_to(&before[..end])? {
            Cast::Int(IntType { bytes, .. }) => Some(bytes.into()),
            Cast::Bool => Some(1),
            Cast::Pointer(_) => Some(self.long.into()),
            Cast::Other => None,
        }
    }

    fn cast(&mut self) -> Option<Cast> {
        let (inner, rest) = self.rest.strip_prefix('(')?.split_once(')')?;
        let cast = self.cast_to(inner)?;
        let after = rest.trim_start();
        let starts_value =
            |letter: char| letter.is_ascii_alphanumeric() || matches!(letter, '_' | '(' | '"' | '\'');
        // `(name) - 1` may be a difference.
        let is_cast =
            after.starts_with(starts_value) || cast != Cast::Other && after.starts_with(['-', '~', '!', '+']);
        if !is_cast {
            return None;
        }
        self.rest = rest;
        Some(cast)
    }

    /// The type with this name; `None` if it can't be one.
    fn cast_to(&self, name: &str) -> Option<Cast> {
        let is_type = |letter: char| letter.is_ascii_alphanumeric() || matches!(letter, '_' | ' ' | '*');
        if !name.chars().all(is_type) {
            return None;
        }
        let is_qualifier = |word: &&str| matches!(*word, "const" | "volatile" | "__user" | "__force");
        let words = name.split([' ', '*']).filter(|word| !word.is_empty());
        let words: Vec<&str> = words.filter(|word| !is_qualifier(word)).collect();
        let starts = words.first()?.starts_with(|letter: char| letter.is_ascii_alphabetic() || letter == '_');
        if !starts || *words.first()? == "REC" {
            return None;
        }
        let has = |word: &str| words.contains(&word);
        let longs = words.iter().filter(|word| **word == "long").count();
        let (bytes, unsigned) = match words[..] {
            _ if has("char") => (1, has("unsigned")),
            _ if has("short") => (2, has("unsigned")),
            _ if longs == 1 => (self.long, has("unsigned")),
            _ if longs > 1 => (8, has("unsigned")),
            _ if has("int") || has("unsigned") || has("signed") => (4, has("unsigned")),
            ["uint"] => (4, true),
            ["ulong" | "size_t" | "uintptr_t"] => (self.long, true),
            ["bool"] if !name.contains('*') => return Some(Cast::Bool),
            // `__u8`, `uint8_t`, `int8_t`
            [word] => match &*word.trim_start_matches("__").trim_end_matches("_t").replace("int", "") {
                "u8" => (1, true),
                "s8" | "8" => (1, false),
                "u16" => (2, true),
                "s16" | "16" => (2, false),
                "u32" => (4, true),
                "s32" | "32" => (4, false),
                "u64" => (8, true),
                "s64" | "64" => (8, false),
                _ => (0, false),
            },
            _ => (0, false),
        };
        let int = (bytes > 0).then_some(IntType { bytes, signed: !unsigned });
        Some(match name.matches('*').count() {
            0 => int.map_or(Cast::Other, Cast::Int),
            1 => Cast::Pointer(int),
            _ => Cast::Pointer(Some(IntType { bytes: self.long, signed: false })),
        })
    }

    /// Numbers with their names, `, { 1, "ONE" }, …`, except numbers that are not recorded.
    fn names(&mut self, depth: u32) -> Result<Vec<(i64, String)>, String> {
        let mut names = Vec::new();
        let before = self.operators;
        while self.takes(",") {
            self.must("{")?;
            // Only the number is kept, not the expression.
            self.operators = 0;
            let unknown = self.unknown.len();
            let outer = std::mem::replace(&mut self.in_names, true);
            let number = self.expr(depth + 1)?;
            self.in_names = outer;
            let number = number.constant().ok_or("the value of a name is not a number")?;
            self.must(",")?;
            // A null pointer ends the list.
            let name = match self.expr(depth + 1)? {
                Expr::Text(name) => Some(name),
                other if other.constant() == Some(0) => None,
                _ => return Err("the name of a value is not a text".to_owned()),
            };
            self.must("}")?;
            let is_known = self.unknown.len() == unknown;
            names.extend(name.filter(|_| is_known).map(|name| (number, name)));
        }
        self.operators = before;
        if names.is_empty() && self.unknown.is_empty() {
            return Err("names of values are missing".to_owned());
        }
        Ok(names)
    }
}

impl Expr {
    /// The value of an expression without fields, 64 bits as in perf.
    fn constant(&self) -> Option<i64> {
        Some(match self {
            Expr::Number(number) => number.wide(),
            Expr::Unary(sign, of) => wide(of.constant()?).unary(*sign).wide(),
            Expr::Binary(sign, sides) => {
                let [left, right] = [sides[0].constant()?, sides[1].constant()?].map(wide);
                left.binary(sign, right)?.wide()
            }
            Expr::Either(parts) => parts[if parts[0].constant()? != 0 { 1 } else { 2 }].constant()?,
            Expr::Cast(Cast::Int(of), inner) => wide(inner.constant()?).to(*of).wide(),
            Expr::Cast(_, of) => of.constant()?,
            _ => return None,
        })
    }
}

fn wide(number: i64) -> Number {
    IntType::S64.number(number.into())
}
