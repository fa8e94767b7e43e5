//! The Foundation classes that the Core ML module uses, immutable ones only.

pub(crate) mod error;

mod array;
mod dictionary;
mod enumeration;
mod number;
mod process_info;
mod set;
mod string;
mod url;

/// Defines the classes, those that others inherit from first.
pub(crate) fn register() {
    string::register();
    number::register();
    enumeration::register();
    array::register();
    set::register();
    dictionary::register();
    url::register();
    error::register();
    process_info::register();
}
