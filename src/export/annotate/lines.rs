//! Lists the source lines or instructions with the most samples, of functions or of a source file.

use std::collections::BTreeMap;

use indexmap::IndexMap;
use perfx_look::json::{Decimal, Hex};
use perfx_resolve::{Frame, Search, with_deep_stack};
use schemars::JsonSchema;
use serde::Serialize;
use std::path::Path;

use super::{Annotated, Chosen, EXTENSIONS, Listed, Result, heaviest, innermost_frames, list};
use crate::shown::Counted;
use crate::stacks::{Stacks, Weight};

/// Source lines or instructions, the heaviest first.
#[derive(Clone, PartialEq, Debug, Serialize, JsonSchema)]
#[schemars(deny_unknown_fields)]
pub struct HotLines {
    /// Events and unit of the counts
    pub counted: Counted,
    /// The number of rows, including those that are not listed
    pub all_rows: u64,
    /// The heaviest first
    pub rows: Vec<LineRow>,
}

/// A source line, or an instruction.
#[derive(Clone, PartialEq, Debug, Serialize, JsonSchema)]
#[schemars(deny_unknown_fields)]
pub struct LineRow {
    /// Share of all samples of the event
    pub percent: f64,
    /// Samples at it
    pub samples: u64,
    /// The sum of their periods
    pub period: Decimal<u64>,
    /// The function, or the one into which its code was inlined
    pub function: String,
    /// The file of its code
    pub dso: String,
    /// The source file, as the compiler wrote its path; null without debug information
    pub file: Option<String>,
    /// The line, from 1
    pub line: Option<u32>,
    /// Its text, if the source was found
    pub source: Option<String>,
    /// The address of the instruction; null in lists of lines
    pub ip: Option<Hex>,
    /// The instruction, if its code was found
    pub instruction: Option<String>,
}

/// The number of the function, the line and, for instructions, the address.
type RowKey = (usize, Option<(String, u32)>, Option<u64>);

/// Lists lines or, with `by_instruction`, instructions of the functions that `wanted` means, or of the source
/// file with this name. Also returns the sources left out. The error contains similar names.
///
/// # Errors
///
/// A thread cannot be started.
pub fn hot_lines(
    stacks: &Stacks,
    (event, counted): (u32, Counted),
    (wanted, by_instruction, head): (&str, bool, usize),
    search: Search<'_>,
    kcore: Option<&Path>,
) -> Result<Result<(HotLines, Annotated), Vec<String>>> {
    let innermost = innermost_frames(stacks);
    let mut weights = BTreeMap::<Frame, Weight>::new();
    for (row, &weight) in stacks.rows.iter().filter(|(row, _)| row.event == event) {
        let frame = innermost.get(row.stack as usize);
        if let Some(&frame) = frame.filter(|frame| frame.process == 0 && frame.dso.is_some()) {
            *weights.entry(frame).or_default() += weight;
        }
    }
    let mut sums: BTreeMap<u32, BTreeMap<Frame, u64>> = BTreeMap::new();
    for (&frame, weight) in &weights {
        sums.entry(frame.dso.unwrap_or_default()).or_default().insert(frame, weight.period);
    }
    let extension = Path::new(wanted).extension().and_then(|extension| extension.to_str());
    let is_source = extension.is_some_and(|extension| EXTENSIONS.contains(&extension));
    let chosen = if is_source { Chosen::Most(usize::MAX) } else { Chosen::Named(wanted) };
    let chosen = match heaviest(&sums, chosen, search) {
        Ok(chosen) => chosen,
        Err(similar) => return Ok(Err(similar)),
    };
    let (listed, annotated) = with_deep_stack(|| list(chosen, search, kcore, true))?;
    let mut rows: IndexMap<RowKey, LineRow> = IndexMap::new();
    for (function, Listed { code, hits, places }) in listed.iter().enumerate() {
        let texts: BTreeMap<Frame, usize> = hits.iter().map(|&(frame, at)| (frame, at as usize)).collect();
        for (frame, place) in places {
            let of_file = |file: &str| Path::new(file).ends_with(wanted);
            if is_source && !place.line.as_ref().is_some_and(|(file, _)| of_file(file)) {
                continue;
            }
            let line = place.line.as_ref().map(|(file, number)| (file.to_string(), *number));
            let address = by_instruction.then_some(place.address);
            let text = texts.get(frame).filter(|_| by_instruction);
            let row = rows.entry((function, line.clone(), address)).or_insert_with(|| LineRow {
                percent: 0.0,
                samples: 0,
                period: Decimal(0),
                function: code.name.clone(),
                dso: code.file.clone(),
                line: line.as_ref().map(|(_, number)| *number),
                file: line.map(|(file, _)| file),
                source: place.text.clone(),
                ip: address.map(Hex),
                instruction: text.map(|&at| code.instructions[at].1.clone()),
            });
            let weight = weights.get(frame).copied().unwrap_or_default();
            row.samples += weight.samples;
            row.period = Decimal(row.period.0.saturating_add(weight.period));
        }
    }
    let mut rows: Vec<LineRow> = rows.into_values().collect();
    for row in &mut rows {
        row.percent = row.period.0 as f64 * 100.0 / (counted.period.0 as f64).max(1.0);
    }
    rows.sort_by(|a, b| {
        (b.period.0, b.samples, &a.file, a.line, a.ip, &a.function)
            .cmp(&(a.period.0, a.samples, &b.file, b.line, b.ip, &b.function))
    });
    let all_rows = rows.len() as u64;
    rows.truncate(head);
    Ok(Ok((HotLines { counted, all_rows, rows }, annotated)))
}
