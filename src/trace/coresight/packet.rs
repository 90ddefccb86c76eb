//! Packets of ETMv4 and ETE, one at a time.
//!
//! The first byte determines the kind. Numbers of any length have 7 bits in each byte, and bit 7 set in all
//! but the last. Source: Arm Embedded Trace Macrocell Architecture Specification ETMv4 (IHI 0064),
//! "Descriptions of Trace Packets".
//!
//! | first byte | packet |
//! |---|---|
//! | 00 | eleven times and then 80: A-Sync; then 03: Discard, 05: Overflow |
//! | 01 | Trace Info: a number that says which others follow: 1 what is traced, 2 key, 4 speculative elements, 8 threshold, 10 window |
//! | 02, 03 | Timestamp: 1 to 9 bytes, the ninth with 8 bits; 03: a number of cycles |
//! | 04 | Trace On |
//! | 05, 07 | Function Return, Exception Return |
//! | 06 | Exception: bits 0 and 6 what its address means, 1-5 its type; bit 7: a byte follows |
//! | 09, 0a, 0b | ETE: Instrumentation (9 bytes), transaction began, transaction was committed |
//! | 0c-1f | Cycle Count: 0e, 0f format 1, 0c, 0d format 2, 10-1f format 3 |
//! | 20-2c | data synchronization markers |
//! | 2d; 2e, 2f; 30-33; 34-37; 38-3f | Commit; Cancel 1; Mispredict; Cancel 2; Cancel 3 |
//! | 40-6f | conditional instructions that are not branches |
//! | 70; 71-7f; 88 | Ignore; Event; Timestamp Marker |
//! | 80, 81 | Context: the same, or bits 0-1 exception level, 4 64 bits, 5 non-secure, 6 VMID follows, 7 context id follows |
//! | 82, 83; 85, 86 | Address of 32; of 64 bits, and a Context |
//! | 90-92; 95, 96; 9a, 9b; 9d, 9e | Address: one of the last three; short; 32 bits; 64 bits |
//! | a0-af | Q |
//! | b0-b2; b4, b5; b6, b7; b8, b9 | ETE: Source Address, as those above |
//! | c0-ff | atoms |

use super::{Config, ContextId};
use crate::bytes::{Cursor, LONGEST, Trace};
use crate::image::{Space, Switch};

#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum Packet {
    Sync,
    Info {
        /// Elements before it that are neither committed nor cancelled.
        speculative: u32,
    },
    /// The time, usually in ticks of the generic timer.
    Timestamp(u64),
    On,
    Exception {
        /// The address that follows is also the target of the preceding branch.
        is_target: bool,
        /// The exception number of the trace unit's architecture.
        number: u16,
    },
    Reset,
    /// This many of the oldest elements were executed.
    Commit(u32),
    /// The `count` youngest elements were not executed.
    Cancel {
        count: u32,
        /// The youngest remaining atom is inverted, and these atoms follow.
        mispredicted: bool,
        atoms: Atoms,
    },
    Context(Context),
    Address {
        address: Address,
        context: Option<Context>,
    },
    Source(Address),
    /// A number of instructions, if known, was executed up to an address.
    Q {
        count: Option<u32>,
        to: Option<Address>,
    },
    Atoms(Atoms),
    Overflow,
    /// The trace unit was switched off before it emitted all elements.
    Discard,
    /// A packet that does not affect the flow.
    Other,
    Bad,
    Cut,
}

/// Branches, the oldest in the lowest of `count` bits; 1 is taken.
#[derive(Clone, Copy, PartialEq, Eq, Default, Debug)]
pub(super) struct Atoms {
    pub(super) bits: u32,
    pub(super) count: u32,
}

#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) struct Address {
    /// `None` if it depends on addresses that were lost.
    pub(super) ip: Option<u64>,
    /// True for T32 (16-bit) instructions.
    is_thumb: bool,
}

#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) struct Context {
    pub(super) is_64: bool,
    /// CONTEXTIDR_EL1.
    pub(super) id: Option<u32>,
    /// VMID, or CONTEXTIDR_EL2.
    pub(super) vmid: Option<u32>,
}

