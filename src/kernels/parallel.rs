//! Division of work among threads, without influence on results.
//!
//! A token is decoded by hundreds of short pieces of work one after the other, and a thread that has gone to sleep
//! between two of them takes longer to wake than a piece takes. So while a prediction runs ([`with_spinning_workers`]), the
//! other threads of the pool do not sleep: they spin for work until the prediction is over. That is for a machine with nothing
//! else to do. Where other processes take processors away (`contention`), fewer threads share short work
//! and the others sleep.

use std::cell::Cell;
use std::hint::spin_loop;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, PoisonError};
use std::thread;
use std::time::{Duration, Instant};

use rayon::Yield;

use super::contention::{MACHINE, STALL};

/// Multiply-adds below which another thread costs more than it saves. So many take one core from 1 µs, in registers, to 9 µs, with
/// fp16 weights from memory; handing work to a spinning thread costs about one.
pub(crate) const WORTHWHILE: usize = 1 << 16;

/// Into how many parts the work of a thread is divided at most.
const LEAST_SHARES: usize = 4;

/// Multiply-adds from which all threads share work although other processes have their processors. So many take a core a
/// millisecond or more. What a thread does of them while it has a processor then outweighs the wait for it.
const LONG: usize = 1 << 25;

/// Looks, about a microsecond together, between two looks at the clock, which cost some tens of nanoseconds.
const LOOKS: u32 = 32;
/// How long a thread that finds no work spins before it lets other processes have the processor between looks.
const SPINNING: Duration = Duration::from_micros(50);
/// When it sleeps between looks. A processor that does nothing else is then idle, and the system moves threads to it that
/// wait for theirs.
const YIELDING: Duration = Duration::from_millis(1);
/// How long it sleeps. Systems add as much or, where they wake several threads together, a millisecond.
const NAP: Duration = Duration::from_micros(50);

/// Threads at hand: those of the pool that runs this, or one outside any pool.
pub(crate) fn threads() -> usize {
    if rayon::current_thread_index().is_some() { rayon::current_num_threads() } else { 1 }
}

/// How many threads to give work of the given size in multiply-adds.
pub(crate) fn pieces(work: usize) -> usize {
    match work / WORTHWHILE {
        // Every thread is to get at least `WORTHWHILE`.
        0 | 1 => 1,
        most => most.min(sharing(work)),
    }
}

/// How many threads can share work of the given size at present.
fn sharing(work: usize) -> usize {
    match threads() {
        1 => 1,
        threads if work >= LONG => threads,
        threads => threads.saturating_sub(MACHINE.displaced()).max(1),
    }
}

/// Calls `body` with disjoint parts of `data` and the index where each starts, on up to `pieces` threads; each part but
/// the last is a multiple of `unit` long.
pub(crate) fn parts<'a, T: Send>(
    data: &'a mut [T],
    unit: usize,
    pieces: usize,
    body: &(impl Fn(usize, &mut [T]) + Sync),
) {
    let units = data.len() / unit.max(1);
    if pieces < 2 || units < 2 {
        return body(0, data);
    }
    let schedule = GuidedSchedule { threads: pieces, least: units.div_ceil(LEAST_SHARES * pieces) };
    let take = |(start, rest): &mut (usize, &'a mut [T])| {
        let count = (schedule.next(rest.len().div_ceil(unit)) * unit).min(rest.len());
        let (part, others) = std::mem::take(rest).split_at_mut(count);
        let first = *start;
        (*start, *rest) = (first + count, others);
        (count > 0).then_some((first, part))
    };
    schedule.run((0, data), take, |(start, part)| body(start, part));
}

/// The same with a part of about one size for each thread.
pub(crate) fn even_parts<T: Send>(
    data: &mut [T],
    unit: usize,
    pieces: usize,
    body: &(impl Fn(usize, &mut [T]) + Sync),
) {
    fn divide<T: Send>(
        (start, data): (usize, &mut [T]),
        unit: usize,
        pieces: usize,
        body: &(dyn Fn(usize, &mut [T]) + Sync),
    ) {
        let Some(middle) = half(data.len(), unit, pieces) else { return body(start, data) };
        let (left, right) = data.split_at_mut(middle);
        join(
            || divide((start, left), unit, pieces / 2, body),
            || divide((start + middle, right), unit, pieces - pieces / 2, body),
        );
    }
    divide((0, data), unit, pieces, body);
}

/// Guided self-scheduling (Polychronopoulos & Kuck 1987): threads take parts in turns, large ones first, then smaller ones, so
/// that a thread that is slower than the others, or comes late, keeps nobody waiting for long.
#[derive(Clone, Copy)]
pub(crate) struct GuidedSchedule {
    /// How many threads take part.
    pub(crate) threads: usize,
    /// Units below which a part is not worth a turn.
    pub(crate) least: usize,
}

