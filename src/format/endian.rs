//! Reads and writes integers at a byte offset in the recording's byte order, never swapped in place.

/// The byte order of a recording (of the machine that recorded it).
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Endian {
    /// Least significant byte first (x86, arm64, riscv, …).
    Little,
    /// Most significant byte first (s390x, …).
    Big,
}

macro_rules! integers {
    ($($read:ident $write:ident $bytes:ident $int:ty, $size:literal;)*) => {
        $(
            #[doc = concat!("The `", stringify!($int), "` at byte offset `at`; `None` when it does not fit in `bytes`.")]
            #[inline]
            pub fn $read(self, bytes: &[u8], at: usize) -> Option<$int> {
                let raw: [u8; $size] = bytes.get(at..at.checked_add($size)?)?.try_into().ok()?;
                Some(match self {
                    Endian::Little => <$int>::from_le_bytes(raw),
                    Endian::Big => <$int>::from_be_bytes(raw),
                })
            }

            #[doc = concat!("The bytes of a `", stringify!($int), "` in this order.")]
            #[inline]
            pub fn $bytes(self, value: $int) -> [u8; $size] {
                match self {
                    Endian::Little => value.to_le_bytes(),
                    Endian::Big => value.to_be_bytes(),
                }
            }

            #[doc = concat!("Overwrites the `", stringify!($int), "` at byte offset `at`; `None`, and nothing written, when it does not fit.")]
            #[inline]
            pub fn $write(self, bytes: &mut [u8], at: usize, value: $int) -> Option<()> {
                bytes.get_mut(at..at.checked_add($size)?)?.copy_from_slice(&self.$bytes(value));
                Some(())
            }
        )*
    };
}

impl Endian {
    integers! {
        u16 set_u16 bytes_u16 u16, 2;
        u32 set_u32 bytes_u32 u32, 4;
        u64 set_u64 bytes_u64 u64, 8;
    }
}

/// Takes fields one after another from the front of a byte slice.
#[derive(Clone, Copy, Debug)]
pub struct Cursor<'a> {
    bytes: &'a [u8],
    at: usize,
    endian: Endian,
}

impl<'a> Cursor<'a> {
    /// Starts at the front of `bytes`.
    #[inline]
    pub fn new(bytes: &'a [u8], endian: Endian) -> Self {
        Cursor { bytes, at: 0, endian }
    }

    /// Bytes taken so far.
    #[inline]
    pub fn at(&self) -> usize {
        self.at
    }

    /// The byte order of the integers.
    #[inline]
    pub fn endian(&self) -> Endian {
        self.endian
    }

    /// The bytes that have not been taken yet.
    #[inline]
    pub fn rest(&self) -> &'a [u8] {
        &self.bytes[self.at..]
    }

    /// Takes the next `len` bytes. Returns `None` and takes nothing if fewer are left.
    #[inline]
    pub fn bytes(&mut self, len: usize) -> Option<&'a [u8]> {
        let taken = self.bytes.get(self.at..self.at.checked_add(len)?)?;
        self.at += len;
        Some(taken)
    }

    /// The next byte.
    #[inline]
    pub fn u8(&mut self) -> Option<u8> {
        self.bytes(1).map(|b| b[0])
    }

    /// The next two bytes as an integer.
    #[inline]
    pub fn u16(&mut self) -> Option<u16> {
        let value = self.endian.u16(self.bytes, self.at)?;
        self.at += 2;
        Some(value)
    }

    /// The next four bytes as an integer.
    #[inline]
    pub fn u32(&mut self) -> Option<u32> {
        let value = self.endian.u32(self.bytes, self.at)?;
        self.at += 4;
        Some(value)
    }

    /// The next eight bytes as an integer.
    #[inline]
    pub fn u64(&mut self) -> Option<u64> {
        let value = self.endian.u64(self.bytes, self.at)?;
        self.at += 8;
        Some(value)
    }
}

/// The bytes before the first NUL, or all bytes if there is none.
pub fn until_nul(bytes: &[u8]) -> &[u8] {
    &bytes[..bytes.iter().position(|&b| b == 0).unwrap_or(bytes.len())]
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn reads_both_orders_and_refuses_what_does_not_fit() {
        let b = [1, 2, 3, 4, 5, 6, 7, 8];
        assert_eq!(Endian::Little.u16(&b, 0), Some(0x0201));
        assert_eq!(Endian::Big.u32(&b, 4), Some(0x0506_0708));
        assert_eq!(Endian::Little.u64(&b, 1), None);
        assert_eq!(Endian::Big.u64(&b, usize::MAX), None);
    }

    #[test]
    fn cursor_takes_nothing_when_too_little_is_left() {
        let mut c = Cursor::new(&[1, 0, 9], Endian::Little);
        assert_eq!(c.u16(), Some(1));
        assert_eq!(c.u32(), None);
        assert_eq!(c.u8(), Some(9));
        assert_eq!(c.rest(), b"");
    }
}
