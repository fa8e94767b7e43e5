//! Objects: how they are allocated, counted and given back.

use std::collections::VecDeque;
use std::ffi::c_void;
use std::ptr::{self, null, null_mut};
use std::sync::atomic::{AtomicPtr, AtomicUsize, Ordering::SeqCst};
use std::sync::{Mutex, OnceLock, PoisonError};

use super::block::{copy_block, release_block};
use super::census;
use super::class::{Class, Kind};
use super::message::send;

/// Any object, as its address.
pub(super) type Id = *mut Object;

/// What every counted object starts with. Classes and blocks share only the first field.
#[repr(C)]
pub(super) struct Object {
    isa: AtomicPtr<Class>,
    retains: AtomicUsize,
}

/// Bytes before the first instance variable.
pub(super) const HEADER: usize = size_of::<Object>();
/// In place of the count while `dealloc` runs.
const DEALLOCATING: usize = usize::MAX / 2;
/// In place of the count once the object is gone.
const DEAD: usize = usize::MAX;

/// Dead objects whose memory is kept, so that a late message meets a grave and not another object.
const GRAVES: usize = 1 << 14;
/// Set where a tool watches memory itself: nothing is kept.
const NO_GRAVES: &str = "COREML_STANDIN_NO_GRAVES";

static CEMETERY: Mutex<VecDeque<usize>> = Mutex::new(VecDeque::new());

mod libc {
    use std::ffi::c_void;

    unsafe extern "C" {
        pub(super) safe fn malloc(size: usize) -> *mut c_void;
        pub(super) safe fn calloc(count: usize, size: usize) -> *mut c_void;
        pub(super) fn free(pointer: *mut c_void);
    }
}

/// Memory that C code may free.
pub(super) fn malloc(size: usize) -> *mut c_void {
    let memory = libc::malloc(size);
    assert!(!memory.is_null(), "out of memory");
    memory
}

/// Gives back what [`malloc`] gave.
///
/// # Safety
/// Nothing uses the memory any more.
pub(super) unsafe fn free(memory: *mut c_void) {
    // SAFETY: the caller answers for it.
    unsafe { libc::free(memory) };
}

/// The class of an object, or nothing if the object is dead.
///
/// # Safety
/// The address is that of an object, a class or a block, or of a dead object.
pub(super) unsafe fn class_of(object: Id) -> Option<&'static Class> {
    // SAFETY: all of them start with their class, which lives for ever; a grave still has it.
    let class = unsafe { &*(*object).isa.load(SeqCst) };
    // SAFETY: what is neither class nor block is a counted object.
    let is_dead = class.kind == Kind::Objects && unsafe { (*object).retains.load(SeqCst) } == DEAD;
    (!is_dead).then_some(class)
}

fn report_dead(object: Id, what: &str) {
    // SAFETY: a grave still has its class.
    let name = unsafe { (*(*object).isa.load(SeqCst)).title() };
    census::dead_message(&format!("{what} sent to a deallocated {name}"));
}

/// A new object, retained once.
pub(super) fn allocate(class: &Class) -> Id {
    let object: Id = libc::calloc(1, class.instance_size()).cast();
    assert!(!object.is_null(), "out of memory");
    // SAFETY: it has just been allocated, with room for the header.
    unsafe {
        (*object).isa.store(class.pointer(), SeqCst);
        (*object).retains.store(1, SeqCst);
    }
    class.live.fetch_add(1, SeqCst);
    object
}

/// Ends an object's life.
pub(super) fn dispose(object: Id) {
    // SAFETY: only `dealloc` of the root class gets here, with an object whose last reference went.
    unsafe {
        (*(*object).isa.load(SeqCst)).live.fetch_sub(1, SeqCst);
        (*object).retains.store(DEAD, SeqCst);
    }
    static KEPT: OnceLock<usize> = OnceLock::new();
    let kept = *KEPT.get_or_init(|| if std::env::var_os(NO_GRAVES).is_some() { 0 } else { GRAVES });
    let mut graves = CEMETERY.lock().unwrap_or_else(PoisonError::into_inner);
    graves.push_back(object as usize);
    while graves.len() > kept {
        if let Some(oldest) = graves.pop_front() {
            // SAFETY: the object was allocated above and is dead.
            unsafe { free(oldest as *mut c_void) };
        }
    }
}

pub(super) fn retain(object: Id) -> Id {
    if object.is_null() {
        return object;
    }
    // SAFETY: callers pass objects.
    match unsafe { class_of(object) }.map(|class| class.kind) {
        None => report_dead(object, "retain"),
        Some(Kind::Classes) => {}
        Some(Kind::Blocks) => return copy_block(object.cast()).cast(),
        // SAFETY: a living counted object.
        Some(Kind::Objects) => unsafe {
            (*object).retains.fetch_add(1, SeqCst);
        },
    }
    object
}

pub(super) fn release(object: Id) {
    if object.is_null() {
        return;
    }
    // SAFETY: callers pass objects.
    match unsafe { class_of(object) }.map(|class| class.kind) {
        None => report_dead(object, "release"),
        Some(Kind::Classes) => {}
        Some(Kind::Blocks) => release_block(object.cast()),
        Some(Kind::Objects) => {
            // SAFETY: a living counted object.
            let before = unsafe { (*object).retains.fetch_sub(1, SeqCst) };
            if before == 1 {
                // SAFETY: as above; nobody else has a reference.
                unsafe { (*object).retains.store(DEALLOCATING, SeqCst) };
                send(object, c"dealloc");
            }
        }
    }
}

pub(super) fn retain_count(object: Id) -> usize {
    // SAFETY: callers pass living counted objects.
    unsafe { (*object).retains.load(SeqCst) }
}

#[unsafe(no_mangle)]
extern "C" fn object_getClass(object: Id) -> *const Class {
    // SAFETY: the caller passes nil or an object.
    if object.is_null() { null() } else { unsafe { (*object).isa.load(SeqCst) } }
}

#[unsafe(no_mangle)]
extern "C" fn class_createInstance(class: &Class, _: usize) -> Id {
    allocate(class)
}

#[unsafe(no_mangle)]
extern "C" fn object_dispose(object: Id) -> Id {
    dispose(object);
    null_mut()
}

#[unsafe(no_mangle)]
extern "C-unwind" fn objc_retain(object: Id) -> Id {
    retain(object)
}

#[unsafe(no_mangle)]
extern "C-unwind" fn objc_release(object: Id) {
    release(object);
}

#[unsafe(no_mangle)]
extern "C-unwind" fn objc_storeStrong(place: *mut Id, value: Id) {
    // SAFETY: the caller passes the address of a strong reference.
    let old = unsafe { ptr::replace(place, retain(value)) };
    release(old);
}
