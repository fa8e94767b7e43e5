//! torch in fp32, by transformers.

use std::fs;

use anyhow::Result;

use super::engine::{Place, Ready};

pub(super) fn set_up(place: &Place<'_>, _: &'static str) -> Result<Ready> {
    let mut command = place.script("torch_llama.py")?;
    command.push(place.checkpoint.clone().into());
    // Stored as fp16, held as f32.
    let weight_bytes = 2 * fs::metadata(place.checkpoint.join("model.safetensors"))?.len();
    Ok(Ready { command, weight_bytes })
}
