//! Configuration files of any text: workloads, limits of the gate, exports, sweeps.
#![no_main]

use std::path::Path;

use anemeter::config::parse;
use anemeter::export::ConfigFile;
use anemeter::gate::GatesFile;
use anemeter::harness::BenchConfig;
use anemeter::sweep::SweepConfig;

libfuzzer_sys::fuzz_target!(|text: &str| {
    let path = Path::new("configuration.yaml");
    let _ = parse::<BenchConfig>(text, path);
    let _ = parse::<GatesFile>(text, path);
    let _ = parse::<ConfigFile>(text, path);
    let _ = parse::<SweepConfig>(text, path);
});
