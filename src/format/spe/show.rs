//! Shows packets of Arm SPE in the words of `perf script -D` (7.3).

use super::{ADDRESS, Packet, exception_level, is_plain, operation_details, operation_name};

/// The names of the bits of an events packet from 0 on; the CPU defines the meaning of the others.
const EVENTS: [&str; 26] = [
    "EXCEPTION-GEN", "RETIRED", "L1D-ACCESS", "L1D-REFILL", "TLB-ACCESS", "TLB-REFILL", "NOT-TAKEN",
    "MISPRED", "LLC-ACCESS", "LLC-REFILL", "REMOTE-ACCESS", "ALIGNMENT", "", "", "", "", "TXN",
    "SVE-PARTIAL-PRED", "SVE-EMPTY-PRED", "L2D-ACCESS", "L2D-MISS", "HITM", "LFB", "SNOOPED",
    "STREAMING-SVE", "SMCU",
];

impl Packet {
    /// The packet in words; `header` is its first byte.
    pub fn text(&self, header: u8) -> String {
        match *self {
            Packet::Padding => "PAD".to_owned(),
            Packet::End => "END".to_owned(),
            Packet::Timestamp(counter) => format!("TS {}", counter as i64),
            Packet::Events(bits) => format!("EV{}", events(bits)),
            Packet::DataSource(source) => format!("DATA-SOURCE {source}"),
            Packet::Context(id) => format!("CONTEXT {id:#x} el{}", (header & 3) + 1),
            Packet::Operation { class: class @ 3.., payload } => format!("OP-TYPE {payload:#x} ({class})"),
            Packet::Operation { class, payload } => {
                let (name, details) = (operation_name(class, payload), operation_details(class, payload));
                match class {
                    // The details of vector operations include the name.
                    0 if !is_plain(payload) && !details.is_empty() => details,
                    _ => format!("{name} {details}").trim_end().to_owned(),
                }
            }
            Packet::Address { number, payload } => {
                let (address, state) = (payload & ADDRESS, payload >> 63);
                let code = || format!("{address:#x} el{} ns={state}", exception_level(payload));
                match number {
                    0 => format!("PC {}", code()),
                    1 => format!("TGT {}", code()),
                    2 => format!("VA {payload:#x}"),
                    3 => {
                        let (is_checked, tag) = (payload >> 62 & 1, payload >> 56 & 15);
                        format!("PA {address:#x} ns={state} ch={is_checked} pat={tag:x}")
                    }
                    4 => format!("PBT {}", code()),
                    _ => format!("ADDR {payload:#x} ({number})"),
                }
            }
            Packet::Counter { number, cycles } => match number {
                0 => format!("LAT {cycles} TOT"),
                1 => format!("LAT {cycles} ISSUE"),
                2 => format!("LAT {cycles} XLAT"),
                _ => format!("LAT {cycles} ({number})"),
            },
            Packet::Bad => "Bad packet!".to_owned(),
        }
    }
}

/// The names of events, each after a space; those without a name by their numbers.
fn events(bits: u64) -> String {
    let set = (0..u64::BITS as usize).filter(|number| bits >> number & 1 != 0);
    let name = |number: &usize| EVENTS.get(*number).copied().filter(|name| !name.is_empty());
    let (named, others): (Vec<_>, Vec<_>) = set.partition(|number| name(number).is_some());
    let mut text: String = named.iter().filter_map(name).map(|name| format!(" {name}")).collect();
    if !others.is_empty() {
        let others: Vec<_> = others.iter().map(ToString::to_string).collect();
        text += &format!(" IMPDEF:{}", others.join(","));
    }
    text
}

#[cfg(test)]
mod tests {
    use super::super::Packets;

    #[test]
    fn packets_have_the_words_of_perf() {
        let cases: [(&[u8], &str); 12] = [
            (&[0, 0], "PAD"),
            (&[1], "END"),
            (&[0x71, 5, 0, 0, 0, 0, 0, 0, 0], "TS 5"),
            (&[0x52, 0x43, 0x20], "EV EXCEPTION-GEN RETIRED NOT-TAKEN IMPDEF:13"),
            (&[0x43, 9], "DATA-SOURCE 9"),
            (&[0x65, 0x1f, 0, 0, 0], "CONTEXT 0x1f el2"),
            (&[0x49, 0x1e], "LD AT EXCL AR"),
            (&[0x48, 0x0e], "SVE-OTHER EVLEN 32 FP PRED"),
            (&[0xb0, 1, 2, 3, 4, 5, 6, 0x87, 0xa0], "PC 0x87060504030201 el1 ns=1"),
            (&[0xb3, 1, 0, 0, 0, 0, 0, 0, 0x5a], "PA 0x1 ns=0 ch=1 pat=a"),
            (&[0x9a, 7, 0], "LAT 7 XLAT"),
            (&[0xff], "Bad packet!"),
        ];
        for (bytes, text) in cases {
            assert_eq!(Packets::new(bytes, 0).next().unwrap().text(bytes[0]), text);
        }
    }
}
