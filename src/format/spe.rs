//! Decodes the data of the Arm Statistical Profiling Extension (SPE): packets, and records made from them.
//!
//! A packet is a header of one or two bytes and a payload, little-endian on every machine, of 1 << (bits 4-5
//! of the last header byte) bytes. Sources: Arm Architecture Reference Manual, "The Statistical Profiling
//! Extension Sample Record Specification"; tools/perf/util/arm-spe-decoder.
//!
//! | header | packet |
//! |---|---|
//! | 00 | padding, without a payload |
//! | 01 | the end of a record without a timestamp, without a payload |
//! | 71 | timestamp, at the end of a record |
//! | h & cf = 42 | events |
//! | h & cf = 43 | data source |
//! | h & fc = 48 | operation; bits 0-1 are its class |
//! | h & fc = 64 | context |
//! | h & f8 = 98 | counter; bits 0-2 are its number |
//! | h & f8 = b0 | address; bits 0-2 are its number |
//! | h & fc = 20, 00 | alignment: padding up to a multiple of 2 << (bits 0-1 of the first byte) |
//! | h & fc = 20, other | counter or address; bits 0-1 of the first byte are bits 3-4 of its number |

mod show;

use std::ops::Range;

use crate::Endian;

/// A packet.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Packet {
    /// Bytes without a meaning.
    Padding,
    /// The end of a record without a timestamp.
    End,
    /// The end of a record, with the counter's value.
    Timestamp(u64),
    /// The events of the operation, one bit each ([`events`]).
    Events(u64),
    /// The source of the data; the CPU defines the values.
    DataSource(u16),
    /// The id of the task, which Linux writes into CONTEXTIDR.
    Context(u32),
    /// The kind of operation.
    Operation {
        /// 0 other, 1 load, store or atomic, 2 branch or exception return.
        class: u8,
        /// The details.
        payload: u8,
    },
    /// An address.
    Address {
        /// 0 PC, 1 branch target, 2 virtual and 3 physical address of data, 4 previous branch target.
        number: u8,
        /// The address, with other information in its highest bits.
        payload: u64,
    },
    /// A number of cycles.
    Counter {
        /// 0 total latency, 1 issue latency, 2 translation latency.
        number: u8,
        /// Cycles.
        cycles: u16,
    },
    /// A byte that begins no packet, or one that is cut off.
    Bad,
}

/// The bits of [`Packet::Events`].
#[allow(missing_docs, reason = "the names are those of the manual")]
pub mod events {
    pub const RETIRED: u64 = 1 << 1;
    pub const L1D_ACCESS: u64 = 1 << 2;
    pub const L1D_REFILL: u64 = 1 << 3;
    pub const TLB_ACCESS: u64 = 1 << 4;
    pub const TLB_WALK: u64 = 1 << 5;
    pub const NOT_TAKEN: u64 = 1 << 6;
    pub const MISPREDICTED: u64 = 1 << 7;
    pub const LLC_ACCESS: u64 = 1 << 8;
    pub const LLC_MISS: u64 = 1 << 9;
    pub const REMOTE_ACCESS: u64 = 1 << 10;
    pub const TRANSACTIONAL: u64 = 1 << 16;
    pub const L2D_ACCESS: u64 = 1 << 19;
    pub const L2D_MISS: u64 = 1 << 20;
    pub const CACHE_DATA_MODIFIED: u64 = 1 << 21;
    pub const RECENTLY_FETCHED: u64 = 1 << 22;
    pub const DATA_SNOOPED: u64 = 1 << 23;
}

/// The packets of a piece of AUX data that begins with a packet.
#[derive(Clone, Debug)]
pub struct Packets<'a> {
    data: &'a [u8],
    at: usize,
    base: u64,
}

