//! Writes jitdumps, record by record.

use super::{HEADER_SIZE, Line, Load, MAGIC, Move, PREFIX_SIZE};
use crate::Endian;

/// A jitdump under construction. Times are ns of CLOCK_MONOTONIC unless [`Writer::set_flags`] changes that.
#[derive(Clone, Debug)]
pub struct Writer {
    endian: Endian,
    bytes: Vec<u8>,
}

impl Writer {
    /// Begins a jitdump with a header; `machine` is the `e_machine` of ELF, `pid` the writing process.
    pub fn new(endian: Endian, machine: u32, pid: u32) -> Writer {
        let mut writer = Writer { endian, bytes: Vec::new() };
        [MAGIC, 1, HEADER_SIZE as u32, machine, 0, pid].iter().for_each(|&word| writer.u32(word));
        writer.u64(0);
        writer.u64(0);
        writer
    }

    /// Returns the contents of the file.
    pub fn into_bytes(self) -> Vec<u8> {
        self.bytes
    }

    /// Sets the flags in the header, for example [`ARCH_TIMESTAMP`](super::ARCH_TIMESTAMP).
    pub fn set_flags(&mut self, flags: u64) {
        self.endian.set_u64(&mut self.bytes, 32, flags);
    }

    /// Appends a LOAD record: code was generated.
    pub fn load(&mut self, time: u64, load: &Load<'_>) {
        let Load { pid, tid, address, size, index, name, code } = *load;
        self.record(0, time, |writer| {
            [pid, tid].iter().for_each(|&word| writer.u32(word));
            [address, address, size, index].iter().for_each(|&word| writer.u64(word));
            writer.bytes.extend(name);
            writer.bytes.push(0);
            writer.bytes.extend(code);
        });
    }

    /// Appends a MOVE record: code was moved.
    pub fn moved(&mut self, time: u64, moved: &Move) {
        let Move { pid, tid, old_address, new_address, size, index } = *moved;
        self.record(1, time, |writer| {
            [pid, tid].iter().for_each(|&word| writer.u32(word));
            [new_address, old_address, new_address, size, index].iter().for_each(|&word| writer.u64(word));
        });
    }

    /// Appends a DEBUG_INFO record: the source lines of the code in the next LOAD, at this address.
    pub fn debug_info(&mut self, time: u64, address: u64, lines: &[Line<'_>]) {
        self.record(2, time, |writer| {
            [address, lines.len() as u64].iter().for_each(|&word| writer.u64(word));
            for line in lines {
                writer.u64(line.address);
                [line.line, line.column].iter().for_each(|&word| writer.u32(word));
                writer.bytes.extend(line.file);
                writer.bytes.push(0);
            }
        });
    }

    /// Appends an UNWINDING_INFO record: the unwind data of the code that the next LOAD describes, with
    /// `.eh_frame_hdr` last, as perf expects. The process has mapped `mapped_size` bytes of it.
    pub fn unwinding_info(&mut self, time: u64, eh_frame: &[u8], eh_frame_hdr: &[u8], mapped_size: u64) {
        self.record(4, time, |writer| {
            let both = eh_frame.len() + eh_frame_hdr.len();
            [both as u64, eh_frame_hdr.len() as u64, mapped_size].iter().for_each(|&word| writer.u64(word));
            writer.bytes.extend(eh_frame);
            writer.bytes.extend(eh_frame_hdr);
        });
    }

    /// Appends a CLOSE record: the last one of a writer.
    pub fn close(&mut self, time: u64) {
        self.record(3, time, |_| ());
    }

    fn u32(&mut self, value: u32) {
        self.bytes.extend(self.endian.bytes_u32(value));
    }

    fn u64(&mut self, value: u64) {
        self.bytes.extend(self.endian.bytes_u64(value));
    }

    fn record(&mut self, id: u32, time: u64, body: impl FnOnce(&mut Writer)) {
        let start = self.bytes.len();
        self.u32(id);
        self.u32(PREFIX_SIZE as u32);
        self.u64(time);
        body(self);
        let size = self.bytes.len() - start;
        self.endian.set_u32(&mut self.bytes, start + 4, size as u32);
    }
}
