//! `MLModelConfiguration` and `MLOptimizationHints`.

use std::cell::{Cell, RefCell};

use objc2::rc::{Allocated, Retained};
use objc2::runtime::{NSObject, NSZone};
use objc2::{ClassType, DefinedClass, Message, define_class, msg_send};
use objc2_core_ml::{MLModelConfiguration, MLOptimizationHints};
use objc2_foundation::NSString;

use crate::instance::{behind, make, make_public};
use crate::witness::Asked;

/// `MLComputeUnitsAll`, which holds unless another is set.
const ALL_UNITS: isize = 2;

#[derive(Clone)]
struct Settings {
    units: Cell<isize>,
    function: RefCell<Option<Retained<NSString>>>,
    name: RefCell<Option<Retained<NSString>>>,
    hints: RefCell<Option<Retained<MLOptimizationHints>>>,
    low_precision: Cell<bool>,
}

define_class!(
    #[unsafe(super(NSObject))]
    #[name = "MLModelConfiguration"]
    #[ivars = Settings]
    struct Configuration;

    impl Configuration {
        #[unsafe(method_id(init))]
        fn init(this: Allocated<Self>) -> Retained<Self> {
            let this = this.set_ivars(Settings {
                units: Cell::new(ALL_UNITS),
                function: RefCell::default(),
                name: RefCell::default(),
                hints: RefCell::default(),
                low_precision: Cell::new(false),
            });
            // SAFETY: `init` of the root class takes nothing and returns the object.
            unsafe { msg_send![super(this), init] }
        }

        #[unsafe(method(computeUnits))]
        fn units(&self) -> isize {
            self.ivars().units.get()
        }

        #[unsafe(method(setComputeUnits:))]
        fn set_units(&self, units: isize) {
            assert!((0..=3).contains(&units), "there are no compute units {units}");
            self.ivars().units.set(units);
        }

        #[unsafe(method_id(functionName))]
        fn function(&self) -> Option<Retained<NSString>> {
            self.ivars().function.borrow().clone()
        }

        #[unsafe(method(setFunctionName:))]
        fn set_function(&self, name: Option<&NSString>) {
            self.ivars().function.replace(name.map(Message::retain));
        }

        #[unsafe(method_id(modelDisplayName))]
        fn name(&self) -> Option<Retained<NSString>> {
            self.ivars().name.borrow().clone()
        }

        #[unsafe(method(setModelDisplayName:))]
        fn set_name(&self, name: Option<&NSString>) {
            self.ivars().name.replace(name.map(Message::retain));
        }

        #[unsafe(method(allowLowPrecisionAccumulationOnGPU))]
        fn allows_low_precision(&self) -> bool {
            self.ivars().low_precision.get()
        }

        #[unsafe(method(setAllowLowPrecisionAccumulationOnGPU:))]
        fn set_low_precision(&self, allowed: bool) {
            self.ivars().low_precision.set(allowed);
        }

        #[unsafe(method_id(optimizationHints))]
        fn hints(&self) -> Retained<MLOptimizationHints> {
            self.ivars().hints.borrow_mut().get_or_insert_with(no_hints).clone()
        }

        #[unsafe(method(setOptimizationHints:))]
        fn set_hints(&self, hints: &MLOptimizationHints) {
            self.ivars().hints.replace(Some(hints.retain()));
        }

        #[unsafe(method_id(copyWithZone:))]
        fn copy_in(&self, _zone: *mut NSZone) -> Retained<Self> {
            make(self.ivars().clone())
        }
    }
);

fn no_hints() -> Retained<MLOptimizationHints> {
    make_public::<Hints, _>(Choices::default())
}

#[derive(Clone, Default)]
struct Choices {
    reshape_frequency: Cell<isize>,
    specialization: Cell<isize>,
}

define_class!(
    #[unsafe(super(NSObject))]
    #[name = "MLOptimizationHints"]
    #[ivars = Choices]
    struct Hints;

    impl Hints {
        #[unsafe(method_id(init))]
        fn init(this: Allocated<Self>) -> Retained<Self> {
            // SAFETY: `init` of the root class takes nothing and returns the object.
            unsafe { msg_send![super(this.set_ivars(Choices::default())), init] }
        }

        #[unsafe(method(reshapeFrequency))]
        fn reshape_frequency(&self) -> isize {
            self.ivars().reshape_frequency.get()
        }

        #[unsafe(method(setReshapeFrequency:))]
        fn set_reshape_frequency(&self, hint: isize) {
            self.ivars().reshape_frequency.set(hint);
        }

        #[unsafe(method(specializationStrategy))]
        fn specialization(&self) -> isize {
            self.ivars().specialization.get()
        }

        #[unsafe(method(setSpecializationStrategy:))]
        fn set_specialization(&self, strategy: isize) {
            self.ivars().specialization.set(strategy);
        }

        #[unsafe(method_id(copyWithZone:))]
        fn copy_in(&self, _zone: *mut NSZone) -> Retained<Self> {
            make(self.ivars().clone())
        }
    }
);

/// The compute units of a configuration.
pub(super) fn units(configuration: &MLModelConfiguration) -> isize {
    behind::<Configuration>(configuration).ivars().units.get()
}

/// What a configuration asks for.
pub(super) fn asked(configuration: &MLModelConfiguration) -> Asked {
    let settings = behind::<Configuration>(configuration).ivars();
    let hints = settings.hints.borrow();
    let hints = hints.as_deref().map(|hints| behind::<Hints>(hints).ivars());
    Asked {
        function: settings.function.borrow().as_ref().map(ToString::to_string),
        units: settings.units.get(),
        reshape_frequency: hints.map_or(0, |hints| hints.reshape_frequency.get()),
        specialization: hints.map_or(0, |hints| hints.specialization.get()),
    }
}

pub(super) fn register() {
    Configuration::class();
    Hints::class();
}
