//! Reads /proc/kallsyms: lines like `ffffffff81000000 T _text`, followed by `[module]` for modules.

use std::io::{self, BufRead as _, BufReader, Read as _};
use std::path::Path;

use crate::{Symbol, Symbols};

/// The read limit, bytes: ten times the size of any kernel's table.
const MOST_READ: u64 = 256 << 20;

pub(crate) const RUNNING: &str = "/proc/kallsyms";

/// The symbols of a module, or of the kernel itself. Empty if the kernel hides addresses (kptr_restrict).
pub(crate) fn read(file: &Path, module: Option<&[u8]>) -> io::Result<Symbols> {
    let mut symbols = Vec::new();
    let mut lines = BufReader::new(build_id::open(file)?.0.take(MOST_READ));
    let mut line = Vec::new();
    while lines.read_until(b'\n', &mut line)? > 0 {
        symbols.extend(symbol(line.trim_ascii_end(), module));
        line.clear();
    }
    Ok(Symbols::new(symbols))
}

fn symbol(line: &[u8], module: Option<&[u8]>) -> Option<Symbol> {
    let mut words = line.split(|byte| byte.is_ascii_whitespace()).filter(|word| !word.is_empty());
    let (start, kind, name) = (words.next()?, words.next()?, words.next()?);
    let of = words.next().and_then(|word| word.strip_prefix(b"[")?.strip_suffix(b"]"));
    let start = u64::from_str_radix(str::from_utf8(start).ok()?, 16).ok()?;
    // perf also names data, but no constants (`R`).
    let is_shown = matches!(kind, b"T" | b"t" | b"W" | b"w" | b"D" | b"d" | b"B" | b"b");
    if of != module || start == 0 || !is_shown || is_mark(name) {
        return None;
    }
    Some(Symbol {
        start,
        end: start,
        // The last symbol of a module or of the kernel has no next one to bound it.
        limit: u64::MAX,
        weak: kind.eq_ignore_ascii_case(b"w"),
        global: kind[0].is_ascii_uppercase(),
        name: name.into(),
    })
}

/// True for names that are not functions; perf 7.3 ignores them: the mapping symbols of Arm and RISC-V
/// (`$x`), and the local labels of assemblers, which modules have many of.
fn is_mark(name: &[u8]) -> bool {
    [&b"$"[..], b".L", b"L0"].iter().any(|mark| name.starts_with(mark))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn lines_become_symbols_of_the_kernel_or_of_one_module() {
        let dir = tempfile::tempdir().unwrap();
        let file = dir.path().join("kallsyms");
        let text = "0000000000000000 A absent\nffffffff81000000 T _text\nffffffff81000000 T _stext\nffffffff81000100 t f\n\
                    ffffffff81000180 D data\nffffffff81000184 R constant\nffffffff81000200 b zeros\nnonsense\n\nffffffffc0000000 t g\t[ext4]\nffffffffc0000100 T h\t[xfs]\n";
        std::fs::write(&file, text).unwrap();
        let kernel = read(&file, None).unwrap();
        let name = |symbols: &Symbols, at| symbols.find(at).map(|symbol| symbol.shown().into_owned());
        assert_eq!(name(&kernel, 0xffff_ffff_8100_00ff).unwrap(), "_stext");
        assert_eq!(name(&kernel, 0xffff_ffff_8100_017f).unwrap(), "f");
        assert_eq!(name(&kernel, 0xffff_ffff_8100_0190).unwrap(), "data");
        assert_eq!(name(&kernel, 0xffff_ffff_8100_0200).unwrap(), "zeros");
        assert_eq!(name(&read(&file, Some(b"ext4")).unwrap(), 0xffff_ffff_c000_0001).unwrap(), "g");
    }

    #[test]
    fn the_last_of_several_symbols_at_an_address_is_taken_as_in_perf() {
        let dir = tempfile::tempdir().unwrap();
        let file = dir.path().join("kallsyms");
        let text = "ffffffff81000000 T mmioset\nffffffff81000000 T memset\nffffffff81000100 T __pi_f_longer\n\
                    ffffffff81000100 t f\n";
        std::fs::write(&file, text).unwrap();
        let symbols = read(&file, None).unwrap();
        let name = |at| symbols.find(at).map(|symbol| symbol.shown().into_owned());
        assert_eq!(name(0xffff_ffff_8100_0010).unwrap(), "memset");
        assert_eq!(name(0xffff_ffff_8100_1fff).unwrap(), "f");
        assert_eq!(name(0xffff_ffff_8100_2000), None);
        assert_eq!(symbols.address_of(b"mmioset"), Some(0xffff_ffff_8100_0000));
    }

    /// Regression: functions of arm64 modules were named `$x`, and those of RISC-V `.L1234`.
    #[test]
    fn mapping_symbols_and_local_labels_name_no_function() {
        let dir = tempfile::tempdir().unwrap();
        let file = dir.path().join("kallsyms");
        let text = "ffffffc000000000 t $x\t[virtio]\nffffffc000000000 t first\t[virtio]\nffffffc000000040 t second\t[virtio]\n\
                    ffffffc000000040 t $x.7\t[virtio]\nffffffc000000048 t .L12\t[virtio]\nffffffc000000050 t L0\t[virtio]\n\
                    ffffffc000000080 t Loader\t[virtio]\n";
        std::fs::write(&file, text).unwrap();
        let symbols = read(&file, Some(b"virtio")).unwrap();
        let name = |at: u64| symbols.find(at).map(|symbol| symbol.shown().into_owned()).unwrap();
        let names = [0, 0x3f, 0x40, 0x48, 0x5f, 0x80].map(|at| name(0xffff_ffc0_0000_0000 | at));
        assert_eq!(names, ["first", "first", "second", "second", "second", "Loader"]);
    }

    #[test]
    fn a_kernel_that_hides_its_addresses_has_no_symbols() {
        let dir = tempfile::tempdir().unwrap();
        let file = dir.path().join("kallsyms");
        std::fs::write(&file, "0000000000000000 T _text\n0000000000000000 t f\n").unwrap();
        assert!(read(&file, None).unwrap().is_empty());
    }
}
