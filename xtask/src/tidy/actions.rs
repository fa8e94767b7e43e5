//! Actions of workflows are pinned: a tag can be moved to other code, a commit cannot.

use crate::tree::File;

/// Finds those that are not the full hash of a commit, with the tag it had in a comment.
pub(super) fn check(files: &[File]) -> Vec<String> {
    let mut findings = Vec::new();
    for file in files.iter().filter(|file| file.path.starts_with(".github/workflows/")) {
        for (index, line) in file.text.lines().enumerate() {
            let step = line.trim_start().trim_start_matches("- ");
            let Some(action) = step.strip_prefix("uses: ") else { continue };
            if !action.starts_with("./") && !is_pinned(action) {
                findings.push(format!("{}:{}: `{action}` is not pinned", file.path, index + 1));
            }
        }
    }
    findings
}

fn is_pinned(action: &str) -> bool {
    let Some((_, version)) = action.split_once('@') else { return false };
    let Some((commit, tag)) = version.split_once(" # ") else { return false };
    commit.len() == 40 && commit.chars().all(|c| c.is_ascii_hexdigit()) && tag.starts_with('v')
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::tree::file;

    #[test]
    fn tags_and_bare_hashes_are_found() {
        let hash = "0123456789abcdef0123456789abcdef01234567";
        let text = format!(
            "      - uses: a/b@{hash} # v4.3.1\n    uses: ./.github/workflows/c.yml\n      - uses: a/b@v4\n      - uses: a/b@{hash}\n"
        );
        let expected = [
            ".github/workflows/x.yml:3: `a/b@v4` is not pinned".to_owned(),
            format!(".github/workflows/x.yml:4: `a/b@{hash}` is not pinned"),
        ];
        assert_eq!(check(&[file(".github/workflows/x.yml", &text)]), expected);
        assert!(check(&[file("docs/ci.yml", &text)]).is_empty());
    }
}
