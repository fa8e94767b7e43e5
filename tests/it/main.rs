//! The integration tests, in one binary.
#![allow(clippy::unwrap_used, reason = "a test that cannot go on has failed")]

mod architectures;
mod atomic;
mod baselines;
mod bench;
mod checkpoints;
mod command;
mod compare;
mod compress;
mod damage;
mod docs;
mod errors;
mod eval;
mod export;
mod fixtures;
mod gate;
mod generate;
mod hostile;
mod inspect;
mod lint;
mod lower;
mod oracle;
mod polish;
mod random_programs;
mod run;
mod runtime;
mod schema;
mod tiny;
mod verify;
