//! Finds the functions and other names that a name, or a part of one, selects.

use std::collections::BTreeSet;

use perfx_pipeline::{Error, Result, likeness};
use regex::bytes::Regex;

const LISTED: usize = 5;

/// Chooses the functions with this name or, as a regular expression, matching names; else those with this
/// name without parameters and template arguments; else the only one that contains it.
///
/// # Errors
///
/// No function is chosen; the error has the shortest names that contain it or, if there are none, the most
/// similar ones.
pub fn meant<'n>(
    wanted: &str,
    names: impl Iterator<Item = &'n str> + Clone,
) -> Result<Vec<bool>, Vec<&'n str>> {
    let is = is_whole(wanted);
    let chosen = |is: &dyn Fn(&str) -> bool| {
        let chosen: Vec<bool> = names.clone().map(is).collect();
        chosen.contains(&true).then_some(chosen)
    };
    if let Some(chosen) = chosen(&is).or_else(|| chosen(&|name| is_short(wanted, name))) {
        return Ok(chosen);
    }
    let mut similar: Vec<&str> = names.clone().filter(|name| name.contains(wanted)).collect();
    similar.sort_unstable_by_key(|name| (name.len(), *name));
    similar.dedup();
    match similar[..] {
        [only] => return Ok(names.map(|name| name == only).collect()),
        [] => {
            similar = nearest(names, &[wanted]);
            similar.dedup();
        }
        _ => {}
    }
    similar.truncate(LISTED);
    Err(similar)
}

/// Matches functions by their whole names, with a name or a regular expression.
fn is_whole(wanted: &str) -> impl Fn(&str) -> bool {
    let pattern = whole(wanted).ok();
    move |name| name == wanted || pattern.as_ref().is_some_and(|regex| regex.is_match(name.as_bytes()))
}

fn is_short(wanted: &str, name: &str) -> bool {
    let short = without_arguments(name);
    short.strip_suffix(wanted).is_some_and(|rest| rest.is_empty() || rest.ends_with("::"))
}

/// Matches functions, before all names are known, by their names with or without parameters.
pub fn is_meant(wanted: &str) -> impl Fn(&str) -> bool {
    let is_whole = is_whole(wanted);
    move |name| is_whole(name) || is_short(wanted, name)
}

/// The error for an unknown function, with similar names.
pub fn unknown<'n>(wanted: &str, names: impl Iterator<Item = &'n str> + Clone) -> String {
    let similar = match meant(wanted, names.clone()) {
        Ok(chosen) => names.zip(chosen).filter(|(_, chosen)| *chosen).map(|(name, _)| name).collect(),
        Err(similar) => similar,
    };
    if similar.is_empty() {
        return "no function has a name".to_owned();
    }
    if let [only] = similar[..]
        && only.contains(wanted)
    {
        return format!("`{wanted}` is only a part of the name `{only}`; give the whole name");
    }
    let several = similar.iter().all(|known| known.contains(wanted));
    let similar: Vec<_> = similar.iter().map(|name| format!("`{name}`")).collect();
    let similar = similar.join(", ");
    match several {
        true => format!("several functions contain `{wanted}`, so give more of the name: {similar}"),
        false => format!("no function has the name `{wanted}`; similar names: {similar}"),
    }
}

/// The names, most similar to the requested ones first.
pub(crate) fn nearest<N: AsRef<[u8]> + Copy + Ord>(
    names: impl Iterator<Item = N>,
    wanted: &[&str],
) -> Vec<N> {
    let alike = |bytes: N| {
        let name = String::from_utf8_lossy(bytes.as_ref());
        wanted.iter().map(|wanted| likeness(wanted, &name)).fold(0.0, f64::max)
    };
    let mut scored: Vec<_> = names.map(|name| (alike(name), name)).collect();
    scored.sort_by(|(a, one), (b, other)| b.total_cmp(a).then(one.cmp(other)));
    scored.into_iter().map(|(_, name)| name).collect()
}

