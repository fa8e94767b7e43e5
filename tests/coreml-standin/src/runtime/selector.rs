//! Selectors: names that are equal exactly if their addresses are.

use std::borrow::Cow;
use std::collections::BTreeSet;
use std::ffi::{CStr, c_char};
use std::sync::{Mutex, PoisonError};

/// An interned name, which lives for ever.
pub(super) type Sel = *const c_char;

static NAMES: Mutex<BTreeSet<&'static CStr>> = Mutex::new(BTreeSet::new());

/// The selector of a name.
pub(super) fn intern(name: &CStr) -> Sel {
    let mut names = NAMES.lock().unwrap_or_else(PoisonError::into_inner);
    if let Some(known) = names.get(name) {
        return known.as_ptr();
    }
    let kept: &'static CStr = Box::leak(name.into());
    names.insert(kept);
    kept.as_ptr()
}

/// The name of a selector.
pub(super) fn name(selector: Sel) -> Cow<'static, str> {
    // SAFETY: a selector is a name that `intern` leaked.
    unsafe { CStr::from_ptr(selector) }.to_string_lossy()
}

#[unsafe(no_mangle)]
extern "C" fn sel_registerName(name: *const c_char) -> Sel {
    // SAFETY: the caller passes a C string.
    intern(unsafe { CStr::from_ptr(name) })
}

#[unsafe(no_mangle)]
extern "C" fn sel_getName(selector: Sel) -> *const c_char {
    selector
}

#[unsafe(no_mangle)]
extern "C" fn sel_isEqual(left: Sel, right: Sel) -> u8 {
    u8::from(left == right)
}
