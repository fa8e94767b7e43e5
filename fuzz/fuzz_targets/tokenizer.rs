//! A `tokenizer.json` of any bytes, and a text for it.
#![no_main]

use std::path::Path;

use anemeter::generate::Tokenizer;

#[global_allocator]
static ALLOCATOR: anemeter::bounded::Allocator = anemeter::bounded::Allocator;

libfuzzer_sys::fuzz_target!(|bytes: &[u8]| {
    let Ok(tokenizer) = Tokenizer::from_bytes(bytes, Path::new("tokenizer.json")) else { return };
    for text in ["", "Once upon a time", "é😀 \u{301}\u{fdfa}\t a  b"] {
        let Ok(ids) = tokenizer.encode(text, true) else { continue };
        let _ = tokenizer.decode(&ids);
        let mut stream = tokenizer.stream();
        for id in ids {
            let _ = stream.push(id);
        }
        let _ = stream.finish();
    }
    let _ = tokenizer.decode(&[0, 1, 2, u32::MAX]);
});
