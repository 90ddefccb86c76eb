//! The options of a pass as `perfx run -p` writes them: each must be one the pass knows.

use anyhow::{Result, bail};
use perfx_pipeline::did_you_mean;

/// An option a pass takes.
#[derive(Clone, Copy, Debug)]
pub struct Choice {
    /// The name.
    pub name: &'static str,
    /// What its value is called; `None` for a switch.
    pub value: Option<&'static str>,
    /// What it does, in a few words.
    pub about: &'static str,
}

/// The options given to one pass.
#[derive(Clone, Debug, Default)]
pub struct Options {
    given: Vec<(String, Option<String>)>,
}

impl Options {
    /// Reads `NAME` and `NAME=VALUE`.
    pub(crate) fn parse(parts: impl Iterator<Item = String>, choices: &[Choice]) -> Result<Options> {
        let mut given = Vec::new();
        for part in parts {
            let (name, value) = match part.split_once('=') {
                Some((name, value)) => (name, Some(unescape(value))),
                None => (part.as_str(), None),
            };
            let Some(choice) = choices.iter().find(|choice| choice.name == name) else {
                let names: Vec<_> = choices.iter().map(|choice| choice.name).collect();
                let meant = did_you_mean(name, &names);
                bail!("unknown option `{name}`; available: {}{meant}", names.join(", "));
            };
            match (choice.value, &value) {
                (Some(what), None) => bail!("option `{name}` needs a value: {name}={what}"),
                (None, Some(_)) => bail!("option `{name}` takes no value"),
                _ => given.push((name.to_owned(), value)),
            }
        }
        Ok(Options { given })
    }

    /// A switch was given.
    pub(crate) fn has(&self, name: &str) -> bool {
        self.given.iter().any(|(given, _)| given == name)
    }

    /// The values of an option, in the order they were given.
    pub(crate) fn all(&self, name: &str) -> impl Iterator<Item = &str> {
        self.given.iter().filter(move |(given, _)| given == name).filter_map(|(_, value)| value.as_deref())
    }
}

/// The parts between separators that no `\` stands before; the `\` stay.
pub(crate) fn split(text: &str, separator: char) -> Vec<String> {
    let mut parts = vec![String::new()];
    let mut chars = text.chars();
    while let Some(char) = chars.next() {
        if char == separator {
            parts.push(String::new());
        } else if let Some(part) = parts.last_mut() {
            part.push(char);
            if char == '\\' {
                part.extend(chars.next());
            }
        }
    }
    parts
}

fn unescape(text: &str) -> String {
    let mut plain = String::new();
    let mut chars = text.chars();
    while let Some(char) = chars.next() {
        plain.push(if char == '\\' { chars.next().unwrap_or('\\') } else { char });
    }
    plain
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn separators_can_be_escaped() {
        assert_eq!(split(r"a:b=x\:y:c", ':'), ["a", r"b=x\:y", "c"]);
        assert_eq!(unescape(r"x\:y\\"), r"x:y\");
    }
}
