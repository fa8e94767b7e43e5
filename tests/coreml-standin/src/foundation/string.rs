//! `NSString`: UTF-8 that never changes.

use std::ffi::{CStr, c_char, c_void};
use std::slice;

use objc2::rc::{Allocated, Retained};
use objc2::runtime::{AnyObject, NSObject, NSZone};
use objc2::{ClassType, DefinedClass, Message, define_class, msg_send};
use objc2_foundation::NSString;

use crate::instance::make;

/// `NSUTF8StringEncoding`, the only one that the bindings use.
const UTF8: i32 = 4;

define_class!(
    #[unsafe(super(NSObject))]
    #[name = "NSString"]
    #[ivars = Vec<u8>] // with a final NUL
    struct Text;

    impl Text {
        #[unsafe(method_id(initWithBytes:length:encoding:))]
        fn init(this: Allocated<Self>, bytes: *const c_void, length: usize, encoding: i32) -> Option<Retained<Self>> {
            start(this, bytes, length, encoding)
        }

        #[unsafe(method_id(stringWithUTF8String:))]
        fn of_c_string(text: *const c_char) -> Option<Retained<Self>> {
            // SAFETY: the caller passes a C string.
            let bytes = unsafe { CStr::from_ptr(text) }.to_bytes_with_nul();
            std::str::from_utf8(bytes).ok().map(|text| make(text.as_bytes().to_vec()))
        }

        #[unsafe(method(UTF8String))]
        fn utf8(&self) -> *const c_char {
            self.ivars().as_ptr().cast()
        }

        #[unsafe(method(lengthOfBytesUsingEncoding:))]
        fn byte_length(&self, encoding: i32) -> usize {
            assert_eq!(encoding, UTF8, "only UTF-8 is here");
            self.ivars().len() - 1
        }

        #[unsafe(method(length))]
        fn length(&self) -> usize {
            self.text().encode_utf16().count()
        }

        #[unsafe(method(isEqualToString:))]
        fn is_equal_to_string(&self, other: &NSString) -> bool {
            self.equals(other)
        }

        #[unsafe(method(isEqual:))]
        fn is_equal(&self, other: Option<&AnyObject>) -> bool {
            other.is_some_and(|other| self.equals(other))
        }

        #[unsafe(method(hash))]
        fn hash_code(&self) -> usize {
            self.ivars().iter().fold(5381, |hash: usize, byte| hash.wrapping_mul(33) ^ usize::from(*byte))
        }

        #[unsafe(method_id(description))]
        fn describe(&self) -> Retained<Self> {
            self.retain()
        }

        #[unsafe(method_id(copyWithZone:))]
        fn copy_in(&self, _zone: *mut NSZone) -> Retained<Self> {
            self.retain()
        }
    }
);

fn start(
    this: Allocated<Text>,
    bytes: *const c_void,
    length: usize,
    encoding: i32,
) -> Option<Retained<Text>> {
    assert_eq!(encoding, UTF8, "only UTF-8 is here");
    let bytes = match length {
        0 => &[],
        // SAFETY: the caller passes as many bytes as it says.
        _ => unsafe { slice::from_raw_parts(bytes.cast::<u8>(), length) },
    };
    std::str::from_utf8(bytes).ok()?;
    let this = this.set_ivars([bytes, &[0]].concat());
    // SAFETY: `init` of the root class takes nothing and returns the object.
    unsafe { msg_send![super(this), init] }
}

impl Text {
    fn text(&self) -> &str {
        let bytes = self.ivars();
        std::str::from_utf8(&bytes[..bytes.len() - 1]).expect("checked when it was made")
    }

    fn equals(&self, other: &AnyObject) -> bool {
        other.downcast_ref::<Text>().is_some_and(|other| self.text() == other.text())
    }
}

pub(super) fn register() {
    Text::class();
}
