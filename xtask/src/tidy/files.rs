//! Rules for whole files: a module doc, a size, a name that says something.

use crate::tree::File;

/// Lines before the tests from which a file is listed as growing too long.
const LONG: usize = 400;
/// Lines before the tests that no file may pass.
const TOO_LONG: usize = 600;
/// Names that say nothing of what a file is for.
const EMPTY_NAMES: &[&str] = &["util", "utils", "common", "helper", "helpers", "misc"];

/// Every source file starts with what it is for.
pub(super) fn check_docs(files: &[File]) -> Vec<String> {
    let silent = files.iter().filter(|file| file.is_rust() && !file.text.starts_with("//! "));
    silent.map(|file| format!("{} does not start with a `//!` doc", file.path)).collect()
}

/// No source file is too long.
pub(super) fn check_sizes(files: &[File]) -> Vec<String> {
    longer_than(TOO_LONG, files)
}

/// Source files that are on their way there.
pub(super) fn growing(files: &[File]) -> Vec<String> {
    longer_than(LONG, files)
}

/// No file or folder has an empty name.
pub(super) fn check_names(files: &[File]) -> Vec<String> {
    let empty = |path: &str| {
        path.split('/').any(|part| EMPTY_NAMES.contains(&part.split('.').next().unwrap_or(part)))
    };
    let found = files.iter().filter(|file| empty(&file.path));
    found.map(|file| format!("{}: name it after what it does", file.path)).collect()
}

fn longer_than(limit: usize, files: &[File]) -> Vec<String> {
    let sized = files.iter().filter(|file| file.is_rust()).map(|file| (file, lines_before_tests(&file.text)));
    sized
        .filter(|(_, lines)| *lines > limit)
        .map(|(file, lines)| format!("{} has {lines} lines before its tests, more than {limit}", file.path))
        .collect()
}

fn lines_before_tests(text: &str) -> usize {
    let lines: Vec<&str> = text.lines().collect();
    let tests = lines
        .windows(2)
        .position(|pair| pair[0] == "#[cfg(test)]" && pair[1].starts_with("mod ") && pair[1].ends_with('{'));
    tests.unwrap_or(lines.len())
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::tree::file;

    #[test]
    fn a_file_says_what_it_is_for() {
        let files = [file("a.rs", "//! A.\n"), file("b.rs", "use x;\n"), file("c.md", "")];
        assert_eq!(check_docs(&files), ["b.rs does not start with a `//!` doc"]);
    }

    #[test]
    fn tests_do_not_count_as_length() {
        let code = "x\n".repeat(600);
        let fits = file("a.rs", &format!("{code}#[cfg(test)]\nmod tests {{\n{code}}}\n"));
        let declares = file("b.rs", &format!("#[cfg(test)]\nmod testing;\n{code}"));
        let files = [fits, declares];
        assert_eq!(check_sizes(&files), ["b.rs has 602 lines before its tests, more than 600"]);
        assert_eq!(growing(&files).len(), 2);
    }

    #[test]
    fn empty_names_are_refused() {
        let files = [file("src/utils.rs", ""), file("a/common/mod.rs", ""), file("src/common_voice.rs", "")];
        assert_eq!(check_names(&files).len(), 2);
    }
}
