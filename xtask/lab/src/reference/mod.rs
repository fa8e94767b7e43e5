//! `cargo xtask reference`: pages of `docs/reference/` that are made from tables in the code; are they still what it says?

mod commands;
mod config;
mod exit_codes;
mod formats;
mod ops;
mod rules;
mod schema;

use std::fs;

use anyhow::{Context, Result};
use pico_args::Arguments;

use xtask::outcome::Outcome;
use xtask::project::Project;

/// A page that is made from the code.
struct Page {
    /// Its file in `docs/reference/`.
    name: &'static str,
    title: &'static str,
    /// What it is made from.
    source: &'static str,
    body: fn(&Project) -> Result<String>,
}

const PAGES: &[Page] =
    &[commands::PAGE, config::PAGE, exit_codes::PAGE, formats::PAGE, ops::PAGE, rules::PAGE];

impl Page {
    fn path(&self) -> String {
        format!("docs/reference/{}", self.name)
    }

    fn text(&self, project: &Project) -> Result<String> {
        let body = (self.body)(project).with_context(|| format!("make {}", self.path()))?;
        Ok(format!(
            "# {}\n\n<!-- Made by `cargo xtask reference` from {}. -->\n\n{body}",
            self.title, self.source
        ))
    }
}

/// Writes every page.
pub(crate) fn run(project: &Project, _: Arguments) -> Result<Outcome> {
    for page in PAGES {
        let path = project.root.join(page.path());
        fs::create_dir_all(path.parent().context("a page has no folder")?)?;
        fs::write(&path, page.text(project)?).with_context(|| format!("write {}", path.display()))?;
    }
    let made = format!("{} reference pages", PAGES.len());
    println!("reference: {made}");
    Ok(Outcome::Checked(made))
}

/// How many pages there are.
pub(crate) fn count() -> usize {
    PAGES.len()
}

/// Pages that are not what the code says.
pub(crate) fn stale(project: &Project) -> Result<Vec<String>> {
    let mut findings = Vec::new();
    for page in PAGES {
        let found = fs::read_to_string(project.root.join(page.path())).unwrap_or_default();
        if found != page.text(project)? {
            findings.push(format!("{} is not what the code says: run `cargo xtask reference`", page.path()));
        }
    }
    Ok(findings)
}

/// Text that may stand in a cell of a table.
fn cell(text: &str) -> String {
    let mut escaped = String::new();
    let mut in_code = false;
    for c in text.trim().chars() {
        in_code ^= c == '`';
        match c {
            '\n' => escaped.push(' '),
            '|' => escaped.push_str("\\|"),
            '<' | '*' | '_' | '[' if !in_code => escaped.extend(['\\', c]),
            c => escaped.push(c),
        }
    }
    escaped
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn cells_hold_no_markup_outside_of_code() {
        assert_eq!(cell("a|b <c>\nd `e_<f>` g_h"), "a\\|b \\<c> d `e_<f>` g\\_h");
    }

    #[test]
    fn pages_are_what_the_code_says() {
        let project = Project::find().unwrap();
        assert_eq!(stale(&project).unwrap(), Vec::<String>::new());
    }
}
