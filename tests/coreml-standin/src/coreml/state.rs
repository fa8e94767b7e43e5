//! `MLState`: tensors that outlive a prediction.

use std::ptr::NonNull;
use std::sync::{Mutex, PoisonError};

use anemeter::runtime::{RuntimeError, Session};
use anemeter::tensor::{Tensor, TensorView};
use block2::DynBlock;
use objc2::rc::Retained;
use objc2::runtime::NSObject;
use objc2::{ClassType, DefinedClass, define_class};
use objc2_core_ml::{MLMultiArray, MLState};
use objc2_foundation::NSString;

use super::array::{self, Array, Spacing};
use super::program::{Family, Function};
use crate::fault::{self, Fault};
use crate::instance::{behind, make_public};

pub(super) struct Held {
    family: Family,
    session: Mutex<Box<dyn Session>>,
}

define_class!(
    #[unsafe(super(NSObject))]
    #[name = "MLState"]
    #[ivars = Held]
    pub(super) struct State;

    impl State {
        #[unsafe(method(getMultiArrayForStateNamed:handler:))]
        fn lend(&self, name: &NSString, handler: &DynBlock<dyn Fn(NonNull<MLMultiArray>)>) {
            self.lend_array(&name.to_string(), handler);
        }
    }
);

/// A new state for a function and all that share its states; it is zero.
pub(super) fn new(function: &Function) -> Retained<MLState> {
    make_public::<State, _>(Held {
        family: function.family().clone(),
        session: Mutex::new(function.session()),
    })
}

impl State {
    pub(super) fn of(state: &MLState) -> &State {
        behind(state)
    }

    /// Whether the state can be used with a function.
    pub(super) fn belongs_to(&self, function: &Function) -> bool {
        self.ivars().family == *function.family()
    }

    /// A prediction that reads and writes the state.
    pub(super) fn predict<T>(
        &self,
        function: &str,
        inputs: &[(&str, TensorView<'_>)],
        then: impl FnOnce(&dyn Session) -> T,
    ) -> Result<T, RuntimeError> {
        let mut session = self.ivars().session.lock().unwrap_or_else(PoisonError::into_inner);
        session.predict(function, inputs)?;
        Ok(then(&**session))
    }

    /// The array is of use only while the handler runs. What the handler writes to it is the new state. A name that
    /// there is not raises an exception.
    fn lend_array(&self, name: &str, handler: &DynBlock<dyn Fn(NonNull<MLMultiArray>)>) {
        if fault::is_on(Fault::StateNotReadable) {
            return;
        }
        let mut session = self.ivars().session.lock().unwrap_or_else(PoisonError::into_inner);
        let state =
            session.state(name).unwrap_or_else(|| panic!("The model does not have a state named {name}."));
        let array = array::holding(&state, Spacing::Rows).expect("states are arrays");
        handler.call((NonNull::from(&*array),));
        let lent: &Array = behind(&array);
        let now = Tensor::new(lent.dtype(), lent.shape().into(), lent.elements().to_vec().into());
        session.set_state(name, &now.expect("as large as before")).expect("of the same type and shape");
        lent.spoil();
    }
}

pub(super) fn register() {
    State::class();
}
