//! Completion handlers, which Core ML calls on a thread of its own.

use std::ptr::null_mut;
use std::thread;

use block2::{DynBlock, RcBlock};
use objc2::Message;
use objc2::rc::{Retained, autoreleasepool};
use objc2_foundation::NSError;

use crate::foundation::error::Failure;

/// What a completion handler is.
pub(super) type Handler<T> = DynBlock<dyn Fn(*mut T, *mut NSError)>;

/// What a completion handler is told: a result, an error, or neither.
pub(super) type Told<T> = Result<Option<Retained<T>>, Failure>;

/// Something that goes to another thread.
struct Moved<T>(T);

// SAFETY: it is used by one thread at a time: first by the one that makes it, then by the one that it is given to.
unsafe impl<T> Send for Moved<T> {}

impl<T> Moved<T> {
    fn take(self) -> T {
        self.0
    }
}

/// Does the work on another thread, and tells the handler there.
pub(super) fn complete<T: Message + 'static>(handler: &Handler<T>, work: impl FnOnce() -> Told<T> + 'static) {
    let moved = Moved((handler.copy(), work));
    thread::spawn(move || {
        let (handler, work) = moved.take();
        autoreleasepool(|_| tell(&handler, work()));
    });
}

/// Result and error are only lent: a handler that keeps them has to retain them.
fn tell<T: Message + 'static>(handler: &RcBlock<dyn Fn(*mut T, *mut NSError)>, told: Told<T>) {
    match told {
        Ok(Some(object)) => handler.call((Retained::as_ptr(&object).cast_mut(), null_mut())),
        Ok(None) => handler.call((null_mut(), null_mut())),
        Err(failure) => {
            let error = failure.to_object();
            handler.call((null_mut(), Retained::as_ptr(&error).cast_mut()));
        }
    }
}
