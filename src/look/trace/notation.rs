//! Bytes in the notations of the kernel's printf: network addresses, UUIDs, hex dumps and bitmaps.

use std::net::Ipv6Addr;

use perfx_format::Endian;

#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum Notation {
    Ipv4 {
        zeros: bool,
        order: Order,
    },
    Ipv6(Ipv6),
    /// `struct sockaddr`: its address and, with `port`, its port.
    Socket {
        ipv4: Order,
        ipv6: Ipv6,
        port: bool,
    },
    Mac {
        between: &'static str,
        reversed: bool,
    },
    Uuid {
        little_endian: bool,
        upper: bool,
    },
}

#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum Order {
    Network,
    Little,
    /// The byte order of the recorded machine.
    Host,
}

#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum Ipv6 {
    /// All digits, with or without colons.
    Long { colons: bool },
    /// `::` in place of zeros.
    Short,
}

const AF_INET: u16 = 2;
const AF_INET6: u16 = 10;

impl Notation {
    /// The notation at the start of the text after `%p`, and the text after it.
    pub(super) fn parse(text: &str) -> Option<(Notation, &str)> {
        let (letter, rest) = text.split_at_checked(1)?;
        // The first matching prefix, or a default.
        fn take<'t, T: Copy>(text: &'t str, of: &[(&str, T)], default: T) -> (T, &'t str) {
            let found = of.iter().find_map(|(prefix, value)| Some((*value, text.strip_prefix(prefix)?)));
            found.unwrap_or((default, text))
        }
        let order = |text| {
            use Order::{Host, Little, Network};
            take(text, &[("h", Host), ("l", Little), ("n", Network), ("b", Network)], Network)
        };
        let length = |text, colons| match colons {
            true => take(text, &[("c", Ipv6::Short)], Ipv6::Long { colons }),
            false => (Ipv6::Long { colons }, text),
        };
        let (is_upper, version) = (letter == "I", rest);
        Some(match (letter, version.as_bytes().first()) {
            ("I" | "i", Some(b'4')) => {
                let (order, rest) = order(&rest[1..]);
                (Notation::Ipv4 { zeros: !is_upper, order }, rest)
            }
            ("I" | "i", Some(b'6')) => {
                let (ipv6, rest) = length(&rest[1..], is_upper);
                (Notation::Ipv6(ipv6), rest)
            }
            ("I", Some(b'S')) => {
                let (port, rest) = take(&rest[1..], &[("p", true)], false);
                let (ipv6, rest) = length(rest, true);
                let (ipv4, rest) = order(rest);
                (Notation::Socket { ipv4, ipv6, port }, rest)
            }
            ("M", _) => {
                let colons = Notation::Mac { between: ":", reversed: false };
                let dashes = Notation::Mac { between: "-", reversed: false };
                take(rest, &[("F", dashes), ("R", Notation::Mac { between: ":", reversed: true })], colons)
            }
            ("m", _) => {
                let (reversed, rest) = take(rest, &[("R", true)], false);
                (Notation::Mac { between: "", reversed }, rest)
            }
            ("U", _) => {
                let (small, large) = ((false, false), (false, true));
                let forms = [("b", small), ("B", large), ("l", (true, false)), ("L", (true, true))];
                let ((little_endian, upper), rest) = take(rest, &forms, small);
                (Notation::Uuid { little_endian, upper }, rest)
            }
            _ => return None,
        })
    }

    /// The text of these bytes; `None` if their number is wrong.
    pub(super) fn text(self, bytes: &[u8], endian: Endian) -> Option<String> {
        Some(match self {
            Notation::Ipv4 { zeros, order } => ipv4(bytes.try_into().ok()?, zeros, order, endian),
            Notation::Ipv6(form) => form.text(bytes.try_into().ok()?),
            Notation::Socket { ipv4: order, ipv6, port } => {
                let port_of = || Some(u16::from_be_bytes(*bytes.get(2..)?.first_chunk()?)).filter(|_| port);
                match endian.u16(bytes, 0)? {
                    AF_INET => {
                        let address = ipv4(bytes.get(4..)?.first_chunk()?, false, order, endian);
                        port_of().map_or(address.clone(), |port| format!("{address}:{port}"))
                    }
                    AF_INET6 => {
                        let address = ipv6.text(bytes.get(8..)?.first_chunk()?);
                        port_of().map_or(address.clone(), |port| format!("[{address}]:{port}"))
                    }
                    _ => String::new(),
                }
            }
            Notation::Mac { between, reversed } => {
                let mut address = *<&[u8; 6]>::try_from(bytes).ok()?;
                if reversed {
                    address.reverse();
                }
                dump(&address, between)
            }
            Notation::Uuid { little_endian, upper } => {
                let mut id = *<&[u8; 16]>::try_from(bytes).ok()?;
                if little_endian {
                    [0..4, 4..6, 6..8].into_iter().for_each(|part| id[part].reverse());
                }
                let parts = [0..4, 4..6, 6..8, 8..10, 10..16].map(|part| dump(&id[part], ""));
                let text = parts.join("-");
                if upper { text.to_uppercase() } else { text }
            }
        })
    }
}

fn ipv4(bytes: &[u8; 4], zeros: bool, order: Order, endian: Endian) -> String {
    let mut address = *bytes;
    if order == Order::Little || order == Order::Host && endian == Endian::Little {
        address.reverse();
    }
    let [a, b, c, d] = address;
    if zeros { format!("{a:03}.{b:03}.{c:03}.{d:03}") } else { format!("{a}.{b}.{c}.{d}") }
}

