//! Licences of everything that is linked into the program: a list, and the texts that the crates come with.

use std::collections::{BTreeMap, BTreeSet};
use std::fs;
use std::path::{Path, PathBuf};

use anyhow::{Context, Result, ensure};
use serde::Deserialize;

use crate::process::read;
use crate::project::Project;

/// What `cargo metadata` says, as far as it matters here.
#[derive(Deserialize)]
struct Metadata {
    packages: Vec<Package>,
    resolve: Resolve,
}

#[derive(Deserialize)]
struct Package {
    id: String,
    name: String,
    version: String,
    license: Option<String>,
    repository: Option<String>,
    manifest_path: PathBuf,
}

#[derive(Deserialize)]
struct Resolve {
    nodes: Vec<Node>,
}

#[derive(Deserialize)]
struct Node {
    id: String,
    deps: Vec<Dependency>,
}

#[derive(Deserialize)]
struct Dependency {
    pkg: String,
    dep_kinds: Vec<DependencyKind>,
}

#[derive(Deserialize)]
struct DependencyKind {
    /// None for what is linked; `build` and `dev` otherwise.
    kind: Option<String>,
}

/// Writes `THIRD-PARTY.md` and `licences/` into a folder; gives the number of crates.
pub(super) fn write(project: &Project, folder: &Path) -> Result<usize> {
    let host = super::host(project)?;
    let arguments = ["metadata", "--format-version", "1", "--locked", "--filter-platform", &host];
    let metadata: Metadata = serde_json::from_str(&read(&mut project.cargo(&arguments))?)?;
    let linked = linked(&metadata, "anemeter")?;
    fs::write(folder.join("THIRD-PARTY.md"), list(&linked)?)?;
    for package in &linked {
        let from = package.manifest_path.parent().context("a manifest has no folder")?;
        let to = folder.join("licences").join(format!("{}-{}", package.name, package.version));
        for entry in fs::read_dir(from).with_context(|| format!("read {}", from.display()))? {
            let path = entry?.path();
            if let Some(name) = path.file_name().filter(|_| path.is_file() && is_licence(&path)) {
                fs::create_dir_all(&to)?;
                fs::copy(&path, to.join(name))?;
            }
        }
    }
    Ok(linked.len())
}

/// Packages that are linked into a program, without itself, in the order of their names.
fn linked<'m>(metadata: &'m Metadata, program: &str) -> Result<Vec<&'m Package>> {
    let packages: BTreeMap<&str, &Package> =
        metadata.packages.iter().map(|package| (package.id.as_str(), package)).collect();
    let nodes: BTreeMap<&str, &Node> =
        metadata.resolve.nodes.iter().map(|node| (node.id.as_str(), node)).collect();
    let root = metadata.packages.iter().find(|package| package.name == program);
    let root = root.with_context(|| format!("cargo knows no package `{program}`"))?;
    let (mut waiting, mut found) = (vec![root.id.as_str()], BTreeSet::new());
    while let Some(id) = waiting.pop() {
        if !found.insert(id) {
            continue;
        }
        let node = nodes.get(id).with_context(|| format!("cargo resolves no `{id}`"))?;
        let linked = node.deps.iter().filter(|dep| dep.dep_kinds.iter().any(|kind| kind.kind.is_none()));
        waiting.extend(linked.map(|dep| dep.pkg.as_str()));
    }
    found.remove(root.id.as_str());
    let mut linked: Vec<&Package> = found.iter().filter_map(|id| packages.get(id).copied()).collect();
    linked.sort_by(|a, b| (&a.name, &a.version).cmp(&(&b.name, &b.version)));
    Ok(linked)
}

fn list(packages: &[&Package]) -> Result<String> {
    let mut text = String::from(
        "# What is linked into this program\n\n| crate | version | licence | source |\n|---|---|---|---|\n",
    );
    for Package { name, version, license, repository, .. } in packages {
        ensure!(license.is_some(), "{name} {version} states no licence");
        let licence = license.as_deref().unwrap_or_default();
        text +=
            &format!("| {name} | {version} | {licence} | {} |\n", repository.as_deref().unwrap_or_default());
    }
    Ok(text)
}

fn is_licence(path: &Path) -> bool {
    let name = path.file_name().and_then(|name| name.to_str()).unwrap_or_default().to_ascii_uppercase();
    ["LICENSE", "LICENCE", "COPYING", "NOTICE", "UNLICENSE"].iter().any(|start| name.starts_with(start))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_what_is_linked_is_listed() {
        let package = |name: &str, licence: Option<&str>| {
            serde_json::json!({ "id": name, "name": name, "version": "1.0.0", "license": licence,
                "repository": null, "manifest_path": format!("/{name}/Cargo.toml") })
        };
        let dependency = |name: &str, kind: Option<&str>| serde_json::json!({ "pkg": name, "dep_kinds": [{ "kind": kind }] });
        let metadata = serde_json::json!({
            "packages": [package("app", None), package("b", Some("MIT")), package("a", Some("Zlib")), package("t", None)],
            "resolve": { "nodes": [
                { "id": "app", "deps": [dependency("b", None), dependency("t", Some("dev"))] },
                { "id": "b", "deps": [dependency("a", None), dependency("app", Some("dev"))] },
                { "id": "a", "deps": [] },
                { "id": "t", "deps": [] },
            ] },
        });
        let metadata: Metadata = serde_json::from_value(metadata).unwrap();
        let linked = linked(&metadata, "app").unwrap();
        let listed = list(&linked).unwrap();
        assert!(listed.ends_with("| a | 1.0.0 | Zlib |  |\n| b | 1.0.0 | MIT |  |\n"), "{listed}");
        assert!(list(&[&metadata.packages[0]]).is_err());
    }

    #[test]
    fn licences_are_known_by_their_names() {
        let named = ["LICENSE-MIT", "license.txt", "COPYING", "README.md"].map(Path::new);
        assert_eq!(named.map(is_licence), [true, true, true, false]);
    }
}
