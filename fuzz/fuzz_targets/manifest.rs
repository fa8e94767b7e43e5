//! `Manifest.json` from any bytes.
#![no_main]

use anemeter::package::Manifest;

libfuzzer_sys::fuzz_target!(|bytes: &[u8]| {
    let Ok(manifest) = Manifest::parse(bytes) else { return };
    assert!(manifest.paths().any(|path| path == manifest.model_path()));
    let json = manifest.to_json().expect("what was read can be written");
    let again = Manifest::parse(&json).expect("what was written can be read");
    assert!(again.paths().eq(manifest.paths()));
    assert_eq!(again.model_path(), manifest.model_path());
});
