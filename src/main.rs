//! The program: its outcome becomes an exit code.

use std::process::ExitCode;

fn main() -> ExitCode {
    perfx::main()
}