impl<'a> Packets<'a> {
    /// The packets of `data`, whose first byte was at `base` in the AUX buffer.
    pub fn new(data: &'a [u8], base: u64) -> Packets<'a> {
        Packets { data, at: 0, base }
    }

    /// The number of bytes read so far.
    pub fn position(&self) -> usize {
        self.at
    }

    /// The next packet and its length, bytes; `None` if no packet begins here.
    fn packet(&self) -> Option<(Packet, usize)> {
        let rest = self.data.get(self.at..)?;
        let first = *rest.first()?;
        match first {
            0 => return Some((Packet::Padding, rest.iter().take_while(|&&byte| byte == 0).count())),
            1 => return Some((Packet::End, 1)),
            _ => {}
        }
        let is_extended = first & 0xfc == 0x20;
        let (header, number) = if is_extended {
            let second = *rest.get(1)?;
            (second, (first & 3) << 3 | second & 7)
        } else {
            (first, first & 7)
        };
        if is_extended && header == 0 {
            let alignment = 2_u64 << (first & 3);
            let padding = alignment - (self.base.wrapping_add(self.at as u64) & (alignment - 1));
            return Some((Packet::Padding, rest.len().min(padding.max(2) as usize)));
        }
        let start = 1 + usize::from(is_extended);
        let end = start + (1 << (header >> 4 & 3));
        let mut payload = [0; 8];
        payload[..end - start].copy_from_slice(rest.get(start..end)?);
        let payload = Endian::Little.u64(&payload, 0)?;
        let packet = match header {
            _ if header & 0xf8 == 0xb0 => Packet::Address { number, payload },
            _ if header & 0xf8 == 0x98 => Packet::Counter { number, cycles: payload as u16 },
            _ if is_extended => return None,
            0x71 => Packet::Timestamp(payload),
            _ if header & 0xcf == 0x42 => Packet::Events(payload),
            _ if header & 0xcf == 0x43 => Packet::DataSource(payload as u16),
            _ if header & 0xfc == 0x48 => Packet::Operation { class: header & 3, payload: payload as u8 },
            _ if header & 0xfc == 0x64 => Packet::Context(payload as u32),
            _ => return None,
        };
        Some((packet, end))
    }
}

impl Iterator for Packets<'_> {
    type Item = Packet;

    fn next(&mut self) -> Option<Packet> {
        if self.at >= self.data.len() {
            return None;
        }
        let (packet, len) = self.packet().unwrap_or((Packet::Bad, 1));
        self.at += len;
        Some(packet)
    }
}

/// The details of an operation.
#[derive(Clone, Copy, PartialEq, Eq, Default, Debug)]
#[non_exhaustive]
pub struct Operation {
    /// It read memory.
    pub is_load: bool,
    /// It wrote memory.
    pub is_store: bool,
    /// It processed vectors in registers.
    pub is_vector: bool,
    /// It was a branch or an exception return.
    pub is_branch: bool,
    /// A conditional branch.
    pub is_conditional: bool,
    /// A branch to an address in a register.
    pub is_indirect: bool,
    /// The effect of the branch on the link register, if the CPU reports it.
    pub link: Option<Link>,
    /// Class and payload of its last packet ([`operation_name`], [`operation_details`]).
    pub packet: Option<(u8, u8)>,
}

/// The effect of a branch on the link register.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Link {
    /// It is a call.
    Call,
    /// It is a return.
    Return,
    /// It is neither.
    Neither,
}

impl Operation {
    /// Adds an operation packet; `None` for an unknown class.
    fn add(&mut self, class: u8, payload: u8) -> Option<()> {
        let bit = |number: u8| payload >> number & 1 != 0;
        match class {
            // Bit 2 of a plain operation: Advanced SIMD.
            0 => self.is_vector |= is_sve(payload) || is_sme(payload) || is_plain(payload) && bit(2),
            1 => {
                self.is_store |= bit(0);
                self.is_load |= !bit(0);
            }
            2 => {
                self.is_branch = true;
                self.is_conditional |= bit(0);
                self.is_indirect |= bit(1);
                self.link = match payload >> 3 & 3 {
                    1 => Some(Link::Call),
                    2 => Some(Link::Return),
                    3 => Some(Link::Neither),
                    _ => self.link,
                };
            }
            _ => return None,
        }
        self.packet = Some((class, payload));
        Some(())
    }
}

fn is_plain(payload: u8) -> bool {
    payload & 0xf8 == 0
}

