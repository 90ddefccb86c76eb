//! Interprets records together: the DSO of an address, tasks and their names, the events of guests, the
//! mappings that samples hit, and the records of Arm SPE with their threads.

pub mod address_space;
pub mod callers;
pub mod guests;
pub mod hits;
pub mod mapped_files;
pub mod mapped_parts;
pub mod spe;
pub mod tasks;
