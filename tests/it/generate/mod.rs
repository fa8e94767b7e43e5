//! Bundles through the generator: every form gives the same tokens.

mod bundles;
mod command;
mod fake;
mod forms;
mod requests;
