//! The kinds of the CPUs, from AUXTRACE_INFO, or else from feature CPUID.

use perfx_format::Endian;
use perfx_format::features::read_str;
use perfx_format::record::aux::Auxtrace;
use perfx_format::record::spe_info::SpeCpu;

#[derive(Debug)]
pub(super) struct Cpus {
    pub(super) cpus: Option<Vec<SpeCpu>>,
    /// If there is no list, that of every CPU.
    pub(super) midr: Option<u64>,
}

impl Cpus {
    /// The main id register and the reported events of a CPU; without a list, those of all.
    pub(super) fn get(&self, cpu: u32) -> (Option<u64>, u64) {
        let Some(cpus) = &self.cpus else { return (self.midr, 0) };
        let found = match cpus.first() {
            Some(first) if cpu == Auxtrace::ANY => {
                Some(first).filter(|first| cpus.iter().all(|cpu| cpu.midr == first.midr))
            }
            _ => cpus.iter().find(|known| known.cpu == u64::from(cpu)),
        };
        (found.map(|cpu| cpu.midr), found.map_or(0, |cpu| cpu.event_filter))
    }
}

/// Feature CPUID of an Arm machine: the main id register of CPU 0, hexadecimal.
pub(super) fn midr(section: &[u8], endian: Endian) -> Option<u64> {
    let text = std::str::from_utf8(read_str(section, endian)?).ok()?.trim();
    u64::from_str_radix(text.trim_start_matches("0x"), 16).ok()
}
