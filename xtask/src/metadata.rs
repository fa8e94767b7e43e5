//! What cargo knows of the workspace's own packages.

use std::path::{Path, PathBuf};

use anyhow::{Context, Result};
use serde_json::Value;

use crate::process::read;
use crate::project::Project;

/// A package of the workspace.
#[derive(Debug, PartialEq, Eq)]
pub(crate) struct Package {
    pub(crate) name: String,
    pub(crate) description: String,
    /// Relative to the top folder, with forward slashes; empty for the top folder itself.
    pub(crate) folder: String,
    pub(crate) rust_version: Option<String>,
    pub(crate) dependencies: Vec<Dependency>,
}

/// What a package asks for.
#[derive(Debug, PartialEq, Eq)]
pub(crate) struct Dependency {
    pub(crate) name: String,
    /// How the code calls it.
    pub(crate) identifier: String,
    /// Whether it is linked, rather than used by tests or when building.
    pub(crate) is_linked: bool,
    /// Whether it is a folder of this repository.
    pub(crate) is_path: bool,
}

/// The packages, in the order of their names. Nothing is resolved, so this takes neither time nor a network.
pub(crate) fn workspace(project: &Project) -> Result<Vec<Package>> {
    let told = read(&mut project.cargo(&["metadata", "--format-version", "1", "--no-deps", "--offline"]))?;
    parse(&told, &project.root)
}

pub(crate) fn parse(told: &str, root: &Path) -> Result<Vec<Package>> {
    let metadata: Value = serde_json::from_str(told).context("read what cargo says of the workspace")?;
    let packages = list(&metadata["packages"]).iter().map(|package| one(package, root));
    let mut packages = packages.collect::<Result<Vec<Package>>>()?;
    packages.sort_by(|a, b| a.name.cmp(&b.name));
    Ok(packages)
}

fn one(package: &Value, root: &Path) -> Result<Package> {
    let text = |key: &str| package[key].as_str().map(str::to_owned);
    let name = text("name").context("a package has no name")?;
    let manifest = PathBuf::from(text("manifest_path").context("a package has no manifest")?);
    let folder = manifest.parent().and_then(|folder| folder.strip_prefix(root).ok());
    let folder = folder.with_context(|| format!("{name} is outside of the repository"))?;
    Ok(Package {
        folder: folder.to_string_lossy().replace('\\', "/"),
        description: text("description").unwrap_or_default(),
        rust_version: text("rust_version"),
        dependencies: list(&package["dependencies"]).iter().map(dependency).collect::<Result<_>>()?,
        name,
    })
}

fn dependency(value: &Value) -> Result<Dependency> {
    let name = value["name"].as_str().context("a dependency has no name")?;
    Ok(Dependency {
        name: name.to_owned(),
        identifier: value["rename"].as_str().unwrap_or(name).replace('-', "_"),
        is_linked: value["kind"].is_null(),
        is_path: value["path"].is_string(),
    })
}

fn list(value: &Value) -> &[Value] {
    value.as_array().map_or(&[], Vec::as_slice)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn packages_are_read_with_what_they_ask_for() {
        let told = r#"{"packages": [
            {"name": "b", "manifest_path": "/r/src/b/Cargo.toml", "rust_version": "1.89", "description": "B", "dependencies": [
                {"name": "a-a", "kind": null, "path": "/r/src/a"},
                {"name": "serde_norway", "rename": "serde-yaml", "kind": "dev"}]},
            {"name": "a-a", "manifest_path": "/r/Cargo.toml", "dependencies": []}]}"#;
        let packages = parse(told, Path::new("/r")).unwrap();
        assert_eq!((packages[0].name.as_str(), packages[0].folder.as_str()), ("a-a", ""));
        let b = &packages[1];
        assert_eq!((b.folder.as_str(), b.rust_version.as_deref()), ("src/b", Some("1.89")));
        let dependency = |name: &str, identifier: &str, is_linked, is_path| Dependency {
            name: name.into(),
            identifier: identifier.into(),
            is_linked,
            is_path,
        };
        assert_eq!(
            b.dependencies,
            [dependency("a-a", "a_a", true, true), dependency("serde_norway", "serde_yaml", false, false)]
        );
        assert!(parse(told, Path::new("/elsewhere")).is_err());
        assert!(parse("rubbish", Path::new("/r")).is_err());
    }
}
