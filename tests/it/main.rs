//! The integration tests, in one binary.
#![allow(clippy::unwrap_used, reason = "a test that cannot go on has failed")]

mod adopt;
mod aimodel;
mod apple_llm;
mod atomic;
mod baselines;
mod bench;
mod calibrated;
mod compare;
mod compiled;
mod compress;
mod contained;
mod contracts;
mod coreai;
mod coreai_bundles;
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
#[cfg(unix)]
mod serve;
mod support;
mod verify;
