//! The rules that `docs/architecture.md` states in a form that can be checked.

use anyhow::{Result, bail};

/// The document.
pub(super) const PATH: &str = "docs/architecture.md";

/// One row of the import table.
#[derive(Debug, PartialEq, Eq)]
pub(super) struct Row {
    /// A folder of `src/`.
    pub(super) folder: String,
    /// The folders it may import.
    pub(super) imports: Vec<String>,
}

/// The import table: every folder of `src/` in order, each importing only from those above it.
pub(super) fn import_table(text: &str) -> Result<Vec<Row>> {
    let mut table: Vec<Row> = Vec::new();
    for line in section(text, "## Import table")?.filter(|line| line.starts_with("| `")) {
        let cells: Vec<&str> = line.trim_matches('|').split('|').collect();
        let [folder, imports, ..] = cells[..] else { bail!("{PATH}: a row with one cell: {line}") };
        let (Some(folder), imports) = (code_spans(folder).next(), code_spans(imports)) else {
            bail!("{PATH}: a row without a folder: {line}");
        };
        let imports: Vec<String> = imports.map(str::to_owned).collect();
        if let Some(later) = imports.iter().find(|import| table.iter().all(|row| row.folder != **import)) {
            bail!("{PATH}: `{folder}` may import `{later}`, which does not stand above it");
        }
        table.push(Row { folder: folder.to_owned(), imports });
    }
    if table.is_empty() {
        bail!("{PATH}: the import table is empty");
    }
    Ok(table)
}

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

    const TEXT: &str = "# A\n## Import table\nwords\n\n| folder | may import |\n|---|---|\n| `a` | nothing |\n\
                        | `b` | `a` |\n## Unsafe islands\n\n- `src/a/x.rs`: `mmap`\n- `src/b/`: why\n## Z\n- `no`\n";

    #[test]
    fn reads_the_table_and_the_islands() {
        let row = |folder: &str, imports: &[&str]| Row {
            folder: folder.into(),
            imports: imports.iter().map(|&i| i.into()).collect(),
        };
        assert_eq!(import_table(TEXT).unwrap(), [row("a", &[]), row("b", &["a"])]);
        assert_eq!(unsafe_islands(TEXT).unwrap(), ["src/a/x.rs", "src/b/"]);
    }

    #[test]
    fn a_table_against_its_own_order_is_refused() {
        let error = import_table("## Import table\n| `a` | `b` |\n| `b` | |\n").unwrap_err();
        assert_eq!(
            error.to_string(),
            "docs/architecture.md: `a` may import `b`, which does not stand above it"
        );
        assert!(import_table("## Import table\n").is_err());
        assert!(unsafe_islands("# A\n").is_err());
    }
}
