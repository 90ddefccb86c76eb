//! Reads the recordings with Intel PT in tests/data/trace.

use std::fs;

use perfx_format::read::Recording;
use perfx_format::record::aux::Auxtrace;
use perfx_format::{KERNEL_PID, Mmap, RecordType};
use perfx_trace::{Space, Switch, intel_pt};

use crate::maps::{Maps, folder};

pub(crate) struct Traced {
    pub(crate) maps: Maps,
    pub(crate) config: intel_pt::Config,
    pub(crate) buffers: Vec<Buffer>,
}

pub(crate) struct Buffer {
    pub(crate) cpu: u32,
    pub(crate) bytes: Vec<u8>,
    pub(crate) switches: Vec<Switch>,
}

pub(crate) fn open(file: &str) -> Traced {
    let mut recording = Recording::open(folder().join(file).with_extension("data")).unwrap();
    let mut maps = Maps::default();
    let mut found: Vec<(Auxtrace, Vec<u8>)> = Vec::new();
    let mut switches: Vec<(u32, Switch)> = Vec::new();
    let mut records = recording.records();
    while let Some(record) = records.next_record().unwrap() {
        if let Some(mmap) = Mmap::of(&record) {
            let is_kernel = mmap.is_of_kernel();
            let name = mmap.name(record.layouts().trailer_size(&record));
            let path = String::from_utf8_lossy(name).into_owned();
            let kernel = if matches!(file, "hypervisor" | "vm" | "skd022" | "skz84") {
                "vmlinux-kvm"
            } else {
                "vmlinux"
            };
            let path = if is_kernel { format!("/opt/perfx/trace/{kernel}") } else { path };
            let Ok(file) = fs::read(folder().join("root").join(path.trim_start_matches('/'))) else {
                continue;
            };
            // The code of the kernel begins at the second page of its file.
            let offset = if is_kernel { 0x1000 } else { mmap.pgoff() as usize };
            let end = file.len().min(offset + mmap.len() as usize);
            let pid = if is_kernel { KERNEL_PID } else { mmap.pid() };
            maps.0.push((pid, mmap.start(), file[offset..end].to_vec()));
        } else if let Some(aux) = Auxtrace::of(&record) {
            found.push((aux, record.payload().to_vec()));
        } else if [RecordType::SWITCH, RecordType::SWITCH_CPU_WIDE].contains(&record.kind())
            && record.misc() & 0x2000 == 0
        {
            let (pid, _) = record.pid_tid().unwrap();
            // The guest runs in the thread of its host.
            let host = switches.last().and_then(|(_, last)| last.space).filter(|_| record.is_of_guest());
            let guest = host.map(|_| Space(pid));
            let space = host.or(Some(Space(pid)));
            let switch = Switch { time: record.time().unwrap().ns(), space, guest };
            switches.push((record.cpu().unwrap(), switch));
        }
    }
    let of_cpu = |aux: &Auxtrace| {
        let own = switches.iter().filter(|(cpu, _)| *cpu == aux.cpu).map(|(_, switch)| *switch);
        match aux.cpu {
            Auxtrace::ANY => vec![Switch { time: 0, space: Some(Space(aux.tid)), guest: None }],
            _ => own.collect(),
        }
    };
    let buffers = found.iter().map(|(aux, bytes)| Buffer {
        cpu: if aux.cpu == Auxtrace::ANY { 0 } else { aux.cpu },
        bytes: bytes.clone(),
        switches: of_cpu(aux),
    });
    let buffers = buffers.collect();
    let config = intel_pt::Config {
        mtc_period: 6,
        tsc_per_ctc: Some((2, 1)),
        tsc_ratio: 32,
        compressed_returns: file != "noret",
        near: 0x1234,
        errata: match file {
            "wrong-target" => intel_pt::Errata::of(6, 61),
            "skz84" => intel_pt::Errata::of(6, 85),
            _ => intel_pt::Errata::of(6, 142),
        },
        ..intel_pt::Config::default()
    };
    Traced { maps, config, buffers }
}
