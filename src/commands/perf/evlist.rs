//! Prints the events of a recording as `perf evlist` does.

use std::io::Write as _;

use anyhow::{Result, ensure};
use clap::Args;
use perfx_format::decode::event_as_perf;
use perfx_format::features::{GroupDesc, grouped_events, read_group_desc};
use perfx_format::{Attr, ByTracepoint, Feature};
use perfx_look::render::readable;
use perfx_pipeline::Report;
use perfx_resolve::Facts;

use crate::args::{ReadArgs, Usage};
use crate::io::output::stdout;
use crate::io::source::{InputArgs, Source};

/// The options of perf evlist.
#[derive(Args, Debug)]
pub(super) struct Evlist {
    #[command(flatten)]
    input: InputArgs,
    #[arg(long)]
    freq: bool,
    #[arg(long)]
    group: bool,
    #[arg(long)]
    attrs: bool,
    #[arg(long)]
    trace_fields: bool,
    #[command(flatten)]
    read: ReadArgs,
}

impl Evlist {
    pub(super) fn run(&self) -> Result<u8> {
        ensure!(
            !self.group || !self.attrs && !self.freq,
            Usage("--group can't be used with --verbose or --freq".to_owned())
        );
        let mut recording = Source::of(&self.input).open_rereadable()?;
        let threads = self.read.threads.count(&recording);
        let facts = Facts::survey(&mut recording, threads, false)?;
        let events = recording.all_events();
        let (features, endian) = (&recording.features, recording.endian);
        let own_fields = ByTracepoint::new(&events, features, endian, |format| {
            let own = format.fields().filter(|field| !field.is_common());
            own.map(|field| field.name).collect::<Vec<_>>().join(",")
        });
        let groups = features.get(&Feature::GROUP_DESC).and_then(|section| read_group_desc(section, endian));
        let names = facts.events.iter().map(|event| readable(&event.name));
        let mut lines: Vec<String> = names
            .zip(&events)
            .enumerate()
            .map(|(number, (name, event))| {
                let attr = event.attr();
                let mut facts = self.facts(attr, &name);
                if self.trace_fields {
                    facts.push(match attr.is_tracepoint() {
                        true => {
                            format!("trace_fields: {}", own_fields.get(number).map_or("", String::as_str))
                        }
                        false => "(not a tracepoint)".to_owned(),
                    });
                }
                if facts.is_empty() { name } else { format!("{name}: {}", facts.join(", ")) }
            })
            .collect();
        if self.group {
            lines = grouped(&lines, &groups.unwrap_or_default());
        }
        let mut out = stdout();
        lines.iter().try_for_each(|line| writeln!(out, "{line}"))?;
        out.flush()?;
        Ok(self.read.verbosity.print(&Report::default()))
    }

    /// The requested facts about how an event was counted.
    fn facts(&self, attr: &Attr, name: &str) -> Vec<String> {
        if self.attrs {
            let fields = event_as_perf(attr, name).into_iter();
            return fields.map(|(field, value)| format!("{field}: {value}")).collect();
        }
        let freq = if attr.freq() { "sample_freq" } else { "sample_period" };
        if self.freq { vec![format!("{freq}={}", attr.sample_period)] } else { Vec::new() }
    }
}

/// The events with the members of each group in one line.
fn grouped(lines: &[String], groups: &[GroupDesc<'_>]) -> Vec<String> {
    let mut out = Vec::new();
    for (events, group) in grouped_events(groups, lines.len()) {
        let members = &lines[events];
        match group.map(|number| &groups[number]).filter(|group| group.members > 1) {
            Some(group) => {
                let name =
                    if group.name == GroupDesc::NO_NAME { String::new() } else { readable(group.name) };
                out.push(format!("{name}{{{}}}", members.join(",")));
            }
            None => out.extend_from_slice(members),
        }
    }
    out
}
