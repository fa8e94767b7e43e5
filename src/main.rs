//! The `anemeter` program.
fn main() {}
