//! `perfx view` shows samples in order of time, as `perf script` does.

mod header;

use std::io::{BufWriter, Write as _};
use std::sync::Arc;

use anyhow::{Result, ensure};
use clap::builder::PossibleValue;
use clap::{Args, ValueEnum as _};
use perfx_auxtrace::Presence;
use perfx_export::view::{Field, FieldChoice, Group, ShownRecords, Times, ViewOptions, view};
use perfx_format::read::Form;
use perfx_passes::{Extras, Itrace};
use perfx_pipeline::{Report, did_you_mean};

use super::export::input::{StackArgs, Traced, again, say_no_samples, tracer_of, with_chains};
use crate::args::{Usage, usage};
use crate::io::output::stdout;
use crate::io::source::{InputArgs, Source};

/// Show the samples of a recording one after the other, as perf script does
///
/// Samples come in the order of their times, those of a trace as they are decoded: a line with the fields,
/// then a line for each frame of a call chain. The lines are those of perf script 7.3 with the same -F. The
/// own fields of tracepoints (trace) are shown as their kernel prints them, or field by field if the format
/// needs more than is recorded.
///
/// --itrace decodes a hardware trace, as perfx inject --itrace does, and shows samples while it decodes; they
/// are kept in a temporary file only to select functions. For Intel PT, -F +flags distinguishes calls,
/// returns and jumps, +ipc shows instructions per core cycle, +insn,+insnlen the bytes of each instruction,
/// and +disasm its text.
///
/// Examples:
///   perfx view perf.data --head 20
///   perfx view perf.data -F comm,tid,time,event --event 'sched:.*' --time 10%-20%
///   perfx view perf.data --comm nginx --count
///   perfx view --itrace=be -F +flags perf.data
///   perfx view perf.data --json | jq -r 'select(.frames[0].sym == "memcpy") | .time_ns'
#[derive(Args, Debug)]
#[command(verbatim_doc_comment)]
pub(crate) struct View {
    #[command(flatten)]
    input: InputArgs,
    /// Fields to show: comm, pid, tid, cpu, misc, time, tod, period, event, trace, addr, data_src, weight, ins_lat,
    /// retire_lat, cgroup, ip, sym, symoff, dso, dsoff, srcline, iregs, uregs, brstack, brstacksym, callindent, insn,
    /// insnlen, disasm, flags, ipc, synth, phys_addr, data_page_size, code_page_size, machine_pid, vcpu; or +FIELD and
    /// -FIELD to change those that perf script shows by default; after hw:, sw:, trace:, raw:, break: or synth:, those
    /// of such events; repeatable
    #[arg(help_heading = "Lines", short = 'F', long, value_name = "FIELD,…", allow_hyphen_values = true)]
    fields: Vec<String>,
    /// Show times with nine digits after the point
    #[arg(help_heading = "Lines", long)]
    ns: bool,
    /// Show each sample as a line of JSON; numbers that may exceed 2^53 are strings
    #[arg(help_heading = "Lines", long, conflicts_with = "ns")]
    json: bool,
    /// Leave out calls that the compiler inlined, and don't read DWARF
    #[arg(help_heading = "Lines", long)]
    no_inline: bool,
    /// Show only the first N samples. The rest of a trace is not decoded, and losses there are not reported
    #[arg(help_heading = "Lines", long, value_name = "N")]
    head: Option<u64>,
    /// Show only the number of samples
    #[arg(help_heading = "Lines", long, conflicts_with_all = ["fields", "ns", "json", "no_inline", "head"])]
    count: bool,
    /// Decode a trace of Intel PT or CoreSight, and show its samples: letters as for perfx inject --itrace [default:
    /// cxwpoIe]
    #[arg(help_heading = "Samples", long, value_name = "LETTERS", num_args = 0..=1, require_equals = true)]
    itrace: Option<Option<String>>,
    /// Don't decode a trace
    #[arg(help_heading = "Samples", long, hide = true)]
    no_itrace: bool,
    /// Show addresses in place of call chains
    #[arg(help_heading = "Lines", short = 'G', long)]
    hide_call_graph: bool,
    /// Show only the innermost N frames of a call chain
    #[arg(help_heading = "Lines", long, value_name = "N")]
    max_stack: Option<usize>,
    /// Show times since the first sample
    #[arg(help_heading = "Lines", long, conflicts_with_all = ["deltatime", "json"])]
    reltime: bool,
    /// Show times since the sample before
    #[arg(help_heading = "Lines", long, conflicts_with = "json")]
    deltatime: bool,
    /// Show names of functions as in the symbol table
    #[arg(help_heading = "Lines", long)]
    no_demangle: bool,
    /// Show source files (srcline) with their folders
    #[arg(help_heading = "Lines", long)]
    full_source_path: bool,
    /// As perf script's -L: narrow columns for names and CPUs
    #[arg(long, hide = true)]
    latency: bool,
    /// Among samples, also show records of these kinds, as perf script does with --show-mmap-events and so on; repeatable
    #[arg(
        help_heading = "Lines",
        long,
        value_name = "KIND,…",
        value_delimiter = ',',
        conflicts_with = "json"
    )]
    show: Vec<ShownRecords>,
    /// First show the header of the recording, as perf script does
    #[arg(help_heading = "Lines", long, conflicts_with_all = ["json", "count"])]
    header: bool,
    /// Show only the header
    #[arg(help_heading = "Lines", long, conflicts_with_all = ["json", "count"])]
    header_only: bool,
    #[command(flatten)]
    preset: PresetArgs,
    #[command(flatten)]
    stacks: StackArgs,
}

