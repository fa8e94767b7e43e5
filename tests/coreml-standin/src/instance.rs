//! Making instances of the classes that are defined here, and telling what is behind a public type.

use objc2::rc::Retained;
use objc2::runtime::AnyObject;
use objc2::{AnyThread, ClassType, DefinedClass, DowncastTarget, Message, msg_send};

/// A new instance that has nothing to inherit but `NSObject`.
pub(crate) fn make<T>(ivars: T::Ivars) -> Retained<T>
where
    T: DefinedClass + ClassType<ThreadKind = dyn AnyThread>,
    T::Super: ClassType,
{
    let this = T::alloc().set_ivars(ivars);
    // SAFETY: `init` of every superclass here takes nothing and returns the object.
    unsafe { msg_send![super(this), init] }
}

/// A new instance as the type that the framework's binding has for its class.
pub(crate) fn make_public<T, Public>(ivars: T::Ivars) -> Retained<Public>
where
    T: DefinedClass + ClassType<ThreadKind = dyn AnyThread>,
    T::Super: ClassType,
    Public: ClassType,
{
    assert_eq!(T::class(), Public::class(), "both types are of the same class");
    // SAFETY: the object is of the public type's class.
    unsafe { Retained::cast_unchecked(make::<T>(ivars)) }
}

/// What is behind an object of the framework's type.
pub(crate) fn behind<T: DowncastTarget>(object: &AnyObject) -> &T {
    object.downcast_ref().unwrap_or_else(|| panic!("an object of another class was passed as {}", T::NAME))
}

/// Whether two objects say that they are equal.
pub(crate) fn is_equal(left: &AnyObject, right: &AnyObject) -> bool {
    // SAFETY: every object answers `isEqual:`.
    unsafe { msg_send![left, isEqual: right] }
}

/// The objects of a C array, retained.
///
/// # Safety
/// The address is that of `count` objects.
pub(crate) unsafe fn retained(
    objects: *const std::ptr::NonNull<AnyObject>,
    count: usize,
) -> Vec<Retained<AnyObject>> {
    // SAFETY: the caller answers for it.
    (0..count).map(|index| unsafe { (*objects.add(index)).as_ref() }.retain()).collect()
}