fn is_sve(payload: u8) -> bool {
    payload & 0x89 == 0x08
}

fn is_sme(payload: u8) -> bool {
    payload & 0x89 == 0x88
}

/// The class of an operation in perf's words: `LD`, `ST`, `B` (a branch) or `OTHER`.
pub fn operation_name(class: u8, payload: u8) -> &'static str {
    match class {
        1 if payload & 1 == 0 => "LD",
        1 => "ST",
        2 => "B",
        _ => "OTHER",
    }
}

/// The details of a load, store, branch or other operation, as in `perf report -D` (7.3); may be empty.
pub fn operation_details(class: u8, payload: u8) -> String {
    let flag = |number: u8, word: &str| (payload >> number & 1 != 0).then(|| word.to_owned());
    let word = |word: &str| Some(word.to_owned());
    let length = |name: &str, least: u32, power: u8| Some(format!("{name} {}", least << power));
    let vector_length = |name| length(name, 32, payload >> 4 & 7);
    let words = match class {
        0 if is_plain(payload) => {
            let select = if payload & 1 == 0 { "INSN-OTHER" } else { "COND-SELECT" };
            vec![flag(2, "ASE"), flag(1, "FP"), word(select)]
        }
        0 if is_sve(payload) => vec![vector_length("SVE-OTHER EVLEN"), flag(1, "FP"), flag(2, "PRED")],
        0 if is_sme(payload) => {
            let size = length("SME-OTHER ETS", 128, payload >> 3 & 0xe | payload >> 2 & 1);
            vec![size, flag(1, "FP")]
        }
        1 => match payload & 0xfe {
            0x00 => vec![word("GP-REG")],
            0x04 => vec![word("SIMD-FP")],
            0x10 => vec![word("UNSPEC-REG")],
            0x14 => vec![word("MTE-TAG")],
            0x20 => vec![word("MEMCPY")],
            0x24 if payload & 1 != 0 => vec![word("MEMSET")],
            0x30 => vec![word("NV-SYSREG")],
            0x40 | 0x44 => vec![word("GCS"), flag(2, "COMM")],
            other if other & 0xe2 == 0x02 => vec![flag(2, "AT"), flag(3, "EXCL"), flag(4, "AR")],
            other if other & 0x0a == 0x08 => {
                vec![vector_length("SVE-SME-REG EVLEN"), flag(2, "PRED"), flag(7, "SG")]
            }
            _ => Vec::new(),
        },
        2 => {
            let link = ["", "CR-BL", "CR-RET", "CR-NON-BL-RET"][usize::from(payload >> 3 & 3)];
            let link = word(link).filter(|link| !link.is_empty());
            vec![flag(0, "COND"), flag(1, "IND"), flag(2, "GCS"), link]
        }
        _ => Vec::new(),
    };
    words.into_iter().flatten().collect::<Vec<_>>().join(" ")
}

/// A record: the CPU's report about one operation. A field that it does not report is `None`.
#[derive(Clone, Copy, PartialEq, Eq, Default, Debug)]
#[non_exhaustive]
pub struct SpeRecord {
    /// The counter's value ([`TimeConv::time`](crate::record::time_conv::TimeConv::time)).
    pub timestamp: Option<u64>,
    /// The id of the task.
    pub context: Option<u32>,
    /// The kind of operation.
    pub operation: Operation,
    /// The events of the operation ([`events`]); 0 if not reported.
    pub events: u64,
    /// Address of the instruction.
    pub pc: Option<u64>,
    /// The exception level at which it ran, 0 to 3.
    pub exception_level: Option<u8>,
    /// The target of the branch.
    pub target: Option<u64>,
    /// The target of the branch before it.
    pub previous_target: Option<u64>,
    /// Virtual address of the data.
    pub virtual_address: Option<u64>,
    /// Physical address of the data.
    pub physical_address: Option<u64>,
    /// Cycles from the dispatch to the end of the operation.
    pub latency: Option<u16>,
    /// Cycles from the dispatch to the issue.
    pub issue_latency: Option<u16>,
    /// Cycles that the translation of the virtual address took.
    pub translation_latency: Option<u16>,
    /// The source of the data.
    pub source: Option<u16>,
}

