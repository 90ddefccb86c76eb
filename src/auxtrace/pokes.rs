//! Code of the kernel that was changed while it ran (TEXT_POKE records): the bytes at each place and time.

use perfx_format::OrderKey;
use perfx_format::record::ksymbol::TextPoke;

#[derive(Clone, Debug)]
pub(crate) struct Poke {
    pub(crate) at: OrderKey,
    pub(crate) address: u64,
    old: Box<[u8]>,
    new: Box<[u8]>,
}

impl Poke {
    /// `None` if it is longer than the kernel ever makes them.
    pub(crate) fn new(poke: &TextPoke<'_>, at: OrderKey) -> Option<Poke> {
        let TextPoke { address, old, new } = *poke;
        let is_long = old.len().max(new.len()) > LONGEST;
        (!is_long).then(|| Poke { at, address, old: old.into(), new: new.into() })
    }

    fn end(&self) -> u64 {
        self.address.saturating_add(self.old.len().max(self.new.len()) as u64)
    }
}

#[derive(Debug, Default)]
pub(crate) struct Sites {
    sites: Vec<Site>,
    pub(crate) ignored: u64,
}

#[derive(Debug)]
pub(crate) struct Site {
    pub(crate) start: u64,
    end: u64,
    /// The bytes from each time on, from `start` to past the end, so that no instruction is cut.
    versions: Vec<(OrderKey, Vec<u8>)>,
}

/// Each version has this many bytes after its place. A block of code is seldom longer.
const AFTER: usize = 4096;

/// The kernel changes at most a page at once, and mostly one instruction.
const LONGEST: usize = 4096;

/// Maximum size of all later versions: with overlapping changes, a place can be long and have many.
pub(crate) const MOST_BYTES: usize = 1 << 25;

impl Sites {
    /// `code(address, len)` gives up to `len` bytes, as before the first change or after the last. Later
    /// versions take at most `left` bytes.
    pub(crate) fn new<'c>(
        mut pokes: Vec<Poke>,
        left: &mut usize,
        code: impl Fn(u64, usize) -> &'c [u8],
    ) -> Sites {
        pokes.sort_by_key(|poke| poke.at);
        let mut places: Vec<(u64, u64)> = pokes.iter().map(|poke| (poke.address, poke.end())).collect();
        places.sort_unstable();
        let mut sites: Vec<Site> = Vec::new();
        for (start, end) in places {
            match sites.last_mut() {
                Some(last) if start < last.end => last.end = last.end.max(end),
                _ => sites.push(Site { start, end, versions: Vec::new() }),
            }
        }
        let next: Vec<u64> = sites.iter().skip(1).map(|site| site.start).chain([u64::MAX]).collect();
        for (site, next) in sites.iter_mut().zip(next) {
            let after = (next - site.end).min(AFTER as u64);
            let len = (site.end - site.start + after) as usize;
            let mut first = code(site.start, len).to_vec();
            first.resize(first.len().max((site.end - site.start) as usize), 0);
            site.versions.push((OrderKey::FIRST, first));
        }
        let mut sites = Sites { sites, ignored: 0 };
        for poke in pokes.iter().rev() {
            if let Some(site) = sites.mut_at(poke.address) {
                let start = site.start;
                site.versions.iter_mut().for_each(|(_, bytes)| put(bytes, start, poke.address, &poke.old));
            }
        }
        let mut ignored = 0;
        for poke in &pokes {
            if let Some(site) = sites.mut_at(poke.address)
                && let Some((since, bytes)) = site.versions.last_mut()
            {
                if *since == poke.at {
                    put(bytes, site.start, poke.address, &poke.new);
                } else if let Some(rest) = left.checked_sub(bytes.len()) {
                    let mut changed = bytes.clone();
                    put(&mut changed, site.start, poke.address, &poke.new);
                    site.versions.push((poke.at, changed));
                    *left = rest;
                } else {
                    ignored += 1;
                }
            }
        }
        Sites { ignored, ..sites }
    }

    fn count_to(&self, address: u64) -> usize {
        self.sites.partition_point(|site| site.start <= address)
    }

    fn mut_at(&mut self, address: u64) -> Option<&mut Site> {
        let at = self.count_to(address).checked_sub(1)?;
        self.sites.get_mut(at).filter(|site| address < site.end)
    }

    pub(crate) fn at(&self, address: u64) -> Option<&Site> {
        self.sites.get(self.count_to(address).checked_sub(1)?).filter(|site| address < site.end)
    }

    /// The end of the place before an address that is in none, and the start of the one after it.
    pub(crate) fn around(&self, address: u64) -> (u64, u64) {
        let count = self.count_to(address);
        let before = count.checked_sub(1).and_then(|at| self.sites.get(at)).map_or(0, |site| site.end);
        (before, self.sites.get(count).map_or(u64::MAX, |site| site.start))
    }
}

