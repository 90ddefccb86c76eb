//! Completes the last word of a command line: names in the recording on the line, files, passes.

use std::collections::BTreeSet;
use std::ffi::OsString;
use std::fs;
use std::path::Path;
use std::process::{Command, Stdio};

use clap::Arg;
use clap::builder::PossibleValue;
use perfx_filter::whole;
use perfx_look::render::is_hidden;
use perfx_passes::PassSpec;

/// Larger recordings are not read for names, so that the shell does not wait, bytes.
const LARGEST: u64 = 256 << 20;

/// Options whose values are names listed by `perfx list`: the list, and the key of the name in its rows.
const LISTED: [(&[&str], &str, &str); 5] = [
    (&["event", "exclude_event", "events"], "events", "name"),
    (
        &["callers", "callees", "between", "skip_after", "symbol", "exclude_symbol", "leaf"],
        "functions",
        "function",
    ),
    (&["dso", "exclude_dso"], "dsos", "name"),
    (&["comm", "exclude_comm"], "threads", "comm"),
    (&["cgroup", "exclude_cgroup"], "cgroups", "cgroup"),
];

const PASSES: &str = "passes";
const INPUT: &str = "input";

const ENDINGS: [&str; 3] = [".data", ".perf", ".data.old"];

pub(super) fn options(command: &clap::Command) -> BTreeSet<(String, Option<char>)> {
    let has_values = |arg: &&Arg| {
        let id = arg.get_id().as_str();
        [PASSES, INPUT].contains(&id) || LISTED.iter().any(|(ids, ..)| ids.contains(&id))
    };
    let of_one = command.get_arguments().filter(has_values);
    let own = of_one.filter_map(|arg| Some((arg.get_long()?.to_owned(), arg.get_short())));
    own.chain(command.get_subcommands().flat_map(options)).collect()
}

/// Values for the last word, which may be empty. None if commands, options or any files may follow.
pub(super) fn values(program: &clap::Command, passes: &[PassSpec], words: &[OsString]) -> Vec<String> {
    let words: Option<Vec<&str>> = words.iter().map(|word| word.to_str()).collect();
    let Some([_, before @ .., last]) = words.as_deref() else { return Vec::new() };
    let mut command = program;
    for word in before {
        command = command.find_subcommand(word).unwrap_or(command);
    }
    let (option, front, typed) = match last.split_once('=').filter(|(name, _)| name.starts_with("--")) {
        Some((name, typed)) => (Some(name), &last[..=name.len()], typed),
        None if last.starts_with('-') => return Vec::new(),
        None => (before.last().copied().filter(|word| word.starts_with('-')), "", *last),
    };
    let option = option.and_then(|name| find(command, name)).filter(|arg| arg.get_action().takes_values());
    let found = match option.map(|arg| arg.get_id().as_str()) {
        Some(PASSES) => pass_values(passes, typed),
        Some(INPUT) => recordings(typed),
        Some(id) => match LISTED.iter().find(|(ids, ..)| ids.contains(&id)) {
            Some(&(_, what, key)) => names(before, typed, (what, key)),
            None => Vec::new(),
        },
        None if takes_recordings(command, before) => recordings(typed),
        None => Vec::new(),
    };
    found.into_iter().map(|value| front.to_owned() + &value).collect()
}

/// True if a file may follow: no word of a fixed set, such as the kind of a list, is missing.
fn takes_recordings(command: &clap::Command, before: &[&str]) -> bool {
    let (words, files): (Vec<_>, Vec<_>) =
        command.get_positionals().map(Arg::get_possible_values).partition(|values| !values.is_empty());
    let is_given = |values: &Vec<PossibleValue>| {
        before.iter().any(|word| values.iter().any(|value| value.matches(word, false)))
    };
    !files.is_empty() && words.iter().all(is_given)
}

/// The option of this name; of several short ones in a word, the last.
fn find<'c>(command: &'c clap::Command, name: &str) -> Option<&'c Arg> {
    let is_it = |arg: &&Arg| match name.strip_prefix("--") {
        Some(long) => {
            arg.get_long() == Some(long) || arg.get_all_aliases().unwrap_or_default().contains(&long)
        }
        None => arg.get_short().is_some_and(|short| name.ends_with(short)),
    };
    command.get_arguments().find(is_it)
}

