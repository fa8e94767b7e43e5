//! What `cargo package` would ship.

/// Files that must be in the package.
const REQUIRED: &[&str] = &[
    "Cargo.toml",
    "CHANGELOG.md",
    "LICENSE-APACHE",
    "LICENSE-MIT",
    "README.md",
    "src/lib.rs",
    "src/main.rs",
];
/// Folders that must not be.
const REFUSED: &[&str] = &[".ci/", ".github/", "fuzz/", "target/"];

/// Checks the list that `cargo package --list` prints.
pub(super) fn check(list: &str) -> Vec<String> {
    let files: Vec<&str> = list.lines().collect();
    let missing = REQUIRED.iter().filter(|path| !files.contains(path));
    let extra = files.iter().filter(|file| REFUSED.iter().any(|folder| file.starts_with(folder)));
    missing
        .map(|path| format!("the package lacks {path}"))
        .chain(extra.map(|path| format!("the package contains {path}")))
        .collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn required_files_are_there_and_refused_ones_not() {
        let list = REQUIRED.join("\n");
        assert!(check(&list).is_empty());
        let worse = list.replace("README.md", "fuzz/a.rs");
        assert_eq!(check(&worse), ["the package lacks README.md", "the package contains fuzz/a.rs"]);
    }
}
