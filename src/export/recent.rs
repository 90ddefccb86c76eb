//! Finds what was looked up lately without a search in a large table.

/// Numbers by key, each in the only place where it can be: a newer one takes the place of an older one.
#[derive(Debug)]
pub(crate) struct Recent(Box<[(u64, u32)]>);

const BITS: u32 = 12;

/// No two 32-bit numbers that are in use make this key.
const NONE: (u64, u32) = (u64::MAX, 0);

impl Default for Recent {
    fn default() -> Recent {
        Recent(vec![NONE; 1 << BITS].into_boxed_slice())
    }
}

impl Recent {
    fn place(key: u64) -> usize {
        // Fibonacci hashing: the upper bits depend on all others.
        (key.wrapping_mul(0x9e37_79b9_7f4a_7c15) >> (u64::BITS - BITS)) as usize
    }

    #[inline]
    pub(crate) fn get(&self, key: u64) -> Option<u32> {
        let (known, number) = self.0[Recent::place(key)];
        (known == key).then_some(number)
    }

    #[inline]
    pub(crate) fn set(&mut self, key: u64, number: u32) {
        self.0[Recent::place(key)] = (key, number);
    }

    pub(crate) fn clear(&mut self) {
        self.0.fill(NONE);
    }
}

/// The key of two numbers.
#[inline]
pub(crate) fn key(one: u32, other: u32) -> u64 {
    u64::from(one) << 32 | u64::from(other)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_number_is_found_until_another_takes_its_place() {
        let mut recent = Recent::default();
        assert_eq!([0, 1].map(|one| recent.get(key(one, 0))), [None; 2]);
        (0..1 << 16).for_each(|other| recent.set(key(1, other), other + 7));
        let known = (0..1 << 16).filter_map(|other| Some((other, recent.get(key(1, other))?)));
        let known: Vec<_> = known.collect();
        assert!(known.len() <= 1 << BITS && known.len() > 1 << (BITS - 1), "{}", known.len());
        assert!(known.iter().all(|(other, number)| *number == other + 7));
        recent.clear();
        assert_eq!(recent.get(key(1, known[0].0)), None);
    }
}
