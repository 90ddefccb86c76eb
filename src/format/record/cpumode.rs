//! The levels at which code runs: bits 0 to 2 of `misc` in records and build-id entries
//! (include/uapi/linux/perf_event.h).

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