impl GuidedSchedule {
    /// Units of the next part, of so many that are left.
    pub(crate) fn next(&self, left: usize) -> usize {
        // Half of an equal share: the other half evens out how fast threads are.
        left.div_ceil(2 * self.threads).max(self.least).min(left)
    }

    /// Has all threads call `body` with what `take` cuts off, until that is nothing.
    pub(crate) fn run<W: Send, P>(
        &self,
        work: W,
        take: impl Fn(&mut W) -> Option<P> + Sync,
        body: impl Fn(P) + Sync,
    ) {
        let work = Mutex::new(work);
        let next = || take(&mut work.lock().unwrap_or_else(PoisonError::into_inner));
        fork(self.threads, &|| {
            while let Some(part) = next() {
                body(part);
            }
        });
    }
}

/// Does the same on so many threads.
fn fork(threads: usize, work: &(dyn Fn() + Sync)) {
    match threads {
        0 | 1 => work(),
        _ => {
            join(|| fork(threads - threads / 2, work), || fork(threads / 2, work));
        }
    }
}

/// Calls `f` with the index and the content of each chunk of `size` elements, on several threads if the work,
/// in multiply-adds, is worth it.
pub fn for_each_chunk<T: Send>(
    data: &mut [T],
    size: usize,
    work: usize,
    f: impl Fn(usize, &mut [T]) + Sync + Send,
) {
    let pieces = if work >= WORTHWHILE { sharing(work) } else { 1 };
    parts(data, size, pieces, &|start, part| {
        part.chunks_mut(size).enumerate().for_each(|(i, chunk)| f(start / size + i, chunk));
    });
}

/// Two things at once, as far as there are threads.
pub(crate) fn join<A: Send, B: Send>(a: impl FnOnce() -> A + Send, b: impl FnOnce() -> B + Send) -> (A, B) {
    let (mut a, mut b) = (Some(a), Some(b));
    let (mut of_a, mut of_b) = (None, None);
    join_calls(&mut || of_a = a.take().map(|a| a()), &mut || of_b = b.take().map(|b| b()));
    (of_a.expect("rayon has called it"), of_b.expect("rayon has called it"))
}

/// Not generic: a copy of rayon's `join` for every kernel was a tenth of the code to compile.
fn join_calls(a: &mut (dyn FnMut() + Send), b: &mut (dyn FnMut() + Send)) {
    let (begun, ended) = (AtomicBool::new(false), AtomicBool::new(false));
    let mut stall = None;
    let first = || {
        let start = Instant::now();
        busy(a);
        // If no thread stole `second`, rayon runs it here afterwards: nothing has begun that could be waited for.
        let waits = || begun.load(Ordering::Acquire) && !ended.load(Ordering::Acquire);
        if let Some(since) = spin_while(&waits) {
            stall = Some((since, STALL + since.duration_since(start)));
        }
    };
    let second = || {
        begun.store(true, Ordering::Release);
        let _end = SetOnDrop(&ended);
        busy(b);
    };
    rayon::join(first, second);
    if let Some((since, usual)) = stall {
        let now = Instant::now();
        let waited = now.duration_since(since);
        if waited > usual {
            MACHINE.stalled(now, waited);
        }
    }
}

/// Looks until a wait is over, and gives up after [`STALL`]: tells since when, so that rayon can go to sleep, and the system
/// move the other thread to this processor.
fn spin_while(waits: &dyn Fn() -> bool) -> Option<Instant> {
    let mut since: Option<Instant> = None;
    loop {
        for _ in 0..LOOKS {
            if !waits() {
                return None;
            }
            spin_loop();
        }
        let now = Instant::now();
        let begin = *since.get_or_insert(now);
        if now.duration_since(begin) > STALL {
            return Some(begin);
        }
    }
}

/// Does `work` on a thread of a pool while other threads of the pool stay awake.
pub fn with_spinning_workers<R>(work: impl FnOnce() -> R) -> R {
    let over = Arc::new(AtomicBool::new(false));
    for index in 1..sharing(0) {
        // Nobody waits for its end: where its processor is taken away, that would be a wait for nothing.
        let over = over.clone();
        rayon::spawn(move || spin_until(&over, index));
    }
    let _end = SetOnDrop(&over);
    busy(work)
}

/// Also where the work panics: nobody waits for ever.
struct SetOnDrop<'a>(&'a AtomicBool);

impl Drop for SetOnDrop<'_> {
    fn drop(&mut self) {
        self.0.store(true, Ordering::Release);
    }
}

