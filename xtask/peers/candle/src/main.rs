//! One round of candle for `cargo xtask bench peers`: load, decode, prefill; what they took as a line of JSON.
//!
//! A folder is a Hugging Face checkpoint, computed in f32; a file is a GGUF, computed with the weights it holds.

use std::fs::{self, File};
use std::path::{Path, PathBuf};
use std::time::Instant;

use anyhow::{Context, Result, bail};
use candle_core::quantized::gguf_file;
use candle_core::{DType, Device, Tensor};
use candle_nn::VarBuilder;
use candle_transformers::models::llama::{Cache, Config, Llama, LlamaConfig};
use candle_transformers::models::quantized_llama::ModelWeights;
use serde::{Deserialize, Serialize};

#[derive(Deserialize)]
struct Workload {
    prompt: Vec<u32>,
    long: Vec<u32>,
    decode: usize,
}

#[derive(Serialize)]
struct Sample {
    first_token_seconds: f64,
    decode_seconds: f64,
    prefill_seconds: f64,
    peak_bytes: u64,
    tokens: Vec<u32>,
}

/// A model with the keys and values it has seen.
enum Model {
    Float { llama: Llama, config: Config, cache: Cache },
    Quantised(ModelWeights),
}

impl Model {
    fn open(path: &Path) -> Result<Model> {
        if path.is_dir() { Model::folder(path) } else { Model::gguf(path) }
    }

    fn folder(path: &Path) -> Result<Model> {
        let config: LlamaConfig = serde_json::from_str(&fs::read_to_string(path.join("config.json"))?)?;
        let config = config.into_config(false);
        let weights = fs::read(path.join("model.safetensors"))?;
        let weights = VarBuilder::from_buffered_safetensors(weights, DType::F32, &Device::Cpu)?;
        let llama = Llama::load(weights, &config)?;
        let cache = Cache::new(true, DType::F32, &config, &Device::Cpu)?;
        Ok(Model::Float { llama, config, cache })
    }

    fn gguf(path: &Path) -> Result<Model> {
        let mut file = File::open(path)?;
        let content = gguf_file::Content::read(&mut file)?;
        Ok(Model::Quantised(ModelWeights::from_gguf(content, &mut file, &Device::Cpu)?))
    }

    /// The likeliest token after `ids`, which stand at `position`.
    fn next(&mut self, ids: &[u32], position: usize) -> Result<u32> {
        let input = Tensor::new(ids, &Device::Cpu)?.unsqueeze(0)?;
        let logits = match self {
            Model::Float { llama, cache, .. } => llama.forward(&input, position, cache)?,
            Model::Quantised(model) => model.forward(&input, position)?,
        };
        Ok(logits.flatten_all()?.argmax(0)?.to_scalar()?)
    }

    fn forget(&mut self) -> Result<()> {
        match self {
            Model::Float { config, cache, .. } => {
                *cache = Cache::new(true, DType::F32, config, &Device::Cpu)?;
            }
            Model::Quantised(model) => model.clear_kv_cache(),
        }
        Ok(())
    }
}

fn main() -> Result<()> {
    let arguments: Vec<PathBuf> = std::env::args_os().skip(1).map(PathBuf::from).collect();
    let [model, workload] = &arguments[..] else { bail!("usage: peer-candle MODEL WORKLOAD") };
    let workload: Workload = serde_json::from_str(&fs::read_to_string(workload)?)?;
    println!("{}", serde_json::to_string(&round(model, &workload)?)?);
    Ok(())
}

fn round(path: &Path, workload: &Workload) -> Result<Sample> {
    let started = Instant::now();
    let mut model = Model::open(path).with_context(|| format!("load {}", path.display()))?;
    let mut token = model.next(&workload.prompt, 0)?;
    let first_token_seconds = started.elapsed().as_secs_f64();

    let mut tokens = vec![token];
    let started = Instant::now();
    for step in 0..workload.decode {
        token = model.next(&[token], workload.prompt.len() + step)?;
        tokens.push(token);
    }
    let decode_seconds = started.elapsed().as_secs_f64();
    let peak_bytes = peak_bytes()?;

    let mut prefill_seconds = 0.0;
    // The first fills caches and pools.
    for _ in 0..2 {
        model.forget()?;
        let started = Instant::now();
        model.next(&workload.long, 0)?;
        prefill_seconds = started.elapsed().as_secs_f64();
    }
    Ok(Sample { first_token_seconds, decode_seconds, prefill_seconds, peak_bytes, tokens })
}

/// The most memory this process ever had resident.
fn peak_bytes() -> Result<u64> {
    let status = fs::read_to_string("/proc/self/status").context("read /proc/self/status")?;
    let line = status.lines().find_map(|line| line.strip_prefix("VmHWM:")).context("find VmHWM")?;
    Ok(line.trim().trim_end_matches(" kB").parse::<u64>()? * 1024)
}
