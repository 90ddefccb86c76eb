//! `perfx list` lists the events, DSOs, build-ids, processes, threads, cgroups, namespaces or mappings of a
//! recording, its tracepoints by their fields, and ranks its functions and call stacks.

mod calls;
mod fields;
mod functions;
mod lines;

use anyhow::{Result, bail};
use clap::{Args, ValueEnum};
use perfx_export::list::{self, Listing, list};
use perfx_export::{Counted, ShownEvent};
use perfx_filter::SelectArgs;
use perfx_look::json::{Document, Text};
use perfx_look::render;
use perfx_pipeline::Report;

use self::calls::CallArgs;
use self::fields::FieldArgs;
use self::functions::RankArgs;
use crate::args::{ReadArgs, Usage};
use crate::commands::export::input::{StackArgs, each_recording};
use crate::io::source::InputsArgs;
use crate::term::units::{count, fitted};

/// List functions, lines, system calls, waits and locks, events, DSOs, processes and the like, with figures
///
/// Functions are listed with the shares that perf report shows: of the samples in a function (self), and of
/// those in it and in the functions that it called (total). Shares are sums of periods: time (ns) for clocks
/// and for waits that off-cpu measured, otherwise cycles or other events. If there are several events, cycles
/// or a clock is counted, unless --event selects another; the same event on several PMUs of a hybrid
/// processor is one.
///
/// The rows of the other lists have the number of samples of this event, or of all selected ones, and the
/// sum of their periods, as counted by perf report -n. The heaviest come first; events and mappings come in
/// the order of the recording. DSOs with samples show what names their functions: symbols and source lines,
/// symbols, only exported symbols, or none; the report says why names are missing and what helps.
///
/// With --itrace, functions are listed with all their calls in a hardware trace, and how long these took (ns).
/// The calls of one function, or with --between the spans from one function to another, are listed by their
/// durations. The time for which a thread did not run (SWITCH records) is a separate column (off CPU).
///
/// Lists of tracepoints (fields, syscalls, locks, sched, irqs, io, kmem) have the number of samples or pairs,
/// the sum, mean, 99th percentile (at most 1 % too high) and maximum of a field or of the time between two
/// tracepoints. If samples of these tracepoints are missing, the error has the options that record them.
///
/// Several recordings are added up, except for lines, processes, threads, namespaces, mappings and calls,
/// which are listed for one recording.
///
/// Examples:
///   perfx list functions perf.data --head 10
///   perfx list functions perf.data --comm nginx --callers malloc
///   perfx list functions perf.data --by pid --head 20
///   perfx list functions --itrace --sort p99 perf.data
///   perfx list calls handle_request perf.data
///   perfx list lines malloc perf.data
///   perfx list syscalls perf.data
///   perfx list fields sched:sched_switch perf.data --by prev_comm,prev_state
///   perfx list events perf.data
///   perfx list processes --json perf.data | jq '.rows[] | select(.samples == 0).pid'
///   perf record -o - ./program | perfx list dsos
#[derive(Args, Debug)]
#[command(verbatim_doc_comment)]
pub(crate) struct List {
    /// The kind of list
    #[arg(value_enum, value_name = "WHAT")]
    what: What,
    #[command(flatten)]
    inputs: InputsArgs,
    #[command(flatten, next_help_heading = "Functions and stacks")]
    rank: RankArgs,
    #[command(flatten, next_help_heading = "Calls of a trace")]
    calls: CallArgs,
    #[command(flatten, next_help_heading = "Fields of tracepoints")]
    fields: FieldArgs,
    #[command(flatten, next_help_heading = "Samples")]
    select: SelectArgs,
    #[command(flatten, next_help_heading = "Options")]
    read: ReadArgs,
}

