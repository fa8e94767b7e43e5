//! Messages: from an object and a selector to the function that answers.

use std::ffi::CStr;
use std::mem::transmute;

use super::census;
use super::class::{Class, Imp, Kind};
use super::object::{Id, class_of};
use super::selector::{Sel, intern, name};

/// What objc2 passes for a message to a superclass.
#[repr(C)]
struct Super {
    receiver: Id,
    class: &'static Class,
}

/// Answers a message to a dead object, whatever it was: with nothing.
extern "C-unwind" fn answer_of_the_dead(_: Id, _: Sel) -> usize {
    0
}

/// Answers a selector that the class does not have. Where there are exceptions this is one that nobody catches.
extern "C-unwind" fn unrecognized(object: Id, selector: Sel) {
    // SAFETY: the object was alive when its message was looked up.
    let class = unsafe { class_of(object) };
    let (sign, class) = match class {
        Some(class) if class.kind == Kind::Classes => ('+', class.title()),
        Some(class) => ('-', class.title()),
        None => ('-', "a deallocated object".to_owned()),
    };
    census::unknown_selector();
    panic!("{sign}[{class} {}]: unrecognized selector", name(selector));
}

fn find(class: &'static Class, selector: Sel) -> Imp {
    match class.method(selector) {
        Some(method) => method.imp,
        // SAFETY: it takes what every method takes first, and never returns.
        None => unsafe { transmute::<extern "C-unwind" fn(Id, Sel), Imp>(unrecognized) },
    }
}

fn look_up(object: Id, selector: Sel) -> Imp {
    // SAFETY: messages go to objects; objc2 keeps nil away.
    if let Some(class) = unsafe { class_of(object) } {
        return find(class, selector);
    }
    census::dead_message(&format!("{} sent to a deallocated object", name(selector)));
    // SAFETY: it takes what every method takes first and returns a null of any integer or pointer type.
    unsafe { transmute::<extern "C-unwind" fn(Id, Sel) -> usize, Imp>(answer_of_the_dead) }
}

/// Sends a message without arguments to a method that returns an object or nothing.
pub(super) fn send(object: Id, selector: &CStr) -> Id {
    let selector = intern(selector);
    // SAFETY: such a method has this type.
    let method: extern "C-unwind" fn(Id, Sel) -> Id = unsafe { transmute(look_up(object, selector)) };
    method(object, selector)
}

#[unsafe(no_mangle)]
extern "C-unwind" fn objc_msg_lookup(object: Id, selector: Sel) -> Imp {
    look_up(object, selector)
}

#[unsafe(no_mangle)]
extern "C-unwind" fn objc_msg_lookup_super(target: &Super, selector: Sel) -> Imp {
    debug_assert!(!target.receiver.is_null());
    find(target.class, selector)
}
