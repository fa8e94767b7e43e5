//! `NSArray`.

use std::ptr::NonNull;

use objc2::rc::{Allocated, Retained};
use objc2::runtime::{AnyObject, NSObject, NSZone};
use objc2::{ClassType, DefinedClass, Message, define_class, msg_send};
use objc2_foundation::{NSEnumerator, NSFastEnumerationState};

use super::enumeration::Objects;
use crate::instance::{is_equal, retained};

define_class!(
    #[unsafe(super(NSObject))]
    #[name = "NSArray"]
    #[ivars = Objects]
    struct Array;

    impl Array {
        #[unsafe(method_id(initWithObjects:count:))]
        fn init(this: Allocated<Self>, objects: *mut NonNull<AnyObject>, count: usize) -> Retained<Self> {
            // SAFETY: the caller passes as many objects as it says.
            let this = this.set_ivars(unsafe { retained(objects, count) }.into());
            // SAFETY: `init` of the root class takes nothing and returns the object.
            unsafe { msg_send![super(this), init] }
        }

        #[unsafe(method(count))]
        fn count(&self) -> usize {
            self.ivars().items.len()
        }

        #[unsafe(method_id(objectAtIndex:))]
        fn at(&self, index: usize) -> Retained<AnyObject> {
            self.ivars().items[index].clone()
        }

        #[unsafe(method_id(firstObject))]
        fn first(&self) -> Option<Retained<AnyObject>> {
            self.ivars().items.first().cloned()
        }

        #[unsafe(method_id(lastObject))]
        fn last(&self) -> Option<Retained<AnyObject>> {
            self.ivars().items.last().cloned()
        }

        #[unsafe(method(getObjects:))]
        fn copy_to(&self, out: NonNull<*const AnyObject>) {
            for (index, item) in self.ivars().items.iter().enumerate() {
                // SAFETY: the caller has room for `count` objects.
                unsafe { *out.as_ptr().add(index) = Retained::as_ptr(item) };
            }
        }

        #[unsafe(method_id(objectEnumerator))]
        fn enumerator(&self) -> Retained<NSEnumerator> {
            self.ivars().enumerator()
        }

        #[unsafe(method(countByEnumeratingWithState:objects:count:))]
        fn enumerate(&self, state: NonNull<NSFastEnumerationState>, _: NonNull<*mut AnyObject>, _: usize) -> usize {
            self.ivars().enumerate(state)
        }

        #[unsafe(method(isEqual:))]
        fn equals(&self, other: Option<&AnyObject>) -> bool {
            other.and_then(|other| other.downcast_ref::<Array>()).is_some_and(|other| {
                let (one, two) = (&self.ivars().items, &other.ivars().items);
                one.len() == two.len() && one.iter().zip(two).all(|(one, two)| is_equal(one, two))
            })
        }

        #[unsafe(method_id(copyWithZone:))]
        fn copy_in(&self, _zone: *mut NSZone) -> Retained<Self> {
            self.retain()
        }
    }
);

pub(super) fn register() {
    Array::class();
}
