//! Made-up checkpoints of any size, for what only large ones show.

use std::fs::{self, File};
use std::io::{BufWriter, Write};
use std::path::{Path, PathBuf};

use anyhow::Result;
use serde_json::{Map, json};

/// Elements of a key.
const HEAD: usize = 128;

/// What a checkpoint is to have.
pub(crate) struct Sizes {
    pub(crate) hidden: usize,
    pub(crate) wide: usize,
    /// Elements of all keys of a token.
    pub(crate) kv: usize,
    pub(crate) layers: usize,
    pub(crate) vocabulary: usize,
    pub(crate) layers_per_shard: usize,
}

type Named = (String, Vec<usize>);

impl Sizes {
    /// Writes the checkpoint and tells its shards.
    pub(crate) fn write(&self, folder: &Path) -> Result<Vec<PathBuf>> {
        let &Sizes { hidden, wide, kv, layers, vocabulary, .. } = self;
        fs::create_dir_all(folder)?;
        let config = json!({
            "architectures": ["StudentGqaForCausalLM"], "model_type": "student_9b_gqa",
            "hidden_size": hidden, "intermediate_size": wide, "num_hidden_layers": layers,
            "num_attention_heads": hidden / HEAD, "num_key_value_heads": kv / HEAD, "head_dim": HEAD,
            "vocab_size": vocabulary, "max_position_embeddings": 4096, "rms_norm_eps": 1e-5,
            "rope_theta": 500000.0, "tie_word_embeddings": false, "hidden_act": "silu",
        });
        fs::write(folder.join("config.json"), config.to_string())?;
        let groups = self.shards();
        let mut random = 0x9e37_79b9_7f4a_7c15;
        let mut homes = Map::new();
        let mut paths = Vec::new();
        for (index, tensors) in groups.iter().enumerate() {
            let name = format!("model-{:05}-of-{:05}.safetensors", index + 1, groups.len());
            homes.extend(tensors.iter().map(|(tensor, _)| (tensor.clone(), json!(name))));
            write_shard(&folder.join(&name), tensors, &mut random)?;
            paths.push(folder.join(name));
        }
        let index = json!({ "metadata": {}, "weight_map": homes });
        fs::write(folder.join("model.safetensors.index.json"), index.to_string())?;
        Ok(paths)
    }

    /// The tensors of each shard.
    fn shards(&self) -> Vec<Vec<Named>> {
        let &Sizes { hidden, layers, layers_per_shard, .. } = self;
        let vocabulary = |name: &str| (name.to_owned(), vec![self.vocabulary, hidden]);
        let mut shards = vec![vec![
            vocabulary("model.embed_tokens.weight"),
            ("model.norm.weight".to_owned(), vec![hidden]),
        ]];
        for first in (0..layers).step_by(layers_per_shard) {
            let last = layers.min(first + layers_per_shard);
            shards.push((first..last).flat_map(|index| self.layer(index)).collect());
        }
        shards.push(vec![vocabulary("lm_head.weight")]);
        shards
    }

    fn layer(&self, index: usize) -> Vec<Named> {
        let &Sizes { hidden, wide, kv, .. } = self;
        let parts = [
            ("input_layernorm", vec![hidden]),
            ("post_attention_layernorm", vec![hidden]),
            ("self_attn.q_proj", vec![hidden, hidden]),
            ("self_attn.k_proj", vec![kv, hidden]),
            ("self_attn.v_proj", vec![kv, hidden]),
            ("self_attn.o_proj", vec![hidden, hidden]),
            ("mlp.gate_proj", vec![wide, hidden]),
            ("mlp.up_proj", vec![wide, hidden]),
            ("mlp.down_proj", vec![hidden, wide]),
        ];
        parts
            .into_iter()
            .map(|(name, shape)| (format!("model.layers.{index}.{name}.weight"), shape))
            .collect()
    }
}

/// Pseudo-random bf16 of about a hundredth, in which nothing can be shared.
fn write_shard(path: &Path, tensors: &[Named], random: &mut u64) -> Result<()> {
    let mut header = Map::new();
    let mut end = 0;
    for (name, shape) in tensors {
        let start = end;
        end += 2 * shape.iter().product::<usize>();
        header.insert(name.clone(), json!({ "dtype": "BF16", "shape": shape, "data_offsets": [start, end] }));
    }
    let header = serde_json::to_string(&header)?;
    let mut out = BufWriter::with_capacity(1 << 20, File::create(path)?);
    out.write_all(&(header.len() as u64).to_le_bytes())?;
    out.write_all(header.as_bytes())?;
    let mut buffer = vec![0; 1 << 16];
    while end > 0 {
        let part = &mut buffer[..end.min(1 << 16)];
        for word in part.chunks_mut(8) {
            *random ^= *random << 13;
            *random ^= *random >> 7;
            *random ^= *random << 17;
            let numbers = *random & 0x807f_807f_807f_807f | 0x3c00_3c00_3c00_3c00;
            word.copy_from_slice(&numbers.to_le_bytes()[..word.len()]);
        }
        out.write_all(part)?;
        end -= part.len();
    }
    Ok(out.into_inner().map_err(|e| e.into_error())?.sync_all()?)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_checkpoint_has_what_it_says() {
        let folder = tempfile::tempdir().unwrap();
        let sizes = Sizes { hidden: 256, wide: 320, kv: 128, layers: 3, vocabulary: 64, layers_per_shard: 2 };
        assert_eq!(sizes.write(folder.path()).unwrap().len(), 4);
        let opened = anemeter::checkpoint::open(folder.path()).unwrap();
        assert_eq!((opened.shards.len(), opened.tensors.len()), (4, 3 * 9 + 3));
    }
}
