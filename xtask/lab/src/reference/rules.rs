//! Lint rules.

use std::fmt::Write;

use anemeter::lint::{Rule, RuleText, rules};
use anyhow::Result;

use super::Page;

pub(super) const PAGE: Page = Page {
    name: "rules.md",
    title: "Lint rules",
    source: "the rules in src/mil/lint/rules/ and src/coreai/lint/rules/",
    body: |_| page(),
};

const INTRODUCTION: &str = "\
`anemeter lint --explain ID` prints a rule in full; options and waivers take its id or its name. [Lint](../lint.md) says \
what severities and confidences mean. \"Decided by\" is the key of an [export configuration](config.md) that makes the \
difference.\n";

fn page() -> Result<String> {
    let mut text = format!("{} rules. {INTRODUCTION}\n", rules().len());
    text += "| id | name | severity | confidence | rule | keeps off | decided by | needs |\n|---|---|---|---|---|---|---|---|\n";
    for rule in rules() {
        let off = if rule.off_ane { "yes" } else { "" };
        let (severity, confidence) = (rule.severity.name(), rule.confidence.name());
        let key = rule.decided_by.map(|key| format!("`{key}`")).unwrap_or_default();
        let needs = rule.needs().unwrap_or("");
        let Rule { id, slug, title, .. } = rule;
        writeln!(text, "| {id} | {slug} | {severity} | {confidence} | {title} | {off} | {key} | {needs} |")?;
    }
    for rule in rules() {
        section(&rule.text(), &mut text)?;
    }
    assets(&mut text)?;
    Ok(text)
}

/// The rules for Core AI assets, which look at nothing but the asset.
fn assets(text: &mut String) -> Result<()> {
    let rules = anemeter::coreai::lint::rules();
    writeln!(text, "\n# Rules for Core AI assets\n\n{} rules for `.aimodel`.\n", rules.len())?;
    *text += "| id | name | severity | confidence | rule | keeps off |\n|---|---|---|---|---|---|\n";
    for rule in rules {
        let RuleText { id, slug, title, severity, confidence, off_ane, .. } = rule.text;
        let (severity, confidence) = (severity.name(), confidence.name());
        let off = if off_ane { "yes" } else { "" };
        writeln!(text, "| {id} | {slug} | {severity} | {confidence} | {title} | {off} |")?;
    }
    rules.iter().try_for_each(|rule| section(&rule.text, text))
}

fn section(rule: &RuleText, text: &mut String) -> Result<()> {
    writeln!(text, "\n## {}: {}\n\n{}\n", rule.id, rule.title, rule.why)?;
    for source in rule.evidence {
        writeln!(text, "- {source}")?;
    }
    writeln!(text, "\nWhat to do: {}.", rule.remedy)?;
    Ok(())
}
