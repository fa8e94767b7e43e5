//! `cargo xtask train`: the small model of `anemeter quickstart`, trained here on the text that is shipped with it.

mod batches;
mod network;
mod save;
mod vocabulary;

use std::fs;

use anyhow::{Context, Result};
use candle_core::Device;
use candle_nn::{AdamW, Optimizer, ParamsAdamW, loss};
use pico_args::Arguments;

use batches::Batches;
use network::{Network, Sizes};
use xtask::outcome::Outcome;
use xtask::project::Project;

const TEXT: &str = "src/quickstart/merrow.txt";
const FOLDER: &str = "src/quickstart/model";
const STEPS: usize = 600;
const WARM_UP: usize = 40;
const PEAK_RATE: f64 = 3e-3;
const SEED: u64 = 7;

/// What is trained. Half of it would learn the text as well; this is large enough for percentiles to mean something.
const SIZES: Sizes = Sizes {
    vocabulary: 512,
    hidden: 96,
    layers: 4,
    heads: 4,
    kv_heads: 2,
    head: 32,
    inner: 256,
    theta: 10_000.0,
};
/// Tokens that the model sees at once.
pub(crate) const CONTEXT: usize = 256;

pub(crate) fn run(project: &Project, mut arguments: Arguments) -> Result<Outcome> {
    let steps = arguments.opt_value_from_str("--steps")?.unwrap_or(STEPS);
    xtask::finish(arguments)?;
    let text = fs::read_to_string(project.root.join(TEXT)).with_context(|| format!("read {TEXT}"))?;
    let tokenizer = vocabulary::learn(&text, SIZES.vocabulary)?;
    let ids = vocabulary::encode(&tokenizer, &text)?;
    println!("{} tokens of text, {} parameters", ids.len(), SIZES.parameters());

    let network = Network::new(SIZES, CONTEXT, SEED)?;
    let mut batches = Batches::new(ids, CONTEXT, SEED);
    let mut optimizer =
        AdamW::new(network.variables(), ParamsAdamW { weight_decay: 0.01, ..ParamsAdamW::default() })?;
    let mut last = f32::NAN;
    for step in 0..steps {
        optimizer.set_learning_rate(rate(step, steps));
        let (inputs, targets) = batches.next(&Device::Cpu)?;
        let loss = loss::cross_entropy(&network.logits(&inputs)?.flatten_to(1)?, &targets.flatten_all()?)?;
        optimizer.backward_step(&loss)?;
        last = loss.to_scalar()?;
        if step % 20 == 0 || step + 1 == steps {
            println!("step {step:4}  loss {last:.3}");
        }
    }
    save::checkpoint(&project.root.join(FOLDER), &network, &tokenizer)?;
    Ok(Outcome::Checked(format!("{FOLDER}: {steps} steps, loss {last:.3} on its own text")))
}

/// Up in a line, then down along a cosine.
fn rate(step: usize, steps: usize) -> f64 {
    if step < WARM_UP {
        return PEAK_RATE * (step + 1) as f64 / WARM_UP as f64;
    }
    let done = (step - WARM_UP) as f64 / (steps.max(WARM_UP + 1) - WARM_UP) as f64;
    PEAK_RATE * (0.05 + 0.95 * 0.5 * (1.0 + (std::f64::consts::PI * done).cos()))
}
