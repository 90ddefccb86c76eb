//! Reads files into memory, for systems without memory maps.

use std::fs::File;
use std::io::{self, Read as _, Seek as _};
use std::ops::Deref;

pub(super) struct Map(Vec<u8>);

impl Map {
    pub(super) fn of(mut file: &File) -> io::Result<Map> {
        let mut bytes = Vec::new();
        file.rewind()?;
        file.read_to_end(&mut bytes)?;
        Ok(Map(bytes))
    }
}

impl Deref for Map {
    type Target = [u8];

    fn deref(&self) -> &[u8] {
        &self.0
    }
}
