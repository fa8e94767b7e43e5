//! `NSError`, with a user info that may lead to further errors, and the strings that name what is in it.

use std::sync::atomic::{AtomicPtr, Ordering::SeqCst};

use objc2::rc::{Allocated, Retained};
use objc2::runtime::{AnyObject, NSObject, NSZone};
use objc2::{AnyThread, ClassType, DefinedClass, Message, define_class, msg_send};
use objc2_core_ml::MLModelErrorDomain;
use objc2_foundation::{
    NSArray, NSDictionary, NSError, NSLocalizedDescriptionKey, NSLocalizedFailureReasonErrorKey, NSString,
    NSUnderlyingErrorKey,
};

/// Strings that the frameworks export by address.
macro_rules! exported_strings {
    ($($name:ident = $text:literal;)*) => {
        mod exported {
            use super::{AtomicPtr, NSString};
            $(
                #[unsafe(no_mangle)]
                pub(super) static $name: AtomicPtr<NSString> = AtomicPtr::new(std::ptr::null_mut());
            )*
        }

        fn export_strings() {
            $(exported::$name.store(Retained::into_raw(NSString::from_str($text)), SeqCst);)*
        }
    };
}

exported_strings! {
    NSCocoaErrorDomain = "NSCocoaErrorDomain";
    NSPOSIXErrorDomain = "NSPOSIXErrorDomain";
    NSLocalizedDescriptionKey = "NSLocalizedDescription";
    NSLocalizedFailureReasonErrorKey = "NSLocalizedFailureReason";
    NSLocalizedRecoverySuggestionErrorKey = "NSLocalizedRecoverySuggestion";
    NSDebugDescriptionErrorKey = "NSDebugDescription";
    NSUnderlyingErrorKey = "NSUnderlyingError";
    NSMultipleUnderlyingErrorsKey = "NSMultipleUnderlyingErrorsKey";
    MLModelErrorDomain = "com.apple.CoreML";
}

/// Why something failed, before it becomes an object.
#[derive(Debug, Clone)]
pub(crate) struct Failure {
    /// A code of `MLModelError`, or of the domain.
    pub(crate) code: isize,
    /// `None` is Core ML's own.
    pub(crate) domain: Option<&'static str>,
    pub(crate) text: String,
    pub(crate) cause: Option<Box<Failure>>,
}

impl Failure {
    /// A failure of Core ML itself.
    pub(crate) fn new(code: isize, text: impl Into<String>) -> Failure {
        Failure { code, domain: None, text: text.into(), cause: None }
    }

    /// The same, caused by a failure of another part of the system.
    pub(crate) fn caused_by(self, domain: &'static str, code: isize, text: impl Into<String>) -> Failure {
        let cause = Failure { code, domain: Some(domain), text: text.into(), cause: None };
        Failure { cause: Some(Box::new(cause)), ..self }
    }

    pub(crate) fn to_object(&self) -> Retained<NSError> {
        // SAFETY: the strings are set before `main`.
        let (description, underlying) = unsafe { (NSLocalizedDescriptionKey, NSUnderlyingErrorKey) };
        let mut keys = vec![description];
        let mut values: Vec<Retained<AnyObject>> = vec![NSString::from_str(&self.text).into()];
        if let Some(cause) = &self.cause {
            keys.push(underlying);
            values.push(cause.to_object().into());
        }
        let info = NSDictionary::from_retained_objects(&keys, &values);
        let named = self.domain.map(NSString::from_str);
        // SAFETY: as above.
        let domain = named.as_deref().unwrap_or(unsafe { MLModelErrorDomain });
        // SAFETY: the values are of the classes that the keys ask for.
        unsafe { NSError::initWithDomain_code_userInfo(NSError::alloc(), domain, self.code, Some(&info)) }
    }

    /// Hands the error out autoreleased through an out parameter, and nothing as result.
    pub(crate) fn report<T>(&self, out: *mut *mut NSError) -> Option<T> {
        if !out.is_null() {
            // SAFETY: the caller passes the address of its variable or null.
            unsafe { *out = Retained::autorelease_ptr(self.to_object()) };
        }
        None
    }
}

type Info = NSDictionary<NSString, AnyObject>;

struct Parts {
    domain: Retained<NSString>,
    code: isize,
    info: Option<Retained<Info>>,
}

define_class!(
    #[unsafe(super(NSObject))]
    #[name = "NSError"]
    #[ivars = Parts]
    struct Error;

    impl Error {
        #[unsafe(method_id(initWithDomain:code:userInfo:))]
        fn init(this: Allocated<Self>, domain: &NSString, code: isize, info: Option<&Info>) -> Retained<Self> {
            let this = this.set_ivars(Parts { domain: domain.retain(), code, info: info.map(Message::retain) });
            // SAFETY: `init` of the root class takes nothing and returns the object.
            unsafe { msg_send![super(this), init] }
        }

        #[unsafe(method_id(errorWithDomain:code:userInfo:))]
        fn with(domain: &NSString, code: isize, info: Option<&Info>) -> Retained<Self> {
            crate::instance::make(Parts { domain: domain.retain(), code, info: info.map(Message::retain) })
        }

        #[unsafe(method_id(domain))]
        fn domain(&self) -> Retained<NSString> {
            self.ivars().domain.clone()
        }

        #[unsafe(method(code))]
        fn code(&self) -> isize {
            self.ivars().code
        }

        #[unsafe(method_id(userInfo))]
        fn user_info(&self) -> Retained<Info> {
            self.ivars().info.clone().unwrap_or_else(|| Info::from_slices::<NSString>(&[], &[]))
        }

        #[unsafe(method_id(localizedDescription))]
        fn describe(&self) -> Retained<NSString> {
            // SAFETY: the string is set before `main`.
            self.text(unsafe { NSLocalizedDescriptionKey }).unwrap_or_else(|| self.general())
        }

        #[unsafe(method_id(localizedFailureReason))]
        fn reason(&self) -> Option<Retained<NSString>> {
            // SAFETY: the string is set before `main`.
            self.text(unsafe { NSLocalizedFailureReasonErrorKey })
        }

        #[unsafe(method_id(underlyingErrors))]
        fn causes(&self) -> Retained<NSArray<NSError>> {
            // SAFETY: the string is set before `main`.
            let cause = self.entry(unsafe { NSUnderlyingErrorKey }).and_then(|cause| cause.downcast().ok());
            NSArray::from_retained_slice(cause.as_slice())
        }

        #[unsafe(method_id(copyWithZone:))]
        fn copy_in(&self, _zone: *mut NSZone) -> Retained<Self> {
            self.retain()
        }
    }
);

impl Error {
    fn entry(&self, key: &NSString) -> Option<Retained<AnyObject>> {
        self.ivars().info.as_ref().and_then(|info| info.objectForKey(key))
    }

    fn text(&self, key: &NSString) -> Option<Retained<NSString>> {
        self.entry(key).and_then(|text| text.downcast().ok())
    }

    fn general(&self) -> Retained<NSString> {
        let Parts { domain, code, .. } = self.ivars();
        NSString::from_str(&format!("The operation couldn’t be completed. ({domain} error {code}.)"))
    }
}

pub(super) fn register() {
    Error::class();
    export_strings();
}
