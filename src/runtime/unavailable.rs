//! A runtime that this build does not have.

use std::sync::Arc;

use super::{Availability, LoadOptions, LoadedModel, Runtime, RuntimeError};
use anemeter_base::vocabulary::RuntimeName;
use anemeter_mil::package::Package;

/// Core ML, which is part of macOS.
#[cfg(not(any(target_os = "macos", coreml_standin)))]
pub(super) static CORE_ML: UnavailableRuntime = UnavailableRuntime {
    name: RuntimeName::CoreMl,
    runs_bundles: true,
    why: "Core ML is part of macOS and exists nowhere else",
};

/// The other binding to it, which a cargo feature adds.
pub(super) static CORE_ML_RS: UnavailableRuntime = UnavailableRuntime {
    name: RuntimeName::CoreMlRs,
    runs_bundles: false,
    why: if cfg!(target_os = "macos") {
        "this program was built without the cargo feature `coreml-rs`"
    } else {
        "it is a binding to Core ML, which is part of macOS and exists nowhere else"
    },
};

/// A runtime that cannot work here.
pub(super) struct UnavailableRuntime {
    name: RuntimeName,
    runs_bundles: bool,
    why: &'static str,
}

impl Runtime for UnavailableRuntime {
    fn name(&self) -> RuntimeName {
        self.name
    }

    fn availability(&self) -> Availability {
        Availability::Unavailable(self.why.to_owned())
    }

    fn runs_bundles(&self) -> bool {
        self.runs_bundles
    }

    fn load(&self, _: &Package, _: &LoadOptions) -> Result<Arc<dyn LoadedModel>, RuntimeError> {
        Err(RuntimeError::Environment(self.why.to_owned()))
    }
}
