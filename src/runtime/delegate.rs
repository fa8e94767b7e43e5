//! What sessions with something around their predictions leave to the session inside.

/// All of [`Session`](crate::Session) but `predict`, done by the field `session`.
macro_rules! to_session {
    () => {
        fn wait(&mut self, is_over: &(dyn Fn() -> bool + Sync)) {
            self.session.wait(is_over);
        }

        fn output(&self, name: &str) -> Option<TensorView<'_>> {
            self.session.output(name)
        }

        fn state(&self, name: &str) -> Option<TensorView<'_>> {
            self.session.state(name)
        }

        fn set_state(&mut self, name: &str, value: &Tensor) -> Result<(), RuntimeError> {
            self.session.set_state(name, value)
        }

        fn exchange_state(&mut self, name: &str, held: &mut HeldState) -> Result<(), RuntimeError> {
            self.session.exchange_state(name, held)
        }

        fn state_names(&self) -> Vec<String> {
            self.session.state_names()
        }

        fn observe(&mut self, observer: Option<Box<dyn Observer>>) -> Option<Box<dyn Observer>> {
            self.session.observe(observer)
        }
    };
}

pub(crate) use to_session;
