//! The import table: which folder of `src/` may use which.

use std::collections::BTreeSet;

use super::File;
use super::document::{PATH, Row};
use super::source::{code, is_word};

/// Files and folders of `src/` that put the stages together and may use all of them.
const COMPOSERS: &[&str] = &["lib.rs", "main.rs", "export.rs", "export", "evaluate.rs", "evaluate", "cli"];

/// Finds paths that go against the table, and folders that the table or the tree lacks.
pub(super) fn check(table: &[Row], files: &[File]) -> Vec<String> {
    let mut findings = Vec::new();
    let mut seen = BTreeSet::new();
    for file in files.iter().filter(|file| file.is_rust()) {
        let Some(inside) = file.path.strip_prefix("src/") else { continue };
        let top = inside.split('/').next().unwrap_or(inside);
        if COMPOSERS.contains(&top) {
            continue;
        }
        seen.insert(top);
        let Some(row) = table.iter().find(|row| row.folder == top) else { continue };
        for (line, target) in targets(inside, &code(&file.text)) {
            let known = table.iter().any(|row| row.folder == target) || COMPOSERS.contains(&target.as_str());
            if known && target != top && !row.imports.contains(&target) {
                findings.push(format!("{}:{line}: `{top}` may not import `{target}`", file.path));
            }
        }
    }
    for top in &seen {
        if table.iter().all(|row| row.folder != **top) {
            findings.push(format!("src/{top} is not in the import table of {PATH}"));
        }
    }
    for row in table {
        if !seen.contains(row.folder.as_str()) {
            findings.push(format!("{PATH} lists `{}`, but there is no such folder in src/", row.folder));
        }
    }
    findings
}

/// The top-level modules that a file's paths lead to, with line numbers.
fn targets(inside: &str, code: &str) -> Vec<(usize, String)> {
    let depth = module_depth(inside);
    let mut found = Vec::new();
    for (at, _) in code.match_indices("crate") {
        let word_before = code[..at].chars().next_back().is_some_and(is_word);
        if !word_before && let Some(rest) = code[at + "crate".len()..].strip_prefix("::") {
            found.extend(heads(rest).into_iter().map(|head| (line_of(code, at), head)));
        }
    }
    for (at, _) in code.match_indices("super::") {
        if code[..at].ends_with("super::") || code[..at].chars().next_back().is_some_and(is_word) {
            continue;
        }
        let mut rest = &code[at..];
        let mut climbed = 0;
        while let Some(next) = rest.strip_prefix("super::") {
            (rest, climbed) = (next, climbed + 1);
        }
        // A module inside the file, such as its tests, is one level deeper.
        if climbed >= depth {
            found.extend(heads(rest).into_iter().map(|head| (line_of(code, at), head)));
        }
    }
    found.sort();
    found
}

/// How many modules a file of `src/` is below the crate.
fn module_depth(inside: &str) -> usize {
    inside.split('/').filter(|part| *part != "mod.rs").count()
}

/// The first names of a path: one, or those of a group in braces.
fn heads(path: &str) -> Vec<String> {
    let word = |text: &str| text.trim_start().chars().take_while(|&c| is_word(c)).collect::<String>();
    let Some(group) = path.trim_start().strip_prefix('{') else { return vec![word(path)] };
    let mut found = vec![word(group)];
    let mut depth = 1;
    for (at, c) in group.char_indices() {
        match c {
            '{' => depth += 1,
            '}' => depth -= 1,
            ',' if depth == 1 => found.push(word(&group[at + 1..])),
            _ => {}
        }
        if depth == 0 {
            break;
        }
    }
    found.retain(|name| !name.is_empty());
    found
}

fn line_of(text: &str, at: usize) -> usize {
    text[..at].matches('\n').count() + 1
}

#[cfg(test)]
mod tests {
    use super::super::file;
    use super::*;

    fn table() -> Vec<Row> {
        vec![
            Row { folder: "tensor".into(), imports: vec![] },
            Row { folder: "mil".into(), imports: vec!["tensor".into()] },
        ]
    }

    fn findings(path: &str, text: &str) -> Vec<String> {
        let files = [file("src/tensor/mod.rs", ""), file("src/mil/mod.rs", ""), file(path, text)];
        check(&table(), &files)
    }

    #[test]
    fn paths_that_follow_the_table_pass() {
        assert!(findings("src/mil/a.rs", "use crate::tensor::X;\nuse crate::mil::Y;").is_empty());
        assert!(findings("src/cli/run.rs", "use crate::mil::Y;").is_empty());
        assert!(findings("src/tensor/a.rs", "//! [`crate::mil`]\nuse super::shape;").is_empty());
    }

    #[test]
    fn paths_against_it_are_found_wherever_they_stand() {
        let wrong = |text: &str| findings("src/tensor/a.rs", text);
        assert_eq!(wrong("use crate::mil::Y;"), ["src/tensor/a.rs:1: `tensor` may not import `mil`"]);
        assert_eq!(
            wrong("\nfn f() { crate::mil::g() }"),
            ["src/tensor/a.rs:2: `tensor` may not import `mil`"]
        );
        assert_eq!(wrong("use crate::{tensor::{A, mil}, mil::B};").len(), 1);
        assert_eq!(wrong("use super::super::mil::B;").len(), 1);
        assert_eq!(wrong("mod tests { use super::super::super::mil::B; }").len(), 1);
        assert_eq!(wrong("use crate::cli::print;").len(), 1);
    }

    #[test]
    fn table_and_tree_must_agree() {
        assert_eq!(
            findings("src/extra/a.rs", ""),
            ["src/extra is not in the import table of docs/architecture.md"]
        );
        assert_eq!(
            check(&table(), &[file("src/tensor/mod.rs", "")]),
            ["docs/architecture.md lists `mil`, but there is no such folder in src/"]
        );
    }
}
