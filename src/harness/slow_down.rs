//! A session that is slower than it has to be, by a share that is asked for: what a gate is to find can be tried out.

use std::sync::Arc;

use crate::generate::Clock;
use crate::runtime::{Observer, RuntimeError, Session};
use crate::tensor::{Tensor, TensorView};

/// Waits after each prediction for a share of the time that it took.
pub(super) struct SlowedDown {
    session: Box<dyn Session>,
    clock: Arc<dyn Clock>,
    percent: u16,
}

impl SlowedDown {
    pub(super) fn new(session: Box<dyn Session>, clock: Arc<dyn Clock>, percent: u16) -> SlowedDown {
        SlowedDown { session, clock, percent }
    }
}

impl Session for SlowedDown {
    fn predict(&mut self, function: &str, inputs: &[(&str, TensorView<'_>)]) -> Result<(), RuntimeError> {
        let began = self.clock.now();
        let done = self.session.predict(function, inputs);
        let took = self.clock.now().saturating_sub(began);
        let until = began + took + took * u32::from(self.percent) / 100;
        // Sleeping would be too coarse for a prediction of microseconds.
        while self.clock.now() < until {
            std::hint::spin_loop();
        }
        done
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

    fn state_names(&self) -> Vec<String> {
        self.session.state_names()
    }

    fn observe(&mut self, observer: Option<Box<dyn Observer>>) -> Option<Box<dyn Observer>> {
        self.session.observe(observer)
    }
}

#[cfg(test)]
mod tests {
    use std::sync::atomic::{AtomicU64, Ordering};
    use std::time::Duration;

    use super::*;
    use crate::mil::{Builder, Model, Opset, TensorType};
    use crate::runtime::{self, LoadOptions};
    use crate::tensor::DType;

    /// A clock that moves by a millisecond whenever it is read.
    #[derive(Default)]
    struct Steps(AtomicU64);

    impl Clock for Steps {
        fn now(&self) -> Duration {
            Duration::from_millis(self.0.fetch_add(1, Ordering::Relaxed))
        }
    }

    #[test]
    fn a_prediction_takes_as_much_longer_as_was_asked_for_and_says_the_same() {
        let mut main = Builder::new("main", Opset::Ios18);
        let x = main.input("x", TensorType::fixed(DType::F32, &[2]));
        let y = main.op("add").arg("x", x).arg("y", x).named("y").push().unwrap();
        let model = Model::single(main.finish(&[y]));
        let loaded = runtime::cpu().load_model(model, &LoadOptions::default()).unwrap();
        let clock = Arc::new(Steps::default());
        let mut session = SlowedDown::new(loaded.session(), clock.clone(), 1000);
        let x = Tensor::from_slice(&[2], &[1.0f32, 2.0]).unwrap();
        session.predict("main", &[("x", x.view())]).unwrap();
        assert_eq!(session.output("y").unwrap().slice::<f32>().unwrap(), [2.0, 4.0]);
        // Read at 0 ms and 1 ms, so until 11 ms: reads at 2 to 11, and the next one is the twelfth.
        assert_eq!(clock.now(), Duration::from_millis(12));
    }
}
