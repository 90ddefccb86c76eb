//! A parsed name: nodes that refer to each other by number, so that a substitution costs no copy.

use crate::operators::{Literal, Operator};

#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub(crate) struct Id(u32);

/// A range of consecutive nodes.
#[derive(Clone, Copy, Default, PartialEq, Eq, Debug)]
pub(crate) struct List {
    from: u32,
    to: u32,
}

impl List {
    pub(crate) fn is_empty(self) -> bool {
        self.from == self.to
    }

    pub(crate) fn without_last(self) -> List {
        List { to: self.to.saturating_sub(1).max(self.from), ..self }
    }
}

/// A part of a name. Braces contain the printed nodes.
#[derive(Clone, Copy, Debug)]
pub(crate) enum Node<'n> {
    /// Text that stands for itself: an identifier, `std::string`.
    Text(&'n str),
    /// `{scope}::{name}`
    Nested(Id, Id),
    /// `{name}<{arguments}>`
    Template(Id, List),
    /// `{function}::{entity}`; the function is printed without its result.
    Local(Id, Id),
    /// `{default arg#1}::{entity}`
    DefaultArgument(u64, Id),
    /// `{name}[abi:{tag}]`
    Tagged(Id, &'n str),
    /// `{name}@{module}`
    InModule(Id, Id),
    /// `{module}.{name}`, or `{module}:{name}` if it is a partition.
    Module {
        parent: Option<Id>,
        name: &'n str,
        is_partition: bool,
    },
    Friend(Id),
    Constructor(Id),
    Destructor(Id),
    Operator(&'static Operator),
    /// `operator {name}` of a vendor.
    VendorOperator(Id),
    /// `operator {type}`
    Conversion(Id),
    LiteralOperator(Id),
    /// `{unnamed type#1}`
    Unnamed(u64),
    /// `{lambda<{template head}>({parameters})#1}`
    Lambda {
        head: List,
        parameters: List,
        number: u64,
    },
    /// `[{name}, {name}]`
    Bindings(List),
    /// A member function's name, with the qualifiers after its parameters: `const`.
    Member(Id, List),
    /// A parameter of a lambda's template head: `typename $T0`, `typename... $T0`
    HeadType {
        is_pack: bool,
    },
    /// `int $N0`
    HeadValue {
        of: Id,
        is_pack: bool,
    },
    /// `template<typename> class $TT0`
    HeadTemplate {
        head: List,
        is_pack: bool,
    },

    /// A type of the language.
    Builtin(&'static str, Literal),
    /// `_Float32`, `_Float32x`
    Float(u64, &'static str),
    /// `{type} const`; the bit is one of [`crate::parse::CV`].
    Qualified(u8, Id),
    /// `{type} _Complex`
    Suffixed(Id, &'static str),
    /// `{type} {name}`, a qualifier of a vendor.
    VendorQualified(Id, Id),
    /// `{type} __vector({size})`
    Vector(Id, Id),
    Pointer(Id),
    Reference(Id),
    RvalueReference(Id),
    /// `{type} {class}::*`; the class is first.
    MemberPointer(Id, Id),
    /// `{result} ({parameters}){qualifiers}`
    Function {
        result: Option<Id>,
        parameters: List,
        qualifiers: List,
    },
    /// `{type} [{size}]`
    Array(Option<Id>, Id),
    /// A parameter of the surrounding template, printed as its argument.
    Parameter(u64),
    /// Several arguments for one parameter.
    Pack(List),
    /// The constraint of the preceding arguments: ` requires {expression}`
    Requirement(Id),
    /// The node inside, once for each argument of its pack.
    Expansion(Id),
    /// `decltype ({expression})`
    Decltype(Id),
    /// `_BitInt({bits})`
    BitInt {
        is_signed: bool,
        bits: Id,
    },
    /// A qualifier of a function: ` noexcept`, ` noexcept({expression})`
    Noexcept(Option<Id>),
    /// A qualifier of a function: ` throw({types})`
    Throw(List),
    /// The first parameter is `this`.
    ExplicitThis,

    /// A function; the second node is its [`Node::Function`].
    Encoding {
        name: Id,
        function: Id,
        requires: Option<Id>,
    },
    /// `vtable for {type}`
    Special(&'static str, Id),
    /// `construction vtable for {base}-in-{class}`
    ConstructionVtable {
        base: Id,
        class: Id,
    },
    /// `{function} [clone .isra.0]`
    Clone(Id, &'n str),
    /// `reference temporary #0 for {name}`
    ReferenceTemporary(u64, Id),

    FunctionParameter(u64),
    /// `({type}){value}`, or in the form given by [`Literal`].
    Literal {
        of: Id,
        is_negative: bool,
        value: &'n str,
    },
    Unary(&'static Operator, Id),
    /// An operator and a type, or an expression that is always in parentheses.
    Applied(&'static Operator, Id),
    Postfix(&'static Operator, Id),
    /// `{left}+{right}`
    Binary(&'static Operator, Id, Id),
    Subscript(Id, Id),
    Conditional(Id, Id, Id),
    Call(Id, List),
    Cast(Id, Id),
    /// `({type})({expressions})`
    CastAll(Id, List),
    /// `static_cast<{type}>({expression})`
    NamedCast(&'static Operator, Id, Id),
    /// `new ({placement}) {type}({arguments})`
    New {
        operator: &'static Operator,
        placement: List,
        of: Id,
        arguments: Option<List>,
    },
    /// `({left}+...+{right})`
    Fold(&'static Operator, Option<Id>, Option<Id>),
    PackSize(Id),
    ListSize(List),
    /// `{type}{{expressions}}`
    Braced(Option<Id>, List),
    /// `.{member}={value}`
    MemberInit(Id, Id),
    /// `[{index}]={value}`, `[{index} ... {last}]={value}`
    ElementInit(Id, Option<Id>, Id),
    /// `::{expression}`
    Global(Id),
}

#[derive(Debug, Default)]
pub(crate) struct Tree<'n> {
    nodes: Vec<Node<'n>>,
    items: Vec<Id>,
}

impl<'n> Tree<'n> {
    pub(crate) fn add(&mut self, node: Node<'n>) -> Id {
        self.nodes.push(node);
        Id(self.nodes.len() as u32 - 1)
    }

    pub(crate) fn add_list(&mut self, items: impl IntoIterator<Item = Id>) -> List {
        let from = self.items.len() as u32;
        self.items.extend(items);
        List { from, to: self.items.len() as u32 }
    }

    pub(crate) fn get(&self, id: Id) -> Node<'n> {
        self.nodes[id.0 as usize]
    }

    pub(crate) fn items(&self, list: List) -> &[Id] {
        &self.items[list.from as usize..list.to as usize]
    }

    /// The parts of a node that may contain a pack for its expansion.
    pub(crate) fn parts(&self, id: Id) -> impl Iterator<Item = Id> + use<'_, 'n> {
        let none = List::default();
        let (ids, list) = match self.get(id) {
            Node::Nested(a, b)
            | Node::Local(a, b)
            | Node::InModule(a, b)
            | Node::VendorQualified(a, b)
            | Node::Vector(a, b)
            | Node::MemberPointer(a, b)
            | Node::Binary(_, a, b)
            | Node::Subscript(a, b)
            | Node::Cast(a, b)
            | Node::NamedCast(_, a, b)
            | Node::MemberInit(a, b)
            | Node::Encoding { name: a, function: b, .. } => ([Some(a), Some(b), None], none),
            Node::Tagged(a, _)
            | Node::Friend(a)
            | Node::Conversion(a)
            | Node::Member(a, _)
            | Node::Qualified(_, a)
            | Node::Suffixed(a, _)
            | Node::Pointer(a)
            | Node::Reference(a)
            | Node::RvalueReference(a)
            | Node::Decltype(a)
            | Node::Global(a)
            | Node::PackSize(a)
            | Node::Literal { of: a, .. }
            | Node::Unary(_, a)
            | Node::Applied(_, a)
            | Node::Postfix(_, a) => ([Some(a), None, None], none),
            Node::Template(a, list)
            | Node::Call(a, list)
            | Node::CastAll(a, list)
            | Node::New { of: a, placement: list, .. } => ([Some(a), None, None], list),
            Node::Pack(list) | Node::Throw(list) => ([None; 3], list),
            Node::Braced(a, list) | Node::Function { result: a, parameters: list, .. } => {
                ([a, None, None], list)
            }
            Node::Conditional(a, b, c) => ([Some(a), Some(b), Some(c)], none),
            Node::ElementInit(a, b, c) => ([Some(a), b, Some(c)], none),
            Node::Array(a, b) => ([a, Some(b), None], none),
            Node::Fold(_, a, b) => ([a, b, None], none),
            _ => ([None; 3], none),
        };
        ids.into_iter().flatten().chain(self.items(list).iter().copied())
    }
}