impl Address {
    /// True if the instructions there are those of AArch64, whose addresses are multiples of 4.
    pub(super) fn is_a64(self) -> bool {
        !self.is_thumb
    }
}

/// The space that a context names, else `before`; if contexts name none, that of the last switch.
pub(super) fn space(
    config: &Config,
    context: Option<Context>,
    before: Option<Space>,
    (switches, now): (&[Switch], u64),
) -> Option<Space> {
    let Some(which) = config.context else {
        let done = switches.partition_point(|switch| switch.time <= now);
        return done.checked_sub(1).and_then(|at| switches[at].space);
    };
    let named = context.and_then(|context| match which {
        ContextId::El1 => context.id,
        ContextId::El2 => context.vmid,
    });
    named.map(Space).or(before)
}

#[derive(Clone, Debug)]
pub(super) struct Packets<'a> {
    cursor: Cursor<'a>,
    config: &'a Config,
    /// The last addresses, used to decompress addresses; the youngest first.
    last: [Address; 3],
    timestamp: u64,
}

enum Broken {
    Bad,
    Cut,
}

const ZERO: Address = Address { ip: Some(0), is_thumb: false };
const LOST: Address = Address { ip: None, is_thumb: false };

const SYNC_ZEROS: u32 = 11;
const SYNC_END: u8 = 0x80;

/// Exceptions of ETE that have no address.
pub(super) const RESET: u16 = 0;
const TRANSACTION_FAILED: u16 = 0x18;

