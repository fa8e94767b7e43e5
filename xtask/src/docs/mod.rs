//! `cargo xtask docs`: the reference made from the code, and the documentation as a book.

mod book;
pub(crate) mod reference;

use pico_args::Arguments;

use crate::Command;
use crate::outcome::Outcome;

pub(crate) const COMMAND: Command = Command {
    name: "docs",
    arguments: "[--reference]",
    about: "make docs/reference/ from the code and target/book/ from docs/, with an mdbook of its own",
    not_checked: 1,
    run: |project, mut arguments: Arguments| {
        let is_reference_only = arguments.contains("--reference");
        crate::finish(arguments)?;
        let made = reference::write(project)?;
        println!("docs: {made}");
        if is_reference_only {
            return Ok(Outcome::Checked(made));
        }
        book::build(project)
    },
};