/// The names in the recording on the line that begin with the last of the comma-separated names in `typed`,
/// escaped where they would not match themselves.
fn names(before: &[&str], typed: &str, (what, key): (&str, &str)) -> Vec<String> {
    // Other words may be folders, such as that of --root.
    let is_file = |word: &&&str| !word.starts_with('-') && Path::new(word).is_file();
    let path = before.iter().skip(1).find(is_file).map_or("perf.data", |path| *path);
    let (front, start) = after_last(typed, &[',']);
    let mut names = listed(path, what, key).unwrap_or_default();
    names.retain(|name| name.starts_with(start) && !name.contains([',', '\n']));
    names.sort_unstable();
    names.dedup();
    names.into_iter().map(|name| front.to_owned() + &as_value(name)).collect()
}

/// A name as a value of an option that takes regular expressions.
fn as_value(name: String) -> String {
    let is_plain = whole(&name).is_ok_and(|regex| regex.is_match(name.as_bytes()));
    if is_plain { name } else { regex::escape(&name) }
}

/// The names in a list, from a silent run of this program.
fn listed(path: &str, what: &str, key: &str) -> Option<Vec<String>> {
    // Reading a pipe would take the data from its reader.
    fs::metadata(path).ok().filter(|file| file.is_file() && file.len() <= LARGEST)?;
    let mut command = Command::new(std::env::current_exe().ok()?);
    command.args(["list", what, "--json", "-q", "--", path]).stdin(Stdio::null()).stderr(Stdio::null());
    let document: serde_json::Value = serde_json::from_slice(&command.output().ok()?.stdout).ok()?;
    let name = |row: &serde_json::Value| {
        let name = row.get(key)?.as_str().filter(|name| !name.chars().any(is_hidden))?;
        // A DSO can also be selected by its file name.
        Some(name.rsplit_once('/').filter(|_| what == "dsos").map_or(name, |(_, name)| name).to_owned())
    };
    Some(document.get("rows")?.as_array()?.iter().filter_map(name).collect())
}

/// The names of passes, or after `NAME:` the options of that pass, separated by `:`.
fn pass_values(passes: &[PassSpec], typed: &str) -> Vec<String> {
    let chain = typed.rfind(',').map_or(0, |comma| comma + 1);
    let (front, start) = after_last(typed, &[',', ':']);
    let name = typed[chain..].split(':').next().unwrap_or_default();
    let mut words = Vec::new();
    if front.len() == chain {
        words.extend(passes.iter().map(|pass| pass.name.to_owned()));
    } else if let Some(pass) = passes.iter().find(|pass| pass.name == name) {
        for option in pass.options().get_arguments().filter(|option| !option.is_hide_set()) {
            let end = if option.get_action().takes_values() { "=" } else { "" };
            words.extend(option.get_long().map(|long| format!("{long}{end}")));
        }
    }
    words.retain(|word| word.starts_with(start));
    words.into_iter().map(|word| format!("{front}{word}")).collect()
}

/// The text up to and including the last separator, and the rest.
fn after_last<'t>(text: &'t str, separators: &[char]) -> (&'t str, &'t str) {
    text.split_at(text.rfind(separators).map_or(0, |at| at + 1))
}

/// Files whose names end like those of recordings, with the folders beside them; empty without such files.
fn recordings(typed: &str) -> Vec<String> {
    let (folder, start) = after_last(typed, &['/']);
    let entries = fs::read_dir(if folder.is_empty() { "." } else { folder }).into_iter().flatten().flatten();
    let (mut files, mut folders) = (Vec::new(), Vec::new());
    for entry in entries {
        let Ok(name) = entry.file_name().into_string() else { continue };
        if !name.starts_with(start) || name.contains('\n') || name.starts_with('.') && start.is_empty() {
            continue;
        }
        if ENDINGS.iter().any(|ending| name.ends_with(ending)) {
            files.push(format!("{folder}{name}"));
        } else if entry.path().is_dir() {
            folders.push(format!("{folder}{name}/"));
        }
    }
    if files.is_empty() {
        return Vec::new();
    }
    files.extend(folders);
    files.sort_unstable();
    files
}

#[cfg(test)]
mod tests {
    use super::*;

    /// `\[vdso\]` was offered.
    #[test]
    fn names_are_escaped_only_if_an_option_would_not_take_them() {
        for (name, value) in [("[vdso]", "[vdso]"), ("libc.so.6", "libc.so.6"), ("c++", r"c\+\+")] {
            assert_eq!(as_value(name.to_owned()), value);
        }
    }
}
