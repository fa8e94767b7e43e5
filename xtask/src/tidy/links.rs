//! Links of the documentation: every file and every anchor they lead to exists, and the book has every page.

use std::collections::BTreeMap;

use crate::markdown::{self, Page};
use crate::tree::File;

/// The table of contents of the book.
const SUMMARY: &str = "docs/SUMMARY.md";

/// Finds links that lead nowhere and pages that the table of contents lacks.
pub(super) fn check(files: &[File], paths: &[String]) -> Vec<String> {
    let pages: BTreeMap<&str, Page> = files
        .iter()
        .filter(|file| file.is_markdown())
        .map(|file| (file.path.as_str(), markdown::read(&file.text)))
        .collect();
    let mut findings = Vec::new();
    let mut listed = Vec::new();
    for (path, page) in &pages {
        for link in page.links.iter().filter(|link| !is_elsewhere(&link.target)) {
            let (file, anchor) = link.target.split_once('#').unwrap_or((&link.target, ""));
            let target = if file.is_empty() { (*path).to_owned() } else { resolved(path, file) };
            let found = match pages.get(target.as_str()) {
                Some(page) => anchor.is_empty() || page.anchors.iter().any(|known| known == anchor),
                None => anchor.is_empty() && is_there(&target, paths),
            };
            if !found {
                findings.push(format!("{path}:{}: a link leads nowhere: {}", link.line, link.target));
            }
            if *path == SUMMARY {
                listed.push(target);
            }
        }
    }
    let of_book = |path: &&&str| path.starts_with("docs/") && **path != SUMMARY;
    let missing = pages.keys().filter(of_book).filter(|path| !listed.iter().any(|known| known == **path));
    findings.extend(missing.map(|path| format!("{SUMMARY} does not list {path}")));
    findings
}

fn is_elsewhere(target: &str) -> bool {
    target.contains("://") || target.starts_with("mailto:")
}

/// A path relative to a file, as one relative to the top folder.
pub(crate) fn resolved(from: &str, target: &str) -> String {
    let folder = from.rsplit_once('/').map_or("", |(folder, _)| folder);
    let mut parts: Vec<&str> = folder.split('/').filter(|part| !part.is_empty()).collect();
    for part in target.split('/').filter(|part| !part.is_empty() && *part != ".") {
        if part == ".." && parts.last().is_some_and(|last| *last != "..") {
            parts.pop();
        } else {
            parts.push(part);
        }
    }
    parts.join("/")
}

fn is_there(target: &str, paths: &[String]) -> bool {
    let below = |path: &String| path.strip_prefix(target).is_some_and(|rest| rest.starts_with('/'));
    paths.iter().any(|path| path == target || below(path))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::tree::file;

    fn findings(text: &str) -> Vec<String> {
        let files = [
            file(SUMMARY, "[a](guides/a.md) [b](b.md)"),
            file("docs/guides/a.md", text),
            file("docs/b.md", "# One thing\n"),
        ];
        let paths = ["docs/guides/a.md", "docs/b.md", "configs/x.yaml", "README.md"].map(str::to_owned);
        check(&files, &paths)
    }

    #[test]
    fn files_folders_and_anchors_are_looked_for() {
        let good = "# A\n[1](../b.md#one-thing) [2](../../configs/x.yaml) [3](../../configs/) [4](#a) <https://docs.rs/x>";
        assert_eq!(findings(good), Vec::<String>::new());
        for bad in ["../c.md", "../b.md#two", "#b", "../../configs/y.yaml", "../../../README.md"] {
            let expected = format!("docs/guides/a.md:2: a link leads nowhere: {bad}");
            assert_eq!(findings(&format!("# A\n[1]({bad})")), [expected]);
        }
    }

    #[test]
    fn the_book_lists_every_page() {
        let files = [file(SUMMARY, ""), file("docs/a.md", ""), file("README.md", "")];
        assert_eq!(check(&files, &[]), ["docs/SUMMARY.md does not list docs/a.md"]);
    }
}
