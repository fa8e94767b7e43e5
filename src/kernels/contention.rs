//! Whether other processes take processors away from the threads of a pool, told by how long threads have to wait.
//!
//! Threads that decode a token hand each other pieces of work of some tens of microseconds. If another process gets the
//! processor of a thread in the middle of a piece, all others wait until the thread has one again. That takes milliseconds,
//! as long as a token, and happens again with the next pieces: two threads are then slower than one. No portable call tells
//! that a processor is shared, but a thread can see it:
//!
//! - it waits for another thread for much longer than its own share of the work took;
//! - it does nothing but look for work, without sleeping, and finds that time has passed between two looks.
//!
//! Either is a stall. After one, short work is divided among one thread less, for many times as long as the stall was, and
//! among yet one less if there is another stall in that time. Then all threads are tried again. So stalls take a small share
//! of the time at most, and a machine that is idle again is used again.
//!
//! Only the division of work depends on this, and results do not depend on that.

use std::sync::LazyLock;
use std::sync::atomic::{AtomicU64, AtomicUsize, Ordering};
use std::time::{Duration, Instant};

/// A wait that a running thread does not cause: longer than pieces of short work take, and shorter than the time slices of a
/// scheduler, which are milliseconds.
pub(super) const STALL: Duration = Duration::from_micros(250);
/// How many times as long as a stall fewer threads are used. Stalls then take about a 32nd of the time.
const REST_FACTOR: u32 = 32;
/// The longest rest, whatever the stall: a process that was suspended for an hour is no busy machine.
const LONGEST_REST: Duration = Duration::from_millis(250);

/// What threads have seen of other processes.
pub(super) struct Contention {
    /// Threads that are left out.
    displaced: AtomicUsize,
    /// Until when, in nanoseconds since the first look at the clock; zero if none are.
    until: AtomicU64,
}

/// The machine that this process runs on: all pools share its processors.
pub(super) static MACHINE: Contention = Contention::new();

impl Contention {
    const fn new() -> Contention {
        Contention { displaced: AtomicUsize::new(0), until: AtomicU64::new(0) }
    }

    /// How many threads are to be left out of short work at present.
    pub(super) fn displaced(&self) -> usize {
        // The clock is not read while there is nothing to wait for.
        if self.until.load(Ordering::Relaxed) == 0 { 0 } else { self.displaced_at(Instant::now()) }
    }

    fn displaced_at(&self, now: Instant) -> usize {
        let until = self.until.load(Ordering::Relaxed);
        if nanoseconds(now) < until {
            return self.displaced.load(Ordering::Relaxed);
        }
        // Unless another thread has seen a stall meanwhile.
        let _ = self.until.compare_exchange(until, 0, Ordering::Relaxed, Ordering::Relaxed);
        0
    }

    /// Remembers a stall that has just ended.
    pub(super) fn stalled(&self, now: Instant, stall: Duration) {
        let displaced = self.displaced_at(now);
        self.displaced.store(displaced.saturating_add(1), Ordering::Relaxed);
        let rest = stall.saturating_mul(REST_FACTOR).min(LONGEST_REST);
        self.until.fetch_max(nanoseconds(now + rest), Ordering::Relaxed);
    }
}

/// Never zero.
fn nanoseconds(time: Instant) -> u64 {
    static FIRST: LazyLock<Instant> = LazyLock::new(Instant::now);
    let since = time.saturating_duration_since(*FIRST).as_nanos();
    u64::try_from(since).unwrap_or(u64::MAX).max(1)
}

#[cfg(test)]
mod tests {
    use super::*;

    const MILLISECOND: Duration = Duration::from_millis(1);

    #[test]
    fn a_stall_leaves_a_thread_out_for_a_multiple_of_its_length() {
        let (contention, start) = (Contention::new(), Instant::now());
        assert_eq!(contention.displaced_at(start), 0);
        contention.stalled(start, MILLISECOND);
        assert_eq!(contention.displaced_at(start + MILLISECOND * (REST_FACTOR - 1)), 1);
        assert_eq!(contention.displaced_at(start + MILLISECOND * (REST_FACTOR + 1)), 0);
        assert_eq!(contention.until.load(Ordering::Relaxed), 0, "the clock need not be read any more");
        assert_eq!(contention.displaced(), 0);
    }

    #[test]
    fn stalls_in_a_row_leave_more_threads_out_until_all_are_tried_again() {
        let (contention, start) = (Contention::new(), Instant::now());
        for stalls in 1..=3 {
            contention.stalled(start + MILLISECOND * stalls, MILLISECOND);
            assert_eq!(contention.displaced_at(start + MILLISECOND * (stalls + 1)), stalls as usize);
        }
        let later = start + MILLISECOND * (REST_FACTOR + 4);
        assert_eq!(contention.displaced_at(later), 0);
        contention.stalled(later, MILLISECOND);
        assert_eq!(contention.displaced_at(later), 1, "those of before do not count");
    }

    #[test]
    fn a_short_stall_does_not_end_the_rest_after_a_long_one() {
        let (contention, start) = (Contention::new(), Instant::now());
        contention.stalled(start, MILLISECOND * 4);
        contention.stalled(start, STALL);
        assert_eq!(contention.displaced_at(start + MILLISECOND * (4 * REST_FACTOR - 1)), 2);
    }

    #[test]
    fn a_process_that_was_suspended_soon_uses_its_threads_again() {
        let (contention, start) = (Contention::new(), Instant::now());
        contention.stalled(start, Duration::from_secs(3600));
        assert_eq!(contention.displaced_at(start + LONGEST_REST - MILLISECOND), 1);
        assert_eq!(contention.displaced_at(start + LONGEST_REST), 0);
        contention.stalled(start, Duration::MAX);
        assert_eq!(contention.displaced_at(start), 1);
    }
}
