//! A verdict as workflow commands, which GitHub shows beside a run.

use super::rows::{headline, why};
use crate::gate::{Outcome, Status, Verdict};
use anemeter_base::text::visible;

/// A line per failed or inconclusive check, per warning, and one for the whole.
pub fn annotations(verdict: &Verdict) -> Vec<String> {
    let mut lines: Vec<String> = Vec::new();
    for (status, level) in [(Status::Fail, "error"), (Status::Inconclusive, "warning")] {
        lines.extend(verdict.with(status).map(|check| {
            let title = format!("{}: {}", check.label(), check.status.label());
            command(level, &title, &why(check))
        }));
    }
    lines.extend(verdict.warnings.iter().map(|warning| command("warning", "gate", warning)));
    let level = if verdict.outcome == Outcome::Pass { "notice" } else { "error" };
    lines.push(command(level, "gate", &headline(verdict)));
    lines
}

fn command(level: &str, title: &str, message: &str) -> String {
    format!("::{level} title={}::{}", property(title), data(message))
}

/// Text that can neither end a command's line nor do anything unseen. Escapes of the command itself would be undone.
fn data(text: &str) -> String {
    visible(text).replace('%', "%25")
}

/// Text that cannot end a command's property either.
fn property(text: &str) -> String {
    data(text).replace(':', "%3A").replace(',', "%2C")
}

#[cfg(test)]
mod tests {
    use super::super::testing::verdict;
    use super::*;
    use anemeter_base::text::is_unseen;

    #[test]
    fn what_is_not_good_is_annotated() {
        insta::assert_snapshot!(annotations(&verdict()).join("\n"));
    }

    #[test]
    fn names_cannot_issue_commands() {
        let mut verdict = verdict();
        verdict.candidate.name = "x\n::add-mask::y\r".to_owned();
        verdict.warnings = vec!["a\n::error::b 1%0A\u{1b}[2J\u{202e}c".to_owned()];
        let lines = annotations(&verdict);
        assert!(lines.iter().all(|line| !line.contains(is_unseen)));
        let said = "::a\\n::error::b 1%250A\\u{1b}[2J\\u{202e}c";
        assert!(lines.iter().any(|line| line.ends_with(said)), "{lines:?}");
    }
}
