//! Lists the operators and the builtin types of the Itanium C++ ABI with their codes.

/// The notation of a literal's value.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Literal {
    /// The value and this suffix: `1ul`.
    Suffix(&'static str),
    /// `true` and `false`.
    Bool,
    /// The bytes in brackets after the type: `(float)[3f800000]`.
    Float,
    /// The value after the type: `(short)1`.
    Cast,
}

#[derive(Debug)]
pub(crate) struct Operator {
    pub(crate) code: &'static [u8; 2],
    /// Its text; a space at its end is printed in expressions, but not in `operator new`.
    pub(crate) text: &'static str,
    pub(crate) operands: Operands,
}

#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Operands {
    Nothing,
    One,
    /// One, with the operator after it unless `_` follows the code.
    Step,
    Enclosed,
    Type,
    Two,
    /// A type and an expression, as `static_cast`.
    Cast,
    /// Two, as `[]`.
    Subscript,
    Condition,
    Call,
    New,
}

const fn operator(code: &'static [u8; 2], text: &'static str, operands: Operands) -> Operator {
    Operator { code, text, operands }
}

static OPERATORS: &[Operator] = &[
    operator(b"aN", "&=", Operands::Two),
    operator(b"aS", "=", Operands::Two),
    operator(b"aa", "&&", Operands::Two),
    operator(b"ad", "&", Operands::One),
    operator(b"an", "&", Operands::Two),
    operator(b"at", "alignof ", Operands::Type),
    operator(b"aw", "co_await ", Operands::One),
    operator(b"az", "alignof ", Operands::One),
    operator(b"cc", "const_cast", Operands::Cast),
    operator(b"cl", "()", Operands::Call),
    operator(b"cm", ",", Operands::Two),
    operator(b"co", "~", Operands::One),
    operator(b"dV", "/=", Operands::Two),
    operator(b"da", "delete[] ", Operands::One),
    operator(b"dc", "dynamic_cast", Operands::Cast),
    operator(b"de", "*", Operands::One),
    operator(b"dl", "delete ", Operands::One),
    operator(b"ds", ".*", Operands::Two),
    operator(b"dt", ".", Operands::Two),
    operator(b"dv", "/", Operands::Two),
    operator(b"eO", "^=", Operands::Two),
    operator(b"eo", "^", Operands::Two),
    operator(b"eq", "==", Operands::Two),
    operator(b"ge", ">=", Operands::Two),
    operator(b"gt", ">", Operands::Two),
    operator(b"ix", "[]", Operands::Subscript),
    operator(b"lS", "<<=", Operands::Two),
    operator(b"le", "<=", Operands::Two),
    operator(b"ls", "<<", Operands::Two),
    operator(b"lt", "<", Operands::Two),
    operator(b"mI", "-=", Operands::Two),
    operator(b"mL", "*=", Operands::Two),
    operator(b"mi", "-", Operands::Two),
    operator(b"ml", "*", Operands::Two),
    operator(b"mm", "--", Operands::Step),
    operator(b"na", "new[]", Operands::New),
    operator(b"ne", "!=", Operands::Two),
    operator(b"ng", "-", Operands::One),
    operator(b"nt", "!", Operands::One),
    operator(b"nw", "new", Operands::New),
    operator(b"nx", "noexcept", Operands::Enclosed),
    operator(b"oR", "|=", Operands::Two),
    operator(b"oo", "||", Operands::Two),
    operator(b"or", "|", Operands::Two),
    operator(b"pL", "+=", Operands::Two),
    operator(b"pl", "+", Operands::Two),
    operator(b"pm", "->*", Operands::Two),
    operator(b"pp", "++", Operands::Step),
    operator(b"ps", "+", Operands::One),
    operator(b"pt", "->", Operands::Two),
    operator(b"qu", "?", Operands::Condition),
    operator(b"rM", "%=", Operands::Two),
    operator(b"rS", ">>=", Operands::Two),
    operator(b"rc", "reinterpret_cast", Operands::Cast),
    operator(b"rm", "%", Operands::Two),
    operator(b"rs", ">>", Operands::Two),
    operator(b"sc", "static_cast", Operands::Cast),
    operator(b"ss", "<=>", Operands::Two),
    operator(b"st", "sizeof ", Operands::Type),
    operator(b"sz", "sizeof ", Operands::One),
    operator(b"tr", "throw", Operands::Nothing),
    operator(b"tw", "throw ", Operands::One),
];

