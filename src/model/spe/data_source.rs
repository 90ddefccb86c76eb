//! Derives the data source of a sample from an SPE record, as perf 7.3 does: from the record's data source,
//! whose values depend on the CPU, or else from its events (tools/perf/util/arm-spe.c).

use perfx_format::sample::memory as mem;
use perfx_format::spe::{SpeRecord, events};

#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum Encoding {
    /// Arm's own cores.
    Common,
    AmpereOne,
    HisiHip,
}

/// By implementer and part.
const KNOWN: &[(Encoding, u64, &[u64])] = &[
    (
        Encoding::Common,
        0x41,
        &[
            0xd0c, 0xd40, 0xd44, 0xd49, 0xd4b, 0xd4c, 0xd4d, 0xd4e, 0xd4f, 0xd81, 0xd82, 0xd84, 0xd85, 0xd87,
            0xd89,
        ],
    ),
    (Encoding::Common, 0x4e, &[0x010]),
    (Encoding::AmpereOne, 0xc0, &[0xac4]),
    (Encoding::HisiHip, 0x48, &[0xd06]),
];

impl Encoding {
    fn of(midr: u64) -> Option<Encoding> {
        let (implementer, part) = (midr >> 24 & 0xff, midr >> 4 & 0xfff);
        let known = KNOWN.iter().find(|(_, by, parts)| *by == implementer && parts.contains(&part));
        known.map(|(encoding, ..)| *encoding)
    }

    /// The level, its number and the snoop of a load; 0 for an unknown source.
    fn load(self, source: u16) -> u64 {
        match self {
            Encoding::Common => common(source),
            Encoding::AmpereOne => match source {
                0 => common(9),
                3 => common(11),
                5 => common(13),
                7 => common(14),
                8 => common(0),
                9 => common(8),
                _ => 0,
            },
            Encoding::HisiHip => match source {
                0 => L2 | mem::SNOOP_PEER,
                1 => L2 | mem::SNOOP_PEER | mem::SNOOP_HITM,
                2 => L3 | mem::SNOOP_HIT,
                3 => L3 | mem::SNOOP_HITM,
                4 => PEER_CLUSTER,
                5 => PEER_CLUSTER | mem::SNOOP_HITM,
                6 => REMOTE_SOCKET,
                7 => REMOTE_SOCKET | mem::SNOOP_HITM,
                8 => RAM | mem::SNOOP_NONE,
                9 => mem::LVL_REM_RAM1 | mem::LVL_HIT | mem::NUM_RAM | mem::REMOTE,
                13 => mem::LVL_IO | mem::LVL_HIT | mem::NUM_IO | mem::SNOOP_NONE,
                16 => L2 | mem::SNOOP_NONE,
                17 => L2 | mem::SNOOP_HITM,
                18 => L1 | mem::SNOOP_NONE,
                _ => 0,
            },
        }
    }
}

const L1: u64 = mem::LVL_L1 | mem::LVL_HIT | mem::NUM_L1;
const L2: u64 = mem::LVL_L2 | mem::LVL_HIT | mem::NUM_L2;
const L3: u64 = mem::LVL_L3 | mem::LVL_HIT | mem::NUM_L3;
const RAM: u64 = mem::LVL_LOC_RAM | mem::LVL_HIT | mem::NUM_RAM;
const NOT_KNOWN: u64 = mem::LVL_NA | mem::NUM_NA;
const PEER_CLUSTER: u64 = mem::LVL_REM_CCE1 | mem::LVL_HIT | mem::NUM_L3 | mem::SNOOP_PEER;
const REMOTE_SOCKET: u64 = mem::LVL_REM_CCE2 | mem::NUM_ANY_CACHE | mem::REMOTE | mem::SNOOP_PEER;

/// A load on one of Arm's cores.
fn common(source: u16) -> u64 {
    match source {
        0 => L1 | mem::SNOOP_NONE,
        8 => L2 | mem::SNOOP_NONE,
        9 => L2 | mem::SNOOP_PEER,
        10 | 12 => L3 | mem::SNOOP_PEER,
        11 => L3 | mem::SNOOP_HIT,
        13 => NOT_KNOWN | mem::REMOTE | mem::SNOOP_PEER,
        14 => RAM | mem::SNOOP_NONE,
        _ => 0,
    }
}

