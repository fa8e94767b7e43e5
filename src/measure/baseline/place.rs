//! Where a store is: a folder, or a URL.

use std::path::{Path, PathBuf};

use super::error::{BaselineError, Problem};
use super::folder::Folder;
use super::storage::Storage;

/// The storage at a place. `file://` is a folder; `s3://`, `gs://` and `az://` are object stores.
pub fn storage(place: &Path) -> Result<Box<dyn Storage>, BaselineError> {
    let Some((scheme, rest)) = place.to_str().and_then(|text| text.split_once("://")) else {
        return Ok(Box::new(Folder::new(place)));
    };
    match scheme {
        "file" => match folder(rest) {
            Some(path) => Ok(Box::new(Folder::new(&path))),
            None => {
                Err(refuse(place, "is not a file URL with an absolute path, such as file:///srv/baselines"))
            }
        },
        "s3" | "gs" | "az" => remote(place, scheme, rest),
        _ => Err(refuse(place, "has an unknown scheme; known are file, s3, gs and az")),
    }
}

fn refuse(place: &Path, problem: &str) -> BaselineError {
    BaselineError::new(place.display().to_string(), Problem::Storage(problem.to_owned()))
}

#[cfg(feature = "remote")]
fn remote(place: &Path, scheme: &str, rest: &str) -> Result<Box<dyn Storage>, BaselineError> {
    let opened = super::remote::open(scheme, rest);
    opened.map_err(|problem| refuse(place, &problem))
}

#[cfg(not(feature = "remote"))]
fn remote(place: &Path, _: &str, _: &str) -> Result<Box<dyn Storage>, BaselineError> {
    Err(refuse(
        place,
        "is an object store, which this build cannot reach: build it with the cargo feature `remote`",
    ))
}

/// The path of a file URL, without the scheme.
fn folder(rest: &str) -> Option<PathBuf> {
    let path = rest.strip_prefix("localhost").unwrap_or(rest);
    if !path.starts_with('/') {
        return None;
    }
    let mut bytes = Vec::new();
    let mut rest = path.bytes();
    while let Some(byte) = rest.next() {
        bytes.push(match byte {
            b'%' => {
                let digits = [rest.next()?, rest.next()?];
                u8::from_str_radix(std::str::from_utf8(&digits).ok()?, 16).ok()?
            }
            other => other,
        });
    }
    String::from_utf8(bytes).ok().map(PathBuf::from)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn shown(place: &str) -> String {
        match storage(Path::new(place)) {
            Ok(storage) => storage.place("a.json"),
            Err(error) => error.to_string(),
        }
    }

    #[test]
    fn folders_and_file_urls_are_folders() {
        assert_eq!(shown("baselines"), "baselines/a.json");
        assert_eq!(shown("file:///srv/base%20lines"), "/srv/base lines/a.json");
        assert_eq!(shown("file://localhost/srv"), "/srv/a.json");
    }

    #[test]
    fn other_urls_are_refused() {
        for (place, problem) in [
            ("file://srv", "is not a file URL"),
            ("file:///a%2", "is not a file URL"),
            ("file:///a%zz", "is not a file URL"),
            ("ftp://a/b", "has an unknown scheme"),
        ] {
            assert!(shown(place).starts_with(&format!("{place}: {problem}")), "{}", shown(place));
        }
        #[cfg(not(feature = "remote"))]
        assert!(shown("s3://bucket/a").contains("build it with the cargo feature `remote`"));
    }
}
