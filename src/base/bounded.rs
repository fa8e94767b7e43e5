//! Work on outside data within a budget of memory and time, on a thread of its own.
//!
//! What a template or a tokenizer asks for in memory is known only when it asks. [`Allocator`], which the program has as
//! its allocator, counts what such a thread has; a request beyond the budget is never answered, and the thread that waits
//! for the work learns of it. The other thread stays as it is until the program ends, which an error makes it do soon.
//! Without this allocator only time is bounded.
//!
//! This is one of the crate's unsafe islands: an allocator is unsafe to implement.
#![allow(unsafe_code)]

use std::alloc::{GlobalAlloc, Layout, System};
use std::cell::Cell;
use std::fmt;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::mpsc::{self, RecvTimeoutError};
use std::thread;
use std::time::{Duration, Instant};

use super::contain::{Panicked, contained};

/// What work may take.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Budget {
    /// Bytes of memory at a time.
    pub memory: usize,
    /// Time until it is given up.
    pub time: Duration,
}

/// Work that was not done.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Exceeded {
    /// It wanted more memory.
    Memory(usize),
    /// It took longer.
    Time(Duration),
    /// It panicked, which is what it said.
    Panic(String),
    /// No thread could be started.
    Thread(String),
}

impl std::error::Error for Exceeded {}

impl fmt::Display for Exceeded {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Exceeded::Memory(most) => write!(f, "needs more than {} MiB of memory", most >> 20),
            Exceeded::Time(most) => write!(f, "takes longer than {} s", most.as_secs()),
            Exceeded::Panic(said) => f.write_str(said),
            Exceeded::Thread(why) => write!(f, "no thread can be started: {why}"),
        }
    }
}

/// Stack of the thread. Its pages come to be when they are used; a chain of values that each hold the next is followed
/// by recursion, and its length is bounded by memory and by the steps of a template only.
const STACKS: [usize; 3] = [2 << 30, 256 << 20, 16 << 20];

/// A bit for each piece of work in hand, and for each whose budget is used up.
static TAKEN: AtomicU64 = AtomicU64::new(0);
static EXCEEDED: AtomicU64 = AtomicU64::new(0);

const UNBOUNDED: usize = usize::MAX;

thread_local! {
    /// Bytes that this thread may still have.
    static LEFT: Cell<usize> = const { Cell::new(UNBOUNDED) };
    /// Its bit.
    static SLOT: Cell<u64> = const { Cell::new(0) };
}

/// Does the work on a thread of its own, within a budget.
pub fn bounded<R: Send + 'static>(
    budget: Budget,
    work: impl FnOnce() -> R + Send + 'static,
) -> Result<R, Exceeded> {
    let slot = take_slot().ok_or_else(|| Exceeded::Thread("too many have been given up".to_owned()))?;
    let (sender, receiver) = mpsc::channel();
    let (job_sender, job_receiver) = mpsc::channel::<Box<dyn FnOnce() -> R + Send>>();
    let body = move || {
        let Ok(work) = job_receiver.recv() else { return };
        SLOT.set(slot);
        LEFT.set(budget.memory);
        let done = contained(work);
        LEFT.set(UNBOUNDED);
        // Whoever waited may have given up.
        let _ = sender.send(done);
    };
    start(body).inspect_err(|_| free_slot(slot))?;
    let _ = job_sender.send(Box::new(work));
    let outcome = wait(&receiver, slot, budget);
    if !matches!(outcome, Err(Exceeded::Memory(_) | Exceeded::Time(_))) {
        free_slot(slot);
    }
    outcome
}

fn wait<R>(receiver: &mpsc::Receiver<Result<R, Panicked>>, slot: u64, budget: Budget) -> Result<R, Exceeded> {
    const LOOK: Duration = Duration::from_millis(5);
    let began = Instant::now();
    loop {
        match receiver.recv_timeout(LOOK) {
            Ok(done) => return done.map_err(|Panicked(said)| Exceeded::Panic(said)),
            Err(RecvTimeoutError::Disconnected) => {
                return Err(Exceeded::Thread("it has ended".to_owned()));
            }
            Err(RecvTimeoutError::Timeout) if EXCEEDED.load(Ordering::Acquire) & slot != 0 => {
                return Err(Exceeded::Memory(budget.memory));
            }
            Err(RecvTimeoutError::Timeout) if began.elapsed() > budget.time => {
                return Err(Exceeded::Time(budget.time));
            }
            Err(RecvTimeoutError::Timeout) => {}
        }
    }
}

