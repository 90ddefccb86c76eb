//! A record is a `Copy` view of bytes owned elsewhere, with their origin.

pub mod aux;
pub mod aux_error;
pub mod bpf_event;
pub mod build_id;
pub mod builder;
pub mod cgroup;
pub mod compressed;
pub(crate) mod cpu_map;
pub mod cpumode;
pub mod deferred;
pub mod etm_info;
pub mod event_update;
pub mod frames;
pub mod header_records;
pub mod id_index;
pub mod identifier;
pub mod ids;
pub mod ksymbol;
pub mod lost;
pub(crate) mod mmap;
pub mod namespaces;
pub mod off_cpu;
pub mod pt_info;
pub(crate) mod reader;
pub(crate) mod schedstat;
pub mod spe_info;
pub(crate) mod stat;
pub mod stat_config;
pub(crate) mod task;
#[cfg(test)]
mod tests;
pub mod time;
pub mod time_conv;
pub mod tracing_data;
mod walker;

use std::fmt;

pub use walker::{BadFrame, Frame, Walker};

use crate::{Cursor, Endian, Error, Origin, RecordType, Result};

/// Size of `struct perf_event_header`: u32 type, u16 misc, u16 size.
pub const HEADER_SIZE: usize = 8;

/// The largest record, in bytes: `size` has 16 bits, and perf requires a multiple of 8.
pub const RECORD_SIZE_MAX: usize = 65528;

/// One record: its `header.size` bytes, and a payload after these (AUXTRACE, HEADER_TRACING_DATA).
///
/// ```text
/// 0          4         6         8               size - trailer      size
/// ├──────────┼─────────┼─────────┼───────────────┼───────────────────┤┄┄┄┄┄┄┄┄┄┄┄┄┄┄┤
/// │ u32 type │ u16     │ u16     │ fields of     │ sample_id, if the │ payload, only
/// │          │ misc    │ size    │ the kind      │ event requires it │ of few kinds
/// ```
///
/// ```
/// use perfx_format::{Comm, Endian, Origin, Record, RecordType};
///
/// let bytes = Comm { pid: 7, tid: 8, name: b"sh" }.write(0, &[], Endian::Big).expect("a short name fits");
/// let record = Record::new(&bytes, &[], Origin::Synthetic, Endian::Big)?;
/// assert_eq!((record.kind(), record.u32(8)), (RecordType::COMM, Some(7)));
/// assert_eq!(Comm::of(&record, 0).map(|comm| comm.name), Some(&b"sh"[..]));
/// # Ok::<(), perfx_format::Error>(())
/// ```
#[derive(Clone, Copy)]
pub struct Record<'a> {
    bytes: &'a [u8],
    payload: &'a [u8],
    origin: Origin,
    endian: Endian,
}

impl<'a> Record<'a> {
    /// A view of one whole record without payload.
    ///
    /// # Errors
    ///
    /// `bytes` is shorter than a header, or `header.size` is not its length.
    pub fn new(bytes: &'a [u8], payload: &'a [u8], origin: Origin, endian: Endian) -> Result<Record<'a>> {
        let size = endian.u16(bytes, 6).map(usize::from);
        if bytes.len() < HEADER_SIZE || size != Some(bytes.len()) {
            return Err(Error::new(format!(
                "header.size {} is not the record's length {}",
                size.unwrap_or(0),
                bytes.len()
            ))
            .origin(origin)
            .damaged());
        }
        Ok(Record { bytes, payload, origin, endian })
    }

    /// The kind.
    #[inline]
    pub fn kind(&self) -> RecordType {
        RecordType(self.endian.u32(self.bytes, 0).unwrap_or(0))
    }

    /// The `misc` bits.
    #[inline]
    pub fn misc(&self) -> u16 {
        self.endian.u16(self.bytes, 4).unwrap_or(0)
    }

    /// Bits 0-2 of `misc`: the level at which the code ran ([`cpumode`]), 0 if unknown.
    #[inline]
    pub fn cpumode(&self) -> u16 {
        cpumode::of(self.misc())
    }

    /// True if it is about kernel code, of the host or of a guest.
    #[inline]
    pub fn is_of_kernel(&self) -> bool {
        cpumode::is_kernel(self.cpumode())
    }

    /// True if it is about code that ran in a guest.
    #[inline]
    pub fn is_of_guest(&self) -> bool {
        cpumode::is_guest(self.cpumode())
    }

    /// The level of code at an address in this record that was not executed: only the address shows if it is
    /// in the kernel of the record's machine.
    pub fn level_of(&self, address: u64) -> u16 {
        self.level(if address >= cpumode::KERNEL_START { cpumode::KERNEL } else { cpumode::USER })
    }

    /// The level that a marker in a call chain of this record stands for: in a guest, the markers of the host
    /// stand for the guest's kernel and processes.
    #[inline]
    pub fn level(&self, marked: u16) -> u16 {
        match marked {
            cpumode::KERNEL if self.is_of_guest() => cpumode::GUEST_KERNEL,
            cpumode::USER if self.is_of_guest() => cpumode::GUEST_USER,
            _ => marked,
        }
    }

    /// The record with its header, without its payload.
    #[inline]
    pub fn bytes(&self) -> &'a [u8] {
        self.bytes
    }

    /// The bytes after the header, without the payload.
    #[inline]
    pub fn body(&self) -> &'a [u8] {
        &self.bytes[HEADER_SIZE..]
    }

    /// The bytes that follow the record and belong to it.
    pub fn payload(&self) -> &'a [u8] {
        self.payload
    }

    /// Size of the record with its payload, bytes.
    #[inline]
    pub fn whole_size(&self) -> u64 {
        (self.bytes.len() + self.payload.len()) as u64
    }

    /// The origin of its bytes.
    #[inline]
    pub fn origin(&self) -> Origin {
        self.origin
    }

    /// The recording's byte order.
    #[inline]
    pub fn endian(&self) -> Endian {
        self.endian
    }

    /// The u16 at byte `at` of the record.
    #[inline]
    pub fn u16(&self, at: usize) -> Option<u16> {
        self.endian.u16(self.bytes, at)
    }

    /// The u32 at byte `at` of the record.
    #[inline]
    pub fn u32(&self, at: usize) -> Option<u32> {
        self.endian.u32(self.bytes, at)
    }

    /// The u64 at byte `at` of the record.
    #[inline]
    pub fn u64(&self, at: usize) -> Option<u64> {
        self.endian.u64(self.bytes, at)
    }

    /// A cursor at the first byte after the header.
    pub fn cursor(&self) -> Cursor<'a> {
        Cursor::new(self.body(), self.endian)
    }

    /// An error about this record.
    #[cold]
    pub fn error(&self, what: impl Into<String>) -> Error {
        Error::new(what).origin(self.origin).record(self.kind())
    }
}

impl fmt::Debug for Record<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} of {} bytes at {}", self.kind(), self.bytes.len(), self.origin)
    }
}
