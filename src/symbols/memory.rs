//! Reads code from the memory of the running kernel, proc_kcore(5).

use std::collections::HashMap;
use std::ops::Range;
use std::os::unix::fs::FileExt;
use std::path::Path;

use crate::ElfFile;

pub(crate) const RUNNING: &str = "/proc";

pub(crate) const MEMORY: &str = "kcore";

/// The maximum size of code, bytes: more than that of any kernel and its modules.
const MOST_READ: u64 = 256 << 20;

/// Code of the kernel.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct KernelCode {
    /// Its address.
    pub start: u64,
    /// Its bytes.
    pub bytes: Vec<u8>,
}

/// The code of the kernel (`None`) or these modules at these addresses, unless it has moved or is unreadable.
pub(crate) fn read(folder: &Path, mapped: &[(Option<Vec<u8>>, Range<u64>)]) -> Vec<KernelCode> {
    let path = folder.join(MEMORY);
    let (Ok(elf), Ok((file, _))) = (ElfFile::read(&path), build_id::open(&path)) else { return Vec::new() };
    let loaded = std::fs::read_to_string(folder.join("modules")).unwrap_or_default();
    let loaded: HashMap<&[u8], u64> = loaded.lines().filter_map(module).collect();
    let is_there = |name: &Option<Vec<u8>>, start: u64| {
        name.as_ref().is_none_or(|name| loaded.get(&**name) == Some(&start))
    };
    let (mut code, mut rest) = (Vec::new(), MOST_READ);
    for (_, range) in mapped.iter().filter(|(name, range)| is_there(name, range.start)) {
        for &(offset, size, address) in &elf.code {
            let (start, end) = (range.start.max(address), range.end.min(address.saturating_add(size)));
            let len = end.saturating_sub(start);
            if len == 0 || len > rest {
                continue;
            }
            let mut bytes = vec![0; len as usize];
            if file.read_exact_at(&mut bytes, offset.saturating_add(start - address)).is_ok() {
                rest -= len;
                code.push(KernelCode { start, bytes });
            }
        }
    }
    code
}

/// Name and address in a line of /proc/modules: `ext4 983040 2 - Live 0xffffffffc0a41000`.
fn module(line: &str) -> Option<(&[u8], u64)> {
    let mut words = line.split(' ');
    let name = words.next()?.as_bytes();
    let address = words.find_map(|word| word.strip_prefix("0x"))?;
    Some((name, u64::from_str_radix(address, 16).ok()?))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn code_is_read_where_it_was_mapped() {
        let folder = tempfile::tempdir().unwrap();
        let vmlinux =
            concat!(env!("CARGO_MANIFEST_DIR"), "/../../tests/data/trace/root/opt/perfx/trace/vmlinux");
        let bytes = std::fs::read(vmlinux).unwrap();
        std::fs::write(folder.path().join(MEMORY), &bytes).unwrap();
        let modules = "ext4 983040 2 - Live 0xffffffff81000800\nxfs 1 0 - Live 0x0000000000000000\n";
        std::fs::write(folder.path().join("modules"), modules).unwrap();
        let start = 0xffff_ffff_8100_0000;
        let module =
            |name: &str, from: u64| (Some(name.as_bytes().to_vec()), start + from..start + from + 16);
        let kernel = (None, start - 64..start + 32);
        let read =
            read(folder.path(), &[kernel, module("ext4", 0x800), module("ext4", 0x900), module("xfs", 64)]);
        let expected = [(start, 0x1000..0x1020), (start + 0x800, 0x1800..0x1810)];
        let expected = expected.map(|(start, at)| KernelCode { start, bytes: bytes[at].to_vec() });
        assert_eq!(read, expected);
    }
}
