//! Finds the host process and threads that run each guest.

use std::collections::{BTreeMap, BTreeSet};
use std::path::{Path, PathBuf};
use std::sync::Arc;

use perfx_format::Feature;
use perfx_format::features::read_str;
use perfx_format::read::{KCORE_DIR, Recording};
use perfx_pipeline::{Level, Purpose, Result, Session, ensure, list};

use super::chosen::MergedKinds;
use super::guest::Guest;
use super::machines::{Machines, Thread, find_pids, find_threads};
use super::spec::{GuestSpec, MergeOptions};

#[derive(Debug)]
pub(crate) struct Opened {
    pub(crate) spec: GuestSpec,
    pub(crate) guest: Guest,
    pub(crate) processes: Vec<Process>,
}

#[derive(Clone, Debug)]
pub(crate) struct Process {
    pub(crate) pid: u32,
    pub(crate) threads: BTreeMap<u32, Thread>,
}

#[derive(Debug)]
pub(crate) struct Placed {
    pub(crate) guest: Guest,
    pub(crate) pid: u32,
    /// By VCPU.
    pub(crate) threads: BTreeMap<u32, Thread>,
    /// The folder that replaces its `/`.
    pub(crate) root: Option<PathBuf>,
}

impl Opened {
    pub(crate) fn name(&self) -> Arc<str> {
        self.guest.recording.name.clone()
    }

    pub(crate) fn placed(
        self,
        process: Process,
        guestmount: Option<&Path>,
        session: &mut Session,
    ) -> Result<Placed> {
        let name = self.name();
        let Opened { spec, guest, .. } = self;
        let Process { pid, threads } = process;
        let root = spec.root.or(guestmount.map(|folder| folder.join(pid.to_string())));
        if let Some(root) = &root {
            ensure!(
                root.is_dir(),
                "{name}: {} is not a directory, so it can't be the guest's root",
                root.display()
            );
        }
        for extra in &guest.recording.extras {
            let entry = extra.file_name().unwrap_or_default().to_string_lossy();
            if entry == KCORE_DIR {
                session.beside.push((extra.clone(), format!("{KCORE_DIR}__{pid}").into()));
            } else {
                let lost = format!("{name}: {entry}, which the host's recording has no place for");
                session.report.say(Level::Loss, lost);
            }
        }
        Ok(Placed { guest, pid, threads, root })
    }
}

impl Placed {
    pub(crate) fn name(&self) -> Arc<str> {
        self.guest.recording.name.clone()
    }
}

pub(crate) fn open_guests(
    options: &MergeOptions,
    machines: &Machines,
    session: &mut Session,
) -> Result<Vec<Opened>> {
    ensure!(!options.guests.is_empty(), "no guest to merge is given");
    check_host(session)?;
    let specs: Vec<_> = options.guests.iter().map(|text| GuestSpec::parse(text)).collect::<Result<_>>()?;
    let mut taken = BTreeSet::new();
    for spec in &specs {
        if let Some(pid) = spec.pid {
            let shown = spec.path.display();
            ensure!(
                taken.insert(pid),
                "{shown}: pid {pid} is given to another guest, too; every guest has its own process"
            );
            ensure!(
                !machines.merged.contains(&u64::from(pid)),
                "{shown}: the recording already has records of guest {pid}; merging again would duplicate them"
            );
        }
    }
    let mut opened = Vec::new();
    for spec in specs {
        let recording = session.open(&spec.path)?;
        let name = recording.name.clone();
        ensure!(
            recording.endian == session.endian,
            "{name}: its byte order is not the host's; a recording has only one byte order"
        );
        session.report.say_faults(&recording, Purpose::Use);
        let hostname = same_machine(session, &recording);
        if let Some(hostname) = &hostname {
            let join = "use perfx join for recordings of one machine";
            let text = format!("{name}: its machine has the same name as the host, {hostname}: {join}");
            session.report.say(Level::Warning, text);
        }
        let chosen = MergedKinds::new(options.more.samples, options.more.all, &recording.events);
        let guest =
            Guest::new(recording, chosen, spec.offset.is_none(), session.threads, session.temp_files())?;
        guest.facts.fragments.iter().for_each(|fragment| session.report.say(Level::Loss, fragment.clone()));
        opened.push((spec, guest, hostname));
    }
    let mut pids: Vec<Option<u32>> = opened.iter().map(|(spec, ..)| spec.pid).collect();
    // A guest that fits only one process excludes it for the others, whatever the order of arguments.
    for _ in 0..opened.len() {
        for ((_, guest, _), pid) in opened.iter().zip(&mut pids).filter(|(_, pid)| pid.is_none()) {
            let found = find_pids("", machines, &taken, &guest.vcpus(), None).unwrap_or_default();
            if let [only] = found[..] {
                taken.insert(only);
                *pid = Some(only);
            }
        }
    }
    let mut guests = Vec::new();
    for ((spec, guest, hostname), pid) in opened.into_iter().zip(pids) {
        let (name, needed) = (guest.recording.name.clone(), guest.vcpus());
        let pids = match pid {
            Some(pid) => vec![pid],
            None => find_pids(&name, machines, &taken, &needed, hostname)?,
        };
        ensure!(
            pids.len() == 1 || spec.offset.is_none(),
            "{name}: processes {} of the host may run it; give pid=N, because with offset= the schedule is not \
             searched for the right one",
            list(pids.iter().map(u32::to_string))
        );
        let process = |pid| {
            let threads = find_threads(&name, pid, machines, &spec, &needed)?;
            Ok(Process { pid, threads })
        };
        let processes = pids.into_iter().map(process).collect::<Result<_>>()?;
        guests.push(Opened { spec, guest, processes });
    }
    Ok(guests)
}

fn check_host(session: &Session) -> Result<()> {
    ensure!(!session.events.is_empty(), "{}: the host's recording has no event", session.name);
    for (index, event) in session.events.iter().enumerate() {
        ensure!(
            event.attr().sample_id_all(),
            "{}: event {index} of the host gives its records no sample_id, but the guests' need one: record the host with a perf newer than 3.0",
            session.name
        );
    }
    Ok(())
}

/// The machine's name, if host and guest have the same one.
fn same_machine(session: &Session, guest: &Recording) -> Option<String> {
    let host = read_str(session.feature(Feature::HOSTNAME)?, session.endian)?;
    let guest = read_str(guest.features.get(&Feature::HOSTNAME)?, guest.endian)?;
    (host == guest && !host.is_empty()).then(|| String::from_utf8_lossy(host).into_owned())
}
