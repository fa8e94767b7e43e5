//! `weight.bin` from any bytes, under a fixed program.
#![no_main]

use std::sync::LazyLock;

use anemeter::package::{EncodedModel, decode_model};
use anemeter_fuzz::{check_round_trip, tiny_model, weight_files};

static TINY: LazyLock<EncodedModel> = LazyLock::new(tiny_model);

libfuzzer_sys::fuzz_target!(|bytes: &[u8]| {
    if let Ok(model) = decode_model(&TINY.model, &weight_files(bytes)) {
        check_round_trip(&model);
    }
});
