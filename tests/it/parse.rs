//! Reads perf.data without any code of the program, so that both can't have the same error. It accepts
//! only sound recordings.

use std::collections::{BTreeMap, BTreeSet};
use std::ops::Range;

pub(crate) const HEADER_ATTR: u32 = 64;
pub(crate) const EVENT_TYPE: u32 = 65;
pub(crate) const TRACING_DATA: u32 = 66;
pub(crate) const BUILD_ID: u32 = 67;
pub(crate) const AUXTRACE: u32 = 71;
pub(crate) const EVENT_UPDATE: u32 = 78;
pub(crate) const HEADER_FEATURE: u32 = 80;

pub(crate) mod feature {
    pub(crate) const TRACING_DATA: u64 = 1;
    pub(crate) const BUILD_ID: u64 = 2;
    pub(crate) const AUXTRACE: u64 = 18;
    pub(crate) const STAT: u64 = 19;
    pub(crate) const DIR_FORMAT: u64 = 24;
    pub(crate) const COMPRESSED: u64 = 27;
}

#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) struct Order {
    pub(crate) big: bool,
}

impl Order {
    /// From a recording's magic; PERFFILE has one magic for both orders, but a small header size in only one.
    pub(crate) fn of(file: &[u8]) -> Order {
        Order { big: &file[..8] == b"2ELIFREP" || (&file[..8] == b"PERFFILE" && file[15] != 0) }
    }

    pub(crate) fn u16(self, bytes: &[u8], at: usize) -> u16 {
        let field = bytes[at..at + 2].try_into().unwrap();
        if self.big { u16::from_be_bytes(field) } else { u16::from_le_bytes(field) }
    }

    pub(crate) fn u32(self, bytes: &[u8], at: usize) -> u32 {
        let field = bytes[at..at + 4].try_into().unwrap();
        if self.big { u32::from_be_bytes(field) } else { u32::from_le_bytes(field) }
    }

    pub(crate) fn u64(self, bytes: &[u8], at: usize) -> u64 {
        let field = bytes[at..at + 8].try_into().unwrap();
        if self.big { u64::from_be_bytes(field) } else { u64::from_le_bytes(field) }
    }

    pub(crate) fn set_u64(self, bytes: &mut [u8], at: usize, value: u64) {
        let field = if self.big { value.to_be_bytes() } else { value.to_le_bytes() };
        bytes[at..at + 8].copy_from_slice(&field);
    }

    /// The range given by offset and size at `at`.
    pub(crate) fn section(self, bytes: &[u8], at: usize) -> Range<usize> {
        let (offset, size) = (self.u64(bytes, at) as usize, self.u64(bytes, at + 8) as usize);
        offset..offset + size
    }
}

/// A record with the payload that `header.size` does not count.
#[derive(Clone, PartialEq, Eq, PartialOrd, Ord, Debug)]
pub(crate) struct Rec {
    pub(crate) kind: u32,
    /// Position from the start of the records.
    pub(crate) at: usize,
    pub(crate) size: usize,
    pub(crate) bytes: Vec<u8>,
    /// perf record writes it only into the front of a pipe, for the contents of a file's header. (Except a
    /// HEADER_FEATURE above 255, for which a file has no bit.)
    pub(crate) is_front: bool,
}

/// Records up to the end, or to the first incomplete one.
pub(crate) fn records(bytes: &[u8], order: Order) -> Vec<Rec> {
    let mut found = Vec::new();
    let mut at = 0;
    while at + 8 <= bytes.len() {
        let (kind, size) = (order.u32(bytes, at), usize::from(order.u16(bytes, at + 6)));
        assert!(size >= 8, "record of {size} bytes at {at:#x}");
        let payload = match kind {
            // simpleperf's record includes its payload.
            TRACING_DATA => {
                Some(order.u32(bytes, at + 8) as usize).filter(|len| size < 12 + len).unwrap_or(0)
            }
            AUXTRACE => order.u64(bytes, at + 8) as usize,
            _ => 0,
        };
        let Some(bytes) = size.checked_add(payload).and_then(|len| bytes.get(at..at.checked_add(len)?))
        else {
            break;
        };
        let is_front = match kind {
            HEADER_ATTR | EVENT_TYPE | TRACING_DATA | EVENT_UPDATE => true,
            HEADER_FEATURE => size < 16 || order.u64(bytes, 8) < 256,
            _ => false,
        };
        found.push(Rec { kind, at, size, bytes: bytes.to_vec(), is_front });
        at += bytes.len();
    }
    found
}

