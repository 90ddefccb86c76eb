//! Names the levels at which code runs: bits 0 to 2 of `misc` in records and build-id entries
//! (include/uapi/linux/perf_event.h).

/// The level is unknown.
pub const UNKNOWN: u16 = 0;
/// The kernel of the host.
pub const KERNEL: u16 = 1;
/// A process of the host.
pub const USER: u16 = 2;
/// A hypervisor.
pub const HYPERVISOR: u16 = 3;
/// The kernel of a guest.
pub const GUEST_KERNEL: u16 = 4;
/// A process of a guest.
pub const GUEST_USER: u16 = 5;

/// The lowest address of a kernel on the machines that have branch stacks and SPE.
pub const KERNEL_START: u64 = 1 << 63;

const MASK: u16 = 7;

/// The cpumode in `misc`.
#[inline]
pub fn of(misc: u16) -> u16 {
    misc & MASK
}

/// `misc` with another cpumode.
pub fn with(misc: u16, cpumode: u16) -> u16 {
    misc & !MASK | cpumode
}

/// True for kernel code, of the host or of a guest.
#[inline]
pub fn is_kernel(cpumode: u16) -> bool {
    matches!(cpumode, KERNEL | GUEST_KERNEL)
}

/// True for code that runs in a guest.
#[inline]
pub fn is_guest(cpumode: u16) -> bool {
    matches!(cpumode, GUEST_KERNEL | GUEST_USER)
}
