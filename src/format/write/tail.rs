//! Writes everything after the records of a file: the feature table, the features' sections, the event types.

use std::io::{self, Write};

use crate::Endian;
use crate::header::Features;
use crate::section::{Section, feature_table};

/// Writes the tail after the data section, and returns the section of the event types.
///
/// # Errors
///
/// `out` cannot be written.
pub fn write_tail(
    out: &mut impl Write,
    data: Section,
    features: &Features,
    spare_slots: &[u8],
    event_types: &[u8],
    endian: Endian,
) -> io::Result<Section> {
    let sizes: Vec<u64> = features.values().map(|section| section.len() as u64).collect();
    let table = feature_table(data.end(), sizes.iter().copied(), spare_slots, endian);
    out.write_all(&table)?;
    features.values().try_for_each(|section| out.write_all(section))?;
    out.write_all(event_types)?;
    let offset = data.end() + table.len() as u64 + sizes.iter().sum::<u64>();
    let types = Section { offset, size: event_types.len() as u64 };
    Ok(if event_types.is_empty() { Section::default() } else { types })
}
