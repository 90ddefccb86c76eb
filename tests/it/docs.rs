//! The documents match the command line: docs/commands.md contains every `--help`, the README names every
//! command, and the schemas describe the JSON.

use std::collections::{BTreeMap, BTreeSet};
use std::fs;
use std::path::Path;

use serde_json::{Value as Json, json};

use crate::stats::conforms;
use crate::support::{
    Fixture, Stdin, Tier, clean, each_fixture, is_installed, perfx, perfx_command, root, run, sound, temp,
};
use crate::{args, tiers};

/// The commands by name, with subcommands after their parents: `export`, `export csv`.
fn commands() -> Vec<(String, clap::Command)> {
    fn within(command: &clap::Command, before: &str) -> Vec<(String, clap::Command)> {
        let named = command.get_subcommands().filter(|command| command.get_name() != "help");
        let own = |command: &clap::Command| (format!("{before}{}", command.get_name()), command.clone());
        let below = |(words, command)| {
            let inner = within(&command, &format!("{words} "));
            std::iter::once((words, command)).chain(inner)
        };
        named.map(own).flat_map(below).collect()
    }
    let mut all = within(&perfx::Program::default().command_line(), "");
    all.sort_by(|one, other| one.0.cmp(&other.0));
    all
}

fn help(command: &str) -> String {
    let mut perfx = perfx_command();
    perfx.env("NO_COLOR", "1").env("COLUMNS", "118").args(command.split_whitespace()).arg("--help");
    let lines = run(&mut perfx, Stdin::Null).text();
    lines.lines().map(|line| format!("{}\n", line.trim_end())).collect()
}

/// Minimum number of commands for an option to be described once on the page.
const COMMANDS_THAT_SHARE: usize = 2;

/// An option as `--help` shows it: its name, its lines, and the heading above it.
#[derive(Clone, PartialEq, Eq, PartialOrd, Ord)]
struct HelpEntry {
    heading: String,
    name: String,
    lines: String,
}

/// A `--help` as its introduction, up to the line with the usage, and its entries.
fn parts_of_help(help: &str) -> (&str, Vec<HelpEntry>) {
    let usage = help.find("\nUsage:").expect("a usage") + 1;
    let (introduction, rest) = help.split_at(usage + help[usage..].find("\n\n").expect("options") + 1);
    let mut heading = String::new();
    let mut entries: Vec<HelpEntry> = Vec::new();
    for line in rest.lines() {
        let indent = line.len() - line.trim_start().len();
        if let Some(title) = line.strip_suffix(':').filter(|_| indent == 0) {
            title.clone_into(&mut heading);
        } else if (1..8).contains(&indent) {
            let spellings = line.trim_start().split("  ").next().unwrap_or_default();
            let last = spellings.rsplit(", ").next().unwrap_or_default();
            let name = last.split(" <").next().unwrap_or_default().to_owned();
            entries.push(HelpEntry { heading: heading.clone(), name, lines: format!("{line}\n") });
        } else if !line.is_empty() {
            let entry = entries.last_mut().unwrap_or_else(|| panic!("{line}"));
            let text = line.trim_start();
            let gap = if entry.lines.lines().count() == 1 { "  " } else { " " };
            let width = entry.lines.lines().last().map_or(0, |last| last.chars().count());
            // A list of values keeps its lines; other short lines are joined.
            if text.starts_with("- ") || width + gap.len() + text.chars().count() > 118 {
                entry.lines += &format!("{line}\n");
            } else {
                entry.lines.pop();
                entry.lines += &format!("{gap}{text}\n");
            }
        }
    }
    (introduction, entries)
}

/// Entries below their headings, in the order of their first appearance.
fn by_heading(entries: &[HelpEntry]) -> Vec<(&str, Vec<&HelpEntry>)> {
    let mut groups: Vec<(&str, Vec<&HelpEntry>)> = Vec::new();
    for entry in entries {
        match groups.iter_mut().find(|(heading, _)| *heading == entry.heading) {
            Some((_, group)) => group.push(entry),
            None => groups.push((&entry.heading, vec![entry])),
        }
    }
    groups
}

