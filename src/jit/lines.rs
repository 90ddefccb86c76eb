//! Reads the source lines of a function, and corrects shifted addresses and damaged file names.

use std::borrow::Cow;

use perfx_format::jitdump::Line;

use crate::Function;

#[derive(Clone, PartialEq, Eq, Debug)]
pub(crate) struct Row<'a> {
    /// From the start of the function, bytes.
    pub(crate) at: u64,
    pub(crate) line: u32,
    pub(crate) column: u32,
    /// Not empty.
    pub(crate) file: Cow<'a, [u8]>,
}

/// The size of an ELF header in bytes, which V8 and the listener of older LLVM versions add to each address:
/// in the ELF file that perf made of a function, the code followed the header.
const ELF_HEADER: u64 = 0x40;

/// The number of bytes that V8's garbage collector overwrites at the start of a freed file name.
const FREED: usize = 16;

/// The rows of a function, in the order of offsets, without those that make no sense.
pub(crate) fn rows<'a>(function: &Function<'a>, is_of_v8: bool) -> Vec<Row<'a>> {
    let Some(info) = &function.lines else { return Vec::new() };
    let (start, size) = (function.loaded_at, function.size);
    let is_of_code = |address: u64| (start..=start.saturating_add(size + ELF_HEADER)).contains(&address);
    let mut lines: Vec<Line<'a>> = info.lines().take_while(|line| is_of_code(line.address)).collect();
    let mut freed = false;
    if (lines.len() as u64) < info.count
        && let Some(others) = info.lines_of_one_size(is_of_code)
    {
        freed = true;
        lines = others;
    }
    let after_header = |line: &Line<'_>| line.address - start >= ELF_HEADER;
    let beyond = lines.iter().any(|line| line.address - start > size);
    let shift = if is_of_v8 || lines.iter().all(after_header) && beyond { ELF_HEADER } else { 0 };
    lines.sort_by_key(|line| line.address);
    let mut last: Cow<'a, [u8]> = Cow::default();
    let row = |line: Line<'a>| {
        let at = (line.address - start).checked_sub(shift).filter(|&at| at <= size)?;
        if freed {
            last = named_as_in(function.name, line.file);
        } else if !line.file.is_empty() {
            last = Cow::Borrowed(line.file);
        }
        (!last.is_empty()).then(|| Row { at, line: line.line, column: line.column, file: last.clone() })
    };
    lines.into_iter().filter_map(row).collect()
}

/// Restores a file name whose start was overwritten, from the function name: V8's function names contain the
/// whole file name, as in `JS:~fib /tmp/fib.js:1:13`.
fn named_as_in<'a>(function: &'a [u8], file: &'a [u8]) -> Cow<'a, [u8]> {
    let rest = file.get(FREED..).unwrap_or_default();
    // A name that was not freed contains no control characters.
    if !file.iter().any(|&byte| byte < b' ') {
        return Cow::Borrowed(file);
    }
    let visible = rest.rsplit(|&byte| byte < b' ').next().unwrap_or_default();
    if visible.is_empty() {
        return Cow::default();
    }
    let mut whole = function;
    for _ in 0..2 {
        let digits = whole.iter().rev().take_while(|byte| byte.is_ascii_digit()).count();
        let (before, position) = whole.split_at(whole.len() - digits);
        whole = before.strip_suffix(b":").filter(|_| !position.is_empty()).unwrap_or(whole);
    }
    let whole = whole.rsplit(|&byte| byte == b' ').next().unwrap_or_default();
    Cow::Borrowed(if whole.ends_with(visible) { whole } else { visible })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_freed_file_name_is_restored_from_the_function_name() {
        let freed = b"\x10\x7f\0\0\0\0\0\0\x20\x7f\0\0\0\0\0\0/fib.js";
        let named = |function| named_as_in(function, freed).into_owned();
        assert_eq!(named(b"JS:*fib /tmp/data/work/fib.js:3:13"), b"/tmp/data/work/fib.js");
        assert_eq!(named(b"JS:*fib file:///tmp/fib.js:3:13"), b"file:///tmp/fib.js");
        assert_eq!(named(b"Builtin:Call"), b"/fib.js");
        assert_eq!(named(b"3:13"), b"/fib.js");
        assert_eq!(named_as_in(b"f", b"whole.js").into_owned(), b"whole.js");
        assert_eq!(named_as_in(b"f", b"\0\x01").into_owned(), b"");
    }
}