/// The kind of rows.
#[derive(Clone, Copy, PartialEq, Eq, Debug, ValueEnum)]
enum What {
    /// Functions, with their shares of the samples
    Functions,
    /// Call stacks, with their shares of the samples
    Stacks,
    /// Calls of a function in a hardware trace (perfx list calls NAME): durations, and the slowest calls
    Calls,
    /// Events, also those without samples
    Events,
    /// Mapped files, kernels and other code, with the number of their mappings
    Dsos,
    /// Build-ids in the recording
    BuildIds,
    /// Processes, with the numbers of their threads and mappings
    Processes,
    /// Threads
    Threads,
    /// Cgroups (perf record --all-cgroups)
    Cgroups,
    /// Namespaces of threads (perf record --namespaces), by their inodes
    Namespaces,
    /// Mappings, with their addresses
    Mappings,
    /// Source lines of a function or of a file: perfx list lines FUNCTION
    Lines,
    /// A tracepoint's samples by its own fields, or the times between two: perfx list fields EVENT --by FIELD
    Fields,
    /// System calls, with their times and errors
    Syscalls,
    /// Waits for the kernel's locks, by caller and by lock
    Locks,
    /// Threads: the times for which they waited for a CPU and ran, and the threads that woke them up
    Sched,
    /// Interrupts and deferred work of the kernel
    Irqs,
    /// Requests to block devices, with their latencies
    Io,
    /// Memory that the kernel allocated, by caller
    Kmem,
}

impl What {
    fn is_of_fields(self) -> bool {
        matches!(
            self,
            What::Fields | What::Syscalls | What::Locks | What::Sched | What::Irqs | What::Io | What::Kmem
        )
    }
}

pub(crate) type Output = Document<3, Listing>;

pub(crate) use self::calls::Output as CallOutput;
pub(crate) use self::fields::Output as FieldOutput;
pub(crate) use self::functions::{Output as RankedOutput, percentage, text as ranked_text};
pub(crate) use self::lines::Output as LineOutput;

impl List {
    pub(crate) fn run(&self) -> Result<u8> {
        let stacks = StackArgs::of(&self.select, self.read);
        if self.what != What::Calls {
            self.calls.refuse()?;
        }
        let (format, inputs) = (self.read.format, &self.inputs);
        if !self.what.is_of_fields() {
            self.fields.refuse(!matches!(self.what, What::Functions | What::Stacks))?;
        }
        let what = match self.what {
            What::Calls => {
                let head = self.rank.head_of_calls()?;
                return self.calls.run(head, &self.inputs, &stacks, self.read.format);
            }
            What::Functions => return self.rank.functions(inputs, &stacks, (format, self.fields.group()?)),
            What::Stacks => return self.rank.stacks(inputs, &stacks, (format, self.fields.group()?)),
            What::Events => list::What::Events,
            What::Dsos => list::What::Dsos,
            What::BuildIds => list::What::BuildIds,
            What::Processes => list::What::Processes,
            What::Threads => list::What::Threads,
            What::Cgroups => list::What::Cgroups,
            What::Namespaces => list::What::Namespaces,
            What::Mappings => list::What::Mappings,
            What::Lines => return lines::list(inputs, &stacks, (format, self.rank.of_lines()?)),
            What::Fields => return self.fields.list(inputs, &stacks, (format, self.rank.of_rows()?)),
            What::Syscalls | What::Locks | What::Sched | What::Irqs | What::Io | What::Kmem => {
                let value = self.what.to_possible_value();
                let name = value.as_ref().map_or("", |value| value.get_name());
                return self.fields.ready(name, inputs, &stacks, (format, self.rank.of_rows()?));
            }
        };
        self.rank.refuse_all()?;
        let filter = stacks.filter()?;
        if self.select.searches() && what != list::What::Dsos && !filter.chooses_functions() {
            bail!(Usage(
                "options that search for symbols are for functions, stacks and DSOs, or go with --symbol"
                    .into()
            ));
        }
        let ids = stacks.ids()?;
        let sources = self.inputs.sources()?;
        if sources.len() > 1 && !what.adds_up() {
            bail!(Usage(
                "processes, threads, namespaces and mappings are those of one recording: give one".into()
            ));
        }
        let mut report = Report::default();
        let mut shown = ShownEvent::default();
        let mut sum: Option<Listing> = None;
        each_recording(&sources, &mut report, |mut recording, report| {
            recording.progress().expect(2 + filter.readings());
            let bar = self.read.verbosity.progress(&recording);
            let threads = self.read.threads.count(&recording);
            let listing = list(&mut recording, what, &filter, &ids, &mut shown, threads, report)?;
            drop(bar);
            match &mut sum {
                Some(sum) => sum.add(listing),
                None => sum = Some(listing),
            }
            Ok(())
        })?;
        let Some(listing) = sum else { bail!(Usage("give a recording".into())) };
        self.read.format.print(|| text(&listing), || Output::new(listing.clone()))?;
        Ok(self.read.verbosity.print(&report))
    }
}

