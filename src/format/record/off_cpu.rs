//! The raw data of a sample of `perf record --off-cpu`: perf's BPF program puts the parts of a sample there.

use super::cpumode::USER;
use super::frames::changed;
use crate::sample::{Marker, U64s};
use crate::{Cursor, Endian};

/// The name of the event, without modifiers.
pub const OFF_CPU_NAME: &[u8] = b"offcpu-time";

/// The raw data with other addresses in its call chain, as [`change_frames`](super::frames::change_frames)
/// changes them, and zeros in its padding; and how many addresses were changed. `None` if it does not have
/// perf's layout (tools/perf/util/bpf_skel/off_cpu.bpf.c, since perf 6.16):
///
/// | byte | |
/// |---|---|
/// | 0 | u32 pid, u32 tid, u64 period |
/// | 16 | u64 nr, nr × u64 address; the first one is the marker of user addresses |
/// | 24 + 8 nr | u64 cgroup, then less than 8 bytes of padding |
pub fn changed_off_cpu(
    raw: &[u8],
    endian: Endian,
    change: impl FnMut(u16, u64) -> Option<u64>,
) -> Option<(Vec<u8>, u64)> {
    let mut cursor = Cursor::new(raw, endian);
    cursor.bytes(16)?;
    let count = usize::try_from(cursor.u64()?).ok()?;
    let chain = U64s::new(cursor.bytes(count.checked_mul(8)?)?, endian);
    cursor.u64()?;
    let padding = cursor.rest().len();
    (chain.get(0) == Some(Marker::USER.0) && padding < 8).then_some(())?;
    let mut new = raw.to_vec();
    new[raw.len() - padding..].fill(0);
    let mut count = 0;
    for (at, address) in changed(chain, USER, change) {
        endian.set_u64(&mut new, 24 + at * 8, address);
        count += 1;
    }
    Some((new, count))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_perfs_layout_is_changed() {
        for endian in [Endian::Little, Endian::Big] {
            let words =
                |words: &[u64]| words.iter().flat_map(|&word| endian.bytes_u64(word)).collect::<Vec<u8>>();
            let raw = |nr: u64, first: u64| {
                [&words(&[7, 5_000_000, nr, first, 0x40, 0x80, 9])[..], b"abcd"].concat()
            };
            let user = Marker::USER.0;
            let change = |cpumode, address| (cpumode == USER && address > 0x40).then_some(0);
            let expected = [&words(&[7, 5_000_000, 3, user, 0x40, 0, 9])[..], &[0; 4]].concat();
            assert_eq!(changed_off_cpu(&raw(3, user), endian, change), Some((expected, 1)));
            for (nr, first) in [(2, user), (4, user), (3, 0x40), (0, user), (u64::MAX, user), (1 << 61, user)]
            {
                assert_eq!(changed_off_cpu(&raw(nr, first), endian, change), None, "{nr} {first:#x}");
            }
            for end in 0..raw(3, user).len() - 4 {
                assert_eq!(changed_off_cpu(&raw(3, user)[..end], endian, change), None, "{end}");
            }
        }
    }
}
