//! What a page has to execute, and files that it shows.

/// Something to do for a page.
#[derive(Debug, PartialEq, Eq)]
pub(super) enum Part {
    /// A file to write.
    File { name: String, text: String },
    /// A command to run.
    Session(Session),
}

/// A command, and what is shown of it.
#[derive(Debug, PartialEq, Eq)]
pub(super) struct Session {
    pub(super) line: usize,
    pub(super) command: String,
    pub(super) output: Vec<String>,
    code: Option<i32>,
}

impl Session {
    /// Exit codes that are as they should be.
    pub(super) fn codes(&self) -> Vec<i32> {
        let is_verdict =
            ["anemeter gate ", "anemeter compare "].iter().any(|start| self.command.starts_with(start));
        match self.code {
            Some(code) => vec![code],
            None if is_verdict => vec![0, 1, 3],
            None => vec![0],
        }
    }
}

/// The parts of a page in order.
pub(super) fn parts(page: &str) -> Vec<Part> {
    let mut parts = Vec::new();
    let mut lines = page.lines().enumerate();
    while let Some((index, line)) = lines.next() {
        let Some(language) = line.trim_start().strip_prefix("```") else { continue };
        let indent = line.len() - line.trim_start().len();
        let block = lines.by_ref().take_while(|(_, line)| line.trim() != "```");
        let block: Vec<&str> = block.map(|(_, line)| line.get(indent..).unwrap_or("")).collect();
        match language.split_once(' ') {
            Some((_, name)) => {
                parts.push(Part::File { name: name.to_owned(), text: block.join("\n") + "\n" });
            }
            None if language == "console" => {
                parts.extend(sessions(&block, index + 2).into_iter().map(Part::Session));
            }
            None => {}
        }
    }
    parts
}

fn sessions(block: &[&str], first: usize) -> Vec<Session> {
    let mut sessions: Vec<Session> = Vec::new();
    for (index, line) in block.iter().enumerate() {
        if let Some(command) = line.strip_prefix("$ ") {
            let command = command.to_owned();
            sessions.push(Session { line: first + index, command, output: Vec::new(), code: None });
            continue;
        }
        let session = sessions.last_mut().unwrap_or_else(|| panic!("line {}: no command", first + index));
        match line.strip_prefix("? ") {
            Some(code) => session.code = Some(code.parse().unwrap()),
            None => session.output.push((*line).to_owned()),
        }
    }
    sessions
}

/// The words of a command; single quotes keep one together, and nothing else of a shell is known.
pub(super) fn words(line: &str) -> Result<Vec<String>, String> {
    let mut words = Vec::new();
    for (index, piece) in line.split('\'').enumerate() {
        if index % 2 == 1 {
            words.push(piece.to_owned());
        } else if let Some(odd) = piece.chars().find(|c| "\"\\|>&;$*`#".contains(*c)) {
            return Err(format!("`{odd}` is for a shell"));
        } else {
            words.extend(piece.split_whitespace().map(str::to_owned));
        }
    }
    if line.matches('\'').count() % 2 == 1 {
        return Err("a quote is open".to_owned());
    }
    Ok(words)
}

#[test]
fn commands_outputs_codes_and_files_are_found() {
    let page = "a\n\n  ```console\n  $ anemeter a\n  one\n    two\n  $ anemeter gate b\n  ? 3\n  ```\n\n```yaml x.yaml\nk: 1\n```\n```text\nno\n```\n";
    let session = |line, command: &str, output: &[&str], code| {
        let output = output.iter().map(|&line| line.to_owned()).collect();
        Part::Session(Session { line, command: command.to_owned(), output, code })
    };
    let expected = [
        session(4, "anemeter a", &["one", "  two"], None),
        session(7, "anemeter gate b", &[], Some(3)),
        Part::File { name: "x.yaml".to_owned(), text: "k: 1\n".to_owned() },
    ];
    assert_eq!(parts(page), expected);
}

#[test]
fn words_are_kept_together_by_quotes() {
    assert_eq!(words("anemeter generate b --prompt 'it is late'").unwrap().len(), 5);
    assert!(words("anemeter gate a > b").is_err());
    assert!(words("anemeter 'a").is_err());
}