/// Options of perf script that stand for letters and fields.
#[derive(Args, Debug)]
#[group(multiple = false, conflicts_with_all = ["itrace", "count"])]
struct PresetArgs {
    /// Show the calls of a trace, indented, as perf script does with the same option: like --itrace=cewp -F
    /// -ip,-addr,-event,-period,+callindent --ns, with a wider column for DSOs
    #[arg(help_heading = "Samples", long)]
    call_trace: bool,
    /// The same with returns: like --itrace=crewp -F -ip,-addr,-event,-period,+callindent,+flags --ns
    #[arg(help_heading = "Samples", long)]
    call_ret_trace: bool,
    /// Show each instruction of a trace: like --itrace=i0nse -F +insn,-event,-period --ns
    #[arg(help_heading = "Samples", long)]
    insn_trace: bool,
}

impl PresetArgs {
    /// The letters of --itrace and the changes of -F.
    fn letters_and_fields(&self) -> Option<(&'static str, &'static str)> {
        match self {
            PresetArgs { call_trace: true, .. } => Some(("cewp", "-ip,-addr,-event,-period,+callindent")),
            PresetArgs { call_ret_trace: true, .. } => {
                Some(("crewp", "-ip,-addr,-event,-period,+callindent,+flags"))
            }
            PresetArgs { insn_trace: true, .. } => Some(("i0nse", "+insn,-event,-period")),
            _ => None,
        }
    }
}

/// As in perf's --call-trace.
const DSO_WIDTH: usize = 50;

