//! Markdown that GitHub shows, a step summary for example.

use std::fmt::Write;

use super::census::{DETAILED, census};
use super::fleet::{by_profile, overviews};
use super::table::{Align, Table};
use super::tables::{runtime, tables};
use crate::report::Report;
use anemeter_base::text::{visible, visible_lines};

/// Reports as Markdown, one after another by hardware profile; several begin with an overview, and of more than
/// [`DETAILED`] there is only a census.
pub fn markdown(reports: &[Report]) -> String {
    if reports.len() > DETAILED {
        let tables = census(reports).iter().map(written).collect::<String>();
        return format!("# {} reports\n\n{tables}", reports.len());
    }
    let reports = by_profile(reports);
    let mut parts = Vec::new();
    if reports.len() > 1 {
        let overviews = overviews(&reports).iter().map(written).collect::<String>();
        parts.push(format!("# {} reports\n\n{overviews}", reports.len()));
    }
    parts.extend(reports.iter().map(one));
    parts.join("\n")
}

fn one(report: &Report) -> String {
    let mut out = format!("# {}\n\n", escape(&report.subject.label()));
    let (profile, runtime) = (&report.header.hardware_profile_key, runtime(report));
    line(
        &mut out,
        &format!("{} on {} with {}\n", escape(&report.header.created), escape(profile), escape(&runtime)),
    );
    if report.residency.is_none() {
        line(&mut out, &format!("Not a Neural Engine figure: {}.\n", escape(&report.residency_note)));
    }
    for table in tables(report) {
        out.push_str(&written(&table));
    }
    for (launch, failure) in report.failures() {
        line(&mut out, &format!("## Launch {} failed\n\n{}\n", launch.index, escape(&failure.to_string())));
        if let Some(stderr) = &launch.stderr {
            // A fence longer than any in the text cannot be closed by it.
            let longest = stderr.split(|c| c != '`').map(str::len).max().unwrap_or(0);
            let fence = "`".repeat(longest.max(2) + 1);
            line(&mut out, &format!("{fence}text\n{}\n{fence}\n", visible_lines(stderr)));
        }
    }
    out
}

/// One table as Markdown.
pub fn written(table: &Table) -> String {
    let mut out = format!("## {}\n\n", escape(&table.title));
    let cells =
        |cells: &mut dyn Iterator<Item = String>| format!("| {} |", cells.collect::<Vec<_>>().join(" | "));
    line(&mut out, &cells(&mut table.columns.iter().map(|column| escape(&column.heading))));
    let rule = |align: Align| if align == Align::Left { "---" } else { "--:" };
    line(&mut out, &cells(&mut table.columns.iter().map(|column| rule(column.align).to_owned())));
    for row in &table.rows {
        line(&mut out, &cells(&mut row.iter().map(|cell| escape(cell))));
    }
    if !table.note.is_empty() {
        line(&mut out, &format!("\n{}", escape(&table.note)));
    }
    out.push('\n');
    out
}

fn line(out: &mut String, text: &str) {
    let written = writeln!(out, "{text}");
    debug_assert!(written.is_ok(), "a string takes any text");
}

/// Text that means nothing to Markdown or HTML.
pub(super) fn escape(text: &str) -> String {
    let mut out = String::new();
    for c in visible(text).chars() {
        match c {
            '&' => out.push_str("&amp;"),
            '<' => out.push_str("&lt;"),
            '>' => out.push_str("&gt;"),
            '\\' | '`' | '*' | '_' | '[' | ']' | '#' | '|' | '~' | '!' => {
                out.push('\\');
                out.push(c);
            }
            _ => out.push(c),
        }
    }
    out
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::report::testing;

    #[test]
    fn a_report_reads_well() {
        insta::assert_snapshot!(markdown(&[testing::report()]));
    }

    #[test]
    fn a_fleet_begins_with_a_table_per_profile() {
        let mut other = testing::report();
        other.header.hardware_profile_key = "apple-m1".to_owned();
        let text = markdown(&[testing::report(), other, testing::report()]);
        let headings: Vec<&str> = text.lines().filter(|line| line.starts_with('#')).take(3).collect();
        assert_eq!(headings, ["# 3 reports", "## linux-test-2c-24gb", "## apple-m1"]);
        assert_eq!(text.matches("\n# tiny (fp16)\n").count(), 3);
        assert!(text.contains("2 hardware profiles: their speeds are not comparable"));
    }

    #[test]
    fn names_do_no_harm() {
        let mut report = testing::report();
        report.subject.name = "<script>alert(1)</script> | **x** \u{1b}[2J\n# heading".to_owned();
        report.launches[2].stderr = Some("```\n<b>\n````".to_owned());
        let text = markdown(&[report]);
        assert!(text.starts_with(
            "# &lt;script&gt;alert(1)&lt;/script&gt; \\| \\*\\*x\\*\\* \\\\u{1b}\\[2J\\\\n\\# heading (fp16)\n"
        ));
        assert!(!text.contains("<script>") && !text.contains('\u{1b}'));
        assert!(text.contains("\n`````text\n```\n"), "{text}");
    }
}
