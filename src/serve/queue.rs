//! Requests on their way to sessions: first come, first served, and no more than may wait.

use std::collections::VecDeque;
use std::sync::{Condvar, Mutex, MutexGuard, PoisonError};
use std::time::Instant;

use tokio::sync::mpsc::UnboundedSender;

use crate::event::Event;
use crate::task::Task;

/// A task and where its events go. A channel takes no more events than a context has tokens, so it needs no bound.
#[derive(Debug)]
pub(crate) struct Queued {
    pub(crate) task: Task,
    pub(crate) events: UnboundedSender<Event>,
    pub(crate) arrived: Instant,
}

/// What waits for a session.
#[derive(Debug)]
pub(crate) struct Queue {
    state: Mutex<State>,
    changed: Condvar,
    most: usize,
}

#[derive(Debug, Default)]
struct State {
    waiting: VecDeque<Queued>,
    is_closed: bool,
}

/// The queue is full or closed.
#[derive(Debug, PartialEq, Eq)]
pub(crate) struct Refused;

impl Queue {
    pub(crate) fn new(most: usize) -> Queue {
        Queue { state: Mutex::default(), changed: Condvar::new(), most }
    }

    /// Adds tasks that belong together: all of them or none.
    pub(crate) fn push(&self, tasks: Vec<Queued>) -> Result<(), Refused> {
        let mut state = self.lock();
        // A client that has left frees its place.
        state.waiting.retain(|waiting| !waiting.events.is_closed());
        if state.is_closed || state.waiting.len() + tasks.len() > self.most {
            return Err(Refused);
        }
        state.waiting.extend(tasks);
        self.changed.notify_all();
        Ok(())
    }

    /// Waits for the next task; nothing once the queue is closed.
    pub(crate) fn next(&self) -> Option<Queued> {
        let mut state = self.lock();
        loop {
            if state.is_closed {
                return None;
            }
            match state.waiting.pop_front() {
                Some(task) => return Some(task),
                None => state = self.changed.wait(state).unwrap_or_else(PoisonError::into_inner),
            }
        }
    }

    pub(crate) fn len(&self) -> usize {
        self.lock().waiting.len()
    }

    /// Takes no more tasks and drops those that wait, which ends their channels.
    pub(crate) fn close(&self) {
        let mut state = self.lock();
        state.is_closed = true;
        state.waiting.clear();
        self.changed.notify_all();
    }

    fn lock(&self) -> MutexGuard<'_, State> {
        // A panic elsewhere leaves a deque of tasks as good as it was.
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }
}
