//! Writes a sample as a line of JSON.

use std::collections::BTreeMap;

use perfx_format::sample::registers::{ABI_NONE, name};
use perfx_format::sample::{Branch, Branches, Regs, Sample};
use perfx_look::json::{Decimal, Document, Hex, Text, push_json};
use perfx_look::trace::TracePrinter;
use perfx_pipeline::{Error, Result};
use schemars::JsonSchema;
use serde::Serialize;
use serde::ser::{SerializeMap as _, Serializer};

use super::data_src;
use super::fields::{Field, latencies, weight};
use super::form::{Form, FrameForm};
use super::names::{Called, Found};
use super::text::shown_flags;

/// A line of `perfx view --json`.
pub type Line<'s> = Document<1, Body<'s>>;

/// The kind of a line.
#[derive(Debug, Serialize, JsonSchema)]
#[serde(tag = "what", rename_all = "kebab-case")]
pub enum Body<'s> {
    /// A sample. It has the chosen fields, as far as its event has them.
    Sample(Box<SampleLine<'s>>),
}

/// The fields of a sample.
#[derive(Default, Debug, Serialize, JsonSchema)]
#[schemars(deny_unknown_fields)]
pub struct SampleLine<'s> {
    /// The host's process that runs the guest; only in samples of guests
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(super) machine_pid: Option<u32>,
    /// The CPU of the guest; only in samples of guests
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(super) vcpu: Option<u32>,
    /// The name of the thread at that time
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(super) comm: Option<Text<&'s [u8]>>,
    /// The process; -1: none
    #[serde(skip_serializing_if = "Option::is_none")]
    pid: Option<i32>,
    /// The thread; -1: none
    #[serde(skip_serializing_if = "Option::is_none")]
    tid: Option<i32>,
    /// The CPU
    #[serde(skip_serializing_if = "Option::is_none")]
    cpu: Option<i32>,
    /// The mode of the CPU, by perf's letters: K kernel, U user code, H hypervisor, G kernel of a guest, KGg user code there
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(super) misc: Option<String>,
    /// The time, RFC 3339
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(super) tod: Option<String>,
    /// The time, ns of the recording's clock
    #[serde(skip_serializing_if = "Option::is_none")]
    time_ns: Option<Decimal<u64>>,
    /// The period; of a counter that the sample read, what it has gained
    #[serde(skip_serializing_if = "Option::is_none")]
    period: Option<Decimal<u64>>,
    /// The event
    #[serde(skip_serializing_if = "Option::is_none")]
    event: Option<Text<&'s [u8]>>,
    /// The own fields of a tracepoint, as its kernel prints them
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(super) trace: Option<String>,
    /// The same by name: numbers in decimal (several as a list), addresses in hexadecimal, text, or the hex digits of
    /// other bytes
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schemars(with = "Option<BTreeMap<String, String>>")]
    fields: Option<OwnFields<'s>>,
    /// The kind of a decoded branch, and marks of where tracing begins or ends
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(super) flags: Option<String>,
    /// Calls that have not returned, at a decoded branch; for a return, with the one that it ends
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(super) callindent: Option<u32>,
    /// With callindent: the function that a branch calls or returns from
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(super) function: Option<FrameObject<'s>>,
    /// The bytes of the instruction, hexadecimal
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(super) insn: Option<String>,
    /// The number of these bytes
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(super) insnlen: Option<usize>,
    /// The instruction in AT&T syntax; that of A64 as its bytes, hexadecimal
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(super) disasm: Option<String>,
    /// Data of an event that perf synthesizes when it decodes a trace
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(super) synth: Option<String>,
    /// The address of data or of a branch target
    #[serde(skip_serializing_if = "Option::is_none")]
    addr: Option<Hex>,
    /// The symbol at that address, for events whose address is one of code or data
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(super) addr_frame: Option<FrameObject<'s>>,
    /// Where the data came from: operation, level, snoop, TLB, lock and block, in perf's words
    #[serde(skip_serializing_if = "Option::is_none")]
    data_src: Option<String>,
    /// The cost, for most events in cycles
    #[serde(skip_serializing_if = "Option::is_none")]
    weight: Option<Decimal<u64>>,
    /// The latency of the instruction, cycles
    #[serde(skip_serializing_if = "Option::is_none")]
    ins_lat: Option<u16>,
    /// The latency until it retired, cycles
    #[serde(skip_serializing_if = "Option::is_none")]
    retire_lat: Option<u16>,
    /// The path of the cgroup; null if the recording does not name it
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(super) cgroup: Option<Option<Text<&'s [u8]>>>,
    /// The address of the code
    #[serde(skip_serializing_if = "Option::is_none")]
    ip: Option<Hex>,
    /// The registers at the interrupt
    #[serde(skip_serializing_if = "Option::is_none")]
    iregs: Option<Registers<'s>>,
    /// The registers of user code
    #[serde(skip_serializing_if = "Option::is_none")]
    uregs: Option<Registers<'s>>,
    /// Branches, the newest first
    #[serde(skip_serializing_if = "Option::is_none")]
    brstack: Option<Vec<BranchObject<'s>>>,
    /// The physical address
    #[serde(skip_serializing_if = "Option::is_none")]
    phys_addr: Option<Hex>,
    /// The size of the page with the data, bytes; 0 if it is not known
    #[serde(skip_serializing_if = "Option::is_none")]
    data_page_size: Option<u64>,
    /// The size of the page with the code, bytes; 0 if it is not known
    #[serde(skip_serializing_if = "Option::is_none")]
    code_page_size: Option<u64>,
    /// Instructions and core cycles since the previous sample of a decoded trace, if they are known
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(super) ipc: Option<Counted>,
    /// The call chain, innermost first; without one, the place of `ip`
    // The last field: `Items` writes what is in it.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schemars(with = "Option<Vec<FrameObject<'s>>>")]
    frames: Option<[FrameObject<'s>; 0]>,
}

