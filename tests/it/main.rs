//! The integration tests, in one binary.

mod command;
mod fixtures;
mod inspect;
mod random_programs;
mod run;
mod runtime;