impl Ipv6 {
    fn text(self, bytes: &[u8; 16]) -> String {
        let colons = match self {
            Ipv6::Long { colons } => colons,
            Ipv6::Short => return short_ipv6(*bytes),
        };
        let words: Vec<String> = bytes.as_chunks::<2>().0.iter().map(|word| dump(word, "")).collect();
        words.join(if colons { ":" } else { "" })
    }
}

/// With `::` in place of zeros, and the last 4 bytes in decimal if they are an address of IPv4.
fn short_ipv6(bytes: [u8; 16]) -> String {
    let [.., a, b, c, d] = bytes;
    let mut address = Ipv6Addr::from(bytes);
    let is_isatap = bytes[8] & !2 == 0 && bytes[9..12] == [0, 0x5e, 0xfe];
    if !is_isatap {
        return address.to_string();
    }
    // Words that no `::` replaces.
    let [words @ .., _, _] = address.segments();
    let [p, q, r, s, t, u] = words;
    address = Ipv6Addr::new(p, q, r, s, t, u, 1, 1);
    let text = address.to_string();
    format!("{}{a}.{b}.{c}.{d}", text.strip_suffix("1:1").unwrap_or(&text))
}

pub(super) fn dump(bytes: &[u8], between: &str) -> String {
    bytes.iter().map(|byte| format!("{byte:02x}")).collect::<Vec<_>>().join(between)
}

/// A bitmap of words of the recorded machine in hex, the highest bits first, with a comma after each 32.
pub(super) fn bitmap(bytes: &[u8], endian: Endian) -> String {
    let mut bytes = bytes.to_vec();
    if endian == Endian::Little {
        bytes.reverse();
    }
    let mut chunks = bytes.rchunks(4).map(|chunk| dump(chunk, "")).collect::<Vec<_>>();
    chunks.reverse();
    chunks.join(",")
}

/// The set bits of a bitmap: `0-3,8`.
pub(super) fn bit_list(bytes: &[u8], endian: Endian) -> String {
    let at = |byte: usize| if endian == Endian::Little { bytes[byte] } else { bytes[bytes.len() - 1 - byte] };
    let is_set = |bit: &usize| at(bit / 8) >> (bit % 8) & 1 != 0;
    let bits = (0..bytes.len()).filter(|byte| at(*byte) != 0).flat_map(|byte| 8 * byte..8 * byte + 8);
    let mut bits = bits.filter(is_set).peekable();
    let mut ranges = Vec::new();
    while let Some(first) = bits.next() {
        let mut last = first;
        while bits.next_if_eq(&(last + 1)).is_some() {
            last += 1;
        }
        ranges.push(if first == last { first.to_string() } else { format!("{first}-{last}") });
    }
    ranges.join(",")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn bitmaps_are_shown_as_by_the_kernel() {
        let bytes = [0x0f, 1, 0, 0, 0x80, 0, 0, 0x80];
        assert_eq!(bitmap(&bytes, Endian::Little), "80000080,0000010f");
        assert_eq!(bit_list(&bytes, Endian::Little), "0-3,8,39,63");
        let mut big = bytes;
        big.reverse();
        assert_eq!(bitmap(&big, Endian::Big), "80000080,0000010f");
        assert_eq!(bit_list(&big, Endian::Big), "0-3,8,39,63");
        assert_eq!(
            (bitmap(&[], Endian::Big), bit_list(&[0; 4], Endian::Big)),
            (String::new(), String::new())
        );
    }

    #[test]
    fn addresses_of_ipv4_inside_ipv6_are_decimal() {
        let short =
            |words: [u16; 8]| Notation::Ipv6(Ipv6::Short).text(&Ipv6Addr::from(words).octets(), Endian::Big);
        for (words, text) in [
            ([0, 0, 0, 0, 0, 0xffff, 0x7f00, 1], "::ffff:127.0.0.1"),
            ([0xfe80, 0, 0, 0, 0, 0x5efe, 0x0a00, 2], "fe80::5efe:10.0.0.2"),
            ([0xfe80, 0, 0, 0, 0x200, 0x5efe, 0, 0], "fe80::200:5efe:0.0.0.0"),
            ([0; 8], "::"),
            ([1, 0, 2, 0, 0, 3, 0, 0], "1:0:2::3:0:0"),
        ] {
            assert_eq!(short(words).as_deref(), Some(text));
        }
    }

    #[test]
    fn sockets_are_shown_with_their_ports() {
        let shown = |format: &str, bytes: &[u8]| {
            let (notation, rest) = Notation::parse(format).unwrap();
            assert_eq!(rest, "", "{format}");
            notation.text(bytes, Endian::Little)
        };
        let ipv4 = [2, 0, 0x1f, 0x90, 127, 0, 0, 1, 0, 0, 0, 0, 0, 0, 0, 0];
        let mut ipv6 = [0; 28];
        (ipv6[0], ipv6[2], ipv6[3], ipv6[23]) = (10, 0x1f, 0x90, 1);
        let texts = ["ISpc", "ISp", "ISc", "ISpcb"].map(|format| shown(format, &ipv4).unwrap());
        assert_eq!(texts, ["127.0.0.1:8080", "127.0.0.1:8080", "127.0.0.1", "127.0.0.1:8080"]);
        assert_eq!(shown("ISpc", &ipv6).unwrap(), "[::1]:8080");
        assert_eq!(shown("IS", &ipv6).unwrap(), "0000:0000:0000:0000:0000:0000:0000:0001");
        assert_eq!((shown("ISpc", &[1, 0]), shown("ISpc", &[2, 0, 0])), (Some(String::new()), None));
    }
}
