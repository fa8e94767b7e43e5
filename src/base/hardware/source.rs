//! Where facts about the machine come from: files and small commands, so that tests can script them.

use std::process::{Command, Stdio};

/// Gives files and the output of commands.
pub trait Source {
    /// The text of a file, if it can be read.
    fn file(&self, path: &str) -> Option<String>;

    /// Names in a folder, sorted; none if there is no such folder.
    fn names(&self, folder: &str) -> Vec<String>;

    /// Standard output of a command that succeeded.
    fn command(&self, program: &str, arguments: &[&str]) -> Option<String>;
}

/// This machine.
#[derive(Debug, Clone, Copy, Default)]
pub struct System;

impl Source for System {
    fn file(&self, path: &str) -> Option<String> {
        std::fs::read(path).ok().map(|bytes| String::from_utf8_lossy(&bytes).into_owned())
    }

    fn names(&self, folder: &str) -> Vec<String> {
        let entries = std::fs::read_dir(folder).into_iter().flatten();
        let mut names: Vec<String> =
            entries.filter_map(|entry| entry.ok()?.file_name().into_string().ok()).collect();
        names.sort();
        names
    }

    fn command(&self, program: &str, arguments: &[&str]) -> Option<String> {
        let output = Command::new(program).args(arguments).stdin(Stdio::null()).output().ok()?;
        output.status.success().then(|| String::from_utf8_lossy(&output.stdout).into_owned())
    }
}

#[cfg(test)]
pub(super) mod scripted {
    //! A machine made of texts.

    use super::Source;

    /// Files and commands with what they give.
    #[derive(Default)]
    pub(in crate::hardware) struct Scripted {
        files: Vec<(String, String)>,
        commands: Vec<(String, String)>,
    }

    impl Scripted {
        pub(in crate::hardware) fn with_file(mut self, path: &str, text: &str) -> Scripted {
            self.files.push((path.to_owned(), text.to_owned()));
            self
        }

        pub(in crate::hardware) fn with_command(mut self, line: &str, text: &str) -> Scripted {
            self.commands.push((line.to_owned(), text.to_owned()));
            self
        }
    }

    impl Source for Scripted {
        fn file(&self, path: &str) -> Option<String> {
            self.files.iter().find(|(known, _)| known == path).map(|(_, text)| text.clone())
        }

        fn names(&self, folder: &str) -> Vec<String> {
            let inside = self.files.iter().filter_map(|(p, _)| p.strip_prefix(folder)?.strip_prefix('/'));
            let mut names: Vec<String> =
                inside.filter_map(|rest| rest.split('/').next()).map(str::to_owned).collect();
            names.sort();
            names.dedup();
            names
        }

        fn command(&self, program: &str, arguments: &[&str]) -> Option<String> {
            let line =
                std::iter::once(program).chain(arguments.iter().copied()).collect::<Vec<_>>().join(" ");
            self.commands.iter().find(|(known, _)| *known == line).map(|(_, text)| text.clone())
        }
    }
}
