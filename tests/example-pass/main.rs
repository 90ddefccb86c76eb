//! Runs perfx with one more pass: `perfx-example run -p drop-comm:name=cc1 perf.data -o rest.data`.

mod drop_comm;

use std::process::ExitCode;

use perfx::Program;
use perfx_passes::PassSpec;

use crate::drop_comm::DropComm;

fn main() -> ExitCode {
    Program::default().with_pass(PassSpec::of::<DropComm>()).main()
}
