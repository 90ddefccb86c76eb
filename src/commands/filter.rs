//! `perfx filter` cuts a smaller recording out of a large one.

use anyhow::{Result, bail};
use clap::Args;
use perfx_passes::{Filter as Pass, FilterOptions};

use crate::args::Usage;
use crate::io::target::WriteArgs;

/// Cut a smaller recording out of a large one
///
/// Keeps samples that match all given options, and of the rest what readers need for them: mappings, names and forks of the processes that have samples left and of those they were forked
/// from (when only times are asked for, of all that are alive then). Every option can be given more
/// than once, and lists have commas; regular expressions match the whole name. The output is not
/// compressed.
///
/// Examples:
///   perfx filter --time 10%-20% perf.data -o slice.data
///   perfx filter --time 5231.5,5232 --comm 'nginx.*' --exclude-cpu 0 perf.data -o nginx.data
///   perfx filter --time +1s,+1.5s --drop-unused perf.data -o small.data
///   perf record -o - ./program | perfx filter --dso 'libc.*' | perf report -i -
#[derive(Args, Debug)]
#[command(verbatim_doc_comment)]
pub(crate) struct Filter {
    /// Time windows START,STOP (STOP exclusive): seconds of the recording's clock (perf script shows them), +DURATION after the first sample, or RFC 3339; either end may be left out. Or shares: 10%-20%, 10%/2 for the second tenth
    #[arg(long, value_name = "WINDOW")]
    time: Vec<String>,
    /// Samples of these processes
    #[arg(long, value_name = "PID,…")]
    pid: Vec<String>,
    /// Exclude samples of these processes
    #[arg(long, value_name = "PID,…")]
    exclude_pid: Vec<String>,
    /// Samples of these threads
    #[arg(long, value_name = "TID,…")]
    tid: Vec<String>,
    /// Exclude samples of these threads
    #[arg(long, value_name = "TID,…")]
    exclude_tid: Vec<String>,
    /// Samples of threads that had such a name at that time
    #[arg(short = 'c', long, value_name = "REGEX,…")]
    comm: Vec<String>,
    /// Exclude samples of threads with such a name
    #[arg(long, value_name = "REGEX,…")]
    exclude_comm: Vec<String>,
    /// Samples on these CPUs, as 0-3,8
    #[arg(short = 'C', long, value_name = "CPUS")]
    cpu: Vec<String>,
    /// Exclude samples on these CPUs
    #[arg(long, value_name = "CPUS")]
    exclude_cpu: Vec<String>,
    /// Samples of events of such a name, with or without its modifiers
    #[arg(short = 'e', long, value_name = "REGEX,…")]
    event: Vec<String>,
    /// Exclude samples of such events
    #[arg(long, value_name = "REGEX,…")]
    exclude_event: Vec<String>,
    /// Samples whose instruction pointer is in such a file, by its path or its last part
    #[arg(short = 'd', long, value_name = "REGEX,…")]
    dso: Vec<String>,
    /// Exclude samples in such files
    #[arg(long, value_name = "REGEX,…")]
    exclude_dso: Vec<String>,
    /// Samples of such cgroups
    #[arg(long, value_name = "REGEX,…")]
    cgroup: Vec<String>,
    /// Exclude samples of such cgroups
    #[arg(long, value_name = "REGEX,…")]
    exclude_cgroup: Vec<String>,
    /// Keep only these kinds of event record: SAMPLE, SWITCH, THROTTLE, READ, LOST
    #[arg(long, value_name = "KIND,…")]
    kind: Vec<String>,
    /// Exclude records of these kinds
    #[arg(long, value_name = "KIND,…")]
    exclude_kind: Vec<String>,
    /// Samples of the host, or of the guest that this process runs
    #[arg(long, value_name = "host|PID,…")]
    machine: Vec<String>,
    /// Exclude samples of these machines
    #[arg(long, value_name = "host|PID,…")]
    exclude_machine: Vec<String>,
    /// Keep mappings, names and forks of all processes
    #[arg(long)]
    keep_all_sideband: bool,
    /// Leave out events without samples, and build-ids of files that no process maps
    #[arg(long)]
    drop_unused: bool,
    #[command(flatten)]
    write: WriteArgs,
}

impl Filter {
    pub(crate) fn run(&self) -> Result<u8> {
        let mut options = FilterOptions::new(self.keep_all_sideband, self.drop_unused);
        let chosen: [(&str, &Vec<String>); 19] = [
            ("time", &self.time),
            ("pid", &self.pid),
            ("exclude-pid", &self.exclude_pid),
            ("tid", &self.tid),
            ("exclude-tid", &self.exclude_tid),
            ("comm", &self.comm),
            ("exclude-comm", &self.exclude_comm),
            ("cpu", &self.cpu),
            ("exclude-cpu", &self.exclude_cpu),
            ("event", &self.event),
            ("exclude-event", &self.exclude_event),
            ("dso", &self.dso),
            ("exclude-dso", &self.exclude_dso),
            ("cgroup", &self.cgroup),
            ("exclude-cgroup", &self.exclude_cgroup),
            ("kind", &self.kind),
            ("exclude-kind", &self.exclude_kind),
            ("machine", &self.machine),
            ("exclude-machine", &self.exclude_machine),
        ];
        for (name, values) in chosen {
            let taken = values.iter().try_for_each(|value| options.choose(name, value));
            taken.map_err(|e| Usage(format!("{e:#}")))?;
        }
        if options.is_empty() {
            bail!(Usage("no filter given; see --help".into()));
        }
        self.write.transform("filter", vec![Box::new(Pass::new(options))])
    }
}
