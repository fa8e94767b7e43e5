//! A session with something around its predictions, such as a wait.

use super::{HeldState, Observer, RuntimeError, Session};
use anemeter_kernels::tensor::{Tensor, TensorView};

/// A prediction that is yet to run.
pub struct Prediction<'a> {
    session: &'a mut dyn Session,
    function: &'a str,
    inputs: &'a [(&'a str, TensorView<'a>)],
}

impl<'a> Prediction<'a> {
    /// The function.
    pub fn function(&self) -> &'a str {
        self.function
    }

    /// What the function is given.
    pub fn inputs(&self) -> &'a [(&'a str, TensorView<'a>)] {
        self.inputs
    }

    /// Runs it.
    pub fn run(&mut self) -> Result<(), RuntimeError> {
        self.session.predict(self.function, self.inputs)
    }

    /// See [`Session::wait`].
    pub fn wait(&mut self, is_over: &(dyn Fn() -> bool + Sync)) {
        self.session.wait(is_over);
    }
}

/// The session, with `around` called for each prediction; it runs the prediction itself.
pub fn around(
    session: Box<dyn Session>,
    around: impl FnMut(&mut Prediction<'_>) -> Result<(), RuntimeError> + Send + 'static,
) -> Box<dyn Session> {
    Box::new(Around { session, around })
}

struct Around<F> {
    session: Box<dyn Session>,
    around: F,
}

impl<F: FnMut(&mut Prediction<'_>) -> Result<(), RuntimeError> + Send> Session for Around<F> {
    fn predict(&mut self, function: &str, inputs: &[(&str, TensorView<'_>)]) -> Result<(), RuntimeError> {
        (self.around)(&mut Prediction { session: &mut *self.session, function, inputs })
    }

    crate::delegate::to_session!();
}