impl<'a> Packets<'a> {
    /// Reads from an offset on, where an A-Sync should be.
    pub(super) fn new(trace: &'a Trace<'_>, config: &'a Config, at: u64) -> Packets<'a> {
        Packets { cursor: trace.cursor(at), config, last: [ZERO; 3], timestamp: 0 }
    }

    pub(super) fn offset(&self) -> u64 {
        self.cursor.offset()
    }

    pub(super) fn head(&self) -> [u8; LONGEST] {
        self.cursor.window().0
    }

    /// The next packet; `None` at the end of the trace. After one that is bad or cut off, do not read on.
    #[inline(always)]
    pub(super) fn next(&mut self) -> Option<Packet> {
        let first = self.cursor.byte()?;
        if first >= 0xc0 {
            return Some(Packet::Atoms(atoms(first)));
        }
        match self.read(first) {
            Ok(packet) => packet,
            Err(Broken::Bad) => Some(Packet::Bad),
            Err(Broken::Cut) => Some(Packet::Cut),
        }
    }

    fn byte(&mut self) -> Result<u8, Broken> {
        self.cursor.byte().ok_or(Broken::Cut)
    }

    fn number(&mut self, most: u32) -> Result<u32, Broken> {
        let mut value = 0;
        for at in 0..most {
            let byte = self.byte()?;
            value |= u32::from(byte & 0x7f) << (7 * at);
            if byte & 0x80 == 0 {
                return Ok(value);
            }
        }
        Err(Broken::Bad)
    }

    fn word(&mut self) -> Result<u32, Broken> {
        self.number(5)
    }

    fn little(&mut self, bytes: u32) -> Result<u64, Broken> {
        let mut value = 0;
        for at in 0..bytes {
            value |= u64::from(self.byte()?) << (8 * at);
        }
        Ok(value)
    }

    fn read(&mut self, first: u8) -> Result<Option<Packet>, Broken> {
        let is_ete = self.config.is_ete;
        Ok(Some(match first {
            0x00 => return self.extension(),
            0x01 => self.info()?,
            0x02 | 0x03 => self.timestamp(first)?,
            0x04 => Packet::On,
            0x06 => self.exception()?,
            0x09 if is_ete => {
                // The exception level, and its value.
                self.byte()?;
                self.little(8)?;
                Packet::Other
            }
            0x0a | 0x0b if is_ete => Packet::Other,
            0x05 | 0x70..=0x7f | 0x88 => Packet::Other,
            0x07 if !is_ete => Packet::Other,
            0x0c..=0x1f => self.cycles(first)?,
            0x20..=0x2c => Packet::Other,
            0x2d => Packet::Commit(self.word()?),
            0x2e | 0x2f => {
                Packet::Cancel { count: self.word()?, mispredicted: first & 1 != 0, atoms: Atoms::default() }
            }
            0x30..=0x37 => {
                let atoms = match first & 3 {
                    1 => Atoms { bits: 1, count: 1 },
                    2 => Atoms { bits: 0b11, count: 2 },
                    3 => Atoms { bits: 0, count: 1 },
                    _ => Atoms::default(),
                };
                Packet::Cancel { count: u32::from(first >> 2 & 1), mispredicted: true, atoms }
            }
            0x38..=0x3f => {
                let atoms = Atoms { bits: 1, count: u32::from(first & 1) };
                Packet::Cancel { count: u32::from(first >> 1 & 3) + 2, mispredicted: true, atoms }
            }
            0x40..=0x46 | 0x48..=0x4a | 0x4c..=0x4e => Packet::Other,
            0x50..=0x5f | 0x6d => {
                self.byte()?;
                Packet::Other
            }
            0x68..=0x6b => {
                self.word()?;
                self.word()?;
                Packet::Other
            }
            0x6c | 0x6e | 0x6f => {
                self.word()?;
                Packet::Other
            }
            0x80 => Packet::Other,
            0x81 => Packet::Context(self.context()?),
            0x82 | 0x83 => self.address_and_context(Form::Low, first == 0x83)?,
            0x85 | 0x86 => self.address_and_context(Form::Full, first == 0x86)?,
            0x90..=0x92 | 0x95 | 0x96 | 0x9a | 0x9b | 0x9d | 0x9e => {
                let (form, is_thumb) = match first {
                    0x90..=0x92 => (Form::Match(first & 3), false),
                    0x95 | 0x96 => (Form::Short, first == 0x96),
                    0x9a | 0x9b => (Form::Low, first == 0x9b),
                    _ => (Form::Full, first == 0x9e),
                };
                Packet::Address { address: self.address(form, is_thumb)?, context: None }
            }
            0xa0..=0xaf => self.q(first & 0xf)?,
            0xb0..=0xb2 | 0xb4..=0xb9 if is_ete => {
                let form = match first {
                    0xb0..=0xb2 => Form::Match(first & 3),
                    0xb4 | 0xb5 => Form::Short,
                    0xb6 | 0xb7 => Form::Low,
                    _ => Form::Full,
                };
                Packet::Source(self.address(form, first & 1 != 0)?)
            }
            _ => return Err(Broken::Bad),
        }))
    }

    fn extension(&mut self) -> Result<Option<Packet>, Broken> {
        let mut zeros = 1;
        loop {
            // Zeros at the end fill the buffer.
            let Some(byte) = self.cursor.byte() else { return Ok(None) };
            return match (zeros, byte) {
                (_, 0) => {
                    zeros += 1;
                    continue;
                }
                (1, 3) => Ok(Some(Packet::Discard)),
                (1, 5) => {
                    self.last = [LOST; 3];
                    Ok(Some(Packet::Overflow))
                }
                (SYNC_ZEROS.., SYNC_END) => Ok(Some(Packet::Sync)),
                _ => Err(Broken::Bad),
            };
        }
    }

    fn info(&mut self) -> Result<Packet, Broken> {
        let which = self.word()?;
        let mut speculative = 0;
        for section in 0..5 {
            if which >> section & 1 != 0 {
                let value = self.word()?;
                if section == 2 {
                    speculative = value;
                }
            }
        }
        // Later addresses do not depend on earlier ones.
        self.last = [ZERO; 3];
        self.timestamp = 0;
        Ok(Packet::Info { speculative })
    }

    fn timestamp(&mut self, first: u8) -> Result<Packet, Broken> {
        let (mut value, mut bits) = (0, 0);
        loop {
            let byte = self.byte()?;
            if bits == 56 {
                (value, bits) = (value | u64::from(byte) << bits, 64);
                break;
            }
            value |= u64::from(byte & 0x7f) << bits;
            bits += 7;
            if byte & 0x80 == 0 {
                break;
            }
        }
        if first & 1 != 0 {
            self.number(3)?;
        }
        self.timestamp = replace_low(self.timestamp, value, bits);
        Ok(Packet::Timestamp(self.timestamp))
    }

    fn exception(&mut self) -> Result<Packet, Broken> {
        let byte = self.byte()?;
        let mut kind = u16::from(byte >> 1 & 0x1f);
        let is_ete = self.config.is_ete;
        if byte & 0x80 != 0 {
            kind |= u16::from(self.byte()? & 0x1f) << 5;
        } else if is_ete && [RESET, TRANSACTION_FAILED].contains(&kind) {
            self.byte()?;
        }
        Ok(match kind {
            RESET if is_ete => Packet::Reset,
            TRANSACTION_FAILED if is_ete => Packet::Other,
            _ => Packet::Exception { is_target: byte & 0x41 == 0x40, number: kind },
        })
    }

    /// Reads a cycle count: cycles between two commits.
    fn cycles(&mut self, first: u8) -> Result<Packet, Broken> {
        let commits = self.config.commits_with_cycles;
        let commit = match first {
            0x0e | 0x0f => {
                let commit = if commits { self.word()? } else { 0 };
                if first == 0x0e {
                    self.number(3)?;
                }
                commit
            }
            0x0c => u32::from(self.byte()? >> 4) + 1,
            0x0d => (u32::from(self.byte()? >> 4) + self.config.most_speculative).saturating_sub(15),
            _ => u32::from(first >> 2 & 3) + 1,
        };
        Ok(if commits { Packet::Commit(commit) } else { Packet::Other })
    }

    fn context(&mut self) -> Result<Context, Broken> {
        let info = self.byte()?;
        let vmid = self.id(info >> 6 & 1 != 0, self.config.vmid_bytes)?;
        let id = self.id(info >> 7 != 0, self.config.context_id_bytes)?;
        Ok(Context { is_64: info & 0x10 != 0, id, vmid })
    }

    fn id(&mut self, is_there: bool, bytes: u8) -> Result<Option<u32>, Broken> {
        if !is_there || bytes == 0 {
            return Ok(None);
        }
        Ok(Some(self.little(u32::from(bytes))? as u32))
    }

    fn address_and_context(&mut self, form: Form, is_thumb: bool) -> Result<Packet, Broken> {
        let address = self.address(form, is_thumb)?;
        Ok(Packet::Address { address, context: Some(self.context()?) })
    }

    fn address(&mut self, form: Form, is_thumb: bool) -> Result<Address, Broken> {
        // The number of address bits that are 0.
        let low = if is_thumb { 1 } else { 2 };
        let address = match form {
            Form::Match(at) => self.last[usize::from(at)],
            Form::Short => {
                let byte = self.byte()?;
                let mut value = u64::from(byte & 0x7f) << low;
                let mut bits = 7 + low;
                if byte & 0x80 != 0 {
                    value |= u64::from(self.byte()?) << bits;
                    bits += 8;
                }
                self.replaced(value, bits, is_thumb)
            }
            Form::Low => {
                let value = self.two_bytes(low)? | self.little(2)? << 16;
                self.replaced(value, 32, is_thumb)
            }
            Form::Full => {
                let value = self.two_bytes(low)? | self.little(6)? << 16;
                Address { ip: Some(value), is_thumb }
            }
        };
        self.last = [address, self.last[0], self.last[1]];
        Ok(address)
    }

    /// Reads the lowest 16 bits of an address; the lowest `low` bits are 0 and not stored.
    fn two_bytes(&mut self, low: u32) -> Result<u64, Broken> {
        let first = u64::from(self.byte()? & 0x7f) << low;
        let second = u64::from(self.byte()?) << (7 + low);
        Ok((first | second) & 0xffff)
    }

    fn replaced(&self, value: u64, bits: u32, is_thumb: bool) -> Address {
        Address { ip: self.last[0].ip.map(|last| replace_low(last, value, bits)), is_thumb }
    }

    fn q(&mut self, kind: u8) -> Result<Packet, Broken> {
        let to = match kind {
            0..=2 => Some(self.address(Form::Match(kind), false)?),
            5 | 6 => Some(self.address(Form::Short, kind == 6)?),
            10 | 11 => Some(self.address(Form::Low, kind == 11)?),
            12 | 15 => None,
            _ => return Err(Broken::Bad),
        };
        let count = if kind == 15 { None } else { Some(self.word()?) };
        Ok(Packet::Q { count, to })
    }
}

#[derive(Clone, Copy)]
enum Form {
    /// One of the last three.
    Match(u8),
    /// The lowest bits, in one or two bytes.
    Short,
    Low,
    Full,
}

/// Replaces the lowest bits of `last` by `value`.
fn replace_low(last: u64, value: u64, bits: u32) -> u64 {
    let mask = u64::MAX.checked_shl(bits).unwrap_or(0);
    last & mask | value & !mask
}

#[inline(always)]
fn atoms(byte: u8) -> Atoms {
    let (bits, count) = match byte {
        0xf8..=0xff => (u32::from(byte & 7), 3),
        0xf6 | 0xf7 => (u32::from(byte & 1), 1),
        0xd8..=0xdb => (u32::from(byte & 3), 2),
        0xdc => (0b1110, 4),
        0xdd => (0b0000, 4),
        0xde => (0b1010, 4),
        0xdf => (0b0101, 4),
        0xf5 => (0b11110, 5),
        0xd5 => (0b00000, 5),
        0xd6 => (0b01010, 5),
        0xd7 => (0b10101, 5),
        // 3 to 23 taken ones, and a last one that is taken unless bit 5 is set.
        _ => {
            let taken = u32::from(byte & 0x1f) + 3;
            ((1 << (taken + u32::from(byte & 0x20 == 0))) - 1, taken + 1)
        }
    };
    Atoms { bits, count }
}

/// The offset of the first A-Sync at or after `at`; zeros before it may belong to it.
pub(super) fn find_sync(trace: &Trace<'_>, at: u64) -> Option<u64> {
    let mut cursor = trace.cursor(at);
    let mut zeros = 0u32;
    loop {
        match cursor.byte()? {
            0 => zeros = zeros.saturating_add(1),
            SYNC_END if zeros >= SYNC_ZEROS => return Some(cursor.offset() - u64::from(SYNC_ZEROS) - 1),
            _ => zeros = 0,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::super::Registers;
    use super::*;

    /// An ETMv4, or an ETE, with context ids of four bytes, VMIDs of one, and cycle counts that commit.
    fn config(is_ete: bool) -> Config {
        let (context_id_bytes, vmid_bytes, most_speculative) = (4, 1, 20);
        Config {
            context_id_bytes,
            vmid_bytes,
            most_speculative,
            ..Config::new(&Registers::default(), is_ete)
        }
    }

    fn packets_of(bytes: &[u8], config: &Config) -> Vec<Packet> {
        let trace = Trace::new(vec![bytes], Vec::new());
        let mut packets = Packets::new(&trace, config, 0);
        std::iter::from_fn(|| packets.next()).take(bytes.len()).collect()
    }

    fn packets(bytes: &[u8]) -> Vec<Packet> {
        packets_of(bytes, &config(false))
    }

    fn at(ip: u64, is_thumb: bool) -> Address {
        Address { ip: Some(ip), is_thumb }
    }

    fn address(ip: u64, is_thumb: bool) -> Packet {
        Packet::Address { address: at(ip, is_thumb), context: None }
    }

    #[test]
    fn an_address_completes_the_last_ones() {
        let full = [0x9d, 0x41, 0x05, 0x40, 0, 0, 0, 0xff, 0xff];
        let (last, thumb) = (0xffff_0000_0040_0b04, 0xffff_0000_1234_03a2);
        let found = |more: &[u8]| packets(&[&full[..], more].concat()).split_off(1);
        assert_eq!(packets(&full), [address(last, false)]);
        assert_eq!(found(&[0x95, 0x03]), [address(0xffff_0000_0040_0a0c, false)]);
        assert_eq!(found(&[0x95, 0x83, 0x11]), [address(0xffff_0000_0040_220c, false)]);
        assert_eq!(found(&[0x96, 0x83, 0x11]), [address(0xffff_0000_0040_1106, true)]);
        assert_eq!(found(&[0x9a, 0x51, 0x81, 0x34, 0x12]), [address(0xffff_0000_1234_0344, false)]);
        // One of the last three, the youngest first.
        let found_again = found(&[0x9b, 0x51, 0x03, 0x34, 0x12, 0x91, 0x91, 0x92, 0x90]);
        assert_eq!(
            found_again,
            [(thumb, true), (last, false), (thumb, true), (thumb, true), (thumb, true)]
                .map(|(ip, is_thumb)| address(ip, is_thumb))
        );
        // After lost data only a whole address is known.
        let lost = Packet::Address { address: LOST, context: None };
        assert_eq!(found(&[0, 5, 0x90, 0x95, 0x03]), [Packet::Overflow, lost, lost]);
        assert_eq!(found(&[0, 5, 0x9e, 1, 0, 0, 0, 0, 0, 0, 0]), [Packet::Overflow, address(2, true)]);
        assert_eq!(found(&[0x9d, 1, 2, 3]), [Packet::Cut]);
    }

    #[test]
    fn a_context_may_follow_an_address() {
        let context = |is_64, id, vmid| Context { is_64, id, vmid };
        let both = context(true, Some(0x0403_0201), Some(9));
        assert_eq!(packets(&[0x81, 0xd0, 9, 1, 2, 3, 4]), [Packet::Context(both)]);
        assert_eq!(packets(&[0x81, 0x4f, 9]), [Packet::Context(context(false, None, Some(9)))]);
        assert_eq!(
            packets(&[0x81, 0x80, 1, 2, 3, 4]),
            [Packet::Context(context(false, Some(0x0403_0201), None))]
        );
        let without = Config { vmid_bytes: 0, context_id_bytes: 0, ..config(false) };
        assert_eq!(
            packets_of(&[0x81, 0xd0, 4], &without),
            [Packet::Context(context(true, None, None)), Packet::On]
        );
        let low = [0x41, 0x05, 0x40, 0, 0x10];
        let full = [0x41, 0x05, 0x40, 0, 0, 0, 0xff, 0xff, 0x10];
        for (first, rest, address) in [
            (0x82, &low[..], at(0x40_0b04, false)),
            (0x83, &low, at(0x40_0582, true)),
            (0x85, &full, at(0xffff_0000_0040_0b04, false)),
            (0x86, &full, at(0xffff_0000_0040_0582, true)),
        ] {
            let context = Some(context(true, None, None));
            assert_eq!(packets(&[&[first], rest].concat()), [Packet::Address { address, context }]);
        }
    }

    #[test]
    fn timestamps_replace_the_low_bits_and_may_have_a_count_of_cycles() {
        let times = [0x02, 0x81, 0x02, 0x02, 0x05, 0x03, 0x06, 0x80, 0x01, 0x04];
        let expected = [0x101, 0x105, 0x106].map(Packet::Timestamp);
        assert_eq!(packets(&times), [&expected[..], &[Packet::On]].concat());
        let nine = [&[0x02][..], &[0xff; 8], &[0xfe, 0x04]].concat();
        assert_eq!(packets(&nine), [Packet::Timestamp(0xfeff_ffff_ffff_ffff), Packet::On]);
        // Trace Info starts anew; of its numbers, the third is that of speculative elements.
        let info = [0x02, 0x81, 0x02, 0x01, 0x1f, 1, 2, 0x85, 0x01, 3, 4, 0x02, 0x05];
        assert_eq!(
            packets(&info),
            [Packet::Timestamp(0x101), Packet::Info { speculative: 133 }, Packet::Timestamp(5)]
        );
        assert_eq!(packets(&[0x01, 0x02, 7]), [Packet::Info { speculative: 0 }]);
        assert_eq!(
            packets(&[0x01, 0x80, 0x80, 0x80, 0x80, 0x80]),
            [Packet::Bad],
            "five bytes are the longest"
        );
    }

    #[test]
    fn elements_are_committed_and_cancelled_as_counts_say() {
        for (bytes, expected) in [
            (&[0x0e, 5, 7][..], 5),
            (&[0x0f, 5], 5),
            (&[0x0c, 0x25], 3),
            (&[0x0d, 0x25], 7),
            (&[0x10], 1),
            (&[0x1b], 3),
            (&[0x1f], 4),
            (&[0x2d, 0x83, 0x01], 131),
        ] {
            assert_eq!(packets(bytes), [Packet::Commit(expected)], "{bytes:x?}");
        }
        let apart = Config { commits_with_cycles: false, ..config(false) };
        assert_eq!(packets_of(&[0x0e, 7, 0x0f, 0x0c, 1, 0x10], &apart), [Packet::Other; 4]);
        let cancel = |count, mispredicted, bits, of_atoms| {
            [Packet::Cancel { count, mispredicted, atoms: Atoms { bits, count: of_atoms } }]
        };
        assert_eq!(packets(&[0x2e, 3]), cancel(3, false, 0, 0));
        assert_eq!(packets(&[0x2f, 3]), cancel(3, true, 0, 0));
        assert_eq!(packets(&[0x30]), cancel(0, true, 0, 0));
        assert_eq!(packets(&[0x31]), cancel(0, true, 1, 1));
        assert_eq!(packets(&[0x36]), cancel(1, true, 3, 2));
        assert_eq!(packets(&[0x37]), cancel(1, true, 0, 1));
        assert_eq!(packets(&[0x38]), cancel(2, true, 1, 0));
        assert_eq!(packets(&[0x3d]), cancel(4, true, 1, 1));
    }

    #[test]
    fn exceptions_have_a_number_and_say_what_their_address_means() {
        let exception = |is_target, number| [Packet::Exception { is_target, number }];
        assert_eq!(packets(&[0x06, 0x42]), exception(true, 1));
        assert_eq!(packets(&[0x06, 0xc3, 0xe2]), exception(false, 65));
        assert_eq!(packets(&[0x06, 0x30]), exception(false, 0x18));
        assert_eq!(packets(&[0x06, 0x00]), exception(false, 0));
        let ete = config(true);
        assert_eq!(
            packets_of(&[0x06, 0x00, 0, 0x06, 0x30, 0, 0x04], &ete),
            [Packet::Reset, Packet::Other, Packet::On]
        );
        assert_eq!(packets_of(&[0x06, 0x42, 0x04], &ete), [exception(true, 1)[0], Packet::On]);
    }

    #[test]
    fn packets_that_do_not_affect_the_flow_are_passed_over_whole() {
        let plain = [0x05, 0x20, 0x2c, 0x40, 0x46, 0x48, 0x4a, 0x4c, 0x4e, 0x70, 0x7f, 0x80, 0x88];
        assert_eq!(packets(&plain), [Packet::Other; 13]);
        for long in [
            &[0x50, 9][..],
            &[0x5f, 9],
            &[0x6d, 9],
            &[0x68, 0x81, 1, 2],
            &[0x6b, 1, 2],
            &[0x6c, 0x81, 1],
            &[0x6f, 9],
        ] {
            assert_eq!(packets(&[long, &[0x04]].concat()), [Packet::Other, Packet::On], "{long:x?}");
        }
        for bad in [0x08, 0x47, 0x4b, 0x4f, 0x60, 0x84, 0x93, 0x9f, 0xa3, 0xba, 0xbf] {
            assert_eq!(packets(&[bad])[0], Packet::Bad, "{bad:x}");
        }
        // The same bytes mean other packets in ETE.
        let ete = config(true);
        let instrumentation = [0x09, 1, 2, 3, 4, 5, 6, 7, 8, 9, 0x0a, 0x0b, 0x04];
        assert_eq!(
            packets_of(&instrumentation, &ete),
            [Packet::Other, Packet::Other, Packet::Other, Packet::On]
        );
        assert_eq!((packets_of(&[0x07], &ete)[0], packets(&[0x07])[0]), (Packet::Bad, Packet::Other));
        for only in [0x09, 0x0a, 0x0b, 0xb0, 0xb4, 0xb9] {
            assert_eq!(packets(&[only])[0], Packet::Bad, "{only:x}");
        }
        for (bytes, address) in [
            (&[0xb1][..], ZERO),
            (&[0xb4, 3], at(0xc, false)),
            (&[0xb5, 3], at(6, true)),
            (&[0xb6, 1, 2, 3, 0], at(0x3_0404, false)),
            (&[0xb7, 1, 2, 3, 0], at(0x3_0202, true)),
            (&[0xb8, 1, 2, 3, 0, 0, 0, 0, 1], at(0x100_0000_0003_0404, false)),
            (&[0xb9, 1, 2, 3, 0, 0, 0, 0, 1], at(0x100_0000_0003_0202, true)),
        ] {
            assert_eq!(packets_of(bytes, &ete), [Packet::Source(address)]);
        }
    }

    #[test]
    fn q_counts_instructions_up_to_an_address() {
        for (bytes, count, to) in [
            (&[0xa1, 5][..], Some(5), Some(ZERO)),
            (&[0xa5, 3, 7], Some(7), Some(at(0xc, false))),
            (&[0xa6, 3, 7], Some(7), Some(at(6, true))),
            (&[0xaa, 1, 2, 3, 0, 7], Some(7), Some(at(0x3_0404, false))),
            (&[0xab, 1, 2, 3, 0, 7], Some(7), Some(at(0x3_0202, true))),
            (&[0xac, 0x87, 1], Some(135), None),
            (&[0xaf], None, None),
        ] {
            assert_eq!(packets(bytes), [Packet::Q { count, to }]);
        }
    }

    #[test]
    fn zeros_begin_a_sync_point_or_say_that_data_is_missing() {
        let zeros = |count: usize, end: &[u8]| [&vec![0; count][..], end].concat();
        assert_eq!(packets(&[0, 3, 0, 5]), [Packet::Discard, Packet::Overflow]);
        assert_eq!(
            (packets(&zeros(11, &[0x80])), packets(&zeros(15, &[0x80]))),
            (vec![Packet::Sync], vec![Packet::Sync])
        );
        assert_eq!(
            (packets(&zeros(10, &[0x80])), packets(&zeros(2, &[3]))[0]),
            (vec![Packet::Bad], Packet::Bad)
        );
        assert_eq!(packets(&zeros(9, &[])), []);
        let found = |bytes: &[u8], at| find_sync(&Trace::new(vec![bytes], Vec::new()), at);
        let bytes = [&[0x80, 1][..], &zeros(13, &[0x80, 7]), &zeros(11, &[0x80])].concat();
        assert_eq!([0, 4, 5, 28].map(|at| found(&bytes, at)), [Some(4), Some(4), Some(17), None]);
        assert_eq!(found(&zeros(10, &[0x80]), 0), None);
    }

    #[test]
    fn atoms_have_the_oldest_branch_in_the_lowest_bit() {
        for (byte, bits, count) in [
            (0xf6, 0, 1),
            (0xf7, 1, 1),
            (0xd9, 1, 2),
            (0xfc, 0b100, 3),
            (0xdc, 0b1110, 4),
            (0xdd, 0, 4),
            (0xde, 0b1010, 4),
            (0xdf, 0b101, 4),
            (0xf5, 0b11110, 5),
            (0xd5, 0, 5),
            (0xd6, 0b1010, 5),
            (0xd7, 0b10101, 5),
            (0xc0, 0b1111, 4),
            (0xe1, 0b1111, 5),
            (0xd4, (1 << 24) - 1, 24),
            (0xf4, (1 << 23) - 1, 24),
        ] {
            assert_eq!(packets(&[byte]), [Packet::Atoms(Atoms { bits, count })], "{byte:x}");
        }
    }

    #[test]
    fn the_space_is_that_of_the_context_or_of_the_last_switch() {
        let switch = |time, space| Switch { time, space: Some(Space(space)), guest: None };
        let switches = [switch(10, 1), switch(20, 2)];
        let of = |context, now| {
            let config = Config { context, ..config(false) };
            let named = Context { is_64: true, id: Some(5), vmid: None };
            space(&config, Some(named), Some(Space(9)), (&switches, now)).map(|space| space.0)
        };
        assert_eq!([9, 10, 19, 20].map(|now| of(None, now)), [None, Some(1), Some(1), Some(2)]);
        assert_eq!((of(Some(ContextId::El1), 99), of(Some(ContextId::El2), 99)), (Some(5), Some(9)));
    }
}
