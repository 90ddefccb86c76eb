//! Writes the text of a sample from its raw data, by a parsed print format.

use std::collections::HashMap;

use perfx_format::tracepoint::{NamedField, TraceField, TraceFieldKind, TraceValue};
use perfx_format::{Endian, HexNumber, until_nul};

use super::notation::{bit_list, bitmap, dump};
use super::number::{IntType, Number};
use super::parse::{Base, Cast, Directive, Expr, Style, TextPart, WIDTH_MAX, Width};
use crate::render::readable;

/// Maximum length of the text of a sample, bytes.
pub(super) const TEXT_MAX: usize = 1 << 16;

/// 65,536 CPUs.
const BITS_MAX: usize = 1 << 13;

/// All texts of a sample before they are cut to a precision, bytes.
pub(super) const WORK_MAX: usize = 4 * TEXT_MAX;

/// Finds the kernel's function at an address: its name, and the distance from its start, bytes.
pub type FindFunction<'f> = dyn FnMut(u64) -> Option<(String, u64)> + 'f;

/// The raw data of a sample, and the other sources of its text.
pub(super) struct Values<'a, 'f> {
    pub(super) fields: &'a [NamedField<'a>],
    pub(super) raw: &'a [u8],
    pub(super) endian: Endian,
    /// Texts of the kernel by address, escaped for terminals.
    pub(super) texts: &'a HashMap<u64, String>,
    pub(super) functions: &'a mut FindFunction<'f>,
    /// Bytes of text that may still be written, including those that a precision cuts off.
    pub(super) work: usize,
}

/// Data in a sample: the raw data from its first byte on, and its size.
struct Data<'a> {
    from: &'a [u8],
    size: usize,
}

impl<'a> Data<'a> {
    fn bytes(&self) -> &'a [u8] {
        &self.from[..self.size]
    }
}

