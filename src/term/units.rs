//! Formats numbers and tables for people; the JSON output has the exact numbers.

use perfx_filter::shortened;
use rustix::termios::tcgetwinsize;

use crate::io::streams::stdout;

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

/// Rows as columns two spaces apart: the first aligned left, all others right. An empty row is an empty line.
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

/// `table`, fitted to standard output's terminal: long cells in the first column lose their middle.
pub(crate) fn fitted(rows: &[Vec<String>]) -> String {
    table(&narrowed(rows, columns()))
}

/// The columns of the terminal of standard output; unlimited without one.
pub(crate) fn columns() -> usize {
    let size = stdout().is_terminal().then(|| tcgetwinsize(stdout()).ok()).flatten();
    size.map(|size| usize::from(size.ws_col)).filter(|&columns| columns > 0).unwrap_or(usize::MAX)
}

pub(crate) const NAME: usize = 16;

fn narrowed(rows: &[Vec<String>], columns: usize) -> Vec<Vec<String>> {
    let width = |column: usize| {
        let cells = rows.iter().filter_map(|row| row.get(column));
        cells.map(|cell| cell.chars().count()).max().unwrap_or(0)
    };
    let others = 1..rows.iter().map(Vec::len).max().unwrap_or(0);
    let room = columns.saturating_sub(others.map(|column| 2 + width(column)).sum()).max(NAME);
    let narrow = |row: &Vec<String>| {
        let (name, others) = row.split_first()?;
        Some([&[without_middle(name, room)], others].concat())
    };
    rows.iter().map(|row| narrow(row).unwrap_or_default()).collect()
}

/// A text of at most `width` characters: a longer one loses its middle.
pub(crate) fn without_middle(text: &str, width: usize) -> String {
    let length = text.chars().count();
    if length <= width {
        return text.to_owned();
    }
    let kept = width.saturating_sub(1);
    let (head, tail) = (text.chars().take(kept.div_ceil(2)), text.chars().skip(length - kept / 2));
    head.chain(['…']).chain(tail).collect()
}

/// A function's name of at most `width` characters: a longer one first loses template arguments and parameters.
pub(crate) fn function_within(name: &str, width: usize) -> String {
    match name.chars().count() > width {
        true => without_middle(&shortened(name), width),
        false => name.to_owned(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_table_is_as_narrow_as_a_terminal() {
        let rows =
            [vec!["/usr/lib/x86_64-linux-gnu/libc.so.6".into(), "1,234".into()], vec![], vec!["a".into()]];
        assert_eq!(table(&narrowed(&rows, usize::MAX)), table(&rows));
        assert_eq!(table(&narrowed(&rows, 30)), "/usr/lib/x8…u/libc.so.6  1,234\n\na\n");
        assert_eq!(narrowed(&rows, 3)[0][0].chars().count(), NAME);
        let name = "ns::Table<int, std::allocator<int>>::find(int) const";
        let within = [60, 30, 16].map(|width| function_within(name, width));
        assert_eq!(within, [name, "ns::Table<…>::find(…) const", "ns::Tabl…) const"]);
    }

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
