//! `cargo xtask TASK`: the tasks are in the library, which the laboratory (`xtask/lab/`) uses too.

use std::process::ExitCode;

fn main() -> ExitCode {
    xtask::main()
}
