//! Keeping a measurement in `docs/performance.md`.

use std::fs;

use anyhow::{Context, Result};

use crate::process::read;
use crate::project::Project;

const DOCUMENT: &str = "docs/performance.md";
const OPEN: &str = "<!-- bench-package -->\n";
const CLOSE: &str = "<!-- /bench-package -->";

/// Replaces what stands between the markers.
pub(super) fn write(project: &Project, command: &str, table: &str) -> Result<()> {
    let path = project.root.join(DOCUMENT);
    let date = read(project.command("date").args(["-u", "+%F"]))?;
    let text = fs::read_to_string(&path).with_context(|| format!("read {DOCUMENT}"))?;
    let body = format!("`{command}`, {}: {table}", date.trim());
    fs::write(&path, replaced(&text, &body)?)?;
    println!("recorded in {DOCUMENT}");
    Ok(())
}

fn replaced(text: &str, body: &str) -> Result<String> {
    let markers = || format!("{DOCUMENT} has no {} .. {CLOSE}", OPEN.trim_end());
    let (before, rest) = text.split_once(OPEN).with_context(markers)?;
    let (_, after) = rest.split_once(CLOSE).with_context(markers)?;
    Ok(format!("{before}{OPEN}{body}{CLOSE}{after}"))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_what_stands_between_the_markers_changes() {
        let text = "a\n<!-- bench-package -->\nold\n<!-- /bench-package -->\nb\n";
        assert_eq!(replaced(text, "new\n").unwrap(), text.replace("old", "new"));
        assert!(replaced("a", "new").is_err());
    }
}
