//! Errors of Core ML as plain text: every link of the chain, down to the innermost reason.

use objc2::rc::Retained;
use objc2::runtime::AnyObject;
use objc2_foundation::{NSDictionary, NSError, NSString};

use crate::RuntimeError;
use crate::reason::Reason;

/// No chain of errors is this long unless it is a circle.
const LONGEST_CHAIN: usize = 16;
/// Where an error keeps the one that caused it: the value of `NSUnderlyingErrorKey`.
const CAUSE: &str = "NSUnderlyingError";
/// The domain of the error that objc2 makes up when a call fails without one.
const NO_ERROR_GIVEN: &str = "__objc2.missingError";

/// A failed call; `doing` completes "cannot …".
pub(super) fn failed(doing: impl Into<String>, error: &NSError) -> RuntimeError {
    RuntimeError::core_ml(doing, chain(error))
}

/// A call that gave neither a result nor an error.
pub(super) fn gave_nothing(doing: impl Into<String>) -> RuntimeError {
    RuntimeError::core_ml(doing, Vec::new())
}

fn chain(error: &NSError) -> Vec<Reason> {
    let mut reasons = Vec::new();
    let mut next = Some(error.retain_self());
    while let Some(error) = next.take_if(|_| reasons.len() < LONGEST_CHAIN) {
        let domain = error.domain().to_string();
        if domain == NO_ERROR_GIVEN {
            break;
        }
        reasons.push(Reason { domain, code: error.code() as i64, message: message(&error) });
        next = cause(&error);
    }
    reasons
}

/// The description, with the reason where the error has one of its own.
fn message(error: &NSError) -> String {
    let description = error.localizedDescription().to_string();
    match error.localizedFailureReason().map(|reason| reason.to_string()) {
        Some(reason) if !description.contains(&reason) => format!("{description} {reason}"),
        _ => description,
    }
}

fn cause(error: &NSError) -> Option<Retained<NSError>> {
    let info: Retained<NSDictionary<NSString, AnyObject>> = error.userInfo();
    info.objectForKey(&NSString::from_str(CAUSE))?.downcast::<NSError>().ok()
}

/// Another owner of an object that is borrowed.
trait RetainSelf {
    fn retain_self(&self) -> Retained<Self>;
}

impl RetainSelf for NSError {
    fn retain_self(&self) -> Retained<NSError> {
        objc2::Message::retain(self)
    }
}
