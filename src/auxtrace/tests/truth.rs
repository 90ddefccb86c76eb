//! Decodes the Intel PT in tests/data/trace to exactly what was executed, on any number of threads.

use std::collections::BTreeMap;
use std::fs;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::path::{Path, PathBuf};
use std::sync::{Condvar, Mutex};

use build_id::{Object, RecordedOn};
use perfx_auxtrace::{Code, IntelPt, Known, Part, Recorded, Split, Survey, Tracer, UNIT, Work};
use perfx_format::read::Recording;
use perfx_model::address_space::Machine;
use perfx_trace::{Blocks, Event, Point, Sink, Space, Step};
use symbols::{KernelFile, Sources};

fn folder() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../../tests/data/trace")
}

fn open(name: &str) -> (IntelPt, Recorded, Code) {
    let mut recording = Recording::open(folder().join(name).with_extension("data")).unwrap();
    let (stored, events) = (recording.stored_bytes(), recording.events.clone());
    let mut survey = Survey::of(&recording);
    let mut records = recording.records();
    while let Some(record) = records.next_record().unwrap() {
        survey.add(&record, record.layouts());
    }
    let (Tracer::IntelPt(tracer), mut recorded) = survey.done(&stored, &events).unwrap() else {
        panic!("{name} is not of Intel PT")
    };
    let root = folder().join("root");
    let kernels = root.join("opt/perfx/trace");
    let known = recorded.dsos().map(|(dso, ..)| {
        let path = PathBuf::from(String::from_utf8_lossy(&dso.name).into_owned());
        let object = match &*dso.name {
            b"[vdso]" => return None,
            _ if dso.kernel => Object::Kernel,
            _ => Object::File { path, inode: None, pid: None },
        };
        let file = match &object {
            Object::File { path, .. } => root.join(path.strip_prefix("/").unwrap()),
            _ => kernels.join("vmlinux"),
        };
        // The files of guests are found by build-id alone.
        let is_of_guest = dso.machine != Machine::Host;
        let id = is_of_guest.then(|| build_id::of_file(&file).unwrap().unwrap());
        Some(Known { object, id })
    });
    let known = known.collect();
    let sources = |kernel: &str| {
        let vmlinux = KernelFile::Vmlinux(kernels.join(kernel));
        let sources = Sources::new(false, std::slice::from_ref(&root), &[], &RecordedOn::default());
        sources.with_kernel(Some(vmlinux))
    };
    let kernel = if name.starts_with("vm") { "vmlinux-kvm" } else { "vmlinux" };
    let code = Code::new(&mut recorded, tracer.clock(), known, (sources(kernel), sources("vmlinux")), None);
    (tracer, recorded, code)
}

struct List;

impl Work for List {
    type Sink = Branches;
    type Done = Vec<(u32, u64, u64)>;

    fn sink(&self) -> Branches {
        Branches(Vec::new())
    }

    fn begin(&self, _sink: &mut Branches, _part: &Part) {}

    fn end(&self, sink: &mut Branches, _blocks: &Blocks, _part: &Part) -> Vec<(u32, u64, u64)> {
        std::mem::take(&mut sink.0)
    }
}

struct Branches(Vec<(u32, u64, u64)>);

impl Branches {
    fn push(&mut self, point: &Point, from: u64, to: u64) {
        let Space(number) = point.space.unwrap();
        self.0.push((number, from, to));
    }
}

impl Sink for Branches {
    fn step(&mut self, blocks: &Blocks, point: &Point, step: Step) {
        if let Some(to) = step.to {
            self.push(point, blocks[step.block].last, blocks[to].start);
        }
    }

    fn event(&mut self, _blocks: &Blocks, point: &Point, event: Event) {
        match event {
            Event::Begin { ip, .. } | Event::Resumed { ip } => self.push(point, 0, ip),
            Event::End { ip, .. } => self.push(point, ip, 0),
            Event::Interrupt { from, to, .. } => self.push(point, from, to),
            _ => {}
        }
    }
}

type Flow = BTreeMap<(u32, u32), Vec<(u64, u64)>>;

fn flow(name: &str, threads: usize) -> Flow {
    let (tracer, recorded, code) = open(name);
    let mut flow = Flow::new();
    let done = tracer.decode(&code, Split { threads, size: UNIT }, &List, |part, branches| {
        let cpu = tracer.buffers[part.buffer].cpu;
        for (task, from, to) in branches {
            let key = (recorded.tasks[task as usize].pid, if cpu == u32::MAX { 0 } else { cpu });
            flow.entry(key).or_default().push((from, to));
        }
        Ok(())
    });
    assert_eq!(done.unwrap().len(), threads);
    assert!(!code.used().is_empty());
    flow
}

fn truth(name: &str) -> Flow {
    let mut truth = Flow::new();
    let number = |word: &str| if word == "-" { 0 } else { u64::from_str_radix(word, 16).unwrap() };
    for line in fs::read_to_string(folder().join(name).with_extension("truth")).unwrap().lines() {
        if let [from, to, _, pid, cpu] = line.split(' ').collect::<Vec<_>>()[..]
            && from != "#"
        {
            let key = (pid.parse().unwrap(), cpu.parse().unwrap());
            truth.entry(key).or_default().push((number(from), number(to)));
        }
    }
    truth
}

#[test]
fn each_recording_decodes_to_its_truth_on_any_number_of_threads() {
    let names = [
        "user", "noret", "times", "ptwrite", "defer", "overflow", "halve", "switch", "cpus", "threads",
        "kernel", "snapshots", "vm", "vm-kernel", "old-psb", "bdm70", "late-psbend", "begun", "lost",
        "wrong-target",
    ];
    for name in names {
        let flow = flow(name, 1);
        let mut truth = truth(match name {
            "old-psb" | "bdm70" | "late-psbend" | "begun" => "switch",
            _ => name,
        });
        if name == "begun" {
            for (key, branches) in &mut truth {
                branches.drain(..branches.len() - flow[key].len());
            }
        }
        assert!(flow == truth, "{name}");
        assert!(flow == self::flow(name, 3), "{name}");
    }
}

/// The first part panics; the others wait for it.
#[derive(Default)]
struct Waits {
    is_abandoned: Mutex<bool>,
    changed: Condvar,
}

impl Work for Waits {
    type Sink = Branches;
    type Done = ();

    fn sink(&self) -> Branches {
        Branches(Vec::new())
    }

    fn begin(&self, _sink: &mut Branches, _part: &Part) {}

    fn end(&self, _sink: &mut Branches, _blocks: &Blocks, part: &Part) {
        assert!(part.number > 0, "a fault of the program");
        let waits = self.is_abandoned.lock().unwrap();
        drop(self.changed.wait_while(waits, |is_abandoned| !*is_abandoned).unwrap());
    }

    fn abandon(&self) {
        *self.is_abandoned.lock().unwrap() = true;
        self.changed.notify_all();
    }
}

#[test]
fn no_thread_waits_for_one_that_has_panicked() {
    let (tracer, _, code) = open("user");
    let split = Split { threads: 3, size: UNIT };
    let decoded = AssertUnwindSafe(|| tracer.decode(&code, split, &Waits::default(), |_, ()| Ok(())));
    assert!(catch_unwind(decoded).is_err());
}
