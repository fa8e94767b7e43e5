//! Exit codes.

use std::fmt::Write;

use anemeter::cli::Status;

use super::Page;

pub(super) const PAGE: Page = Page {
    name: "exit-codes.md",
    title: "Exit codes",
    source: "`Status` in src/cli/exit.rs",
    body: |_| {
        let mut text =
            String::from("They are the same for every command.\n\n| code | meaning |\n|--:|---|\n");
        for status in Status::ALL {
            writeln!(text, "| {} | {} |", status as u8, status.meaning())?;
        }
        text += "\nA command that is interrupted removes what it has not finished and ends with 130, one that is asked to end with \
                 143.\n";
        text += "\nWith 2 and 4, standard error has one message: what it is about, what was found, what was expected, and, \
                 after\n`help:`, what to do. [Continuous integration](../ci.md) says what a job should do about each.\n";
        Ok(text)
    },
};
