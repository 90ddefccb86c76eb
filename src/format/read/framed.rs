//! Finds the end of the whole records in a buffer, by walking over their headers.

use super::fragment::{Fragment, Stray};
use crate::{BadFrame, Endian, Frame, Kinds, Origin, Result, Walker};

/// Maximum number of positions of rare records kept for a batch: 4 kB for 4 MiB.
const RARE_MAX: usize = 1 << 10;

pub(super) struct Framed {
    pub(super) end: usize,
    pub(super) records: u64,
    pub(super) kinds: Kinds,
    pub(super) sparse_index: Option<Vec<u32>>,
    pub(super) cut: Option<Frame>,
    pub(super) bad: Option<BadFrame>,
    pub(super) stray: Option<Stray>,
}

impl Framed {
    fn met_rare(&mut self) {
        let position = u32::try_from(self.end).ok();
        match (&mut self.sparse_index, position) {
            (Some(sparse_index), Some(position)) if sparse_index.len() < RARE_MAX => {
                sparse_index.push(position)
            }
            (sparse_index, _) => *sparse_index = None,
        }
    }

    pub(super) fn fragment(&self, origin: Origin, bytes: u64) -> Fragment {
        Fragment {
            origin,
            kind: self.cut.map(|frame| frame.kind),
            bytes,
            needs: self.cut.map_or(0, |frame| frame.total()),
            resumes: false,
            stray: self.stray,
        }
    }

    /// An invalid header is an error only if it comes first: whole records before it are good.
    pub(super) fn sound(self, stream: u32, offset: u64) -> Result<Framed> {
        match self.bad {
            Some(bad) if self.end == 0 => Err(bad.into_error(Origin::Input { stream, offset })),
            _ => Ok(self),
        }
    }
}

/// Walks over headers until at least `enough` bytes are whole records, or until something is not a record.
pub(super) fn frame(bytes: &[u8], endian: Endian, enough: usize) -> Framed {
    frame_while(bytes, endian, enough, |_, _| true)
}

/// Like [`frame`], up to the first header that `accepts` refuses at its position.
pub(super) fn frame_while(
    bytes: &[u8],
    endian: Endian,
    enough: usize,
    mut accepts: impl FnMut(&Frame, usize) -> bool,
) -> Framed {
    let (end, records, kinds, cut, bad) = (0, 0, Kinds::NONE, None, None);
    let mut framed = Framed { end, records, kinds, sparse_index: Some(Vec::new()), cut, bad, stray: None };
    while framed.end < bytes.len() && framed.end < enough {
        let frame = match Frame::read(bytes, framed.end, endian) {
            Ok(Some(frame)) => frame,
            Ok(None) => break,
            Err(bad) => {
                framed.bad = Some(bad);
                break;
            }
        };
        if frame.kind.0 > u32::from(u16::MAX) {
            framed.stray = Stray::at(&bytes[framed.end..]);
            if framed.stray.is_some() {
                break;
            }
        }
        if frame.total() > (bytes.len() - framed.end) as u64 {
            framed.cut = Some(frame);
            break;
        }
        if !accepts(&frame, framed.end) {
            break;
        }
        frame.read_ahead(bytes, framed.end);
        if !Walker::COMMON.contains(frame.kind) {
            framed.met_rare();
        }
        framed.end += frame.total() as usize;
        framed.records += 1;
        framed.kinds.insert(frame.kind);
    }
    framed
}
