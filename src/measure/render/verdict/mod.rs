//! Verdicts for people and for CI: tables, Markdown for a pull request, JUnit XML, GitHub annotations.

mod annotations;
mod junit;
mod markdown;
mod rows;

pub use annotations::annotations;
pub use junit::{JunitInconclusive, junit};
pub use markdown::verdict_markdown;
pub use rows::{headline, verdict_tables};

#[cfg(test)]
pub(in crate::render) mod testing;