/// The caches from the first level on: the events of an access and of a miss, the level and its number.
const CACHES: [(u64, u64, u64); 3] = [
    (events::L1D_ACCESS, events::L1D_REFILL, mem::LVL_L1 | mem::NUM_L1),
    (events::L2D_ACCESS, events::L2D_MISS, mem::LVL_L2 | mem::NUM_L2),
    (events::LLC_ACCESS, events::LLC_MISS, mem::LVL_L3 | mem::NUM_L3),
];

/// The level of a load by its events: the first cache that it hit, or else the last one that it missed.
fn loaded(happened: u64) -> u64 {
    let hit = |&(access, miss, level): &(u64, u64, u64)| {
        (happened & access != 0 && happened & miss == 0).then_some(level | mem::LVL_HIT)
    };
    let missed =
        |&(_, miss, level): &(u64, u64, u64)| (happened & miss != 0).then_some(level | mem::LVL_MISS);
    let buffer =
        (happened & events::RECENTLY_FETCHED != 0).then_some(mem::LVL_LFB | mem::LVL_HIT | mem::NUM_LFB);
    let [first, others @ ..] = &CACHES;
    let level = hit(first).or(buffer).or_else(|| others.iter().find_map(hit));
    level.or_else(|| CACHES.iter().rev().find_map(missed)).unwrap_or(0)
}

/// The level of a store by its events: the last cache that it reached.
fn stored(happened: u64) -> u64 {
    let reached = |&(access, miss, level): &(u64, u64, u64)| {
        let outcome = if happened & miss != 0 { mem::LVL_MISS } else { mem::LVL_HIT };
        (happened & (access | miss) != 0).then_some(level | outcome)
    };
    CACHES.iter().rev().find_map(reached).unwrap_or(0)
}

const LEVEL: u64 = ((1 << 14) - 1) << 5;
const SNOOP: u64 = 31 << 19;

/// True if the record is about memory: a load or store, or, as in perf, an operation on vectors.
pub fn is_of_memory(record: &SpeRecord) -> bool {
    let operation = &record.operation;
    operation.is_load || operation.is_store || operation.is_vector
}

/// The data source of a record of a CPU with this main id register and reported events; 0 if none.
pub(super) fn data_source(record: &SpeRecord, midr: Option<u64>, reported: u64) -> u64 {
    if !is_of_memory(record) {
        return 0;
    }
    let (operation, happened) = (&record.operation, record.events);
    let mut source = if operation.is_load {
        mem::OP_LOAD
    } else if operation.is_store {
        mem::OP_STORE
    } else {
        mem::OP_NA
    };
    if let Some(encoding) = midr.and_then(Encoding::of) {
        let load = encoding.load(record.source.unwrap_or(0));
        // The source of a store only shows whether an AmpereOne reports one.
        let is_known = encoding != Encoding::AmpereOne || load != 0;
        source |= if operation.is_store && is_known { NOT_KNOWN | mem::SNOOP_NA } else { load };
    }
    if source & LEVEL == 0 {
        source |= if operation.is_load { loaded(happened) } else { 0 };
        source |= if operation.is_store && !operation.is_load { stored(happened) } else { 0 };
    }
    if source & LEVEL == 0 {
        source |= NOT_KNOWN;
    }
    if source & SNOOP == 0 {
        source |= match (happened & events::DATA_SNOOPED != 0, happened & events::CACHE_DATA_MODIFIED != 0) {
            (true, true) => mem::SNOOP_HITM,
            (true, false) => mem::SNOOP_HIT,
            _ if reported & events::DATA_SNOOPED != 0 => mem::SNOOP_NONE,
            _ => mem::SNOOP_NA,
        };
    }
    if happened & events::REMOTE_ACCESS != 0 {
        source |= mem::REMOTE;
    }
    if happened & (events::TLB_ACCESS | events::TLB_WALK) != 0 {
        let missed = happened & events::TLB_WALK != 0;
        source |= mem::TLB_WALKER | if missed { mem::TLB_MISS } else { mem::TLB_HIT };
    }
    source
}
