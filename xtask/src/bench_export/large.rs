//! A made-up checkpoint of about 9 billion parameters, exported at the speed of the disk.

use std::fs::{self, File};
use std::io::{BufWriter, Write};
use std::path::{Path, PathBuf};

use anemeter::bundle::Bundle;
use anyhow::Result;
use serde_json::{Map, json};

use super::Line;
use super::measured::{Measured, run, time_copy};
use crate::project::Project;

const HIDDEN: usize = 4096;
const WIDE: usize = 14336;
const KV: usize = 1024;
const LAYERS: usize = 36;
const VOCABULARY: usize = 128_256;
const LAYERS_PER_SHARD: usize = 9;
const LEAST_SHARE: f64 = 0.6;
const MOST_MEMORY: u64 = 1_500_000_000;
const MOST_MEMORY_COMPRESSING: u64 = 2_000_000_000;

type Named = (String, Vec<usize>);

/// Exports the checkpoint as fp16, against a copy of its shards, or at another precision.
pub(super) fn measure(project: &Project, folder: &Path, precision: Option<&str>) -> Result<Vec<Line>> {
    println!("building for speed");
    let program = project.release("anemeter")?;
    let checkpoint = folder.join("checkpoint");
    println!("making a checkpoint");
    let shards = make(&checkpoint)?;
    let bytes: u64 = shards.iter().map(|path| Ok(fs::metadata(path)?.len())).sum::<Result<u64>>()?;
    let output = folder.join("exported");
    println!("exporting");
    let wanted = precision.unwrap_or("fp16");
    let arguments = [
        "export".as_ref(),
        checkpoint.as_path(),
        "-o".as_ref(),
        &output,
        "--chunks".as_ref(),
        "auto".as_ref(),
        "--precision".as_ref(),
        wanted.as_ref(),
    ];
    let export = run(project, &[&[program.as_path()][..], &arguments].concat())?;
    let manifest = Bundle::open(&output)?.manifest().clone();
    let written = manifest.chunks.iter().map(|chunk| chunk.file.bytes).sum();
    fs::remove_dir_all(&output)?;
    let (first, most) = match precision {
        Some(precision) => (compressed(&export, precision, bytes, written), MOST_MEMORY_COMPRESSING),
        None => {
            println!("copying");
            (against_copy(&export, bytes, time_copy(project, &shards, folder)?), MOST_MEMORY)
        }
    };
    Ok(vec![
        first,
        Line {
            what: "its peak resident memory".to_owned(),
            measured: format!("{:.0} MB", export.peak_bytes as f64 / 1e6),
            target: format!("under {} MB", most / 1_000_000),
            met: export.peak_bytes < most,
        },
        Line {
            what: "its CPU time".to_owned(),
            measured: format!("{:.0} s in {:.0} s", export.cpu_seconds, export.seconds),
            target: "none".to_owned(),
            met: true,
        },
    ])
}

fn against_copy(export: &Measured, bytes: u64, copy: f64) -> Line {
    let speed = |seconds: f64| bytes as f64 / seconds / 1e6;
    let share = copy / export.seconds;
    Line {
        what: format!(
            "export of {:.1} GB of bf16 to fp16 chunks, as a share of a copy with fsync",
            bytes as f64 / 1e9
        ),
        measured: format!(
            "{:.0} %: {:.0} MB/s against {:.0} MB/s",
            share * 100.0,
            speed(export.seconds),
            speed(copy)
        ),
        target: format!("at least {:.0} %", LEAST_SHARE * 100.0),
        met: share >= LEAST_SHARE,
    }
}

fn compressed(export: &Measured, precision: &str, bytes: u64, written: u64) -> Line {
    Line {
        what: format!("export of {:.1} GB of bf16 to {precision} chunks", bytes as f64 / 1e9),
        measured: format!(
            "{:.0} s, {:.0} MB/s of bf16; {:.1} GB written, {:.2} times smaller",
            export.seconds,
            bytes as f64 / export.seconds / 1e6,
            written as f64 / 1e9,
            bytes as f64 / written as f64
        ),
        target: "none".to_owned(),
        met: true,
    }
}

/// Writes the checkpoint and tells its shards.
fn make(folder: &Path) -> Result<Vec<PathBuf>> {
    fs::create_dir_all(folder)?;
    let config = json!({
        "architectures": ["StudentGqaForCausalLM"], "model_type": "student_9b_gqa",
        "hidden_size": HIDDEN, "intermediate_size": WIDE, "num_hidden_layers": LAYERS,
        "num_attention_heads": HIDDEN / 128, "num_key_value_heads": KV / 128, "head_dim": 128,
        "vocab_size": VOCABULARY, "max_position_embeddings": 4096, "rms_norm_eps": 1e-5,
        "rope_theta": 500000.0, "tie_word_embeddings": false, "hidden_act": "silu",
    });
    fs::write(folder.join("config.json"), config.to_string())?;
    let groups = shards();
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
fn shards() -> Vec<Vec<Named>> {
    let vocabulary = |name: &str| (name.to_owned(), vec![VOCABULARY, HIDDEN]);
    let mut shards =
        vec![vec![vocabulary("model.embed_tokens.weight"), ("model.norm.weight".to_owned(), vec![HIDDEN])]];
    for first in (0..LAYERS).step_by(LAYERS_PER_SHARD) {
        shards.push((first..first + LAYERS_PER_SHARD).flat_map(layer).collect());
    }
    shards.push(vec![vocabulary("lm_head.weight")]);
    shards
}

fn layer(index: usize) -> Vec<Named> {
    let parts = [
        ("input_layernorm", vec![HIDDEN]),
        ("post_attention_layernorm", vec![HIDDEN]),
        ("self_attn.q_proj", vec![HIDDEN, HIDDEN]),
        ("self_attn.k_proj", vec![KV, HIDDEN]),
        ("self_attn.v_proj", vec![KV, HIDDEN]),
        ("self_attn.o_proj", vec![HIDDEN, HIDDEN]),
        ("mlp.gate_proj", vec![WIDE, HIDDEN]),
        ("mlp.up_proj", vec![WIDE, HIDDEN]),
        ("mlp.down_proj", vec![HIDDEN, WIDE]),
    ];
    parts.into_iter().map(|(name, shape)| (format!("model.layers.{index}.{name}.weight"), shape)).collect()
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
    fn lines_say_what_was_measured() {
        let export = Measured { seconds: 20.0, cpu_seconds: 30.0, peak_bytes: 1 };
        let line = compressed(&export, "int8", 18_000_000_000, 9_000_000_000);
        assert_eq!(line.what, "export of 18.0 GB of bf16 to int8 chunks");
        assert_eq!(line.measured, "20 s, 900 MB/s of bf16; 9.0 GB written, 2.00 times smaller");
        assert!(against_copy(&export, 18_000_000_000, 12.0).met);
        assert!(!against_copy(&export, 18_000_000_000, 11.9).met);
    }
}
