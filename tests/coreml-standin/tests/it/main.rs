//! Tests of the stand-in, and of anemeter's Core ML module on it.

mod balance;
#[path = "../../../it/checkpoints.rs"]
#[allow(dead_code, reason = "made for more tests than these")]
mod checkpoints;
mod commands;
mod faults;
#[path = "../../../it/fixtures.rs"]
#[allow(dead_code, reason = "made for more tests than these")]
mod fixtures;
mod module;
mod scene;
mod smollm2;
mod standin;
#[path = "../../../it/tiny.rs"]
mod tiny;
