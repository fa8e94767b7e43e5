//! What every other crate stands on: the words they share, configuration files, zip archives, atomic
//! writes, and the machine.

pub mod advice;
pub mod atomic;
pub mod bounded;
pub mod config;
pub mod contain;
pub mod engine;
pub mod files;
pub mod function_name;
pub mod hardware;
pub mod recurrent;
pub mod schema;
pub mod text;
pub mod time;
pub mod vocabulary;
pub mod zip;