fn text_of(groups: &[(&str, Vec<&HelpEntry>)]) -> String {
    let group = |(heading, entries): &(&str, Vec<&HelpEntry>)| {
        format!("\n{heading}:\n{}", entries.iter().map(|entry| entry.lines.as_str()).collect::<String>())
    };
    groups.iter().map(group).collect()
}

/// The page: options shared by several commands are described once, below the most frequent heading, and each
/// command links to it.
fn command_reference(helps: &[(String, String)]) -> String {
    let parts: Vec<_> = helps.iter().map(|(words, help)| (words, parts_of_help(help))).collect();
    let mut headings: BTreeMap<&str, BTreeMap<&str, usize>> = BTreeMap::new();
    for entry in parts.iter().flat_map(|(_, (_, entries))| entries) {
        *headings.entry(&entry.lines).or_default().entry(&entry.heading).or_default() += 1;
    }
    let shared_heading = |entry: &HelpEntry| {
        let headings = &headings[entry.lines.as_str()];
        let most = headings.iter().max_by_key(|(_, commands)| **commands)?.0;
        (headings.values().sum::<usize>() >= COMMANDS_THAT_SHARE).then(|| (*most).to_owned())
    };
    let is_shared = |entry: &HelpEntry| shared_heading(entry).is_some();
    let below_shared =
        |entry: HelpEntry| HelpEntry { heading: shared_heading(&entry).expect("it is shared"), ..entry };
    let mut all: Vec<HelpEntry> = Vec::new();
    for entry in parts.iter().flat_map(|(_, (_, entries))| entries).filter(|entry| is_shared(entry)) {
        let entry = below_shared(entry.clone());
        if !all.contains(&entry) {
            all.push(entry);
        }
    }
    let shared = by_heading(&all);

    let mut page = "# Commands of perfx\n\nEvery command with its options, as `--help` shows them; a test keeps this page \
                    equal to them. Options that\nseveral commands share are described once, at the end.\n"
        .to_owned();
    for (words, (introduction, entries)) in &parts {
        let (common, own): (Vec<_>, Vec<_>) = entries.iter().cloned().partition(is_shared);
        let own = text_of(&by_heading(&own));
        page += &format!("\n## {}\n```text\n{introduction}{own}```\n", format!("perfx {words}").trim_end());
        let common: Vec<_> = common.into_iter().map(below_shared).collect();
        let link = |(heading, entries): (&str, Vec<&HelpEntry>)| {
            let link = format!("[{heading}](#shared-{})", heading.to_lowercase().replace(' ', "-"));
            let names = |entries: &[&HelpEntry]| {
                entries.iter().map(|entry| format!("`{}`", entry.name)).collect::<Vec<_>>().join(", ")
            };
            let whole = &shared.iter().find(|(name, _)| *name == heading).expect("a shared heading").1;
            let has = |name: &str| entries.iter().any(|entry| entry.name == name);
            let missing: Vec<_> = whole.iter().filter(|entry| !has(&entry.name)).copied().collect();
            match missing.len() {
                0 => link,
                missed if missed < entries.len() => format!("{link} (not {})", names(&missing)),
                _ => format!("{link} ({})", names(&entries)),
            }
        };
        let links = by_heading(&common).into_iter().map(link).collect::<Vec<_>>().join(", ");
        page += &wrapped(&format!("Also {links}."));
    }
    for (heading, entries) in &shared {
        let text = text_of(&[(*heading, entries.clone())]);
        page += &format!("\n## Shared: {heading}\n```text{text}```\n");
    }
    page
}

/// Text in lines of at most 120 characters, each with its newline.
fn wrapped(text: &str) -> String {
    let mut lines = String::new();
    let mut width = 0;
    for word in text.split(' ') {
        let more = word.chars().count();
        if width > 0 && width + 1 + more > 120 {
            lines.push('\n');
            width = 0;
        }
        if width > 0 {
            lines.push(' ');
            width += 1;
        }
        lines += word;
        width += more;
    }
    lines + "\n"
}

