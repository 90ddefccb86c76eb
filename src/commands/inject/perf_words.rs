//! Translates the words of a `perf inject` command line: perf accepts every unambiguous prefix of a long
//! option, and `--no-` before it cancels it.

use std::ffi::{OsStr, OsString};
use std::os::unix::ffi::{OsStrExt as _, OsStringExt as _};

use anyhow::{Result, bail};
use clap::{Arg, Args as _, Command};

use super::Inject;
use crate::args::Usage;

/// The long options of perf inject, of all versions.
const LONG: [&str; 22] = [
    "aslr", "build-ids", "buildid-all", "convert-callchain", "force", "guest-data", "guestmount",
    "ignore-vmlinux", "input", "itrace", "jit", "kallsyms", "known-build-ids", "mmap2-buildid-all",
    "mmap2-buildids", "output", "sched-stat", "strip", "unwind-style", "verbose", "vm-time-correlation",
    "vmlinux",
];

/// A long option, as perf understands its name.
enum Long<'n> {
    On(&'n str),
    /// After `--no-`.
    Off(&'static str),
    Unknown,
}

impl<'n> Long<'n> {
    fn of(name: &'n str, command: &Command) -> Result<Long<'n>> {
        // Options that only perfx has are not abbreviated: a script for perf cannot mean them.
        if LONG.contains(&name) || argument(command, name).is_some() {
            return Ok(Long::On(name));
        }
        if let Some(off) =
            name.strip_prefix("no-").and_then(|name| LONG.into_iter().find(|long| *long == name))
        {
            return Ok(Long::Off(off));
        }
        let on = LONG.into_iter().filter(|long| long.starts_with(name)).map(Long::On);
        let off = LONG.into_iter().filter(|long| format!("no-{long}").starts_with(name)).map(Long::Off);
        let mut meant = on.chain(off);
        match (meant.next(), meant.next()) {
            (Some(one), Some(other)) => {
                bail!(Usage(format!(
                    "--{name} is ambiguous: it could be {one} or {other}; perf refuses it, too"
                )))
            }
            (one, _) => Ok(one.unwrap_or(Long::Unknown)),
        }
    }
}

impl std::fmt::Display for Long<'_> {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self {
            Long::On(name) => write!(f, "--{name}"),
            Long::Off(name) => write!(f, "--no-{name}"),
            Long::Unknown => Ok(()),
        }
    }
}

fn argument<'c>(command: &'c Command, long: &str) -> Option<&'c Arg> {
    let is = |arg: &&Arg| {
        arg.get_long() == Some(long) || arg.get_all_aliases().is_some_and(|names| names.contains(&long))
    };
    command.get_arguments().find(is)
}

/// True if the next word is the value of this option.
fn takes_word(arg: &Arg) -> bool {
    arg.get_action().takes_values() && !arg.is_require_equals_set()
}

/// Translates the arguments of `perf inject` for `perfx inject`.
///
/// # Errors
///
/// A word is a prefix of several options.
pub(crate) fn from_perf(words: impl IntoIterator<Item = OsString>) -> Result<Vec<OsString>> {
    let command = Inject::augment_args(Command::new("inject"));
    let mut words = words.into_iter();
    // Each word with the id of its option, by which `--no-` cancels it.
    let mut given: Vec<(Option<&str>, OsString)> = Vec::new();
    while let Some(word) = words.next() {
        let bytes = word.as_bytes();
        if bytes == b"--" {
            given.extend(std::iter::once(word).chain(words).map(|word| (None, word)));
            break;
        } else if let Some(long) = bytes.strip_prefix(b"--") {
            let end = long.iter().position(|&byte| byte == b'=').unwrap_or(long.len());
            let (name, value) = long.split_at(end);
            match Long::of(&String::from_utf8_lossy(name), &command)? {
                Long::On(name) => {
                    let arg = argument(&command, name);
                    let mut whole = OsString::from(format!("--{name}"));
                    whole.push(OsStr::from_bytes(value));
                    if value.is_empty()
                        && arg.is_some_and(takes_word)
                        && let Some(value) = words.next()
                    {
                        whole.push("=");
                        whole.push(value);
                    }
                    given.push((arg.map(|arg| arg.get_id().as_str()), whole));
                }
                Long::Off(name) if value.is_empty() => {
                    let off = argument(&command, name).map(|arg| arg.get_id().as_str());
                    given.retain(|(id, _)| id.is_none() || *id != off);
                }
                Long::Off(_) | Long::Unknown => given.push((None, word)),
            }
        } else if let Some(letters @ [_, ..]) = bytes.strip_prefix(b"-") {
            for (at, &letter) in letters.iter().enumerate() {
                let arg = command.get_arguments().find(|arg| arg.get_short() == Some(char::from(letter)));
                let mut whole = vec![b'-', letter];
                let takes_word = arg.is_some_and(takes_word);
                // The letters after an unknown one are unknown.
                let is_last = takes_word || arg.is_none() || at + 1 == letters.len();
                if is_last {
                    whole.extend(&letters[at + 1..]);
                }
                if takes_word && at + 1 == letters.len() {
                    whole.extend(words.next().unwrap_or_default().as_bytes());
                }
                given.push((arg.map(|arg| arg.get_id().as_str()), OsString::from_vec(whole)));
                if is_last {
                    break;
                }
            }
        } else {
            given.push((None, word));
        }
    }
    Ok(given.into_iter().map(|(_, word)| word).collect())
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::commands::inject::PERF_ONLY;

    fn words(line: &str) -> String {
        let words = from_perf(line.split_whitespace().map(OsString::from)).unwrap();
        words.join(OsStr::new(" ")).into_string().unwrap()
    }

    #[test]
    fn every_option_of_perf_is_one_of_perfx_or_refused_by_its_name() {
        let command = Inject::augment_args(Command::new("inject"));
        for long in LONG {
            let refused = PERF_ONLY.iter().any(|(name, _)| *name == format!("--{long}"));
            assert!(refused || argument(&command, long).is_some(), "{long}");
        }
    }

    #[test]
    fn words_mean_what_they_mean_to_perf() {
        for (perf, perfx) in [
            ("--in a --ou b --build-", "--input=a --output=b --build-ids"),
            ("--buildid --mmap2-buildids", "--buildid-all --mmap2-buildids"),
            ("--jit --no-jit --no-force --no-ji -v", "-v"),
            ("--no-jit --jit", "--jit"),
            ("-b --no-build-ids -bf", "-b -f"),
            ("-vv --no-verbose -ia -o --jit", "-ia -o--jit"),
            ("--output --jit --no-output -i a", "-ia"),
            ("--it=i --vm-time --no-vm-time-correlation", "--itrace=i --vm-time-correlation"),
            ("--no-jit=5 --nothing -bx1 --no-files", "--no-jit=5 --nothing -b -x1 --no-files"),
            ("--root a --in-place - -- --jit", "--root=a --in-place - -- --jit"),
        ] {
            assert_eq!(words(perf), perfx, "{perf}");
        }
        for ambiguous in ["--build", "--no-build", "--no", "--s", "--i", "--no-mmap2-b"] {
            assert!(from_perf([ambiguous.into()]).is_err(), "{ambiguous}");
        }
    }
}
