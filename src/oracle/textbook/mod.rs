//! Every architecture in its textbook form on candle, one file each.

pub(super) mod cohere2;
mod decoder;
pub(super) mod encoder;
pub(super) mod ernie4_5;
mod family;
pub(super) mod gemma2;
pub(super) mod gemma3;
pub(super) mod gemma4;
pub(super) mod glm;
pub(super) mod gpt2;
pub(super) mod granite;
pub(super) mod llama;
pub(super) mod minicpm;
pub(super) mod ministral;
pub(super) mod mistral;
pub(super) mod olmo;
pub(super) mod pagating;
pub(super) mod phi3;
pub(super) mod qwen2;
pub(super) mod qwen3;
mod rotary;
pub(super) mod smollm3;
pub(super) mod stablelm;
pub(super) mod starcoder2;
