//! Errata of processors that are known only by the model, not from the trace.
//!
//! Source: Intel's specification updates, and the models that libipt lists (`pt_cpu_errata`). The other
//! errata in that list can be seen in the trace of any processor: BDM70 and APL12 (a FUP packet while tracing
//! is off), SKL014 (TIP.PGD without an address at a direct branch out of the address filters), APL11 (TIP.PGD
//! after OVF), SKD010 (OVF without a FUP). SKL168 (a CYC packet before a PSB is missing) needs no workaround:
//! the PSB+ has the time, and the length of a cycle is never measured across one. Up to the next MTC packet,
//! times are early by the missing cycles, but not before that of the PSB+.

/// The errata of a processor. By default it has none.
#[derive(Clone, Copy, PartialEq, Eq, Default, Debug)]
pub struct Errata {
    /// The target of an indirect branch before an aborted transaction may be wrong.
    pub bdm64: bool,
    /// OVF may come after the first byte of a CYC packet.
    pub skd007: bool,
    /// A VM entry that switches tracing off has a FUP before TIP.PGD.
    pub skd022: bool,
    /// TMA packets of guests with a time-stamp counter offset are wrong, and followed by another byte.
    pub skz84: bool,
}

impl Errata {
    /// The errata of an Intel processor by family and model.
    pub fn of(family: u32, model: u32) -> Errata {
        let none = Errata::default();
        match (family, model) {
            // Broadwell.
            (6, 0x3d | 0x47 | 0x4f | 0x56) => Errata { bdm64: true, ..none },
            // Skylake to Comet Lake.
            (6, 0x4e | 0x5e | 0x8e | 0x9e | 0xa5 | 0xa6) => Errata { skd007: true, skd022: true, ..none },
            // Servers from Skylake on.
            (6, 0x55 | 0x6a | 0x6c | 0x8f | 0xad | 0xae | 0xcf) | (0x13, 1) => {
                Errata { skd022: true, skz84: true, ..none }
            }
            // Ice Lake to Rocket Lake; Alder Lake to Lunar Lake.
            (6, 0x66 | 0x7d | 0x7e | 0x8c | 0x8d | 0xa7 | 0xa8)
            | (6, 0x97 | 0x9a | 0xaa | 0xac | 0xb5 | 0xb7 | 0xba | 0xbd | 0xbf | 0xc5 | 0xc6 | 0xcc) => {
                Errata { skd022: true, ..none }
            }
            _ => none,
        }
    }
}
