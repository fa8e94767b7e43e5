//! A verdict as Markdown, for a pull request or a step summary.

use std::fmt::Write;

use super::rows::{headline, verdict_tables};
use crate::gate::{Outcome, Verdict};
use crate::render::markdown::{escape, written};

/// A verdict as Markdown. Tables of what passed or was not gated are folded away.
pub fn verdict_markdown(verdict: &Verdict) -> String {
    let mark = match verdict.outcome {
        Outcome::Pass => "✅",
        Outcome::Fail => "❌",
        Outcome::Inconclusive => "❔",
    };
    let mut out = format!("# {mark} Gate: {}\n\n", escape(&headline(verdict)));
    for table in verdict_tables(verdict) {
        let folded = matches!(table.title.as_str(), "Passed" | "Not gated");
        let count = table.rows.len();
        let text = written(&table);
        let part = match folded {
            true => write!(
                out,
                "<details><summary>{} ({count})</summary>\n\n{text}</details>\n\n",
                escape(&table.title)
            ),
            false => write!(out, "{text}"),
        };
        debug_assert!(part.is_ok(), "a string takes any text");
    }
    out
}

#[cfg(test)]
mod tests {
    use super::super::testing::verdict;
    use super::*;

    #[test]
    fn a_verdict_reads_well_in_a_pull_request() {
        let text = verdict_markdown(&verdict());
        assert!(!text.contains("<b>"), "names do no harm");
        insta::assert_snapshot!(text);
    }
}
