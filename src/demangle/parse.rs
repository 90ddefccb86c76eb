//! Reads names and types into a tree, each byte once.

use crate::node::{Id, List, Node, Tree};
use crate::operators::{Literal, abbreviation, builtin, builtin_d, find};

/// Maximum nesting of names, types and expressions; 44 in 640,000 symbols (LLVM, Clang, Node, GCC, OpenJDK).
pub(crate) const DEEPEST: u32 = 256;

/// The qualifiers of a type: the letter, its bit in [`Node::Qualified`], and the printed text.
pub(crate) const CV: [(u8, u8, &str); 3] =
    [(b'r', 1, " restrict"), (b'V', 2, " volatile"), (b'K', 4, " const")];

pub(crate) fn parse(symbol: &str) -> Option<(Tree<'_>, Id)> {
    let mut parser = Parser {
        text: symbol,
        at: 2,
        tree: Tree::default(),
        substitutions: Vec::new(),
        pending: Vec::new(),
        last_name: None,
        is_conversion: false,
        depth: 0,
        steps: 16 * symbol.len(),
    };
    let mut root = parser.encoding(true)?;
    while let Some(suffix) = parser.clone_suffix() {
        root = parser.tree.add(Node::Clone(root, suffix));
    }
    (parser.at == symbol.len()).then_some((parser.tree, root))
}

pub(crate) struct Parser<'n> {
    text: &'n str,
    at: usize,
    pub(crate) tree: Tree<'n>,
    substitutions: Vec<Id>,
    pending: Vec<Id>,
    /// The name of the class, if a constructor follows.
    last_name: Option<Id>,
    /// True in the type of a conversion operator, which the operator's own template arguments may follow.
    is_conversion: bool,
    depth: u32,
    /// The remaining number of productions.
    steps: usize,
}

impl<'n> Parser<'n> {
    pub(crate) fn peek(&self) -> u8 {
        self.peek_at(0)
    }

    pub(crate) fn peek_at(&self, ahead: usize) -> u8 {
        self.text.as_bytes().get(self.at + ahead).copied().unwrap_or(0)
    }

    pub(crate) fn eat(&mut self, text: &str) -> bool {
        let is_next = self.rest().starts_with(text.as_bytes());
        self.at += if is_next { text.len() } else { 0 };
        is_next
    }

    pub(crate) fn need(&mut self, text: &str) -> Option<()> {
        self.eat(text).then_some(())
    }

