//! What tasks there are: a table of single ones, and groups with a table each.

use anyhow::{Result, bail};
use pico_args::Arguments;

use crate::outcome::Outcome;
use crate::project::Project;
use crate::{bless, book, ci, deny, dist, fuzz, guides, lab, msrv, sanitize, test, tidy, workflows};

/// One task.
pub struct Task {
    pub name: &'static str,
    /// Its arguments, as `--help` shows them; where there are none, none are taken.
    pub arguments: &'static str,
    pub about: &'static str,
    /// Exit status when what it checks is not available on this machine.
    pub not_checked: u8,
    pub run: Run,
}

/// Who does a task.
pub enum Run {
    /// This program.
    Here(fn(&Project, Arguments) -> Result<Outcome>),
    /// The laboratory, which has the library.
    InLab,
}

/// Tasks of a kind: `cargo xtask GROUP TASK`.
pub struct Group {
    pub name: &'static str,
    pub about: &'static str,
    pub tasks: &'static [Task],
}

/// Tasks without a group.
pub const TASKS: &[Task] = &[
    bless::TASK,
    ci::TASK,
    deny::TASK,
    dist::TASK,
    book::TASK,
    lab::FETCH_SMOLLM2,
    fuzz::TASK,
    lab::FUZZ_SEEDS,
    lab::GATE_POWER,
    lab::INSTRUCTION_SETS,
    msrv::TASK,
    lab::REFERENCE,
    sanitize::TASK,
    test::TASK,
    tidy::TASK,
    lab::TINY_CHECKPOINTS,
    lab::TRAIN,
];

const BENCH: Group = Group {
    name: "bench",
    about: "measurements, most of them judged by targets; --record keeps them in the documentation",
    tasks: &[
        lab::BENCH_AUTO,
        lab::BENCH_BUILD,
        lab::BENCH_COMMITS,
        lab::BENCH_COMPRESS,
        lab::BENCH_DECODE,
        lab::BENCH_EXPORT,
        lab::BENCH_HISTORY,
        lab::BENCH_OVERHEAD,
        lab::BENCH_PACKAGE,
        lab::BENCH_PEERS,
        lab::BENCH_QUALITY,
    ],
};

const CHECK: Group = Group {
    name: "check",
    about: "checks beyond the tests, against other programs, real models and other machines",
    tasks: &[
        lab::CHECK_ARCHITECTURES,
        lab::CHECK_CONFORMANCE,
        lab::CHECK_COREAI,
        lab::CHECK_COREAI_LLM,
        lab::CHECK_COREAI_MODELS,
        lab::CHECK_COREAI_RUNTIME,
        lab::CHECK_COREAI_SMOLLM2,
        lab::CHECK_COREML,
        lab::CHECK_DECISION,
        lab::CHECK_DOCS,
        lab::CHECK_ENCODERS,
        guides::TASK,
        lab::CHECK_HOSTILE,
        lab::CHECK_MAC_COREAI,
        lab::CHECK_MAC_SMOKE,
        lab::CHECK_MINILM,
        lab::CHECK_PACKAGES,
        lab::CHECK_QUICKSTART,
        lab::CHECK_REMOTE,
        lab::CHECK_SMOLLM2,
        workflows::TASK,
    ],
};

/// All groups.
pub const GROUPS: &[Group] = &[BENCH, CHECK];

impl Task {
    /// Makes the task, which is called by these words.
    pub(crate) fn run(&self, project: &Project, words: &[String], arguments: Arguments) -> Result<Outcome> {
        match self.run {
            Run::Here(run) => run(project, arguments),
            Run::InLab => {
                let words: Vec<&str> = words.iter().map(String::as_str).collect();
                lab::run(project, &words, arguments.finish())
            }
        }
    }
}

fn group(name: &str) -> Option<&'static Group> {
    GROUPS.iter().find(|group| group.name == name)
}

/// Whether these words name all that there is to name.
pub(crate) fn is_whole(words: &[String]) -> bool {
    match words {
        [] => false,
        [first] => group(first).is_none(),
        _ => true,
    }
}

/// The task that these words name; nothing if they name a group or nothing.
pub fn find<W: AsRef<str>>(words: &[W]) -> Result<Option<&'static Task>> {
    let words: Vec<&str> = words.iter().map(AsRef::as_ref).collect();
    let (tasks, name) = match words[..] {
        [] => return Ok(None),
        [first, ref rest @ ..] => match (group(first), rest) {
            (Some(_), []) => return Ok(None),
            (Some(group), [name, ..]) => (group.tasks, *name),
            (None, _) => (TASKS, first),
        },
    };
    match tasks.iter().find(|task| task.name == name) {
        Some(task) => Ok(Some(task)),
        None => bail!("there is no task `{}`\nhelp: `cargo xtask --help` lists the tasks", words.join(" ")),
    }
}

/// All tasks, or those of a group.
pub(crate) fn help(name: Option<&str>) -> String {
    let line = |task: &Task| format!("  {:<16} {}\n", task.name, task.about);
    if let Some(group) = name.and_then(group) {
        let tasks: String = group.tasks.iter().map(line).collect();
        return format!("cargo xtask {} TASK [ARGUMENTS]: {}\n\n{tasks}", group.name, group.about);
    }
    let mut text = String::from("cargo xtask TASK [ARGUMENTS]\n\n");
    text.extend(TASKS.iter().map(line));
    for group in GROUPS {
        text += &format!("\ncargo xtask {} TASK: {}\n", group.name, group.about);
        text.extend(group.tasks.iter().map(line));
    }
    text + "\n`cargo xtask TASK --help` shows a task's arguments.\n"
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn commands_are_sorted_and_described() {
        for tasks in std::iter::once(TASKS).chain(GROUPS.iter().map(|group| group.tasks)) {
            assert!(tasks.is_sorted_by(|a, b| a.name < b.name));
            assert!(tasks.iter().all(|task| !task.about.is_empty()));
        }
        let text = help(None);
        assert!(["tidy", "peers", "conformance"].iter().all(|name| text.contains(name)), "{text}");
        assert!(!help(Some("bench")).contains("conformance"));
    }

    #[test]
    fn tasks_are_found_by_all_of_their_words() {
        assert_eq!(find(&["tidy"]).unwrap().map(|task| task.name), Some("tidy"));
        assert_eq!(find(&["bench", "peers"]).unwrap().map(|task| task.name), Some("peers"));
        assert!(find(&["bench"]).unwrap().is_none());
        assert!(find(&["peers"]).is_err());
        assert!(find(&["check", "peers"]).is_err());
    }
}
