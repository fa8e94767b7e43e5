//! Waiting for a completion handler, which runs on a thread of Core ML's, but not for ever.

use std::sync::mpsc::{self, RecvTimeoutError};
use std::time::{Duration, Instant};

use block2::RcBlock;
use objc2::Message;
use objc2::rc::{Retained, autoreleasepool};
use objc2_foundation::NSError;

use super::error;
use crate::RuntimeError;

/// An object on its way from one thread to another, used by one at a time.
pub(super) struct SendHandle<T>(pub(super) T);

// SAFETY: whoever holds it has the only use of the object: the thread that makes it sends it away, and a mutex or an
// exclusive borrow guards it afterwards. Core ML's objects are bound to no thread.
unsafe impl<T> Send for SendHandle<T> {}

/// What a completion handler was given.
type HandlerResult<T> = Result<Retained<T>, RuntimeError>;

/// A call that ends in a completion handler.
pub(super) struct CompletionWait<'a> {
    /// Completes "cannot …".
    pub(super) doing: String,
    /// What Core ML is at while nothing comes.
    pub(super) meanwhile: &'a str,
    pub(super) limit: Duration,
}

impl CompletionWait<'_> {
    /// Starts a call with a handler and waits for the handler to be called. A result that comes too late is let go of by the
    /// handler itself.
    pub(super) fn wait<T: Message + 'static>(
        self,
        start: impl FnOnce(&RcBlock<dyn Fn(*mut T, *mut NSError)>),
    ) -> HandlerResult<T> {
        let (sender, receiver) = mpsc::channel::<SendHandle<HandlerResult<T>>>();
        let began = Instant::now();
        let doing = self.doing.clone();
        autoreleasepool(|_| {
            let handler = RcBlock::new(move |result: *mut T, error: *mut NSError| {
                let given = autoreleasepool(|_| {
                    // SAFETY: both are nil or live objects for the time of the call, as the handler's type says.
                    let (result, error) = unsafe { (Retained::retain(result), error.as_ref()) };
                    match (result, error) {
                        (Some(result), _) => Ok(result),
                        (None, Some(error)) => Err(error::failed(doing.clone(), error)),
                        (None, None) => Err(error::gave_nothing(doing.clone())),
                    }
                });
                // Nobody waits any longer: what was given is dropped here.
                let _ = sender.send(SendHandle(given));
            });
            start(&handler);
        });
        match receiver.recv_timeout(self.limit) {
            Ok(SendHandle(given)) => given,
            Err(RecvTimeoutError::Timeout) => Err(RuntimeError::TimedOut {
                doing: self.doing,
                meanwhile: self.meanwhile.to_owned(),
                waited: began.elapsed(),
            }),
            Err(RecvTimeoutError::Disconnected) => Err(error::gave_nothing(self.doing)),
        }
    }
}
