//! Counts the samples of each function, by the symbols of the files on this machine.
//!
//! ```sh
//! cargo run -p perfx-format --example count_functions -- perf.data
//! ```

use std::collections::BTreeMap;
use std::path::Path;

use object::{Object as _, ObjectSegment as _};
use perfx_format::read::Recording;
use perfx_format::{KERNEL_PID, Mmap, RecordType, Task};

#[derive(Clone)]
struct Mapping {
    start: u64,
    end: u64,
    /// The offset in the file of the byte at `start`.
    pgoff: u64,
    file: String,
}

/// Counts samples by function, or by file if it has no symbol there. The files are read below `root`.
pub(crate) fn count_functions(path: &Path, root: &Path) -> perfx_format::Result<BTreeMap<String, u64>> {
    // The newest mapping of a process is the last.
    let mut mappings: BTreeMap<u32, Vec<Mapping>> = BTreeMap::new();
    let mut hits: BTreeMap<(String, u64), u64> = BTreeMap::new();
    let mut records = Recording::open(path)?.records_by_time()?;
    while let Some(record) = records.next_record()? {
        if let Some(mmap) = Mmap::of(&record) {
            let (start, end) = (mmap.start(), mmap.start().saturating_add(mmap.len()));
            let file = String::from_utf8_lossy(mmap.name(0)).into_owned();
            mappings.entry(mmap.pid()).or_default().push(Mapping { start, end, pgoff: mmap.pgoff(), file });
        } else if let Some(task) = Task::of(&record)
            && record.kind() == RecordType::FORK
            && task.pid != task.ppid
        {
            let inherited = mappings.get(&task.ppid).cloned().unwrap_or_default();
            mappings.insert(task.pid, inherited);
        } else if let Some(sample) = record.sample()?
            && let (Some(ip), Some((pid, _))) = (sample.ip, sample.pid_tid)
        {
            let newest_first = [pid, KERNEL_PID].into_iter().filter_map(|pid| mappings.get(&pid));
            let hit =
                newest_first.flat_map(|all| all.iter().rev()).find(|one| (one.start..one.end).contains(&ip));
            let place = hit.map(|hit| (hit.file.clone(), ip - hit.start + hit.pgoff)).unwrap_or_default();
            *hits.entry(place).or_default() += 1;
        }
    }

    let mut functions = BTreeMap::new();
    let mut of_file = (String::new(), Vec::new());
    for ((file, offset), count) in hits {
        if of_file.0 != file {
            let bytes = std::fs::read(root.join(file.trim_start_matches('/'))).unwrap_or_default();
            of_file = (file.clone(), bytes);
        }
        let name = function(&of_file.1, offset).unwrap_or_else(|| format!("[{file}]"));
        *functions.entry(name).or_default() += count;
    }
    Ok(functions)
}

fn function(elf: &[u8], offset: u64) -> Option<String> {
    let elf = object::File::parse(elf).ok()?;
    let in_memory = |segment: object::Segment<'_, '_>| {
        let (start, len) = segment.file_range();
        offset.checked_sub(start).filter(|at| *at < len).map(|at| segment.address() + at)
    };
    let address = elf.segments().find_map(in_memory)?;
    Some(elf.symbol_map().containing(address)?.name().to_owned())
}

fn main() -> Result<(), Box<dyn std::error::Error>> {
    let path = std::env::args_os().nth(1).ok_or("usage: count_functions RECORDING")?;
    let mut counts: Vec<_> = count_functions(path.as_ref(), "/".as_ref())?.into_iter().collect();
    counts.sort_by_key(|(_, count)| std::cmp::Reverse(*count));
    for (name, count) in counts {
        println!("{count:>12} {name}");
    }
    Ok(())
}
