//! `unsafe` stays in the islands that the architecture names.

use super::source::{code, words};
use crate::tree::File;

/// Finds `unsafe`, and permission to use it, anywhere else.
pub(super) fn check(islands: &[String], files: &[File]) -> Vec<String> {
    let is_island = |path: &str| {
        islands.iter().any(|island| {
            if island.ends_with('/') { path.starts_with(island.as_str()) } else { path == island }
        })
    };
    let mut findings = Vec::new();
    for file in files.iter().filter(|file| file.is_rust() && !is_island(&file.path)) {
        let code = code(&file.text);
        let found = words(&code).filter(|(_, word)| matches!(*word, "unsafe" | "unsafe_code"));
        findings.extend(
            found.map(|(line, word)| format!("{}:{line}: `{word}` outside the unsafe islands", file.path)),
        );
    }
    findings
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::tree::file;

    #[test]
    fn only_islands_may() {
        let islands = ["src/a/x.rs".to_owned(), "src/simd/".to_owned()];
        let text = "//! unsafe\n#![allow(unsafe_code)]\nfn f() { unsafe { g() } }";
        let files = [file("src/a/x.rs", text), file("src/simd/y.rs", text), file("src/a/z.rs", text)];
        assert_eq!(
            check(&islands, &files),
            [
                "src/a/z.rs:2: `unsafe_code` outside the unsafe islands",
                "src/a/z.rs:3: `unsafe` outside the unsafe islands"
            ]
        );
    }
}
