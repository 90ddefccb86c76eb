//! Formats numbers for people; the JSON output has the exact numbers.

/// `1.5 MB`: powers of 1000, one decimal; below 1000 exact bytes.
pub(crate) fn size(bytes: u64) -> String {
    let mut value = bytes as f64;
    let mut units = ["kB", "MB", "GB", "TB"].into_iter();
    let mut unit = "";
    while value >= 1000.0 {
        let Some(next) = units.next() else { break };
        value /= 1000.0;
        unit = next;
    }
    match bytes {
        1 => "1 byte".to_owned(),
        0..1000 => format!("{bytes} bytes"),
        _ => format!("{value:.1} {unit}"),
    }
}

pub(crate) use perfx_pipeline::{count, wide_count};

/// A time in ns as perf script shows it: seconds, truncated to six decimals.
pub(crate) fn time(ns: u64) -> String {
    format!("{}.{:06}", ns / 1_000_000_000, ns % 1_000_000_000 / 1000)
}

/// A duration in ns: `10.417 ms`; from one second on `1.000 s`.
pub(crate) fn duration(ns: u64) -> String {
    match ns {
        0..1_000_000_000 => format!("{}.{:03} ms", ns / 1_000_000, ns / 1000 % 1000),
        _ => format!("{}.{:03} s", ns / 1_000_000_000, ns / 1_000_000 % 1000),
    }
}

/// A share of a total: ` 12.34%`, seven characters wide.
pub(crate) fn percent(part: u64, whole: u64) -> String {
    let share = if whole == 0 { 0.0 } else { part as f64 * 100.0 / whole as f64 };
    format!("{share:6.2}%")
}

/// Rows as columns two spaces apart: the first column aligned left, all others right. An empty row is an
/// empty line.
pub(crate) fn table(rows: &[Vec<String>]) -> String {
    let columns = rows.iter().map(Vec::len).max().unwrap_or(0);
    let cell = |row: &[String], column: usize| row.get(column).map_or(0, |cell| cell.chars().count());
    let widths: Vec<usize> =
        (0..columns).map(|column| rows.iter().map(|row| cell(row, column)).max().unwrap_or(0)).collect();
    let mut text = String::new();
    for row in rows {
        let cells = row.iter().zip(&widths).enumerate();
        let cells = cells.map(|(column, (cell, &width))| match column {
            0 => format!("{cell:<width$}"),
            _ => format!("  {cell:>width$}"),
        });
        text += cells.collect::<String>().trim_end();
        text.push('\n');
    }
    text
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn numbers_are_readable() {
        assert_eq!([size(1), size(999), size(1000)], ["1 byte", "999 bytes", "1.0 kB"]);
        assert_eq!([size(0), size(1_550_000)], ["0 bytes", "1.6 MB"]);
        assert_eq!(time(6_252_085_359_171), "6252.085359");
        let rows = [vec!["a".into(), "10".into()], vec![], vec!["bü".into(), "7".into(), "é".into()]];
        assert_eq!(table(&rows), "a   10\n\nbü   7  é\n");
        assert_eq!([duration(10_417_999), duration(61_234_567_890)], ["10.417 ms", "61.234 s"]);
        assert_eq!([percent(1, 3), percent(0, 0), percent(2, 2)], [" 33.33%", "  0.00%", "100.00%"]);
    }
}
