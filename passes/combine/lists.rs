//! Merges features that are lists (formats of tracepoints, BPF programs, BTF types, PMUs).

use perfx_format::Endian;
use perfx_format::features::{ListedBy, TracingData, numbered_entries, write_numbered};

fn add<'a>(there: &mut Vec<&'a [u8]>, more: Vec<&'a [u8]>) {
    let new: Vec<_> = more.into_iter().filter(|format| !there.contains(format)).collect();
    there.extend(new);
}

/// A TRACING_DATA section with the formats of both; `None` if one is unreadable or the machines differ.
pub(super) fn united_tracing<'a>(one: &'a [u8], other: &'a [u8]) -> Option<Vec<u8>> {
    let (mut all, more) = (TracingData::<'a>::read(one)?, TracingData::<'a>::read(other)?);
    if all.head != more.head {
        return None;
    }
    add(&mut all.ftrace, more.ftrace);
    for (name, events) in more.systems {
        match all.systems.iter_mut().find(|(there, _)| *there == name) {
            Some((_, there)) => add(there, events),
            None => all.systems.push((name, events)),
        }
    }
    // The longer list has the entries added later.
    let longer = |one: &'a [u8], other: &'a [u8]| if one.len() < other.len() { other } else { one };
    (all.kallsyms, all.printk) = (longer(all.kallsyms, more.kallsyms), longer(all.printk, more.printk));
    all.write()
}

/// A BPF_PROG_INFO, BPF_BTF or PMU_MAPPINGS section with the entries of both; the first one's win.
pub(super) fn united_list(one: &[u8], other: &[u8], by: ListedBy, endian: Endian) -> Option<Vec<u8>> {
    let mut all = numbered_entries(one, by, endian)?;
    for (number, bytes) in numbered_entries(other, by, endian)? {
        if !all.iter().any(|(there, _)| *there == number) {
            all.push((number, bytes));
        }
    }
    write_numbered(all.into_iter().map(|(_, bytes)| bytes), endian)
}
