//! Protocols: the methods that `define_class!` checks a class against.

use std::collections::BTreeMap;
use std::ffi::{CStr, c_char, c_uint, c_void};
use std::ptr::{self, null, null_mut};
use std::sync::{Mutex, PoisonError};

use super::object::malloc;
use super::selector::{Sel, intern};

/// A protocol; every method in it is a required instance method.
pub(super) struct Protocol {
    name: &'static CStr,
    methods: Vec<Description>,
}

/// What `protocol_copyMethodDescriptionList` hands out.
#[repr(C)]
#[derive(Clone, Copy)]
struct Description {
    selector: Sel,
    types: *const c_char,
}

// SAFETY: both pointers are to texts that live for ever and are never written.
unsafe impl Send for Protocol {}
// SAFETY: as above.
unsafe impl Sync for Protocol {}

static PROTOCOLS: Mutex<BTreeMap<&'static CStr, &'static Protocol>> = Mutex::new(BTreeMap::new());

/// Declares a protocol by the names and type encodings of its methods.
pub(crate) fn declare(name: &'static CStr, methods: &[(&CStr, &'static CStr)]) {
    let description = |&(name, types): &(&CStr, &'static CStr)| Description {
        selector: intern(name),
        types: types.as_ptr(),
    };
    let protocol = Protocol { name, methods: methods.iter().map(description).collect() };
    let mut protocols = PROTOCOLS.lock().unwrap_or_else(PoisonError::into_inner);
    protocols.insert(name, Box::leak(Box::new(protocol)));
}

#[unsafe(no_mangle)]
extern "C" fn objc_getProtocol(name: *const c_char) -> *const Protocol {
    // SAFETY: the caller passes a C string.
    let name = unsafe { CStr::from_ptr(name) };
    let protocols = PROTOCOLS.lock().unwrap_or_else(PoisonError::into_inner);
    protocols.get(name).map_or(null(), |protocol| ptr::from_ref(*protocol))
}

#[unsafe(no_mangle)]
extern "C" fn protocol_getName(protocol: &Protocol) -> *const c_char {
    protocol.name.as_ptr()
}

#[unsafe(no_mangle)]
extern "C" fn protocol_isEqual(left: *const Protocol, right: *const Protocol) -> u8 {
    u8::from(ptr::eq(left, right))
}

/// The caller frees what it gets.
#[unsafe(no_mangle)]
extern "C" fn protocol_copyMethodDescriptionList(
    protocol: &Protocol,
    required: u8,
    instance: u8,
    count: &mut c_uint,
) -> *mut c_void {
    let methods: &[Description] = if required != 0 && instance != 0 { &protocol.methods } else { &[] };
    *count = methods.len() as c_uint;
    if methods.is_empty() {
        return null_mut();
    }
    let copy = malloc(size_of_val(methods));
    // SAFETY: the copy has just been allocated, with room for as many.
    unsafe { ptr::copy_nonoverlapping(methods.as_ptr(), copy.cast::<Description>(), methods.len()) };
    copy
}
