//! What follows a transformer in sentence-transformers, read from its files anew.

use std::collections::HashMap;
use std::path::Path;

use candle_core::{Device, Error, Module, Result as CandleResult, Tensor, pickle, safetensors};
use candle_nn::{Activation, LayerNorm, Linear};
use serde_json::Value;

use crate::error::Result;
use crate::settings::wrong;
use crate::weights::read_json;

/// One vector of the hidden states of a text.
pub(super) struct Readout {
    pub(super) pool: Pool,
    pub(super) steps: Vec<Step>,
}

/// How many become one.
pub(super) enum Pool {
    First,
    Last,
    Mean,
    MeanSqrtLen,
    WeightedMean,
}

/// What is done to the one.
pub(super) enum Step {
    Linear(Linear),
    Tanh,
    Activation(Activation),
    Norm(LayerNorm),
    Normalize,
}

impl Readout {
    /// `[tokens, hidden]` to `[1, width]`.
    pub(super) fn forward(&self, states: &Tensor) -> CandleResult<Tensor> {
        let tokens = states.dim(0)?;
        let mut x = match self.pool {
            Pool::First => states.narrow(0, 0, 1)?,
            Pool::Last => states.narrow(0, tokens - 1, 1)?,
            Pool::Mean => (states.sum_keepdim(0)? / tokens as f64)?,
            Pool::MeanSqrtLen => (states.sum_keepdim(0)? / (tokens as f64).sqrt())?,
            Pool::WeightedMean => {
                let weights: Vec<f32> = (1..=tokens).map(|place| place as f32).collect();
                let total: f32 = weights.iter().sum();
                let weights = Tensor::from_vec(weights, (tokens, 1), &Device::Cpu)?;
                (states.broadcast_mul(&weights)?.sum_keepdim(0)? / f64::from(total))?
            }
        };
        for step in &self.steps {
            x = match step {
                Step::Linear(linear) => linear.forward(&x)?,
                Step::Tanh => x.tanh()?,
                Step::Activation(activation) => activation.forward(&x)?,
                Step::Norm(norm) => norm.forward(&x)?,
                Step::Normalize => {
                    let length = x.sqr()?.sum_all()?.sqrt()?.to_scalar::<f32>()?;
                    (x / f64::from(length).max(1e-12))?
                }
            };
        }
        Ok(x)
    }
}

/// The modules beside a checkpoint; nothing if none are listed.
pub(super) fn read(checkpoint: &Path) -> Result<Option<Readout>> {
    let folder = if checkpoint.is_dir() { Some(checkpoint) } else { checkpoint.parent() };
    let Some(folder) = folder else { return Ok(None) };
    if !folder.join("modules.json").is_file() {
        return Ok(None);
    }
    let list = read_json(&folder.join("modules.json"))?;
    let mut pool = None;
    let mut steps = Vec::new();
    for module in list.as_array().into_iter().flatten().skip(1) {
        let class = module["type"].as_str().unwrap_or_default();
        let path = folder.join(module["path"].as_str().unwrap_or_default());
        match class.rsplit('.').next().unwrap_or_default() {
            "Pooling" => pool = Some(pooling(&read_json(&path.join("config.json"))?)?),
            "Dense" => steps.extend(dense(&path)?),
            "Normalize" => steps.push(Step::Normalize),
            "Dropout" => {}
            other => {
                let problem = format!("has {other}, for which there is no reference");
                return Err(wrong("modules.json", &problem).into());
            }
        }
    }
    Ok(pool.map(|pool| Readout { pool, steps }))
}

fn pooling(config: &Value) -> Result<Pool> {
    let older = |key: &str| config[format!("pooling_mode_{key}")].as_bool().unwrap_or(false);
    let word = match config.get("pooling_mode") {
        Some(Value::String(word)) => word.as_str(),
        Some(Value::Array(words)) if words.len() == 1 => words[0].as_str().unwrap_or_default(),
        Some(other) => return Err(wrong("pooling_mode", &format!("is {other}")).into()),
        None if older("cls_token") => "cls",
        None if older("lasttoken") => "lasttoken",
        None if older("mean_sqrt_len_tokens") => "mean_sqrt_len_tokens",
        None if older("weightedmean_tokens") => "weightedmean",
        None if older("max_tokens") => "max",
        None => "mean",
    };
    Ok(match word {
        "cls" => Pool::First,
        "lasttoken" => Pool::Last,
        "mean" => Pool::Mean,
        "mean_sqrt_len_tokens" => Pool::MeanSqrtLen,
        "weightedmean" => Pool::WeightedMean,
        other => {
            let problem = format!("is `{other}`, for which there is no reference");
            return Err(wrong("pooling_mode", &problem).into());
        }
    })
}

fn dense(path: &Path) -> Result<Vec<Step>> {
    let config = read_json(&path.join("config.json"))?;
    let file = path.join("model.safetensors");
    let tensors: HashMap<String, Tensor> = match file.is_file() {
        true => safetensors::load(&file, &Device::Cpu)?,
        false => pickle::read_all(path.join("pytorch_model.bin"))?.into_iter().collect(),
    };
    let single = |name: &str| -> CandleResult<Option<Tensor>> {
        tensors.get(name).map(|tensor| tensor.to_dtype(candle_core::DType::F32)).transpose()
    };
    let missing = || Error::msg(format!("{}: has no `linear.weight`", path.display()));
    let weight = single("linear.weight")?.ok_or_else(missing)?;
    let mut steps = vec![Step::Linear(Linear::new(weight, single("linear.bias")?))];
    match config["activation_function"].as_str().and_then(|name| name.rsplit('.').next()) {
        Some("Identity") => {}
        None | Some("Tanh") => steps.push(Step::Tanh),
        Some("ReLU") => steps.push(Step::Activation(Activation::Relu)),
        Some("GELU") => steps.push(Step::Activation(Activation::Gelu)),
        Some("SiLU") => steps.push(Step::Activation(Activation::Silu)),
        Some("Sigmoid") => steps.push(Step::Activation(Activation::Sigmoid)),
        Some(other) => {
            let problem = format!("is `{other}`, for which there is no reference");
            return Err(wrong("activation_function", &problem).into());
        }
    }
    Ok(steps)
}
