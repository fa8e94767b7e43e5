//! References that candle-transformers has: each with what it does not do, so that it is used only where it is right.

pub(super) mod gemma3;
pub(super) mod llama;
pub(super) mod mistral;
pub(super) mod phi3;
pub(super) mod qwen2;
pub(super) mod qwen3;

use candle_core::{Result as CandleResult, Tensor};
use candle_nn::{Activation, VarBuilder};
use candle_transformers::models;

use super::error::Result;
use super::network::Network;
use super::settings::{Scaling, Settings};
use crate::checkpoint::Config;

/// A network of candle-transformers.
pub(super) struct Ready {
    pub(super) settings: fn(&Config, usize) -> Result<Settings>,
    /// The first thing in a configuration that it does not do, or not as transformers does.
    pub(super) lacks: fn(&Settings) -> Result<Option<&'static str>>,
    pub(super) open: fn(&Settings, &VarBuilder<'_>) -> Result<Box<dyn Network>>,
}

/// Models that keep their caches themselves.
macro_rules! networks {
    ($($model:ty),* $(,)?) => {
        $(impl Network for $model {
            fn forward(&mut self, ids: &Tensor, offset: usize) -> CandleResult<Tensor> {
                <$model>::forward(self, ids, offset)
            }

            fn clear(&mut self) {
                self.clear_kv_cache();
            }
        })*
    };
}
networks!(
    models::gemma3::Model,
    models::mistral::Model,
    models::phi3::Model,
    models::qwen2::ModelForCausalLM,
    models::qwen3::ModelForCausalLM,
);

/// The first of the claims that holds.
fn first(claims: &[(bool, &'static str)]) -> Option<&'static str> {
    claims.iter().find(|(holds, _)| *holds).map(|&(_, what)| what)
}

fn scales_rope(settings: &Settings) -> Result<bool> {
    Ok(settings.rope()?.scaling != Scaling::None)
}

fn rotates_in_part(settings: &Settings) -> Result<bool> {
    Ok(settings.rope()?.dims != settings.head_dim)
}

fn wide_heads(settings: &Settings) -> bool {
    settings.head_dim * settings.heads != settings.hidden
}

fn not_silu(settings: &Settings) -> bool {
    settings.activation != Activation::Silu
}
