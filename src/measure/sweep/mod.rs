//! A sweep: several configurations, measured one after another and put side by side.

mod config;
mod table;
mod trade_off;

pub use config::{Candidate, SweepConfig};
pub use table::{Best, NotRun, SCHEMA, Sweep, SweepRow};
pub use trade_off::{TradeOff, frontier};