impl Site {
    /// The version at a key: its number, its code, and until when it holds.
    pub(crate) fn version(&self, at: OrderKey) -> (usize, &[u8], OrderKey) {
        let next = self.versions.partition_point(|(from, _)| *from <= at).max(1);
        let bytes = self.versions.get(next - 1).map_or(&[][..], |(_, bytes)| bytes);
        (next - 1, bytes, self.versions.get(next).map_or(OrderKey::END, |(from, _)| *from))
    }
}

/// Copies the bytes at an address into those from `start` on.
fn put(into: &mut [u8], start: u64, address: u64, bytes: &[u8]) {
    let at = usize::try_from(address - start).unwrap_or(usize::MAX);
    let to = into.get_mut(at..).unwrap_or_default();
    to.iter_mut().zip(bytes).for_each(|(to, byte)| *to = *byte);
}

#[cfg(test)]
mod tests {
    use perfx_format::record::cpumode::KERNEL_START;

    use super::*;

    #[test]
    fn code_is_what_the_last_change_made_of_it() {
        let poke = |time, address: u64, old: &[u8], new: &[u8]| {
            let address = KERNEL_START + address;
            Poke::new(&TextPoke { address, old, new }, OrderKey::at(time)).unwrap()
        };
        let code: Vec<u8> = (0..32).collect();
        let base = |address: u64, most: usize| {
            let rest = code.get((address - KERNEL_START) as usize..).unwrap_or_default();
            &rest[..most.min(rest.len())]
        };
        let pokes = vec![
            poke(20, 9, &[90], &[91]),
            poke(10, 4, &[40, 41], &[50, 51]),
            poke(20, 5, &[51], &[61]),
            poke(30, 40, &[], &[1, 2]),
        ];
        let sites = Sites::new(pokes, &mut 1000, base);
        assert_eq!(sites.around(KERNEL_START + 3), (0, KERNEL_START + 4));
        assert_eq!(sites.around(KERNEL_START + 7), (KERNEL_START + 6, KERNEL_START + 9));
        let version = |address, time| sites.at(KERNEL_START + address).unwrap().version(OrderKey::at(time));
        let is = |number, bytes, until| (number, bytes, OrderKey::at(until));
        assert_eq!(version(5, 0), is(0, &[40, 41, 6, 7, 8][..], 10));
        assert_eq!(version(5, 10), is(1, &[50, 51, 6, 7, 8][..], 20));
        assert_eq!(version(5, 25), is(2, &[50, 61, 6, 7, 8][..], u64::MAX));
        assert_eq!(version(9, 5).1[..2], [90, 10]);
        assert_eq!(version(40, 99).1, [1, 2]);
        assert!(sites.at(KERNEL_START + 6).is_none());
        let long = TextPoke { address: KERNEL_START, old: &[0; 5000], new: &[] };
        assert!(Poke::new(&long, OrderKey::FIRST).is_none());
    }

    #[test]
    fn changes_that_overlap_have_a_bounded_number_of_versions() {
        let change = |number: u64| {
            let address = KERNEL_START + number * 4000;
            Poke::new(&TextPoke { address, old: &[0; 4096], new: &[1; 4096] }, OrderKey::at(number)).unwrap()
        };
        let sites = Sites::new((1..4000).map(change).collect(), &mut { MOST_BYTES }, |_, _| &[]);
        let kept: usize =
            sites.sites.iter().flat_map(|site| &site.versions).map(|(_, bytes)| bytes.len()).sum();
        assert!(sites.sites.len() == 1 && kept < 2 * MOST_BYTES && sites.ignored > 3000, "{kept}");
    }
}
