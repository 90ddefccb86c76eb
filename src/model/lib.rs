//! What records mean together: which DSO an address belonged to, which tasks there were, which events are a guest's, what samples hit.

pub mod address_space;
pub mod guests;
pub mod hits;
pub mod tasks;
