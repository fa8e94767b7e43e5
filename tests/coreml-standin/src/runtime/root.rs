//! `NSObject`, from which every class inherits.

use std::ffi::{CStr, c_void};
use std::mem::transmute;
use std::ptr::{self, null_mut};

use super::block;
use super::class::{self, Class, Imp, Kind};
use super::message::send;
use super::object::{Id, allocate, class_of, dispose, release, retain, retain_count};
use super::protocol::Protocol;
use super::selector::{Sel, intern};

/// A method's function, by the names of its parameter types.
macro_rules! method {
    ($function:ident($($argument:ty),*) $(-> $result:ty)?) => {
        // SAFETY: a method is called by the type that its encoding states.
        unsafe { transmute::<extern "C-unwind" fn($($argument),*) $(-> $result)?, Imp>($function) }
    };
}

/// Makes the root class ready; everything else comes after.
pub(crate) fn register() {
    let (object, meta) = class::root();
    class::place(object, meta, None);
    block::register();
    let on_classes: [(&CStr, &CStr, Imp); 3] = [
        (c"alloc", c"@16@0:8", method!(alloc(&Class, Sel) -> Id)),
        (c"allocWithZone:", c"@24@0:8^v16", method!(alloc_in_zone(&Class, Sel, *mut c_void) -> Id)),
        (c"new", c"@16@0:8", method!(new(Id, Sel) -> Id)),
    ];
    let on_objects: [(&CStr, &CStr, Imp); 14] = [
        (c"init", c"@16@0:8", method!(itself(Id, Sel) -> Id)),
        (c"self", c"@16@0:8", method!(itself(Id, Sel) -> Id)),
        (c"dealloc", c"v16@0:8", method!(dealloc(Id, Sel))),
        (c"retain", c"@16@0:8", method!(retained(Id, Sel) -> Id)),
        (c"release", c"v16@0:8", method!(released(Id, Sel))),
        (c"retainCount", c"Q16@0:8", method!(count(Id, Sel) -> usize)),
        (c"class", c"#16@0:8", method!(class(Id, Sel) -> *const Class)),
        (c"isEqual:", c"C24@0:8@16", method!(is_equal(Id, Sel, Id) -> u8)),
        (c"hash", c"Q16@0:8", method!(hash(Id, Sel) -> usize)),
        (c"isKindOfClass:", c"C24@0:8#16", method!(is_kind_of(Id, Sel, *const Class) -> u8)),
        (c"isMemberOfClass:", c"C24@0:8#16", method!(is_member_of(Id, Sel, *const Class) -> u8)),
        (c"respondsToSelector:", c"C24@0:8:16", method!(responds(Id, Sel, Sel) -> u8)),
        (c"conformsToProtocol:", c"C24@0:8@16", method!(conforms(Id, Sel, *const Protocol) -> u8)),
        (c"copy", c"@16@0:8", method!(copy(Id, Sel) -> Id)),
    ];
    for (name, types, imp) in on_classes {
        meta.add_method(intern(name), imp, types);
    }
    for (name, types, imp) in on_objects {
        object.add_method(intern(name), imp, types);
    }
    class::register(object);
}

/// The class of a living receiver; methods are only ever found for those.
fn receiver_class(object: Id) -> &'static Class {
    // SAFETY: the receiver of a method is an object.
    unsafe { class_of(object) }.expect("a method runs on a living object")
}

extern "C-unwind" fn alloc(class: &Class, _: Sel) -> Id {
    allocate(class)
}

extern "C-unwind" fn alloc_in_zone(class: &Class, _: Sel, _: *mut c_void) -> Id {
    allocate(class)
}

extern "C-unwind" fn new(class: Id, _: Sel) -> Id {
    send(send(class, c"alloc"), c"init")
}

extern "C-unwind" fn itself(object: Id, _: Sel) -> Id {
    object
}

extern "C-unwind" fn dealloc(object: Id, _: Sel) {
    dispose(object);
}

extern "C-unwind" fn retained(object: Id, _: Sel) -> Id {
    retain(object)
}

extern "C-unwind" fn released(object: Id, _: Sel) {
    release(object);
}

extern "C-unwind" fn count(object: Id, _: Sel) -> usize {
    match receiver_class(object).kind {
        Kind::Objects => retain_count(object),
        Kind::Classes | Kind::Blocks => usize::MAX,
    }
}

extern "C-unwind" fn class(object: Id, _: Sel) -> *const Class {
    let class = receiver_class(object);
    if class.kind == Kind::Classes { object.cast() } else { ptr::from_ref(class) }
}

extern "C-unwind" fn is_equal(object: Id, _: Sel, other: Id) -> u8 {
    u8::from(object == other)
}

extern "C-unwind" fn hash(object: Id, _: Sel) -> usize {
    object as usize
}

extern "C-unwind" fn is_kind_of(object: Id, _: Sel, class: *const Class) -> u8 {
    u8::from(receiver_class(object).lineage().any(|above| ptr::eq(above, class)))
}

extern "C-unwind" fn is_member_of(object: Id, _: Sel, class: *const Class) -> u8 {
    u8::from(ptr::eq(receiver_class(object), class))
}

extern "C-unwind" fn responds(object: Id, _: Sel, selector: Sel) -> u8 {
    u8::from(receiver_class(object).method(selector).is_some())
}

extern "C-unwind" fn conforms(object: Id, _: Sel, protocol: *const Protocol) -> u8 {
    u8::from(receiver_class(object).conforms_to(protocol))
}

extern "C-unwind" fn copy(object: Id, _: Sel) -> Id {
    let selector = intern(c"copyWithZone:");
    let found = receiver_class(object).method(selector).expect("the class can be copied");
    // SAFETY: that is the type of this method.
    let method: extern "C-unwind" fn(Id, Sel, *mut c_void) -> Id = unsafe { transmute(found.imp) };
    method(object, selector, null_mut())
}
