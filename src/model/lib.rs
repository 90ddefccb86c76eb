//! Interprets records together: finds the DSO of an address, tasks and their names, the events of guests, and
//! the mappings that samples hit.

pub mod address_space;
pub mod guests;
pub mod hits;
pub mod mapped_files;
pub mod tasks;
