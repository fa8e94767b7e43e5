//! A sweep: several configurations, measured one after another and put side by side.

mod config;
mod table;

pub use config::{Candidate, SweepConfig};
pub use table::{Best, NotRun, SCHEMA, Sweep, SweepRow};
