//! Bundles through the generator: every form gives the same tokens.

mod bundles;
mod forms;
mod requests;
