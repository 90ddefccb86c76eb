//! Reads the words of a perf command line as perf does: a long option may be shortened unambiguously, `--no-`
//! before it undoes it, and the last value of an option counts.

use std::ffi::{OsStr, OsString};
use std::os::unix::ffi::OsStrExt as _;

use clap::{Arg, Command};
use perfx_pipeline::is_typo;

/// The value of an option.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum Takes {
    /// None.
    Nothing,
    /// After `=`, glued to its letter, or the next word. The last one counts.
    Value,
    /// The same, and each one counts.
    Values,
    /// Only after `=`.
    Optional,
}

/// Words of perfx for an option with its value; `None` if perfx has nothing for this value.
pub(super) type Words = fn(&OsStr) -> Option<Vec<OsString>>;

/// How perfx handles an option of perf.
#[derive(Clone, Copy, Debug)]
pub(super) enum Becomes {
    /// This option of perfx, with the value.
    Same(&'static str),
    /// These words.
    Made(Words),
    /// Nothing: it does not change the output.
    Nothing,
    /// perfx does not have it.
    Left,
}

/// An option of perf.
#[derive(Debug)]
pub(super) struct Row {
    pub(super) letter: Option<u8>,
    pub(super) long: &'static str,
    pub(super) takes: Takes,
    pub(super) becomes: Becomes,
}

/// Why perfx does not run a command line.
#[derive(PartialEq, Eq, Debug)]
pub(super) enum Refused {
    /// perfx does not have this, but a perf may.
    Left(String),
    /// perf refuses it, too.
    Wrong(String),
}

/// An option that was given.
struct Given {
    /// Its long name, by which it is undone.
    long: String,
    becomes: Becomes,
    value: Option<OsString>,
}

/// A command of perf: its options, and those of perfx, which can't be shortened.
pub(super) struct Grammar<'g> {
    pub(super) rows: &'static [Row],
    pub(super) perfx: &'g Command,
}

