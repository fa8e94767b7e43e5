//! candle, by a program of its own outside the workspace, compiled for this machine's processor.

use std::fs;

use anyhow::Result;

use super::engine::{Place, Ready};
use super::llama_cpp;
use xtask::process::read;

const MANIFEST: &str = "xtask/peers/candle/Cargo.toml";

pub(super) fn set_up(place: &Place<'_>, weights: &'static str) -> Result<Ready> {
    let target = place.folder.join("candle");
    let mut build =
        place.project.cargo(&["build", "--release", "--quiet", "--locked", "--manifest-path", MANIFEST]);
    // Its quantised kernels are chosen when it is compiled.
    build.env("RUSTFLAGS", "-C target-cpu=native").arg("--target-dir").arg(&target);
    println!("building candle");
    read(&mut build)?;
    let (model, stored) = match weights {
        "f32" => (place.checkpoint.clone(), place.checkpoint.join("model.safetensors")),
        _ => {
            let model = llama_cpp::gguf(place, weights)?;
            (model.clone(), model)
        }
    };
    // Stored as fp16, held as f32.
    let widening = if weights == "f32" { 2 } else { 1 };
    let weight_bytes = fs::metadata(stored)?.len() * widening;
    Ok(Ready { command: vec![target.join("release/peer-candle").into(), model.into()], weight_bytes })
}
