//! Parses decimal numbers without rounding them.

use std::str::FromStr;

use perfx_pipeline::{Context as _, Error, Result};

/// A positive decimal number, kept as a fraction so that a time is rounded only once.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Factor {
    pub(crate) numerator: u64,
    pub(crate) denominator: u64,
}

impl Default for Factor {
    fn default() -> Factor {
        Factor { numerator: 1, denominator: 1 }
    }
}

impl FromStr for Factor {
    type Err = Error;

    fn from_str(text: &str) -> Result<Factor> {
        let (whole, fraction) = text.split_once('.').unwrap_or((text, ""));
        let digits = || whole.chars().chain(fraction.chars());
        let number = || format!("`{text}` is not a positive decimal number of at most 18 digits");
        let right = (1..=18).contains(&digits().count()) && digits().all(|digit| digit.is_ascii_digit());
        let numerator = digits().collect::<String>().parse().ok();
        let numerator = numerator.filter(|&numerator: &u64| right && numerator > 0).with_context(number)?;
        Ok(Factor { numerator, denominator: 10u64.pow(fraction.len() as u32) })
    }
}
