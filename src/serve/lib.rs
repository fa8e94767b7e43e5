//! The OpenAI interface over a bundle, which evaluation and load tools speak.
//!
//! ```text
//! connection -> route -> request as data -> queue -> session thread -> events -> JSON or server-sent events
//! ```
//!
//! One thread accepts connections and speaks HTTP. A thread per session owns a
//! [`Generator`](anemeter_harness::generate::Generator) and does everything that takes time: templates, tokens,
//! predictions. What lies between is a bounded queue of requests and a channel of events per request. A client that
//! leaves closes its channel, and the session breaks off at the next token.

mod api;
mod body;
mod error;
mod event;
mod logprobs;
mod metrics;
mod options;
mod queue;
mod routes;
mod server;
mod session;
mod stop_text;
mod task;

pub use options::{Limits, ServeOptions, Served};
pub use server::{ServeError, Server, Stop};
