//! Starting other programs.

use std::io::{self, BufRead, BufReader};
use std::process::{Command, ExitStatus};

use anyhow::{Context, Result, bail};

/// Runs a program whose output is shown; a failure is an error.
pub fn succeed(command: &mut Command) -> Result<()> {
    let text = shown(command);
    let status = command.status().with_context(|| format!("start `{text}`"))?;
    if !status.success() {
        bail!("`{text}` failed ({status})");
    }
    Ok(())
}

/// Runs a program and returns what it wrote to stdout; a failure is an error.
pub fn read(command: &mut Command) -> Result<String> {
    let text = shown(command);
    let output = command.output().with_context(|| format!("start `{text}`"))?;
    if !output.status.success() {
        bail!("`{text}` failed ({}): {}", output.status, String::from_utf8_lossy(&output.stderr).trim());
    }
    String::from_utf8(output.stdout).with_context(|| format!("`{text}` wrote something that is not text"))
}

/// Whether a program can be started and succeeds; its output is dropped.
pub fn works(command: &mut Command) -> bool {
    command.output().is_ok_and(|output| output.status.success())
}

/// Runs a program, handing each line it writes to `look` and showing those for which that is true.
pub fn watch(command: &mut Command, mut look: impl FnMut(&str) -> bool) -> Result<ExitStatus> {
    let text = shown(command);
    let (reader, writer) = io::pipe().context("make a pipe")?;
    command.stdout(writer.try_clone()?).stderr(writer);
    let mut child = command.spawn().with_context(|| format!("start `{text}`"))?;
    // The command holds the writing end; the pipe ends only when that is closed too.
    command.stdout(std::process::Stdio::null()).stderr(std::process::Stdio::null());
    let mut lines = BufReader::new(reader);
    let mut line = Vec::new();
    while lines.read_until(b'\n', &mut line)? > 0 {
        let text = String::from_utf8_lossy(&line);
        let text = text.trim_end_matches(['\n', '\r']);
        if look(text) {
            println!("{text}");
        }
        line.clear();
    }
    Ok(child.wait()?)
}

fn shown(command: &Command) -> String {
    let words = std::iter::once(command.get_program()).chain(command.get_args());
    words.map(|word| word.to_string_lossy()).collect::<Vec<_>>().join(" ")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn failures_name_the_program() {
        let error = succeed(&mut Command::new("no-such-program-here")).unwrap_err();
        assert_eq!(error.to_string(), "start `no-such-program-here`");
    }

    #[test]
    #[cfg(unix)]
    fn watching_sees_both_streams_and_the_status() {
        let mut lines = Vec::new();
        let status = watch(Command::new("sh").args(["-c", "echo one; echo two >&2; exit 3"]), |line| {
            lines.push(line.to_owned());
            true
        })
        .unwrap();
        lines.sort();
        assert_eq!(lines, ["one", "two"]);
        assert_eq!(status.code(), Some(3));
    }
}
