//! Resolves the addresses of a recording: files, their build-ids, and functions.
//!
//! [`Facts`] are collected in one reading. With them, [`FrameCache`] finds the [`Frame`] of an address, and
//! [`name_frames`] the functions of frames.

mod dumps;
mod explain;
mod facts;
mod frames;
mod ids;
mod naming;
mod stored;

pub use dumps::{PerfMaps, Places, pid_in};
pub use explain::{Explainer, Explanation, NamedBy};
pub use facts::{EventFacts, Facts, FactsSurvey, kernel_reference};
pub use frames::{ChainAddress, Frame, FrameCache, LastChain, frame_at, stack_of};
pub use ids::{
    Correction, FileArgs, IdArgs, IdOptions, Ids, MappedIds, RecordedIds, SearchArgs, SymbolArgs,
    can_have_id, cpumode_of, dso_name, is_kernel_name, object_of, recorded_on,
};
pub use naming::{
    FileNames, FrameName, Function, Images, Lack, Named, NamedPlace, Names, Search, code_advice, dwarf_files,
    guest_sources, kcore_of, name_frames, sources, with_deep_stack,
};