thread_local! {
    /// Whether this thread is in the middle of a piece of work, or looks for work already.
    static BUSY: Cell<bool> = const { Cell::new(false) };
}

fn busy<R>(work: impl FnOnce() -> R) -> R {
    /// Also where the work panics.
    struct RestoreBusy(bool);

    impl Drop for RestoreBusy {
        fn drop(&mut self) {
            BUSY.set(self.0);
        }
    }

    let _restored = RestoreBusy(BUSY.replace(true));
    work()
}

/// Carries out what other threads have to give away, until all is over, or fewer threads are wanted than have a lower index.
///
/// A thread that waits in the middle of a piece of work may be given this too. It would keep that piece from ever ending,
/// so it does nothing there.
fn spin_until(over: &AtomicBool, index: usize) {
    if BUSY.get() {
        return;
    }
    busy(|| {
        let mut idle = Idle::since(Instant::now());
        while !over.load(Ordering::Acquire) && index < sharing(0) {
            let found = (0..LOOKS).any(|_| {
                spin_loop();
                over.load(Ordering::Relaxed) || rayon::yield_now() == Some(Yield::Executed)
            });
            let now = Instant::now();
            if found {
                idle = Idle::since(now);
                continue;
            }
            match idle.look(now) {
                Rest::Spin => {}
                Rest::Yield => thread::yield_now(),
                Rest::Nap => {
                    thread::sleep(NAP);
                    idle.slept(Instant::now());
                }
                Rest::Displaced(gap) => MACHINE.stalled(now, gap),
            }
        }
    });
}

/// A time in which a thread finds no work.
struct Idle {
    since: Instant,
    seen: Instant,
}

/// What a thread that finds no work does before it looks again.
#[derive(Debug, PartialEq)]
enum Rest {
    Spin,
    Yield,
    Nap,
    /// Another process had its processor, for so long.
    Displaced(Duration),
}

impl Idle {
    fn since(now: Instant) -> Idle {
        Idle { since: now, seen: now }
    }

    /// A thread that sleeps gives its processor away: how long it does not run says nothing about other processes.
    fn slept(&mut self, now: Instant) {
        self.seen = now;
    }

    /// Looks at the clock.
    fn look(&mut self, now: Instant) -> Rest {
        let gap = now.duration_since(std::mem::replace(&mut self.seen, now));
        let idle = now.duration_since(self.since);
        if gap > STALL {
            Rest::Displaced(gap)
        } else if idle < SPINNING {
            Rest::Spin
        } else if idle < YIELDING {
            Rest::Yield
        } else {
            Rest::Nap
        }
    }
}

