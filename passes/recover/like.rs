//! `--like`: lost features are copied from another recording of the same command and kernel.

use std::collections::HashMap;
use std::path::Path;

use perfx_format::event_name::event_names;
use perfx_format::features::read_str;
use perfx_format::names::KERNEL_NAME;
use perfx_format::read::Batch;
use perfx_format::{COMM_EXEC, Comm, Feature, Kinds, Layouts, Mmap, Record, RecordType};
use perfx_model::address_space::KERNEL;
use perfx_pipeline::{Error, Level, Result, Session, bail, ensure, scan};

use crate::support::features::event_desc;

/// Features equal in all recordings of one command on one kernel. Others depend on mappings, samples or time.
const SHARED: [Feature; 22] = [
    Feature::TRACING_DATA,
    Feature::HOSTNAME,
    Feature::OSRELEASE,
    Feature::VERSION,
    Feature::ARCH,
    Feature::NRCPUS,
    Feature::CPUDESC,
    Feature::CPUID,
    Feature::TOTAL_MEM,
    Feature::CMDLINE,
    Feature::CPU_TOPOLOGY,
    Feature::NUMA_TOPOLOGY,
    Feature::PMU_MAPPINGS,
    Feature::GROUP_DESC,
    Feature::CACHE,
    Feature::MEM_TOPOLOGY,
    Feature::CLOCKID,
    Feature::CPU_PMU_CAPS,
    Feature::HYBRID_TOPOLOGY,
    Feature::PMU_CAPS,
    Feature::E_MACHINE,
    Feature::CLN_SIZE,
];

/// The attr flag of `perf record COMMAND`, whose events begin with it; with `-a`, any program may be first.
const ENABLE_ON_EXEC: u32 = 12;

#[derive(Clone, Debug, Default)]
pub(super) struct Marks {
    /// Its address, and the symbol there.
    kernel: Option<(u64, Box<[u8]>)>,
    command: Option<Box<[u8]>>,
}

impl Marks {
    pub(super) const KINDS: Kinds = Kinds::MAPPINGS.and(RecordType::COMM);

    pub(super) fn look_at(&mut self, record: &Record<'_>, layouts: &Layouts) {
        let trailer = layouts.trailer_size(record);
        if record.kind() == RecordType::COMM {
            if self.command.is_none() && record.misc() & COMM_EXEC != 0 {
                self.command = Comm::of(record, trailer).map(|comm| comm.name.into());
            }
        } else if self.kernel.is_none() {
            let kernel = Mmap::of(record).filter(|mmap| mmap.pid() == KERNEL);
            let kernel = kernel.map(|mmap| (mmap.start(), mmap.name(trailer).into()));
            self.kernel = kernel.filter(|(_, name): &(_, Box<[u8]>)| name.starts_with(KERNEL_NAME));
        }
    }

    pub(super) fn join(&mut self, later: Marks) {
        self.kernel = self.kernel.take().or(later.kernel);
        self.command = self.command.take().or(later.command);
    }
}

/// Copies missing features from the recording at this path, which must have the command and kernel of `own`.
pub(super) fn take_features(path: &Path, own: &Marks, session: &mut Session) -> Result<()> {
    let mut other = session.open(path)?;
    let mut marks = Marks::default();
    let look = |batch: &Batch| {
        let mut found = Marks::default();
        batch.each(Marks::KINDS, |record| {
            found.look_at(record, &batch.layouts);
            Ok::<(), Error>(())
        })?;
        Ok(found)
    };
    scan(&mut other, session.threads, true, look, |_, found| {
        marks.join(found);
        Ok(())
    })?;
    let (name, known, endian) = (&other.name, session.name.clone(), session.endian);
    ensure!(other.endian == endian, "{name}: its byte order differs from that of {known}");
    let differs = session.events.iter().zip(&other.events).position(|(own, other)| own.raw() != other.raw());
    ensure!(
        differs.is_none() && session.events.len() == other.events.len(),
        "{name}: its events are not those of {known}; --like needs a recording of the same command, by the same perf"
    );
    for feature in [Feature::OSRELEASE, Feature::ARCH, Feature::HOSTNAME] {
        if let (Some(own), Some(other)) = (session.feature(feature), other.features.get(&feature))
            && own != other
        {
            let text = |section| String::from_utf8_lossy(read_str(section, endian).unwrap_or_default());
            bail!("{name}: {feature} is {}, but that of {known} is {}", text(other), text(own));
        }
    }
    let starts_command = session.events.iter().any(|event| event.attr().flag(ENABLE_ON_EXEC));
    if let (Some(own), Some(other), true) = (&own.command, &marks.command, starts_command)
        && own != other
    {
        bail!("{name}: it is of the command {}, but {known} of {}", other.escape_ascii(), own.escape_ascii());
    }
    match (&own.kernel, &marks.kernel) {
        (Some(own), Some(other)) => ensure!(
            own == other,
            "{name}: its kernel was at {:#x}, but that of {known} at {:#x}: it is of another kernel, or of another \
             start of the machine",
            other.0,
            own.0
        ),
        _ => {
            let what = format!("{name}: it can't be checked that it is of the same kernel as {known}");
            session.report.say(Level::Warning, what);
        }
    }
    let mut taken = Vec::new();
    if session.feature(Feature::EVENT_DESC).is_none() {
        // Ids belong to one recording, but the names are the same.
        let names = event_names(&other, &HashMap::new());
        if let Some(section) = event_desc(session, &names) {
            session.set_feature(Feature::EVENT_DESC, section);
            taken.push("the names in EVENT_DESC".to_owned());
        }
    }
    for feature in SHARED {
        if let (None, Some(section)) = (session.feature(feature), other.features.get(&feature)) {
            session.set_feature(feature, section.clone());
            taken.push(feature.to_string());
        }
    }
    if !taken.is_empty() {
        session.report.say(Level::Info, format!("took {} from {name}", taken.join(", ")));
    }
    Ok(())
}
