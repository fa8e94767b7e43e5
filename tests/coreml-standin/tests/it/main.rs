//! Tests of the stand-in, and of anemeter's Core ML module on it.

mod balance;
#[path = "../../../it/support/checkpoints.rs"]
#[allow(dead_code, reason = "made for more tests than these")]
mod checkpoints;
mod commands;
mod faults;
#[path = "../../../it/support/fixtures.rs"]
#[allow(dead_code, reason = "made for more tests than these")]
mod fixtures;
mod images;
mod module;
#[path = "../../../it/support/numbers.rs"]
mod numbers;
mod scene;
mod smollm2;
mod standin;
#[path = "../../../it/support/tiny.rs"]
mod tiny;
