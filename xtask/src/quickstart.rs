//! `cargo xtask quickstart`: the README's first command as a new user runs it, and its page as they see it.

use std::fs;
use std::path::Path;
use std::time::Instant;

use anyhow::{Context, Result, ensure};

use crate::Command;
use crate::browser::{self, Scheme};
use crate::outcome::Outcome;
use crate::process::read;
use crate::project::Project;

pub(crate) const COMMAND: Command = Command {
    name: "quickstart",
    arguments: "",
    about: "`anemeter quickstart`, and its page in headless Chromium in both colour schemes",
    not_checked: 77,
    run: |project, _| check(project),
};

/// Words that the narrative must have, in this order.
const TOLD: &[&str] = &[
    "anemeter export",
    "anemeter lint",
    "passed",
    "tokens/s",
    "anemeter bless",
    "anemeter gate",
    "FAIL",
    "report.html",
];

pub(crate) fn check(project: &Project) -> Result<Outcome> {
    let program = project.release("anemeter")?;
    let folder = project.target.join("quickstart");
    if folder.exists() {
        fs::remove_dir_all(&folder)?;
    }
    let began = Instant::now();
    let told = read(project.command(program).arg("quickstart").arg("--out").arg(&folder))?;
    let seconds = began.elapsed().as_secs_f64();
    println!("{told}");
    check_order(&told)?;
    let page = check_page(&folder.join("report.html"))?;
    Ok(match page {
        Some(page) => Outcome::Checked(format!("{seconds:.0} s; {page}")),
        None => Outcome::not_checked(
            "the quickstart's page",
            "there is no Chromium, and apt-get cannot install it",
        ),
    })
}

fn check_order(told: &str) -> Result<()> {
    let mut rest = told;
    for words in TOLD {
        let at =
            rest.find(words).with_context(|| format!("the narrative lacks `{words}` or has it too early"))?;
        rest = &rest[at..];
    }
    Ok(())
}

fn check_page(path: &Path) -> Result<Option<String>> {
    let Some(chromium) = browser::chromium() else { return Ok(None) };
    let page = browser::read(&chromium, path)?;
    ensure!(page.console.is_empty(), "the page complains: {}", page.console.join("; "));
    ensure!(page.requests.is_empty(), "the page asks for {}", page.requests.join(", "));
    let (rows, charts) = (page.document.matches("<tr").count(), page.document.matches("<svg").count());
    ensure!(page.document.contains("<title>") && rows > 10 && charts > 0, "{rows} rows, {charts} charts");
    for (scheme, name) in [(Scheme::Light, "light.png"), (Scheme::Dark, "dark.png")] {
        browser::picture(&chromium, path, scheme, &path.with_file_name(name))?;
    }
    Ok(Some(format!(
        "its page has {rows} rows and {charts} charts, complains of nothing and asks for nothing"
    )))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_narrative_in_another_order_is_refused() {
        check_order(&TOLD.join("\n")).unwrap();
        let backwards: Vec<&str> = TOLD.iter().rev().copied().collect();
        assert!(check_order(&backwards.join("\n")).is_err());
    }
}
