//! The `anemeter` program: parse, run, exit.

use std::process::ExitCode;

fn main() -> ExitCode {
    anemeter::cli::main()
}
