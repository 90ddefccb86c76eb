//! Builds small recordings of one event, record by record, for cases that no installed perf would record.

/// Bits of `sample_type` (perf_event_open(2)).
pub(crate) const IP: u64 = 1;
pub(crate) const TID: u64 = 1 << 1;
pub(crate) const TIME: u64 = 1 << 2;

/// Bits of the attr's flags.
pub(crate) const COMM: u64 = 1 << 9;
pub(crate) const SAMPLE_ID_ALL: u64 = 1 << 18;

fn words(words: &[u64]) -> Vec<u8> {
    words.iter().flat_map(|word| word.to_le_bytes()).collect()
}

/// A file with an event of `cpu-clock` with id 11, these records, and these features.
pub(crate) fn file(sample_type: u64, flags: u64, data: &[u8], features: &[(u32, Vec<u8>)]) -> Vec<u8> {
    let mut attr = vec![0; 128];
    attr[..8].copy_from_slice(&words(&[1 | 128 << 32]));
    attr[16..48].copy_from_slice(&words(&[1_000_000, sample_type, 0, flags]));
    let (attrs, ids, start) = (104, 104 + 144, 104 + 144 + 8);
    let mut bits = [0u64; 4];
    for (feature, _) in features {
        bits[*feature as usize / 64] |= 1 << (feature % 64);
    }
    let mut bytes = b"PERFILE2".to_vec();
    bytes.extend(words(&[104, 144, attrs, 144, start, data.len() as u64, 0, 0]));
    bytes.extend(words(&bits));
    bytes.extend(attr);
    bytes.extend(words(&[ids, 8, 11]));
    bytes.extend(data);
    let mut at = bytes.len() as u64 + 16 * features.len() as u64;
    for (_, section) in features {
        bytes.extend(words(&[at, section.len() as u64]));
        at += section.len() as u64;
    }
    features.iter().for_each(|(_, section)| bytes.extend(section));
    bytes
}

pub(crate) fn record(kind: u32, misc: u16, body: &[u8]) -> Vec<u8> {
    let mut bytes = kind.to_le_bytes().to_vec();
    bytes.extend(misc.to_le_bytes());
    bytes.extend((8 + body.len() as u16).to_le_bytes());
    bytes.extend(body);
    bytes
}

/// A SAMPLE of an event with IP, TID and TIME.
pub(crate) fn sample(pid: u32, time: u64) -> Vec<u8> {
    record(9, 2, &words(&[0x401150, u64::from(pid) << 32 | u64::from(pid), time]))
}

/// A COMM without a sample_id.
pub(crate) fn comm(pid: u32, name: &[u8; 8]) -> Vec<u8> {
    record(3, 0, &[&words(&[u64::from(pid) << 32 | u64::from(pid)]), &name[..]].concat())
}
