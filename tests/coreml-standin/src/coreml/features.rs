//! `MLFeatureValue` and `MLDictionaryFeatureProvider`.

use objc2::rc::{Allocated, Retained};
use objc2::runtime::{AnyObject, NSObject, NSZone, ProtocolObject};
use objc2::{ClassType, DefinedClass, Message, define_class, msg_send};
use objc2_core_ml::{MLFeatureProvider, MLFeatureValue, MLMultiArray};
use objc2_foundation::{NSDictionary, NSError, NSSet, NSString};

use super::code;
use crate::foundation::error::Failure;
use crate::instance::make;

/// `MLFeatureTypeMultiArray`.
pub(super) const MULTI_ARRAY: isize = 5;

define_class!(
    #[unsafe(super(NSObject))]
    #[name = "MLFeatureValue"]
    #[ivars = Retained<MLMultiArray>]
    struct Value;

    impl Value {
        #[unsafe(method_id(featureValueWithMultiArray:))]
        fn of_array(array: &MLMultiArray) -> Retained<Self> {
            make(array.retain())
        }

        #[unsafe(method(type))]
        fn kind(&self) -> isize {
            MULTI_ARRAY
        }

        #[unsafe(method(isUndefined))]
        fn is_undefined(&self) -> bool {
            false
        }

        #[unsafe(method_id(multiArrayValue))]
        fn array(&self) -> Option<Retained<MLMultiArray>> {
            Some(self.ivars().clone())
        }

        #[unsafe(method_id(copyWithZone:))]
        fn copy_in(&self, _zone: *mut NSZone) -> Retained<Self> {
            self.retain()
        }
    }
);

type Values = NSDictionary<NSString, MLFeatureValue>;

define_class!(
    #[unsafe(super(NSObject))]
    #[name = "MLDictionaryFeatureProvider"]
    #[ivars = Retained<Values>]
    struct Provider;

    impl Provider {
        #[unsafe(method_id(initWithDictionary:error:))]
        fn init(
            this: Allocated<Self>,
            dictionary: &NSDictionary<NSString, AnyObject>,
            error: *mut *mut NSError,
        ) -> Option<Retained<Self>> {
            start(this, dictionary, error)
        }

        #[unsafe(method_id(dictionary))]
        fn dictionary(&self) -> Retained<Values> {
            self.ivars().clone()
        }

        #[unsafe(method_id(objectForKeyedSubscript:))]
        fn subscript(&self, name: &NSString) -> Option<Retained<MLFeatureValue>> {
            self.ivars().objectForKey(name)
        }
    }

    unsafe impl MLFeatureProvider for Provider {
        #[unsafe(method_id(featureNames))]
        fn names(&self) -> Retained<NSSet<NSString>> {
            NSSet::from_retained_slice(&self.ivars().to_vecs().0)
        }

        #[unsafe(method_id(featureValueForName:))]
        fn value(&self, name: &NSString) -> Option<Retained<MLFeatureValue>> {
            self.ivars().objectForKey(name)
        }
    }
);

/// Values may be feature values, or arrays that become some.
fn start(
    this: Allocated<Provider>,
    dictionary: &NSDictionary<NSString, AnyObject>,
    error: *mut *mut NSError,
) -> Option<Retained<Provider>> {
    let (names, values) = dictionary.to_vecs();
    let names: Vec<&NSString> = names.iter().map(|name| &**name).collect();
    let Some(values) = values.into_iter().map(feature_value).collect::<Option<Vec<_>>>() else {
        return Failure::new(code::FEATURE_TYPE, "A value of the dictionary is no feature value.")
            .report(error);
    };
    let this = this.set_ivars(NSDictionary::from_retained_objects(&names, &values));
    // SAFETY: `init` of the root class takes nothing and returns the object.
    unsafe { msg_send![super(this), init] }
}

fn feature_value(value: Retained<AnyObject>) -> Option<Retained<MLFeatureValue>> {
    match value.downcast::<MLMultiArray>() {
        // SAFETY: the array is one.
        Ok(array) => Some(unsafe { MLFeatureValue::featureValueWithMultiArray(&array) }),
        Err(value) => value.downcast().ok(),
    }
}

/// A provider of named arrays.
pub(super) fn provider(
    arrays: Vec<(String, Retained<MLMultiArray>)>,
) -> Retained<ProtocolObject<dyn MLFeatureProvider>> {
    let names: Vec<_> = arrays.iter().map(|(name, _)| NSString::from_str(name)).collect();
    let names: Vec<&NSString> = names.iter().map(|name| &**name).collect();
    // SAFETY: the arrays are arrays.
    let value = |array| unsafe { MLFeatureValue::featureValueWithMultiArray(array) };
    let values: Vec<_> = arrays.iter().map(|(_, array)| value(array)).collect();
    ProtocolObject::from_retained(make::<Provider>(NSDictionary::from_retained_objects(&names, &values)))
}

pub(super) fn register() {
    Value::class();
    Provider::class();
}