    pub(crate) fn rest(&self) -> &'n [u8] {
        &self.text.as_bytes()[self.at..]
    }

    /// The text up to the byte, which is skipped, too.
    pub(crate) fn until(&mut self, end: u8) -> Option<&'n str> {
        let length = self.rest().iter().position(|&byte| byte == end)?;
        let text = self.text.get(self.at..self.at + length);
        self.at += length + 1;
        text
    }

    pub(crate) fn add(&mut self, node: Node<'n>) -> Option<Id> {
        Some(self.tree.add(node))
    }

    /// Tries to read something; on failure, the position is restored.
    pub(crate) fn attempt<T>(&mut self, read: impl FnOnce(&mut Self) -> Option<T>) -> Option<T> {
        let before = (self.at, self.substitutions.len(), self.pending.len(), self.last_name, self.depth);
        let read = read(self);
        if read.is_none() {
            self.at = before.0;
            self.substitutions.truncate(before.1);
            self.pending.truncate(before.2);
            (self.last_name, self.depth) = (before.3, before.4);
        }
        read
    }

    fn text(&mut self, text: &'n str) -> Option<Id> {
        self.add(Node::Text(text))
    }

    fn add_substitution(&mut self, id: Id) {
        self.substitutions.push(id);
    }

    /// Reads something that may contain itself, up to [`DEEPEST`] levels.
    pub(crate) fn nested<T>(&mut self, read: impl FnOnce(&mut Self) -> Option<T>) -> Option<T> {
        self.steps = self.steps.checked_sub(1)?;
        if self.depth == DEEPEST {
            return None;
        }
        self.depth += 1;
        let read = read(self);
        self.depth -= 1;
        read
    }

    /// Reads items up to an `E`, which is skipped.
    pub(crate) fn list(&mut self, read: impl Fn(&mut Self) -> Option<Id>) -> Option<List> {
        self.list_until(|parser| parser.eat("E"), read)
    }

    pub(crate) fn list_until(
        &mut self,
        is_end: impl Fn(&mut Self) -> bool,
        read: impl Fn(&mut Self) -> Option<Id>,
    ) -> Option<List> {
        let from = self.pending.len();
        while !is_end(self) {
            let item = read(self)?;
            self.pending.push(item);
        }
        Some(self.tree.add_list(self.pending.drain(from..)))
    }

    fn number(&mut self) -> Option<u64> {
        let digits = self.rest().iter().take_while(|byte| byte.is_ascii_digit()).count();
        let number = self.text.get(self.at..self.at + digits)?.parse().ok()?;
        self.at += digits;
        Some(number)
    }

    fn skip_number(&mut self) -> Option<()> {
        self.eat("n");
        self.number().map(drop)
    }

    /// `_` for 0, `0_` for 1, and so on.
    pub(crate) fn ordinal(&mut self) -> Option<u64> {
        if self.eat("_") {
            return Some(0);
        }
        let number = self.number()?.checked_add(1)?;
        self.need("_")?;
        Some(number)
    }

    /// Like [`Parser::ordinal`], with digits of base 36.
    fn sequence_number(&mut self) -> Option<usize> {
        if self.eat("_") {
            return Some(0);
        }
        let digits = self.until(b'_')?;
        let are_digits = digits.bytes().all(|byte| byte.is_ascii_digit() || byte.is_ascii_uppercase());
        usize::from_str_radix(digits, 36).ok().filter(|_| are_digits)?.checked_add(1)
    }

    /// The suffix of a compiler's copy of a function: `.isra.0`
    fn clone_suffix(&mut self) -> Option<&'n str> {
        let rest = self.rest();
        let is_word = |byte: u8| byte.is_ascii_lowercase() || byte == b'_';
        if rest.first() != Some(&b'.')
            || !rest.get(1).is_some_and(|&byte| is_word(byte) || byte.is_ascii_digit())
        {
            return None;
        }
        let mut end =
            2 + rest[2..].iter().take_while(|&&byte| is_word(byte) || byte.is_ascii_digit()).count();
        while let [b'.', b'0'..=b'9', more @ ..] = &rest[end..] {
            end += 2 + more.iter().take_while(|byte| byte.is_ascii_digit()).count();
        }
        let suffix = self.text.get(self.at..self.at + end);
        self.at += end;
        suffix
    }

    /// A function, an object, or what the compiler made for one; `with_result` includes a function's result.
    pub(crate) fn encoding(&mut self, with_result: bool) -> Option<Id> {
        self.nested(|parser| {
            if matches!(parser.peek(), b'G' | b'T') {
                return parser.special();
            }
            let name = parser.name()?;
            if matches!(parser.peek(), 0 | b'E') {
                return Some(name);
            }
            let (name, qualifiers) = parser.without_qualifiers(name);
            let (name, mut requires) = parser.without_requirement(name);
            let (mut result, parameters) = parser.signature(parser.has_result(name))?;
            if !with_result {
                result = None;
            }
            if parser.eat("Q") {
                requires = Some(parser.expression()?);
            }
            let function = parser.add(Node::Function { result, parameters, qualifiers })?;
            parser.add(Node::Encoding { name, function, requires })
        })
    }

    /// Splits the qualifiers, which are printed after the parameters, from a member function's name.
    fn without_qualifiers(&mut self, name: Id) -> (Id, List) {
        match self.tree.get(name) {
            Node::Member(name, qualifiers) => (name, qualifiers),
            Node::Local(function, entity) => {
                let (entity, qualifiers) = self.without_qualifiers(entity);
                (self.tree.add(Node::Local(function, entity)), qualifiers)
            }
            Node::DefaultArgument(number, entity) => {
                let (entity, qualifiers) = self.without_qualifiers(entity);
                (self.tree.add(Node::DefaultArgument(number, entity)), qualifiers)
            }
            _ => (name, List::default()),
        }
    }

    /// Splits the constraint from a function template.
    fn without_requirement(&mut self, name: Id) -> (Id, Option<Id>) {
        let Node::Template(function, arguments) = self.tree.get(name) else { return (name, None) };
        match self.tree.items(arguments).last().map(|&last| self.tree.get(last)) {
            Some(Node::Requirement(requirement)) => {
                let name = self.tree.add(Node::Template(function, arguments.without_last()));
                (name, Some(requirement))
            }
            _ => (name, None),
        }
    }

    /// True if the symbol contains the function's result: for templates it does, unless the name implies it.
    fn has_result(&self, name: Id) -> bool {
        let is_special = |mut name: Id| {
            loop {
                match self.tree.get(name) {
                    Node::Nested(_, inner) | Node::Local(_, inner) => name = inner,
                    Node::Tagged(inner, _) | Node::Friend(inner) => name = inner,
                    node => {
                        break matches!(
                            node,
                            Node::Constructor(_) | Node::Destructor(_) | Node::Conversion(_)
                        );
                    }
                }
            }
        };
        match self.tree.get(name) {
            Node::Template(name, _) => !is_special(name),
            Node::Local(_, entity) | Node::DefaultArgument(_, entity) => self.has_result(entity),
            _ => false,
        }
    }

    fn signature(&mut self, has_result: bool) -> Option<(Option<Id>, List)> {
        let has_result = self.eat("J") || has_result;
        let result = if has_result { Some(self.ty()?) } else { None };
        Some((result, self.parameters()?))
    }

    /// One or more types; `void` alone means no parameters.
    fn parameters(&mut self) -> Option<List> {
        let is_end = |parser: &mut Self| match parser.peek() {
            b'R' | b'O' => parser.peek_at(1) == b'E',
            byte => matches!(byte, 0 | b'E' | b'.' | b'Q'),
        };
        let types = self.list_until(is_end, Self::ty)?;
        match *self.tree.items(types) {
            [] => None,
            [only] if matches!(self.tree.get(only), Node::Builtin("void", _)) => Some(List::default()),
            _ => Some(types),
        }
    }

    /// Something that a compiler makes for a class, an object or a function.
    fn special(&mut self) -> Option<Id> {
        let code = self.text.get(self.at..self.at + 2)?;
        self.at += 2;
        let of_type = |parser: &mut Self, what| {
            let of = parser.ty()?;
            parser.add(Node::Special(what, of))
        };
        let of_name = |parser: &mut Self, what| {
            let of = parser.name()?;
            parser.add(Node::Special(what, of))
        };
        let of_encoding = |parser: &mut Self, what| {
            let of = parser.encoding(true)?;
            parser.add(Node::Special(what, of))
        };
        match code {
            "TV" => of_type(self, "vtable for "),
            "TT" => of_type(self, "VTT for "),
            "TI" => of_type(self, "typeinfo for "),
            "TS" => of_type(self, "typeinfo name for "),
            "TF" => of_type(self, "typeinfo fn for "),
            "TJ" => of_type(self, "java Class for "),
            "Th" | "Tv" => {
                self.at -= 1;
                let what = if code == "Th" { "non-virtual thunk to " } else { "virtual thunk to " };
                self.call_offset()?;
                of_encoding(self, what)
            }
            "Tc" => {
                self.call_offset()?;
                self.call_offset()?;
                of_encoding(self, "covariant return thunk to ")
            }
            "TC" => {
                let class = self.ty()?;
                self.number()?;
                self.need("_")?;
                let base = self.ty()?;
                self.add(Node::ConstructionVtable { base, class })
            }
            "TW" => of_name(self, "TLS wrapper function for "),
            "TH" => of_name(self, "TLS init function for "),
            "TA" => {
                let of = self.template_argument()?;
                self.add(Node::Special("template parameter object for ", of))
            }
            "GV" => of_name(self, "guard variable for "),
            "GR" => {
                let of = self.name()?;
                // Old versions of GCC wrote nothing, or only the number, which perf and c++filt still expect.
                let is_numbered = self.peek().is_ascii_digit();
                let number = if is_numbered { self.number()? } else { 0 };
                let is_ordinal = self.eat("_") && is_numbered;
                self.add(Node::ReferenceTemporary(number.checked_add(is_ordinal.into())?, of))
            }
            "GA" => of_encoding(self, "hidden alias for "),
            "GT" if self.eat("n") => of_encoding(self, "non-transaction clone for "),
            "GT" if self.eat("t") => of_encoding(self, "transaction clone for "),
            "GI" => {
                let of = self.module(None)?;
                self.add(Node::Special("initializer for module ", of))
            }
            _ => None,
        }
    }

    fn call_offset(&mut self) -> Option<()> {
        if self.eat("v") {
            self.skip_number()?;
            self.need("_")?;
        } else {
            self.need("h")?;
        }
        self.skip_number()?;
        self.need("_")
    }

    pub(crate) fn name(&mut self) -> Option<Id> {
        self.nested(|parser| match (parser.peek(), parser.peek_at(1)) {
            (b'N', _) => parser.nested_name(),
            (b'Z', _) => parser.local_name(),
            (b'S', b't') => {
                let std = parser.substitution(false)?;
                let name = parser.unqualified_name(None)?;
                let name = parser.add(Node::Nested(std, name))?;
                parser.maybe_template(name)
            }
            (b'S', _) => {
                let known = parser.substitution(false)?;
                if let Node::Module { .. } = parser.tree.get(known) {
                    let name = parser.unqualified_name(Some(known))?;
                    return parser.maybe_template(name);
                }
                if parser.peek() != b'I' {
                    return Some(known);
                }
                let arguments = parser.template_arguments()?;
                parser.add(Node::Template(known, arguments))
            }
            _ => {
                let name = parser.unqualified_name(None)?;
                parser.maybe_template(name)
            }
        })
    }

    /// Adds the template arguments that may follow a new name.
    fn maybe_template(&mut self, name: Id) -> Option<Id> {
        if self.peek() != b'I' {
            return Some(name);
        }
        self.add_substitution(name);
        let arguments = self.template_arguments()?;
        self.add(Node::Template(name, arguments))
    }

    fn nested_name(&mut self) -> Option<Id> {
        self.need("N")?;
        let from = self.pending.len();
        if self.eat("H") {
            let this = self.add(Node::ExplicitThis)?;
            self.pending.push(this);
        }
        while let Some(text) = CV.iter().find(|cv| cv.0 == self.peek()).map(|cv| cv.2) {
            self.at += 1;
            let qualifier = self.text(text)?;
            self.pending.insert(from, qualifier);
        }
        if let Some(text) = self.reference_qualifier() {
            let qualifier = self.text(text)?;
            self.pending.push(qualifier);
        }
        let qualifiers = self.tree.add_list(self.pending.drain(from..));
        let name = self.prefix()?;
        self.need("E")?;
        if qualifiers.is_empty() { Some(name) } else { self.add(Node::Member(name, qualifiers)) }
    }

    fn reference_qualifier(&mut self) -> Option<&'static str> {
        match self.peek() {
            b'R' => self.at += 1,
            b'O' => {
                self.at += 1;
                return Some(" &&");
            }
            _ => return None,
        }
        Some(" &")
    }

    fn prefix(&mut self) -> Option<Id> {
        let mut whole: Option<Id> = None;
        loop {
            let next = self.peek();
            let part = match (next, self.peek_at(1)) {
                (b'E', _) => return whole,
                (b'D', b't' | b'T') if whole.is_none() => self.ty()?,
                (b'I', _) => {
                    let arguments = self.template_arguments()?;
                    self.add(Node::Template(whole?, arguments))?
                }
                (b'T', _) if whole.is_none() => self.template_parameter()?,
                // The scope of a lambda that initializes this member.
                (b'M', _) if whole.is_some() => {
                    self.at += 1;
                    continue;
                }
                (b'S', _) => {
                    let known = self.substitution(true)?;
                    match self.tree.get(known) {
                        Node::Module { .. } => {
                            let name = self.unqualified_name(Some(known))?;
                            self.scoped(whole, name)?
                        }
                        _ if whole.is_none() => {
                            whole = Some(known);
                            continue;
                        }
                        _ => return None,
                    }
                }
                _ => {
                    let name = self.unqualified_name(None)?;
                    self.scoped(whole, name)?
                }
            };
            whole = Some(part);
            if self.peek() != b'E' {
                self.add_substitution(part);
            }
        }
    }

    fn scoped(&mut self, scope: Option<Id>, name: Id) -> Option<Id> {
        match scope {
            Some(scope) => self.add(Node::Nested(scope, name)),
            None => Some(name),
        }
    }

    fn local_name(&mut self) -> Option<Id> {
        self.need("Z")?;
        let function = self.encoding(false)?;
        self.need("E")?;
        if self.eat("s") {
            self.discriminator()?;
            let entity = self.text("string literal")?;
            return self.add(Node::Local(function, entity));
        }
        if self.eat("d") {
            let number = self.ordinal()?.checked_add(1)?;
            let name = self.name()?;
            let entity = self.add(Node::DefaultArgument(number, name))?;
            return self.add(Node::Local(function, entity));
        }
        let entity = self.name()?;
        if !matches!(self.tree.get(entity), Node::Lambda { .. } | Node::Unnamed(_)) {
            self.discriminator()?;
        }
        self.add(Node::Local(function, entity))
    }

    /// Distinguishes entities of one name in one function; it is not shown.
    fn discriminator(&mut self) -> Option<()> {
        if self.eat("__") {
            if self.number()? >= 10 {
                self.need("_")?;
            }
        } else if self.eat("_") && self.peek().is_ascii_digit() {
            self.number()?;
        }
        Some(())
    }

    /// One part of a name, with its module and its ABI tags.
    pub(crate) fn unqualified_name(&mut self, module: Option<Id>) -> Option<Id> {
        let module = if self.peek() == b'W' { Some(self.module(module)?) } else { module };
        let is_friend = self.eat("F");
        let mut name = match self.peek() {
            b'0'..=b'9' => self.source_name()?,
            b'a'..=b'z' => self.operator_name()?,
            b'D' if self.eat("DC") => {
                let names = self.list(Self::source_name)?;
                self.add(Node::Bindings(names))?
            }
            b'C' | b'D' => self.constructor()?,
            b'L' => {
                self.at += 1;
                let name = self.source_name()?;
                self.discriminator()?;
                name
            }
            b'U' => self.unnamed()?,
            _ => return None,
        };
        if let Some(module) = module {
            name = self.add(Node::InModule(name, module))?;
        }
        if is_friend {
            name = self.add(Node::Friend(name))?;
        }
        self.tagged(name)
    }

    fn tagged(&mut self, mut name: Id) -> Option<Id> {
        let last_name = self.last_name;
        while self.eat("B") {
            let tag = self.identifier()?;
            name = self.add(Node::Tagged(name, tag))?;
        }
        self.last_name = last_name;
        Some(name)
    }

    fn module(&mut self, mut parent: Option<Id>) -> Option<Id> {
        while self.eat("W") {
            let is_partition = self.eat("P");
            let name = self.identifier()?;
            let module = self.add(Node::Module { parent, name, is_partition })?;
            self.add_substitution(module);
            parent = Some(module);
        }
        parent
    }

    fn identifier(&mut self) -> Option<&'n str> {
        let length = usize::try_from(self.number()?).ok().filter(|&length| length > 0)?;
        let name = self.text.get(self.at..self.at.checked_add(length)?)?;
        self.at += length;
        Some(name)
    }

    pub(crate) fn source_name(&mut self) -> Option<Id> {
        let name = self.identifier()?;
        let is_anonymous = matches!(
            name.as_bytes(),
            [b'_', b'G', b'L', b'O', b'B', b'A', b'L', b'_', b'.' | b'_' | b'$', b'N', ..]
        );
        let name = self.text(if is_anonymous { "(anonymous namespace)" } else { name })?;
        self.last_name = Some(name);
        Some(name)
    }

    fn constructor(&mut self) -> Option<Id> {
        let code = (self.peek(), self.peek_at(1));
        self.at += 2;
        match code {
            (b'C', b'I') => {
                matches!(self.peek(), b'1'..=b'5').then_some(())?;
                self.at += 1;
                // The type's name becomes that of the constructor.
                self.ty()?;
                self.add(Node::Constructor(self.last_name?))
            }
            (b'C', b'1'..=b'5') => self.add(Node::Constructor(self.last_name?)),
            (b'D', b'0'..=b'2' | b'4' | b'5') => self.add(Node::Destructor(self.last_name?)),
            _ => None,
        }
    }

    /// A lambda or a type without name.
    fn unnamed(&mut self) -> Option<Id> {
        if self.eat("Ut") {
            let number = self.ordinal()?.checked_add(1)?;
            return self.add(Node::Unnamed(number));
        }
        self.need("Ul")?;
        let head = self.list_until(|parser| !parser.is_head(), Self::head)?;
        let parameters = self.parameters()?;
        self.need("E")?;
        let number = self.ordinal()?.checked_add(1)?;
        self.add(Node::Lambda { head, parameters, number })
    }

    fn is_head(&self) -> bool {
        self.peek() == b'T' && matches!(self.peek_at(1), b'y' | b'n' | b't' | b'p')
    }

    fn head(&mut self) -> Option<Id> {
        self.nested(|parser| {
            let is_pack = parser.eat("Tp");
            if parser.eat("Ty") {
                return parser.add(Node::HeadType { is_pack });
            }
            if parser.eat("Tn") {
                let of = parser.ty()?;
                return parser.add(Node::HeadValue { of, is_pack });
            }
            parser.need("Tt")?;
            let head = parser.list(Self::head)?;
            parser.add(Node::HeadTemplate { head, is_pack })
        })
    }

    fn operator_name(&mut self) -> Option<Id> {
        if self.eat("cv") {
            let outer = std::mem::replace(&mut self.is_conversion, true);
            let to = self.ty();
            self.is_conversion = outer;
            return self.add(Node::Conversion(to?));
        }
        if self.eat("li") {
            let name = self.source_name()?;
            return self.add(Node::LiteralOperator(name));
        }
        if self.peek() == b'v' && self.peek_at(1).is_ascii_digit() {
            self.at += 2;
            let name = self.source_name()?;
            return self.add(Node::VendorOperator(name));
        }
        let operator = find(self.rest().get(..2)?)?;
        self.at += 2;
        self.add(Node::Operator(operator))
    }

    /// `S` and a substitution; `in_prefix` if a constructor may follow.
    fn substitution(&mut self, in_prefix: bool) -> Option<Id> {
        self.need("S")?;
        let code = self.peek();
        if code == b'_' || code.is_ascii_digit() || code.is_ascii_uppercase() {
            let number = self.sequence_number()?;
            return self.substitutions.get(number).copied();
        }
        self.at += 1;
        if code == b't' {
            return self.text("std");
        }
        let known = abbreviation(code)?;
        let class = self.text(known.class)?;
        self.last_name = Some(class);
        let is_constructed = in_prefix && matches!(self.peek(), b'C' | b'D');
        let name = self.text(if is_constructed { known.full } else { known.short })?;
        let is_tagged = self.peek() == b'B';
        let name = self.tagged(name)?;
        if is_tagged {
            self.add_substitution(name);
        }
        Some(name)
    }

    pub(crate) fn template_parameter(&mut self) -> Option<Id> {
        self.need("T")?;
        let number = self.ordinal()?;
        self.add(Node::Parameter(number))
    }

    /// `I` or `J`, arguments, and `E`.
    pub(crate) fn template_arguments(&mut self) -> Option<List> {
        if !self.eat("I") {
            self.need("J")?;
        }
        let (last_name, is_conversion) = (self.last_name, std::mem::take(&mut self.is_conversion));
        let arguments = self.list(|parser| {
            if parser.eat("Q") {
                let requirement = parser.expression()?;
                return parser.add(Node::Requirement(requirement));
            }
            parser.template_argument()
        });
        (self.last_name, self.is_conversion) = (last_name, is_conversion);
        arguments
    }

    pub(crate) fn template_argument(&mut self) -> Option<Id> {
        self.nested(|parser| match parser.peek() {
            b'X' => {
                parser.at += 1;
                let value = parser.expression()?;
                parser.need("E")?;
                Some(value)
            }
            b'L' => parser.literal(),
            b'I' | b'J' => {
                let arguments = parser.template_arguments()?;
                parser.add(Node::Pack(arguments))
            }
            _ => parser.ty(),
        })
    }

    pub(crate) fn ty(&mut self) -> Option<Id> {
        self.nested(Self::any_type)
    }

    fn any_type(&mut self) -> Option<Id> {
        let first = self.peek();
        let one = |parser: &mut Self| {
            parser.at += 1;
            parser.ty()
        };
        if self.is_qualifier() {
            return self.qualified_type();
        }
        if let Some((text, literal)) = builtin(first) {
            self.at += 1;
            return self.add(Node::Builtin(text, literal));
        }
        let id = match first {
            b'0'..=b'9' | b'N' | b'Z' | b'W' => self.name()?,
            b'u' => {
                self.at += 1;
                return self.vendor_type();
            }
            b'F' => self.function_type(List::default())?,
            b'A' => {
                self.at += 1;
                let size = self.array_size()?;
                let of = self.ty()?;
                self.add(Node::Array(size, of))?
            }
            b'M' => {
                let class = one(self)?;
                let member = self.ty()?;
                self.add(Node::MemberPointer(class, member))?
            }
            b'P' => {
                let to = one(self)?;
                self.add(Node::Pointer(to))?
            }
            b'R' => {
                let to = one(self)?;
                self.add(Node::Reference(to))?
            }
            b'O' => {
                let to = one(self)?;
                self.add(Node::RvalueReference(to))?
            }
            b'C' => {
                let of = one(self)?;
                self.add(Node::Suffixed(of, " _Complex"))?
            }
            b'G' => {
                let of = one(self)?;
                self.add(Node::Suffixed(of, " _Imaginary"))?
            }
            b'U' if matches!(self.peek_at(1), b't' | b'l') => self.name()?,
            b'U' => {
                self.at += 1;
                let name = self.source_name()?;
                let name = match self.peek() {
                    b'I' => {
                        let arguments = self.template_arguments()?;
                        self.add(Node::Template(name, arguments))?
                    }
                    _ => name,
                };
                let of = self.ty()?;
                self.add(Node::VendorQualified(of, name))?
            }
            b'T' => self.parameter_type()?,
            b'S' => {
                let start = self.at;
                let is_repeated = !self.peek_at(1).is_ascii_lowercase();
                let known = self.name()?;
                let is_alone = match is_repeated {
                    true => self.substitutions.contains(&known),
                    false => self.at == start + 2,
                };
                if is_alone {
                    return Some(known);
                }
                known
            }
            b'D' => return self.d_type(),
            _ => return None,
        };
        self.add_substitution(id);
        Some(id)
    }

    fn is_qualifier(&self) -> bool {
        match self.peek() {
            b'r' | b'V' | b'K' => true,
            b'D' => matches!(self.peek_at(1), b'o' | b'O' | b'w' | b'x'),
            _ => false,
        }
    }

    /// A type with qualifiers: one substitution for all of them.
    fn qualified_type(&mut self) -> Option<Id> {
        let from = self.pending.len();
        let mut cv = Vec::new();
        while self.is_qualifier() {
            let qualifier = match (self.peek(), self.peek_at(1)) {
                (b'D', kind) => {
                    self.at += 2;
                    match kind {
                        b'o' => self.add(Node::Noexcept(None))?,
                        b'O' => {
                            let condition = self.expression()?;
                            self.need("E")?;
                            self.add(Node::Noexcept(Some(condition)))?
                        }
                        b'w' => {
                            let types = self.list(Self::ty)?;
                            self.add(Node::Throw(types))?
                        }
                        _ => self.text(" transaction_safe")?,
                    }
                }
                (letter, _) => {
                    self.at += 1;
                    let &(_, bit, text) = CV.iter().find(|cv| cv.0 == letter)?;
                    cv.push(bit);
                    self.text(text)?
                }
            };
            self.pending.push(qualifier);
        }
        self.pending[from..].reverse();
        let qualifiers = self.tree.add_list(self.pending.drain(from..));
        let id = if self.peek() == b'F' {
            self.function_type(qualifiers)?
        } else {
            (self.tree.items(qualifiers).len() == cv.len()).then_some(())?;
            let mut id = self.ty()?;
            for bit in cv.into_iter().rev() {
                id = self.add(Node::Qualified(bit, id))?;
            }
            id
        };
        self.add_substitution(id);
        Some(id)
    }

    fn function_type(&mut self, qualifiers: List) -> Option<Id> {
        self.need("F")?;
        self.eat("Y");
        let (result, parameters) = self.signature(true)?;
        let qualifiers = match self.reference_qualifier() {
            Some(text) => {
                let reference = self.text(text)?;
                let all: Vec<Id> = self.tree.items(qualifiers).iter().copied().chain([reference]).collect();
                self.tree.add_list(all)
            }
            None => qualifiers,
        };
        self.need("E")?;
        self.add(Node::Function { result, parameters, qualifiers })
    }

    fn array_size(&mut self) -> Option<Option<Id>> {
        if self.eat("_") {
            return Some(None);
        }
        let start = self.at;
        let size = if self.peek().is_ascii_digit() {
            self.number()?;
            let text = self.text.get(start..self.at)?;
            self.text(text)?
        } else {
            self.expression()?
        };
        self.need("_")?;
        Some(Some(size))
    }

    /// A vendor's type. perf and c++filt leave names with its template arguments mangled.
    fn vendor_type(&mut self) -> Option<Id> {
        let name = self.source_name()?;
        let id = match self.peek() {
            b'I' => {
                let arguments = self.template_arguments()?;
                self.add(Node::Template(name, arguments))?
            }
            _ => name,
        };
        self.add_substitution(id);
        Some(id)
    }

    /// A parameter of the template, possibly with arguments of its own.
    fn parameter_type(&mut self) -> Option<Id> {
        let parameter = self.template_parameter()?;
        if self.peek() != b'I' {
            return Some(parameter);
        }
        if self.is_conversion {
            // `operator T_<…>`: the arguments belong to the operator unless more follow.
            let applied = self.attempt(|parser| {
                parser.add_substitution(parameter);
                let arguments = parser.template_arguments()?;
                (parser.peek() == b'I').then_some(())?;
                parser.add(Node::Template(parameter, arguments))
            });
            return applied.or(Some(parameter));
        }
        self.add_substitution(parameter);
        let arguments = self.template_arguments()?;
        self.add(Node::Template(parameter, arguments))
    }

    fn d_type(&mut self) -> Option<Id> {
        let kind = self.peek_at(1);
        self.at += 2;
        if let Some((text, literal)) = builtin_d(kind) {
            return self.add(Node::Builtin(text, literal));
        }
        let id = match kind {
            b'p' => {
                let of = self.ty()?;
                self.add(Node::Expansion(of))?
            }
            b't' | b'T' => {
                let expression = self.expression()?;
                self.need("E")?;
                self.add(Node::Decltype(expression))?
            }
            b'v' => {
                let size = if self.eat("_") {
                    let size = self.expression()?;
                    self.need("_")?;
                    size
                } else {
                    self.array_size()??
                };
                let of = self.ty()?;
                self.add(Node::Vector(size, of))?
            }
            b'F' => return self.float_type(),
            b'B' | b'U' => {
                let bits = self.array_size()??;
                self.add(Node::BitInt { is_signed: kind == b'B', bits })?
            }
            _ => return None,
        };
        self.add_substitution(id);
        Some(id)
    }

    fn float_type(&mut self) -> Option<Id> {
        let bits = self.number()?;
        if self.eat("_") {
            return self.add(Node::Float(bits, ""));
        }
        if self.eat("x") {
            return self.add(Node::Float(bits, "x"));
        }
        (bits == 16 && self.eat("b")).then_some(())?;
        self.add(Node::Builtin("std::bfloat16_t", Literal::Float))
    }
}
