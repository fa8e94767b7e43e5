//! A session that is slower than it has to be, by a share that is asked for: what a gate is to find can be tried out.

use std::sync::Arc;
use std::time::Duration;

use crate::generate::Clock;
use anemeter_runtime::{Session, around};

/// Waits after each prediction for a share of the time that it took.
///
/// A wait never ends on time: the clock is read late, and a busy machine gives the processor to others meanwhile. What was
/// waited too long is taken off the waits that follow, so that the time of a request grows by the share and no more.
pub(super) fn slowed_down(inner: Box<dyn Session>, clock: Arc<dyn Clock>, percent: u16) -> Box<dyn Session> {
    let (mut owed, mut waited) = (Duration::ZERO, Duration::ZERO);
    around(inner, move |prediction| {
        let began = clock.now();
        prediction.run()?;
        let ended = clock.now();
        owed += ended.saturating_sub(began) * u32::from(percent) / 100;
        if owed > waited {
            let until = ended + (owed - waited);
            prediction.wait(&|| clock.now() >= until);
            waited += clock.now().saturating_sub(ended);
        }
        Ok(())
    })
}

#[cfg(test)]
mod tests {
    use std::sync::atomic::{AtomicU64, Ordering};
    use std::time::Duration;

    use super::*;
    use anemeter_kernels::tensor::{DType, Tensor};
    use anemeter_mil::{Builder, Model, Opset, TensorType};
    use anemeter_runtime::LoadOptions;

    /// A clock that moves by a millisecond whenever it is read, so that no wait ends on time.
    #[derive(Default)]
    struct Steps(AtomicU64);

    impl Clock for Steps {
        fn now(&self) -> Duration {
            Duration::from_millis(self.0.fetch_add(1, Ordering::Relaxed))
        }
    }

    /// A session whose predictions take a millisecond each, and its clock.
    fn session(percent: u16) -> (Box<dyn Session>, Arc<Steps>) {
        let mut main = Builder::new("main", Opset::Ios18);
        let x = main.input("x", TensorType::fixed(DType::F32, &[2]));
        let y = main.op("add").arg("x", x).arg("y", x).named("y").push().unwrap();
        let model = Model::single(main.finish(&[y]));
        let loaded = anemeter_runtime::cpu().load_model(model, &LoadOptions::default()).unwrap();
        let clock = Arc::new(Steps::default());
        (slowed_down(loaded.session(), clock.clone(), percent), clock)
    }

    fn predict(session: &mut dyn Session) {
        let x = Tensor::from_slice(&[2], &[1.0f32, 2.0]).unwrap();
        session.predict("main", &[("x", x.view())]).unwrap();
    }

    #[test]
    fn a_prediction_takes_as_much_longer_as_was_asked_for_and_says_the_same() {
        let (mut session, clock) = session(1000);
        predict(&mut *session);
        assert_eq!(session.output("y").unwrap().slice::<f32>().unwrap(), [2.0, 4.0]);
        // It ends at 1 ms and is waited for until 11 ms, which the next reading finds to be 12 ms.
        assert_eq!(clock.now(), Duration::from_millis(13));
    }

    #[test]
    fn waits_that_end_late_do_not_add_up() {
        let (mut session, clock) = session(150);
        for _ in 0..20 {
            predict(&mut *session);
        }
        // 20 ms of predictions, 30 ms of waits, and 20 ms from the end of each to the beginning of the next.
        assert_eq!(clock.now(), Duration::from_millis(70));
    }
}
