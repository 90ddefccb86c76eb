//! Finds the host's threads that run VCPUs, and the guests that were merged earlier.

use std::collections::{BTreeMap, BTreeSet};

use perfx_format::record::header_records::HeaderRecord;
use perfx_format::record::id_index::IdIndex;
use perfx_format::{Comm, Kinds, Record, RecordType};
use perfx_pipeline::{Result, bail, list, ranges};

use super::clock::TimeConv;
use super::spec::GuestSpec;

/// Names of VCPU threads of virtual machine monitors, without the number.
const VCPU_NAMES: [&[u8]; 5] = [b"CPU ", b"vcpu", b"fc_vcpu ", b"crosvm_vcpu", b"kvm-vcpu-"];

/// The number of the VCPU in a thread's name: `CPU 1/KVM`, `fc_vcpu 1`.
fn vcpu_of(comm: &[u8]) -> Option<u32> {
    VCPU_NAMES.iter().find_map(|name| {
        let rest = comm.strip_prefix(*name)?;
        let digits = rest.iter().take_while(|byte| byte.is_ascii_digit()).count();
        let (number, rest) = rest.split_at(digits);
        (rest.is_empty() || rest[0] == b'/').then(|| std::str::from_utf8(number).ok()?.parse().ok())?
    })
}

#[derive(Clone, PartialEq, Eq, Debug)]
pub(crate) struct Thread {
    pub(crate) tid: u32,
    pub(crate) name: String,
}

/// VCPU threads, and guests that are already in the host's recording.
#[derive(Clone, Default, Debug)]
pub(crate) struct Machines {
    pub(crate) vcpus: BTreeMap<u32, BTreeMap<u32, Thread>>,
    pub(crate) merged: BTreeSet<u64>,
    pub(crate) time_conv: Option<TimeConv>,
    /// The largest event id among the records of pipe data.
    pub(crate) late_id: u64,
    pub(crate) finished_init: bool,
}

impl Machines {
    pub(crate) fn kinds() -> Kinds {
        Kinds::of(&[
            RecordType::COMM,
            RecordType::ID_INDEX,
            RecordType::TIME_CONV,
            RecordType::HEADER_ATTR,
            RecordType::FINISHED_INIT,
        ])
    }

    pub(crate) fn look_at(&mut self, record: &Record<'_>) {
        match record.kind() {
            RecordType::COMM if !record.is_of_guest() => {
                if let Some(Comm { pid, tid, name }) = Comm::of(record, 0)
                    && let Some(vcpu) = vcpu_of(name)
                {
                    let name = String::from_utf8_lossy(name).into_owned();
                    self.vcpus.entry(pid).or_default().insert(vcpu, Thread { tid, name });
                }
            }
            RecordType::ID_INDEX => {
                let entries = IdIndex::of(record).into_iter().flat_map(|index| index.entries());
                self.merged.extend(entries.map(|entry| entry.machine_pid).filter(|&machine| machine != 0))
            }
            RecordType::TIME_CONV => self.time_conv = self.time_conv.or_else(|| TimeConv::read(record)),
            RecordType::FINISHED_INIT => self.finished_init = true,
            RecordType::HEADER_ATTR => {
                if let Ok(Some(HeaderRecord::Event(event))) = HeaderRecord::read(record) {
                    self.late_id = event.ids.into_iter().fold(self.late_id, u64::max);
                }
            }
            _ => {}
        }
    }

    pub(crate) fn join(&mut self, later: Machines) {
        for (pid, vcpus) in later.vcpus {
            self.vcpus.entry(pid).or_default().extend(vcpus);
        }
        self.merged.extend(later.merged);
        self.time_conv = self.time_conv.or(later.time_conv);
        self.late_id = self.late_id.max(later.late_id);
        self.finished_init |= later.finished_init;
    }
}

fn threads_text(threads: &BTreeMap<u32, Thread>) -> String {
    list(threads.values().map(|thread| format!("{} ({})", thread.tid, thread.name)))
}

pub(crate) fn find_pids(
    name: &str,
    machines: &Machines,
    taken: &BTreeSet<u32>,
    needed: &BTreeSet<u32>,
    hostname: Option<String>,
) -> Result<Vec<u32>> {
    let free = |pid: &u32| !taken.contains(pid) && !machines.merged.contains(&u64::from(*pid));
    let fits = |threads: &BTreeMap<u32, Thread>| needed.iter().all(|vcpu| threads.contains_key(vcpu));
    let fitting: Vec<_> = machines
        .vcpus
        .iter()
        .filter(|(pid, threads)| free(pid) && fits(threads))
        .map(|(pid, _)| *pid)
        .collect();
    if !fitting.is_empty() {
        return Ok(fitting);
    }
    let seen = list(machines.vcpus.iter().map(|(pid, threads)| {
        let merged = if free(pid) { "" } else { ", a guest already" };
        format!("process {pid} with threads {}{merged}", threads_text(threads))
    }));
    let join = hostname.map_or(String::new(), |hostname| {
        format!("; both recordings are of machine {hostname}: use perfx join for recordings of one machine")
    });
    if seen.is_empty() {
        bail!(
            "{name}: no thread in the host's recording is named like a VCPU (`CPU 0/KVM`): give pid=N and \
             vcpu=V:TID, or record the host with -a{join}"
        );
    }
    bail!(
        "{name}: no process of the host fits; give pid=N. It has VCPUs {}; the host's recording shows {seen}{join}",
        ranges(needed.iter().map(|&vcpu| vcpu.into()), "..", ", ")
    )
}

pub(crate) fn find_threads(
    name: &str,
    pid: u32,
    machines: &Machines,
    spec: &GuestSpec,
    needed: &BTreeSet<u32>,
) -> Result<BTreeMap<u32, Thread>> {
    let none = BTreeMap::new();
    let known = machines.vcpus.get(&pid).unwrap_or(&none);
    let mut threads = known.clone();
    for (&vcpu, &tid) in &spec.vcpus {
        threads.insert(vcpu, Thread { tid, name: "given".to_owned() });
    }
    for vcpu in needed {
        if threads.contains_key(vcpu) {
            continue;
        }
        if known.is_empty() {
            let others = list(
                machines
                    .vcpus
                    .iter()
                    .map(|(pid, threads)| format!("process {pid} has {}", threads_text(threads))),
            );
            let others = if others.is_empty() { String::new() } else { format!("; {others}") };
            bail!(
                "{name}: no thread of process {pid} is named like a VCPU in the host's recording (give vcpu={vcpu}:TID){others}"
            );
        }
        bail!(
            "{name}: no thread of process {pid} runs VCPU {vcpu}; its threads: {} (give vcpu={vcpu}:TID)",
            threads_text(known)
        );
    }
    threads.retain(|vcpu, _| needed.contains(vcpu));
    Ok(threads)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_of_vcpu_threads() {
        for (name, vcpu) in [
            ("CPU 0/KVM", Some(0)),
            ("CPU 12/TCG", Some(12)),
            ("CPU 3", Some(3)),
            ("fc_vcpu 1", Some(1)),
            ("vcpu7", Some(7)),
            ("kvm-vcpu-2", Some(2)),
            ("CPU ", None),
            ("CPU 1x", None),
            ("CPUs 1", None),
            ("CPU 99999999999", None),
            ("", None),
        ] {
            assert_eq!(vcpu_of(name.as_bytes()), vcpu, "{name}");
        }
    }
}