/// Bits 0-55 of an address.
const ADDRESS: u64 = (1 << 56) - 1;
const KERNEL: u64 = !ADDRESS;

/// The address of an instruction: a kernel's at exception levels 1 and 2 (bits 61-62), non-secure (bit 63).
fn code_address(payload: u64) -> u64 {
    let is_kernel = payload >> 63 == 1 && matches!(exception_level(payload), 1 | 2);
    payload & ADDRESS | if is_kernel { KERNEL } else { 0 }
}

fn exception_level(payload: u64) -> u8 {
    (payload >> 61 & 3) as u8
}

/// The virtual address of data: the highest byte is a tag.
fn data_address(payload: u64) -> u64 {
    let is_kernel = payload >> 52 & 15 == 15;
    payload & ADDRESS | if is_kernel { KERNEL } else { 0 }
}

/// Assembles records from packets, also across pieces of data.
#[derive(Clone, Debug, Default)]
pub struct Records {
    record: SpeRecord,
    /// True from a bad byte to the end of the record that it is in.
    is_broken: bool,
    /// The number of bytes that belong to no packet.
    pub bad_bytes: u64,
    /// The number of records that were dropped because a part of them was unreadable.
    pub broken: u64,
}

impl Records {
    /// Adds the next packet; returns the record that it ends.
    pub fn push(&mut self, packet: Packet) -> Option<SpeRecord> {
        let record = &mut self.record;
        match packet {
            Packet::Padding => {}
            Packet::End => return self.end(),
            Packet::Timestamp(counter) => {
                record.timestamp = Some(counter);
                return self.end();
            }
            Packet::Events(bits) => record.events = bits,
            Packet::DataSource(source) => record.source = Some(source),
            Packet::Context(id) => record.context = Some(id),
            Packet::Operation { class, payload } => {
                self.is_broken |= record.operation.add(class, payload).is_none();
            }
            Packet::Address { number, payload } => match number {
                0 => {
                    record.pc = Some(code_address(payload));
                    record.exception_level = Some(exception_level(payload));
                }
                1 => record.target = Some(code_address(payload)),
                2 => record.virtual_address = Some(data_address(payload)),
                3 => record.physical_address = Some(payload & ADDRESS),
                4 => record.previous_target = Some(code_address(payload)),
                _ => {}
            },
            Packet::Counter { number, cycles } => match number {
                0 => record.latency = Some(cycles),
                1 => record.issue_latency = Some(cycles),
                2 => record.translation_latency = Some(cycles),
                _ => {}
            },
            Packet::Bad => {
                self.bad_bytes += 1;
                self.is_broken = true;
            }
        }
        None
    }

    fn end(&mut self) -> Option<SpeRecord> {
        let record = std::mem::take(&mut self.record);
        if std::mem::take(&mut self.is_broken) {
            self.broken += 1;
            return None;
        }
        Some(record)
    }
}

