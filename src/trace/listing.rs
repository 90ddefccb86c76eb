//! Writes x86 code as text, one instruction per line, as `objdump -d` does.

use iced_x86::{Decoder, DecoderOptions, Formatter as _, GasFormatter};

/// The address of each instruction of x86 code at `address`, and its text in AT&T syntax, or `(bad)`. `bits` is
/// the size of addresses: 16, 32 or 64.
///
/// ```
/// let lines: Vec<_> = perfx_trace::listing(64, &[0x48, 0x89, 0xe5, 0xeb, 0xfb], 0x1000).collect();
/// assert_eq!(lines, [(0x1000, "mov %rsp,%rbp".to_owned()), (0x1003, "jmp 0x1000".to_owned())]);
/// ```
pub fn listing(bits: u32, code: &[u8], address: u64) -> impl Iterator<Item = (u64, String)> {
    let mut decoder = Decoder::with_ip(bits, code, address, DecoderOptions::NONE);
    let mut formatter = GasFormatter::new();
    let options = formatter.options_mut();
    options.set_uppercase_hex(false);
    options.set_hex_prefix("0x");
    options.set_hex_suffix("");
    options.set_branch_leading_zeros(false);
    options.set_small_hex_numbers_in_decimal(false);
    options.set_rip_relative_addresses(true);
    std::iter::from_fn(move || {
        let instruction = decoder.can_decode().then(|| decoder.decode())?;
        let mut text = String::new();
        formatter.format(&instruction, &mut text);
        Some((instruction.ip(), text))
    })
}
