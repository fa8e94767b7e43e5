//! A compiled model from any bytes: its description, its text and its weights.
#![no_main]

use anemeter::package::Package;
use anemeter_fuzz::{COMPILED, check_round_trip, split};

libfuzzer_sys::fuzz_target!(|bytes: &[u8]| {
    match Package::from_files(split(bytes, COMPILED)) {
        Ok(package) => check_round_trip(package.model()),
        Err(error) => assert!(!error.to_string().contains(char::is_control)),
    }
});
