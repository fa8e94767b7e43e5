//! What lives, and what a correct program never does.

use std::collections::BTreeMap;
use std::sync::Mutex;
use std::sync::PoisonError;
use std::sync::atomic::{AtomicIsize, AtomicUsize, Ordering::SeqCst};

use super::class;

static BLOCKS: AtomicIsize = AtomicIsize::new(0);
static DEAD_MESSAGES: AtomicUsize = AtomicUsize::new(0);
static UNPOOLED: AtomicUsize = AtomicUsize::new(0);
static UNKNOWN_SELECTORS: AtomicUsize = AtomicUsize::new(0);
static LAST_DEAD_MESSAGE: Mutex<Option<String>> = Mutex::new(None);

/// What was alive and what had gone wrong at one moment.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Census {
    /// Live objects by class; classes without any are left out.
    pub objects: BTreeMap<String, isize>,
    /// Blocks on the heap.
    pub blocks: isize,
    /// Messages, retains and releases that reached a deallocated object or block.
    pub dead_messages: usize,
    /// Objects that were autoreleased on a thread without a pool.
    pub unpooled: usize,
    /// Messages that no class understood.
    pub unknown_selectors: usize,
}

/// Counts everything.
pub fn take() -> Census {
    let alive = class::registered().into_iter().map(|class| (class.title(), class.live.load(SeqCst)));
    Census {
        objects: alive.filter(|(_, count)| *count != 0).collect(),
        blocks: BLOCKS.load(SeqCst),
        dead_messages: DEAD_MESSAGES.load(SeqCst),
        unpooled: UNPOOLED.load(SeqCst),
        unknown_selectors: UNKNOWN_SELECTORS.load(SeqCst),
    }
}

/// The last message to a deallocated object, if there was one.
pub fn last_dead_message() -> Option<String> {
    LAST_DEAD_MESSAGE.lock().unwrap_or_else(PoisonError::into_inner).clone()
}

pub(super) fn dead_message(what: &str) {
    DEAD_MESSAGES.fetch_add(1, SeqCst);
    *LAST_DEAD_MESSAGE.lock().unwrap_or_else(PoisonError::into_inner) = Some(what.to_owned());
}

pub(super) fn autoreleased_without_pool() {
    UNPOOLED.fetch_add(1, SeqCst);
}

pub(super) fn unknown_selector() {
    UNKNOWN_SELECTORS.fetch_add(1, SeqCst);
}

pub(super) fn block_made() {
    BLOCKS.fetch_add(1, SeqCst);
}

pub(super) fn block_gone() {
    BLOCKS.fetch_sub(1, SeqCst);
}