/// Counts of instructions and cycles.
#[derive(Debug, Serialize, JsonSchema)]
#[schemars(deny_unknown_fields)]
pub(super) struct Counted {
    /// Instructions
    pub(super) instructions: Decimal<u64>,
    /// Core cycles
    pub(super) cycles: Decimal<u64>,
}

/// A function on the stack.
#[derive(Debug, Serialize, JsonSchema)]
#[schemars(deny_unknown_fields)]
pub(super) struct FrameObject<'s> {
    /// The address
    ip: Hex,
    /// The function; null if it is not known
    #[serde(skip_serializing_if = "Option::is_none")]
    sym: Option<Option<&'s str>>,
    /// Bytes from the start of the symbol
    #[serde(skip_serializing_if = "Option::is_none")]
    symoff: Option<Hex>,
    /// The file, or a name such as `[kernel.kallsyms]`; null if nothing was mapped there
    #[serde(skip_serializing_if = "Option::is_none")]
    dso: Option<Option<Text<&'s [u8]>>>,
    /// The offset of the address in the file, bytes; absent for kernels
    #[serde(skip_serializing_if = "Option::is_none")]
    dsoff: Option<Hex>,
    /// FILE:LINE, or without a line the name of the DSO and the address in it, as perf shows them
    #[serde(skip_serializing_if = "Option::is_none")]
    srcline: Option<Option<&'s str>>,
    /// True if the compiler inlined the function into the next one
    inlined: bool,
}

/// A branch.
#[derive(Debug, Serialize, JsonSchema)]
#[schemars(deny_unknown_fields)]
pub(super) struct BranchObject<'s> {
    /// The address of the branch
    from: Hex,
    /// Its target
    to: Hex,
    /// As perf shows them: predicted (P, M or -), in a transaction, aborted, cycles, kind, speculation
    flags: String,
    /// The symbol at the address of the branch, with brstacksym
    #[serde(skip_serializing_if = "Option::is_none")]
    from_frame: Option<FrameObject<'s>>,
    /// The symbol at its target
    #[serde(skip_serializing_if = "Option::is_none")]
    to_frame: Option<FrameObject<'s>>,
}

/// Registers.
#[derive(Debug, Serialize, JsonSchema)]
#[schemars(deny_unknown_fields)]
pub(super) struct Registers<'s> {
    /// 1: of a 32-bit task, 2: of a 64-bit task
    abi: u64,
    /// The value of each in hexadecimal, by perf's name, or by the kernel's number if perf has none
    #[schemars(with = "BTreeMap<String, String>")]
    values: RegisterValues<'s>,
}

#[derive(Debug)]
struct RegisterValues<'s> {
    regs: Regs<'s>,
    machine: &'s str,
}

impl<'s> Registers<'s> {
    fn of(regs: Option<Regs<'s>>, machine: &'s str) -> Option<Registers<'s>> {
        let regs = regs.filter(|regs| regs.abi != ABI_NONE)?;
        Some(Registers { abi: regs.abi, values: RegisterValues { regs, machine } })
    }
}

impl Serialize for RegisterValues<'_> {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        let mut map = serializer.serialize_map(None)?;
        let mut last = None;
        for (number, value) in self.regs.iter() {
            // The second half of a register has the same name.
            let name = name(self.machine, number).filter(|name| last.as_ref() != Some(name));
            map.serialize_entry(name.as_deref().unwrap_or(&number.to_string()), &Hex(value))?;
            last = name;
        }
        map.end()
    }
}

#[derive(Debug)]
struct OwnFields<'s> {
    printer: &'s TracePrinter<'s>,
    raw: &'s [u8],
}

impl Serialize for OwnFields<'_> {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        let mut map = serializer.serialize_map(None)?;
        for (name, value) in self.printer.values(self.raw) {
            map.serialize_entry(name, &value)?;
        }
        map.end()
    }
}

