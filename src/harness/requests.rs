//! What one request is: a prompt that tokens follow, or one prediction of a function. A worker measures either alike.

use std::time::Duration;

use super::protocol::Message;
use anemeter_base::hardware::memory::Footprint;
use anemeter_measure::report::{Prediction, Request};

/// A model that is ready, and the requests that can be made of it.
pub(super) trait Requests {
    /// What comes before all requests and makes memory and plans ready; `began` is when the launch did.
    fn first(&mut self, began: Duration) -> Result<First, String>;

    /// One request at a place: a sequence length, or the number of a case. It `started` so long after the launch.
    fn request(&mut self, slot: usize, at: usize, started: Duration) -> Result<Done, Undone>;

    /// What is not a number in the outputs of the last request at a place, where the request itself does not look.
    fn check(&self, at: usize) -> Option<String> {
        let _ = at;
        None
    }
}

/// What came before all requests.
pub(super) struct First {
    /// Time of the first prediction of all.
    pub(super) elapsed: Duration,
    /// What is recorded of it.
    pub(super) records: Vec<Measured>,
}

/// A request that was made.
pub(super) struct Done {
    /// What is recorded of it.
    pub(super) measured: Measured,
    /// Times of its steps: of each token after the first, or of the prediction.
    pub(super) steps: Vec<Duration>,
    /// Tokens that were generated, over all sequences.
    pub(super) tokens: usize,
}

/// Why a request was not made.
#[derive(Debug)]
pub(super) enum Undone {
    /// An output is not a number.
    NotFinite(String),
    /// It failed, and this is why.
    Failed(String),
}

impl From<Undone> for String {
    fn from(undone: Undone) -> String {
        match undone {
            Undone::NotFinite(why) | Undone::Failed(why) => why,
        }
    }
}

/// What is recorded of a request; memory is added by the worker.
pub(super) enum Measured {
    Request(Request),
    Prediction(Prediction),
}

impl Measured {
    /// The record with the memory of the process after it.
    pub(super) fn into_message(self, footprint: &Footprint) -> Message {
        let (resident_bytes, private_bytes) = (footprint.resident, footprint.private);
        match self {
            Measured::Request(request) => {
                Message::Request(Request { resident_bytes, private_bytes, ..request })
            }
            Measured::Prediction(one) => {
                Message::Prediction(Prediction { resident_bytes, private_bytes, ..one })
            }
        }
    }
}

/// Milliseconds, exact to the nanosecond.
pub(super) fn ms(duration: Duration) -> f64 {
    duration.as_nanos() as f64 / 1e6
}