/// An event: the bytes of its attr, and its ids.
pub(crate) type Event = (Vec<u8>, Vec<u64>);

/// The contents of a recording in any form.
#[derive(Debug)]
pub(crate) struct Contents {
    pub(crate) order: Order,
    pub(crate) events: Vec<Event>,
    pub(crate) features: BTreeMap<u64, Vec<u8>>,
    /// The data section, or everything after the header of a pipe.
    pub(crate) data: Range<usize>,
    /// The bytes between the used slots of the feature table and the first section.
    pub(crate) spare: Vec<u8>,
    sections: Vec<Range<usize>>,
}

impl Contents {
    pub(crate) fn file(file: &[u8]) -> Contents {
        let order = Order::of(file);
        let (attrs, data) = (order.section(file, 24), order.section(file, 40));
        let mut contents = Contents {
            order,
            events: Vec::new(),
            features: BTreeMap::new(),
            data: data.clone(),
            spare: Vec::new(),
            sections: Vec::new(),
        };
        for entry in file[attrs].chunks_exact(order.u64(file, 16) as usize) {
            let (attr, ids) = entry.split_at(entry.len() - 16);
            let ids = file[order.section(ids, 0)].chunks_exact(8).map(|id| order.u64(id, 0)).collect();
            contents.events.push((attr.to_vec(), ids));
        }
        let bits = (0..256).filter(|bit| order.u64(file, 72 + bit / 64 * 8) >> (bit % 64) & 1 == 1);
        let bits: Vec<_> = if order.u64(file, 8) == 104 { bits.collect() } else { Vec::new() };
        for (slot, &bit) in bits.iter().enumerate() {
            let section = order.section(file, data.end + slot * 16);
            contents.features.insert(bit as u64, file[section.clone()].to_vec());
            contents.sections.push(section);
        }
        let used = data.end + bits.len() * 16;
        let event_types = Some(order.u64(file, 56) as usize).filter(|offset| *offset >= used);
        let starts = contents.sections.iter().map(|section| section.start).chain(event_types);
        let first = starts.min().unwrap_or(file.len());
        contents.spare = file.get(used..first).unwrap_or_default().to_vec();
        contents
    }

    /// Reads pipe data.
    pub(crate) fn pipe(pipe: &[u8]) -> Contents {
        let order = Order::of(pipe);
        let mut contents = Contents {
            order,
            events: Vec::new(),
            features: BTreeMap::new(),
            data: 16..pipe.len(),
            spare: Vec::new(),
            sections: Vec::new(),
        };
        for record in records(&pipe[16..], order) {
            let body = &record.bytes[8..];
            match record.kind {
                HEADER_ATTR => {
                    let size = order.u32(body, 4).max(64) as usize;
                    let ids = body[size..].chunks_exact(8).map(|id| order.u64(id, 0)).collect();
                    contents.events.push((body[..size].to_vec(), ids));
                }
                HEADER_FEATURE if record.is_front => {
                    // After the last one comes a mark: a number above any feature of the writer, and no
                    // content.
                    let (feature, content) = (order.u64(body, 0), &body[8..]);
                    if !content.is_empty() || [15, 19].contains(&feature) {
                        contents.features.insert(feature, content.to_vec());
                    }
                }
                TRACING_DATA => {
                    let length = order.u32(body, 0) as usize;
                    let behind = &record.bytes[record.size..];
                    let payload = if behind.is_empty() { &body[4..4 + length] } else { behind };
                    contents.features.insert(feature::TRACING_DATA, payload.to_vec());
                }
                _ => {}
            }
        }
        contents
    }