/// For each value that matches none of the names: the only name that contains its text.
pub(crate) fn parts_of_names<'r, 'n>(
    values: &'r [Regex],
    names: &BTreeSet<&'n [u8]>,
    is: impl Fn(&Regex, &[u8]) -> bool,
) -> Vec<(&'r Regex, Option<&'n [u8]>)> {
    let only = |regex: &Regex| {
        if names.iter().any(|name| is(regex, name)) {
            return None;
        }
        let part = written(regex).as_bytes();
        let contains = |name: &&&[u8]| name.windows(part.len().max(1)).any(|window| window == part);
        let mut containing = names.iter().filter(contains);
        let first = containing.next().filter(|_| containing.next().is_none());
        // A tracepoint without its system, or a file without its folder.
        let is_last = |name: &&&[u8]| {
            name.strip_suffix(part).is_some_and(|rest| rest.ends_with(b":") || rest.ends_with(b"/"))
        };
        let mut last = names.iter().filter(is_last);
        let first = last.next().filter(|_| last.next().is_none()).or(first);
        // Regular expressions match text.
        first.filter(|name| str::from_utf8(name).is_ok()).copied()
    };
    values.iter().map(|regex| (regex, only(regex))).collect()
}

/// The regular expressions of [`parts_of_names`], with names in place of their parts.
pub(crate) fn replaced(parts: Vec<(&Regex, Option<&[u8]>)>) -> Vec<Regex> {
    let exactly = |name: &[u8]| whole(&regex::escape(str::from_utf8(name).ok()?)).ok();
    parts.into_iter().map(|(regex, name)| name.and_then(exactly).unwrap_or_else(|| regex.clone())).collect()
}

/// The regular expressions; for one that matches no name, the only name that contains it.
pub(crate) fn with_parts<'n>(
    values: &[Regex],
    names: impl Iterator<Item = &'n [u8]>,
    is: impl Fn(&Regex, &[u8]) -> bool,
) -> Vec<Regex> {
    replaced(parts_of_names(values, &names.collect(), is))
}

pub(crate) fn written(regex: &Regex) -> &str {
    regex.as_str().trim_start_matches("^(?:").trim_end_matches(")$")
}

/// A regular expression that matches whole names.
///
/// # Errors
///
/// It is not a regular expression.
pub fn whole(part: &str) -> Result<Regex> {
    // `[kernel.kallsyms]` is a name; as a regular expression it would match a single character.
    let inner = part.strip_prefix('[').and_then(|part| part.strip_suffix(']'));
    let named = inner.is_some_and(|inner| inner.len() > 1 && !inner.contains(['[', ']', '\\', '^', '-']));
    let pattern = if named { regex::escape(part) } else { part.to_owned() };
    // The parser's message has several lines; the last one names the fault.
    Regex::new(&format!("^(?:{pattern})$")).map_err(|error| {
        let error = error.to_string();
        let what = error.lines().last().unwrap_or_default().trim_start_matches("error: ");
        Error::new(format!("`{part}` is not a regular expression: {what}"))
    })
}

