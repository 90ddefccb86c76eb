//! Reads a perf map, in which a JIT compiler lists its code as `START SIZE NAME` lines, in hexadecimal.
//!
//! Source: tools/perf/Documentation/jit-interface.txt. A perf map contains no load times, but its lines are
//! in the order of loading: where two of them overlap, the later one counts.

use std::collections::BTreeMap;

use perfx_format::jitdump::{Damage, Header};

use crate::{Function, Functions};

impl<'a> Functions<'a> {
    /// The functions of a perf map, in order of address, without their code. `header` is that of an
    /// equivalent dump. Lines in another format count as damage.
    pub fn of_perf_map(text: &'a [u8], header: Header) -> Functions<'a> {
        let mut functions = Functions { header, list: Vec::new(), damage: Damage::default(), impossible: 0 };
        // By address: the end, and the index of the function.
        let mut current = BTreeMap::<u64, (u64, usize)>::new();
        let mut listed = Vec::new();
        for line in text.split(|&byte| byte == b'\n').filter(|line| !line.trim_ascii().is_empty()) {
            let Some((address, size, name)) = fields(line) else {
                functions.damage.broken += 1;
                functions.damage.skipped += line.len() as u64 + 1;
                continue;
            };
            let function = Function::without_code(header.pid, address, size, name, listed.len() as u32);
            let Some(end) = function.is_possible().then(|| function.end()).filter(|_| size > 0) else {
                functions.impossible += u64::from(size > 0);
                continue;
            };
            while let Some((&start, _)) =
                current.range(..end).next_back().filter(|&(_, &(end, _))| end > address)
            {
                current.remove(&start);
            }
            current.insert(address, (end, listed.len()));
            listed.push(function);
        }
        functions.list = current.values().map(|&(_, place)| listed[place].clone()).collect();
        functions
    }
}

fn fields(line: &[u8]) -> Option<(u64, u64, &[u8])> {
    let mut parts = line.trim_ascii_start().splitn(3, |&byte| byte == b' ');
    let mut number = || {
        let digits = std::str::from_utf8(parts.next()?).ok()?;
        let digits = digits.strip_prefix("0x").unwrap_or(digits);
        let is_number = !digits.is_empty() && digits.bytes().all(|digit| digit.is_ascii_hexdigit());
        u64::from_str_radix(digits, 16).ok().filter(|_| is_number)
    };
    let (address, size) = (number()?, number()?);
    let name = parts.next()?.trim_ascii();
    (!name.is_empty()).then_some((address, size, name))
}

#[cfg(test)]
mod tests {
    use perfx_format::Endian;

    use super::*;

    fn read(text: &str) -> Vec<(u64, u64, String)> {
        let header =
            Header { endian: Endian::Little, machine: 0, is_of_v8: false, pid: 7, time: 0, flags: 0 };
        let functions = Functions::of_perf_map(text.as_bytes(), header);
        let shown = |function: &Function<'_>| {
            (function.address, function.size, String::from_utf8_lossy(function.name).into_owned())
        };
        functions.list.iter().map(shown).collect()
    }

    #[test]
    fn names_may_have_spaces_and_numbers_a_prefix() {
        let text = "3000 10 LazyCompile:~fib /tmp/a b.js:1\n0x1000 0x20 first\n\n";
        let expected = [(0x1000, 0x20, "first"), (0x3000, 0x10, "LazyCompile:~fib /tmp/a b.js:1")];
        assert_eq!(read(text), expected.map(|(address, size, name)| (address, size, name.to_owned())));
    }

    #[test]
    fn the_last_of_overlapping_lines_counts() {
        let names = |text| read(text).into_iter().map(|(.., name)| name).collect::<Vec<_>>();
        assert_eq!(names("1000 100 old\n1080 20 new\n"), ["new"]);
        assert_eq!(names("1000 10 a\n1010 10 b\n1000 10 c\n"), ["c", "b"]);
        assert_eq!(names("1000 10 a\n2000 10 b\n0800 4000 all\n"), ["all"]);
    }

    #[test]
    fn other_lines_are_counted_and_skipped() {
        let header =
            Header { endian: Endian::Little, machine: 0, is_of_v8: false, pid: 7, time: 0, flags: 0 };
        let text = b"nonsense\n1000\n1000 10\n1000 +1 a\nffffffffffffffff 10 past the end\n1000 0 empty\n1000 ffffffffffff huge\n";
        let functions = Functions::of_perf_map(text, header);
        assert_eq!((functions.list.len(), functions.damage.broken, functions.impossible), (0, 4, 2));
    }
}
