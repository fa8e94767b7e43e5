//! ONNX Runtime GenAI, with a model made by its own builder.

use std::fs;

use anyhow::Result;

use super::engine::{Place, Ready};
use xtask::process::read;

const SCRIPT: &str = "onnxruntime_llama.py";

pub(super) fn set_up(place: &Place<'_>, weights: &'static str) -> Result<Ready> {
    let model = place.models("onnxruntime")?.join(weights);
    let mut command = place.script(SCRIPT)?;
    if !model.exists() {
        println!("making the {weights} model with ONNX Runtime GenAI's builder");
        let mut words = command.clone();
        words.extend([
            "convert".into(),
            place.checkpoint.clone().into(),
            model.clone().into(),
            weights.into(),
        ]);
        read(&mut place.command(&words)?)?;
    }
    let weight_bytes = fs::metadata(model.join("model.onnx.data"))?.len();
    command.extend(["round".into(), model.into()]);
    Ok(Ready { command, weight_bytes })
}
