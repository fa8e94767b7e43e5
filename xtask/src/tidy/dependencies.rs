//! Every dependency that a manifest of the workspace names is named in the code of that package.

use std::collections::{BTreeMap, BTreeSet};

use super::source::{code, words};
use crate::metadata::Package;
use crate::tree::File;

/// Packages with a dependency that their own files do not name, and why it is there all the same.
const SILENT: &[(&str, &str, &str)] = &[
    ("anemeter-measure", "reqwest", "its features choose how `object_store` speaks TLS"),
    ("lab", "bytemuck", "the checkpoints of tests/it/support, which it includes, are made with it"),
];

/// Finds those that are not.
pub(super) fn check(packages: &[Package], files: &[File]) -> Vec<String> {
    let named = named(files);
    let mut findings = BTreeSet::new();
    for package in packages {
        let empty = BTreeSet::new();
        let words = named.get(package.folder.as_str()).unwrap_or(&empty);
        for dependency in &package.dependencies {
            let is_silent =
                SILENT.iter().any(|(of, name, _)| *of == package.name && *name == dependency.name);
            if !is_silent && !words.contains(dependency.identifier.as_str()) {
                let name = &dependency.name;
                findings
                    .insert(format!("`{}` depends on `{name}`, which its code never names", package.name));
            }
        }
    }
    findings.into_iter().collect()
}

/// The words in the code of each package, by its folder.
fn named(files: &[File]) -> BTreeMap<&str, BTreeSet<String>> {
    let folders: Vec<&str> =
        files.iter().filter_map(|file| file.path.strip_suffix("Cargo.toml")).map(trimmed).collect();
    let mut named: BTreeMap<&str, BTreeSet<String>> = BTreeMap::new();
    for file in files.iter().filter(|file| file.is_rust()) {
        let is_in = |folder: &&&str| {
            folder.is_empty() || file.path.strip_prefix(**folder).is_some_and(|rest| rest.starts_with('/'))
        };
        // Packages lie within others; the innermost has the file.
        if let Some(folder) = folders.iter().filter(is_in).max_by_key(|folder| folder.len()) {
            let found = named.entry(folder).or_default();
            found.extend(words(&code(&file.text)).map(|(_, word)| word.to_owned()));
        }
    }
    named
}

fn trimmed(folder: &str) -> &str {
    folder.trim_end_matches('/')
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::metadata::Dependency;
    use crate::tree::file;

    #[test]
    fn what_only_comments_or_other_packages_name_is_found() {
        let dependency = |name: &str| Dependency {
            name: name.to_owned(),
            identifier: name.replace('-', "_"),
            is_linked: true,
            is_path: false,
        };
        let package = |name: &str, folder: &str, uses: &[&str]| Package {
            name: name.to_owned(),
            description: String::new(),
            folder: folder.to_owned(),
            rust_version: None,
            dependencies: uses.iter().map(|name| dependency(name)).collect(),
        };
        let packages = [package("app", "", &["pico-args", "half"]), package("lab", "xtask/lab", &["half"])];
        let files = [
            file("Cargo.toml", ""),
            file("xtask/lab/Cargo.toml", ""),
            file("src/main.rs", "// half\nuse pico_args::Arguments;\n"),
            file("xtask/lab/src/main.rs", "fn main() { half::f16::ONE; }"),
        ];
        assert_eq!(check(&packages, &files), ["`app` depends on `half`, which its code never names"]);
        assert_eq!(check(&packages[1..], &files), Vec::<String>::new());
    }
}
