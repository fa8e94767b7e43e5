//! Blocks: closures with a count of their own.

use std::ffi::{c_int, c_void};
use std::ptr;
use std::sync::atomic::{AtomicI32, Ordering::SeqCst};

use super::census;
use super::class::{Class, Kind, place, root};
use super::object::{Id, free, malloc};

/// What every block starts with.
#[repr(C)]
struct Block {
    class: *const Class,
    /// Flags above, the count in the lower half.
    flags: AtomicI32,
    reserved: c_int,
    invoke: *const c_void,
    descriptor: *const Descriptor,
}

#[repr(C)]
struct Descriptor {
    reserved: usize,
    size: usize,
    /// These two are there only if the flags say so.
    copy: Option<extern "C-unwind" fn(*mut c_void, *const c_void)>,
    dispose: Option<extern "C-unwind" fn(*mut c_void)>,
}

const COUNT: i32 = 0xffff;
const ON_HEAP: i32 = 1 << 24;
const HAS_COPY_AND_DISPOSE: i32 = 1 << 25;
const GLOBAL: i32 = 1 << 28;

#[unsafe(no_mangle)]
static _NSConcreteStackBlock: Class = Class::new(c"__NSStackBlock__", Kind::Blocks);
#[unsafe(no_mangle)]
static _NSConcreteGlobalBlock: Class = Class::new(c"__NSGlobalBlock__", Kind::Blocks);
#[unsafe(no_mangle)]
static _NSConcreteMallocBlock: Class = Class::new(c"__NSMallocBlock__", Kind::Blocks);
static META: Class = Class::new(c"__NSBlock__", Kind::Classes);

/// Gives the classes of blocks their places.
pub(super) fn register() {
    for class in [&_NSConcreteStackBlock, &_NSConcreteGlobalBlock, &_NSConcreteMallocBlock] {
        place(class, &META, Some(root().0));
    }
}

/// A block on the heap that does what this one does: itself, retained, if it is there already.
pub(super) fn copy_block(block: *mut c_void) -> *mut c_void {
    let original: *mut Block = block.cast();
    if original.is_null() {
        return block;
    }
    // SAFETY: callers pass blocks.
    let flags = unsafe { &(*original).flags };
    let seen = flags.load(SeqCst);
    if seen & GLOBAL != 0 {
        return block;
    }
    if seen & ON_HEAP != 0 {
        if flags.fetch_add(1, SeqCst) & COUNT == 0 {
            census::dead_message("copy of a block that is gone");
        }
        return block;
    }
    // SAFETY: a block has a descriptor with its size, and is that large.
    unsafe {
        let descriptor = &*(*original).descriptor;
        let copy: *mut Block = malloc(descriptor.size).cast();
        ptr::copy_nonoverlapping(block.cast::<u8>(), copy.cast::<u8>(), descriptor.size);
        (*copy).class = &raw const _NSConcreteMallocBlock;
        (*copy).flags = AtomicI32::new((seen & !COUNT) | ON_HEAP | 1);
        if seen & HAS_COPY_AND_DISPOSE != 0
            && let Some(adopt) = descriptor.copy
        {
            adopt(copy.cast(), block);
        }
        census::block_made();
        copy.cast()
    }
}

/// Lets go of a block; what is not on the heap stays.
pub(super) fn release_block(block: *mut c_void) {
    let released: *mut Block = block.cast();
    if released.is_null() {
        return;
    }
    // SAFETY: callers pass blocks.
    let flags = unsafe { &(*released).flags };
    let seen = flags.load(SeqCst);
    if seen & ON_HEAP == 0 {
        return;
    }
    match flags.fetch_sub(1, SeqCst) & COUNT {
        0 => census::dead_message("release of a block that is gone"),
        1 => {
            // SAFETY: the last reference went, so nobody uses the block or what it holds.
            unsafe {
                let descriptor = &*(*released).descriptor;
                if seen & HAS_COPY_AND_DISPOSE != 0
                    && let Some(dispose) = descriptor.dispose
                {
                    dispose(block);
                }
                free(block);
            }
            census::block_gone();
        }
        _ => {}
    }
}

#[unsafe(no_mangle)]
extern "C-unwind" fn _Block_copy(block: *mut c_void) -> *mut c_void {
    copy_block(block)
}

#[unsafe(no_mangle)]
extern "C-unwind" fn _Block_release(block: *mut c_void) {
    release_block(block);
}

#[unsafe(no_mangle)]
extern "C-unwind" fn objc_retainBlock(block: Id) -> Id {
    copy_block(block.cast()).cast()
}
