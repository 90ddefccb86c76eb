//! Reads the expressions in template arguments, array sizes and `decltype`.

use crate::node::{Id, Node};
use crate::operators::{Operands, Operator, find};
use crate::parse::Parser;

impl<'n> Parser<'n> {
    pub(crate) fn expression(&mut self) -> Option<Id> {
        self.nested(Self::any_expression)
    }

    fn any_expression(&mut self) -> Option<Id> {
        match (self.peek(), self.peek_at(1)) {
            (b'L', _) => self.literal(),
            (b'T', _) => self.template_parameter(),
            (b'0'..=b'9', _) => self.member_name(),
            (b'o', b'n') => {
                self.need("on")?;
                self.member_name()
            }
            (b'd', b'n') => {
                self.need("dn")?;
                let of = if self.peek().is_ascii_digit() { self.member_name()? } else { self.ty()? };
                self.add(Node::Destructor(of))
            }
            (b's', b'r') => {
                self.need("sr")?;
                let named = self.attempt(Self::scoped_name);
                named.or_else(|| {
                    let scope = self.ty()?;
                    self.name_in(scope)
                })
            }
            (b's', b'p') => {
                self.need("sp")?;
                let pattern = self.expression()?;
                self.add(Node::Expansion(pattern))
            }
            (b's', b'Z') => {
                self.need("sZ")?;
                let pack = self.expression()?;
                self.add(Node::PackSize(pack))
            }
            (b's', b'P') => {
                self.need("sP")?;
                let arguments = self.list(Self::template_argument)?;
                self.add(Node::ListSize(arguments))
            }
            (b'g', b's') => {
                self.need("gs")?;
                let of = self.expression()?;
                self.add(Node::Global(of))
            }
            (b'f', b'p') => self.function_parameter(),
            (b'f', b'l' | b'r' | b'L' | b'R') => self.fold(),
            (b'i', b'l') => {
                self.need("il")?;
                let values = self.list(Self::expression)?;
                self.add(Node::Braced(None, values))
            }
            (b't', b'l') => {
                self.need("tl")?;
                let of = self.ty()?;
                let values = self.list(Self::expression)?;
                self.add(Node::Braced(Some(of), values))
            }
            (b'd', b'i') => {
                self.need("di")?;
                let member = self.source_name()?;
                let value = self.expression()?;
                self.add(Node::MemberInit(member, value))
            }
            (b'd', b'x') => {
                self.need("dx")?;
                let (index, value) = (self.expression()?, self.expression()?);
                self.add(Node::ElementInit(index, None, value))
            }
            (b'd', b'X') => {
                self.need("dX")?;
                let (first, last, value) = (self.expression()?, self.expression()?, self.expression()?);
                self.add(Node::ElementInit(first, Some(last), value))
            }
            (b'c', b'v') => self.cast(),
            (b'u', _) => {
                self.need("u")?;
                let function = self.source_name()?;
                let arguments = self.list(Self::template_argument)?;
                self.add(Node::Call(function, arguments))
            }
            _ => {
                let operator = find(self.rest().get(..2)?)?;
                self.eat(std::str::from_utf8(operator.code).ok()?);
                self.operation(operator)
            }
        }
    }

    /// A name, or an operator as a name, with its template arguments.
    fn member_name(&mut self) -> Option<Id> {
        let name = self.unqualified_name(None)?;
        self.maybe_arguments(name)
    }

    /// Names without substitutions up to an `E`, then a name in their scope.
    fn scoped_name(&mut self) -> Option<Id> {
        let mut scope = None;
        while !self.eat("E") {
            self.peek().is_ascii_digit().then_some(())?;
            let name = self.source_name()?;
            let name = match scope {
                Some(scope) => self.add(Node::Nested(scope, name))?,
                None => name,
            };
            scope = Some(self.maybe_arguments(name)?);
        }
        self.name_in(scope?)
    }

    fn name_in(&mut self, scope: Id) -> Option<Id> {
        let name = self.unqualified_name(None)?;
        let name = self.add(Node::Nested(scope, name))?;
        self.maybe_arguments(name)
    }

    fn maybe_arguments(&mut self, name: Id) -> Option<Id> {
        if self.peek() != b'I' {
            return Some(name);
        }
        let arguments = self.template_arguments()?;
        self.add(Node::Template(name, arguments))
    }

    fn function_parameter(&mut self) -> Option<Id> {
        self.need("fp")?;
        if self.eat("T") {
            return self.add(Node::Text("this"));
        }
        let number = self.ordinal()?.checked_add(1)?;
        self.add(Node::FunctionParameter(number))
    }

    fn fold(&mut self) -> Option<Id> {
        let kind = self.peek_at(1);
        let operator = find(self.rest().get(2..4)?)?;
        for _ in 0..2 {
            let letters = std::str::from_utf8(self.rest().get(..2)?).ok()?;
            self.eat(letters);
        }
        let first = self.expression()?;
        let (left, right) = match kind {
            b'l' => (None, Some(first)),
            b'r' => (Some(first), None),
            _ => (Some(first), Some(self.expression()?)),
        };
        self.add(Node::Fold(operator, left, right))
    }

    fn cast(&mut self) -> Option<Id> {
        self.need("cv")?;
        let to = self.ty()?;
        if self.eat("_") {
            let values = self.list(Self::expression)?;
            return self.add(Node::CastAll(to, values));
        }
        let value = self.expression()?;
        self.add(Node::Cast(to, value))
    }

    fn operation(&mut self, operator: &'static Operator) -> Option<Id> {
        let node = match operator.operands {
            Operands::Nothing => Node::Text(operator.text),
            Operands::One => Node::Unary(operator, self.expression()?),
            Operands::Enclosed => Node::Applied(operator, self.expression()?),
            Operands::Type => Node::Applied(operator, self.ty()?),
            Operands::Step => match self.eat("_") {
                true => Node::Unary(operator, self.expression()?),
                false => Node::Postfix(operator, self.expression()?),
            },
            Operands::Two => Node::Binary(operator, self.expression()?, self.expression()?),
            Operands::Subscript => Node::Subscript(self.expression()?, self.expression()?),
            Operands::Cast => Node::NamedCast(operator, self.ty()?, self.expression()?),
            Operands::Condition => {
                Node::Conditional(self.expression()?, self.expression()?, self.expression()?)
            }
            Operands::Call => Node::Call(self.expression()?, self.list(Self::expression)?),
            Operands::New => {
                let placement = self.list_until(|parser| parser.eat("_"), Self::expression)?;
                let of = self.ty()?;
                let arguments = if self.eat("E") {
                    None
                } else {
                    self.need("pi")?;
                    Some(self.list(Self::expression)?)
                };
                Node::New { operator, placement, of, arguments }
            }
        };
        self.add(node)
    }

    /// `L`, a function or an object, or a type with a value, and `E`.
    pub(crate) fn literal(&mut self) -> Option<Id> {
        self.need("L")?;
        // GCC before 4.4 wrote no `_`.
        if self.eat("_Z") || self.eat("Z") {
            let of = self.encoding(true)?;
            self.need("E")?;
            return Some(of);
        }
        let of = self.ty()?;
        if matches!(self.tree.get(of), Node::Builtin("decltype(nullptr)", _)) && self.eat("E") {
            return Some(of);
        }
        let is_negative = self.eat("n");
        let value = self.until(b'E').filter(|value| !value.is_empty())?;
        self.add(Node::Literal { of, is_negative, value })
    }
}
