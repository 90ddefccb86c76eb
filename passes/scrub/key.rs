//! Makes pseudonyms, a word and ten hex digits of a keyed hash: names stay equal, and guesses need the key.

use sha2::{Digest as _, Sha256};

/// 40 bits. With the longest word, a pseudonym fits into the 15 bytes of a thread's name.
const DIGITS: usize = 10;

#[derive(Clone, Copy, PartialEq, Eq, Default, Debug)]
pub(crate) struct Key([u8; 32]);

impl Key {
    pub(crate) fn of_text(text: &str) -> Key {
        Key(Sha256::digest(text).into())
    }

    /// Adds data that only the recording itself has. The order is irrelevant, so threads can share the work.
    pub(crate) fn add(&mut self, bytes: &[u8]) {
        self.join(&Key(Sha256::digest(bytes).into()));
    }

    pub(crate) fn join(&mut self, other: &Key) {
        for (word, other) in self.0.chunks_exact_mut(8).zip(other.0.chunks_exact(8)) {
            let number = |bytes: &[u8]| u64::from_le_bytes(bytes.try_into().unwrap_or_default());
            let sum = number(word).wrapping_add(number(other));
            word.copy_from_slice(&sum.to_le_bytes());
        }
    }

    pub(crate) fn number(&self, what: &str, bytes: &[u8]) -> u64 {
        let hash =
            Sha256::new().chain_update(self.0).chain_update(what).chain_update([0]).chain_update(bytes);
        let hash: [u8; 32] = hash.finalize().into();
        hash.iter().take(8).fold(0, |number, &byte| number << 8 | u64::from(byte))
    }

    /// `word-0123456789`. A pseudonym with this word stays.
    pub(crate) fn word(&self, word: &str, text: &[u8]) -> Vec<u8> {
        if is_word(word, text) {
            return text.to_vec();
        }
        let digits = format!("{:016x}", self.number(word, text));
        format!("{word}-{}", &digits[..DIGITS]).into_bytes()
    }
}

pub(crate) fn is_word(word: &str, text: &[u8]) -> bool {
    let digits = text.strip_prefix(word.as_bytes()).and_then(|rest| rest.strip_prefix(b"-"));
    let is_hex = |digit: &u8| digit.is_ascii_digit() || (b'a'..=b'f').contains(digit);
    digits.is_some_and(|digits| digits.len() == DIGITS && digits.iter().all(is_hex))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn equal_names_have_equal_pseudonyms_which_depend_on_the_key() {
        let (one, other) = (Key::of_text("one"), Key::of_text("other"));
        let word = one.word("file", b"server");
        assert_eq!(word, one.word("file", b"server"));
        assert!(is_word("file", &word) && word.len() == 15, "{word:?}");
        assert_eq!(one.word("file", &word), word, "a pseudonym stays");
        let others = [other.word("file", b"server"), one.word("comm", b"server"), one.word("file", b"serve")];
        assert!(others.iter().all(|other| other[5..] != word[5..]));
    }

    #[test]
    fn a_key_does_not_depend_on_the_order_of_its_data() {
        let (mut one, mut two, mut three) = (Key::default(), Key::default(), Key::default());
        one.add(b"a");
        one.add(b"b");
        two.add(b"b");
        three.add(b"a");
        two.join(&three);
        assert_eq!(one, two);
        assert_ne!(one, three);
    }
}