impl<'a> Values<'a, '_> {
    /// Adds a part; `None` if the raw data lacks a field, a value is undefined, or the text is too long.
    pub(super) fn part(&mut self, part: &TextPart, out: &mut String) -> Option<()> {
        let Directive { width, given, style, of } = match part {
            TextPart::Value(directive) => &**directive,
            TextPart::Literal(text) => {
                out.push_str(text);
                return Some(());
            }
        };
        let mut width = *width;
        if let Some(given) = &given[0] {
            let given = self.number(given)?.wide() as i32;
            width.left |= given < 0;
            width.width = given.unsigned_abs() as usize;
        }
        if let Some(given) = &given[1] {
            width.precision = usize::try_from(self.number(given)?.wide() as i32).ok();
        }
        let is_small = width.width <= WIDTH_MAX && width.precision.is_none_or(|most| most <= WIDTH_MAX);
        match style {
            Style::Number { bits, base } if is_small => {
                let number = self.number(of)?.wide();
                push_number(out, number, *bits, *base, width);
            }
            Style::Text => {
                let mut text = String::new();
                self.text(of, &mut text)?;
                // Counts even if most of it is cut off.
                self.work = self.work.checked_sub(text.len())?;
                if let Some(precision) = width.precision {
                    text = text.chars().take(precision).collect();
                }
                padded(out, &text, width);
            }
            Style::Function { with_offset } => {
                let address = self.number(of)?.wide().cast_unsigned();
                *out += &match (self.functions)(address) {
                    Some((name, offset)) if *with_offset => {
                        format!("{}+{offset:#x}", readable(name.as_bytes()))
                    }
                    Some((name, _)) => readable(name.as_bytes()),
                    None => format!("{address:#x}"),
                };
            }
            Style::Bytes(notation) => {
                padded(out, &notation.text(self.data(of)?.bytes(), self.endian)?, width)
            }
            Style::Dump { between } => {
                let bytes = self.data(of)?.bytes();
                *out += &dump(&bytes[..bytes.len().min(width.width.max(1))], between);
            }
            Style::Bits { as_list } => {
                let bytes = self.data(of)?.bytes();
                let size = width.width.div_ceil(64).saturating_mul(8).min(bytes.len());
                *out += &self.bits(&bytes[..size], *as_list)?;
            }
            Style::Number { .. } => return None,
        }
        (out.len() <= TEXT_MAX).then_some(())
    }

    fn text(&self, of: &Expr, out: &mut String) -> Option<()> {
        match of {
            Expr::Text(text) => out.push_str(text),
            Expr::Either(parts) => {
                let [condition, yes, no] = &**parts;
                return self.text(if self.number(condition)?.is_true() { yes } else { no }, out);
            }
            Expr::Flags(value, between, names) => {
                let (mut value, before) = (self.number(value)?.bits(), out.len());
                for (flag, name) in names {
                    let flag = flag.cast_unsigned();
                    if flag != 0 && value & flag == flag {
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
                let is_it = |number: i64| number == value.wide() || number == value.bits().cast_signed();
                match names.iter().find(|(number, _)| is_it(*number)) {
                    Some((_, name)) => out.push_str(name),
                    None => *out += &format!("{:#x}", value.bits()),
                }
            }
            Expr::Hex(parts, between) => {
                let [bytes, count] = &**parts;
                let count = usize::try_from(self.number(count)?.wide() as i32).unwrap_or(0);
                *out += &dump(self.data(bytes)?.from.get(..count)?, between);
            }
            Expr::Array(parts) => {
                let [numbers, count, size] = &**parts;
                let count = usize::try_from(self.number(count)?.wide() as i32).unwrap_or(0);
                let size = usize::try_from(self.number(size)?.wide()).ok();
                let size = size.filter(|size| matches!(size, 1 | 2 | 4 | 8))?;
                let bytes = self.data(numbers)?.from.get(..count.checked_mul(size)?)?;
                let number = |bytes| TraceField { offset: 0, size }.number(bytes, self.endian);
                let numbers =
                    bytes.chunks_exact(size).filter_map(number).map(|number| format!("{number:#x}"));
                *out += &format!("{{{}}}", numbers.collect::<Vec<_>>().join(","));
            }
            Expr::Bits { field, as_list } => {
                *out += &self.bits(self.data(&Expr::Located(*field))?.bytes(), *as_list)?;
            }
            Expr::Field(field) if self.fields[*field].kind == TraceFieldKind::Pointer => {
                let address = self.number(of)?.bits();
                match self.texts.get(&address) {
                    Some(text) => out.push_str(text),
                    None => *out += &format!("{address:x}"),
                }
            }
            Expr::Cast(_, of) if matches!(**of, Expr::Number(_)) => out.push_str("(null)"),
            _ => *out += &readable(until_nul(self.data(of)?.bytes())),
        }
        (out.len() <= TEXT_MAX).then_some(())
    }

    /// `None` if there are too many bits.
    fn bits(&self, bytes: &[u8], as_list: bool) -> Option<String> {
        let text = if as_list { bit_list } else { bitmap };
        (bytes.len() <= BITS_MAX).then(|| text(bytes, self.endian))
    }

    fn data(&self, of: &Expr) -> Option<Data<'a>> {
        let place = match of {
            Expr::Cast(_, of) => return self.data(of),
            Expr::Field(field) | Expr::Located(field) => self.fields[*field].place(self.raw, self.endian)?,
            _ => return None,
        };
        let from = self.raw.get(place.offset..)?;
        (place.size <= from.len()).then_some(Data { from, size: place.size })
    }

    fn number(&self, of: &Expr) -> Option<Number> {
        Some(match of {
            Expr::Number(number) => *number,
            Expr::Field(field) => self.element(&self.fields[*field], 0)?,
            Expr::Length(field) => {
                let size = self.fields[*field].place(self.raw, self.endian)?.size;
                IntType::INT.number(size as i128)
            }
            Expr::Element(parts, elements) => {
                let [array, index] = &**parts;
                let index = usize::try_from(self.number(index)?.wide()).ok()?;
                match (array, elements) {
                    (Expr::Field(field), None) if self.fields[*field].kind == TraceFieldKind::Numbers => {
                        self.element(&self.fields[*field], index)?
                    }
                    _ => {
                        let of = elements.unwrap_or(IntType { bytes: 1, signed: false });
                        let size = usize::from(of.bytes);
                        let element = TraceField { offset: index.checked_mul(size)?, size };
                        of.number(element.number(self.data(array)?.bytes(), self.endian)?.into())
                    }
                }
            }
            Expr::Unary(sign, of) => self.number(of)?.unary(*sign),
            Expr::Binary(sign, sides) => {
                let left = self.number(&sides[0])?;
                left.binary(sign, self.number(&sides[1])?)?
            }
            Expr::Either(parts) => {
                let [condition, yes, no] = &**parts;
                self.number(if self.number(condition)?.is_true() { yes } else { no })?
            }
            Expr::Cast(to, of) => {
                let number = self.number(of)?;
                match to {
                    Cast::Int(of) => number.to(*of),
                    Cast::Bool => IntType::INT.number(i128::from(number.is_true())),
                    Cast::Pointer(_) => number.to(IntType::U64),
                    Cast::Other => number,
                }
            }
            _ => return None,
        })
    }

    fn element(&self, field: &NamedField<'_>, index: usize) -> Option<Number> {
        let bytes = u8::try_from(field.number_size).ok()?;
        let of = |signed| IntType { bytes, signed };
        Some(match field.number(index, self.raw, self.endian)? {
            TraceValue::Signed(number) => of(true).number(number.into()),
            TraceValue::Unsigned(number) | TraceValue::Pointer(number) => of(false).number(number.into()),
            TraceValue::Text(_) | TraceValue::Bytes(_) => return None,
        })
    }
}