fn text(listing: &Listing) -> String {
    let rows = match listing {
        Listing::Events { rows } => lines(&["event", "samples", "period"], rows, |row| {
            vec![shown(&row.name, None), count(row.samples), count(row.period.0)]
        }),
        Listing::Dsos { counted, rows } => {
            lines(&["DSO", "mappings", "samples", &period(counted), "names"], rows, |row| {
                let (name, names) =
                    (shown(&row.name, row.guest), row.names.as_ref().map_or("", |names| names.by));
                vec![name, count(row.mappings), count(row.samples), count(row.period.0), names.to_owned()]
            })
        }
        Listing::BuildIds { counted, rows } => {
            lines(&["DSO", "build-id", "samples", &period(counted)], rows, |row| {
                let name = shown(&row.name, row.guest);
                vec![name, row.build_id.clone(), count(row.samples), count(row.period.0)]
            })
        }
        Listing::Processes { counted, rows } => {
            lines(&["process", "threads", "mappings", "samples", &period(counted)], rows, |row| {
                let name = format!("{} {}", row.pid, shown(&row.comm, row.guest));
                vec![name, count(row.threads), count(row.mappings), count(row.samples), count(row.period.0)]
            })
        }
        Listing::Threads { counted, rows } => {
            lines(&["thread", "process", "samples", &period(counted)], rows, |row| {
                let name = format!("{} {}", row.tid, shown(&row.comm, row.guest));
                vec![name, row.pid.to_string(), count(row.samples), count(row.period.0)]
            })
        }
        Listing::Cgroups { counted, rows } => lines(&["cgroup", "samples", &period(counted)], rows, |row| {
            let path =
                row.path.as_ref().map_or_else(|| format!("(id {})", row.id.0), |path| shown(path, None));
            vec![path, count(row.samples), count(row.period.0)]
        }),
        Listing::Namespaces { counted, rows } => {
            lines(&["namespace", "inode", "samples", &period(counted)], rows, |row| {
                vec![row.kind.to_owned(), row.inode.0.to_string(), count(row.samples), count(row.period.0)]
            })
        }
        Listing::Mappings { rows, .. } => {
            lines(&["mapping", "process", "start", "size", "offset", "access", "samples"], rows, |row| {
                vec![
                    shown(&row.name, row.guest),
                    row.pid.to_string(),
                    format!("{:#x}", row.start.0),
                    format!("{:#x}", row.length.0),
                    format!("{:#x}", row.offset.0),
                    row.access.clone().unwrap_or_default(),
                    count(row.samples),
                ]
            })
        }
    };
    fitted(&rows)
}

fn lines<R>(title: &[&str], rows: &[R], row: impl Fn(&R) -> Vec<String>) -> Vec<Vec<String>> {
    let title = title.iter().map(|&word| word.to_owned()).collect();
    std::iter::once(title).chain(rows.iter().map(row)).collect()
}

fn period(counted: &Counted) -> String {
    match &counted.unit {
        Some(unit) if unit != "samples" => format!("period ({unit})"),
        _ => "period".to_owned(),
    }
}

fn shown(name: &Text<Vec<u8>>, guest: Option<u32>) -> String {
    let name = render::readable(&name.0);
    match guest {
        Some(pid) => format!("{name} (guest of {pid})"),
        None => name,
    }
}
