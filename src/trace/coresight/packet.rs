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
    /// The address of a taken branch.
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
    /// The trace ends within a packet.
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
    /// True for AArch64.
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

    /// The bytes at the current position.
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

    /// Reads a packet that begins with a zero.
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

/// The encoding of an address.
#[derive(Clone, Copy)]
enum Form {
    /// One of the last three.
    Match(u8),
    /// The lowest bits, in one or two bytes.
    Short,
    /// The lowest 32 bits.
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
