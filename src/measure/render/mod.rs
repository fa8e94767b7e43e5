//! Reports and verdicts for people, spreadsheets and CI: tables, Markdown, CSV, SVG charts, one HTML page.
//!
//! Everything is made from the same [`tables()`] and [charts](chart). Whatever comes from a report is text:
//! it is escaped for the format that it goes into.

mod census;
pub mod chart;
mod comparison;
mod csv_rows;
mod findings;
mod fleet;
mod heat;
mod history;
mod html;
mod llama_bench;
mod markdown;
mod number;
mod predictions;
mod sweep;
mod table;
mod tables;
mod terminal;
mod throughput;
mod verdict;

pub use census::{DETAILED, census};
pub use comparison::{comparison_tables, explained};
pub use csv_rows::csv;
pub(crate) use csv_rows::plain;
pub use fleet::{by_profile, groups};
pub use heat::{HeatMap, heat_map};
pub use history::{history_html, history_tables};
pub use html::{html, judged_html, sweep_html};
pub use llama_bench::llama_bench;
pub use markdown::{markdown, written};
pub use number::{figure, maybe};
pub use sweep::{best, sweep_subtitle, sweep_tables};
pub use table::{Align, Column, Table};
pub use tables::tables;
pub use terminal::fit_tables;
pub use verdict::{JunitInconclusive, annotations, headline, junit, verdict_markdown, verdict_tables};

type Result<T, E = RenderError> = std::result::Result<T, E>;

/// A report that could not be rendered.
#[derive(Debug, Clone, thiserror::Error)]
#[error("cannot render {what}: {why}")]
pub struct RenderError {
    what: &'static str,
    why: String,
}

impl anemeter_base::advice::Advice for RenderError {}

impl RenderError {
    fn new(what: &'static str, why: impl std::fmt::Display) -> RenderError {
        RenderError { what, why: format!("{why}") }
    }
}