pub(crate) fn find(code: &[u8]) -> Option<&'static Operator> {
    let at = OPERATORS.binary_search_by(|operator| operator.code[..].cmp(code)).ok()?;
    OPERATORS.get(at)
}

pub(crate) fn builtin(code: u8) -> Option<(&'static str, Literal)> {
    Some(match code {
        b'a' => ("signed char", Literal::Cast),
        b'b' => ("bool", Literal::Bool),
        b'c' => ("char", Literal::Cast),
        b'd' => ("double", Literal::Float),
        b'e' => ("long double", Literal::Float),
        b'f' => ("float", Literal::Float),
        b'g' => ("__float128", Literal::Float),
        b'h' => ("unsigned char", Literal::Cast),
        b'i' => ("int", Literal::Suffix("")),
        b'j' => ("unsigned int", Literal::Suffix("u")),
        b'l' => ("long", Literal::Suffix("l")),
        b'm' => ("unsigned long", Literal::Suffix("ul")),
        b'n' => ("__int128", Literal::Cast),
        b'o' => ("unsigned __int128", Literal::Cast),
        b's' => ("short", Literal::Cast),
        b't' => ("unsigned short", Literal::Cast),
        b'v' => ("void", Literal::Cast),
        b'w' => ("wchar_t", Literal::Cast),
        b'x' => ("long long", Literal::Suffix("ll")),
        b'y' => ("unsigned long long", Literal::Suffix("ull")),
        b'z' => ("...", Literal::Cast),
        _ => return None,
    })
}

pub(crate) fn builtin_d(code: u8) -> Option<(&'static str, Literal)> {
    Some(match code {
        b'a' => ("auto", Literal::Cast),
        b'c' => ("decltype(auto)", Literal::Cast),
        b'd' => ("decimal64", Literal::Cast),
        b'e' => ("decimal128", Literal::Cast),
        b'f' => ("decimal32", Literal::Cast),
        b'h' => ("half", Literal::Float),
        b'i' => ("char32_t", Literal::Cast),
        b'n' => ("decltype(nullptr)", Literal::Cast),
        b's' => ("char16_t", Literal::Cast),
        b'u' => ("char8_t", Literal::Cast),
        _ => return None,
    })
}

/// One of the abbreviations of the standard library.
#[derive(Debug)]
pub(crate) struct Abbreviation {
    pub(crate) short: &'static str,
    /// The full class name, used before its constructors.
    pub(crate) full: &'static str,
    pub(crate) class: &'static str,
}

pub(crate) fn abbreviation(code: u8) -> Option<Abbreviation> {
    let (short, full, class) = match code {
        b'a' => ("std::allocator", "std::allocator", "allocator"),
        b'b' => ("std::basic_string", "std::basic_string", "basic_string"),
        b's' => {
            let full = "std::basic_string<char, std::char_traits<char>, std::allocator<char> >";
            ("std::string", full, "basic_string")
        }
        b'i' => ("std::istream", "std::basic_istream<char, std::char_traits<char> >", "basic_istream"),
        b'o' => ("std::ostream", "std::basic_ostream<char, std::char_traits<char> >", "basic_ostream"),
        b'd' => ("std::iostream", "std::basic_iostream<char, std::char_traits<char> >", "basic_iostream"),
        _ => return None,
    };
    Some(Abbreviation { short, full, class })
}
