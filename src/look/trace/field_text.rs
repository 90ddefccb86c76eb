//! Shows a single field of a tracepoint as its print format does, such as the names of flags.

use std::sync::Arc;

use perfx_format::Endian;
use perfx_format::tracepoint::NamedField;

use super::parse::{Directive, Expr, Style, TextPart};
use super::text::{Values, WORK_MAX};
use super::{Kernel, TracePrinter};

/// The part of a print format that shows this field only.
#[derive(Clone, Debug)]
pub struct FieldText {
    parts: Vec<TextPart>,
    fields: Vec<NamedField<'static>>,
    endian: Endian,
    kernel: Arc<Kernel>,
}

impl TracePrinter<'_> {
    /// The text of a field, if the print format shows it by names or by several numbers.
    pub fn field_text(&self, name: &str) -> Option<FieldText> {
        let (field, parts) = self.field_parts(name)?;
        let shows = |part: &TextPart| part.shows(field).is_some();
        let is_named = |part: &TextPart| part.shows(field).is_some_and(|of| of.style == Style::Text);
        let parts = match parts.iter().position(is_named) {
            Some(first) => &parts[first..first + parts[first..].iter().take_while(|of| shows(of)).count()],
            None => &parts[parts.iter().position(shows)?..=parts.iter().rposition(shows)?],
        };
        let is_alone = parts.iter().all(|part| matches!(part, TextPart::Literal(_)) || shows(part));
        (is_alone && (parts.len() > 1 || is_named(&parts[0]))).then(|| FieldText {
            parts: parts.to_vec(),
            fields: self.fields.iter().map(|of| NamedField { name: "", type_name: "", ..*of }).collect(),
            endian: self.endian,
            kernel: self.kernel.clone(),
        })
    }

    /// True if the print format shows a function's name for the address in this field.
    pub fn shows_function(&self, name: &str) -> bool {
        let is_function = |of: &Directive| matches!(of.style, Style::Function { .. });
        self.field_parts(name)
            .is_some_and(|(field, parts)| parts.iter().any(|part| part.shows(field).is_some_and(is_function)))
    }

    /// The number of a field that is not a text, and the parts of the print format.
    fn field_parts(&self, name: &str) -> Option<(usize, &[TextPart])> {
        let field = self.fields.iter().position(|field| field.name == name && !field.is_text)?;
        Some((field, &self.parts.as_ref().ok()?.parts))
    }
}

impl FieldText {
    /// The text in a sample with this raw data; `None` if the raw data lacks the field.
    pub fn of(&self, raw: &[u8]) -> Option<String> {
        let FieldText { fields, endian, kernel, .. } = self;
        let functions = &mut |_| None;
        let (endian, texts, work) = (*endian, &kernel.texts, WORK_MAX);
        let mut values = Values { fields, raw, endian, texts, functions, work };
        let mut text = String::new();
        self.parts.iter().try_for_each(|part| values.part(part, &mut text))?;
        Some(text)
    }
}

impl TextPart {
    /// The directive, if it shows only this field.
    fn shows(&self, field: usize) -> Option<&Directive> {
        let TextPart::Value(of) = self else { return None };
        let is_alone = of.given.iter().all(Option::is_none) && of.of.is_of(field);
        (is_alone && !of.of.is_of(usize::MAX)).then_some(&**of)
    }
}

impl Expr {
    fn is_of(&self, field: usize) -> bool {
        match self {
            Expr::Number(_) | Expr::Text(_) => true,
            Expr::Field(own) | Expr::Located(own) | Expr::Length(own) | Expr::Bits { field: own, .. } => {
                *own == field
            }
            Expr::Unary(_, of) | Expr::Cast(_, of) | Expr::Flags(of, ..) | Expr::Symbolic(of, _) => {
                of.is_of(field)
            }
            Expr::Element(both, _) | Expr::Binary(_, both) | Expr::Hex(both, _) => {
                both.iter().all(|of| of.is_of(field))
            }
            Expr::Either(all) | Expr::Array(all) => all.iter().all(|of| of.is_of(field)),
        }
    }
}
