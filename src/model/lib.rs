//! What records mean together: the DSO of an address, tasks with their names, the events of guests, and what
//! samples hit.

pub mod address_space;
pub mod guests;
pub mod hits;
pub mod tasks;
