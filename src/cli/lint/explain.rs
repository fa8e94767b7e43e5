//! `anemeter lint --explain`: a rule and the evidence for it.

use crate::cli::{Failure, Output, Result, Status};
use crate::coreai;
use crate::lint::{self, Rule, RuleText};
use crate::render::Table;

/// Columns of running text.
const WIDTH: usize = 96;

pub(super) fn explain(name: &str, out: &mut Output) -> Result<Status> {
    if name.eq_ignore_ascii_case("all") {
        list(out)?;
        return Ok(Status::Good);
    }
    let (rule, notes) = find(name).ok_or_else(|| {
        Failure::bad_input(format!("there is no rule `{}`", name.escape_debug()))
            .with_help("`anemeter lint --explain all` lists the rules")
    })?;
    out.line(format_args!("{}: {}", rule.id, rule.title))?;
    out.line(format_args!("{}, {}, {}\n", rule.slug, rule.severity.name(), rule.confidence.name()))?;
    paragraph(rule.why, "", out)?;
    out.line("\nEvidence:")?;
    for source in rule.evidence {
        paragraph(source, "- ", out)?;
    }
    out.line("\nWhat to do:")?;
    paragraph(rule.remedy, "", out)?;
    for note in notes {
        out.line("")?;
        paragraph(&note, "", out)?;
    }
    Ok(Status::Good)
}

/// A rule for packages or for assets, and what else there is to say about it.
fn find(name: &str) -> Option<(RuleText, Vec<String>)> {
    let for_package = lint::rule(name).map(|rule| (rule.text(), notes(rule)));
    for_package.or_else(|| {
        let rule = coreai::lint::rule(name)?;
        let of_assets = "It is about Core AI assets.".to_owned();
        Some((rule.text, rule.text.off_ane.then(|| OFF.to_owned()).into_iter().chain([of_assets]).collect()))
    })
}

const OFF: &str = "Operations that it finds are predicted to run off the Neural Engine.";

fn notes(rule: &Rule) -> Vec<String> {
    let off = OFF.to_owned();
    let needs = rule.needs().map(|needs| format!("It needs {needs}."));
    let key = rule.decided_by.map(|key| format!("The key `{key}` of an export configuration decides it."));
    rule.off_ane.then_some(off).into_iter().chain(key).chain(needs).collect()
}

fn list(out: &mut Output) -> Result<()> {
    let mut table = Table::new(&["id", "name", "severity", "confidence", "title"]);
    let of_packages = lint::rules().iter().map(|rule| rule.text());
    for rule in of_packages.chain(coreai::lint::rules().iter().map(|rule| rule.text)) {
        let cells = [rule.id, rule.slug, rule.severity.name(), rule.confidence.name(), rule.title];
        table.row(cells.map(str::to_owned));
    }
    out.text(table)
}

/// Prints text in lines of at most `WIDTH` columns.
fn paragraph(text: &str, first: &str, out: &mut Output) -> Result<()> {
    let mut line = first.to_owned();
    let indent = " ".repeat(first.len());
    let mut is_empty = true;
    for word in text.split_whitespace() {
        if !is_empty && line.chars().count() + 1 + word.chars().count() > WIDTH {
            out.line(&line)?;
            line.clone_from(&indent);
            is_empty = true;
        }
        if !is_empty {
            line.push(' ');
        }
        line.push_str(word);
        is_empty = false;
    }
    out.line(line)
}
