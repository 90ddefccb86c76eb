//! Writes the four tables of CERN's readperf for any recording.

mod cell;
mod gather;
mod names;
mod overview;

use std::fs::File;
use std::io::Write;

use ::csv::Writer;
use perfx_filter::FilterOptions;
use perfx_format::RecordType;
use perfx_format::read::Recording;
use perfx_format::siblings::CountedAs;
use perfx_look::render::{kind_name, push_number};
use perfx_pipeline::{Error, Report, Result, ahead};

use crate::counted::counted_events;
use crate::sorted::Sorted;
use cell::plain;
use gather::Gathered;
use names::Naming;
use perfx_resolve::{Facts, IdOptions, Search};
use perfx_samples::say_cut_off;

/// The tables, in the order in which [`write_tables`] returns their sizes.
pub const TABLES: [&str; 4] = [STAT, OVERVIEW, PROCESSES, RESULTS];

const STAT: &str = "stat.csv";
const OVERVIEW: &str = "overview.csv";
const PROCESSES: &str = "processes.csv";
const RESULTS: &str = "results.csv";

/// Writes the tables; returns the number of rows of each. `filter` was already applied to the recording, and
/// only selects events within groups. `create` opens a table by its name; `spill` is an empty file for rows
/// that wait to be sorted.
///
/// # Errors
///
/// The recording cannot be read or decompressed, or a table cannot be written.
pub fn write_tables(
    recording: &mut Recording,
    ids: &IdOptions,
    filter: &FilterOptions,
    spill: File,
    mut create: impl FnMut(&str) -> Result<Box<dyn Write>>,
    threads: usize,
    report: &mut Report,
) -> Result<[u64; 4]> {
    let facts = Facts::survey(recording, threads, false)?;
    let counted_as = counted_events(&facts, filter);
    let (gathered, losses) = gather::gather(recording, (&facts, &counted_as), spill, threads, report)?;
    report.read.records = Some(gathered.overview.records());
    losses.say(&format!("not counted in {RESULTS}"), report);
    let (features, endian) = (&recording.features, recording.endian);
    let search = Search { facts: &facts, features, endian, ids, inlined: false };
    let naming = names::name_hits(&gathered.hits, search);
    naming.dsos.say(report);
    let of_processes = gathered.processes.named().map(|(.., process)| process.count.period);
    let of_symbols = naming.results.values().map(|count| count.period);
    say_cut_off(of_processes.chain(of_symbols), u64::MAX, report);
    let stat = stat(&gathered, create(STAT)?)?;
    let processes = processes(&gathered, create(PROCESSES)?)?;
    let results = results(&naming, &counted_as, create(RESULTS)?)?;
    let overview = overview(gathered.overview, create(OVERVIEW)?, threads)?;
    Ok([stat, overview, processes, results])
}

/// Writes a row for every known kind, so that all recordings have the same rows; then the unknown kinds.
fn stat(gathered: &Gathered, out: impl Write) -> Result<u64> {
    let mut kinds = gathered.kinds.clone();
    for &kind in RecordType::NAMED {
        kinds.entry(kind).or_default();
    }
    let mut table = Writer::from_writer(out);
    table.write_record(["kind", "count"]).map_err(failed)?;
    for (kind, count) in &kinds {
        table.write_record([&*kind_name(*kind), &count.to_string()]).map_err(failed)?;
    }
    table.flush()?;
    Ok(kinds.len() as u64)
}

const MERGED: usize = 1 << 18;

/// Writes the rows of all records; with several threads, one merges while another writes.
fn overview(sorted: Sorted, mut out: impl Write, threads: usize) -> Result<u64> {
    let rows = sorted.records();
    out.write_all(b"nr,kind,pid,tid,time,info\n")?;
    let mut merge = sorted.merge()?;
    let mut merged = move || -> Result<Vec<u8>> {
        let mut text = Vec::with_capacity(MERGED + (1 << 12));
        while text.len() < MERGED
            && let Some((nr, _, row)) = merge.next_row()?
        {
            push_number(&mut text, nr);
            text.push(b',');
            text.extend_from_slice(row);
        }
        Ok(text)
    };
    let texts = std::iter::from_fn(move || {
        Some(merged()).filter(|text| !matches!(text, Ok(text) if text.is_empty()))
    });
    for text in ahead(texts, threads)? {
        out.write_all(&text?)?;
    }
    out.flush()?;
    Ok(rows)
}

fn processes(gathered: &Gathered, out: impl Write) -> Result<u64> {
    let mut table = Writer::from_writer(out);
    table.write_record(["pid", "comm", "mappings", "fork", "exit", "samples", "period"]).map_err(failed)?;
    for (pid, comm, process) in gathered.processes.named() {
        let comm = plain(&comm).into_owned();
        let text = |number: Option<u64>| number.map(|number| number.to_string()).unwrap_or_default();
        table
            .write_record([
                pid.map(|pid| (pid as i32).to_string()).unwrap_or_default(),
                comm,
                process.mappings.to_string(),
                text(process.fork),
                text(process.exit),
                process.count.samples.to_string(),
                process.count.period.to_string(),
            ])
            .map_err(failed)?;
    }
    table.flush()?;
    Ok(gathered.processes.len() as u64)
}

fn results(naming: &Naming, counted_as: &[Option<CountedAs>], out: impl Write) -> Result<u64> {
    let mut rows: Vec<_> = naming.results.iter().collect();
    // The sort is stable: equal rows stay in order of names.
    rows.sort_by_key(|((event, ..), count)| (*event, std::cmp::Reverse((count.period, count.samples))));
    let mut table = Writer::from_writer(out);
    table.write_record(["event", "dso", "symbol", "samples", "period"]).map_err(failed)?;
    for ((event, dso, symbol), count) in &rows {
        let event = counted_as.get(*event as usize).and_then(Option::as_ref);
        let event = event.map_or_else(Default::default, |event| plain(&event.name));
        table
            .write_record([&*event, dso, symbol, &count.samples.to_string(), &count.period.to_string()])
            .map_err(failed)?;
    }
    table.flush()?;
    Ok(rows.len() as u64)
}

/// Only writing can fail: all rows of a table have the same number of cells.
fn failed(error: ::csv::Error) -> Error {
    std::io::Error::from(error).into()
}
