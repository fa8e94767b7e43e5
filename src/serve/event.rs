//! What a session tells about a request while it works on it.

use std::time::Duration;

use anemeter_harness::generate::Finish;

use crate::error::ApiError;
use crate::logprobs::Scored;

/// One thing that happened to a request, in this order: the prompt, tokens, the end; or a failure at any time.
#[derive(Debug)]
pub(crate) enum Event {
    /// The prompt was taken.
    Prompt(Echo),
    /// A token was picked.
    Token(Token),
    Done(Done),
    Failed(ApiError),
}

/// What is repeated of a prompt; nothing if that is not wanted.
#[derive(Debug, Default)]
pub(crate) struct Echo {
    pub(crate) text: String,
    /// Its tokens, if log-probabilities are wanted.
    pub(crate) scored: Vec<Scored>,
}

/// A token of an answer.
#[derive(Debug)]
pub(crate) struct Token {
    /// The text that is certain since the last token; may be empty.
    pub(crate) text: String,
    /// The token by itself, and how likely it was, if log-probabilities are wanted.
    pub(crate) scored: Option<Scored>,
}

/// How an answer ended.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Done {
    pub(crate) finish: Finish,
    pub(crate) prompt_tokens: usize,
    pub(crate) completion_tokens: usize,
    pub(crate) times: Times,
}

/// Times of one request as its session saw them.
#[derive(Debug, Clone, Copy, Default)]
pub(crate) struct Times {
    /// From the request's arrival to its beginning.
    pub(crate) queue: Duration,
    /// From the request's arrival to its first token.
    pub(crate) first_token: Option<Duration>,
    /// From the first to the last token.
    pub(crate) decoding: Duration,
    /// From the request's arrival to its end.
    pub(crate) total: Duration,
}
