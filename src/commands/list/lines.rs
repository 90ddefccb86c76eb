//! `perfx list lines` lists the source lines or instructions of a function with the most samples.

use anyhow::{Result, bail};
use perfx_export::annotate::{HotLines, hot_lines};
use perfx_export::{Grouping, ShownEvent};
use perfx_filter::unknown;
use perfx_look::json::Document;
use perfx_look::render::printable;
use perfx_pipeline::{Level, Report, counted};
use perfx_resolve::kcore_of;

use crate::args::{FormatArgs, Usage};
use crate::commands::export::input::{Collected, StackArgs, say_left_out, say_quality, say_read};
use crate::io::source::InputsArgs;
use crate::term::units::{NAME, columns, count, function_within, without_middle};

pub(crate) type Output = Document<1, HotLines>;

/// Without --head.
const LINES: usize = 20;

/// Lists the lines of the function or source file that is the first input.
pub(super) fn list(
    inputs: &InputsArgs,
    stacks: &StackArgs,
    (format, (head, by_instruction)): (FormatArgs, (Option<usize>, bool)),
) -> Result<u8> {
    let (Some(wanted), inputs) = inputs.split_first() else {
        bail!(Usage("give a function or a source file: perfx list lines FUNCTION [INPUT]".into()))
    };
    let wanted = wanted.to_string_lossy();
    let sources = inputs.sources()?;
    let [source] = &sources[..] else {
        bail!(Usage("lines are listed for one recording: two builds have different code".into()))
    };
    let (ids, mut report) = (stacks.ids()?, Report::default());
    let recording = source.open_indexed()?;
    let kcore = kcore_of(&recording.name);
    let grouping = Grouping { own_address: true, ..Grouping::default() };
    let mut collected = stacks.collect(recording, &ids, grouping, &mut report)?;
    let Some(event) = collected.shown(&mut ShownEvent::default(), false)? else {
        say_read(&mut report, &collected.recording, &collected.stacks);
        return Ok(stacks.verbosity.print(&report));
    };
    let Collected { recording, facts, stacks: found, .. } = &collected;
    let sampled = found.sampled(facts);
    let chosen = (&*wanted, by_instruction, head.unwrap_or(LINES));
    let search = collected.search(&ids, true);
    let lines = hot_lines(found, (event, sampled.counted(Some(event))), chosen, search, kcore.as_deref())?;
    say_read(&mut report, recording, found);
    sampled.say(Some(event), false, &mut report);
    say_quality(collected.chain_quality(), &mut report);
    let (lines, annotated) = match lines {
        Ok(lines) => lines,
        Err(names) => {
            bail!("{}: {}", recording.name, unknown(&wanted, names.iter().map(String::as_str)))
        }
    };
    say_left_out(&mut report, &annotated);
    let without: u64 = lines.rows.iter().filter(|row| row.line.is_none()).map(|row| row.samples).sum();
    if without > 0 && !by_instruction {
        let what = counted(without, "sample has", "samples have");
        report.say(Level::Warning, format!("{what} no source line: compile with -g, or see --insn"));
    }
    if lines.all_rows == 0 {
        report.say(Level::Warning, format!("no sample is in `{wanted}`"));
    }
    let more = lines.all_rows - lines.rows.len() as u64;
    if more > 0 {
        report.say(Level::Info, format!("{} not shown (--head)", counted(more, "row is", "rows are")));
    }
    format.print(|| text(&lines, by_instruction, columns()), || Output::new(lines.clone()))?;
    Ok(stacks.verbosity.print(&report))
}

fn text(lines: &HotLines, by_instruction: bool, columns: usize) -> String {
    let cells = lines.rows.iter().map(|row| {
        let last = |path: &str| printable(path.rsplit('/').next().unwrap_or(path));
        let line = match (&row.file, row.line) {
            (Some(file), Some(line)) => format!("{}:{line}", last(file)),
            _ if by_instruction => String::new(),
            _ => "[no line]".to_owned(),
        };
        let address = row.ip.map(|address| format!("{:x}", address.0));
        let text = match by_instruction {
            true => row.instruction.clone().unwrap_or_else(|| "[no code]".to_owned()),
            false => row.source.as_deref().unwrap_or_default().trim().to_owned(),
        };
        let text = printable(&text.replace('\t', " "));
        let of = [address.unwrap_or_default(), line, printable(&row.function), text];
        (format!("{:6.2}%  {:>10}", row.percent, count(row.samples)), of)
    });
    let heading = ["address", "line", "function", if by_instruction { "instruction" } else { "source" }];
    let heading = ("  share     samples".to_owned(), heading.map(str::to_owned));
    let all: Vec<(String, [String; 4])> = std::iter::once(heading).chain(cells).collect();
    let width = |column: usize| all.iter().map(|(_, row)| row[column].chars().count()).max().unwrap_or(0);
    let [address, place, function, _] = [0, 1, 2, 3].map(width);
    let function = function.min(if columns == usize::MAX { function } else { 24 });
    let left = if by_instruction { address + 2 } else { 0 };
    let rest = columns.saturating_sub(25 + left + place + function).max(NAME);
    let line = |(share, [at, line, name, text]): &(String, [String; 4])| {
        let at = if by_instruction { format!("  {at:>address$}") } else { String::new() };
        let (name, text) = (function_within(name, function), without_middle(text, rest));
        format!("{share}{at}  {line:place$}  {name:function$}  {text}").trim_end().to_owned() + "\n"
    };
    if lines.all_rows == 0 { String::new() } else { all.iter().map(line).collect() }
}
