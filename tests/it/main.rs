//! The integration tests, in one binary.
#![allow(clippy::unwrap_used, reason = "a test that cannot go on has failed")]

mod atomic;
mod checkpoints;
mod command;
mod damage;
mod export;
mod fixtures;
mod generate;
mod hostile;
mod inspect;
mod lower;
mod random_programs;
mod run;
mod runtime;
mod tiny;
