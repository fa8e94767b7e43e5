//! Bundles through the generator: every form gives the same tokens.

pub(crate) mod bundles;
pub(crate) mod command;
pub(crate) mod fake;
mod forms;
mod requests;
