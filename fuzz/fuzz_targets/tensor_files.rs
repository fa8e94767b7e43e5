//! Tensor files of every format from any bytes.
#![no_main]

use anemeter::tensor_files::{Content, Document, FORMATS};

libfuzzer_sys::fuzz_target!(|bytes: &[u8]| {
    for format in FORMATS {
        let content = match format.decode(bytes) {
            Ok(content) => content,
            Err(error) => {
                assert!(!error.to_string().contains(char::is_control));
                continue;
            }
        };
        let tensors = match &content {
            Content::Unnamed(tensor) => [(String::new(), tensor.view())].into(),
            Content::Named(tensors) => tensors.iter().map(|(name, tensor)| (name.clone(), tensor.view())).collect(),
        };
        let written = format.encode(&Document { tensors, texts: None }).expect("what was read can be written");
        assert_eq!(format.decode(&written).expect("what was written can be read"), content);
    }
});
