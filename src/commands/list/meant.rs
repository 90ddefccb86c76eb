//! Finds the functions that a user means by a name, which need not be typed whole.

use perfx_pipeline::likeness;
use regex::Regex;

/// The number of similar names that are listed.
const LISTED: usize = 5;

/// The functions with this name, or that the whole regular expression matches; else those with this name
/// before parameters and template arguments; else the only one that contains it. If there is none, the most
/// similar names, which contain it if any do.
pub(super) fn meant<'n>(
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
            let mut scored: Vec<_> = names.map(|name| (likeness(wanted, name), name)).collect();
            scored.sort_by(|(a, one), (b, other)| b.total_cmp(a).then(one.cmp(other)));
            scored.dedup();
            similar.extend(scored.into_iter().map(|(_, name)| name));
        }
        _ => {}
    }
    similar.truncate(LISTED);
    Err(similar)
}

/// Matches functions by their whole names: with this one, or all that the regular expression matches.
fn is_whole(wanted: &str) -> impl Fn(&str) -> bool {
    let pattern = Regex::new(&format!("^(?:{wanted})$")).ok();
    move |name| name == wanted || pattern.as_ref().is_some_and(|regex| regex.is_match(name))
}

fn is_short(wanted: &str, name: &str) -> bool {
    let short = without_arguments(name);
    short.strip_suffix(wanted).is_some_and(|rest| rest.is_empty() || rest.ends_with("::"))
}

/// Matches functions before all names are known: by their whole names, or those before parameters.
pub(super) fn is_meant(wanted: &str) -> impl Fn(&str) -> bool {
    let is_whole = is_whole(wanted);
    move |name| is_whole(name) || is_short(wanted, name)
}

/// Says that no function has this name, and which have similar ones.
pub(super) fn unknown<'n>(wanted: &str, names: impl Iterator<Item = &'n str> + Clone) -> String {
    let similar = match meant(wanted, names.clone()) {
        Ok(chosen) => names.zip(chosen).filter(|(_, chosen)| *chosen).map(|(name, _)| name).collect(),
        Err(similar) => similar,
    };
    if similar.is_empty() {
        return "no function has a name".to_owned();
    }
    let several = similar.iter().all(|known| known.contains(wanted));
    let similar: Vec<_> = similar.iter().map(|name| format!("`{name}`")).collect();
    let similar = similar.join(", ");
    match several {
        true => format!("several functions contain `{wanted}`, so give more of the name: {similar}"),
        false => format!("no function has the name `{wanted}`; similar names: {similar}"),
    }
}

/// A name without parameters, template arguments, type of the result, and `const`.
fn without_arguments(name: &str) -> String {
    let (mut short, mut depth) = (String::new(), 0_u32);
    for (at, char) in name.char_indices() {
        let is_operator =
            ["operator", "operator<", "operator>", "-"].iter().any(|is| name[..at].ends_with(is));
        match char {
            '<' | '>' if is_operator => short.push(char),
            '(' | '<' => depth += 1,
            ')' | '>' => depth = depth.saturating_sub(1),
            _ if depth == 0 => short.push(char),
            _ => {}
        }
    }
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
    fn names_that_could_be_meant_are_listed() {
        assert_eq!(found("lloc"), Err(vec!["malloc", "malloc_consolidate"]));
        assert_eq!(found("mallco").unwrap_err()[0], "malloc");
        assert_eq!(found("nothing").unwrap_err().len(), LISTED);
        assert_eq!(meant("f", [].into_iter()), Err(vec![]));
    }
}
