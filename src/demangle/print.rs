//! Writes a tree as text, as GNU's demangler does.
//!
//! A declarator of C++ surrounds its name: each type has a part to the left of it and one to the right, `void
//! (*` and `)(int)`. Template parameters are resolved here: to the arguments of the function being printed,
//! and inside an argument to those of the surrounding function.

use std::collections::HashMap;

use crate::node::{Id, List, Node, Tree};
use crate::operators::{Literal, Operator};
use crate::parse::{CV, DEEPEST};

/// The text of a tree, if it is no longer than `longest` bytes.
pub(crate) fn print(tree: &Tree<'_>, root: Id, longest: usize) -> Option<String> {
    let mut printer = Printer {
        tree,
        out: String::new(),
        taken_back: usize::MAX,
        longest,
        steps: 4096 + 4 * longest,
        depth: 0,
        scopes: Vec::new(),
        scope: None,
        first_scopes: HashMap::new(),
        inside_references: Vec::new(),
        arguments: None,
        element: Some(0),
        lambda: None,
    };
    printer.print(root)?;
    Some(printer.out)
}

/// Template arguments, and the scope in which they are printed.
#[derive(Clone, Copy)]
struct Scope {
    arguments: List,
    parent: Option<usize>,
}

/// The kind of a type's declarator, which decides on parentheses around its contents.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Shape {
    Plain,
    Function,
    Array,
}

/// The qualifiers printed around a type: bits of [`CV`], and this one for an array.
const IN_ARRAY: u8 = 8;

struct Printer<'t, 'n> {
    tree: &'t Tree<'n>,
    out: String,
    /// The length of `out` when the last comma was removed.
    taken_back: usize,
    longest: usize,
    steps: usize,
    depth: u32,
    scopes: Vec<Scope>,
    scope: Option<usize>,
    /// The scope in which each referenced parameter was first printed.
    first_scopes: HashMap<Id, Option<usize>>,
    inside_references: Vec<Id>,
    /// The arguments of the template whose name is being printed, for its conversion operator.
    arguments: Option<List>,
    /// The index of the printed element of packs; `None` for all.
    element: Option<usize>,
    /// The template head of the lambda whose parameters are being printed.
    lambda: Option<List>,
}

/// The argument of a template parameter, and its scope.
struct Resolved<'n> {
    node: Node<'n>,
    scope: Option<usize>,
}

