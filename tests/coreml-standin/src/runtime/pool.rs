//! Autorelease pools, one stack per thread. There is no handshake of callers and callees: what is returned
//! autoreleased always goes through the pool, the case in which a missing pool matters.

use std::cell::RefCell;
use std::ffi::c_void;

use super::census;
use super::object::{Id, release, retain};

/// What a thread has autoreleased.
#[derive(Default)]
struct Stack {
    entries: Vec<Entry>,
    open_pools: usize,
}

#[derive(Clone, Copy)]
enum Entry {
    Boundary,
    Object(usize),
}

impl Drop for Stack {
    /// A thread that ends lets go of what it autoreleased without a pool.
    fn drop(&mut self) {
        while let Some(entry) = self.entries.pop() {
            if let Entry::Object(object) = entry {
                release(object as Id);
            }
        }
    }
}

thread_local! {
    static STACK: RefCell<Stack> = RefCell::default();
}

fn autorelease(object: Id) -> Id {
    if object.is_null() {
        return object;
    }
    STACK.with_borrow_mut(|stack| {
        if stack.open_pools == 0 {
            census::autoreleased_without_pool();
        }
        stack.entries.push(Entry::Object(object as usize));
    });
    object
}

/// Gives the depth of the stack below the new pool.
#[unsafe(no_mangle)]
extern "C-unwind" fn objc_autoreleasePoolPush() -> *mut c_void {
    STACK.with_borrow_mut(|stack| {
        stack.entries.push(Entry::Boundary);
        stack.open_pools += 1;
        (stack.entries.len() - 1) as *mut c_void
    })
}

/// Releases all that came after the push. A release may autorelease more, so the stack is not borrowed meanwhile.
#[unsafe(no_mangle)]
extern "C-unwind" fn objc_autoreleasePoolPop(depth: *mut c_void) {
    loop {
        let entry = STACK.with_borrow_mut(|stack| {
            let entry = (stack.entries.len() > depth as usize).then(|| stack.entries.pop()).flatten();
            if matches!(entry, Some(Entry::Boundary)) {
                stack.open_pools -= 1;
            }
            entry
        });
        match entry {
            Some(Entry::Object(object)) => release(object as Id),
            Some(Entry::Boundary) => {}
            None => break,
        }
    }
}

#[unsafe(no_mangle)]
extern "C-unwind" fn objc_autorelease(object: Id) -> Id {
    autorelease(object)
}

#[unsafe(no_mangle)]
extern "C-unwind" fn objc_autoreleaseReturnValue(object: Id) -> Id {
    autorelease(object)
}

#[unsafe(no_mangle)]
extern "C-unwind" fn objc_retainAutorelease(object: Id) -> Id {
    autorelease(retain(object))
}

#[unsafe(no_mangle)]
extern "C-unwind" fn objc_retainAutoreleaseReturnValue(object: Id) -> Id {
    autorelease(retain(object))
}

#[unsafe(no_mangle)]
extern "C-unwind" fn objc_retainAutoreleasedReturnValue(object: Id) -> Id {
    retain(object)
}