/// An option by its name.
enum Named<'g> {
    Row(&'static Row),
    /// After `--no-`.
    Off(String),
    Perfx(&'g Arg),
}

impl Grammar<'_> {
    fn long(&self, name: &str) -> Result<Named<'_>, Refused> {
        let exact = |name: &str| self.rows.iter().find(|row| row.long == name);
        let off =
            |name: &str| name.strip_prefix("no-").filter(|name| exact(name).is_some()).map(str::to_owned);
        if let Some(row) = exact(name) {
            return Ok(Named::Row(row));
        }
        if let Some(off) = off(name) {
            return Ok(Named::Off(off));
        }
        let longs = self.rows.iter().map(|row| row.long.to_owned());
        let negated = longs.clone().filter(|long| !long.starts_with("no-")).map(|long| format!("no-{long}"));
        let mut meant: Vec<String> = longs.chain(negated).filter(|long| long.starts_with(name)).collect();
        meant.sort_unstable();
        meant.dedup();
        match &meant[..] {
            [one] => self.long(one),
            [] => {
                let is = |arg: &&Arg| {
                    arg.get_long() == Some(name)
                        || arg.get_all_aliases().is_some_and(|names| names.contains(&name))
                };
                let arg = self.perfx.get_arguments().find(is).map(Named::Perfx);
                arg.ok_or_else(|| Refused::Left(format!("the option --{name}{}", self.meant(name))))
            }
            [one, other, ..] => {
                Err(Refused::Wrong(format!("--{name} is ambiguous: it could be --{one} or --{other}")))
            }
        }
    }

    /// A tip for a misspelt option.
    fn meant(&self, name: &str) -> String {
        let meant = self.rows.iter().find(|row| name.len() > 3 && is_typo(name, row.long));
        meant.map_or_else(String::new, |row| format!("; did you mean `--{}`?", row.long))
    }

    /// Translates words of perf to those of perfx. Also returns the words from the first that is no option,
    /// if perf stops there.
    ///
    /// # Errors
    ///
    /// perfx does not have an option or its value, or perf refuses them.
    pub(super) fn translate(
        &self,
        words: &[OsString],
        stops: bool,
    ) -> Result<(Vec<OsString>, Vec<OsString>), Refused> {
        let mut words = words.iter().cloned();
        let (mut given, mut rest): (Vec<Given>, Vec<OsString>) = (Vec::new(), Vec::new());
        while let Some(word) = words.next() {
            let bytes = word.as_bytes();
            if bytes == b"--" {
                rest.extend(words);
                break;
            } else if let Some(long) = bytes.strip_prefix(b"--") {
                let end = long.iter().position(|&byte| byte == b'=').unwrap_or(long.len());
                let (name, value) = long.split_at(end);
                let value = value.strip_prefix(b"=").map(|value| OsStr::from_bytes(value).to_owned());
                self.give(&mut given, &String::from_utf8_lossy(name), value, &mut words)?;
            } else if let Some(mut letters @ [_, ..]) = bytes.strip_prefix(b"-") {
                while let Some((&letter, following)) = letters.split_first() {
                    letters = following;
                    let row = self.rows.iter().find(|row| row.letter == Some(letter));
                    let row =
                        row.ok_or_else(|| Refused::Left(format!("the option -{}", letter.escape_ascii())))?;
                    let mut value = None;
                    if row.takes != Takes::Nothing && !letters.is_empty() {
                        value = Some(OsStr::from_bytes(std::mem::take(&mut letters)).to_owned());
                    }
                    self.give(&mut given, row.long, value, &mut words)?;
                }
            } else {
                rest.push(word);
                if stops {
                    rest.extend(words);
                    break;
                }
            }
        }
        let mut out = Vec::new();
        for Given { long, becomes, value } in given {
            match becomes {
                Becomes::Same(name) => {
                    let mut word = OsString::from(name);
                    if let Some(value) = value {
                        word.push("=");
                        word.push(value);
                    }
                    out.push(word);
                }
                Becomes::Made(words) => {
                    let value = value.unwrap_or_default();
                    let made = words(&value)
                        .ok_or_else(|| Refused::Left(format!("the value {} of --{long}", value.display())))?;
                    out.extend(made);
                }
                Becomes::Nothing => {}
                Becomes::Left => return Err(Refused::Left(format!("the option --{long}"))),
            }
        }
        Ok((out, rest))
    }

    /// Adds an option with what follows its name, or undoes it.
    fn give(
        &self,
        given: &mut Vec<Given>,
        name: &str,
        mut value: Option<OsString>,
        words: &mut impl Iterator<Item = OsString>,
    ) -> Result<(), Refused> {
        let (long, takes, becomes) = match self.long(name)? {
            Named::Row(row) => (row.long.to_owned(), row.takes, row.becomes),
            Named::Off(_) if value.is_some() => {
                return Err(Refused::Wrong(format!("--{name} takes no value")));
            }
            Named::Off(long) => {
                given.retain(|other| other.long != long);
                return Ok(());
            }
            Named::Perfx(arg) => {
                let mut whole = OsString::from(format!("--{name}"));
                let takes = taken_by(arg);
                let value = value.or_else(|| if takes == Takes::Values { words.next() } else { None });
                value.iter().for_each(|value| {
                    whole.push("=");
                    whole.push(value);
                });
                given.push(Given {
                    long: name.to_owned(),
                    becomes: Becomes::Made(|word| Some(vec![word.to_owned()])),
                    value: Some(whole),
                });
                return Ok(());
            }
        };
        match takes {
            Takes::Nothing if value.is_some() => {
                return Err(Refused::Wrong(format!("--{long} takes no value")));
            }
            Takes::Value | Takes::Values if value.is_none() => {
                let next = words.next();
                value = Some(next.ok_or_else(|| Refused::Wrong(format!("--{long} needs a value")))?);
            }
            _ => {}
        }
        let contrary = match long.strip_prefix("no-") {
            Some(name) => name.to_owned(),
            None => format!("no-{long}"),
        };
        given.retain(|other| other.long != contrary && (takes == Takes::Values || other.long != long));
        given.push(Given { long, becomes, value });
        Ok(())
    }
}

/// How an option of perfx takes its value.
fn taken_by(arg: &Arg) -> Takes {
    match arg.get_action().takes_values() {
        true if arg.is_require_equals_set() => Takes::Optional,
        true => Takes::Values,
        false => Takes::Nothing,
    }
}
