//! `MLPredictionOptions`.

use std::cell::RefCell;

use objc2::rc::{Allocated, Retained};
use objc2::runtime::{AnyObject, NSObject};
use objc2::{ClassType, DefinedClass, Message, define_class, msg_send};
use objc2_core_ml::{MLMultiArray, MLPredictionOptions};
use objc2_foundation::{NSDictionary, NSString};

use crate::instance::behind;

type Backings = NSDictionary<NSString, AnyObject>;

define_class!(
    #[unsafe(super(NSObject))]
    #[name = "MLPredictionOptions"]
    #[ivars = RefCell<Option<Retained<Backings>>>]
    struct Options;

    impl Options {
        #[unsafe(method_id(init))]
        fn init(this: Allocated<Self>) -> Retained<Self> {
            // SAFETY: `init` of the root class takes nothing and returns the object.
            unsafe { msg_send![super(this.set_ivars(RefCell::default())), init] }
        }

        #[unsafe(method_id(outputBackings))]
        fn backings(&self) -> Retained<Backings> {
            let backings = self.ivars().borrow().clone();
            backings.unwrap_or_else(|| Backings::from_slices::<NSString>(&[], &[]))
        }

        #[unsafe(method(setOutputBackings:))]
        fn set_backings(&self, backings: &Backings) {
            self.ivars().replace(Some(backings.retain()));
        }
    }
);

/// The array that an output is to be written to.
pub(super) fn backing(options: Option<&MLPredictionOptions>, output: &str) -> Option<Retained<MLMultiArray>> {
    let options = behind::<Options>(options?).ivars().borrow();
    options.as_ref()?.objectForKey(&NSString::from_str(output))?.downcast().ok()
}

pub(super) fn register() {
    Options::class();
}
