//! What `docs/architecture.md` states in a form that can be checked.

use anyhow::{Result, bail};

/// The document.
pub(super) const PATH: &str = "docs/architecture.md";

/// The files and folders (with a closing slash) that may contain `unsafe`.
pub(super) fn unsafe_islands(text: &str) -> Result<Vec<String>> {
    let items = section(text, "## Unsafe islands")?.filter(|line| line.starts_with("- `"));
    Ok(items.filter_map(|line| code_spans(line).next()).map(str::to_owned).collect())
}

fn section<'a>(text: &'a str, heading: &'a str) -> Result<impl Iterator<Item = &'a str>> {
    if !text.lines().any(|line| line == heading) {
        bail!("{PATH} has no section `{heading}`");
    }
    Ok(text
        .lines()
        .skip_while(move |line| *line != heading)
        .skip(1)
        .take_while(|line| !line.starts_with("## ")))
}

fn code_spans(text: &str) -> impl Iterator<Item = &str> {
    text.split('`').skip(1).step_by(2)
}

#[cfg(test)]
mod tests {
    use super::*;

    const TEXT: &str = "# A\n## Unsafe islands\n\n- `src/a/x.rs`: `mmap`\n- `src/b/`: why\n## Z\n- `no`\n";

    #[test]
    fn reads_the_islands() {
        assert_eq!(unsafe_islands(TEXT).unwrap(), ["src/a/x.rs", "src/b/"]);
        assert!(unsafe_islands("# A\n").is_err());
    }
}
