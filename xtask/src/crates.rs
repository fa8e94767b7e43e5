//! The crates of `src/` and who uses whom: a picture in `docs/architecture.md`, made from what cargo knows.

use std::collections::{BTreeMap, BTreeSet};
use std::fs;

use anyhow::{Context, Result};

use crate::metadata::{self, Package};
use crate::project::Project;
use crate::record::replaced;

/// The document with the picture.
const DOCUMENT: &str = "docs/architecture.md";
/// What its markers are called.
const MARKER: &str = "crates";

type Uses<'a> = BTreeMap<&'a str, BTreeSet<&'a str>>;

/// Puts the picture into the document.
pub(crate) fn write(project: &Project) -> Result<String> {
    let (found, wanted, count) = texts(project)?;
    if found != wanted {
        fs::write(project.root.join(DOCUMENT), wanted).with_context(|| format!("write {DOCUMENT}"))?;
    }
    Ok(format!("crates in {DOCUMENT}: {count}"))
}

/// Says so if the document shows other crates than there are.
pub(crate) fn stale(project: &Project) -> Result<Vec<String>> {
    let (found, wanted, _) = texts(project)?;
    let finding = format!("{DOCUMENT} does not show the crates as they are: run `cargo xtask docs --crates`");
    Ok(if found == wanted { Vec::new() } else { vec![finding] })
}

/// The document as it is and as it should be, and the number of crates.
fn texts(project: &Project) -> Result<(String, String, usize)> {
    let found =
        fs::read_to_string(project.root.join(DOCUMENT)).with_context(|| format!("read {DOCUMENT}"))?;
    let packages = metadata::workspace(project)?;
    let shipped: Vec<&Package> = packages.iter().filter(|package| is_shipped(package)).collect();
    let wanted = replaced(&found, MARKER, &picture(&shipped)).with_context(|| DOCUMENT.to_owned())?;
    Ok((found, wanted, shipped.len()))
}

fn is_shipped(package: &Package) -> bool {
    package.folder.is_empty() || package.folder.starts_with("src/")
}

/// A drawing, in which an arrow that follows from others is left out, and a table with all of them.
fn picture(packages: &[&Package]) -> String {
    let uses = uses(packages);
    let mut text = String::from("```mermaid\ngraph TD\n");
    for name in uses.keys() {
        let direct = direct(&uses, name);
        if direct.is_empty() && !uses.values().any(|used| used.contains(name)) {
            text += &format!("    {name}\n");
        }
        text.extend(direct.iter().map(|other| format!("    {name} --> {other}\n")));
    }
    text += "```\n\n| crate | folder | uses | what it is |\n|---|---|---|---|\n";
    for package in packages {
        let used: Vec<String> = uses[package.name.as_str()].iter().map(|name| format!("`{name}`")).collect();
        let used = if used.is_empty() { "none of the others".to_owned() } else { used.join(", ") };
        let folder = if package.folder.is_empty() { "." } else { &package.folder };
        text += &format!("| `{}` | `{folder}` | {used} | {} |\n", package.name, package.description);
    }
    text
}

/// The packages that each links, of these.
fn uses<'a>(packages: &[&'a Package]) -> Uses<'a> {
    let names: BTreeSet<&str> = packages.iter().map(|package| package.name.as_str()).collect();
    let linked = |package: &'a Package| -> BTreeSet<&'a str> {
        let ours =
            package.dependencies.iter().filter(|dependency| dependency.is_linked && dependency.is_path);
        ours.map(|dependency| dependency.name.as_str()).filter(|name| names.contains(name)).collect()
    };
    packages.iter().map(|package| (package.name.as_str(), linked(package))).collect()
}

/// What a package links that nothing else it links brings along.
fn direct<'a>(uses: &Uses<'a>, name: &str) -> BTreeSet<&'a str> {
    let used = &uses[name];
    let reached: BTreeSet<&str> = used.iter().flat_map(|other| reachable(uses, other)).collect();
    used.difference(&reached).copied().collect()
}

/// Everything below a package. Cargo refuses circles, so this ends.
fn reachable<'a>(uses: &Uses<'a>, name: &str) -> BTreeSet<&'a str> {
    let mut found = BTreeSet::new();
    let mut waiting: Vec<&str> = uses[name].iter().copied().collect();
    while let Some(next) = waiting.pop() {
        if let Some((known, used)) = uses.get_key_value(next)
            && found.insert(*known)
        {
            waiting.extend(used.iter().copied());
        }
    }
    found
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::metadata::Dependency;

    fn package(name: &str, folder: &str, uses: &[&str]) -> Package {
        let dependency = |name: &&str| Dependency {
            name: (*name).to_owned(),
            identifier: name.replace('-', "_"),
            is_linked: true,
            is_path: true,
        };
        Package {
            name: name.to_owned(),
            description: format!("about {name}"),
            folder: folder.to_owned(),
            rust_version: None,
            dependencies: uses.iter().map(dependency).collect(),
        }
    }

    #[test]
    fn arrows_that_follow_from_others_are_left_out_of_the_drawing_only() {
        let packages = [
            package("app", "", &["mil", "tensor", "serde"]),
            package("mil", "src/mil", &["tensor"]),
            package("tensor", "src/tensor", &[]),
        ];
        let expected = "```mermaid\ngraph TD\n    app --> mil\n    mil --> tensor\n```\n\n\
            | crate | folder | uses | what it is |\n|---|---|---|---|\n\
            | `app` | `.` | `mil`, `tensor` | about app |\n\
            | `mil` | `src/mil` | `tensor` | about mil |\n\
            | `tensor` | `src/tensor` | none of the others | about tensor |\n";
        assert_eq!(picture(&packages.iter().collect::<Vec<_>>()), expected);
    }

    #[test]
    fn a_crate_alone_is_still_drawn() {
        let alone = package("app", "", &[]);
        assert!(picture(&[&alone]).starts_with("```mermaid\ngraph TD\n    app\n```\n"));
    }

    #[test]
    fn tasks_and_tests_are_not_shipped() {
        let folders = ["", "src/mil", "xtask", "xtask/lab"];
        assert_eq!(folders.map(|folder| is_shipped(&package("a", folder, &[]))), [true, true, false, false]);
    }
}
