//! The program: turns the outcome into an exit code.

use std::process::ExitCode;

fn main() -> ExitCode {
    perfx::main()
}
