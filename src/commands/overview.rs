//! `perfx overview`, or `perfx` with only a recording, summarizes the recording on one screen.

use std::io::Write as _;
use std::iter::repeat;
use std::sync::Arc;

use anyhow::Result;
use clap::Args;
use perfx_auxtrace::Tracer;
use perfx_export::ranking::{Order, Ranking};
use perfx_export::{Grouping, ShownEvent};
use perfx_format::Value;
use perfx_look::render::{Style, readable, value};
use perfx_look::{Stats, stats};
use perfx_pipeline::{Report, counted};

use super::export::input::{Collected, StackArgs, tracer_of};
use super::info::headings;
use super::list::ranked_text;
use crate::io::output::stdout;
use crate::io::source::{InputArgs, Source};
use crate::term::units::{columns, count, fitted, wide_count};

/// Show what was recorded, the events, ten functions and the losses on one screen
///
/// `perfx FILE` does the same. The functions are those of `perfx list functions`.
///
/// Examples:
///   perfx overview perf.data
///   perfx perf.data
#[derive(Args, Debug)]
#[command(verbatim_doc_comment)]
pub(crate) struct Overview {
    #[command(flatten)]
    input: InputArgs,
    #[command(flatten)]
    stacks: StackArgs,
}

const FACTS: [(&str, &[&str]); 4] = [
    ("command", &["command"]),
    ("machine", &["architecture", "kernel", "CPUs"]),
    ("first sample", &["first sample"]),
    ("duration", &["duration"]),
];

const FUNCTIONS: usize = 10;

impl Overview {
    pub(crate) fn run(&self) -> Result<u8> {
        let ids = self.stacks.ids()?;
        let source = Source::of(&self.input);
        let mut report = Report::default();
        // All figures are of the selected samples.
        let mut recording = self.stacks.applied(source.open_indexed()?, &mut report)?;
        let facts = headings(&mut recording);
        // These reports are repeated when the stacks are read.
        let threads = self.stacks.threads.count(&recording);
        let counts = stats(&mut recording, threads, &mut Report::default())?;
        let grouping = Grouping { own_address: true, ..Grouping::default() };
        let all = Arc::default();
        let mut collected = self.stacks.collect_selected(recording, &ids, grouping, &all, &mut report)?;
        collected.chooses_events = self.stacks.filter()?.chooses_events();
        let event = collected.shown(&mut ShownEvent::default(), false)?;
        let Collected { recording, facts: meanings, stacks, .. } = &collected;
        let sampled = stacks.sampled(meanings);
        let mut ranking = Ranking::default();
        let named = ranking.add(stacks, collected.search(&ids, false), event)?;
        named.say(&mut report);
        sampled.say(event, false, &mut report);

        let mut text = String::new();
        for (label, of) in FACTS {
            let rows = facts.iter().flat_map(|(_, rows)| rows);
            let found: Vec<&str> =
                rows.filter(|(label, _)| of.contains(&&**label)).map(|(_, text)| &**text).collect();
            if !found.is_empty() {
                text += &format!("{label:<14} {}\n", found.join(", "));
            }
        }
        text += &format!("{:<14} {}\n", "lost", losses(&counts, &report));
        text += &call_chains(&collected);
        text += "\n";
        text += &events(&counts);
        if event.is_some() {
            text += "\n";
            text += &ranked_text(&ranking.functions(Order::Own, FUNCTIONS), columns());
        }
        let name = value(&Value::Text(source.to_string().as_bytes()), Style::default());
        text +=
            &if event.is_none() && tracer_of(recording).is_some_and(|tracer| Tracer::ALL.contains(&tracer)) {
                format!(
                    "\nperfx list functions {name} --itrace\n\
                 perfx view {name} --itrace=cr\n\
                 perfx stats {name}\n"
                )
            } else {
                format!(
                    "\nperfx list functions {name} --callers FUNCTION\n\
                 perfx export html {name} -o report.html\n\
                 perfx info {name}\n"
                )
            };
        let mut out = stdout();
        out.write_all(text.as_bytes())?;
        out.flush()?;
        Ok(self.stacks.verbosity.print(&report))
    }
}

fn call_chains(collected: &Collected) -> String {
    let quality = collected.chain_quality();
    let mut found = quality.sentences();
    if collected.facts.events.iter().any(|event| event.has_chains) && found.is_empty() {
        found.push(match collected.are_chains_recorded {
            true => "no gaps found; chains that end early are not detected".to_owned(),
            false => "unwound from recorded stacks; standard error says which of them end early".to_owned(),
        });
    }
    let labels = ["call chains"].into_iter().chain(repeat(""));
    labels.zip(found).map(|(label, found)| format!("{label:<14} {found}\n")).collect()
}

fn losses(counts: &Stats, report: &Report) -> String {
    let records = match counts.lost.lost.0 {
        0 => None,
        1 => Some("1 record".to_owned()),
        lost => Some(format!("{} records", wide_count(lost))),
    };
    let times = |count| format!("AUX data {}", counted(count, "time", "times"));
    let aux = Some(counts.lost.aux_records).filter(|&count| count > 0).map(times);
    match records.into_iter().chain(aux).collect::<Vec<_>>() {
        lost if !lost.is_empty() => lost.join(", "),
        _ if report.has_loss() => {
            "nothing while recording; standard error says what is missing here".to_owned()
        }
        _ => "nothing, as far as the recording says".to_owned(),
    }
}

fn events(counts: &Stats) -> String {
    let mut rows = vec![["event", "samples", "period"].map(str::to_owned).to_vec()];
    rows.extend(counts.events.iter().map(|event| {
        let period = event.period.map_or_else(|| "-".to_owned(), |period| wide_count(period.0));
        vec![readable(&event.name.0), count(event.samples), period]
    }));
    fitted(&rows)
}
