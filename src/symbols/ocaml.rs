//! Shows the names of OCaml's symbols as the program's source has them.
//!
//! A symbol is `caml`, a module, and a name with a number. Modules are separated by `__`; the last separator
//! is `__` up to OCaml 5.0, `.` from 5.1 and `$` from 5.4. Characters that C's names can't have are `$` and
//! two hex digits, or `$$` and two with the separator `$`.

pub(crate) fn demangle(symbol: &str) -> Option<String> {
    let name =
        symbol.strip_prefix("caml").filter(|name| name.starts_with(|c: char| c.is_ascii_uppercase()))?;
    let is_escape = |rest: &str| escaped(rest).is_some();
    // A dollar that escapes nothing separates.
    let separates = name.match_indices('$').any(|(at, _)| !is_escape(&name[at + 1..]));
    let prefix = if separates { "$$" } else { "$" };
    let (mut shown, mut rest) = (Vec::new(), name);
    while let Some(next) = rest.chars().next() {
        if let Some((byte, after)) = rest.strip_prefix(prefix).and_then(escaped) {
            shown.push(byte);
            rest = after;
        } else if let Some(after) = rest.strip_prefix("__").or(rest.strip_prefix('$').filter(|_| separates)) {
            shown.push(b'.');
            rest = after;
        } else {
            shown.extend(&rest.as_bytes()[..next.len_utf8()]);
            rest = &rest[next.len_utf8()..];
        }
    }
    String::from_utf8(shown).ok()
}

fn escaped(rest: &str) -> Option<(u8, &str)> {
    let digits = rest.get(..2).filter(|digits| digits.bytes().all(|byte| byte.is_ascii_hexdigit()))?;
    Some((u8::from_str_radix(digits, 16).ok()?, &rest[2..]))
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The first three are those of perf.
    #[test]
    fn names_of_ocaml_are_those_of_the_source() {
        for (symbol, name) in [
            ("camlStdlib__array__map_154", "Stdlib.array.map_154"),
            (
                "camlStdlib__anon_fn$5bstdlib$2eml$3a334$2c0$2d$2d54$5d_1453",
                "Stdlib.anon_fn[stdlib.ml:334,0--54]_1453",
            ),
            ("camlStdlib__bytes__$2b$2b_2205", "Stdlib.bytes.++_2205"),
            ("camlStdlib__List.fold_left_270", "Stdlib.List.fold_left_270"),
            ("camlStdlib__List$fold_left_270", "Stdlib.List.fold_left_270"),
            ("camlStdlib$$$40_12", "Stdlib.@_12"),
            ("camlStdlib$$$2b$$2b_12", "Stdlib.++_12"),
            ("camlDune__exe__Main.caf\u{e9}_3", "Dune.exe.Main.caf\u{e9}_3"),
        ] {
            assert_eq!(demangle(symbol).as_deref(), Some(name), "{symbol}");
        }
        for symbol in ["caml_main", "camlinternal", "caml", "Stdlib__List", "camlX$ff"] {
            assert_eq!(demangle(symbol), None, "{symbol}");
        }
    }
}
