//! Answers as server-sent events, token by token.

use std::collections::VecDeque;
use std::convert::Infallible;
use std::pin::Pin;
use std::task::{Context, Poll, ready};

use bytes::Bytes;
use http_body_util::BodyExt;
use hyper::StatusCode;
use hyper::body::{Body, Frame};
use hyper::header::{CACHE_CONTROL, HeaderValue};
use serde_json::Value;
use tokio::sync::mpsc::UnboundedReceiver;

use super::collect::stopped;
use crate::body::{Reply, with_body};
use crate::error::ApiError;
use crate::event::{Done, Event};

/// Makes the chunks of a response.
pub(super) trait Chunks: Send {
    /// The chunks for an event of the answer with a number.
    fn of(&mut self, choice: usize, event: Event) -> Vec<Value>;

    /// The chunks after all answers.
    fn last(&mut self, ended: &[Done]) -> Vec<Value>;
}

/// Streams answers one after the other. A request that fails before it begins is an error, not a stream.
pub(super) async fn stream(
    mut answers: Vec<UnboundedReceiver<Event>>,
    chunks: Box<dyn Chunks + Unpin>,
) -> Result<Reply, ApiError> {
    let first = match answers.first_mut() {
        Some(answer) => answer.recv().await.ok_or_else(stopped)?,
        None => return Err(ApiError::bad_request("there is nothing to answer")),
    };
    if let Event::Failed(error) = first {
        return Err(error);
    }
    let mut body =
        EventStream { answers, choice: 0, chunks, ended: Vec::new(), ready: VecDeque::new(), is_over: false };
    body.take(first);
    let mut reply = with_body(StatusCode::OK, "text/event-stream", body.boxed_unsync());
    reply.headers_mut().insert(CACHE_CONTROL, HeaderValue::from_static("no-cache"));
    Ok(reply)
}

/// The body of a stream. Dropping it closes the channels, which ends the work on them.
struct EventStream {
    answers: Vec<UnboundedReceiver<Event>>,
    choice: usize,
    chunks: Box<dyn Chunks + Unpin>,
    ended: Vec<Done>,
    ready: VecDeque<Bytes>,
    is_over: bool,
}

impl EventStream {
    fn take(&mut self, event: Event) {
        match event {
            Event::Failed(error) => self.fail(&error),
            Event::Done(done) => {
                self.ended.push(done);
                let chunks = self.chunks.of(self.choice, Event::Done(done));
                self.write(chunks);
                self.choice += 1;
                if self.choice == self.answers.len() {
                    let chunks = self.chunks.last(&self.ended);
                    self.write(chunks);
                    self.ready.push_back(Bytes::from_static(b"data: [DONE]\n\n"));
                    self.is_over = true;
                }
            }
            event => {
                let chunks = self.chunks.of(self.choice, event);
                self.write(chunks);
            }
        }
    }

    fn fail(&mut self, error: &ApiError) {
        self.write(vec![error.document()]);
        self.is_over = true;
    }

    fn write(&mut self, chunks: Vec<Value>) {
        self.ready.extend(chunks.into_iter().map(|chunk| Bytes::from(format!("data: {chunk}\n\n"))));
    }
}

impl Body for EventStream {
    type Data = Bytes;
    type Error = Infallible;

    fn poll_frame(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
    ) -> Poll<Option<Result<Frame<Bytes>, Infallible>>> {
        loop {
            if let Some(bytes) = self.ready.pop_front() {
                return Poll::Ready(Some(Ok(Frame::data(bytes))));
            }
            if self.is_over {
                return Poll::Ready(None);
            }
            let choice = self.choice;
            match ready!(self.answers[choice].poll_recv(context)) {
                Some(event) => self.take(event),
                None => self.fail(&stopped()),
            }
        }
    }
}
