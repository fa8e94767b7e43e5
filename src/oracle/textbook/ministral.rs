//! Ministral: Mistral's layers, some behind a window. Ministral 3 has YaRN and queries that grow with their position.

use std::rc::Rc;

use candle_nn::VarBuilder;

use super::decoder::Attention;
use super::family;
use super::rotary::Rotary;
use crate::error::Result;
use crate::network::Network;
use crate::settings::{Defaults, MISTRAL, Settings};
use anemeter_convert::checkpoint::Config;

const DEFAULTS_3: Defaults =
    &[("max_position_embeddings", 262_144.0), ("head_dim", 128.0), ("rms_norm_eps", 1e-5)];

pub(crate) fn open(config: &Config, positions: usize, tensors: &VarBuilder<'_>) -> Result<Box<dyn Network>> {
    let settings = Settings::read(config, MISTRAL, positions)?;
    let (window, is_windowed) = (settings.window_or_4096()?, settings.windowed(|_| true)?);
    family::open(&settings, tensors, [false; 3], |layer| if is_windowed[layer] { window } else { None })
}

pub(crate) fn open_3(
    config: &Config,
    positions: usize,
    tensors: &VarBuilder<'_>,
) -> Result<Box<dyn Network>> {
    let text = config.opt_section("text_config")?.unwrap_or_else(|| config.clone());
    let settings = Settings::read(&text, DEFAULTS_3, positions)?;
    let window = settings.keys.opt_size("sliding_window")?;
    let rotary = Rc::new(Rotary::new(&settings.rope()?, positions)?);
    let section = settings.keys.section("rope_parameters")?.or(settings.keys.section("rope_scaling")?);
    let query_growth = match section {
        Some(section) => match section.opt_number("llama_4_scaling_beta")? {
            Some(beta) => Some((beta, section.size("original_max_position_embeddings")?)),
            None => None,
        },
        None => None,
    };
    let decoder = family::decoder(&settings, tensors, |_, at| {
        let projections = family::projections(&settings, at, (false, false))?;
        let attention =
            Attention { query_growth, ..family::attention(&settings, projections, &rotary, window) };
        family::layer(&settings, at, attention, family::gated_mlp(&settings, at, false)?)
    })?;
    Ok(Box::new(decoder))
}