/// The records of a piece of AUX data that begins with one, and their ranges; `None` for a broken one.
/// Padding before a record is not part of it.
pub fn pieces(data: &[u8], base: u64) -> impl Iterator<Item = (Range<usize>, Option<SpeRecord>)> {
    let (mut packets, mut records) = (Packets::new(data, base), Records::default());
    std::iter::from_fn(move || {
        let mut start = None;
        loop {
            let at = packets.position();
            let packet = packets.next()?;
            if packet == Packet::Padding && start.is_none() {
                continue;
            }
            let start = *start.get_or_insert(at);
            let record = records.push(packet);
            if matches!(packet, Packet::End | Packet::Timestamp(_)) {
                return Some((start..packets.position(), record));
            }
        }
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn bytes(hex: &str) -> Vec<u8> {
        hex.split_whitespace().map(|byte| u8::from_str_radix(byte, 16).unwrap()).collect()
    }

    fn records(data: &[u8]) -> (Vec<SpeRecord>, Records) {
        let mut records = Records::default();
        (Packets::new(data, 0).filter_map(|packet| records.push(packet)).collect(), records)
    }

    #[test]
    fn records_of_a_load_and_of_a_branch() {
        // The two records with which perf_data_converter tests its decoder.
        let load = bytes(
            "b0 d0 c2 a1 ed 66 ba ff c0 00 00 00 00 00 65 80 5f 00 00 49 00 52 16 00 99 04 00 98 0c 00 \
             b2 28 6b 09 03 37 0e ff 00 9a 01 00 00 00 00 00 00 00 00 00 43 00 00 00 71 2e 65 2f 6a 0a 00 00 00",
        );
        let branch = bytes(
            "b0 e0 b0 ef ed 66 ba ff c0 65 0e 00 00 00 4a 01 52 42 00 99 10 00 98 11 00 \
             b1 e4 b0 ef ed 66 ba ff c0 71 8d 65 2f 6a 0a 00 00 00",
        );
        let (found, state) = records(&[load, branch].concat());
        let load = SpeRecord {
            timestamp: Some(44_731_163_950),
            context: Some(0x5f80),
            operation: Operation { is_load: true, packet: Some((1, 0)), ..Operation::default() },
            events: 0x16,
            pc: Some(0xffff_ba66_eda1_c2d0),
            exception_level: Some(2),
            virtual_address: Some(0xffff_0e37_0309_6b28),
            latency: Some(12),
            issue_latency: Some(4),
            translation_latency: Some(1),
            source: Some(0),
            ..SpeRecord::default()
        };
        let packet = Some((2, 1));
        let operation = Operation { is_branch: true, is_conditional: true, packet, ..Operation::default() };
        let branch = SpeRecord {
            timestamp: Some(44_731_164_045),
            context: Some(14),
            operation,
            events: 0x42,
            pc: Some(0xffff_ba66_edef_b0e0),
            exception_level: Some(2),
            target: Some(0xffff_ba66_edef_b0e4),
            latency: Some(17),
            issue_latency: Some(16),
            ..SpeRecord::default()
        };
        assert_eq!(found, [load, branch]);
        assert_eq!((state.bad_bytes, state.broken), (0, 0));
    }

    #[test]
    fn a_bad_byte_breaks_only_its_record() {
        // An unassigned header, a class of operation that does not exist, and a payload without room.
        let (found, state) =
            records(&bytes("98 01 00 ff 98 02 00 01 98 03 00 01 4b 00 01 98 04 00 01 b0 00"));
        assert_eq!(found.iter().map(|record| record.latency).collect::<Vec<_>>(), [Some(3), Some(4)]);
        assert_eq!((state.bad_bytes, state.broken), (2, 2));
    }

    #[test]
    fn pieces_are_records_without_padding() {
        let data = bytes("00 98 01 00 01 00 00 98 02 00 00 01 ff 01 98 03");
        let found: Vec<_> = pieces(&data, 0)
            .map(|(range, record)| (range, record.and_then(|record| record.latency)))
            .collect();
        assert_eq!(found, [(1..5, Some(1)), (7..12, Some(2)), (12..14, None)]);
    }

    #[test]
    fn alignment_counts_from_the_start_of_the_buffer() {
        // Up to a multiple of 8; the data begins at 3.
        let data = bytes("22 00 ff ff ff 98 01 00 01");
        let mut packets = Packets::new(&data, 3);
        assert_eq!((packets.next(), packets.position()), (Some(Packet::Padding), 5));
        assert_eq!(packets.next(), Some(Packet::Counter { number: 0, cycles: 1 }));
        assert_eq!(Packets::new(&bytes("23 00"), 0).collect::<Vec<_>>(), [Packet::Padding]);
    }

    #[test]
    fn an_extended_header_has_a_larger_number() {
        let data = bytes("21 9a 07 00 20 b4 01 00 00 00 00 00 00 00 20 42 01");
        let counter = Packet::Counter { number: 10, cycles: 7 };
        let address = Packet::Address { number: 4, payload: 1 };
        let first: Vec<_> = Packets::new(&data, 0).take(3).collect();
        assert_eq!(first, [counter, address, Packet::Bad]);
    }
}
