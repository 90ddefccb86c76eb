//! Escapes text for a terminal, because names in a recording may contain terminal commands.

use std::io::{self, Write};

use perfx_look::render::{printable, readable};

/// Passes on text with invisible characters and invalid UTF-8 escaped; lines and tabs stay.
pub(crate) struct Escaping<W> {
    inner: W,
    begun: Vec<u8>,
}

impl<W: Write> Escaping<W> {
    pub(crate) fn new(inner: W) -> Escaping<W> {
        Escaping { inner, begun: Vec::new() }
    }
}

impl<W: Write> Write for Escaping<W> {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        self.begun.extend_from_slice(bytes);
        let text = std::mem::take(&mut self.begun);
        for chunk in text.utf8_chunks() {
            for part in chunk.valid().split_inclusive(['\n', '\t']) {
                let stays = part.ends_with(['\n', '\t']);
                let (shown, end) = part.split_at(part.len() - usize::from(stays));
                self.inner.write_all(printable(shown).as_bytes())?;
                self.inner.write_all(end.as_bytes())?;
            }
            let invalid = chunk.invalid();
            let is_last = invalid.as_ptr_range().end == text.as_ptr_range().end;
            let is_begun = is_last && std::str::from_utf8(invalid).is_err_and(|e| e.error_len().is_none());
            if is_begun {
                self.begun = invalid.to_vec();
            } else {
                self.inner.write_all(readable(invalid).as_bytes())?;
            }
        }
        Ok(bytes.len())
    }

    fn flush(&mut self) -> io::Result<()> {
        let begun = std::mem::take(&mut self.begun);
        self.inner.write_all(readable(&begun).as_bytes())?;
        self.inner.flush()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_invisible_is_escaped_wherever_the_text_is_cut() {
        let text =
            b"a\tb;\xe2\x80\xae\xe2\x80\xa8 \xef\xbb\xbf\xe2\x80\x8b\x1b[2J \xc3\xa9\xff\xc3 1\n\xe2\x80"
                .as_slice();
        let expected = "a\tb;\\u{202e}\\u{2028} \\u{feff}\\u{200b}\\u{1b}[2J é\\xff\\xc3 1\n\\xe2\\x80";
        for len in 1..text.len() {
            let mut shown = Vec::new();
            let mut out = Escaping::new(&mut shown);
            text.chunks(len).for_each(|part| out.write_all(part).unwrap());
            out.flush().unwrap();
            assert_eq!(String::from_utf8(shown).unwrap(), expected, "{len}");
        }
    }
}
