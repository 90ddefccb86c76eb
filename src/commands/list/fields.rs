//! `perfx list fields`, and lists of tracepoints with names: `syscalls`, `locks`, `sched`, `irqs`, `io`, `kmem`.

use anyhow::{Result, bail};
use clap::{Args, ValueEnum};
use perfx_export::fields::{Column, FieldSums, FieldTable, FieldTables, Measure, Ready, Role};
use perfx_look::json::Document;
use perfx_look::render::{printable, readable};
use perfx_pipeline::{Level, Report, counted, wide_count};

use crate::args::{FormatArgs, Usage};
use crate::commands::export::input::{By, StackArgs, each_recording};
use crate::io::source::InputsArgs;
use crate::term::units::{count, fitted};

#[derive(Args, Debug)]
pub(super) struct FieldArgs {
    /// List a row for each value of these fields of the event, or of its samples: pid, tid, comm, cpu, event, syscall,
    /// caller (perf record -g); with --until, end.FIELD is a field of the later event. Functions and stacks: list
    /// those of each comm, pid, tid, cpu, cgroup or container separately (one of these)
    #[arg(long, value_name = "FIELD,…", value_delimiter = ',')]
    by: Vec<String>,
    /// Add up this field of the event
    #[arg(long, value_name = "FIELD", conflicts_with = "until")]
    of: Option<String>,
    /// Measure the time from the event until this one
    #[arg(long, value_name = "EVENT")]
    until: Option<String>,
    /// Fields that must be equal in the event and that of --until: FIELD or, if the names differ, FIELD=FIELD
    /// [default: tid]
    #[arg(long, value_name = "FIELD,…", value_delimiter = ',', requires = "until")]
    pair: Vec<String>,
}

pub(crate) type Output = Document<1, FieldTables>;

/// Without --head.
const ROWS: usize = 20;

impl FieldArgs {
    /// Refuses these options for other lists.
    pub(super) fn refuse(&self, also_by: bool) -> Result<()> {
        let given = [
            ("--by", !self.by.is_empty() && also_by),
            ("--of", self.of.is_some()),
            ("--until", self.until.is_some()),
            ("--pair", !self.pair.is_empty()),
        ];
        Usage::refuse(&given, "`perfx list fields EVENT`")
    }

    pub(super) fn group(&self) -> Result<Option<By>> {
        if self.by.is_empty() {
            return Ok(None);
        }
        let by = self.by.join(",");
        By::from_str(&by, false).map(Some).map_err(|_| {
            let names = By::value_variants().iter().filter_map(By::to_possible_value);
            let names: Vec<String> = names.map(|name| name.get_name().to_owned()).collect();
            let what =
                format!("functions and stacks are listed --by one of {}, not `{by}`", names.join(", "));
            Usage(what).into()
        })
    }

    fn columns(&self) -> Vec<Column<'_>> {
        self.by.iter().map(|by| Column { from: by, title: by }).collect()
    }

    pub(super) fn list(
        &self,
        inputs: &InputsArgs,
        stacks: &StackArgs,
        (format, head): (FormatArgs, Option<usize>),
    ) -> Result<u8> {
        let (Some(event), inputs) = inputs.split_first() else {
            bail!(Usage("give an event: perfx list fields EVENT [INPUT]…".into()))
        };
        if event.is_file() && inputs.split_first().0.is_none_or(|first| !first.is_file()) {
            let event = event.display();
            bail!(Usage(format!(
                "`{event}` is a file; the event comes first: perfx list fields EVENT {event}"
            )));
        }
        let event = event.to_string_lossy().into_owned();
        let pairs: Vec<&str> = match &self.pair[..] {
            [] => vec!["sample.tid"],
            pairs => pairs.iter().map(String::as_str).collect(),
        };
        let keys = pairs.iter().map(|pair| pair.split_once('=').unwrap_or((pair, pair)));
        let (begin, end): (Vec<&str>, Vec<&str>) = keys.unzip();
        let title = match &self.until {
            Some(until) => format!("time from {event} until {until}"),
            None => event.clone(),
        };
        let by = self.columns();
        let ends: Vec<Role<'_>> =
            self.until.iter().map(|until| Role { events: until, key: &end, only: None }).collect();
        let measure = Measure {
            title: &title,
            begin: &[Role { events: &event, key: if ends.is_empty() { &[] } else { &begin }, only: None }],
            end: &ends,
            by: &by,
            reset: &[],
            value: self.of.as_deref(),
            keeps_first: false,
            skips_idle: false,
        };
        run(&[measure], None, (&inputs, stacks), (format, head))
    }

    pub(super) fn ready(
        &self,
        name: &str,
        inputs: &InputsArgs,
        stacks: &StackArgs,
        (format, head): (FormatArgs, Option<usize>),
    ) -> Result<u8> {
        self.refuse(false)?;
        let Some(ready) = Ready::named(name) else { bail!("{name} is no list") };
        if ready.is_of_others && stacks.filter()?.chooses_tasks() {
            let what = "options such as --tid and --cpu select samples by the thread in which they were taken, but \
                        rows are of the threads that wait or run; leave them out";
            bail!(Usage(format!("{name}: {what}")));
        }
        let by = self.columns();
        let own = |measure: &Measure<'static>| {
            if by.is_empty() { *measure } else { Measure { by: &by, ..*measure } }
        };
        let measures: Vec<Measure<'_>> = ready.measures.iter().map(own).collect();
        run(&measures, Some(ready.record), (inputs, stacks), (format, head))
    }
}

