//! Keeping a measurement in `docs/performance.md`.

use std::fs;

use anyhow::{Context, Result};

use crate::process::read;
use crate::project::Project;

const DOCUMENT: &str = "docs/performance.md";

/// Replaces what stands between the markers of a task, `<!-- task -->` and `<!-- /task -->`.
pub(crate) fn write(project: &Project, task: &str, command: &str, table: &str) -> Result<()> {
    let path = project.root.join(DOCUMENT);
    let date = read(project.command("date").args(["-u", "+%F"]))?;
    let text = fs::read_to_string(&path).with_context(|| format!("read {DOCUMENT}"))?;
    let body = format!("`{command}`, {}: {table}", date.trim());
    fs::write(&path, replaced(&text, task, &body)?)?;
    println!("recorded in {DOCUMENT}");
    Ok(())
}

fn replaced(text: &str, task: &str, body: &str) -> Result<String> {
    let (open, close) = (format!("<!-- {task} -->\n"), format!("<!-- /{task} -->"));
    let markers = || format!("{DOCUMENT} has no {} .. {close}", open.trim_end());
    let (before, rest) = text.split_once(&open).with_context(markers)?;
    let (_, after) = rest.split_once(&close).with_context(markers)?;
    Ok(format!("{before}{open}{body}{close}{after}"))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_what_stands_between_the_markers_changes() {
        let text = "a\n<!-- bench-package -->\nold\n<!-- /bench-package -->\nb\n";
        assert_eq!(replaced(text, "bench-package", "new\n").unwrap(), text.replace("old", "new"));
        assert!(replaced("a", "bench-package", "new").is_err());
    }
}
