//! `model.mlmodel` from any bytes, over a fixed weight file.
#![no_main]

use std::sync::LazyLock;

use anemeter::package::{WeightFiles, decode_model};
use anemeter_fuzz::{check_round_trip, tiny_model, weight_files};

static WEIGHTS: LazyLock<WeightFiles> = LazyLock::new(|| weight_files(&tiny_model().weights));

libfuzzer_sys::fuzz_target!(|bytes: &[u8]| {
    if let Ok(model) = decode_model(bytes, &WEIGHTS) {
        check_round_trip(&model);
    }
});
