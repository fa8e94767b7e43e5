//! What the harness adds to a step, measured with a model that does nothing.

use std::ops::ControlFlow;
use std::path::Path;
use std::sync::Arc;

use super::null::{self, Act, NullSession};
use crate::generate::{Clock, Driver, GenerateError, Generator, Prompt, Request, Sampling};

const SEQ_LEN: usize = 512;
const STEPS: usize = 400;

/// Microseconds per step, the median of several hundred.
pub(super) fn per_step_us(clock: Arc<dyn Clock>) -> Result<f64, GenerateError> {
    let mut generator = generator(&[SEQ_LEN], 1, clock, Box::new(|_, _| Ok(())))?;
    let request = request(SEQ_LEN, STEPS);
    generator.generate(&request, &mut |_| Ok(ControlFlow::Continue(())))?;
    let answer = generator.generate(&request, &mut |_| Ok(ControlFlow::Continue(())))?;
    let mut totals: Vec<_> = answer.timings.steps.iter().map(|step| step.total).collect();
    totals.sort();
    Ok(totals.get(totals.len() / 2).map_or(0.0, |total| total.as_secs_f64() * 1e6))
}

/// A generator over a model that does what `act` does.
pub(super) fn generator(
    seq_lens: &[usize],
    batch: usize,
    clock: Arc<dyn Clock>,
    act: Act,
) -> Result<Generator, GenerateError> {
    let session = Box::new(NullSession::new(batch, act));
    let manifest = null::manifest(seq_lens, batch);
    let driver = Driver::over(&manifest, Path::new(""), vec![session], None, Arc::clone(&clock))?;
    Ok(Generator::new(driver, None, clock))
}

fn request(seq_len: usize, steps: usize) -> Request {
    Request {
        prompts: vec![Prompt { ids: vec![1; seq_len - steps - 1], ..Prompt::default() }],
        max_tokens: steps + 1,
        sampling: Sampling::default(),
        ends: Vec::new(),
        length: Some(seq_len),
        continues: false,
        top_logits: 0,
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::generate::{ManualClock, SystemClock};

    #[test]
    fn a_clock_that_stands_still_sees_no_overhead() {
        assert_eq!(per_step_us(Arc::new(ManualClock::default())).unwrap(), 0.0);
        assert!(per_step_us(Arc::new(SystemClock::default())).unwrap() > 0.0);
    }

    #[test]
    fn steps_allocate_nothing() {
        let clock = Arc::new(SystemClock::default());
        let mut generator = generator(&[SEQ_LEN], 1, clock, Box::new(|_, _| Ok(()))).unwrap();
        let mut allocations = |steps: usize| {
            let request = request(SEQ_LEN, steps);
            let run = || {
                generator.generate(&request, &mut |_| Ok(ControlFlow::Continue(()))).unwrap();
            };
            allocation_counter::measure(run).count_total
        };
        allocations(100);
        assert_eq!(allocations(100), allocations(300));
    }
}
