//! Reads and writes every form of perf.data, byte for byte, without policy. The README is the byte reference.

// Types of other packages contain those of this one, and derive Debug.
#![warn(missing_debug_implementations)]

mod attr;
mod attr_name;
pub mod branch_list;
mod by_tracepoint;
mod bytes;
pub mod decode;
mod endian;
mod error;
pub mod event_name;
mod fault_code;
pub mod features;
pub mod header;
pub mod intel_pt;
pub mod jitdump;
mod journal;
mod kinds;
mod layout;
mod named;
pub mod names;
mod origin;
pub mod parts;
pub mod pebs;
mod protobuf;
pub mod read;
pub mod readers;
pub mod record;
pub mod sample;
pub mod sample_type;
pub mod section;
pub mod siblings;
pub mod spe;
mod time;
pub mod tracepoint;
mod unzstd;
mod value;
pub mod write;

/// The example of the README is compiled.
#[cfg(doctest)]
#[doc = include_str!("README.md")]
pub struct Readme;

pub use attr::{
    ATTR_FLAGS, ATTR_SIZE_MAX, ATTR_SIZE_MIN, Attr, BranchStacks, Event, KnownAttr, add_to_sample_type,
    clear_address, set_attr_flag, set_clockid, set_event, set_sample_period, set_sample_type, shorten_attr,
    with_history_parts, with_user_callchains, without_parts,
};
pub use by_tracepoint::ByTracepoint;
pub use bytes::Bytes;
#[cfg(feature = "mmap")]
pub use bytes::reset_bus_signal;
pub use endian::{Cursor, Endian, until_nul};
pub use error::{Error, ErrorKind, Result};
pub use fault_code::FaultCode;
pub use kinds::{Feature, Kinds, RecordType};
pub use layout::{Fields, Layout, Layouts, READ_FORMAT_NAMES, SAMPLE_TYPE_NAMES};
pub(crate) use layout::{sample_fields, trailer_fields};
pub use origin::{Origin, Origins};
pub use record::mmap::{
    Inode, KERNEL_PID, MMAP_BUILD_ID, MMAP_DATA, MappedFile, Mmap, Mmap2, PAGE, PATH_MAX, mmap2_as_mmap,
    set_mmap_place, set_mmap2_build_id, set_mmap2_inode,
};
pub use record::task::{COMM_EXEC, Comm, SWITCH_OUT, SWITCH_PREEMPT, Task, named_pid, named_task, next_task};
pub use record::{BadFrame, Frame, HEADER_SIZE, RECORD_SIZE_MAX, Record, Walker};
pub use time::{OrderKey, Time};
pub use value::{
    Decoded, Fields as ValueFields, HexNumber, Issue, Value, bit_names, bytes_of, bytes_that, clear, hex,
    push_hex,
};
