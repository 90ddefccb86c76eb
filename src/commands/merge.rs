//! `perfx merge` merges recordings of guests into the recording of their host, so that one report shows both.

use std::ffi::OsString;

use anyhow::{Result, bail};
use clap::Args;
use perfx_format::read::KCORE_DIR;
use perfx_passes::{GuestSpec, MergeOptions, MoreKinds};
use perfx_pipeline::Pass;

use crate::args::{Usage, usage};
use crate::io::output::WriteArgs;
use crate::io::source::{Source, refuse_twice};

const HOST: &str = "Recording of the host: a file, a FIFO, a directory, or - for standard input";

/// Merge the recordings of virtual machines into the recording of their host
///
/// GUEST is PATH[,pid=N][,offset=N][,scale=F][,vcpu=V:TID]…[,root=DIR] or, as for perf inject,
/// PATH,PID[,OFFSET[,SCALE]]. pid is the host process that runs the guest; without it, perfx
/// searches for the process by the names of its VCPU threads. A guest's time t becomes
/// (t - offset) / scale on the host, where t is in cycles if the guest's recording has a TIME_CONV
/// record, else in ns. Without offset, perfx determines it from the host's context switches: guest
/// events can only happen while the VCPUs run.
///
/// Examples:
///   perfx merge host.data guest.data -o merged.data
///   perfx merge host.data a.data,pid=1234 b.data,pid=2345 -o merged.data
///   perfx merge --samples host.data guest.data,1234,-4745478104161,2.596 | perf report -i -
#[derive(Args, Debug)]
#[command(
    verbatim_doc_comment,
    override_usage = "perfx merge [OPTIONS] HOST GUEST…",
    mut_arg("positional", |host| host.index(1).value_name("HOST").help(HOST)),
    // With -i, the first argument would not be a guest.
    mut_arg("input", |host| host.hide(true)),
)]
pub(crate) struct Merge {
    #[command(flatten)]
    write: WriteArgs,
    /// Recordings of its guests, given as described above
    #[arg(help_heading = "Input", index = 2, value_name = "GUEST")]
    guests: Vec<OsString>,
    #[command(flatten)]
    more: MoreKinds,
}

impl Merge {
    pub(crate) fn run(&self) -> Result<u8> {
        if self.guests.is_empty() {
            bail!(Usage("no guest is given: perfx merge HOST GUEST…".into()));
        }
        let mut sources = vec![self.write.source()?];
        let specs = self.guests.iter().filter_map(|guest| GuestSpec::parse(guest).ok());
        sources.extend(specs.map(|guest| Source::Path(guest.path)));
        refuse_twice(&sources)?;
        let (guests, more) = (self.guests.clone(), self.more);
        let pass = guest_pass(MergeOptions { guests, more, guestmount: None })?;
        let recording = sources[0].open()?;
        self.write.write_recording("merge", &sources[0], recording, vec![pass], has_kcore(&self.guests))
    }
}

pub(crate) fn guest_pass(options: MergeOptions) -> Result<Box<dyn Pass>> {
    for guest in &options.guests {
        GuestSpec::parse(guest).map_err(usage)?;
    }
    Ok(Box::new(perfx_passes::Merge::new(options)))
}

pub(crate) fn has_kcore(guests: &[OsString]) -> bool {
    let holds =
        |guest: &OsString| GuestSpec::parse(guest).is_ok_and(|guest| guest.path.join(KCORE_DIR).is_dir());
    guests.iter().any(holds)
}
