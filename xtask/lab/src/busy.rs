//! A machine that has something else to do, on purpose.

use std::sync::atomic::{AtomicBool, Ordering};
use std::thread;

/// Runs `work`, beside a thread that never rests if asked for.
pub(crate) fn with_one_core_busy<T>(busy: bool, work: impl FnOnce() -> T) -> T {
    /// Also where the work panics: the thread would be waited for.
    struct Done<'a>(&'a AtomicBool);

    impl Drop for Done<'_> {
        fn drop(&mut self) {
            self.0.store(true, Ordering::Relaxed);
        }
    }

    let done = AtomicBool::new(!busy);
    thread::scope(|scope| {
        scope.spawn(|| {
            while !done.load(Ordering::Relaxed) {
                std::hint::black_box(std::array::from_fn::<u64, 64, _>(|i| i as u64 * 3));
            }
        });
        let _done = Done(&done);
        work()
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_result_of_the_work_is_returned_and_a_panic_ends_the_load() {
        assert_eq!(with_one_core_busy(true, || 7), 7);
        assert_eq!(with_one_core_busy(false, || 8), 8);
        let panics = || with_one_core_busy(true, || panic!("on purpose"));
        assert!(std::panic::catch_unwind(panics).is_err());
    }
}
