//! Cuts inputs for the bodies that take a part of a recording from the recordings in tests/data: `cargo run
//! --example seeds DIR` fills DIR/BODY.

#[path = "../it/examples.rs"]
mod examples;
#[allow(dead_code, reason = "only the inputs are wanted here")]
#[path = "../it/fuzz_bodies.rs"]
mod fuzz_bodies;
#[allow(dead_code, reason = "only the inputs are wanted here")]
#[path = "../it/promises.rs"]
mod promises;

use std::path::{Path, PathBuf};
use std::{env, fs};

fn files(folder: &Path, found: &mut Vec<PathBuf>) {
    for entry in fs::read_dir(folder).unwrap() {
        let path = entry.unwrap().path();
        if path.is_dir() { files(&path, found) } else { found.push(path) }
    }
}

fn main() {
    let into = PathBuf::from(env::args_os().nth(1).expect("a folder to fill"));
    let data = Path::new(env!("CARGO_MANIFEST_DIR")).join("../data");
    let mut recordings = Vec::new();
    ["recorded", "crafted"].iter().for_each(|part| files(&data.join(part), &mut recordings));
    recordings.sort();
    let parts = recordings.iter().flat_map(|path| fuzz_bodies::parts_of(&fs::read(path).unwrap()));
    for (number, (target, input)) in parts.chain(fuzz_bodies::other_parts()).enumerate() {
        fs::create_dir_all(into.join(target)).unwrap();
        fs::write(into.join(target).join(number.to_string()), input).unwrap();
    }
}
