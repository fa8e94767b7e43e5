//! The `anemeter` program: parse, run, exit.

use std::process::ExitCode;

use anemeter::bounded::Allocator;

/// Bounds what templates and tokenizers of others take.
#[global_allocator]
static ALLOCATOR: Allocator = Allocator;

fn main() -> ExitCode {
    anemeter::cli::main()
}
