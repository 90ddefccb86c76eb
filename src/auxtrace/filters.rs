//! The address filters of a trace: which code of which files the processor traced.

use std::str;

#[derive(Clone, PartialEq, Eq, Debug)]
pub(crate) struct Filter {
    /// The path of the file; `None` for addresses of the kernel.
    pub(crate) file: Option<Box<[u8]>>,
    /// Offsets in the file, or addresses.
    start: u64,
    size: u64,
}

impl Filter {
    /// Parses the text that `perf record` passed to the kernel: `filter START/SIZE@FILE`, separated by
    /// commas. Paths may contain commas. Other actions are left out.
    pub(crate) fn all(text: &[u8]) -> Vec<Filter> {
        const ACTIONS: [&[u8]; 4] = [b"filter ", b"start ", b"stop ", b"tracestop "];
        let begins = |text: &[u8]| ACTIONS.iter().any(|action| text.trim_ascii_start().starts_with(action));
        let is_end = |at: &usize| text.get(*at).is_none_or(|byte| *byte == b',' && begins(&text[at + 1..]));
        let mut start = 0;
        let filters = (0..=text.len()).filter(is_end).filter_map(|end| {
            let filter = Filter::of(&text[start..end]);
            start = end + 1;
            filter
        });
        filters.collect()
    }

    fn of(text: &[u8]) -> Option<Filter> {
        let place = text.trim_ascii().strip_prefix(b"filter ")?;
        let at = place.iter().position(|byte| *byte == b'@');
        let (range, file) = place.split_at(at.unwrap_or(place.len()));
        let mut numbers = str::from_utf8(range).ok()?.split('/').map(|word| {
            let word = word.trim();
            word.strip_prefix("0x").map_or(word.parse(), |digits| u64::from_str_radix(digits, 16)).ok()
        });
        let (start, size) = (numbers.next()??, numbers.next()??);
        Some(Filter { file: file.get(1..).map(Into::into), start, size })
    }

    /// True if the filter covers this offset of its file, or this address of the kernel.
    pub(crate) fn has(&self, at: u64) -> bool {
        at.wrapping_sub(self.start) < self.size
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn filters_are_read_as_perf_writes_them() {
        let text =
            b"filter 0x122c/0x19e@/bin/a,start 0x10@/bin/a, filter 18446744071562067968/16,filter 1@/x";
        let filter = |file: Option<&str>, start, size| Filter {
            file: file.map(|file| file.as_bytes().into()),
            start,
            size,
        };
        let kernel = 0xffff_ffff_8000_0000;
        assert_eq!(Filter::all(text), [filter(Some("/bin/a"), 0x122c, 0x19e), filter(None, kernel, 16)]);
        assert!(filter(None, kernel, 16).has(kernel + 15) && !filter(None, kernel, 16).has(kernel + 16));
        assert!(Filter::all(b"").is_empty());
        // A path with commas used to be cut at the first one.
        let text = b"filter 0/16@/a,b/start,c,filter 16/16@/d,stop 0x10@/a,b";
        assert_eq!(Filter::all(text), [filter(Some("/a,b/start,c"), 0, 16), filter(Some("/d"), 16, 16)]);
    }
}
