//! Builds recordings of one event in memory, for tests.

pub(crate) fn words(words: &[u64]) -> Vec<u8> {
    words.iter().flat_map(|word| word.to_le_bytes()).collect()
}

/// A file with a `cpu-clock` event of id 11: its sample fields, `attr.flags`, records and features.
pub(crate) fn file(sample_type: u64, flags: u64, data: &[u8], features: &[(u32, Vec<u8>)]) -> Vec<u8> {
    let (attrs, ids, start) = (104, 104 + 144, 104 + 144 + 8);
    let mut bits = [0u64; 4];
    for (feature, _) in features {
        bits[*feature as usize / 64] |= 1 << (feature % 64);
    }
    let mut bytes = b"PERFILE2".to_vec();
    bytes.extend(words(&[104, 144, attrs, 144, start, data.len() as u64, 0, 0]));
    bytes.extend(words(&bits));
    bytes.extend(words(&[1 | 128 << 32, 0, 1_000_000, sample_type, 0, flags]));
    bytes.resize(ids as usize - 16, 0);
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