impl<'n> Printer<'_, 'n> {
    fn push(&mut self, text: &str) -> Option<()> {
        (self.out.len() + text.len() <= self.longest).then(|| self.out.push_str(text))
    }

    fn push_number(&mut self, number: impl ToString) -> Option<()> {
        self.push(&number.to_string())
    }

    /// True if printed last. Removed commas count as spaces, as in GNU's demangler: `A<B<int>>`.
    fn ends_with(&self, last: char) -> bool {
        if self.out.len() == self.taken_back { last == ' ' } else { self.out.ends_with(last) }
    }

    fn step(&mut self) -> Option<()> {
        self.steps = self.steps.checked_sub(1)?;
        Some(())
    }

    /// Resolves a node if it is a template parameter.
    fn resolve(&mut self, id: Id) -> Option<Resolved<'n>> {
        let mut resolved = Resolved { node: self.tree.get(id), scope: self.scope };
        while let Node::Parameter(number) = resolved.node
            && self.lambda.is_none()
        {
            self.step()?;
            let scope = self.scopes[resolved.scope?];
            let argument = *self.tree.items(scope.arguments).get(usize::try_from(number).ok()?)?;
            resolved.scope = scope.parent;
            resolved.node = match (self.tree.get(argument), self.element) {
                (Node::Pack(elements), Some(element)) => {
                    self.tree.get(*self.tree.items(elements).get(element)?)
                }
                (node, _) => node,
            };
        }
        Some(resolved)
    }

    /// Calls `act` with a resolved node, in its scope.
    fn with<T>(&mut self, id: Id, act: impl FnOnce(&mut Self, Node<'n>) -> Option<T>) -> Option<T> {
        self.step()?;
        if self.depth == 2 * DEEPEST {
            return None;
        }
        let resolved = self.resolve(id)?;
        let outer = std::mem::replace(&mut self.scope, resolved.scope);
        self.depth += 1;
        let done = act(self, resolved.node);
        self.depth -= 1;
        self.scope = outer;
        done
    }

    fn print(&mut self, id: Id) -> Option<()> {
        self.left(id, 0)?;
        self.right(id, 0)
    }

    fn left(&mut self, id: Id, around: u8) -> Option<()> {
        self.with(id, |printer, node| printer.left_of(node, around))
    }

    fn right(&mut self, id: Id, around: u8) -> Option<()> {
        self.with(id, |printer, node| printer.right_of(node, around))
    }

    fn shape(&mut self, id: Id) -> Option<Shape> {
        self.with(id, |printer, node| match node {
            Node::Function { .. } => Some(Shape::Function),
            Node::Array(..) => Some(Shape::Array),
            Node::Qualified(_, of) => {
                Some(if printer.shape(of)? == Shape::Array { Shape::Array } else { Shape::Plain })
            }
            _ => Some(Shape::Plain),
        })
    }

    fn has_right(&mut self, id: Id) -> Option<bool> {
        self.with(id, |printer, node| match node {
            Node::Function { .. } | Node::Array(..) => Some(true),
            Node::Reference(_) | Node::RvalueReference(_) => {
                printer.with_referent(node, |printer, of, _| printer.has_right(of))
            }
            Node::Pointer(of) | Node::Qualified(_, of) | Node::MemberPointer(_, of) | Node::Vector(_, of) => {
                printer.has_right(of)
            }
            Node::Suffixed(of, _) | Node::VendorQualified(of, _) => printer.has_right(of),
            _ => Some(false),
        })
    }

    /// The left part of a pointer's target, and the parenthesis before `*`.
    fn left_inside(&mut self, of: Id, is_spaced: bool) -> Option<()> {
        self.left(of, 0)?;
        match self.shape(of)? {
            Shape::Plain => Some(()),
            Shape::Array => self.push(" ("),
            Shape::Function => {
                let is_apart =
                    self.ends_with(' ') || !is_spaced && (self.ends_with('(') || self.ends_with('*'));
                self.push(if is_apart { "(" } else { " (" })
            }
        }
    }

    fn right_inside(&mut self, of: Id) -> Option<()> {
        if self.shape(of)? != Shape::Plain {
            self.push(")")?;
        }
        self.right(of, 0)
    }

    /// Calls `act` with the target of a reference, and `&` or `&&`: a reference to a reference collapses.
    ///
    /// A reference to a template parameter can be repeated with other arguments in scope. As in GNU's
    /// demangler, it keeps those of its first use, unless it is inside itself.
    fn with_referent<T>(
        &mut self,
        node: Node<'n>,
        act: impl FnOnce(&mut Self, Id, &str) -> Option<T>,
    ) -> Option<T> {
        let (of, text) = match node {
            Node::Reference(of) => (of, "&"),
            Node::RvalueReference(of) => (of, "&&"),
            _ => return None,
        };
        let outer = self.scope;
        let is_parameter = self.lambda.is_none() && matches!(self.tree.get(of), Node::Parameter(_));
        if is_parameter {
            let first = *self.first_scopes.entry(of).or_insert(outer);
            if !self.inside_references.contains(&of) {
                self.scope = first;
            }
            self.inside_references.push(of);
        }
        let resolved = self.resolve(of)?;
        let done = match resolved.node {
            Node::Reference(inner) => {
                self.scope = resolved.scope;
                act(self, inner, "&")
            }
            Node::RvalueReference(inner) => {
                self.scope = resolved.scope;
                act(self, inner, text)
            }
            _ => act(self, of, text),
        };
        if is_parameter {
            self.inside_references.pop();
        }
        self.scope = outer;
        done
    }

    /// Prints a node except the part of a type after its name.
    fn left_of(&mut self, node: Node<'n>, around: u8) -> Option<()> {
        match node {
            Node::Qualified(bit, of) => {
                if around & bit != 0 {
                    return self.left(of, around);
                }
                if self.shape(of)? == Shape::Function {
                    self.left_inside(of, true)?;
                } else {
                    self.left(of, around | bit)?;
                }
                let text = CV.iter().find(|cv| cv.1 == bit)?.2;
                self.push(text)
            }
            Node::Pointer(of) => {
                self.left_inside(of, false)?;
                self.push("*")
            }
            Node::Reference(_) | Node::RvalueReference(_) => self.with_referent(node, |printer, of, text| {
                printer.left_inside(of, false)?;
                printer.push(text)
            }),
            Node::MemberPointer(class, member) => {
                self.left_inside(member, true)?;
                if !self.ends_with('(') {
                    self.push(" ")?;
                }
                self.print(class)?;
                self.push("::*")
            }
            Node::Suffixed(of, text) => {
                self.left_inside(of, true)?;
                self.push(text)
            }
            Node::VendorQualified(of, name) => {
                self.left_inside(of, true)?;
                self.push(" ")?;
                self.print(name)
            }
            Node::Vector(size, of) => {
                self.left_inside(of, true)?;
                self.push(" __vector(")?;
                self.print(size)?;
                self.push(")")
            }
            Node::Function { result: Some(result), .. } => self.result(result),
            Node::Function { result: None, .. } => Some(()),
            Node::Array(_, of) => self.left(of, around & !IN_ARRAY),
            _ => self.whole(node),
        }
    }

    fn right_of(&mut self, node: Node<'n>, around: u8) -> Option<()> {
        match node {
            Node::Qualified(bit, of) if around & bit == 0 && self.shape(of)? == Shape::Function => {
                self.right_inside(of)
            }
            Node::Qualified(bit, of) => self.right(of, around | bit),
            Node::Pointer(of) | Node::MemberPointer(_, of) | Node::Vector(_, of) => self.right_inside(of),
            Node::Suffixed(of, _) | Node::VendorQualified(of, _) => self.right_inside(of),
            Node::Reference(_) | Node::RvalueReference(_) => {
                self.with_referent(node, |printer, of, _| printer.right_inside(of))
            }
            Node::Function { result, parameters, qualifiers } => {
                self.parameters(parameters, qualifiers)?;
                result.map_or(Some(()), |result| self.right(result, 0))
            }
            Node::Array(size, of) => {
                self.push(if around & IN_ARRAY == 0 { " [" } else { "[" })?;
                if let Some(size) = size {
                    self.print(size)?;
                }
                self.push("]")?;
                self.right(of, around | IN_ARRAY)
            }
            _ => Some(()),
        }
    }

    fn result(&mut self, result: Id) -> Option<()> {
        self.left(result, 0)?;
        if self.has_right(result)? { Some(()) } else { self.push(" ") }
    }

    fn parameters(&mut self, parameters: List, qualifiers: List) -> Option<()> {
        self.push("(")?;
        let qualifiers = self.tree.items(qualifiers);
        if qualifiers.iter().any(|&id| matches!(self.tree.get(id), Node::ExplicitThis)) {
            self.push("this ")?;
        }
        self.list(parameters)?;
        self.push(")")?;
        qualifiers.iter().try_for_each(|&qualifier| self.print(qualifier))
    }

    /// Nodes separated by commas, with none after the last nonempty node.
    fn list(&mut self, list: List) -> Option<()> {
        let mut end = self.out.len();
        for (number, &id) in self.tree.items(list).iter().enumerate() {
            if number > 0 && !matches!(self.tree.get(id), Node::Requirement(_)) {
                self.push(", ")?;
            }
            let start = self.out.len();
            self.print(id)?;
            if self.out.len() > start {
                end = self.out.len();
            }
        }
        if end < self.out.len() {
            self.out.truncate(end);
            self.taken_back = end;
        }
        Some(())
    }

    fn list_in(&mut self, open: &str, list: List, close: &str) -> Option<()> {
        self.push(open)?;
        self.list(list)?;
        self.push(close)
    }

    fn template_arguments(&mut self, arguments: List) -> Option<()> {
        self.push(if self.ends_with('<') { " <" } else { "<" })?;
        self.list(arguments)?;
        self.push(if self.ends_with('>') { " >" } else { ">" })
    }

    fn operand(&mut self, id: Id) -> Option<()> {
        let is_simple = matches!(
            self.tree.get(id),
            Node::Text(_) | Node::Nested(..) | Node::FunctionParameter(_) | Node::Braced(..)
        );
        if is_simple {
            return self.print(id);
        }
        self.push("(")?;
        self.print(id)?;
        self.push(")")
    }

    /// A node that is not a type around its name.
    fn whole(&mut self, node: Node<'n>) -> Option<()> {
        match node {
            Node::Text(text) | Node::Builtin(text, _) => self.push(text),
            Node::Nested(scope, name) => {
                self.print(scope)?;
                self.push("::")?;
                self.print(name)
            }
            Node::Template(name, arguments) => {
                let outer = self.arguments.replace(arguments);
                self.print(name)?;
                self.arguments = outer;
                self.template_arguments(arguments)
            }
            Node::Local(function, entity) => {
                self.print(function)?;
                self.push("::")?;
                self.print(entity)
            }
            Node::DefaultArgument(number, entity) => {
                self.numbered("{default arg#", number, "}::")?;
                self.print(entity)
            }
            Node::Tagged(name, tag) => {
                self.print(name)?;
                self.push("[abi:")?;
                self.push(tag)?;
                self.push("]")
            }
            Node::InModule(name, module) => {
                self.print(name)?;
                self.push("@")?;
                self.print(module)
            }
            Node::Module { parent, name, is_partition } => {
                if let Some(parent) = parent {
                    self.print(parent)?;
                }
                match (is_partition, parent) {
                    (true, _) => self.push(":")?,
                    (false, Some(_)) => self.push(".")?,
                    (false, None) => {}
                }
                self.push(name)
            }
            Node::Friend(name) => {
                self.print(name)?;
                self.push("[friend]")
            }
            Node::Constructor(class) => self.print(class),
            Node::Destructor(class) => {
                self.push("~")?;
                self.print(class)
            }
            Node::Operator(operator) => {
                self.push("operator")?;
                if operator.text.starts_with(|first: char| first.is_ascii_alphabetic()) {
                    self.push(" ")?;
                }
                self.push(operator.text.trim_end())
            }
            Node::VendorOperator(name) => self.prefixed("operator ", name),
            Node::LiteralOperator(name) => self.prefixed("operator\"\" ", name),
            Node::Conversion(to) => {
                self.push("operator ")?;
                match self.arguments {
                    Some(arguments) => self.inside(arguments, |printer| printer.print(to)),
                    None => self.print(to),
                }
            }
            Node::Unnamed(number) => self.numbered("{unnamed type#", number, "}"),
            Node::Lambda { head, parameters, number } => {
                let outer = self.lambda.replace(head);
                self.push("{lambda")?;
                if !head.is_empty() {
                    self.push("<")?;
                    self.head(head, true)?;
                    self.push(">")?;
                }
                self.list_in("(", parameters, ")")?;
                self.lambda = outer;
                self.numbered("#", number, "}")
            }
            Node::Bindings(names) => self.list_in("[", names, "]"),
            Node::Member(name, qualifiers) => {
                self.print(name)?;
                let qualifiers = self.tree.items(qualifiers);
                qualifiers.iter().try_for_each(|&qualifier| self.print(qualifier))
            }
            Node::Float(bits, suffix) => self.numbered("_Float", bits, suffix),
            Node::Parameter(number) => self.lambda_parameter(number),
            Node::Pack(arguments) => self.list(arguments),
            Node::Requirement(expression) => self.prefixed(" requires ", expression),
            Node::Expansion(pattern) => self.expansion(pattern),
            Node::Decltype(expression) => {
                self.prefixed("decltype (", expression)?;
                self.push(")")
            }
            Node::BitInt { is_signed, bits } => {
                self.prefixed(if is_signed { "_BitInt(" } else { "unsigned _BitInt(" }, bits)?;
                self.push(")")
            }
            Node::Noexcept(None) => self.push(" noexcept"),
            Node::Noexcept(Some(condition)) => {
                self.prefixed(" noexcept(", condition)?;
                self.push(")")
            }
            Node::Throw(types) => self.list_in(" throw(", types, ")"),
            Node::Encoding { name, function, requires } => {
                match self.own_arguments(name) {
                    Some(arguments) => self.inside(arguments, |printer| printer.function(name, function))?,
                    None => self.function(name, function)?,
                }
                let Some(requires) = requires else { return Some(()) };
                self.push(" requires ")?;
                match self.own_arguments(name) {
                    Some(arguments) => self.inside(arguments, |printer| printer.print(requires)),
                    None => self.print(requires),
                }
            }
            Node::Special(what, of) => self.prefixed(what, of),
            Node::ConstructionVtable { base, class } => {
                self.prefixed("construction vtable for ", base)?;
                self.prefixed("-in-", class)
            }
            Node::Clone(of, suffix) => {
                self.print(of)?;
                self.push(" [clone ")?;
                self.push(suffix)?;
                self.push("]")
            }
            Node::ReferenceTemporary(number, of) => {
                self.numbered("reference temporary #", number, " for ")?;
                self.print(of)
            }
            _ => self.expression(node),
        }
    }

    fn prefixed(&mut self, text: &str, id: Id) -> Option<()> {
        self.push(text)?;
        self.print(id)
    }

    fn numbered(&mut self, before: &str, number: u64, after: &str) -> Option<()> {
        self.push(before)?;
        self.push_number(number)?;
        self.push(after)
    }

    /// Calls `act` with these template arguments in scope.
    fn inside(&mut self, arguments: List, act: impl FnOnce(&mut Self) -> Option<()>) -> Option<()> {
        let outer = self.scope;
        self.scopes.push(Scope { arguments, parent: outer });
        self.scope = Some(self.scopes.len() - 1);
        act(self)?;
        self.scope = outer;
        Some(())
    }

    /// The arguments of a function template, to which the parameters in its signature refer.
    fn own_arguments(&self, name: Id) -> Option<List> {
        match self.tree.get(name) {
            Node::Template(_, arguments) => Some(arguments),
            Node::Local(_, entity) | Node::DefaultArgument(_, entity) => self.own_arguments(entity),
            _ => None,
        }
    }

    fn function(&mut self, name: Id, function: Id) -> Option<()> {
        let Node::Function { result, parameters, qualifiers } = self.tree.get(function) else { return None };
        if let Some(result) = result {
            self.result(result)?;
        }
        self.print(name)?;
        self.parameters(parameters, qualifiers)?;
        result.map_or(Some(()), |result| self.right(result, 0))
    }

    /// A parameter of a lambda: `auto:1`, or its name in the template head.
    fn lambda_parameter(&mut self, number: u64) -> Option<()> {
        let named =
            self.lambda.and_then(|head| self.tree.items(head).get(usize::try_from(number).ok()?).copied());
        match named.map(|id| self.tree.get(id)) {
            Some(Node::HeadType { .. }) => self.numbered("$T", number, ""),
            Some(Node::HeadValue { .. }) => self.numbered("$N", number, ""),
            Some(_) => self.numbered("$TT", number, ""),
            None => self.numbered("auto:", number.checked_add(1)?, ""),
        }
    }

    fn head(&mut self, head: List, is_named: bool) -> Option<()> {
        for (number, &id) in (0..).zip(self.tree.items(head)) {
            self.step()?;
            if number > 0 {
                self.push(", ")?;
            }
            let (is_pack, name) = match self.tree.get(id) {
                Node::HeadType { is_pack } => {
                    self.push("typename")?;
                    (is_pack, " $T")
                }
                Node::HeadValue { of, is_pack } => {
                    self.print(of)?;
                    (is_pack, " $N")
                }
                Node::HeadTemplate { head, is_pack } => {
                    self.push("template<")?;
                    self.head(head, false)?;
                    self.push("> class")?;
                    (is_pack, " $TT")
                }
                _ => return None,
            };
            if is_pack {
                self.push("...")?;
            }
            if is_named {
                self.numbered(name, number, "")?;
            }
        }
        Some(())
    }

    fn expansion(&mut self, pattern: Id) -> Option<()> {
        let Some(length) = self.pack_length(pattern)? else {
            self.operand(pattern)?;
            return self.push("...");
        };
        let outer = self.element;
        for element in 0..length {
            if element > 0 {
                self.push(", ")?;
            }
            self.element = Some(element);
            self.print(pattern)?;
        }
        self.element = outer;
        Some(())
    }

    fn pack_length(&mut self, pattern: Id) -> Option<Option<usize>> {
        self.step()?;
        if self.depth == 2 * DEEPEST {
            return None;
        }
        if let Node::Parameter(number) = self.tree.get(pattern) {
            let (Some(scope), None) = (self.scope, self.lambda) else { return Some(None) };
            let arguments = self.tree.items(self.scopes[scope].arguments);
            let argument = usize::try_from(number).ok().and_then(|number| arguments.get(number));
            return Some(match argument.map(|&argument| self.tree.get(argument)) {
                Some(Node::Pack(elements)) => Some(self.tree.items(elements).len()),
                _ => None,
            });
        }
        self.depth += 1;
        let mut length = None;
        for part in self.tree.parts(pattern) {
            length = self.pack_length(part)?;
            if length.is_some() {
                break;
            }
        }
        self.depth -= 1;
        Some(length)
    }

    fn expression(&mut self, node: Node<'n>) -> Option<()> {
        match node {
            Node::FunctionParameter(number) => self.numbered("{parm#", number, "}"),
            Node::Literal { of, is_negative, value } => self.literal(of, is_negative, value),
            Node::Unary(operator, of) => {
                self.push(operator.text)?;
                let member = self.without_parameters(of).filter(|&name| {
                    operator.code == b"ad" && matches!(self.tree.get(name), Node::Nested(..))
                });
                self.operand(member.unwrap_or(of))
            }
            Node::Applied(operator, of) => {
                self.push(operator.text)?;
                self.push("(")?;
                self.print(of)?;
                self.push(")")
            }
            Node::Postfix(operator, of) => {
                self.operand(of)?;
                self.push(operator.text)
            }
            Node::Binary(operator, left, right) => {
                // A bare `>` would end the template's arguments.
                let is_greater = operator.text == ">";
                self.push(if is_greater { "(" } else { "" })?;
                self.operand(left)?;
                self.push(operator.text)?;
                self.operand(right)?;
                self.push(if is_greater { ")" } else { "" })
            }
            Node::Subscript(array, index) => {
                self.operand(array)?;
                self.prefixed("[", index)?;
                self.push("]")
            }
            Node::Conditional(condition, then, otherwise) => {
                self.operand(condition)?;
                self.push("?")?;
                self.operand(then)?;
                self.push(" : ")?;
                self.operand(otherwise)
            }
            Node::Call(function, arguments) => {
                self.operand(self.without_parameters(function).unwrap_or(function))?;
                self.list_in("(", arguments, ")")
            }
            Node::Cast(to, value) => {
                self.prefixed("(", to)?;
                self.push(")")?;
                self.operand(value)
            }
            Node::CastAll(to, values) => {
                self.prefixed("(", to)?;
                self.list_in(")(", values, ")")
            }
            Node::NamedCast(operator, to, value) => {
                self.push(operator.text)?;
                self.prefixed("<", to)?;
                self.prefixed(">(", value)?;
                self.push(")")
            }
            Node::New { operator, placement, of, arguments } => {
                self.push(operator.text)?;
                self.push(" ")?;
                if !placement.is_empty() {
                    self.list_in("(", placement, ") ")?;
                }
                self.print(of)?;
                arguments.map_or(Some(()), |arguments| self.list_in("(", arguments, ")"))
            }
            Node::Fold(operator, left, right) => self.fold(operator, left, right),
            Node::PackSize(pack) => {
                let length = self.pack_length(pack)?;
                self.push_number(length.unwrap_or(0))
            }
            Node::ListSize(arguments) => {
                let mut size = 0_usize;
                for &argument in self.tree.items(arguments) {
                    size += match self.tree.get(argument) {
                        Node::Expansion(pattern) => self.pack_length(pattern)?.unwrap_or(0),
                        _ => 1,
                    };
                }
                self.push_number(size)
            }
            Node::Braced(of, values) => {
                of.map_or(Some(()), |of| self.print(of))?;
                self.list_in("{", values, "}")
            }
            Node::MemberInit(member, value) => {
                self.prefixed(".", member)?;
                self.push("=")?;
                self.operand(value)
            }
            Node::ElementInit(first, last, value) => {
                self.prefixed("[", first)?;
                last.map_or(Some(()), |last| self.prefixed(" ... ", last))?;
                self.push("]=")?;
                self.operand(value)
            }
            Node::Global(of) => self.prefixed("::", of),
            _ => Some(()),
        }
    }

    /// A function without its parameters, as in a call, or when its address is taken.
    fn without_parameters(&self, of: Id) -> Option<Id> {
        let Node::Encoding { name, function, .. } = self.tree.get(of) else { return None };
        match self.tree.get(function) {
            Node::Function { qualifiers, .. } if qualifiers.is_empty() => Some(name),
            _ => None,
        }
    }

    fn fold(&mut self, operator: &Operator, left: Option<Id>, right: Option<Id>) -> Option<()> {
        let outer = self.element.take();
        self.push("(")?;
        if let Some(left) = left {
            self.operand(left)?;
            self.push(operator.text)?;
        }
        self.push("...")?;
        if let Some(right) = right {
            self.push(operator.text)?;
            self.operand(right)?;
        }
        self.element = outer;
        self.push(")")
    }

    fn literal(&mut self, of: Id, is_negative: bool, value: &str) -> Option<()> {
        let kind = match self.tree.get(of) {
            Node::Builtin(_, kind) => kind,
            _ => Literal::Cast,
        };
        match (kind, value, is_negative) {
            (Literal::Bool, "0", false) => return self.push("false"),
            (Literal::Bool, "1", false) => return self.push("true"),
            (Literal::Suffix(suffix), ..) => {
                self.push(if is_negative { "-" } else { "" })?;
                self.push(value)?;
                return self.push(suffix);
            }
            _ => {}
        }
        self.prefixed("(", of)?;
        self.push(if is_negative { ")-" } else { ")" })?;
        if kind == Literal::Float {
            self.push("[")?;
        }
        self.push(value)?;
        self.push(if kind == Literal::Float { "]" } else { "" })
    }
}
