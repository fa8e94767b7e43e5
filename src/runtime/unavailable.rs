//! A runtime that this build does not have.

use std::sync::Arc;

use super::{Availability, LoadOptions, Loaded, Runtime, RuntimeError};
use crate::package::Package;

/// Core ML, which is part of macOS.
#[cfg(not(any(target_os = "macos", coreml_standin)))]
pub(super) static CORE_ML: Missing =
    Missing { name: "coreml", why: "Core ML is part of macOS and exists nowhere else" };

/// The other binding to it, which a cargo feature adds.
pub(super) static CORE_ML_RS: Missing = Missing {
    name: "coreml-rs",
    why: if cfg!(target_os = "macos") {
        "this program was built without the cargo feature `coreml-rs`"
    } else {
        "it is a binding to Core ML, which is part of macOS and exists nowhere else"
    },
};

/// A runtime that cannot work here.
pub(super) struct Missing {
    name: &'static str,
    why: &'static str,
}

impl Runtime for Missing {
    fn name(&self) -> &'static str {
        self.name
    }

    fn availability(&self) -> Availability {
        Availability::Unavailable(self.why.to_owned())
    }

    fn load(&self, _: &Package, _: &LoadOptions) -> Result<Arc<dyn Loaded>, RuntimeError> {
        Err(RuntimeError::Environment(self.why.to_owned()))
    }
}
