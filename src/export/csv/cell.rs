//! Converts bytes from a recording to text that every CSV reader accepts.

use std::borrow::Cow;

/// Escapes the text of a cell, so that every row is one line and nothing is lost: control characters, invalid
/// UTF-8, and a first character with which spreadsheets begin a formula (`=`, `+`, `-`, `@`) become `\xNN`
/// for each byte, and `\` becomes `\\`.
pub(super) fn plain(bytes: &[u8]) -> Cow<'_, str> {
    let begins_formula = matches!(bytes, [b'=' | b'+' | b'-' | b'@', ..]);
    if let Ok(text) = str::from_utf8(bytes)
        && !begins_formula
        && !text.contains(|c: char| c.is_control() || c == '\\')
    {
        return text.into();
    }
    let mut out = String::new();
    let escape = |out: &mut String, bytes: &[u8]| {
        bytes.iter().for_each(|byte| out.push_str(&format!("\\x{byte:02x}")));
    };
    for chunk in bytes.utf8_chunks() {
        for c in chunk.valid().chars() {
            match c {
                '\\' => out.push_str("\\\\"),
                c if c.is_control() || begins_formula && out.is_empty() => {
                    escape(&mut out, c.encode_utf8(&mut [0; 4]).as_bytes());
                }
                c => out.push(c),
            }
        }
        escape(&mut out, chunk.invalid());
    }
    out.into()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_cell_is_one_line_of_text_and_no_formula() {
        let cases: [(&[u8], &str); 8] = [
            (b"", ""),
            (b"/usr/bin/x, \"y\"", "/usr/bin/x, \"y\""),
            ("bürn".as_bytes(), "bürn"),
            (b"new\nline\\", "new\\x0aline\\\\"),
            (b"a\xff\xc3", "a\\xff\\xc3"),
            (b"=1+1", "\\x3d1+1"),
            (b"-bash", "\\x2dbash"),
            (b"@SUM(A1)", "\\x40SUM(A1)"),
        ];
        for (bytes, expected) in cases {
            assert_eq!(plain(bytes), expected);
        }
    }
}
