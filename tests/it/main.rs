//! The integration tests, in one binary.
#![allow(clippy::unwrap_used, unreachable_pub, reason = "a test that cannot go on has failed")]

mod command;
mod fixtures;
mod inspect;
mod lower;
mod random_programs;
mod run;
mod runtime;
