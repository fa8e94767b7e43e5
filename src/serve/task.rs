//! What a client asks of a session, as data.

use anemeter_harness::generate::Sampling;
use serde_json::Value;

/// One sequence to score, to go on with, or both.
#[derive(Debug, Clone)]
pub(crate) struct Task {
    pub(crate) prompt: TaskPrompt,
    /// Most tokens to generate; without one, until the context is full. 0 only scores the prompt.
    pub(crate) max_tokens: Option<usize>,
    pub(crate) sampling: Sampling,
    /// Texts before which an answer ends.
    pub(crate) stops: Vec<String>,
    /// How many of the likeliest tokens to tell per position, if log-probabilities are wanted.
    pub(crate) logprobs: Option<usize>,
    /// Whether the prompt is part of the answer, and scored if log-probabilities are wanted.
    pub(crate) echo: bool,
    /// Whether the model's own end tokens are ignored.
    pub(crate) ignores_end: bool,
}

/// A prompt in the forms that clients send.
#[derive(Debug, Clone)]
pub(crate) enum TaskPrompt {
    Text(String),
    Ids(Vec<u32>),
    Chat { messages: Vec<Value>, tools: Vec<Value> },
}
