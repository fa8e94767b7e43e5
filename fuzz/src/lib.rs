//! What the fuzz targets share: a fixed small model, and the property that what was read can be written.
//!
//! Run with `cargo +nightly fuzz run protobuf`. Good seeds: for `protobuf` and `weights` the files of
//! [`tiny_model`], for `package` and `compiled` what [`join`] makes of the three files of a package or compiled model.

use std::path::PathBuf;

use anemeter::coreai::{self, Program, ResourceData};
use anemeter::mil::Model;
use anemeter::package::{EncodedModel, WeightFiles, decode_model, encode_model};
use anemeter::tensor::Bytes;

#[path = "../../tests/it/support/tiny.rs"]
mod tiny;

/// The two files of a small model.
pub fn tiny_model() -> EncodedModel {
    encode_model(&tiny::model()).expect("the tiny model is sound")
}

/// A weight file under the name that programs use.
pub fn weight_files(bytes: &[u8]) -> WeightFiles {
    WeightFiles::in_memory([("weight.bin".to_owned(), Bytes::from(bytes.to_vec()))])
}

/// Whatever can be read can be written, reads the same again, and is written the same again.
pub fn check_round_trip(model: &Model) {
    let encoded = encode_model(model).expect("what was read can be written");
    let again =
        decode_model(&encoded.model, &weight_files(&encoded.weights)).expect("what was written can be read");
    let has_nan = *model != model.clone();
    assert!(has_nan || again == *model);
    assert_eq!(encode_model(&again).expect("what was read can be written"), encoded);
}

/// Whatever can be read of a Core AI asset can be written and read again, and is then written the same. Texts are compared
/// because resources are equal by identity only.
pub fn check_asset_round_trip(program: &Program) {
    // Rules and text must take whatever can be read.
    let text = program.to_string();
    if coreai::verify(program).is_ok() {
        coreai::lint::lint("fuzzed", program);
    }
    // Equal parts are written once, and what a file may expand to depends on its size.
    const LONG: usize = 1 << 20;
    if text.len() > LONG {
        return;
    }
    let bytes = asset_bytes(program);
    let again = coreai::bytecode::decode(&Bytes::from(bytes.clone())).expect("what was written can be read");
    assert_eq!(again.program.to_string(), text);
    assert_eq!(asset_bytes(&again.program), bytes);
}

/// The program with its weights.
fn asset_bytes(program: &Program) -> Vec<u8> {
    let encoded = coreai::bytecode::encode(program).expect("what was read can be written");
    let mut out = encoded.head;
    for entry in &encoded.resources {
        out.extend_from_slice(&entry.header);
        let ResourceData::Bytes(bytes) = &*entry.resource.0 else { panic!("what was read is no stream") };
        out.extend_from_slice(bytes);
    }
    out.extend_from_slice(&encoded.tail);
    out
}

/// The files of a package.
pub const PACKAGE: [&str; 3] =
    ["Manifest.json", "Data/com.apple.CoreML/model.mlmodel", "Data/com.apple.CoreML/weights/weight.bin"];
/// The files of a compiled model.
pub const COMPILED: [&str; 3] = ["coremldata.bin", "model.mil", "weights/weight.bin"];

/// Three files from bytes: two of them behind their lengths, the weights to the end.
pub fn split(bytes: &[u8], names: [&str; 3]) -> [(PathBuf, Bytes); 3] {
    let (first, rest) = take(bytes);
    let (second, weights) = take(rest);
    let file = |path: &str, bytes: &[u8]| (PathBuf::from(path), Bytes::from(bytes.to_vec()));
    [file(names[0], first), file(names[1], second), file(names[2], weights)]
}

/// The reverse of [`split`].
pub fn join(first: &[u8], second: &[u8], weights: &[u8]) -> Vec<u8> {
    let len = |bytes: &[u8]| u16::try_from(bytes.len()).unwrap_or(u16::MAX).to_le_bytes();
    [&len(first), first, &len(second), second, weights].concat()
}

/// As many bytes as the first two say, and the rest.
fn take(bytes: &[u8]) -> (&[u8], &[u8]) {
    let Some((len, rest)) = bytes.split_first_chunk::<2>() else { return (&[], &[]) };
    rest.split_at(usize::from(u16::from_le_bytes(*len)).min(rest.len()))
}
