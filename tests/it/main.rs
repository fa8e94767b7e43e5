//! The integration tests, in one binary.
#![expect(clippy::unwrap_used, reason = "a test that cannot go on has failed")]

mod atomic;
mod damage;
mod hostile;
mod tiny;
