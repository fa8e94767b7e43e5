//! `NSProcessInfo`: thermal state and power mode, as tests set them.

use objc2::rc::Retained;
use objc2::runtime::NSObject;
use objc2::{ClassType, define_class};
use objc2_foundation::NSString;

use crate::fault;
use crate::instance::make;

define_class!(
    #[unsafe(super(NSObject))]
    #[name = "NSProcessInfo"]
    #[ivars = ()]
    struct ProcessInfo;

    impl ProcessInfo {
        #[unsafe(method_id(processInfo))]
        fn current() -> Retained<Self> {
            make(())
        }

        #[unsafe(method(thermalState))]
        fn thermal_state(&self) -> isize {
            fault::thermal_state()
        }

        #[unsafe(method(isLowPowerModeEnabled))]
        fn is_low_power(&self) -> bool {
            fault::is_low_power()
        }

        #[unsafe(method_id(operatingSystemVersionString))]
        fn version(&self) -> Retained<NSString> {
            NSString::from_str("Version 15.0 (Build STANDIN)")
        }
    }
);

pub(super) fn register() {
    ProcessInfo::class();
}
