//! Watching a prediction: where fp16 runs out of range.

use std::any::Any;
use std::fmt;

use half::f16;

use crate::cli::{Failure, Result};
use crate::runtime::{Observer, OpExecution, Session};

/// Takes the observer of a session back.
pub(super) fn take<T: Observer + 'static>(session: &mut dyn Session) -> Result<T> {
    let observer = session.observe(None).map(Observer::into_any).and_then(|any| any.downcast::<T>().ok());
    observer.map(|boxed| *boxed).ok_or_else(|| Failure::bad_input("the runtime does not report operations"))
}

/// Finds the first operation whose fp16 output leaves the range or is not a number.
#[derive(Default)]
pub(super) struct Overflow {
    first: Option<String>,
    largest: f32,
    operations: usize,
}

impl Observer for Overflow {
    fn executed(&mut self, step: &OpExecution<'_>) {
        self.operations += 1;
        for view in step.outputs {
            let Ok(values) = view.slice::<f16>() else { continue };
            for (index, value) in values.iter().enumerate() {
                if value.is_finite() {
                    self.largest = self.largest.max(value.to_f32().abs());
                } else if self.first.is_none() {
                    self.first = Some(format!(
                        "`{}` = {}: element {index} of shape {:?} is {value}",
                        step.name,
                        step.kind,
                        view.shape()
                    ));
                }
            }
        }
    }

    fn into_any(self: Box<Self>) -> Box<dyn Any> {
        self
    }
}

impl fmt::Display for Overflow {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match &self.first {
            Some(place) => write!(f, "fp16 overflow: {place}"),
            None => write!(
                f,
                "no fp16 overflow in {} operations; the largest magnitude is {} of {}",
                self.operations,
                self.largest,
                f16::MAX
            ),
        }
    }
}
