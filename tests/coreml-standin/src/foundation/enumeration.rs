//! Going through collections: fast enumeration, and `NSEnumerator`.

use std::cell::Cell;
use std::ffi::c_ulong;
use std::ptr::NonNull;

use objc2::rc::Retained;
use objc2::runtime::{AnyObject, NSObject};
use objc2::{ClassType, DefinedClass, define_class};
use objc2_foundation::{NSEnumerator, NSFastEnumerationState};

use crate::instance::make_public;

/// Objects in order, as every collection holds them.
pub(super) struct Objects {
    pub(super) items: Vec<Retained<AnyObject>>,
    /// Immutable, but fast enumeration asks for an address to watch.
    mutations: Cell<c_ulong>,
}

impl From<Vec<Retained<AnyObject>>> for Objects {
    fn from(items: Vec<Retained<AnyObject>>) -> Objects {
        Objects { items, mutations: Cell::new(0) }
    }
}

impl Objects {
    /// Answers fast enumeration: all at once the first time, nothing after.
    pub(super) fn enumerate(&self, state: NonNull<NSFastEnumerationState>) -> usize {
        // SAFETY: the caller passes the state of its enumeration.
        let state = unsafe { &mut *state.as_ptr() };
        if state.state != 0 {
            return 0;
        }
        state.state = 1;
        state.itemsPtr = self.items.as_ptr().cast_mut().cast();
        state.mutationsPtr = self.mutations.as_ptr();
        self.items.len()
    }

    /// An enumerator over these objects.
    pub(super) fn enumerator(&self) -> Retained<NSEnumerator> {
        make_public::<Enumerator, _>(EnumeratorState {
            objects: self.items.clone().into(),
            next: Cell::new(0),
        })
    }
}

struct EnumeratorState {
    objects: Objects,
    next: Cell<usize>,
}

define_class!(
    #[unsafe(super(NSObject))]
    #[name = "NSEnumerator"]
    #[ivars = EnumeratorState]
    struct Enumerator;

    impl Enumerator {
        #[unsafe(method_id(nextObject))]
        fn next_object(&self) -> Option<Retained<AnyObject>> {
            let next = self.ivars().next.get();
            self.ivars().next.set(next + 1);
            self.ivars().objects.items.get(next).cloned()
        }

        #[unsafe(method(countByEnumeratingWithState:objects:count:))]
        fn enumerate(&self, state: NonNull<NSFastEnumerationState>, _: NonNull<*mut AnyObject>, _: usize) -> usize {
            self.ivars().objects.enumerate(state)
        }
    }
);

pub(super) fn register() {
    Enumerator::class();
}
