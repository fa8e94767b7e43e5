//! The whole harness over a scripted model and a clock that is moved by hand.

mod failures;
mod fake;
mod forms;
mod metrics;
mod soaks;
