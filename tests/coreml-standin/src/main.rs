//! The ordinary command line with the stand-in for Core ML; `bench` starts it again as its workers.

use std::process::ExitCode;

use coreml_standin as _;

fn main() -> ExitCode {
    anemeter::cli::main()
}
