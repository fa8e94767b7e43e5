//! What git says: who blesses, at which commit, and whether the files are those of the commit.

use std::path::Path;

use crate::baseline::Tree;
use crate::hardware::Source;
use crate::report::Git;

/// What git says here.
#[derive(Debug, PartialEq, Eq)]
pub(super) struct Repository {
    pub(super) who: Option<String>,
    pub(super) git: Option<Git>,
    pub(super) tree: Tree,
}

/// Asks git in the folder the program was called in. Files below `baselines` may differ: blessing changes them.
pub(super) fn repository(source: &dyn Source, baselines: &Path) -> Repository {
    let line = |arguments: &[&str]| {
        let text = source.command("git", arguments)?.trim().to_owned();
        Some(text).filter(|text| !text.is_empty())
    };
    let who = match (line(&["config", "user.name"]), line(&["config", "user.email"])) {
        (Some(name), Some(address)) => Some(format!("{name} <{address}>")),
        (name, address) => name.or(address),
    };
    let Some(top) = line(&["rev-parse", "--show-toplevel"]) else {
        return Repository { who, git: None, tree: Tree::NoRepository };
    };
    let Some(commit) = line(&["rev-parse", "--verify", "HEAD"]) else {
        return Repository { who, git: None, tree: Tree::NoCommit };
    };
    let status = ["status", "--porcelain", "-z", "--no-renames", "--untracked-files=no"];
    let Some(status) = source.command("git", &status) else {
        return Repository { who, git: None, tree: Tree::NoRepository };
    };
    let changed = changed(&status, within(Path::new(&top), baselines).as_deref());
    let git = Git { commit, dirty: !changed.is_empty() };
    let tree = if changed.is_empty() { Tree::Clean } else { Tree::Changed(changed) };
    Repository { who, git: Some(git), tree }
}

/// Names of changed files outside a folder, from a status with an entry like ` M name` for each.
fn changed(status: &str, apart_from: Option<&Path>) -> Vec<String> {
    let names = status.split('\0').filter_map(|entry| entry.get(3..));
    names
        .filter(|name| apart_from.is_none_or(|folder| !Path::new(name).starts_with(folder)))
        .map(str::to_owned)
        .collect()
}

/// A folder relative to the top of the repository, if it is inside. A folder that does not exist has no files.
fn within(top: &Path, folder: &Path) -> Option<std::path::PathBuf> {
    let (top, folder) = (top.canonicalize().ok()?, folder.canonicalize().ok()?);
    folder.strip_prefix(top).ok().map(Path::to_owned)
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Git in the words of a list of commands and answers.
    struct Scripted(Vec<(&'static str, &'static str)>);

    impl Source for Scripted {
        fn file(&self, _: &str) -> Option<String> {
            None
        }

        fn names(&self, _: &str) -> Vec<String> {
            Vec::new()
        }

        fn command(&self, _: &str, arguments: &[&str]) -> Option<String> {
            let line = arguments.join(" ");
            self.0.iter().find(|(start, _)| line.starts_with(start)).map(|(_, text)| (*text).to_owned())
        }
    }

    #[test]
    fn git_tells_who_and_what_differs() {
        let git = Scripted(vec![
            ("config user.name", "Ada\n"),
            ("config user.email", "ada@example.org\n"),
            ("rev-parse --show-toplevel", "/nowhere/at/all\n"),
            ("rev-parse --verify HEAD", "abc123\n"),
            ("status", " M src/a b.rs\0M  c.yaml\0"),
        ]);
        let found = repository(&git, Path::new("baselines"));
        assert_eq!(found.who.as_deref(), Some("Ada <ada@example.org>"));
        assert_eq!(found.git, Some(Git { commit: "abc123".to_owned(), dirty: true }));
        assert_eq!(found.tree, Tree::Changed(vec!["src/a b.rs".to_owned(), "c.yaml".to_owned()]));
        let nothing = repository(&Scripted(Vec::new()), Path::new("baselines"));
        assert_eq!(nothing, Repository { who: None, git: None, tree: Tree::NoRepository });
        let fresh = Scripted(vec![("rev-parse --show-toplevel", "/nowhere/at/all\n")]);
        assert_eq!(repository(&fresh, Path::new("baselines")).tree, Tree::NoCommit);
    }

    #[test]
    fn baselines_may_differ() {
        let status = " M baselines/m1/a.json\0M  baselines2/x\0 M src/b.rs\0";
        assert_eq!(changed(status, Some(Path::new("baselines"))), ["baselines2/x", "src/b.rs"]);
        assert_eq!(changed(status, None).len(), 3);
        assert_eq!(changed("", None), Vec::<String>::new());
    }
}
