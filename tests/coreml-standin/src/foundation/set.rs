//! `NSSet`.

use std::ptr::NonNull;

use objc2::rc::{Allocated, Retained};
use objc2::runtime::{AnyObject, NSObject, NSZone};
use objc2::{ClassType, DefinedClass, Message, define_class, msg_send};
use objc2_foundation::{NSArray, NSEnumerator, NSFastEnumerationState};

use super::enumeration::Objects;
use crate::instance::{is_equal, retained};

define_class!(
    #[unsafe(super(NSObject))]
    #[name = "NSSet"]
    #[ivars = Objects]
    struct Set;

    impl Set {
        #[unsafe(method_id(initWithObjects:count:))]
        fn init(this: Allocated<Self>, objects: *mut NonNull<AnyObject>, count: usize) -> Retained<Self> {
            // SAFETY: the caller passes as many objects as it says.
            let this = this.set_ivars(distinct(unsafe { retained(objects, count) }).into());
            // SAFETY: `init` of the root class takes nothing and returns the object.
            unsafe { msg_send![super(this), init] }
        }

        #[unsafe(method(count))]
        fn count(&self) -> usize {
            self.ivars().items.len()
        }

        #[unsafe(method(containsObject:))]
        fn contains(&self, object: &AnyObject) -> bool {
            self.ivars().items.iter().any(|item| is_equal(item, object))
        }

        #[unsafe(method_id(allObjects))]
        fn all(&self) -> Retained<NSArray> {
            NSArray::from_retained_slice(&self.ivars().items)
        }

        #[unsafe(method_id(objectEnumerator))]
        fn enumerator(&self) -> Retained<NSEnumerator> {
            self.ivars().enumerator()
        }

        #[unsafe(method(countByEnumeratingWithState:objects:count:))]
        fn enumerate(&self, state: NonNull<NSFastEnumerationState>, _: NonNull<*mut AnyObject>, _: usize) -> usize {
            self.ivars().enumerate(state)
        }

        #[unsafe(method_id(copyWithZone:))]
        fn copy_in(&self, _zone: *mut NSZone) -> Retained<Self> {
            self.retain()
        }
    }
);

fn distinct(objects: Vec<Retained<AnyObject>>) -> Vec<Retained<AnyObject>> {
    let mut kept: Vec<Retained<AnyObject>> = Vec::new();
    for object in objects {
        if !kept.iter().any(|known| is_equal(known, &object)) {
            kept.push(object);
        }
    }
    kept
}

pub(super) fn register() {
    Set::class();
}
