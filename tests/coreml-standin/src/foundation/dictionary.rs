//! `NSDictionary`, in the order in which it was filled.

use std::ptr::NonNull;

use objc2::rc::{Allocated, Retained};
use objc2::runtime::{AnyObject, NSObject, NSZone};
use objc2::{ClassType, DefinedClass, Message, define_class, msg_send};
use objc2_foundation::{NSArray, NSEnumerator, NSFastEnumerationState};

use super::enumeration::Objects;
use crate::instance::{is_equal, retained};

struct Entries {
    keys: Objects,
    values: Objects,
}

define_class!(
    #[unsafe(super(NSObject))]
    #[name = "NSDictionary"]
    #[ivars = Entries]
    struct Dictionary;

    impl Dictionary {
        #[unsafe(method_id(init))]
        fn init_empty(this: Allocated<Self>) -> Retained<Self> {
            start(this, Vec::new(), Vec::new())
        }

        #[unsafe(method_id(dictionary))]
        fn empty() -> Retained<Self> {
            crate::instance::make(Entries { keys: Vec::new().into(), values: Vec::new().into() })
        }

        #[unsafe(method_id(initWithObjects:forKeys:count:))]
        fn init(
            this: Allocated<Self>,
            values: *mut NonNull<AnyObject>,
            keys: *mut NonNull<AnyObject>,
            count: usize,
        ) -> Retained<Self> {
            // SAFETY: the caller passes as many objects as it says.
            let (keys, values) = unsafe { (retained(keys, count), retained(values, count)) };
            start(this, keys, values)
        }

        #[unsafe(method(count))]
        fn count(&self) -> usize {
            self.ivars().keys.items.len()
        }

        #[unsafe(method_id(objectForKey:))]
        fn value_of(&self, key: &AnyObject) -> Option<Retained<AnyObject>> {
            let position = self.ivars().keys.items.iter().position(|known| is_equal(known, key));
            position.map(|index| self.ivars().values.items[index].clone())
        }

        #[unsafe(method_id(allKeys))]
        fn keys(&self) -> Retained<NSArray> {
            NSArray::from_retained_slice(&self.ivars().keys.items)
        }

        #[unsafe(method_id(allValues))]
        fn values(&self) -> Retained<NSArray> {
            NSArray::from_retained_slice(&self.ivars().values.items)
        }

        #[unsafe(method(getObjects:andKeys:))]
        fn copy_to(&self, values: *mut *const AnyObject, keys: *mut *const AnyObject) {
            let entries = self.ivars();
            for (index, (key, value)) in entries.keys.items.iter().zip(&entries.values.items).enumerate() {
                // SAFETY: the caller has room for `count` keys and values.
                unsafe {
                    *keys.add(index) = Retained::as_ptr(key);
                    *values.add(index) = Retained::as_ptr(value);
                }
            }
        }

        #[unsafe(method_id(keyEnumerator))]
        fn key_enumerator(&self) -> Retained<NSEnumerator> {
            self.ivars().keys.enumerator()
        }

        #[unsafe(method_id(objectEnumerator))]
        fn value_enumerator(&self) -> Retained<NSEnumerator> {
            self.ivars().values.enumerator()
        }

        #[unsafe(method(countByEnumeratingWithState:objects:count:))]
        fn enumerate(&self, state: NonNull<NSFastEnumerationState>, _: NonNull<*mut AnyObject>, _: usize) -> usize {
            self.ivars().keys.enumerate(state)
        }

        #[unsafe(method_id(copyWithZone:))]
        fn copy_in(&self, _zone: *mut NSZone) -> Retained<Self> {
            self.retain()
        }
    }
);

/// Keys are copied, and of equal keys the last counts.
fn start(
    this: Allocated<Dictionary>,
    keys: Vec<Retained<AnyObject>>,
    values: Vec<Retained<AnyObject>>,
) -> Retained<Dictionary> {
    let mut entries = Entries { keys: Vec::new().into(), values: Vec::new().into() };
    for (key, value) in keys.into_iter().zip(values) {
        if let Some(known) = entries.keys.items.iter().position(|known| is_equal(known, &key)) {
            entries.values.items[known] = value;
            continue;
        }
        // SAFETY: keys of dictionaries can be copied.
        entries.keys.items.push(unsafe { msg_send![&*key, copy] });
        entries.values.items.push(value);
    }
    // SAFETY: `init` of the root class takes nothing and returns the object.
    unsafe { msg_send![super(this.set_ivars(entries)), init] }
}

pub(super) fn register() {
    Dictionary::class();
}