    pub(crate) fn records(&self, bytes: &[u8]) -> Vec<Rec> {
        records(&bytes[self.data.clone()], self.order)
    }

    /// Build-ids from any source: pid, id, file name.
    pub(crate) fn build_ids(&self, bytes: &[u8]) -> BTreeSet<(i32, Vec<u8>, Vec<u8>)> {
        let section = self.features.get(&feature::BUILD_ID).map(Vec::as_slice).unwrap_or_default();
        // An entry of the section is a record without its kind.
        let mut entries = Vec::new();
        let mut at = 0;
        while at < section.len() {
            let size = usize::from(self.order.u16(section, at + 6));
            entries.push(section[at..at + size].to_vec());
            at += size;
        }
        let in_data = self.records(bytes).into_iter().filter(|record| record.kind == BUILD_ID);
        entries.extend(in_data.map(|record| record.bytes));
        entries.iter().map(|entry| self.build_id(entry)).collect()
    }

    fn build_id(&self, entry: &[u8]) -> (i32, Vec<u8>, Vec<u8>) {
        // PERF_RECORD_MISC_BUILD_ID_SIZE: byte 20 is the size of the id, which was always 20 before perf
        // 5.11.
        let sized = self.order.u16(entry, 4) & 1 << 15 != 0;
        let size = if sized { usize::from(entry[32]).min(20) } else { 20 };
        let name = entry[36..].split(|&byte| byte == 0).next().unwrap_or_default();
        (self.order.u32(entry, 8) as i32, entry[12..12 + size].to_vec(), name.to_vec())
    }

    /// Why a file does not have perf record's layout: header, ids, attrs, data, feature table and features,
    /// nothing in between and nothing after. `None` if it has.
    pub(crate) fn not_canonical(&self, file: &[u8]) -> Option<&'static str> {
        let order = self.order;
        if &file[..8] == b"PERFFILE" {
            return Some("PERFFILE became PERFILE2 in perf 3.3");
        }
        // perf takes a big-endian file with a longer header for one with BUILD_ID, unless it has HOSTNAME.
        if order.u64(file, 8) != 104 && !order.big {
            return Some("the header of 72 bytes grew to 104");
        }
        if order.big && order.u64(file, 72) & 1 << 3 == 0 && order.u32(file, 72) & 1 << 3 != 0 {
            return Some("the feature bitmap is of a 32-bit machine");
        }
        let attr_size = order.u64(file, 16) as usize;
        let attrs = order.section(file, 24);
        let mut end = 104;
        for entry in file[attrs.clone()].chunks(attr_size) {
            let ids = order.section(entry, attr_size - 16);
            if ids.start != end {
                return Some("ids are not behind the header, in the order of the events");
            }
            end = ids.end;
        }
        if attrs.start != end {
            return Some("attrs are not behind the ids");
        }
        if self.data.start != attrs.end {
            return Some("data is not behind the attrs");
        }
        let aux: Vec<_> = self.records(file).into_iter().filter(|record| record.kind == AUXTRACE).collect();
        let listed = |entry: Range<usize>| {
            aux.iter().any(|record| self.data.start + record.at == entry.start && record.size == entry.len())
        };
        let index = self.features.get(&feature::AUXTRACE).map(Vec::as_slice).unwrap_or_default();
        if !(8..index.len()).step_by(16).all(|at| listed(order.section(index, at))) {
            return Some("the AUXTRACE index names what is no AUXTRACE record");
        }
        let mut end = self.data.end + self.sections.len() * 16 + self.spare.len();
        for section in &self.sections {
            if section.start != end {
                return Some("feature sections are not behind the table, in the order of their bits");
            }
            end = section.end;
        }
        // perf before 3.3 stored its event names here; their position does not matter.
        let event_types = (order.u64(file, 56) as usize, order.u64(file, 64) as usize);
        if event_types != (0, 0) {
            if event_types.0 != end {
                return Some("event types are not behind the last feature section");
            }
            end += event_types.1;
        }
        // Bytes after it stay there.
        (end > file.len()).then_some("the last section is not all there")
    }
}
