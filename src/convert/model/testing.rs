//! Small checkpoints for tests.

use std::path::PathBuf;

use crate::checkpoint::{Checkpoint, Config, Encoding, Stored};
use anemeter_kernels::tensor::{DType, Shape};

/// An f32 tensor whose elements are their own indices.
pub(crate) fn stored(shape: &[usize]) -> Stored {
    let count = shape.iter().product::<usize>();
    let bytes: Vec<u8> = (0..count).flat_map(|i| (i as f32).to_ne_bytes()).collect();
    Stored { shape: shape.into(), encoding: Encoding::Plain(DType::F32), bytes: bytes.into(), shard: 0 }
}

/// A checkpoint of [`stored`] tensors, given its `config.json` and lines of a name and a shape.
pub(super) fn checkpoint(config: &str, tensors: &str) -> Checkpoint {
    Checkpoint {
        shards: Vec::new(),
        path: PathBuf::from("tiny"),
        config: Config::new(serde_json::from_str(config).unwrap()),
        tensors: tensors.lines().filter(|line| !line.trim().is_empty()).map(tensor).collect(),
        tokenizer: None,
        chat_template: None,
        bos: None,
        eos: Vec::new(),
        sentence: None,
        about: Default::default(),
    }
}

fn tensor(line: &str) -> (String, Stored) {
    let (name, shape) = line.trim().split_once(' ').unwrap();
    let sizes = shape.trim_matches(['[', ']']).split(", ").filter(|size| !size.is_empty());
    let shape: Shape = sizes.map(|size| size.parse::<usize>().unwrap()).collect();
    (name.to_owned(), stored(&shape))
}
