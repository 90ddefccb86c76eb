//! Feeds `fuzz_bodies::diff` whatever bytes libFuzzer comes up with.

#![no_main]

#[allow(dead_code, reason = "each target runs one body")]
#[path = "../../it/fuzz_bodies.rs"]
mod fuzz_bodies;

libfuzzer_sys::fuzz_target!(|bytes: &[u8]| fuzz_bodies::diff(bytes));
