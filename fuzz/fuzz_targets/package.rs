//! A whole package from any bytes.
#![no_main]

use anemeter::package::Package;
use anemeter_fuzz::{PACKAGE, check_round_trip, split};

libfuzzer_sys::fuzz_target!(|bytes: &[u8]| {
    match Package::from_files(split(bytes, PACKAGE)) {
        Ok(package) => check_round_trip(package.model()),
        Err(error) => assert!(!error.to_string().contains(char::is_control)),
    }
});
