//! CPU_MAP records list the CPUs that perf stat counted on; EVENT_UPDATE records contain the same list.

use super::reader::Reader;
use crate::FaultCode;
use crate::value::bytes_of;

/// `struct perf_record_cpu_map_data`: u16 type, then CPUs, a mask's words, or a range; -1 is any CPU.
pub(crate) fn decode(d: &mut Reader<'_>) -> Option<()> {
    match d.named::<u16>("type", &[(0, "CPUS"), (1, "MASK"), (2, "RANGE")])? {
        0 => {
            let count = d.int::<u16>("nr")?;
            d.list("cpu", count, 2, |d| d.any::<u16>("").map(drop))
        }
        1 => {
            let count = d.int::<u16>("nr")?;
            match d.number::<u16>("long_size")? {
                4 => d.list("mask", count, 4, |d| d.hex::<u32>("").map(drop)),
                8 => {
                    d.skip("padding", 4)?;
                    d.list("mask", count, 8, |d| d.hex::<u64>("").map(drop))
                }
                size => {
                    d.add_issue(FaultCode::CpuMapType, format!("words of {}", bytes_of(size)));
                    None
                }
            }
        }
        2 => {
            d.number::<u8>("any_cpu")?;
            d.skip("padding", 1)?;
            let start = d.number::<u16>("start_cpu")?;
            let end = d.number::<u16>("end_cpu")?;
            if end < start {
                d.add_issue(FaultCode::CpuMapRange, format!("the CPUs from {start} to {end}"));
            }
            Some(())
        }
        kind => {
            d.add_issue(FaultCode::CpuMapType, format!("unknown type {kind}"));
            None
        }
    }
}
