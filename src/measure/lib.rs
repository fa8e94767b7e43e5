//! Measurements as data: reports, statistics, regression gates, baselines, comparisons, and how they are shown.
//! Nothing in here runs a model.

pub mod baseline;
pub mod compare;
pub mod gate;
pub mod history;
pub mod import;
pub mod render;
pub mod report;
pub mod stats;
pub mod sweep;
mod words;
