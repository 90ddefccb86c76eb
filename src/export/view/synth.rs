//! Shows the raw data of events that perf synthesizes from an Intel PT trace, as `perf script` does.

use perfx_format::Endian;
use perfx_format::sample::synth;

const WIDTH: usize = 34;

/// The text of a sample of the event with this `attr.config` ([`synth`]); `None` if its data is too short.
pub(super) fn text(config: u64, raw: &[u8], endian: Endian) -> Option<String> {
    let number = |at: usize| endian.u32(raw, 4 * at);
    let word = |at: usize| endian.u64(raw, 4 * at);
    let bits = |value: u64, from: u32, count: u32| value >> from & ((1 << count) - 1);
    let text = match config {
        synth::PTWRITE => {
            let payload = word(1)?;
            format!(" IP: {} payload: {} {}", number(0)? & 1, alternate(payload), letters(payload))
        }
        synth::MWAIT => {
            let payload = word(1)?;
            format!(" hints: {:#x} extensions: {:#x}", bits(payload, 0, 8), bits(payload, 32, 2))
        }
        synth::POWER_ENTER => {
            let payload = word(1)?;
            let (hardware, state, sub) = (bits(payload, 7, 1), bits(payload, 12, 4), bits(payload, 8, 4));
            format!(" hw: {hardware} cstate: {state} sub-cstate: {sub}")
        }
        synth::STOP => format!(" IP: {}", number(0)? & 1),
        synth::POWER_EXIT => {
            let payload = word(1)?;
            let (deepest, last, reason) = (bits(payload, 0, 4), bits(payload, 4, 4), bits(payload, 8, 4));
            format!(" deepest cstate: {deepest} last cstate: {last} wake reason: {reason:#x}")
        }
        synth::CBR => {
            let (ratios, khz) = (number(0)?, number(1)?);
            let (ratio, most) = (ratios & 0xff, ratios >> 16 & 0xff);
            let share = match most {
                0 => String::new(),
                _ => format!("({:3}%)", (5 + 1000 * ratio / most) / 10),
            };
            format!(" cbr: {ratio:2} freq: {:4} MHz {share}", khz.saturating_add(500) / 1000)
        }
        synth::PSB => format!(" psb offs: {}", alternate(word(1)?)),
        synth::CONTROL => return Some(format!("{:<WIDTH$}", control(raw, endian)?)),
        synth::INTERRUPT_FLAG => {
            let flags = number(0)?;
            let (on, via) = (flags & 1, if flags & 2 != 0 { "via" } else { "non" });
            format!(" IFLAG: {}->{on} {via} branch", 1 - on)
        }
        _ => return None,
    };
    // At least one blank follows.
    Some(format!("{text:<0$}", WIDTH.max(text.len() + 1)))
}

/// Names of the kinds of CFE and EVD packets.
const CONTROLS: [&str; 14] = [
    "", "INTR", "IRET", "SMI", "RSM", "SIPI", "INIT", "VMENTRY", "VMEXIT", "VMEXIT_INTR", "SHUTDOWN", "",
    "UINTR", "UIRET",
];
const DATA: [&str; 3] = ["PFA", "VMXQ", "VMXR"];

fn control(raw: &[u8], endian: Endian) -> Option<String> {
    let event = endian.u32(raw, 0)?;
    let (kind, ip, vector, count) = (event & 0x1f, event >> 7 & 1, event >> 8 & 0xff, event >> 16);
    let name = CONTROLS.get(kind as usize).filter(|name| !name.is_empty());
    let name = name.map_or_else(|| kind.to_string(), |name| (*name).to_owned());
    let mut text = format!(" cfe: {name} IP: {ip} vector: {vector}");
    for at in 0..count as usize {
        let (kind, payload) = (endian.u64(raw, 4 + 16 * at)? & 0x3f, endian.u64(raw, 12 + 16 * at)?);
        let name = DATA.get(kind as usize).map_or_else(|| format!("EVD_{kind}"), |name| (*name).to_owned());
        text += &format!(" {name}: {}", alternate(payload));
    }
    Some(text)
}

/// The letters in a number, from its lowest byte on; empty if it has other bytes.
fn letters(number: u64) -> String {
    let bytes = number.to_le_bytes();
    let count = bytes.iter().position(|byte| *byte == 0).unwrap_or(bytes.len());
    let (text, zeros) = bytes.split_at(count);
    let is_text = text.iter().all(|byte| matches!(byte, b' '..=b'~')) && zeros.iter().all(|byte| *byte == 0);
    if is_text { String::from_utf8_lossy(text).into_owned() } else { String::new() }
}

/// Hexadecimal as C's `%#x`: 0 has no prefix.
fn alternate(number: u64) -> String {
    if number == 0 { "0".to_owned() } else { format!("{number:#x}") }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_text_is_that_of_perf() {
        let text = |config, numbers: &[u32]| {
            let raw: Vec<u8> = numbers.iter().flat_map(|number| number.to_le_bytes()).collect();
            text(config, &raw, Endian::Little).map(|text| text.trim_end().to_owned())
        };
        assert_eq!(text(5, &[0x20_0022, 1_062_500, 0]).unwrap(), " cbr: 34 freq: 1063 MHz (106%)");
        assert_eq!(text(6, &[0, 0xf6, 0]).unwrap(), " psb offs: 0xf6");
        assert_eq!(text(0, &[0, 0x2bc, 0]).unwrap(), " IP: 0 payload: 0x2bc");
        assert_eq!(text(0, &[1, 0x6c_6c61, 0]).unwrap(), " IP: 1 payload: 0x6c6c61 all");
        assert_eq!(text(0, &[0, 0x61, 0x61]).unwrap(), " IP: 0 payload: 0x6100000061");
        assert_eq!(text(4, &[0, 0x154, 0]).unwrap(), " deepest cstate: 4 last cstate: 5 wake reason: 0x1");
        // perf never writes such a frequency.
        assert!(text(5, &[0, u32::MAX, 0]).is_some());
        assert_eq!(text(6, &[0]), None);
        assert_eq!(text(7, &[0x1_0e81, 0, 0, 0x1000, 0]).unwrap(), " cfe: INTR IP: 1 vector: 14 PFA: 0x1000");
        assert_eq!(
            text(7, &[0x2_001f, 1, 0, 0, 0, 3, 0, 9, 0]).unwrap(),
            " cfe: 31 IP: 0 vector: 0 VMXQ: 0 EVD_3: 0x9"
        );
        assert_eq!(text(7, &[0x1_0001, 0, 0]), None);
        assert_eq!(text(8, &[1, 0, 0]).unwrap(), " IFLAG: 0->1 non branch");
        assert_eq!(text(8, &[2, 1, 0]).unwrap(), " IFLAG: 1->0 via branch");
        assert_eq!(text(9, &[0, 0, 0]), None);
    }
}