impl<'s> SampleLine<'s> {
    pub(super) fn new(form: &'s Form<'s>, parts: &Sample<'s>, period: u64) -> SampleLine<'s> {
        let has = |field| form.has(field);
        let (pid, tid) = parts.pid_tid.map_or((-1, -1), |(pid, tid)| (pid as i32, tid as i32));
        let trace = form.trace.zip(parts.raw).filter(|_| has(Field::Trace));
        let branches = |branches: Branches<'_>| {
            let branch = |Branch { from, to, flags }| BranchObject {
                from: Hex(from),
                to: Hex(to),
                flags: shown_flags(flags),
                from_frame: None,
                to_frame: None,
            };
            branches.iter().map(branch).collect()
        };
        let size = |size: Option<u64>| Some(size.unwrap_or(0));
        SampleLine {
            pid: Some(pid).filter(|_| has(Field::Pid)),
            tid: Some(tid).filter(|_| has(Field::Tid)),
            cpu: parts.cpu.map(|cpu| cpu as i32).filter(|_| has(Field::Cpu)),
            time_ns: parts.time.map(Decimal).filter(|_| has(Field::Time)),
            period: Some(Decimal(period)).filter(|_| has(Field::Period)),
            event: Some(text(&form.event)).filter(|_| has(Field::Event)),
            fields: trace.map(|(printer, raw)| OwnFields { printer, raw }),
            addr: parts.addr.map(Hex).filter(|_| has(Field::Addr)),
            data_src: parts.data_src.map(data_src::text).filter(|_| has(Field::DataSrc)),
            weight: weight(parts).map(Decimal).filter(|_| has(Field::Weight)),
            ins_lat: latencies(parts).map(|[first, _]| first).filter(|_| has(Field::InsLat)),
            retire_lat: latencies(parts).map(|[_, second]| second).filter(|_| has(Field::RetireLat)),
            ip: parts.ip.map(Hex).filter(|_| has(Field::Ip)),
            iregs: Registers::of(parts.regs_intr.filter(|_| has(Field::Iregs)), form.machine),
            uregs: Registers::of(parts.regs_user.filter(|_| has(Field::Uregs)), form.machine),
            brstack: parts.branches.filter(|_| has(Field::Brstack) || has(Field::Brstacksym)).map(branches),
            phys_addr: parts.phys_addr.map(Hex).filter(|_| has(Field::PhysAddr)),
            data_page_size: size(parts.data_page_size).filter(|_| has(Field::DataPageSize)),
            code_page_size: size(parts.code_page_size).filter(|_| has(Field::CodePageSize)),
            frames: has(Field::Ip).then_some([]),
            ..SampleLine::default()
        }
    }

    pub(super) fn name_branches(&mut self, form: FrameForm, ends: &'s [(u64, Found)]) {
        let form = FrameForm { sym: true, symoff: true, srcline: false, ..form };
        for (branch, [from, to]) in self.brstack.iter_mut().flatten().zip(ends.as_chunks().0) {
            (branch.from_frame, branch.to_frame) = (outermost(form, from), outermost(form, to));
        }
    }
}

pub(super) fn text(bytes: &[u8]) -> Text<&[u8]> {
    Text(bytes)
}

fn frame(form: FrameForm, address: u64, call: &Called, past: u64) -> FrameObject<'_> {
    FrameObject {
        ip: Hex(address),
        sym: form.sym.then_some(call.name.as_deref()),
        symoff: (form.symoff && call.name.is_some()).then_some(Hex(call.offset.wrapping_add(past))),
        dso: form.dso.then(|| call.dso.as_deref().map(text)),
        dsoff: call.dsoff.filter(|_| form.dsoff).map(|at| Hex(at.wrapping_add(past))),
        srcline: form.srcline.then_some(call.line.as_deref()),
        inlined: call.inlined,
    }
}

/// The function at an address outside of frames.
pub(super) fn outermost(form: FrameForm, (address, found): &(u64, Found)) -> Option<FrameObject<'_>> {
    Some(frame(form, *address, found.calls.last()?, found.past))
}

pub(super) fn push_frames(
    out: &mut Vec<u8>,
    form: FrameForm,
    address: u64,
    calls: &[Called],
    past: u64,
) -> Result<()> {
    for (number, call) in calls.iter().enumerate() {
        if number > 0 {
            out.push(b',');
        }
        push_json(out, &frame(form, address, call, past), false).map_err(failed)?;
    }
    Ok(())
}

pub(super) fn begin(out: &mut Vec<u8>, line: SampleLine<'_>) -> Result<()> {
    push_json(out, &Line::new(Body::Sample(Box::new(line))), false).map_err(failed)
}

/// The elements of the array that ends a line. They are cached as text, and so not serialised with it.
pub(super) struct Items {
    is_first: bool,
}

const END: &[u8] = b"]}";

impl Items {
    pub(super) fn begin(line: &mut Vec<u8>) -> Items {
        line.truncate(line.len() - END.len());
        Items { is_first: true }
    }

    pub(super) fn next(&mut self, line: &mut Vec<u8>) {
        if !std::mem::take(&mut self.is_first) {
            line.push(b',');
        }
    }

    pub(super) fn end(line: &mut Vec<u8>) {
        line.extend_from_slice(END);
    }
}

/// Only a type that is not JSON can fail.
fn failed(error: serde_json::Error) -> Error {
    std::io::Error::from(error).into()
}
