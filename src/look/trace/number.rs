//! Calculates with C integers: sizes and signs count as in the kernel.

#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) struct IntType {
    /// From 1 to 8.
    pub(super) bytes: u8,
    pub(super) signed: bool,
}

#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) struct Number {
    value: i128,
    of: IntType,
}

impl IntType {
    pub(super) const INT: IntType = IntType { bytes: 4, signed: true };
    pub(super) const U64: IntType = IntType { bytes: 8, signed: false };
    pub(super) const S64: IntType = IntType { bytes: 8, signed: true };

    /// The number with the lowest bits of `value`.
    pub(super) fn number(self, value: i128) -> Number {
        let unused = 128 - 8 * u32::from(self.bytes);
        let bits = value << unused;
        let value = match self.signed {
            true => bits >> unused,
            false => (bits.cast_unsigned() >> unused).cast_signed(),
        };
        Number { value, of: self }
    }

    fn promoted(self) -> IntType {
        if self.bytes < IntType::INT.bytes { IntType::INT } else { self }
    }

    /// The type in which C calculates with numbers of both types.
    fn common(self, other: IntType) -> IntType {
        let (one, other) = (self.promoted(), other.promoted());
        match one.bytes == other.bytes {
            true => IntType { signed: one.signed && other.signed, ..one },
            false if one.bytes > other.bytes => one,
            false => other,
        }
    }
}

impl Number {
    /// A number as C writes it: `12`, `0x1f`, `017`, `1UL`. `None` for anything else, and above 64 bits.
    pub(super) fn parse(text: &str) -> Option<Number> {
        let digits = text.trim_end_matches(['u', 'U', 'l', 'L']);
        let suffix = &text[digits.len()..];
        let (is_decimal, value) = match digits.strip_prefix("0x").or(digits.strip_prefix("0X")) {
            Some(hex) => (false, u64::from_str_radix(hex, 16)),
            None if digits.len() > 1 && digits.starts_with('0') => (false, u64::from_str_radix(digits, 8)),
            None => (true, digits.parse()),
        };
        let value = i128::from(value.ok()?);
        let smallest = if suffix.contains(['l', 'L']) { 8 } else { 4 };
        let is_unsigned = suffix.contains(['u', 'U']);
        let types = [4, 8].into_iter().filter(|bytes| *bytes >= smallest).flat_map(|bytes| {
            let signed = (!is_unsigned).then_some(IntType { bytes, signed: true });
            let unsigned = (is_unsigned || !is_decimal).then_some(IntType { bytes, signed: false });
            signed.into_iter().chain(unsigned)
        });
        let mut numbers = types.map(|of| of.number(value));
        Some(numbers.find(|number| number.value == value).unwrap_or(IntType::U64.number(value)))
    }

    pub(super) fn wide(self) -> i64 {
        self.value as i64
    }

    /// Its bits, without sign extension.
    pub(super) fn bits(self) -> u64 {
        self.value as u64 & u64::MAX >> (64 - 8 * u32::from(self.of.bytes))
    }

    pub(super) fn is_true(self) -> bool {
        self.value != 0
    }

    pub(super) fn to(self, of: IntType) -> Number {
        of.number(self.value)
    }

    pub(super) fn unary(self, sign: u8) -> Number {
        let of = self.of.promoted();
        match sign {
            b'-' => of.number(-self.value),
            b'~' => of.number(!self.value),
            b'!' => truth(!self.is_true()),
            _ => of.number(self.value),
        }
    }

    /// The result of an operator; `None` if C does not define it.
    pub(super) fn binary(self, sign: &str, right: Number) -> Option<Number> {
        let of = match sign {
            "<<" | ">>" => self.of.promoted(),
            _ => self.of.common(right.of),
        };
        let bits = 8 * i128::from(of.bytes);
        let shift = u32::try_from(right.value).ok().filter(|_| right.value < bits);
        let (left, right) = (of.number(self.value).value, of.number(right.value).value);
        Some(match sign {
            "*" => of.number(left.wrapping_mul(right)),
            "/" => of.number(left.checked_div(right)?),
            "%" => of.number(left.checked_rem(right)?),
            "+" => of.number(left + right),
            "-" => of.number(left - right),
            "<<" => of.number(left << shift?),
            ">>" => of.number(left >> shift?),
            "<" => truth(left < right),
            ">" => truth(left > right),
            "<=" => truth(left <= right),
            ">=" => truth(left >= right),
            "==" => truth(left == right),
            "!=" => truth(left != right),
            "&" => of.number(left & right),
            "^" => of.number(left ^ right),
            "|" => of.number(left | right),
            "&&" => truth(left != 0 && right != 0),
            _ => truth(left != 0 || right != 0),
        })
    }
}

fn truth(is_true: bool) -> Number {
    IntType::INT.number(i128::from(is_true))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn numbers_have_the_smallest_type_that_c_allows_for_them() {
        let of = |text| Number::parse(text).map(|Number { value, of }| (value, of.bytes, of.signed));
        for (text, expected) in [
            ("12", (12, 4, true)),
            ("017", (15, 4, true)),
            ("0", (0, 4, true)),
            ("0xffffffff", (0xffff_ffff, 4, false)),
            ("4294967295", (0xffff_ffff, 8, true)),
            ("1u", (1, 4, false)),
            ("1L", (1, 8, true)),
            ("0xffffffffffffffffULL", (u64::MAX.into(), 8, false)),
            ("18446744073709551615", (u64::MAX.into(), 8, false)),
        ] {
            assert_eq!(of(text), Some(expected), "{text}");
        }
        for text in ["", "x", "0x", "09", "18446744073709551616", "1f"] {
            assert_eq!(of(text), None, "{text}");
        }
    }

    #[test]
    fn signs_and_widths_are_those_of_c() {
        let of = |text: &str| Number::parse(text).unwrap();
        let (minus, int) = (of("1").unary(b'-'), IntType::INT);
        let both = |sign, left: Number, right| left.binary(sign, right).map(Number::wide);
        assert_eq!(both("<", minus, of("1")), Some(1));
        // The left side becomes unsigned.
        assert_eq!(both("<", minus, of("1u")), Some(0));
        assert_eq!(both("<", minus.to(IntType { bytes: 1, signed: false }), of("0")), Some(0));
        assert_eq!(both("/", of("7").unary(b'-'), of("2")), Some(-3));
        assert_eq!(both("+", of("0xffffffff"), of("1")), Some(0));
        assert_eq!(both("-", of("1u"), of("2")), Some(0xffff_ffff));
        assert_eq!(both(">>", int.number(-8), of("1")), Some(-4));
        assert_eq!((minus.wide(), minus.bits()), (-1, 0xffff_ffff));
        assert_eq!(both("*", of("0xffffffffffffffff"), of("0xffffffffffffffff")), Some(1));
        for (sign, right) in [("/", "0"), ("%", "0"), ("<<", "32"), (">>", "64")] {
            assert_eq!(both(sign, of("1"), of(right)), None, "{sign} {right}");
        }
        let lowest = IntType::S64.number(i64::MIN.into());
        assert_eq!(both("/", lowest, minus.to(IntType::S64)), Some(i64::MIN));
    }
}
