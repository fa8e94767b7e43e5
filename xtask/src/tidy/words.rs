//! Leftovers and things that belong to one machine: unfinished code and merges, machine paths, private hosts.

use super::source::code;
use crate::tree::File;

/// Macros that mark unfinished code.
const UNFINISHED: &[&str] = &["todo!", "unimplemented!", "dbg!"];
/// Texts no file may contain. Split here, so that this file does not contain them.
const REFUSED: &[&str] = &[
    concat!("FIX", "ME"),
    concat!("<<<<", "<<< "),
    concat!("/ho", "me/"),
    concat!("/ro", "ot/"),
    concat!("/wo", "rk/"),
];
/// Schemes of links to hosts; buckets and files are none.
const SCHEMES: &[&str] = &["git", "http", "https", "ssh"];
/// Hosts that links may lead to; anything else may be a private registry or mirror.
const PUBLIC_HOSTS: &[&str] = &[
    "127.0.0.1",
    "apple.github.io",
    "crates.io",
    "developer.apple.com",
    "docs.rs",
    "doc.rust-lang.org",
    "git-lfs.github.com",
    "github.com",
    "huggingface.co",
    "json-schema.org",
    "keepachangelog.com",
    "numpy.org",
    "raw.githubusercontent.com",
    "semver.org",
    "www.apache.org",
    "www.w3.org",
];

/// Finds them all, except in the lock file, which only cargo writes.
pub(super) fn check(files: &[File]) -> Vec<String> {
    let mut findings = Vec::new();
    for file in files.iter().filter(|file| !file.path.ends_with("Cargo.lock")) {
        if file.is_rust() {
            let code = code(&file.text);
            let unfinished = |line: &str| UNFINISHED.iter().find(|word| line.contains(**word)).copied();
            findings
                .extend(found(file, &code, |line| unfinished(line).map(|word| format!("leftover `{word}`"))));
        }
        let refused = |line: &str| REFUSED.iter().find(|text| line.contains(**text)).copied();
        findings
            .extend(found(file, &file.text, |line| refused(line).map(|text| format!("contains `{text}`"))));
        findings.extend(found(file, &file.text, |line| {
            private_host(line).map(|host| format!("a link to `{host}`, which is not listed as public"))
        }));
    }
    findings
}

fn found<'a>(
    file: &'a File,
    text: &'a str,
    look: impl Fn(&str) -> Option<String> + 'a,
) -> impl Iterator<Item = String> + 'a {
    text.lines().enumerate().filter_map(move |(index, line)| {
        look(line).map(|what| format!("{}:{}: {what}", file.path, index + 1))
    })
}

fn private_host(line: &str) -> Option<&str> {
    let reached = |at: usize| SCHEMES.iter().any(|scheme| line[..at].ends_with(scheme));
    let links = line.match_indices("://").filter(|(at, _)| reached(*at));
    let mut hosts = links.map(|(at, mark)| host(&line[at + mark.len()..]));
    hosts.find(|host| !host.is_empty() && !PUBLIC_HOSTS.contains(host))
}

fn host(text: &str) -> &str {
    let end = text.find(|c: char| !(c.is_ascii_alphanumeric() || matches!(c, '.' | '-' | '@' | ':' | '_')));
    text[..end.unwrap_or(text.len())].trim_end_matches(['.', ':'])
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::tree::file;

    #[test]
    fn unfinished_code_is_found_but_not_in_texts() {
        let text = "// todo!\nlet a = \"dbg!(1)\";\ntodo!()\n";
        assert_eq!(check(&[file("a.rs", text)]), ["a.rs:3: leftover `todo!`"]);
    }

    #[test]
    fn refused_texts_are_found_in_any_file() {
        for refused in REFUSED {
            assert_eq!(check(&[file("a.md", &format!("see {refused}x"))]).len(), 1, "{refused}");
        }
        assert!(check(&[file("a.yml", ".github/workflows/ci.yml")]).is_empty());
    }

    #[test]
    fn links_lead_to_public_hosts() {
        let link = |host: &str| check(&[file("a.md", &format!("<{}://{host}/x>.", "https"))]);
        assert!(link("docs.rs").is_empty());
        assert_eq!(
            link("mirror.example"),
            ["a.md:1: a link to `mirror.example`, which is not listed as public"]
        );
        assert_eq!(link("token@docs.rs").len(), 1);
        assert!(check(&[file("a.md", "s3://bucket/a file:///srv")]).is_empty());
        assert!(check(&[file("Cargo.lock", &format!("https:{}mirror.example/", "//"))]).is_empty());
    }
}