/// To update the page: `INSTA_UPDATE=always cargo test --test it -- docs::`.
#[test]
fn the_command_reference_is_every_help() {
    let mut helps = vec![(String::new(), help(""))];
    helps.extend(commands().into_iter().map(|(words, _)| (words.clone(), help(&words))));
    let text = command_reference(&helps);
    let path = root().join("docs/commands.md");
    if std::env::var("INSTA_UPDATE").is_ok_and(|update| update == "always") {
        fs::write(&path, &text).unwrap();
    }
    assert!(fs::read_to_string(&path).unwrap() == text, "docs/commands.md is not what --help says");
}

/// An option has the same letter and the same values in all commands that have it.
#[test]
fn options_are_spelled_the_same_in_all_commands() {
    // What is split is not what is folded; -o names a folder where the output always is one; inject has the words of
    // perf; the others have another meaning in each command, which their values show.
    let differ = ["by", "dir", "output", "itrace", "jit", "mmap", "vmlinux", "samples", "time"];
    /// The letter and the values of an option, and a command that has it so.
    type Forms = BTreeMap<(Option<char>, Vec<String>), String>;
    let mut forms: BTreeMap<String, Forms> = BTreeMap::new();
    for (words, command) in commands() {
        for option in command.get_arguments() {
            let Some(long) = option.get_long().filter(|long| !differ.contains(long)) else { continue };
            let takes = option.get_action().takes_values();
            let values = option.get_value_names().filter(|_| takes).unwrap_or_default();
            let values = values.iter().map(ToString::to_string).collect();
            forms.entry(long.to_owned()).or_default().insert((option.get_short(), values), words.clone());
        }
    }
    assert!(forms.len() > 100);
    for (long, forms) in forms {
        assert_eq!(forms.len(), 1, "--{long}: {forms:?}");
    }
}

#[test]
fn every_option_and_command_is_explained() {
    for (words, command) in commands() {
        assert!(command.get_about().is_some(), "{words}");
        assert!(help(&words).contains("Exit codes:"), "{words} --help");
        for option in command.get_arguments() {
            assert!(option.get_help().is_some(), "{words} {option}");
        }
    }
}

#[test]
fn the_readme_names_every_command() {
    let readme = fs::read_to_string(root().join("README.md")).unwrap();
    for (words, _) in commands() {
        assert!(readme.contains(&format!("perfx {words}")), "the README does not tell of perfx {words}");
    }
}

/// `strip` had `--events`, and `man` no `-o`; docs/guide/common.md has the rules.
#[test]
fn an_option_has_one_word_in_all_commands() {
    for (words, command) in commands() {
        let named = |long: &str| command.get_arguments().find(|arg| arg.get_long() == Some(long));
        assert!(named("events").is_none(), "{words}: --event");
        let short = |long: &str| named(long).map(|arg| arg.get_short());
        assert!(short("event").is_none_or(|short| short == Some('e')), "{words}: -e");
        let outputs = ["output", "dir"].map(short);
        let has_o = outputs.contains(&Some(Some('o')));
        assert!(has_o || outputs.iter().all(Option::is_none), "{words}: -o");
    }
}

/// The README had other groups than --help, in another order.
#[test]
fn the_readme_groups_commands_as_the_help_does() {
    let help = help("");
    let (_, groups) = help.split_once("\n\n").unwrap().1.split_once("\n\n").unwrap();
    let mut wanted: Vec<(String, Vec<String>)> = Vec::new();
    for line in groups.lines().take_while(|line| *line != "Options:") {
        if let Some(title) = line.strip_suffix(':') {
            wanted.push((title.to_lowercase(), Vec::new()));
        } else if let Some(command) = line.split_whitespace().next().filter(|name| *name != "help") {
            wanted.last_mut().unwrap().1.push(command.to_owned());
        }
    }
    let readme = fs::read_to_string(root().join("README.md")).unwrap();
    let rows = readme.lines().filter_map(|line| line.strip_prefix("| ")?.split_once(" | `perfx "));
    let commands = |row: &str| {
        let words = row.split('`').filter_map(|word| word.strip_prefix("perfx "));
        // The commands of a group follow it.
        words.filter(|word| !word.contains(' ')).map(str::to_owned).collect::<Vec<_>>()
    };
    let listed: Vec<_> =
        rows.map(|(title, row)| (title.to_owned(), commands(&format!("`perfx {row}")))).collect();
    assert_eq!(listed, wanted);
}

