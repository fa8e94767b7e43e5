//! Everything that a test makes must be gone at its end, and nothing may have gone wrong on the way.

use std::sync::atomic::{AtomicBool, Ordering::SeqCst};
use std::thread;
use std::time::{Duration, Instant};

use coreml_standin::census::{self, Census};
use coreml_standin::fault::{self, Fault, Injected};

/// How long threads of Core ML may take to let go of what they were given.
const PATIENCE: Duration = Duration::from_secs(30);
/// Whether that has been in vain: then it is no longer waited for.
static IN_VAIN: AtomicBool = AtomicBool::new(false);

/// One test at a time, with its faults; checks the census at its end.
pub(crate) struct Balance {
    before: Census,
    pub(crate) faults: Injected,
}

/// Begins a test.
pub(crate) fn balanced(faults: &[Fault]) -> Balance {
    let faults = fault::inject(faults);
    Balance { before: census::take(), faults }
}

impl Balance {
    /// Accepts what went wrong so far: it was meant to.
    pub(crate) fn pardon(mut self) {
        self.before =
            Census { objects: self.before.objects.clone(), blocks: self.before.blocks, ..census::take() };
    }

    /// Waits until everything made since the beginning is gone.
    pub(crate) fn settle(&self) {
        let began = Instant::now();
        while census::take().objects != self.before.objects || census::take().blocks != self.before.blocks {
            if IN_VAIN.load(SeqCst) || began.elapsed() > PATIENCE {
                IN_VAIN.store(true, SeqCst);
                break;
            }
            thread::sleep(Duration::from_millis(2));
        }
        let said = census::last_dead_message();
        assert_eq!(census::take(), self.before, "what is left, and what went wrong; the last was {said:?}");
    }
}

impl Drop for Balance {
    fn drop(&mut self) {
        if !thread::panicking() {
            self.faults.mend();
            self.settle();
        }
    }
}
