//! `NSValue` and `NSNumber`.

use objc2::rc::Retained;
use objc2::runtime::{AnyObject, NSObject, NSZone};
use objc2::{ClassType, DefinedClass, Message, define_class};
use objc2_foundation::NSString;

use crate::instance::make;

#[derive(Clone, Copy, PartialEq)]
pub(super) enum Value {
    Signed(i64),
    Unsigned(u64),
    Floating(f64),
}

impl Value {
    fn integer(self) -> i64 {
        match self {
            Value::Signed(value) => value,
            Value::Unsigned(value) => value as i64,
            Value::Floating(value) => value as i64,
        }
    }

    fn floating(self) -> f64 {
        match self {
            Value::Signed(value) => value as f64,
            Value::Unsigned(value) => value as f64,
            Value::Floating(value) => value,
        }
    }
}

define_class!(
    #[unsafe(super(NSObject))]
    #[name = "NSValue"]
    struct AnyValue;
);

define_class!(
    #[unsafe(super(AnyValue, NSObject))]
    #[name = "NSNumber"]
    #[ivars = Value]
    struct Number;

    impl Number {
        #[unsafe(method_id(numberWithBool:))]
        fn of_bool(value: bool) -> Retained<Self> {
            make(Value::Unsigned(value.into()))
        }

        #[unsafe(method_id(numberWithInt:))]
        fn of_i32(value: i32) -> Retained<Self> {
            make(Value::Signed(value.into()))
        }

        #[unsafe(method_id(numberWithInteger:))]
        fn of_isize(value: isize) -> Retained<Self> {
            make(Value::Signed(value as i64))
        }

        #[unsafe(method_id(numberWithLongLong:))]
        fn of_i64(value: i64) -> Retained<Self> {
            make(Value::Signed(value))
        }

        #[unsafe(method_id(numberWithUnsignedInteger:))]
        fn of_usize(value: usize) -> Retained<Self> {
            make(Value::Unsigned(value as u64))
        }

        #[unsafe(method_id(numberWithUnsignedLongLong:))]
        fn of_u64(value: u64) -> Retained<Self> {
            make(Value::Unsigned(value))
        }

        #[unsafe(method_id(numberWithFloat:))]
        fn of_f32(value: f32) -> Retained<Self> {
            make(Value::Floating(value.into()))
        }

        #[unsafe(method_id(numberWithDouble:))]
        fn of_f64(value: f64) -> Retained<Self> {
            make(Value::Floating(value))
        }

        #[unsafe(method(boolValue))]
        fn as_bool(&self) -> bool {
            self.ivars().floating() != 0.0
        }

        #[unsafe(method(intValue))]
        fn as_i32(&self) -> i32 {
            self.ivars().integer() as i32
        }

        #[unsafe(method(integerValue))]
        fn as_isize(&self) -> isize {
            self.ivars().integer() as isize
        }

        #[unsafe(method(longLongValue))]
        fn as_i64(&self) -> i64 {
            self.ivars().integer()
        }

        #[unsafe(method(unsignedIntegerValue))]
        fn as_usize(&self) -> usize {
            self.ivars().integer() as usize
        }

        #[unsafe(method(unsignedLongLongValue))]
        fn as_u64(&self) -> u64 {
            self.ivars().integer() as u64
        }

        #[unsafe(method(floatValue))]
        fn as_f32(&self) -> f32 {
            self.ivars().floating() as f32
        }

        #[unsafe(method(doubleValue))]
        fn as_f64(&self) -> f64 {
            self.ivars().floating()
        }

        #[unsafe(method_id(stringValue))]
        fn text(&self) -> Retained<NSString> {
            NSString::from_str(&match *self.ivars() {
                Value::Signed(value) => value.to_string(),
                Value::Unsigned(value) => value.to_string(),
                Value::Floating(value) => value.to_string(),
            })
        }

        #[unsafe(method(isEqual:))]
        fn is_equal(&self, other: Option<&AnyObject>) -> bool {
            other.and_then(|other| other.downcast_ref::<Number>()).is_some_and(|other| self.equals(other))
        }

        #[unsafe(method(isEqualToNumber:))]
        fn is_equal_to_number(&self, other: &AnyObject) -> bool {
            other.downcast_ref::<Number>().is_some_and(|other| self.equals(other))
        }

        #[unsafe(method(hash))]
        fn hash_code(&self) -> usize {
            self.ivars().integer() as usize
        }

        #[unsafe(method_id(copyWithZone:))]
        fn copy_in(&self, _zone: *mut NSZone) -> Retained<Self> {
            self.retain()
        }
    }
);

impl Number {
    fn equals(&self, other: &Number) -> bool {
        let (one, two) = (self.ivars(), other.ivars());
        one.integer() == two.integer() && one.floating() == two.floating()
    }
}

pub(super) fn register() {
    AnyValue::class();
    Number::class();
}
