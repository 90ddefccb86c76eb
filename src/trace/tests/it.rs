//! The integration tests, in one binary.

mod changes;
mod coresight;
mod damage;
mod libipt;
mod maps;
mod recorded;
mod truth;
