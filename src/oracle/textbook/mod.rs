//! Every architecture in its textbook form on candle, one file each.

mod decoder;
mod family;
pub(super) mod gemma3;
pub(super) mod gpt2;
pub(super) mod llama;
pub(super) mod mistral;
pub(super) mod pagating;
pub(super) mod phi3;
pub(super) mod qwen2;
pub(super) mod qwen3;
mod rotary;
