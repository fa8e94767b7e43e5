//! Charts as SVG, drawn with plotters.
//!
//! A chart is drawn once with placeholder colours for ink, grid and ground; [`Theme`] puts in fixed colours for a file
//! of its own, or those of the page around it.

mod against;
pub(super) mod canvas;
mod compression;
mod distribution;
mod frontier;
mod history;
mod labels;
mod latency;
mod memory;
mod seq_lens;

use super::Result;
use crate::gate::Verdict;
use crate::report::Report;
use crate::sweep::Sweep;

pub use canvas::Theme;

/// A finished chart.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Chart {
    /// A plain name, for files.
    pub name: String,
    /// The SVG document.
    pub svg: String,
}

/// All charts that a report has data for.
pub fn charts(report: &Report, theme: Theme) -> Result<Vec<Chart>> {
    let mut found = Vec::new();
    found.extend(seq_lens::ttft(report, theme)?);
    found.extend(seq_lens::tps(report, theme)?);
    found.extend(seq_lens::latency(report, theme)?);
    found.extend(latency::over_time(report, theme)?);
    found.extend(distribution::per_place(report, theme)?);
    found.extend(memory::over_time(report, theme)?);
    found.extend(memory::soak(report, theme)?);
    found.extend(latency::soak(report, theme)?);
    found.extend(compression::by_layer(report, theme)?);
    Ok(found)
}

/// Charts that compare reports in their order.
pub fn comparisons(reports: &[Report], theme: Theme) -> Result<Vec<Chart>> {
    let mut found = Vec::new();
    found.extend(history::ttft(reports, theme)?);
    found.extend(history::tps(reports, theme)?);
    found.extend(history::latency(reports, theme)?);
    found.extend(frontier::of_reports(reports, theme)?);
    Ok(found)
}

/// The charts of a sweep: speed and quality over size, if several configurations have them.
pub fn sweep(sweep: &Sweep, theme: Theme) -> Result<Vec<Chart>> {
    frontier::trade_offs(&sweep.trade_offs(), theme)
}

/// The chart of a verdict, if anything was compared.
pub fn against(verdict: &Verdict, theme: Theme) -> Result<Option<Chart>> {
    against::effects(verdict, theme)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::report::testing;

    #[test]
    fn a_report_has_its_charts() {
        let names: Vec<String> =
            charts(&testing::report(), Theme::File).unwrap().into_iter().map(|chart| chart.name).collect();
        assert_eq!(names, ["ttft", "tps", "latency", "inter-token-128", "inter-token-512", "memory"]);
    }

    #[test]
    fn predictions_have_theirs() {
        let report = testing::predicted(3, 1.0);
        let names: Vec<String> =
            charts(&report, Theme::File).unwrap().into_iter().map(|chart| chart.name).collect();
        assert_eq!(names, ["prediction-latency", "latency", "latency-1", "latency-2", "memory"]);
        let history = comparisons(&[report.clone(), report], Theme::File).unwrap();
        assert_eq!(history.iter().map(|chart| &*chart.name).collect::<Vec<_>>(), ["history-latency"]);
    }

    #[test]
    fn charts_are_whole_and_without_placeholders() {
        for theme in [Theme::File, Theme::Page] {
            for chart in charts(&testing::report(), theme).unwrap() {
                assert!(chart.svg.starts_with("<svg ") && chart.svg.trim_end().ends_with("</svg>"));
                assert!(!chart.svg.contains("NaN") && !chart.svg.contains("inf"), "{}", chart.name);
                assert!(!chart.svg.contains("#0102"), "{}", chart.name);
                assert_eq!(theme == Theme::Page, chart.svg.contains("var(--ink)"), "{}", chart.name);
            }
        }
    }

    #[test]
    fn one_report_is_no_history() {
        assert!(comparisons(&[testing::report()], Theme::File).unwrap().is_empty());
        let two = [testing::report(), testing::report()];
        assert_eq!(comparisons(&two, Theme::File).unwrap().len(), 2);
    }

    #[test]
    fn empty_reports_have_no_charts() {
        assert!(charts(&testing::with_launches(Vec::new()), Theme::File).unwrap().is_empty());
    }
}
