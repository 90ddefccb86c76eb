//! Decodes the AUX data of Arm SPE: finds it, yields its records in timestamp order, and finds their threads.

mod cpus;
mod data_source;
mod records;
mod running;

use std::collections::BTreeSet;

use perfx_format::read::StoredBytes;
use perfx_format::record::aux::{Auxtrace, AuxtraceInfo};
use perfx_format::record::spe_info::SpeInfo;
use perfx_format::record::time_conv::TimeConv;
use perfx_format::{Endian, Kinds, Record, RecordType, Result};

use self::cpus::{Cpus, midr};
use self::records::{Buffer, Chunk};

pub use self::data_source::is_of_memory;
pub use self::records::{SpeCounts, SpeRecords, TracedRecord};
pub use self::running::{Running, TaskChange};

/// The AUX data of a recording, and the records that describe it.
#[derive(Debug, Default)]
pub struct SpeData {
    tracers: BTreeSet<AuxtraceInfo>,
    info: Option<SpeInfo>,
    conv: Option<TimeConv>,
    chunks: Vec<Chunk>,
}

impl SpeData {
    /// The kinds of records that [`SpeData::add`] reads.
    pub const KINDS: Kinds =
        Kinds::of(&[RecordType::AUXTRACE_INFO, RecordType::AUXTRACE, RecordType::TIME_CONV]);

    /// Adds a record.
    ///
    /// # Errors
    ///
    /// The record describes Arm SPE, and is damaged.
    pub fn add(&mut self, record: &Record<'_>) -> Result<()> {
        if let Some(info) = AuxtraceInfo::of(record) {
            self.tracers.insert(info);
            if info == AuxtraceInfo::ARM_SPE && self.info.is_none() {
                let info = SpeInfo::of(record);
                self.info = Some(info.ok_or_else(|| record.error("its description of the CPUs is damaged"))?);
            }
        }
        self.conv = self.conv.or_else(|| TimeConv::of(record));
        if let Some(auxtrace) = Auxtrace::of(record) {
            let (origin, header) = (record.origin(), record.bytes().len());
            self.chunks.push(Chunk { auxtrace, origin, header });
        }
        Ok(())
    }

    /// Adds the data of a later part of the recording.
    pub fn absorb(&mut self, later: SpeData) {
        let SpeData { tracers, info, conv, chunks } = later;
        self.tracers.extend(tracers);
        self.info = self.info.take().or(info);
        self.conv = self.conv.or(conv);
        self.chunks.extend(chunks);
    }

    /// True if the recording has no AUX data.
    pub fn is_empty(&self) -> bool {
        self.tracers.is_empty() && self.chunks.is_empty()
    }

    /// True if all data is from known tracers other than Arm SPE.
    pub fn is_of_others(&self) -> bool {
        self.info.is_none()
            && !self.tracers.is_empty()
            && self.tracers.iter().all(|info| info.tracer().is_some())
    }

    /// The names of the tracers.
    pub fn tracers(&self) -> String {
        let names: Vec<_> =
            self.tracers.iter().map(|info| info.tracer().unwrap_or("an unknown tracer")).collect();
        if names.is_empty() { "an unknown tracer".to_owned() } else { names.join(" and ") }
    }

    /// The commands of perf that show the data.
    pub fn shown_by(&self) -> String {
        let commands: BTreeSet<_> = self.tracers.iter().map(AuxtraceInfo::shown_by).collect();
        commands.into_iter().collect::<Vec<_>>().join(", ")
    }

    /// The configuration, if all of the data is from Arm SPE.
    pub fn spe(&self) -> Option<&SpeInfo> {
        self.info.as_ref().filter(|_| self.tracers.len() == 1)
    }

    /// The conversion of timestamps to times.
    pub fn conv(&self) -> Option<TimeConv> {
        self.conv
    }

    /// Decodes the data; there are no records unless all of it is from Arm SPE. `cpuid` is feature CPUID;
    /// `has_time`: other records of the recording have times.
    pub fn records(
        mut self,
        stored: StoredBytes,
        cpuid: Option<&[u8]>,
        endian: Endian,
        has_time: bool,
    ) -> SpeRecords {
        let info = self.info.take().filter(|_| self.tracers.len() == 1);
        let buffers = info.map(|info| {
            let midr = cpuid.and_then(|section| midr(section, endian));
            Buffer::of(&self.chunks, &Cpus { cpus: info.cpus, midr })
        });
        SpeRecords::new(stored, buffers.unwrap_or_default(), self.conv, has_time)
    }
}
