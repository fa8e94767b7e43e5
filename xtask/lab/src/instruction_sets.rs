//! `cargo xtask instruction-sets`: what the kernels find on this CPU; under Valgrind that is the CPU that it shows.

use anemeter::kernels::simd::Isa;
use anyhow::Result;
use pico_args::Arguments;

use xtask::outcome::Outcome;
use xtask::project::Project;

pub(crate) fn run(_: &Project, _: Arguments) -> Result<Outcome> {
    let variant = |isa| format!("{isa:?}").split('(').next().unwrap_or_default().to_owned();
    let names = Isa::all().map(variant).collect::<Vec<String>>().join(" and ");
    println!("{names}");
    Ok(Outcome::Checked(names))
}
