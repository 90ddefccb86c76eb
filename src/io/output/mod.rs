//! Writes outputs completely or not at all: their places, the files they may replace, and their names.

mod export;
mod features;
mod made;
mod names;
mod place;
mod recording;

pub(crate) use self::export::{NewFiles, OutputArgs, stdout, write_files};
pub(crate) use self::made::write;
pub(crate) use self::names::{OutputPath, Outputs, with_folders};
pub(crate) use self::place::{
    Existing, Rules, Target, check_folder, check_writable, is_empty, is_recording, refuse_inside,
    writable_above,
};
pub(crate) use self::recording::{MoreArgs, WriteArgs};
pub(crate) use perfx_format::write::folder;
