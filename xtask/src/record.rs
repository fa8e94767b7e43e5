//! Keeping a measurement in a document, `docs/performance.md` unless another is named.

use std::fs;

use anyhow::{Context, Result};

use crate::process::read;
use crate::project::Project;

const DOCUMENT: &str = "docs/performance.md";

/// Replaces what stands between the markers of a task, `<!-- task -->` and `<!-- /task -->`.
pub fn write(project: &Project, task: &str, command: &str, table: &str) -> Result<()> {
    write_to(project, DOCUMENT, task, command, table)
}

/// The same in another document.
pub fn write_to(project: &Project, document: &str, task: &str, command: &str, table: &str) -> Result<()> {
    let path = project.root.join(document);
    let date = read(project.command("date").args(["-u", "+%F"]))?;
    let text = fs::read_to_string(&path).with_context(|| format!("read {document}"))?;
    let body = format!("`{command}`, {}: {table}", date.trim());
    let text = replaced(&text, task, &body).with_context(|| format!("record in {document}"))?;
    // Beside it first: a document that is cut short would lose every other measurement.
    let whole = path.with_extension("md.new");
    fs::write(&whole, text)
        .and_then(|()| fs::rename(&whole, &path))
        .with_context(|| format!("write {document}"))?;
    println!("recorded in {document}");
    Ok(())
}

/// A text in which something else stands between the markers of a task.
pub(crate) fn replaced(text: &str, task: &str, body: &str) -> Result<String> {
    let (open, close) = (format!("<!-- {task} -->\n"), format!("<!-- /{task} -->"));
    let markers = || format!("there is no {} .. {close}", open.trim_end());
    let (before, rest) = text.split_once(&open).with_context(markers)?;
    let (_, after) = rest.split_once(&close).with_context(markers)?;
    Ok(format!("{before}{open}{body}{close}{after}"))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_what_stands_between_the_markers_changes() {
        let text = "a\n<!-- bench package -->\nold\n<!-- /bench package -->\nb\n";
        assert_eq!(replaced(text, "bench package", "new\n").unwrap(), text.replace("old", "new"));
        assert!(replaced("a", "bench package", "new").is_err());
    }
}
