//! The files of the repository.

use std::fs;
use std::path::Path;

use anyhow::{Context, Result};

use crate::process::read;
use crate::project::Project;

/// A text file of the repository.
#[derive(Debug)]
pub struct File {
    /// Relative to the top folder, with forward slashes.
    pub path: String,
    pub text: String,
}

impl File {
    pub fn is_rust(&self) -> bool {
        self.has_extension("rs")
    }

    pub fn is_markdown(&self) -> bool {
        self.has_extension("md")
    }

    fn has_extension(&self, wanted: &str) -> bool {
        Path::new(&self.path).extension().is_some_and(|extension| extension == wanted)
    }
}

/// Every file that git tracks or would track.
pub fn paths(project: &Project) -> Result<Vec<String>> {
    let mut list = project.command("git");
    list.args(["ls-files", "--cached", "--others", "--exclude-standard"]);
    let listed = read(&mut list)?;
    Ok(listed.lines().filter(|path| project.root.join(path).is_file()).map(str::to_owned).collect())
}

/// Those of them that are text.
pub fn read_files(project: &Project) -> Result<Vec<File>> {
    let mut files = Vec::new();
    for path in paths(project)? {
        let bytes = fs::read(project.root.join(&path)).with_context(|| format!("read {path}"))?;
        if let Ok(text) = String::from_utf8(bytes) {
            files.push(File { path, text });
        }
    }
    Ok(files)
}

#[cfg(test)]
pub(crate) fn file(path: &str, text: &str) -> File {
    File { path: path.to_owned(), text: text.to_owned() }
}
