//! Lint rules.

use std::fmt::Write;

use anemeter::lint::{Rule, rules};
use anyhow::Result;

use super::Page;

pub(super) const PAGE: Page =
    Page { name: "rules.md", title: "Lint rules", source: "the rules in src/lint/rules/", body: |_| page() };

const INTRODUCTION: &str = "\
`anemeter lint --explain ID` prints a rule in full; [lint](../lint.md) says what severities and confidences mean.\n";

fn page() -> Result<String> {
    let mut text = format!("{} rules. {INTRODUCTION}\n", rules().len());
    text += "| id | severity | confidence | rule | keeps off | needs |\n|---|---|---|---|---|---|\n";
    for rule in rules() {
        let off = if rule.off { "yes" } else { "" };
        let (severity, confidence) = (rule.severity.name(), rule.confidence.name());
        let needs = rule.needs().unwrap_or("");
        writeln!(text, "| {} | {severity} | {confidence} | {} | {off} | {needs} |", rule.id, rule.title)?;
    }
    for rule in rules() {
        section(rule, &mut text)?;
    }
    Ok(text)
}

fn section(rule: &Rule, text: &mut String) -> Result<()> {
    writeln!(text, "\n## {}: {}\n\n{}\n", rule.id, rule.title, rule.why)?;
    for source in rule.evidence {
        writeln!(text, "- {source}")?;
    }
    writeln!(text, "\nWhat to do: {}.", rule.remedy)?;
    Ok(())
}
