//! Licences of everything that is linked into the program: a list, and the texts that the crates come with.

use std::collections::{BTreeMap, BTreeSet};
use std::fs;
use std::path::Path;

use anyhow::{Context, Result};
use serde_json::Value;

use crate::process::read;
use crate::project::Project;

/// A crate, as `cargo metadata` tells of it.
struct Package<'m> {
    name: &'m str,
    version: &'m str,
    licence: Option<&'m str>,
    repository: &'m str,
    manifest: &'m Path,
}

impl<'m> Package<'m> {
    fn read(value: &'m Value) -> Package<'m> {
        let text = |key: &str| value[key].as_str();
        let or_empty = |key: &str| text(key).unwrap_or_default();
        Package {
            name: or_empty("name"),
            version: or_empty("version"),
            licence: text("license"),
            repository: or_empty("repository"),
            manifest: Path::new(or_empty("manifest_path")),
        }
    }
}

/// Writes `THIRD-PARTY.md` and `licences/` into a folder; gives the number of crates.
pub(super) fn write(project: &Project, folder: &Path) -> Result<usize> {
    let host = super::host(project)?;
    let arguments = ["metadata", "--format-version", "1", "--locked", "--filter-platform", &host];
    let metadata: Value = serde_json::from_str(&read(&mut project.cargo(&arguments))?)?;
    let linked = linked(&metadata, "anemeter")?;
    fs::write(folder.join("THIRD-PARTY.md"), table(&linked)?)?;
    for package in &linked {
        let from = package.manifest.parent().context("a manifest has no folder")?;
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
fn linked<'m>(metadata: &'m Value, program: &str) -> Result<Vec<Package<'m>>> {
    let packages = by_id(&metadata["packages"]);
    let nodes = by_id(&metadata["resolve"]["nodes"]);
    let root = packages.iter().find(|(_, package)| package["name"] == program);
    let (root, _) = root.with_context(|| format!("cargo knows no package `{program}`"))?;
    let (mut waiting, mut found) = (vec![*root], BTreeSet::new());
    while let Some(id) = waiting.pop() {
        if !found.insert(id) {
            continue;
        }
        let node = nodes.get(id).with_context(|| format!("cargo resolves no `{id}`"))?;
        let linked = list(&node["deps"]).iter().filter(|dependency| is_linked(dependency));
        waiting.extend(linked.filter_map(|dependency| dependency["pkg"].as_str()));
    }
    found.remove(root);
    let found = found.iter().filter_map(|id| packages.get(id));
    let mut linked: Vec<Package<'m>> = found.map(|package| Package::read(package)).collect();
    linked.sort_by_key(|package| (package.name, package.version));
    Ok(linked)
}

/// Kinds are `build` and `dev`; what is linked has none.
fn is_linked(dependency: &Value) -> bool {
    list(&dependency["dep_kinds"]).iter().any(|kind| kind["kind"].is_null())
}

fn by_id(values: &Value) -> BTreeMap<&str, &Value> {
    list(values).iter().filter_map(|value| Some((value["id"].as_str()?, value))).collect()
}

fn list(value: &Value) -> &[Value] {
    value.as_array().map_or(&[], Vec::as_slice)
}

fn table(packages: &[Package<'_>]) -> Result<String> {
    let mut text = String::from(
        "# What is linked into this program\n\n| crate | version | licence | source |\n|---|---|---|---|\n",
    );
    for Package { name, version, licence, repository, .. } in packages {
        let licence = licence.with_context(|| format!("{name} {version} states no licence"))?;
        text += &format!("| {name} | {version} | {licence} | {repository} |\n");
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
        let metadata: Value = serde_json::from_value(metadata).unwrap();
        let linked = linked(&metadata, "app").unwrap();
        let listed = table(&linked).unwrap();
        assert!(listed.ends_with("| a | 1.0.0 | Zlib |  |\n| b | 1.0.0 | MIT |  |\n"), "{listed}");
        assert!(table(&[Package::read(&metadata["packages"][0])]).is_err());
    }

    #[test]
    fn licences_are_known_by_their_names() {
        let named = ["LICENSE-MIT", "license.txt", "COPYING", "README.md"].map(Path::new);
        assert_eq!(named.map(is_licence), [true, true, true, false]);
    }
}