#[test]
fn completion_is_for_every_shell() {
    for shell in ["bash", "zsh", "fish", "powershell", "elvish"] {
        let ran = perfx(["completion", shell]);
        assert_eq!(ran.code, Some(0), "{shell}: {}", ran.stderr);
        assert!(commands().iter().all(|(_, command)| ran.text().contains(command.get_name())), "{shell}");
        assert!(ran.text().contains("mmap2-buildids"), "{shell}");
    }
}

/// Regression: fish refused the short option `-@` and completed nothing, without a message. Runs the
/// installed shells.
#[test]
fn shells_complete_commands_and_options() {
    let folder = temp();
    let bash = r#"source "$1"; COMP_WORDS=(perfx $2); COMP_CWORD=$((${#COMP_WORDS[@]} - 1))
        COMP_LINE="perfx $2"; COMP_POINT=${#COMP_LINE}
        _perfx_or_values perfx "${COMP_WORDS[COMP_CWORD]}"; printf '<%s>\n' "${COMPREPLY[@]}""#;
    let fish = r#"source $argv[1]; complete -C "perfx $argv[2]" | string replace -r '(\S+).*' '<$1>'"#;
    // zsh completes only on a terminal. The completed line then runs a function of that name.
    let zsh = r#"zmodload zsh/zpty; zpty z zsh -f -i
        zpty -w z "autoload -Uz compinit; compinit -u; source $1; perfx() { print \"<\${@[-1]}>\" }"
        zpty -w z "perfx $2"$'\t'; zpty -w z exit; while zpty -r z; do :; done"#;
    fs::copy(Fixture::new("recorded/forks.p61.data").path, folder.path().join("forks.data")).unwrap();
    let program = Path::new(env!("CARGO_BIN_EXE_perfx")).parent().unwrap();
    let path = format!("{}:{}", program.display(), std::env::var("PATH").unwrap_or_default());
    for (shell, options, program) in
        [("bash", "--norc", bash), ("zsh", "-f", zsh), ("fish", "--no-config", fish)]
    {
        if !is_installed(shell, shell) {
            continue;
        }
        let script = folder.path().join(shell);
        fs::write(&script, perfx(["completion", shell]).stdout).unwrap();
        let functions = "list functions forks.data --call";
        for (typed, completed) in [
            ("reind", "<reindex>"),
            ("reindex --in-p", "<--in-place>"),
            ("-q reind", "<reindex>"),
            ("list functions forks.data -e cpu-", "<cpu-clock>"),
            ("view forks.data --comm chi", "<child-"),
            ("stats fork", "<forks.data>"),
            (&format!("{functions}ers get_com"), "<get_common_indices.constprop.0>"),
            ("run -p reindex-t", "<reindex-times>"),
            (
                "run -p build-ids,retime:off",
                if shell == "bash" { "<offset=>" } else { "<build-ids,retime:offset=>" },
            ),
        ] {
            let mut command = clean(shell);
            command.env("HOME", folder.path()).env("TERM", "dumb").args([options, "-c", program]);
            command.current_dir(folder.path()).env("PATH", &path);
            // bash and zsh call the first argument $0.
            command.args((shell != "fish").then_some("test")).arg(&script).arg(typed);
            let ran = run(&mut command, Stdin::Null);
            assert!(ran.text().contains(completed), "{shell}, {typed}: {}{}", ran.text(), ran.stderr);
        }
    }
}

#[test]
fn every_command_has_a_manual_page() {
    let folder = temp();
    let pages = folder.path().join("share/man1");
    for _ in 0..2 {
        let ran = perfx(args!["man", "--dir", &pages]);
        assert_eq!((ran.code, ran.text().as_str(), ran.stderr.as_str()), (Some(0), "", ""));
    }
    let pages_of = commands().into_iter().map(|(words, _)| format!("perfx-{}", words.replace(' ', "-")));
    for name in std::iter::once("perfx".to_owned()).chain(pages_of) {
        let page = fs::read_to_string(pages.join(format!("{name}.1"))).unwrap();
        assert!(page.contains(".SH NAME") && page.contains(".SH \"EXIT STATUS\"\n"), "{name}");
        assert!(!page.contains(".SH EXTRA"), "{name}");
    }
    let page = fs::read_to_string(pages.join("perfx-copy.1")).unwrap();
    assert!(page.contains("\nExamples:\n.nf\n  perfx copy perf.data \\-o copy.data\n"), "{page}");
    assert!(page.contains(".SH SYNOPSIS\n\\fBperfx copy\\fR [OPTIONS] [INPUT]\n"), "{page}");
    let title =
        concat!("\n.TH perfx-copy 1 \" \" \"perfx ", env!("CARGO_PKG_VERSION"), "\" \"perfx Manual\"\n");
    assert!(page.contains(title), "{page}");
}

/// The objects with known properties that allow others.
fn open_objects(schema: &Json, place: &str) -> Vec<String> {
    let inside: Vec<_> = match schema {
        Json::Object(object) => object.iter().map(|(name, value)| (name.clone(), value)).collect(),
        Json::Array(items) => items.iter().enumerate().map(|(at, item)| (at.to_string(), item)).collect(),
        _ => Vec::new(),
    };
    let is_schema = !place.ends_with("/properties") && !place.ends_with("/$defs");
    let is_open = is_schema
        && schema.get("properties").is_some()
        && schema.get("additionalProperties") != Some(&json!(false));
    let own = is_open.then(|| place.to_owned());
    own.into_iter()
        .chain(inside.iter().flat_map(|(name, value)| open_objects(value, &format!("{place}/{name}"))))
        .collect()
}

/// To update them: `INSTA_UPDATE=always cargo test --test it -- docs::`.
#[test]
fn the_schemas_are_those_of_the_printed_types() {
    let mut files = Vec::new();
    for (name, schema) in perfx::schemas() {
        let open = open_objects(&schema, name);
        assert!(open.is_empty(), "not `deny_unknown_fields`: {open:?}");
        let file = format!("{name}.schema.json");
        let (path, text) = (root().join("schemas").join(&file), format!("{schema:#}\n"));
        if std::env::var("INSTA_UPDATE").is_ok_and(|update| update == "always") {
            fs::write(&path, &text).unwrap();
        }
        assert!(fs::read_to_string(&path).unwrap() == text, "schemas/{file} is not what the type says");
        files.push(file);
    }
    let entries = fs::read_dir(root().join("schemas")).unwrap();
    let mut found: Vec<_> = entries.map(|entry| entry.unwrap().file_name().into_string().unwrap()).collect();
    found.sort();
    assert_eq!(found, files);
}

/// The properties that are strings of decimal digits, because they may need more than 53 bits.
const DECIMAL: [&str; 29] = [
    "clock_ns", "cycles", "duration_ns", "filtered_samples", "first_ns", "from_ns", "id", "inode",
    "instructions", "last_ns", "lost", "lost_records", "lost_samples", "max_ns", "mean_ns", "median_ns",
    "off_cpu_ns", "p99_ns", "period", "resolution_ns", "self_ns", "span_ns", "time_ns", "to_ns", "total_ns",
    "total_period", "traced_ns", "wall_ns", "weight",
];

/// The properties that are hexadecimal strings.
const HEXADECIMAL: [&str; 10] =
    ["addr", "dsoff", "from", "ip", "length", "offset", "phys_addr", "start", "symoff", "to"];

/// The numeric properties of a schema, with their notation.
fn quantities(schema: &Json, found: &mut BTreeSet<(String, &'static str)>) {
    let Json::Object(object) = schema else {
        schema.as_array().into_iter().flatten().for_each(|item| quantities(item, found));
        return;
    };
    for (name, property) in schema["properties"].as_object().into_iter().flatten() {
        let types = |wanted: &str| property["type"] == wanted || property["type"][0] == wanted;
        let pattern = property["pattern"].as_str().unwrap_or_default();
        let written = match pattern {
            "^[0-9]+$" => "decimal",
            pattern if pattern.starts_with("^0x") => "hexadecimal",
            _ if types("integer") || types("number") => "number",
            _ => continue,
        };
        found.insert((name.clone(), written));
    }
    object.values().for_each(|inner| quantities(inner, found));
}

/// `records` was a number in stats and a string in doctor; times were `first` here and `first_ns` there.
#[test]
fn a_quantity_has_one_name_and_one_type_in_the_json_of_all_commands() {
    let mut found = BTreeSet::new();
    perfx::schemas().into_iter().for_each(|(_, schema)| quantities(&schema, &mut found));
    let of = |kind: &str| {
        let names = found.iter().filter(|(_, written)| *written == kind).map(|(name, _)| &**name);
        names.collect::<Vec<&str>>()
    };
    let numbers = of("number");
    assert_eq!(of("decimal"), DECIMAL);
    assert_eq!(of("hexadecimal"), HEXADECIMAL);
    assert!(numbers.contains(&"records") && numbers.contains(&"bytes"), "{numbers:?}");
    for name in numbers {
        assert!(!DECIMAL.contains(&name) && !HEXADECIMAL.contains(&name), "{name} is also a number");
        assert!(!name.ends_with("_ns"), "{name}: times are strings");
    }
}

fn lines(text: &str) -> Result<Vec<Json>, String> {
    text.lines().map(|line| serde_json::from_str(line).map_err(|error| format!("{error}: {line}"))).collect()
}

#[test]
fn json_of_passes_is_what_its_schema_says() {
    let document: Json = serde_json::from_str(&perfx(["passes", "--json"]).text()).unwrap();
    conforms("passes", &document).unwrap();
    let listed = lines(&perfx(["passes", "--format", "ndjson"]).text()).unwrap();
    listed.iter().for_each(|line| conforms("passes", line).unwrap());
    let names = |passes: &[Json]| passes.iter().map(|pass| pass["name"].clone()).collect::<Vec<_>>();
    assert_eq!(names(document["passes"].as_array().unwrap()), names(&listed));
    for form in ["json", "ndjson"] {
        let plain = crate::support::Fixture::new("recorded/plain.p61.data").path;
        let ran =
            perfx(args!["run", "-p", "build-ids,mmap2-build-ids:hit", "--explain", "--format", form, &plain]);
        conforms("schedule", &serde_json::from_str(&ran.text()).unwrap()).unwrap();
    }
}

tiers!(json_of_dump_is_what_its_schema_says_and_the_same_in_both_forms);
/// The document has the same contents as the lines, in the same order, and both report where reading fails.
fn json_of_dump_is_what_its_schema_says_and_the_same_in_both_forms(tier: Tier) {
    each_fixture(&tier.of(sound()), |fixture| {
        for only in [&[][..], &["--only", "COMM,9"]] {
            let dump = |form: &str| {
                let args = args!["dump", "-q", "--format", form, &fixture.path];
                run(perfx_command().args(args).args(only), Stdin::Null)
            };
            let (document, listed) = (dump("json"), dump("ndjson"));
            if (document.code, &document.stderr) != (listed.code, &listed.stderr) {
                return Err(format!("{:?} and {:?}", document.stderr, listed.stderr));
            }
            let listed = lines(&listed.text())?;
            listed.iter().try_for_each(|line| conforms("dump", line))?;
            let parsed = serde_json::from_str::<Json>(&document.text());
            if document.code == Some(1) && document.stdout.is_empty() {
                continue;
            }
            let parsed = parsed.map_err(|error| error.to_string())?;
            conforms("dump", &parsed)?;
            if parsed.get("error").is_some() != (document.code == Some(1)) {
                return Err("an error that is not said, or none that is".to_owned());
            }
            let mut members: Vec<Json> = parsed.get("header").into_iter().cloned().collect();
            for name in ["faults", "events", "features", "records"] {
                members.extend(parsed[name].as_array().ok_or("an array is missing")?.iter().cloned());
            }
            members.extend(parsed.get("error").map(|error| json!({ "error": error })));
            let stripped: Vec<Json> = listed
                .into_iter()
                .map(|mut line| {
                    let object = line.as_object_mut().unwrap();
                    object.retain(|name, _| name != "schema" && name != "what");
                    line
                })
                .collect();
            if members != stripped {
                return Err("the document is not what the lines are".to_owned());
            }
        }
        Ok(())
    });
}
