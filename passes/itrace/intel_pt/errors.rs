//! Writes AUXTRACE_ERROR records for losses in an Intel PT trace, in the words of perf.

use perfx_auxtrace::{Lost, Task};
use perfx_format::Endian;
use perfx_format::record::aux_error::AuxtraceError;
use perfx_trace::Reason;

/// The record of an error in a trace, with perf's code and text.
pub(super) fn error(
    reason: Reason,
    cpu: u32,
    Task { pid, tid, vcpu }: Task,
    ip: u64,
    time: u64,
    endian: Endian,
) -> Vec<u8> {
    let (code, message) = match reason {
        Reason::Overflow => (7, "Overflow packet"),
        Reason::BadPacket | Reason::CutPacket => (3, "Bad packet"),
        Reason::NoCode | Reason::BadCode | Reason::Guest => (5, "Failed to get instruction"),
        Reason::Endless => (10, "Never-ending loop"),
        _ => (6, "Trace doesn't match instruction"),
    };
    let guest = vcpu.map(|vcpu| (vcpu.machine_pid, vcpu.number));
    AuxtraceError { code, cpu, pid, tid, ip, time, message, guest }.write(endian)
}

/// The record of data lost by the kernel.
pub(super) fn lost(lost: &Lost, endian: Endian) -> Vec<u8> {
    let Lost { time, cpu, task: Task { pid, tid, .. } } = *lost;
    let message = "Lost trace data";
    AuxtraceError { code: 8, cpu, pid, tid, ip: 0, time, message, guest: None }.write(endian)
}
