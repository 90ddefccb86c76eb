//! Collects the rows of `overview.csv`.

use std::io;

use ::csv::{ByteRecord, Writer};

use crate::sorted::{RowPlace, sorted};

pub(super) struct Rows {
    writer: Writer<Vec<u8>>,
    rows: Vec<RowPlace>,
}

impl Rows {
    pub(super) fn new() -> Rows {
        Rows { writer: Writer::from_writer(Vec::new()), rows: Vec::new() }
    }

    pub(super) fn push(&mut self, time: Option<u64>, row: &ByteRecord) -> io::Result<()> {
        let start = self.writer.get_ref().len();
        self.writer.write_byte_record(row)?;
        self.writer.flush()?;
        let text = start..self.writer.get_ref().len();
        self.rows.push(RowPlace { time, index: self.rows.len() as u32, text });
        Ok(())
    }

    pub(super) fn sorted(self) -> Vec<u8> {
        sorted(self.writer.get_ref(), &self.rows)
    }
}
