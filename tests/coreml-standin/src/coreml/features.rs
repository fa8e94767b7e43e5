//! `MLFeatureValue` and `MLDictionaryFeatureProvider`.

use anemeter::mil::FeatureType;
use objc2::rc::{Allocated, Retained};
use objc2::runtime::{AnyObject, NSObject, NSZone, ProtocolObject};
use objc2::{ClassType, DefinedClass, Message, define_class, msg_send};
use objc2_core_ml::{MLFeatureProvider, MLFeatureValue, MLMultiArray};
use objc2_foundation::{NSDictionary, NSError, NSSet, NSString};

use super::code;
use crate::foundation::error::Failure;
use crate::instance::{make, make_public};

/// `MLFeatureTypeInt64`, `MLFeatureTypeString`, `MLFeatureTypeMultiArray` and `MLFeatureTypeDictionary`.
const INT64: isize = 1;
const STRING: isize = 3;
pub(super) const MULTI_ARRAY: isize = 5;
const DICTIONARY: isize = 6;

/// What a value is, and its array if it is one. Nobody reads labels and probabilities by name.
struct Content {
    kind: isize,
    array: Option<Retained<MLMultiArray>>,
}

define_class!(
    #[unsafe(super(NSObject))]
    #[name = "MLFeatureValue"]
    #[ivars = Content]
    struct Value;

    impl Value {
        #[unsafe(method_id(featureValueWithMultiArray:))]
        fn of_array(array: &MLMultiArray) -> Retained<Self> {
            make(Content { kind: MULTI_ARRAY, array: Some(array.retain()) })
        }

        #[unsafe(method(type))]
        fn kind(&self) -> isize {
            self.ivars().kind
        }

        #[unsafe(method(isUndefined))]
        fn is_undefined(&self) -> bool {
            false
        }

        #[unsafe(method_id(multiArrayValue))]
        fn array(&self) -> Option<Retained<MLMultiArray>> {
            self.ivars().array.clone()
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
        Ok(array) => Some(of_array(&array)),
        Err(value) => value.downcast().ok(),
    }
}

/// The value that an array is.
pub(super) fn of_array(array: &MLMultiArray) -> Retained<MLFeatureValue> {
    // SAFETY: the array is one.
    unsafe { MLFeatureValue::featureValueWithMultiArray(array) }
}

/// What a classifier gives beside arrays: a label, or probabilities by name.
pub(super) fn of_classifier(ty: &FeatureType) -> Option<Retained<MLFeatureValue>> {
    let kind = kind_of_classifier(ty)?;
    Some(make_public::<Value, _>(Content { kind, array: None }))
}

/// `MLFeatureType` of what classifiers give beside arrays.
pub(super) fn kind_of_classifier(ty: &FeatureType) -> Option<isize> {
    match ty {
        FeatureType::Int64 => Some(INT64),
        FeatureType::Text => Some(STRING),
        FeatureType::Int64Dictionary | FeatureType::TextDictionary => Some(DICTIONARY),
        _ => None,
    }
}

/// A provider of named values.
pub(super) fn provider(
    values: Vec<(String, Retained<MLFeatureValue>)>,
) -> Retained<ProtocolObject<dyn MLFeatureProvider>> {
    let (names, values): (Vec<_>, Vec<_>) =
        values.into_iter().map(|(name, value)| (NSString::from_str(&name), value)).unzip();
    let names: Vec<&NSString> = names.iter().map(|name| &**name).collect();
    ProtocolObject::from_retained(make::<Provider>(NSDictionary::from_retained_objects(&names, &values)))
}

pub(super) fn register() {
    Value::class();
    Provider::class();
}