fn run(
    measures: &[Measure<'_>],
    record: Option<&str>,
    (inputs, stacks): (&InputsArgs, &StackArgs),
    (format, head): (FormatArgs, Option<usize>),
) -> Result<u8> {
    let (ids, filter) = (stacks.ids()?, stacks.filter()?);
    let (mut sums, mut report) = (FieldSums::new(measures), Report::default());
    each_recording(&inputs.sources()?, &mut report, |recording, report| {
        recording.progress().expect(3 + filter.readings());
        let bar = stacks.verbosity.progress(&recording);
        let threads = stacks.threads.count(&recording);
        sums.add(recording, &filter, &ids, record, threads, report)?;
        drop(bar);
        Ok(())
    })?;
    let tables = sums.tables(head.unwrap_or(ROWS));
    for table in &tables.tables {
        let more = table.all_rows - table.rows.len() as u64;
        if more > 0 {
            let rows = counted(more, "row is", "rows are");
            report.say(Level::Info, format!("{}: {rows} not shown (--head)", table.title));
        }
    }
    format.print(|| text(&tables), || Output::new(tables.clone()))?;
    Ok(stacks.verbosity.print(&report))
}

fn text(tables: &FieldTables) -> String {
    let tables = tables.tables.iter().filter(|table| !table.rows.is_empty());
    let tables = tables.map(|table| format!("{}\n{}", printable(&table.title), fitted(&lines(table))));
    tables.collect::<Vec<_>>().join("\n")
}

fn lines(table: &FieldTable) -> Vec<Vec<String>> {
    let unit = if table.unit.is_some() { " µs" } else { "" };
    let shown: Vec<Vec<String>> = std::iter::once(table.by.clone())
        .chain(table.rows.iter().map(|row| row.keys.iter().map(|key| readable(&key.0)).collect()))
        .collect();
    let width = |column: usize| shown.iter().map(|row| row[column].chars().count()).max().unwrap_or(0);
    let widths: Vec<usize> = (0..table.by.len()).map(width).collect();
    let first = |row: &Vec<String>| {
        let cells = row.iter().zip(&widths).map(|(cell, &width)| format!("{cell:<width$}"));
        cells.collect::<Vec<_>>().join("  ")
    };
    let has_failed = table.rows.iter().any(|row| row.failed > Some(0));
    let mut title = vec![first(&shown[0]), "count".to_owned()];
    title.extend(has_failed.then(|| "failed".to_owned()));
    if table.value.is_some() {
        title.extend(["total", "mean", "p99", "max"].map(|word| format!("{word}{unit}")));
    }
    let number = |value: i128| match table.unit {
        Some(_) => tenths(value as f64 / 1000.0),
        None => format!("{}{}", if value < 0 { "-" } else { "" }, wide_count(value.unsigned_abs())),
    };
    let rows = table.rows.iter().zip(&shown[1..]).map(|(row, keys)| {
        let mut cells = vec![first(keys), count(row.count)];
        cells.extend(has_failed.then(|| count(row.failed.unwrap_or(0))));
        if let (Some(sum), Some(mean), Some(p99), Some(max)) = (row.sum, row.mean, row.p99, row.max) {
            let mean = tenths(if table.unit.is_some() { mean / 1000.0 } else { mean });
            cells.extend([number(sum.0), mean, number(p99.0.into()), number(max.0.into())]);
        }
        cells
    });
    std::iter::once(title).chain(rows).collect()
}

fn tenths(value: f64) -> String {
    let tenths = (value.abs() * 10.0).round() as u128;
    let sign = if value < 0.0 && tenths > 0 { "-" } else { "" };
    format!("{sign}{}.{}", wide_count(tenths / 10), tenths % 10)
}
