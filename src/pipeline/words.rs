//! Words for people that passes and commands share.

/// How alike two names must be for one to be a slip of the other: what clap asks of its own suggestions.
const ALIKE: f64 = 0.7;

/// `1 entry`, `2 entries`.
pub fn counted(count: u64, one: &str, many: &str) -> String {
    format!("{count} {}", if count == 1 { one } else { many })
}

/// `; did you mean NAME?` for the name most like `given`, or nothing where none is.
pub fn did_you_mean(given: &str, names: impl IntoIterator<Item = impl AsRef<str>>) -> String {
    let given = given.to_lowercase();
    let alike = |name: &str| strsim::jaro(&given, &name.to_lowercase());
    let scored = names.into_iter().map(|name| (alike(name.as_ref()), name));
    let best = scored.max_by(|(a, _), (b, _)| a.total_cmp(b)).filter(|(score, _)| *score > ALIKE);
    best.map_or_else(String::new, |(_, name)| format!("; did you mean `{}`?", name.as_ref()))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_slip_finds_its_name() {
        let names = ["build-ids", "mmap2-build-ids"];
        assert_eq!(did_you_mean("build-idz", names), "; did you mean `build-ids`?");
        assert_eq!(did_you_mean("MMAP2-buildids", names), "; did you mean `mmap2-build-ids`?");
        assert_eq!(did_you_mean("x", names), "");
        assert_eq!(did_you_mean("", names), "");
    }
}