/// Where to divide `len` for `pieces` pieces, on a multiple of `unit`; `None` if it is not to be divided.
pub(crate) fn half(len: usize, unit: usize, pieces: usize) -> Option<usize> {
    if pieces < 2 {
        return None;
    }
    let units = len / unit;
    let middle = units * (pieces / 2) / pieces * unit;
    (middle > 0).then_some(middle)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn sum(values: &[u64]) -> u64 {
        match values {
            [] => 0,
            [one] => *one,
            _ => {
                let (left, right) = values.split_at(values.len() / 2);
                let (a, b) = join(|| sum(left), || sum(right));
                a + b
            }
        }
    }

    #[test]
    fn work_with_spinning_workers_ends_on_any_number_of_threads() {
        let values: Vec<u64> = (0..257).collect();
        for threads in 1..=5 {
            let pool = rayon::ThreadPoolBuilder::new().num_threads(threads).build().unwrap();
            for _ in 0..200 {
                let total = pool.install(|| with_spinning_workers(|| sum(&values) + sum(&values[1..])));
                assert_eq!(total, 256 * 257);
            }
        }
        assert_eq!(with_spinning_workers(|| sum(&values)), 128 * 257, "outside any pool");
    }

    #[test]
    fn work_ends_and_is_the_same_where_there_are_more_threads_than_processors() {
        const ROUNDS: usize = 10;
        let values: Vec<u64> = (0..65).collect();
        let processors = thread::available_parallelism().map_or(2, usize::from);
        let pool = rayon::ThreadPoolBuilder::new().num_threads(2 * processors).build().unwrap();
        let predict = || {
            for _ in 0..ROUNDS {
                let mut chunks = vec![0; 64];
                let total = pool.install(|| {
                    with_spinning_workers(|| {
                        for_each_chunk(&mut chunks, 4, WORTHWHILE, |i, chunk| chunk.fill(i));
                        sum(&values)
                    })
                });
                assert_eq!(total, 32 * 65);
                assert!(chunks.iter().enumerate().all(|(i, &chunk)| chunk == i / 4));
            }
        };
        let over = AtomicBool::new(false);
        thread::scope(|scope| {
            let _end = SetOnDrop(&over);
            for _ in 0..2 * processors {
                scope.spawn(|| {
                    while !over.load(Ordering::Relaxed) {
                        spin_loop();
                    }
                });
            }
            // Two predictions at once on one pool, whose threads find the work of both.
            let predictions = [scope.spawn(predict), scope.spawn(predict)];
            predictions.into_iter().for_each(|prediction| prediction.join().unwrap());
        });
    }

    #[test]
    fn work_is_the_same_while_threads_are_left_out() {
        let pool = rayon::ThreadPoolBuilder::new().num_threads(3).build().unwrap();
        let values: Vec<u64> = (0..257).collect();
        for _ in 0..3 {
            MACHINE.stalled(Instant::now(), STALL * 4);
            let total = pool.install(|| {
                assert!(sharing(0) >= 1 && sharing(LONG) == 3);
                with_spinning_workers(|| sum(&values))
            });
            assert_eq!(total, 128 * 257);
        }
    }

    #[test]
    fn a_thread_without_work_spins_then_yields_then_sleeps() {
        let start = Instant::now();
        let mut idle = Idle::since(start);
        let mut rests = Vec::new();
        for microseconds in [1, 40, 60, 200, 400, 600, 800, 990, 1010, 1150] {
            rests.push(idle.look(start + Duration::from_micros(microseconds)));
        }
        assert_eq!(rests[..3], [Rest::Spin, Rest::Spin, Rest::Yield]);
        assert!(rests[3..8].iter().all(|rest| *rest == Rest::Yield), "{rests:?}");
        assert_eq!(rests[8..], [Rest::Nap, Rest::Nap]);
    }

    #[test]
    fn a_thread_that_looks_for_work_notices_that_its_processor_was_taken_away() {
        let start = Instant::now();
        let mut idle = Idle::since(start);
        let gap = Duration::from_millis(4);
        assert_eq!(idle.look(start + gap), Rest::Displaced(gap));
        let again = idle.look(start + gap + NAP);
        assert_eq!(again, Rest::Nap, "the same gap does not count twice");
        idle.slept(start + gap * 2);
        assert_eq!(idle.look(start + gap * 2 + NAP), Rest::Nap, "a long sleep is no gap");
    }

    #[test]
    fn a_wait_that_ends_is_no_stall_and_one_that_does_not_is() {
        let looks = Cell::new(0);
        let ends = || {
            looks.set(looks.get() + 1);
            looks.get() < 3
        };
        assert_eq!(spin_while(&ends), None);
        let start = Instant::now();
        assert!(spin_while(&|| true).is_some_and(|since| since >= start));
    }

    #[test]
    fn work_that_panics_leaves_no_thread_waiting() {
        let pool = rayon::ThreadPoolBuilder::new().num_threads(3).build().unwrap();
        let work = || pool.install(|| with_spinning_workers(|| panic!("on purpose")));
        assert!(std::panic::catch_unwind(std::panic::AssertUnwindSafe(work)).is_err());
        let is_busy = || pool.broadcast(|_| BUSY.get()).contains(&true);
        assert!((0..100_000).any(|_| !is_busy()), "threads end soon, though nobody waits for them");
        assert_eq!(pool.install(|| with_spinning_workers(|| sum(&[1, 2, 3]))), 6);
    }

    #[test]
    fn even_parts_cover_everything_and_are_about_as_long() {
        let pool = rayon::ThreadPoolBuilder::new().num_threads(3).build().unwrap();
        for pieces in 1..=3 {
            let (mut data, lengths) = (vec![0; 9 * 4], Mutex::new(Vec::new()));
            pool.install(|| {
                even_parts(&mut data, 4, pieces, &|start, part| {
                    part.iter_mut().zip(start..).for_each(|(v, i)| *v += i + 1);
                    lengths.lock().unwrap().push(part.len() / 4);
                });
            });
            assert!(data.iter().zip(1..).all(|(&v, i)| v == i), "{data:?}");
            let lengths = lengths.into_inner().unwrap();
            assert_eq!(lengths.len(), pieces);
            assert!(lengths.iter().max().unwrap() - lengths.iter().min().unwrap() <= 1, "{lengths:?}");
        }
    }

    #[test]
    fn every_chunk_is_met_once_with_its_index() {
        let pool = rayon::ThreadPoolBuilder::new().num_threads(3).build().unwrap();
        let mut data = vec![0; 1003];
        pool.install(|| {
            for_each_chunk(&mut data, 10, WORTHWHILE, |i, chunk| chunk.iter_mut().for_each(|v| *v += i + 1));
        });
        let expected: Vec<usize> = (0..1003).map(|i| i / 10 + 1).collect();
        assert_eq!(data, expected);
    }
}