fn push_number(out: &mut String, number: i64, bits: u32, base: Base, width: Width) {
    let unused = 64 - bits;
    let unsigned = number.cast_unsigned() << unused >> unused;
    let signed = number << unused >> unused;
    let sign = match (signed < 0, width.plus, width.space) {
        (true, ..) => "-",
        (false, true, _) => "+",
        (false, false, true) => " ",
        _ => "",
    };
    let prefix = |text| if width.alternate && unsigned != 0 { text } else { "" };
    let start = out.len();
    *out += match base {
        Base::Signed => sign,
        Base::Hex { upper: false } => prefix("0x"),
        Base::Hex { upper: true } => prefix("0X"),
        Base::Octal => prefix("0"),
        Base::Pointer if number != 0 => "0x",
        Base::Unsigned | Base::Char | Base::Pointer => "",
    };
    let first = out.len();
    let hex = |out: &mut String| *out += &HexNumber::new(unsigned).as_str()["0x".len()..];
    match base {
        Base::Signed => *out += itoa::Buffer::new().format(signed.unsigned_abs()),
        Base::Unsigned => *out += itoa::Buffer::new().format(unsigned),
        Base::Pointer if number == 0 => *out += "(nil)",
        Base::Hex { upper: false } | Base::Pointer => hex(out),
        Base::Hex { upper: true } => *out += &format!("{unsigned:X}"),
        Base::Octal => *out += &format!("{unsigned:o}"),
        Base::Char => *out += &readable(&[unsigned as u8]),
    }
    let wanted = match width.precision {
        Some(precision) => precision,
        None if width.zeros && !width.left => width.width.saturating_sub(first - start),
        None => 0,
    };
    insert(out, first, "0", wanted.saturating_sub(out.len() - first));
    pad(out, start, width);
}

fn padded(out: &mut String, text: &str, width: Width) {
    let start = out.len();
    *out += text;
    pad(out, start, width);
}

fn pad(out: &mut String, start: usize, width: Width) {
    let blanks = width.width.min(TEXT_MAX).saturating_sub(out[start..].chars().count());
    insert(out, if width.left { out.len() } else { start }, " ", blanks);
}

fn insert(out: &mut String, at: usize, filler: &str, count: usize) {
    if count > 0 {
        out.insert_str(at, &filler.repeat(count));
    }
}
