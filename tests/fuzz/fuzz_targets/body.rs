//! Runs one body of `fuzz_bodies` on libFuzzer's inputs; PERFX_FUZZ_BODY names the body.

#![no_main]

use std::sync::OnceLock;

#[path = "../../it/examples.rs"]
mod examples;
#[allow(dead_code, reason = "a fuzz target runs one body")]
#[path = "../../it/fuzz_bodies.rs"]
mod fuzz_bodies;
#[allow(dead_code, reason = "the table of every_pass.rs uses the rest")]
#[path = "../../it/promises.rs"]
mod promises;

static BODY: OnceLock<fuzz_bodies::Run> = OnceLock::new();

fn body() -> fuzz_bodies::Run {
    let name = std::env::var("PERFX_FUZZ_BODY").unwrap_or_default();
    let mut bodies = fuzz_bodies::all();
    let Some(at) = bodies.iter().position(|(known, _)| *known == name) else {
        let names: Vec<_> = bodies.iter().map(|(name, _)| name.as_str()).collect();
        eprintln!("PERFX_FUZZ_BODY must be one of {}", names.join(", "));
        std::process::exit(2);
    };
    bodies.swap_remove(at).1
}

libfuzzer_sys::fuzz_target!(|bytes: &[u8]| BODY.get_or_init(body)(bytes));
