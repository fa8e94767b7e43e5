//! The integration tests, in one binary.
#![allow(clippy::unwrap_used, reason = "a test that cannot go on has failed")]

mod adopt;
mod aimodel;
mod atomic;
mod baselines;
mod bench;
mod compare;
mod compiled;
mod compress;
mod contracts;
mod coreai;
mod docs;
mod encode;
mod errors;
mod eval;
mod export;
mod export_coreai;
mod gate;
mod generate;
mod history;
mod hostile;
mod inspect;
mod kept;
mod library;
mod lint;
mod lower;
mod oracle;
mod polish;
mod random_programs;
mod run;
mod runtime;
mod schema;
mod support;
mod verify;
