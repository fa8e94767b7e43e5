//! `main.mlirb` of a Core AI asset from any bytes.
#![no_main]

use anemeter::coreai::bytecode::decode;
use anemeter::tensor::Bytes;
use anemeter_fuzz::check_asset_round_trip;

libfuzzer_sys::fuzz_target!(|bytes: &[u8]| {
    match decode(&Bytes::from(bytes.to_vec())) {
        Ok(decoded) => check_asset_round_trip(&decoded.program),
        Err(error) => assert!(!error.to_string().contains(char::is_control)),
    }
});