impl View {
    pub(crate) fn run(&self) -> Result<u8> {
        let ids = self.stacks.ids()?;
        let preset = self.preset.letters_and_fields();
        let mut fields = FieldChoice::default();
        let changes = preset.map(|(_, changes)| changes).into_iter();
        for text in changes.chain(self.fields.iter().map(String::as_str)) {
            choose(&mut fields, text)?;
        }
        let mut report = Report::default();
        let mut filter = self.stacks.filter()?;
        let source = Source::of(&self.input);
        let mut recording = source.open_indexed()?;
        let mut out = BufWriter::with_capacity(1 << 16, stdout());
        if self.header || self.header_only {
            out.write_all(header::text(&source, &recording, self.header_only).as_bytes())?;
            if self.header_only {
                out.flush()?;
                return Ok(self.stacks.verbosity.print(&report));
            }
        }
        let like_perf = self.stacks.verbosity.like_perf;
        let has_trace = (like_perf || preset.is_some()) && Presence::of(&mut recording)?.is_any();
        let letters = match preset {
            _ if self.no_itrace => None,
            Some((letters, _)) if has_trace => Some(Some(letters)),
            Some(_) => {
                ensure!(like_perf, "{}: it has no hardware trace", recording.name);
                None
            }
            // perf script decodes traces by default.
            None if like_perf => has_trace.then(|| self.itrace.as_ref().and_then(Option::as_deref)),
            None => self.itrace.as_ref().map(Option::as_deref),
        };
        let options = ViewOptions {
            fields,
            nanoseconds: self.ns || preset.is_some(),
            dso_width: if self.preset.call_trace { DSO_WIDTH } else { 0 },
            inlined: !self.no_inline,
            head: self.head,
            count_only: self.count,
            json: self.json,
            decoded: letters.is_some(),
            hides_chains: self.hide_call_graph,
            max_stack: self.max_stack,
            times: match (self.reltime, self.deltatime) {
                (true, _) => Times::First,
                (_, true) => Times::Previous,
                _ => Times::Recorded,
            },
            mangled: self.no_demangle,
            whole_paths: self.full_source_path,
            narrow: self.latency,
            others: self.show.clone(),
            like_perf,
            has_trace,
            is_pipe: recording.form == Form::Pipe,
        };
        let threads = self.stacks.threads.count(&recording);
        // The trace of the recording itself is not decoded.
        let undecoded = recording.try_clone().filter(|_| letters.is_none());
        let Traced { recording, mut decoded, before } = match letters {
            Some(letters) => {
                let fields = &options.fields;
                let pass = Itrace::with_script_defaults(letters, ids.clone()).map_err(usage)?.with(Extras {
                    flow: fields.shows_flow(),
                    counts: fields.shows_flow(),
                    instructions: fields.shows_instructions(),
                    depths: fields.shows_depths(),
                    targets: fields.shows_addresses(),
                });
                let times = filter.times(&mut again(&recording)?, threads, &mut report)?;
                if let Some(times) = &times {
                    filter = Arc::new(filter.with_times(times));
                }
                // Functions can be selected only after all samples have been read.
                let pass = (pass, !filter.chooses_functions());
                Traced::new(recording, pass, times.as_deref(), &ids, threads, &mut report)?
            }
            None => Traced::none(with_chains(recording, &ids, threads, &mut report)?),
        };
        let rows = decoded.as_mut().map(|decoded| decoded as _);
        let viewed = view((recording, rows), &ids, &filter, &options, threads, &mut report, &mut out)?;
        // If the output was closed early, the rest is not decoded.
        Traced::end((decoded, before), viewed.is_whole, &mut report)?;
        if self.count {
            writeln!(out, "{}", viewed.samples)?;
            out.flush()?;
        }
        if viewed.samples == 0 && self.head != Some(0) {
            say_no_samples(|| undecoded.as_ref().and_then(tracer_of), &mut report);
        }
        Ok(self.stacks.verbosity.print(&report))
    }
}

/// Applies a value of -F: a list, or additions and removals, for all events or the group before a colon.
fn choose(choice: &mut FieldChoice, text: &str) -> Result<()> {
    let (group, list) = match text.split_once(':') {
        Some((name, list)) => (Some(name), list),
        None => (None, text),
    };
    let named = |name: &str| match Group::named(name) {
        Some(group) => Ok(group),
        None => Err(Usage(format!(
            "-F: unknown type of events `{name}`; known: hw, sw, trace, raw, break, synth"
        ))),
    };
    let group = group.map(named).transpose()?;
    let mut only = Vec::new();
    let mut changes = false;
    for part in list.split(',').map(str::trim) {
        let (sign, name) = match part.split_at_checked(1) {
            Some((sign @ ("+" | "-"), name)) => (sign, name),
            _ => ("", part),
        };
        let Ok(field) = Field::from_str(name, false) else {
            let known: Vec<_> = Field::value_variants().iter().filter_map(Field::to_possible_value).collect();
            let known: Vec<_> = known.iter().map(PossibleValue::get_name).collect();
            let meant = did_you_mean(name, known.iter().copied());
            let known = known.join(", ");
            return Err(Usage(format!("-F: unknown field `{name}`; available: {known}{meant}")).into());
        };
        match sign {
            "+" => choice.add(group, field),
            "-" => choice.remove(group, field),
            _ => only.push(field),
        }
        changes |= !sign.is_empty();
    }
    ensure!(
        !changes || only.is_empty(),
        Usage(format!(
            "-F {text}: either a list of fields, or changes (+FIELD, -FIELD) of those shown by default"
        ))
    );
    if !changes {
        choice.set(group, &only);
    }
    Ok(())
}