/// The characters of a text, each with the number of brackets around it, itself included. After `operator`
/// and `-`, `<` and `>` are not brackets.
pub(crate) fn brackets(
    text: &str,
    [opening, closing]: [&'static str; 2],
) -> impl Iterator<Item = (usize, char, u32)> {
    let mut depth = 0_u32;
    text.char_indices().map(move |(at, char)| {
        let before = ["operator", "operator<", "operator>", "-"];
        let is_operator =
            matches!(char, '<' | '>') && before.iter().any(|before| text[..at].ends_with(before));
        depth += u32::from(opening.contains(char) && !is_operator);
        let inside = depth;
        depth = depth.saturating_sub(u32::from(closing.contains(char) && !is_operator));
        (at, char, inside)
    })
}

/// A name with `…` for its template arguments and parameters.
pub fn shortened(name: &str) -> String {
    let (mut short, mut inner) = (String::new(), String::new());
    for (_, char, depth) in brackets(name, ["(<", ")>"]) {
        let is_outer = depth <= 1 && matches!(char, '(' | '<' | ')' | '>');
        if depth == 0 || is_outer {
            short += if inner.is_empty() { "" } else { "…" };
            inner.clear();
            short.push(char);
        } else {
            inner.push(char);
        }
    }
    short + &inner
}

/// A name without parameters, template arguments, result type, and `const`.
fn without_arguments(name: &str) -> String {
    let outside = brackets(name, ["(<", ")>"]).filter(|(_, _, depth)| *depth == 0);
    let short: String = outside.map(|(_, char, _)| char).collect();
    let short = short.strip_suffix(" const").unwrap_or(&short);
    let start = if short.contains("operator") { 0 } else { short.rfind(' ').map_or(0, |at| at + 1) };
    short[start..].to_owned()
}

#[cfg(test)]
mod tests {
    use super::*;

    const NAMES: [&str; 8] = [
        "main",
        "ns::Tab<int, 1u>::fast(long) const",
        "ns::Tab<int, 1u>::fast(int)",
        "void ns::sort<int*>(int*, int*)",
        "bool operator< <char, A>(A const&, A const&)",
        "malloc",
        "malloc_consolidate",
        "main.(*Acc).addOne",
    ];

    fn found(wanted: &str) -> Result<Vec<&'static str>, Vec<&'static str>> {
        let chosen = meant(wanted, NAMES.into_iter())?;
        Ok(NAMES.into_iter().zip(chosen).filter(|(_, chosen)| *chosen).map(|(name, _)| name).collect())
    }

    #[test]
    fn a_name_need_not_be_typed_whole() {
        let both = vec![NAMES[1], NAMES[2]];
        for (wanted, expected) in [
            ("malloc", vec!["malloc"]),
            ("main", vec!["main"]),
            ("malloc.*", vec!["malloc", "malloc_consolidate"]),
            ("ns::Tab<int, 1u>::fast(int)", vec![NAMES[2]]),
            ("ns::Tab::fast", both.clone()),
            ("fast", both),
            ("sort", vec![NAMES[3]]),
            ("consolidate", vec!["malloc_consolidate"]),
            ("addOne", vec![NAMES[7]]),
        ] {
            assert_eq!(found(wanted), Ok(expected), "{wanted}");
        }
    }

    #[test]
    fn a_short_name_keeps_what_is_outside_of_brackets() {
        for (name, short) in [
            ("ns::Tab<int, 1u>::fast(long) const", "ns::Tab<…>::fast(…) const"),
            ("void ns::sort<std::pair<int, int>*>(int*)", "void ns::sort<…>(…)"),
            ("bool operator< <char, A>(A const&)", "bool operator< <…>(…)"),
            ("operator->()", "operator->()"),
            ("main", "main"),
            ("f(a", "f(a"),
        ] {
            assert_eq!(shortened(name), short);
        }
    }

    #[test]
    fn the_last_part_of_a_name_is_preferred() {
        let names = [&b"timer:timer_start"[..], b"timer:hrtimer_start", b"/usr/lib/a.so", b"/opt/a.so.1"];
        let part = |wanted: &str| {
            let values = [whole(wanted).unwrap()];
            let is = |regex: &Regex, name: &[u8]| regex.is_match(name);
            parts_of_names(&values, &names.into(), is)[0].1
        };
        assert_eq!(part("timer_start"), Some(names[0]));
        assert_eq!(part("hrtimer"), Some(names[1]));
        assert_eq!(part("a.so"), Some(names[2]));
        assert_eq!((part("start"), part("timer:hrtimer_start")), (None, None));
    }

    #[test]
    fn a_part_of_one_name_only_is_not_called_a_part_of_several() {
        let text = unknown("conso", NAMES.iter().copied());
        assert_eq!(text, "`conso` is only a part of the name `malloc_consolidate`; give the whole name");
    }

    #[test]
    fn names_that_could_be_meant_are_listed() {
        assert_eq!(found("lloc"), Err(vec!["malloc", "malloc_consolidate"]));
        assert_eq!(found("mallco").unwrap_err()[0], "malloc");
        assert_eq!(found("nothing").unwrap_err().len(), LISTED);
        assert_eq!(meant("f", [].into_iter()), Err(vec![]));
    }
}