/// Starts a thread with the largest stack that can be had.
fn start(body: impl FnOnce() + Send + 'static) -> Result<(), Exceeded> {
    let body = std::sync::Arc::new(std::sync::Mutex::new(Some(body)));
    let mut failure = String::new();
    for stack in STACKS {
        let body = body.clone();
        let run = move || {
            let body = body.lock().unwrap_or_else(std::sync::PoisonError::into_inner).take();
            if let Some(body) = body {
                body();
            }
        };
        match thread::Builder::new().name("bounded".to_owned()).stack_size(stack).spawn(run) {
            Ok(_) => return Ok(()),
            Err(error) => failure = error.to_string(),
        }
    }
    Err(Exceeded::Thread(failure))
}

fn take_slot() -> Option<u64> {
    let mut taken = TAKEN.load(Ordering::Relaxed);
    loop {
        let slot = 1u64.checked_shl((!taken).trailing_zeros())?;
        match TAKEN.compare_exchange_weak(taken, taken | slot, Ordering::AcqRel, Ordering::Relaxed) {
            Ok(_) => return Some(slot),
            Err(now) => taken = now,
        }
    }
}

fn free_slot(slot: u64) {
    TAKEN.fetch_and(!slot, Ordering::AcqRel);
}

/// The system's allocator, which counts what threads with a budget have.
pub struct Allocator;

impl Allocator {
    /// Takes bytes from the budget of this thread; if there are too few left, never returns.
    fn take(bytes: usize) {
        let left = LEFT.get();
        if left == UNBOUNDED {
            return;
        }
        match left.checked_sub(bytes) {
            Some(left) => LEFT.set(left),
            None => {
                // What follows must not ask for memory.
                EXCEEDED.fetch_or(SLOT.get(), Ordering::Release);
                loop {
                    thread::sleep(Duration::from_secs(3600));
                }
            }
        }
    }

    fn give_back(bytes: usize) {
        let left = LEFT.get();
        if left != UNBOUNDED {
            // Memory of other threads may be freed here, which must not make the budget endless.
            LEFT.set(left.saturating_add(bytes).min(UNBOUNDED - 1));
        }
    }
}

// SAFETY: every request is passed on to the system's allocator as it is, and its answer is given as it is; counting
// touches no memory but two cells of the thread, which need no initialisation and no destructor.
unsafe impl GlobalAlloc for Allocator {
    unsafe fn alloc(&self, layout: Layout) -> *mut u8 {
        Allocator::take(layout.size());
        // SAFETY: the caller keeps the promises that the system's allocator needs.
        unsafe { System.alloc(layout) }
    }

    unsafe fn alloc_zeroed(&self, layout: Layout) -> *mut u8 {
        Allocator::take(layout.size());
        // SAFETY: as above.
        unsafe { System.alloc_zeroed(layout) }
    }

    unsafe fn dealloc(&self, memory: *mut u8, layout: Layout) {
        Allocator::give_back(layout.size());
        // SAFETY: as above.
        unsafe { System.dealloc(memory, layout) }
    }

    unsafe fn realloc(&self, memory: *mut u8, layout: Layout, size: usize) -> *mut u8 {
        Allocator::take(size.saturating_sub(layout.size()));
        Allocator::give_back(layout.size().saturating_sub(size));
        // SAFETY: as above.
        unsafe { System.realloc(memory, layout, size) }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[global_allocator]
    static ALLOCATOR: Allocator = Allocator;

    const BUDGET: Budget = Budget { memory: 32 << 20, time: Duration::from_secs(60) };

    #[test]
    fn what_fits_is_done() {
        // Freed memory may be had again.
        let work = || (0..100usize).map(|i| vec![i as u8; 1 << 20].len()).sum::<usize>();
        assert_eq!(bounded(BUDGET, work), Ok(100 << 20));
    }

    #[test]
    fn what_does_not_fit_is_given_up() {
        let doubling = || {
            let mut text = "ab".to_owned();
            loop {
                text = text.repeat(2);
            }
        };
        assert_eq!(bounded(BUDGET, doubling), Err::<(), _>(Exceeded::Memory(32 << 20)));
        assert_eq!(bounded(BUDGET, || vec![0u8; usize::MAX >> 2].len()), Err(Exceeded::Memory(32 << 20)));
        let soon = Budget { time: Duration::from_millis(20), ..BUDGET };
        let endless = || loop {
            thread::sleep(Duration::from_secs(3600));
        };
        assert_eq!(bounded(soon, endless), Err::<(), _>(Exceeded::Time(soon.time)));
        assert_eq!(bounded(BUDGET, || panic!("no")), Err::<(), _>(Exceeded::Panic("no".to_owned())));
        assert_eq!(bounded(BUDGET, || 1), Ok(1));
    }
}
