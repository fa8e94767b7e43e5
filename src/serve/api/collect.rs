//! Whole answers, for clients that do not read them as they come.

use hyper::StatusCode;
use tokio::sync::mpsc::UnboundedReceiver;

use crate::error::ApiError;
use crate::event::{Done, Echo, Event};
use crate::logprobs::Scored;

/// One answer.
#[derive(Debug)]
pub(super) struct Collected {
    pub(super) echo: Echo,
    pub(super) text: String,
    pub(super) scored: Vec<Scored>,
    pub(super) done: Done,
}

/// What a client is told whose answer the end of the server cut off.
pub(super) fn stopped() -> ApiError {
    ApiError::with_status(StatusCode::SERVICE_UNAVAILABLE, "the server stops")
}

/// Waits for an answer to end.
pub(super) async fn collect(mut events: UnboundedReceiver<Event>) -> Result<Collected, ApiError> {
    let (mut echo, mut text, mut scored) = (Echo::default(), String::new(), Vec::new());
    loop {
        match events.recv().await.ok_or_else(stopped)? {
            Event::Prompt(prompt) => echo = prompt,
            Event::Token(token) => {
                text += &token.text;
                scored.extend(token.scored);
            }
            Event::Done(done) => return Ok(Collected { echo, text, scored, done }),
            Event::Failed(error) => return Err(error),
        }
    }
}

/// Waits for all answers to a request, in their order.
pub(super) async fn collect_all(all: Vec<UnboundedReceiver<Event>>) -> Result<Vec<Collected>, ApiError> {
    let mut collected = Vec::with_capacity(all.len());
    for events in all {
        collected.push(collect(events).await?);
    }
    Ok(collected)
}
